// The metadata server stopped at every step of its log, its manifest and its state, under a random stream of commits. After each
// stop a fresh server must show every commit that was answered exactly once, the others as whole commits or not at all, and go
// on from there when the client repeats what was not answered.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/meta_world.h"

namespace archil::test {
namespace {

// What the root directory shows, as plain strings; hard links share their content.
struct Model {
  std::map<std::string, InodeId> names;
  std::map<InodeId, std::string> content;
  friend bool operator==(const Model&, const Model&) = default;
};

// Makes commits that are allowed in the state that the model is in, and moves the model.
class Stream {
 public:
  explicit Stream(uint64_t seed) : random_(SeededRandom(seed)) {}

  std::vector<Op> Next(TestSession& s, Model& m) {
    std::vector<Op> ops;
    const uint64_t n = 1 + random_->Below(5);
    for (uint64_t i = 0; i < n; ++i) One(s, m, ops);
    return ops;
  }

 private:
  std::string Pick(const Model& m) {
    auto it = m.names.begin();
    std::advance(it, static_cast<long>(random_->Below(m.names.size())));
    return it->first;
  }
  std::string Text(size_t max) { return std::string(1 + random_->Below(max), static_cast<char>('a' + random_->Below(26))); }
  static void Forget(Model& m, InodeId ino) {
    for (const auto& [name, other] : m.names) {
      if (other == ino) return;
    }
    m.content.erase(ino);
  }

  void One(TestSession& s, Model& m, std::vector<Op>& ops) {
    const uint64_t kind = m.names.empty() ? 0 : random_->Below(7);
    const std::string fresh = "n" + std::to_string(++counter_);
    if (kind <= 1) {
      const CreateOp create = s.File(kRootInode, fresh);
      const std::string text = Text(300);
      ops.push_back(create);
      ops.push_back(s.Inline(create.ino, 0, text, text.size()));
      m.names[fresh] = create.ino;
      m.content[create.ino] = text;
      return;
    }
    const std::string name = Pick(m);
    const InodeId ino = m.names[name];
    std::string& content = m.content[ino];
    if (kind == 2) {
      const uint64_t at = random_->Below(content.size() + 50);
      const std::string text = Text(100);
      if (content.size() < at + text.size()) content.resize(at + text.size(), '\0');
      content.replace(at, text.size(), text);
      ops.push_back(s.Inline(ino, at, text, content.size()));
    } else if (kind == 3) {
      SetAttrOp cut;
      cut.ino = ino;
      cut.fields = SetAttrOp::kSize;
      cut.size = random_->Below(content.size() + 20);
      cut.now = s.Now();
      content.resize(cut.size, '\0');
      ops.push_back(cut);
    } else if (kind == 4) {
      ops.push_back(UnlinkOp{kRootInode, name, ino, false, s.Now()});
      m.names.erase(name);
      Forget(m, ino);
    } else if (kind == 5) {
      ops.push_back(LinkOp{ino, kRootInode, fresh, s.Now()});
      m.names[fresh] = ino;
    } else {
      const std::string target = Pick(m);
      const InodeId victim = m.names[target];
      if (victim == ino) return;
      RenameOp op{kRootInode, name, kRootInode, target, ino, victim};
      op.now = s.Now();
      ops.push_back(op);
      m.names.erase(name);
      m.names[target] = ino;
      Forget(m, victim);
    }
  }

  std::unique_ptr<Random> random_;
  int counter_ = 0;
};

void ExpectShows(TestSession& s, const Model& m, uint64_t used_inodes) {
  auto names = s.Names(kRootInode);
  ASSERT_TRUE(names.ok()) << names.error().ToString();
  ASSERT_EQ(names->size(), m.names.size());
  uint64_t at = 0;
  for (const auto& [name, ino] : m.names) {
    EXPECT_EQ((*names)[at++], name);
    auto info = s.Lookup(kRootInode, name);
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->attr.ino, ino);
    auto content = s.Content(ino);
    ASSERT_TRUE(content.ok()) << content.error().ToString();
    EXPECT_EQ(*content, m.content.at(ino)) << name;
  }
  EXPECT_EQ(used_inodes, 1 + m.content.size());
}

// What stops the machine in one run.
struct Stop {
  enum class Where : uint8_t { kNever, kAppend, kAppendApplied, kFiles, kFlush };
  Where where = Where::kNever;
  uint64_t step = 0;
};

class MetaCrashTest : public ::testing::Test {
 protected:
  static constexpr int kCommits = 24;

