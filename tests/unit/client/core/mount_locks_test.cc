// File locks between mounts of one disk (LOCK-1), on a fleet in memory.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>

#include "common/env/random.h"
#include "tests/support/mem_cluster.h"

namespace archil::test {
namespace {

constexpr LockType kR = LockType::kRead;
constexpr LockType kW = LockType::kWrite;
constexpr LockType kU = LockType::kUnlock;

LockCall Call(LockType type, uint64_t owner, bool wait = false, LockFamily family = LockFamily::kRange) {
  LockCall call;
  call.family = family;
  call.owner = owner;
  call.type = type;
  call.pid = 77;
  call.wait = wait;
  return call;
}

class MountLocks : public ::testing::Test {
 protected:
  // A mount with an open file.
  struct Client {
    std::unique_ptr<Mount> mount;
    InodeId file;
    HandleId handle = 0;
    FsApi& fs() { return mount->fs(); }
    Status Set(const LockCall& call, const OpContext& ctx = {}) { return fs().SetLock(ctx, file, handle, call); }
    uint64_t Metric(const std::string& name) { return fs().Metrics()[name]; }
  };

  void SetUp() override {
    ASSERT_TRUE(cluster_.Start().ok());
    ASSERT_TRUE(cluster_.meta().CreateDisk({}, "disk", 0).ok());
  }
  Client Open(const std::string& name, absl::Duration lease = absl::Seconds(2)) {
    MountConfig config;
    config.disk = "disk";
    config.client_name = name;
    config.lease = lease;
    config.op_deadline = absl::Seconds(20);
    auto mount = Mount::Open({RealScheduler(), *random_, cluster_.meta(), cluster_.data()}, config);
    EXPECT_TRUE(mount.ok()) << (mount.ok() ? "" : mount.error().ToString());
    Client client;
    client.mount = std::move(*mount);
    FsApi& fs = client.fs();
    if (const auto found = fs.Lookup({}, fs.Root(), "f"); found.ok()) {
      client.file = found->attr.ino;
      const auto open = fs.Open({}, client.file, O_RDWR);
      EXPECT_TRUE(open.ok());
      client.handle = open->handle;
    } else {
      const auto made = fs.Create({}, fs.Root(), "f", 0644, O_RDWR);
      EXPECT_TRUE(made.ok());
      client.file = made->entry.attr.ino;
      client.handle = made->open.handle;
    }
    return client;
  }
  static bool Eventually(const std::function<bool()>& condition) {
    const BootTime end = RealClock().Boot() + absl::Seconds(30);
    while (!condition()) {
      if (RealClock().Boot() > end) return false;
      sched_yield();
    }
    return true;
  }

