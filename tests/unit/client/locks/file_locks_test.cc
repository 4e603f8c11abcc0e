#include "client/locks/file_locks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "server/meta/delegation/lock_book.h"

namespace archil {
namespace {

constexpr BranchId kBranch{1};
constexpr SessionId kMine{1}, kOther{2};
constexpr InodeId kFile{7};

// A server of one disk, with calls that lose their answers.
class Server final : public LockServer {
 public:
  Server() : mu_(RealScheduler()), changed_(RealScheduler()) {}

  Result<LockOutcome> Set(const OpContext& ctx, uint64_t id, uint64_t finished, const LockRequest& request) override {
    MutexLock lock(mu_);
    ++calls;
    if (down) return Code::kUnavailable;
    auto outcome = book.Set(kBranch, {kMine, {}, id, finished, request});
    changed_.SignalAll();
    if (lose > 0) {
      --lose;
      return Code::kUnknown;
    }
    while (outcome.ok() && *outcome == LockOutcome::kWaiting) {
      if (ctx.cancelled()) return Code::kInterrupted;
      if (down) return Code::kUnavailable;
      changed_.WaitUntil(mu_, RealClock().Boot() + absl::Milliseconds(5));
      outcome = book.Set(kBranch, {kMine, {}, id, finished, request});
    }
    return outcome;
  }
  Result<bool> Cancel(const OpContext&, uint64_t id) override {
    MutexLock lock(mu_);
    ++cancels;
    if (down) return Code::kUnavailable;
    return book.Cancel(kBranch, kMine, id);
  }
  Result<std::optional<FileLock>> Test(const OpContext&, const FileLock& lock) override {
    MutexLock l(mu_);
    if (down) return Code::kUnavailable;
    return book.Test(kBranch, lock);
  }

  // What another mount does.
  LockOutcome Elsewhere(LockType type, LockFamily family = LockFamily::kRange) {
    MutexLock lock(mu_);
    const FileLock l{kFile, family, {kOther, 99}, type, 0, kLockEnd, 55};
    const auto outcome = book.Set(kBranch, {kOther, {}, ++other_id_, 0, {l, std::nullopt, false}});
    changed_.SignalAll();
    return outcome.ok() ? *outcome : LockOutcome::kFull;
  }
  void Adopt(const FileLocks::Moving& moving) {
    MutexLock lock(mu_);
    ASSERT_TRUE(book.Adopt(kBranch, kMine, moving.locks, moving.waiters).ok());
    changed_.SignalAll();
  }
  size_t locks() {
    MutexLock lock(mu_);
    return book.lock_count();
  }

  std::atomic<bool> down{false};
  std::atomic<int> lose{0};
  std::atomic<int> calls{0};
  std::atomic<int> cancels{0};

 private:
  Mutex mu_;
  CondVar changed_;
  LockBook book;
  uint64_t other_id_ = 0;
};

LockCall Call(uint64_t owner, LockType type, bool wait = false, LockFamily family = LockFamily::kRange) {
  LockCall call;
  call.owner = owner;
  call.type = type;
  call.family = family;
  call.wait = wait;
  call.pid = static_cast<int32_t>(owner);
  return call;
}
constexpr LockType kR = LockType::kRead;
constexpr LockType kW = LockType::kWrite;
constexpr LockType kU = LockType::kUnlock;

class FileLocksTest : public ::testing::Test {
 protected:
  void Start(bool local) { locks_.SetSession(kMine, local); }
  bool Eventually(const std::function<bool()>& condition) {
    const BootTime end = RealClock().Boot() + absl::Seconds(20);
    while (!condition()) {
      if (RealClock().Boot() > end) return false;
      sched_yield();
    }
    return true;
  }
  // Waits in a thread; the result is in `status` after Join.
  std::unique_ptr<Thread> Wait(uint64_t owner, HandleId handle, Status* status, const CancelFlag* cancel = nullptr,
                               LockFamily family = LockFamily::kRange) {
    const uint64_t before = locks_.Metrics()["lock_waits"];
    auto thread = RealScheduler().Spawn("wait", [=, this] {
      OpContext ctx;
      ctx.cancel = cancel;
      *status = locks_.Set(ctx, kFile, handle, Call(owner, kW, true, family));
    });
    EXPECT_TRUE(Eventually([&] { return locks_.Metrics()["lock_waits"] > before; }));
    return thread;
  }
  uint64_t Metric(const std::string& name) { return locks_.Metrics()[name]; }

