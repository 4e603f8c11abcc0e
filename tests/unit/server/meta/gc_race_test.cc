// Garbage collection beside a session that works and ends: the collection is held at a gate between its snapshot and its
// verdict, and what happens there must not cost a segment that a file uses.
#include <gtest/gtest.h>

#include "common/base/checksum.h"
#include "tests/support/meta_world.h"

namespace archil::test {
namespace {

// Holds the reader of one snapshot until it is opened. Thread safe.
class Gate {
 public:
  // The next snapshot's reader waits.
  void Close() {
    MutexLock lock(mu_);
    state_ = State::kArmed;
  }
  void Open() {
    MutexLock lock(mu_);
    state_ = State::kOpen;
    cv_.SignalAll();
  }
  // True once a reader waits; false if none came in time.
  bool AwaitReader() {
    const BootTime limit = RealScheduler().clock().Boot() + absl::Seconds(30);
    MutexLock lock(mu_);
    while (state_ != State::kHolding) {
      if (cv_.WaitUntil(mu_, limit)) return state_ == State::kHolding;
    }
    return true;
  }

  // Of the store: is the snapshot that is taken now the one?
  bool Claim() {
    MutexLock lock(mu_);
    if (state_ != State::kArmed) return false;
    state_ = State::kClaimed;
    return true;
  }
  void Pass() {
    MutexLock lock(mu_);
    if (state_ == State::kClaimed) state_ = State::kHolding;
    cv_.SignalAll();
    while (state_ == State::kHolding) cv_.Wait(mu_);
  }

 private:
  enum class State { kOpen, kArmed, kClaimed, kHolding };
  Mutex mu_{RealScheduler()};
  CondVar cv_{RealScheduler()};
  State state_ ABSL_GUARDED_BY(mu_) = State::kOpen;
};

class GatedView final : public KvView {
 public:
  GatedView(std::unique_ptr<KvView> view, Gate& gate) : view_(std::move(view)), gate_(gate) {}
  Result<std::optional<std::string>> Get(std::string_view key) override {
    gate_.Pass();
    return view_->Get(key);
  }
  Status Scan(std::string_view begin, std::string_view end, const std::function<bool(std::string_view, std::string_view)>& fn) override {
    gate_.Pass();
    return view_->Scan(begin, end, fn);
  }

 private:
  const std::unique_ptr<KvView> view_;
  Gate& gate_;
};

class GatedKv final : public KvStore {
 public:
  GatedKv(std::unique_ptr<KvStore> kv, Gate& gate) : kv_(std::move(kv)), gate_(gate) {}
  Result<std::optional<std::string>> Get(std::string_view key) override { return kv_->Get(key); }
  Status Scan(std::string_view begin, std::string_view end, const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return kv_->Scan(begin, end, fn);
  }
  Status Write(const KvBatch& batch) override { return kv_->Write(batch); }
  std::unique_ptr<KvView> Snapshot() override {
    const bool gated = gate_.Claim();
    auto view = kv_->Snapshot();
    if (!gated) return view;
    return std::make_unique<GatedView>(std::move(view), gate_);
  }
  Status Flush() override { return kv_->Flush(); }
  uint64_t UnflushedBytes() override { return kv_->UnflushedBytes(); }