  // True if the stop was reached.
  bool RunOnce(uint64_t seed, const Stop& stop) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " where " << static_cast<int>(stop.where) << " step " << stop.step);
    MetaWorld world(2);
    world.config.log_segment_bytes = 1500;
    world.config.flush_bytes = 700;
    EXPECT_TRUE(world.Start().ok());
    EXPECT_TRUE(world.meta().CreateDisk({}, "disk", 0).ok());
    auto opened = TestSession::Open(world.meta(), "disk");
    EXPECT_TRUE(opened.ok());
    if (!opened.ok()) return false;
    TestSession s = *opened;
    Arm(world, stop);

    Stream stream(seed);
    std::vector<Model> after = {Model{}};  // after so many sequence numbers' commits
    std::vector<Seq> ends = {Seq{0}};
    std::vector<CommitRequest> requests = {{}};
    size_t answered = 0;
    bool stopped = false;
    for (int i = 0; i < kCommits && !stopped; ++i) {
      Model next = after.back();
      const std::vector<Op> ops = stream.Next(s, next);
      const CommitRequest request = s.Request(ops);
      auto reply = s.Send(request);
      after.push_back(std::move(next));
      ends.push_back(request.last);
      requests.push_back(request);
      if (reply.ok()) {
        answered = after.size() - 1;
        s.Applied(request.last);
      } else {
        EXPECT_TRUE(reply.code() == Code::kUnknown || reply.code() == Code::kUnavailable) << reply.error().ToString();
        stopped = true;
      }
    }
    if (stop.where == Stop::Where::kFlush) stopped = world.states.flushes >= stop.step;
    world.Kill();
    auto random = SeededRandom(seed * 1000 + stop.step);
    world.files.Crash(*random);
    EXPECT_TRUE(world.Start().ok());
    Verify(world, s, after, ends, requests, answered);
    return stopped;
  }

  static void Arm(MetaWorld& world, const Stop& stop) {
    switch (stop.where) {
      case Stop::Where::kNever: return;
      case Stop::Where::kAppend:
      case Stop::Where::kAppendApplied:
        for (int i = 0; i < 2; ++i) world.data.at(i).DieAfter(stop.step, stop.where == Stop::Where::kAppendApplied);
        return;
      case Stop::Where::kFiles: world.files.FailAfter(stop.step); return;
      case Stop::Where::kFlush: world.states.CutAfter(stop.step); return;
    }
  }

  static void Verify(MetaWorld& world, TestSession& s, std::vector<Model>& after, const std::vector<Seq>& ends,
                     const std::vector<CommitRequest>& requests, size_t answered) {
    ASSERT_TRUE(s.Back(world.meta()).ok());
    auto renewed = world.meta().Renew({}, s.id(), s.key(), 0);
    ASSERT_TRUE(renewed.ok()) << renewed.error().ToString();
    const auto it = std::find(ends.begin(), ends.end(), renewed->applied);
    ASSERT_NE(it, ends.end()) << "half a commit is there";
    const auto applied = static_cast<size_t>(it - ends.begin());
    ASSERT_GE(applied, answered) << "an answered commit was lost";
    ExpectShows(s, after[applied], world.meta().ShowDisk({}, "disk")->used_inodes);
    // The client repeats everything from its newest answered commit on, also what had been applied.
    for (size_t i = std::max<size_t>(answered, 1); i < requests.size(); ++i) {
      auto repeat = s.Send(requests[i]);
      ASSERT_TRUE(repeat.ok()) << repeat.error().ToString();
      EXPECT_GE(repeat->applied, requests[i].last);
    }
    ExpectShows(s, after.back(), world.meta().ShowDisk({}, "disk")->used_inodes);
    s.Applied(ends.back());
    ASSERT_TRUE(s.Commit({s.File(kRootInode, "last")}).ok());
    // And once more from the log alone.
    world.Stop();
    world.states.Forget();
    ASSERT_TRUE(world.Start().ok());
    ASSERT_TRUE(s.Back(world.meta()).ok());
    Model last = after.back();
    const auto info = s.Lookup(kRootInode, "last");
    ASSERT_TRUE(info.ok()) << info.error().ToString();
    last.names["last"] = info->attr.ino;
    last.content[info->attr.ino] = "";
    ExpectShows(s, last, world.meta().ShowDisk({}, "disk")->used_inodes);
  }

  // Every step of this kind until the stream ends without reaching it; how many were reached.
  uint64_t RunAll(Stop::Where where, uint64_t stride = 1) {
    uint64_t reached = 0;
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      for (uint64_t step = seed % stride; step < 400; step += stride) {
        if (!RunOnce(seed, {where, step}) || HasFailure()) break;
        ++reached;
      }
    }
    return reached;
  }
};