  Server server_;
  FileLocks locks_{RealScheduler(), &server_};
  OpContext ctx_;
};

TEST_F(FileLocksTest, LocalLocksCostNoCall) {
  Start(true);
  EXPECT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kW)).ok());
  EXPECT_EQ(locks_.Set(ctx_, kFile, 2, Call(11, kR)).code(), Code::kTryAgain);
  EXPECT_EQ((*locks_.Test(ctx_, kFile, Call(11, kR)))->pid, 10);
  EXPECT_TRUE(locks_.Close(ctx_, kFile, 10).ok());
  EXPECT_TRUE(locks_.Set(ctx_, kFile, 2, Call(11, kR)).ok());
  EXPECT_EQ(server_.calls, 0);
}

TEST_F(FileLocksTest, RemoteLocksHoldAgainstOthers) {
  Start(false);
  EXPECT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kW)).ok());
  EXPECT_EQ(server_.Elsewhere(kR), LockOutcome::kConflict);
  EXPECT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kU)).ok());
  EXPECT_EQ(server_.Elsewhere(kW), LockOutcome::kDone);
  EXPECT_EQ(locks_.Set(ctx_, kFile, 1, Call(10, kR)).code(), Code::kTryAgain);
  const auto found = locks_.Test(ctx_, kFile, Call(10, kR));
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->pid, 0) << "a process of another machine";
}

TEST_F(FileLocksTest, NoCallWhereNothingIsHeld) {
  Start(false);
  EXPECT_TRUE(locks_.Close(ctx_, kFile, 10).ok());
  EXPECT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kU)).ok());
  locks_.Release(kFile, 1);
  EXPECT_EQ(server_.calls, 0);
  ASSERT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kW)).ok());
  ASSERT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kU)).ok());
  EXPECT_EQ(server_.calls, 2);
  EXPECT_TRUE(locks_.Close(ctx_, kFile, 10).ok());
  EXPECT_EQ(server_.calls, 2) << "it was unlocked before";
  OpContext inline_only;
  inline_only.may_block = false;
  EXPECT_EQ(locks_.Set(inline_only, kFile, 1, Call(10, kW)).code(), Code::kWouldBlock);
  EXPECT_TRUE(locks_.Close(inline_only, kFile, 10).ok());
}

TEST_F(FileLocksTest, ALostAnswerIsAskedForAgain) {
  Start(false);
  server_.lose = 1;
  EXPECT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kW)).ok());
  EXPECT_EQ(server_.calls, 2);
  server_.lose = 1;
  EXPECT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kU)).ok());
  EXPECT_EQ(server_.locks(), 0u);
}

TEST_F(FileLocksTest, TheEndOfAHandleUnlocksInTheBackground) {
  Start(false);
  ASSERT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kW, false, LockFamily::kWhole)).ok());
  ASSERT_TRUE(locks_.Set(ctx_, kFile, 1, Call(11, kW)).ok());
  server_.down = true;
  locks_.Release(kFile, 1);  // waits for nothing
  OpContext inline_only;
  inline_only.may_block = false;
  EXPECT_EQ(locks_.Set(inline_only, kFile, 2, Call(11, kR)).code(), Code::kWouldBlock) << "behind the unlock";
  server_.down = false;
  EXPECT_TRUE(Eventually([&] { return server_.locks() == 0; }));
  EXPECT_TRUE(locks_.Held().empty());
}

TEST_F(FileLocksTest, AnInterruptedWaitIsGivenUpAtTheServer) {
  Start(false);
  ASSERT_EQ(server_.Elsewhere(kW), LockOutcome::kDone);
  CancelFlag cancel;
  Status status = Ok();
  auto thread = Wait(10, 1, &status, &cancel);
  cancel.Cancel();
  locks_.Wake();
  thread->Join();
  EXPECT_EQ(status.code(), Code::kInterrupted);
  EXPECT_EQ(server_.cancels, 1);
  EXPECT_EQ(server_.Elsewhere(kU), LockOutcome::kDone);
  EXPECT_EQ(server_.locks(), 0u) << "granted to somebody who does not wait any more";
}

TEST_F(FileLocksTest, AnInterruptThatComesTooLateIsNone) {
  Start(false);
  CancelFlag cancel;
  cancel.Cancel();
  OpContext ctx;
  ctx.cancel = &cancel;
  server_.lose = 1;  // the lock is taken, its answer lost
  EXPECT_TRUE(locks_.Set(ctx, kFile, 1, Call(10, kW)).ok());
  EXPECT_EQ(server_.Elsewhere(kR), LockOutcome::kConflict);
  EXPECT_TRUE(locks_.Close(ctx_, kFile, 10).ok());
  EXPECT_EQ(server_.locks(), 0u);
}