 private:
  const std::unique_ptr<KvStore> kv_;
  Gate& gate_;
};

class GcRaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    w_.wrap_state = [this](std::unique_ptr<KvStore> kv) { return std::make_unique<GatedKv>(std::move(kv), gate_); };
    ASSERT_TRUE(w_.Start().ok());
    ASSERT_TRUE(w_.meta().CreateDisk({}, "disk", 0).ok());
  }
  void TearDown() override {
    gate_.Open();
    w_.Stop();
  }
  TestSession Open(SessionKey key) {
    auto s = TestSession::Open(w_.meta(), "disk", key);
    EXPECT_TRUE(s.ok()) << s.error().ToString();
    return *s;
  }
  // A new segment of the session, with bytes in it.
  SegmentId Segment(const TestSession& s) {
    const auto grants = w_.meta().AllocateSegments({}, s.id(), s.key(), 1);
    EXPECT_TRUE(grants.ok());
    const Buffer data(std::string(100, 'd'));
    const SegmentGrant& g = (*grants)[0];
    EXPECT_TRUE(w_.data.at(0).Append({}, {s.reply().disk.id, g.segment}, g.token, 0, data, Checksum(data.view())).ok());
    return g.segment;
  }
  // Returns when a collection has taken its snapshot and looked at nothing yet.
  void CollectUpToTheGate() {
    gate_.Close();
    w_.meta().RunBlocking([this] {
      EXPECT_TRUE(w_.meta().CollectGarbage({}).ok());
      collected_.Notify();
    });
    ASSERT_TRUE(gate_.AwaitReader());
  }
  // Whatever was under way is finished, and one more whole collection.
  void FinishCollecting() {
    gate_.Open();
    collected_.Wait();
    ASSERT_TRUE(w_.meta().CollectGarbage({}).ok());
  }
  bool Held(SegmentId segment) {
    for (const SegmentKey& key : w_.data.at(0).Keys()) {
      if (key.segment == segment) return true;
    }
    return false;
  }

  Gate gate_;
  Notification collected_{RealScheduler()};
  MetaWorld w_;
};

// In the snapshot nothing is let go, so its references were never looked for: it says nothing about what is let go later.
TEST_F(GcRaceTest, ASessionThatEndsBetweenSnapshotAndVerdictKeepsWhatItsFilesUse) {
  TestSession a = Open({1, 1});
  const SegmentId used = Segment(a);
  const CreateOp f = a.File(kRootInode, "f");
  ASSERT_TRUE(a.Commit({f, a.InSegment(f.ino, 0, 50, used, 0, 50)}).ok());
  ASSERT_NO_FATAL_FAILURE(CollectUpToTheGate());
  ASSERT_TRUE(w_.meta().CloseSession({}, a.id(), a.key()).ok());
  ASSERT_NO_FATAL_FAILURE(FinishCollecting());
  EXPECT_TRUE(Held(used));
  TestSession b = Open({2, 2});
  EXPECT_TRUE(w_.meta().LocateSegment({}, b.id(), used).ok());
  EXPECT_EQ(*b.Content(f.ino), std::string(50, 'S'));
  // And once nothing uses it, it goes.
  ASSERT_TRUE(b.Commit({UnlinkOp{kRootInode, "f", f.ino, false, b.Now()}}).ok());
  ASSERT_TRUE(w_.meta().CollectGarbage({}).ok());
  EXPECT_FALSE(Held(used));
}

// A commit that was under way at the release names the segment after the snapshot in which nothing did.
TEST_F(GcRaceTest, AReleasedSegmentThatIsNamedAfterTheSnapshotStays) {
  TestSession a = Open({1, 1});
  const SegmentId used = Segment(a);
  const SegmentId unused = Segment(a);
  const CreateOp f = a.File(kRootInode, "f");
  ASSERT_TRUE(w_.meta().ReleaseSegments({}, a.id(), a.key(), {used, unused}).ok());
  ASSERT_NO_FATAL_FAILURE(CollectUpToTheGate());
  ASSERT_TRUE(a.Commit({f, a.InSegment(f.ino, 0, 50, used, 0, 50)}).ok());
  ASSERT_TRUE(w_.meta().CloseSession({}, a.id(), a.key()).ok());
  ASSERT_NO_FATAL_FAILURE(FinishCollecting());
  EXPECT_TRUE(Held(used));
  EXPECT_FALSE(Held(unused)) << "nothing was collected, so nothing was shown";
  TestSession b = Open({2, 2});
  EXPECT_TRUE(w_.meta().LocateSegment({}, b.id(), used).ok());
  EXPECT_EQ(*b.Content(f.ino), std::string(50, 'S'));
}

}  // namespace
}  // namespace archil::test