  MemCluster cluster_{{}};
  std::unique_ptr<Random> random_ = SeededRandom(1);
};

TEST_F(MountLocks, AloneCostsNoCallAndWhatWasTakenThenHoldsAgainstWhoComes) {
  Client a = Open("a");
  ASSERT_EQ(a.Metric("locks_local"), 1u);
  ASSERT_TRUE(a.Set(Call(kW, 1)).ok());
  ASSERT_TRUE(a.Set(Call(kW, 2, false, LockFamily::kWhole)).ok());
  EXPECT_EQ(a.Metric("rpc_lock"), 0u);
  Client b = Open("b");
  EXPECT_EQ(a.Metric("locks_local"), 0u);
  EXPECT_EQ(b.Set(Call(kR, 1)).code(), Code::kTryAgain) << "equal numbers of owners in two kernels";
  EXPECT_EQ(b.Set(Call(kR, 2, false, LockFamily::kWhole)).code(), Code::kTryAgain);
  const auto found = b.fs().TestLock({}, b.file, Call(kR, 1));
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->type, kW);
  EXPECT_EQ((*found)->pid, 0);
  EXPECT_TRUE(a.Set(Call(kU, 1)).ok());
  EXPECT_TRUE(b.Set(Call(kW, 1)).ok());
  EXPECT_EQ(a.Set(Call(kR, 1)).code(), Code::kTryAgain);
  // close(2) of one descriptor here, of the whole open file there.
  EXPECT_TRUE(b.fs().Flush({}, b.file, b.handle, 1).ok());
  EXPECT_TRUE(a.Set(Call(kR, 1)).ok());
  a.fs().Release(a.file, a.handle);
  EXPECT_TRUE(Eventually([&] { return b.Set(Call(kW, 2, false, LockFamily::kWhole)).ok(); }));
}

TEST_F(MountLocks, WhoeverWaitsIsServedWhereverItWaits) {
  Client a = Open("a");
  ASSERT_TRUE(a.Set(Call(kW, 1)).ok());
  std::atomic<int> served{0};
  Status here = Code::kIo, there = Code::kIo;
  const uint64_t before = a.Metric("lock_waits");
  // The wait begins while `a` is alone and goes on when it is not.
  auto one = RealScheduler().Spawn("one", [&] {
    here = a.Set(Call(kW, 2, true));
    ++served;
  });
  ASSERT_TRUE(Eventually([&] { return a.Metric("lock_waits") > before; }));
  Client b = Open("b");
  auto two = RealScheduler().Spawn("two", [&] {
    there = b.Set(Call(kW, 2, true));
    ++served;
  });
  ASSERT_TRUE(Eventually([&] { return b.Metric("lock_waits") == 1; }));
  EXPECT_EQ(served, 0);
  ASSERT_TRUE(a.Set(Call(kU, 1)).ok());
  one->Join();
  EXPECT_TRUE(here.ok());
  ASSERT_TRUE(a.Set(Call(kU, 2)).ok());
  two->Join();
  EXPECT_TRUE(there.ok());
}

TEST_F(MountLocks, AnInterruptedWaitLeavesNothingBehind) {
  Client a = Open("a");
  Client b = Open("b");
  ASSERT_TRUE(a.Set(Call(kW, 1)).ok());
  CancelFlag cancel;
  Status status = Ok();
  auto thread = RealScheduler().Spawn("wait", [&] {
    OpContext ctx;
    ctx.cancel = &cancel;
    status = b.Set(Call(kW, 2, true), ctx);
  });
  ASSERT_TRUE(Eventually([&] { return b.Metric("lock_waits") == 1; }));
  cancel.Cancel();
  b.fs().WakeWaiters();
  thread->Join();
  EXPECT_EQ(status.code(), Code::kInterrupted);
  EXPECT_TRUE(a.Set(Call(kU, 1)).ok());
  EXPECT_TRUE(a.Set(Call(kW, 3)).ok());
}

TEST_F(MountLocks, TheLocksOfADeadClientAreFreeAfterItsLease) {
  Client a = Open("a", absl::Seconds(1));
  Client b = Open("b", absl::Seconds(10));
  ASSERT_TRUE(a.Set(Call(kW, 1)).ok());
  a.mount->Abandon();
  EXPECT_EQ(b.Set(Call(kW, 1)).code(), Code::kTryAgain) << "its lease has not run out yet";
  EXPECT_TRUE(b.Set(Call(kW, 1, true)).ok());
}

TEST_F(MountLocks, LocksOutliveARestartOfTheServer) {
  Client a = Open("a", absl::Seconds(5));
  Client b = Open("b", absl::Seconds(5));
  ASSERT_TRUE(a.Set(Call(kW, 1)).ok());
  Status there = Code::kIo;
  auto waits = RealScheduler().Spawn("wait", [&] { there = b.Set(Call(kW, 2, true)); });
  ASSERT_TRUE(Eventually([&] { return b.Metric("lock_waits") == 1; }));
  cluster_.CrashMeta(MemCluster::Loss::kPower);
  ASSERT_TRUE(cluster_.Start().ok());
  const Status other = b.Set(Call(kR, 3));
  EXPECT_EQ(other.code(), Code::kTryAgain) << "the lock was forgotten: " << other.error().ToString() << ", "
                                           << b.fs().GetStatus().state_detail << ", " << a.fs().GetStatus().state_detail;
  ASSERT_TRUE(a.Set(Call(kU, 1)).ok());
  waits->Join();
  EXPECT_TRUE(there.ok());
  EXPECT_EQ(a.Set(Call(kR, 1)).code(), Code::kTryAgain);
}

TEST_F(MountLocks, ACounterIsExactAlsoWhereCallsAreLost) {
  Client a = Open("a", absl::Seconds(10));
  Client b = Open("b", absl::Seconds(10));
  cluster_.SetLossRate(1000);
  constexpr int kEach = 150;
  const auto count = [&](Client& client, uint64_t owner) {
    for (int i = 0; i < kEach; ++i) {
      ASSERT_TRUE(client.Set(Call(kW, owner, true)).ok());
      const auto read = client.fs().Read({}, client.file, 0, 16);
      ASSERT_TRUE(read.ok()) << read.error().ToString();
      std::string text;
      for (const Buffer& piece : read->pieces) text += piece.view();
      const std::string next = std::to_string(atoi(text.c_str()) + 1);
      ASSERT_TRUE(client.fs().Write({}, client.file, 0, next, false, false).ok());
      ASSERT_TRUE(client.Set(Call(kU, owner)).ok());
    }
  };
  std::vector<std::unique_ptr<Thread>> threads;
  for (uint64_t owner : {1, 2}) {
    threads.push_back(RealScheduler().Spawn("a", [&, owner] { count(a, owner); }));
    threads.push_back(RealScheduler().Spawn("b", [&, owner] { count(b, owner); }));
  }
  for (auto& thread : threads) thread->Join();
  cluster_.SetLossRate(0);
  const auto read = b.fs().Read({}, b.file, 0, 16);
  ASSERT_TRUE(read.ok());
  std::string text;
  for (const Buffer& piece : read->pieces) text += piece.view();
  EXPECT_EQ(text, std::to_string(4 * kEach));
  EXPECT_GT(cluster_.lost_calls(), 0u);
}

}  // namespace
}  // namespace archil::test