TEST_F(FileLocksTest, ACallThatNobodyAnswersIsUndoneLater) {
  Start(false);
  CancelFlag cancel;
  cancel.Cancel();
  OpContext ctx;
  ctx.cancel = &cancel;
  // The server takes the lock and goes away before it has answered.
  server_.lose = 1;
  auto thread = RealScheduler().Spawn("down", [&] {
    while (server_.calls == 0) sched_yield();
    server_.down = true;
  });
  const Status status = locks_.Set(ctx, kFile, 1, Call(10, kW));
  thread->Join();
  server_.down = false;
  if (status.code() == Code::kInterrupted) {
    EXPECT_TRUE(Eventually([&] { return server_.locks() == 0; })) << "a lock without an owner";
  } else {
    EXPECT_TRUE(status.ok());
  }
}

TEST_F(FileLocksTest, AnUnlockThatComesTooLateForItsCallerIsDoneAllTheSame) {
  Start(false);
  ASSERT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kW)).ok());
  server_.down = true;
  OpContext ctx;
  ctx.deadline = RealClock().Boot() + absl::Milliseconds(150);
  EXPECT_EQ(locks_.Close(ctx, kFile, 10).code(), Code::kIo);
  server_.down = false;
  EXPECT_TRUE(Eventually([&] { return server_.locks() == 0; }));
}

TEST_F(FileLocksTest, LocksAndWaitsMoveToTheServer) {
  Start(true);
  ASSERT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kW)).ok());
  Status first = Code::kIo, second = Code::kIo;
  auto one = Wait(11, 2, &first);
  auto two = Wait(12, 3, &second);
  FileLocks::Moving moving = locks_.Surrender();
  ASSERT_EQ(moving.locks.size(), 1u);
  ASSERT_EQ(moving.waiters.size(), 2u);
  EXPECT_EQ(moving.waiters[0].lock.owner.id, 11u);
  OpContext inline_only;
  inline_only.may_block = false;
  EXPECT_EQ(locks_.Set(inline_only, kFile, 4, Call(13, kR)).code(), Code::kWouldBlock) << "on their way";
  server_.Adopt(moving);
  locks_.Moved();
  EXPECT_FALSE(locks_.local());
  EXPECT_EQ(server_.Elsewhere(kR), LockOutcome::kConflict);
  EXPECT_EQ(locks_.Held().size(), 1u);
  EXPECT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kU)).ok());
  one->Join();
  EXPECT_TRUE(first.ok());
  EXPECT_EQ(locks_.Held().size(), 1u);
  EXPECT_TRUE(locks_.Close(ctx_, kFile, 11).ok());
  two->Join();
  EXPECT_TRUE(second.ok());
  locks_.Release(kFile, 3);
  EXPECT_TRUE(Eventually([&] { return server_.locks() == 0; }));
}

TEST_F(FileLocksTest, AHandleThatEndsDuringTheMoveIsUnlockedAfterIt) {
  Start(true);
  ASSERT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kW, false, LockFamily::kWhole)).ok());
  FileLocks::Moving moving = locks_.Surrender();
  locks_.Release(kFile, 1);
  server_.Adopt(moving);
  EXPECT_EQ(server_.locks(), 1u);
  locks_.Moved();
  EXPECT_TRUE(Eventually([&] { return server_.locks() == 0; }));
  EXPECT_TRUE(locks_.Held().empty());
}

TEST_F(FileLocksTest, ABrokenMountEndsEveryWait) {
  Start(true);
  ASSERT_TRUE(locks_.Set(ctx_, kFile, 1, Call(10, kW)).ok());
  Status status = Ok();
  auto thread = Wait(11, 2, &status);
  locks_.Break();
  thread->Join();
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_EQ(locks_.Set(ctx_, kFile, 1, Call(10, kR)).code(), Code::kIo);
}

TEST_F(FileLocksTest, AReleasedHandleDoesNotEndWhatAnotherHolds) {
  for (const bool local : {true, false}) {
    SCOPED_TRACE(local);
    FileLocks locks(RealScheduler(), &server_);
    locks.SetSession(kMine, local);
    ASSERT_TRUE(locks.Set(ctx_, kFile, 1, Call(20, kR)).ok());
    ASSERT_TRUE(locks.Set(ctx_, kFile, 2, Call(20, kR)).ok());
    locks.Release(kFile, 1);
    EXPECT_EQ(locks.Metrics()["locks_held"], 1u);
    locks.Release(kFile, 2);
    EXPECT_EQ(locks.Metrics()["locks_held"], 0u);
  }
}

}  // namespace
}  // namespace archil
