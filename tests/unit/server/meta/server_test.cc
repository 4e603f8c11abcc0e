// The server as a whole: leases and fencing on a clock that the test moves, stepping down, restarts, garbage collection, damage.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/checksum.h"
#include "server/meta/log/manifest.h"
#include "tests/support/meta_world.h"
#include "tests/support/virtual_scheduler.h"

namespace archil::test {
namespace {

class ServerTest : public ::testing::Test {
 protected:
  void Start(MetaWorld& w) {
    ASSERT_TRUE(w.Start().ok());
    ASSERT_TRUE(w.meta().CreateDisk({}, "disk", 0).ok());
  }
  static TestSession Open(MetaWorld& w, SessionKey key, const std::string& name, absl::Duration lease = absl::Seconds(15)) {
    auto s = TestSession::Open(w.meta(), "disk", key, name, SessionMode::kReadWrite, lease);
    EXPECT_TRUE(s.ok()) << s.error().ToString();
    return *s;
  }
  static Result<OpenSessionReply> OpenExclusive(MetaWorld& w, SessionKey key, const std::string& name) {
    OpenSessionRequest request;
    request.disk = "disk";
    request.key = key;
    request.client_name = name;
    request.lease = absl::Seconds(15);
    request.sharing = Sharing::kExclusive;
    return w.meta().OpenSession({}, request);
  }
  // Waits until the condition holds; the server works on it by itself.
  static bool Eventually(const std::function<bool()>& condition) {
    Mutex mu(RealScheduler());
    CondVar cv(RealScheduler());
    for (int i = 0; i < 1000; ++i) {
      if (condition()) return true;
      MutexLock lock(mu);
      cv.WaitUntil(mu, RealScheduler().clock().Boot() + absl::Milliseconds(5));
    }
    return false;
  }
};

// LSE-1, FEN-1
TEST_F(ServerTest, ASilentHolderIsEndedOnlyWhenSomebodyWantsTheDisk) {
  VirtualScheduler clock;
  MetaWorld w(1, clock);
  Start(w);
  TestSession a = Open(w, {1, 1}, "a");
  clock.Advance(absl::Seconds(100));
  ASSERT_TRUE(a.Commit({a.File(kRootInode, "late")}).ok());  // late, and nobody minded
  clock.Advance(absl::Seconds(10));
  EXPECT_EQ(OpenExclusive(w, {2, 2}, "b").code(), Code::kHeldElsewhere);
  clock.Advance(absl::Seconds(6));
  EXPECT_TRUE(w.meta().ShowDisk({}, "disk")->clients[0].silent);
  TestSession c = Open(w, {3, 3}, "c");
  ASSERT_TRUE(a.Commit({a.File(kRootInode, "later")}).ok()) << "nobody wanted anything of it";
  EXPECT_TRUE(c.Lookup(kRootInode, "later").ok());
  clock.Advance(absl::Seconds(15));
  ASSERT_TRUE(OpenExclusive(w, {2, 2}, "b").ok());
  const auto fenced = a.Commit({a.File(kRootInode, "too-late")});
  ASSERT_EQ(fenced.code(), Code::kFenced);
  EXPECT_NE(fenced.error().message().find("b wanted the disk"), std::string_view::npos) << fenced.error().message();
  EXPECT_EQ(w.Metric("meta_sessions_fenced"), 2u);
  // FEN-1: also after a restart.
  w.Kill();
  ASSERT_TRUE(w.Start().ok());
  a.Use(w.meta());
  EXPECT_EQ(a.Commit({a.File(kRootInode, "too-late")}).code(), Code::kFenced);
  EXPECT_EQ(w.meta().Renew({}, a.id(), a.key(), 0).code(), Code::kFenced);
}

TEST_F(ServerTest, AfterARestartKnownSessionsHaveAFreshLease) {
  VirtualScheduler clock;
  MetaWorld w(1, clock);
  Start(w);
  TestSession a = Open(w, {1, 1}, "a");
  ASSERT_TRUE(a.Commit({a.File(kRootInode, "x")}).ok());
  clock.Advance(absl::Seconds(14));
  w.Kill();
  clock.Advance(absl::Seconds(60));
  ASSERT_TRUE(w.Start().ok());
  clock.Advance(absl::Seconds(14));
  EXPECT_EQ(OpenExclusive(w, {2, 2}, "b").code(), Code::kHeldElsewhere);
  a.Use(w.meta());
  auto renewed = w.meta().Renew({}, a.id(), a.key(), 0);
  ASSERT_TRUE(renewed.ok());
  EXPECT_EQ(renewed->applied, Seq{1});
  EXPECT_TRUE(renewed->reclaim);
  EXPECT_EQ(renewed->lease, absl::Seconds(1)) << "no longer than it may take to reclaim";
  EXPECT_EQ(a.Lookup(kRootInode, "x").code(), Code::kUnavailable);
  ASSERT_TRUE(a.Reclaim().ok());
  clock.Advance(absl::Seconds(14));
  EXPECT_TRUE(a.Commit({a.File(kRootInode, "y")}).ok());
  clock.Advance(absl::Seconds(16));
  Open(w, {2, 2}, "b");
}

// LOG-1: an answer waits for the log, a read's too.
TEST_F(ServerTest, NothingIsAnsweredBeforeItIsDurable) {
  MetaWorld w;
  Start(w);
  TestSession s = Open(w, {1, 1}, "a");
  w.data.at(0).HoldAppends(true);
  Notification committed(RealScheduler()), read(RealScheduler());
  w.meta().CommitAsync({}, s.Request({s.File(kRootInode, "f")}), [&](Result<CommitReply> r) {
    EXPECT_TRUE(r.ok());
    committed.Notify();
  });
  w.meta().RunBlocking([&] {
    EXPECT_TRUE(s.Lookup(kRootInode, "f").ok());
    read.Notify();
  });
  const BootTime soon = RealScheduler().clock().Boot() + absl::Milliseconds(50);
  EXPECT_FALSE(committed.WaitUntil(soon));
  EXPECT_FALSE(read.HasBeenNotified());
  OpContext hurried;
  hurried.deadline = RealScheduler().clock().Boot() + absl::Milliseconds(20);
  s.Applied(Seq{1});
  EXPECT_EQ(w.meta().Commit(hurried, s.Request({s.File(kRootInode, "g")})).code(), Code::kUnknown);
  hurried.deadline = RealScheduler().clock().Boot() + absl::Milliseconds(20);
  EXPECT_EQ(w.meta().GetInode(hurried, s.id(), kRootInode).code(), Code::kUnavailable);
  w.data.at(0).HoldAppends(false);
  committed.Wait();
  read.Wait();
}

TEST_F(ServerTest, WithoutItsLogADiskStepsDownAndComesBack) {
  MetaWorld w;
  w.config.flush_interval = absl::Milliseconds(20);  // the tick that reopens
  Start(w);
  TestSession s = Open(w, {1, 1}, "a", absl::Minutes(5));
  ASSERT_TRUE(s.Commit({s.File(kRootInode, "kept")}).ok());
  const CommitRequest request = s.Request({s.File(kRootInode, "again")});
  w.data.at(0).DieAfter(0, true);
  EXPECT_EQ(s.Send(request).code(), Code::kUnknown);
  EXPECT_TRUE(Eventually([&] { return s.Lookup(kRootInode, "kept").code() == Code::kUnavailable; }));
  // A read may be refused by the failed log before the strand has come to stepping down.
  EXPECT_TRUE(Eventually([&] { return w.Metric("meta_step_downs") == 1; }));
  w.data.at(0).SetDown(false);
  EXPECT_TRUE(Eventually([&] { return s.Reclaim().ok() && s.Lookup(kRootInode, "kept").ok(); }));
  auto repeat = s.Send(request);
  ASSERT_TRUE(repeat.ok()) << repeat.error().ToString();
  s.Applied(request.last);
  EXPECT_EQ(s.Stat(kRootInode)->attr.size, 2u);
  EXPECT_GE(w.Metric("meta_reopens"), 1u);
}

TEST_F(ServerTest, AFlushThatFailsLosesNothing) {
  MetaWorld w;
  w.config.flush_bytes = 500;
  w.config.flush_interval = absl::Milliseconds(20);
  Start(w);
  TestSession s = Open(w, {1, 1}, "a", absl::Minutes(5));
  ASSERT_TRUE(w.faults.Arm("meta.flush=error@2").ok());
  for (int i = 0; i < 60; ++i) {
    const CommitRequest request = s.Request({s.File(kRootInode, "f" + std::to_string(i))});
    ASSERT_TRUE(Eventually([&] { return s.Send(request).ok() || (s.Reclaim().ok() && s.Send(request).ok()); })) << i;
    s.Applied(request.last);
  }
  EXPECT_EQ(s.Stat(kRootInode)->attr.size, 60u);
  EXPECT_EQ(w.Metric("meta_step_downs"), 1u);
  EXPECT_GE(w.Metric("meta_flushes"), 2u);
}

TEST_F(ServerTest, ADamagedDiskIsKeptAsideAndTheOthersServe) {
  MetaWorld w;
  Start(w);
  ASSERT_TRUE(w.meta().CreateDisk({}, "other", 0).ok());
  TestSession s = Open(w, {1, 1}, "a");
  ASSERT_TRUE(s.Commit({s.File(kRootInode, "x")}).ok());
  w.Stop();
  w.states.Forget();
  SegmentKey log;
  for (const SegmentKey& key : w.data.at(0).Keys()) {
    if (key.disk == s.reply().disk.id && (key.segment.value & kLogSegmentBit) != 0) log = key;
  }
  const std::string good = w.data.at(0).Content(log);
  std::string bad = good;
  bad[10] ^= 1;
  w.data.at(0).SetContent(log, bad);
  ASSERT_TRUE(w.Start().ok());
  const auto opened = TestSession::Open(w.meta(), "disk", {2, 2});
  EXPECT_EQ(opened.code(), Code::kCorrupt);
  EXPECT_NE(opened.error().message().find("damaged"), std::string_view::npos);
  EXPECT_TRUE(TestSession::Open(w.meta(), "other", {2, 2}).ok());
  EXPECT_EQ(w.meta().ListDisks({})->size(), 2u);
  EXPECT_EQ(w.data.at(0).Content(log), bad) << "damage is not touched";
  w.Stop();
  w.data.at(0).SetContent(log, good);  // as restored from another copy
  ASSERT_TRUE(w.Start().ok());
  ASSERT_TRUE(s.Back(w.meta()).ok());
  EXPECT_TRUE(s.Lookup(kRootInode, "x").ok());
}

// --- garbage collection

class GcTest : public ServerTest {
 protected:
  void Append(MetaWorld& w, const TestSession& s, const SegmentGrant& g, size_t bytes) {
    const Buffer data(std::string(bytes, 'd'));
    ASSERT_TRUE(w.data.ById(g.replicas[0].id)->Append({}, {s.reply().disk.id, g.segment}, g.token, 0, data, Checksum(data.view())).ok());
  }
  // Data segments on any server.
  std::vector<SegmentId> Held(MetaWorld& w) {
    std::vector<SegmentId> out;
    for (size_t i = 0; i < w.data.All().size(); ++i) {
      for (const SegmentKey& key : w.data.at(i).Keys()) {
        if ((key.segment.value & kLogSegmentBit) == 0) out.push_back(key.segment);
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  static uint64_t Checksum(std::string_view bytes) { return archil::Checksum(bytes); }
};

TEST_F(GcTest, SegmentsOfEndedSessionsGoWhenNothingRefersToThem) {
  MetaWorld w(2);
  Start(w);
  TestSession a = Open(w, {1, 1}, "a");
  auto grants = *w.meta().AllocateSegments({}, a.id(), a.key(), 4);
  for (const SegmentGrant& g : grants) Append(w, a, g, 100);
  EXPECT_NE(grants[0].replicas[0].id, grants[1].replicas[0].id);  // placed in turn
  const CreateOp f = a.File(kRootInode, "f");
  const CreateOp gone = a.File(kRootInode, "gone");
  ASSERT_TRUE(a.Commit({f, gone, a.InSegment(f.ino, 0, 50, grants[1].segment, 0, 50), a.InSegment(gone.ino, 0, 50, grants[2].segment, 0, 50),
                        UnlinkOp{kRootInode, "gone", gone.ino, false, a.Now()}})
                  .ok());
  ASSERT_TRUE(w.meta().CollectGarbage({}).ok());
  EXPECT_EQ(Held(w).size(), 4u) << "a live session's segments stay";
  ASSERT_TRUE(w.meta().CloseSession({}, a.id(), a.key()).ok());
  ASSERT_TRUE(w.meta().CollectGarbage({}).ok());
  EXPECT_EQ(Held(w), std::vector<SegmentId>{grants[1].segment});
  EXPECT_TRUE(Eventually([&] {
    return w.data.ById(grants[1].replicas[0].id)->Stat({}, {a.reply().disk.id, grants[1].segment})->state == SegmentState::kSealed;
  }));
  TestSession b = Open(w, {2, 2}, "b");
  EXPECT_EQ(*b.Content(f.ino), std::string(50, 'S'));
  EXPECT_EQ(w.meta().LocateSegment({}, b.id(), grants[0].segment).code(), Code::kNotFound);
  EXPECT_EQ(b.Commit({b.InSegment(f.ino, 0, 10, grants[1].segment, 0, 50)}).code(), Code::kInvalid) << "not its own";
  auto more = *w.meta().AllocateSegments({}, b.id(), b.key(), 1);
  EXPECT_GT(more[0].segment, grants[3].segment) << "numbers are never used again";
  // A restart loses nothing of it.
  w.Kill();
  ASSERT_TRUE(w.Start().ok());
  ASSERT_TRUE(b.Back(w.meta()).ok());
  ASSERT_TRUE(b.Commit({UnlinkOp{kRootInode, "f", f.ino, false, b.Now()}}).ok());
  ASSERT_TRUE(w.meta().CollectGarbage({}).ok());
  EXPECT_TRUE(Held(w).empty());
}

TEST_F(GcTest, AReleasedSegmentOfALiveSessionWaitsForItsGrace) {
  VirtualScheduler clock;
  MetaWorld w(1, clock);
  Start(w);
  TestSession a = Open(w, {1, 1}, "a", absl::Minutes(5));
  auto grants = *w.meta().AllocateSegments({}, a.id(), a.key(), 2);
  for (const SegmentGrant& g : grants) Append(w, a, g, 100);
  ASSERT_TRUE(w.meta().ReleaseSegments({}, a.id(), a.key(), {grants[0].segment}).ok());
  ASSERT_TRUE(w.meta().CollectGarbage({}).ok());
  EXPECT_EQ(Held(w).size(), 2u);
  for (int i = 0; i < 6; ++i) {
    clock.Advance(absl::Minutes(2));
    ASSERT_TRUE(w.meta().Renew({}, a.id(), a.key(), 0).ok());
  }
  ASSERT_TRUE(w.meta().CollectGarbage({}).ok());
  EXPECT_EQ(Held(w), std::vector<SegmentId>{grants[1].segment});
  const CreateOp f = a.File(kRootInode, "f");
  EXPECT_EQ(a.Commit({f, a.InSegment(f.ino, 0, 10, grants[0].segment, 0, 10)}).code(), Code::kInvalid);
}

TEST_F(GcTest, WhatADeadServerHeldIsDeletedWhenItIsBack) {
  MetaWorld w(2);
  Start(w);
  TestSession a = Open(w, {1, 1}, "a");
  auto grants = *w.meta().AllocateSegments({}, a.id(), a.key(), 2);
  for (const SegmentGrant& g : grants) Append(w, a, g, 100);
  // The log is on one of the servers; the other one goes.
  uint32_t other = 0;
  for (const SegmentKey& key : w.data.at(0).Keys()) other |= (key.segment.value & kLogSegmentBit) != 0 ? 1 : 0;
  w.data.at(other).SetDown(true);
  ASSERT_TRUE(w.meta().CloseSession({}, a.id(), a.key()).ok());
  ASSERT_TRUE(w.meta().CollectGarbage({}).ok());
  EXPECT_EQ(Held(w).size(), 1u);
  w.data.at(other).SetDown(false);
  ASSERT_TRUE(w.meta().CollectGarbage({}).ok());
  EXPECT_TRUE(Held(w).empty());
}

TEST_F(GcTest, DeletingADiskLeavesNothingBehind) {
  MetaWorld w(2);
  Start(w);
  TestSession a = Open(w, {1, 1}, "a");
  auto grants = *w.meta().AllocateSegments({}, a.id(), a.key(), 2);
  Append(w, a, grants[0], 10);
  w.data.at(1).SetDown(true);
  const bool log_is_there = w.meta().DeleteDisk({}, "disk", true).ok();
  w.data.at(1).SetDown(false);
  if (!log_is_there) {
    ASSERT_TRUE(w.meta().DeleteDisk({}, "disk", true).ok());
  }
  w.Stop();
  ASSERT_TRUE(w.Start().ok());  // finishes what could not be reached
  EXPECT_TRUE(w.data.at(0).Keys().empty());
  EXPECT_TRUE(w.data.at(1).Keys().empty());
  EXPECT_TRUE(w.meta().ListDisks({})->empty());
}

}  // namespace
}  // namespace archil::test