TEST_F(MetaCrashTest, AKillAtTheEndLosesNothing) {
  RunOnce(1, {});
  RunOnce(2, {});
}

TEST_F(MetaCrashTest, EveryAppendOfTheLog) { EXPECT_GE(RunAll(Stop::Where::kAppend), 20u); }
TEST_F(MetaCrashTest, EveryAppendWhoseAnswerIsLost) { EXPECT_GE(RunAll(Stop::Where::kAppendApplied), 20u); }
TEST_F(MetaCrashTest, EveryStepOfTheManifest) { EXPECT_GE(RunAll(Stop::Where::kFiles, 2), 10u); }
TEST_F(MetaCrashTest, EveryFlushOfTheState) { EXPECT_GE(RunAll(Stop::Where::kFlush), 10u); }

// A server that is stopped while it opens, at each step of that, opens the next time.
TEST_F(MetaCrashTest, EveryStepOfOpening) {
  uint64_t stops = 0;
  for (const char* point : {"meta.open.epoch", "meta.open.fenced", "meta.open.replayed"}) {
    MetaWorld world;
    ASSERT_TRUE(world.Start().ok());
    ASSERT_TRUE(world.meta().CreateDisk({}, "disk", 0).ok());
    TestSession s = *TestSession::Open(world.meta(), "disk");
    ASSERT_TRUE(s.Commit({s.File(kRootInode, "a")}).ok());
    for (int i = 0; i < 3; ++i) {
      world.Kill();
      ASSERT_TRUE(world.faults.Arm(std::string(point) + "=error").ok());
      ASSERT_TRUE(world.Start().ok());
      (void)s.Back(world.meta());
      if (!s.Lookup(kRootInode, "a").ok()) ++stops;
    }
    world.Kill();
    ASSERT_TRUE(world.Start().ok());
    ASSERT_TRUE(s.Back(world.meta()).ok());
    EXPECT_TRUE(s.Lookup(kRootInode, "a").ok());
    EXPECT_TRUE(s.Commit({s.File(kRootInode, "b")}).ok());
  }
  EXPECT_EQ(stops, 9u);

  uint64_t file_stops = 0;
  for (uint64_t step = 0;; ++step) {
    MetaWorld world;
    ASSERT_TRUE(world.Start().ok());
    ASSERT_TRUE(world.meta().CreateDisk({}, "disk", 0).ok());
    TestSession s = *TestSession::Open(world.meta(), "disk");
    ASSERT_TRUE(s.Commit({s.File(kRootInode, "a")}).ok());
    world.Kill();
    world.files.FailAfter(step);
    const bool opened = world.Start().ok();
    const bool reached = world.files.stopped();
    if (opened) world.Kill();
    auto random = SeededRandom(step);
    world.files.Crash(*random);
    ASSERT_TRUE(world.Start().ok()) << "step " << step;
    ASSERT_TRUE(s.Back(world.meta()).ok());
    EXPECT_TRUE(s.Lookup(kRootInode, "a").ok()) << "step " << step;
    if (!reached) break;
    ++file_stops;
  }
  EXPECT_GE(file_stops, 4u);
}

}  // namespace
}  // namespace archil::test
