#include "server/meta/delegation/lock_book.h"

#include <gtest/gtest.h>

namespace archil {
namespace {

constexpr BranchId kMain{1};
constexpr BranchId kSide{2};
constexpr SessionId kA{1}, kB{2};
constexpr InodeId kFile{7};

FileLock Lock(SessionId session, LockType type, uint64_t first = 0, uint64_t last = kLockEnd) {
  return {kFile, LockFamily::kRange, {session, 5}, type, first, last, 100};
}
SetLockRequest Call(uint64_t id, const FileLock& lock, bool wait = false, uint64_t finished = 0) {
  SetLockRequest r;
  r.session = lock.owner.session;
  r.id = id;
  r.finished = finished;
  r.request.lock = lock;
  if (wait) r.request.waiter = id;
  return r;
}
constexpr LockType kW = LockType::kWrite;
constexpr LockType kU = LockType::kUnlock;

TEST(LockBook, ARepeatIsAnsweredAsTheFirstTimeWithoutEffect) {
  LockBook book;
  EXPECT_EQ(*book.Set(kMain, Call(1, Lock(kA, kW))), LockOutcome::kDone);
  EXPECT_EQ(*book.Set(kMain, Call(2, Lock(kA, kU))), LockOutcome::kDone);
  // The first call comes again, late: it must not lock what was unlocked since.
  EXPECT_EQ(*book.Set(kMain, Call(1, Lock(kA, kW))), LockOutcome::kDone);
  EXPECT_EQ(book.lock_count(), 0u);
  EXPECT_EQ(*book.Set(kMain, Call(1, Lock(kB, kW))), LockOutcome::kDone) << "ids are of a session";
  EXPECT_EQ(*book.Set(kMain, Call(3, Lock(kA, kW))), LockOutcome::kConflict);
  EXPECT_EQ(*book.Set(kMain, Call(2, Lock(kB, kU))), LockOutcome::kDone);
  EXPECT_EQ(*book.Set(kMain, Call(3, Lock(kA, kW))), LockOutcome::kConflict);
  EXPECT_EQ(*book.Set(kMain, Call(4, Lock(kA, kW), false, 4)), LockOutcome::kDone);
  EXPECT_EQ(book.Set(kMain, Call(3, Lock(kA, kU))).code(), Code::kInvalid) << "over";
  EXPECT_EQ(book.lock_count(), 1u);
}

TEST(LockBook, WaitsAreEndedOnceAndRememberedUntilTheyAreOver) {
  LockBook book;
  (void)book.Set(kMain, Call(1, Lock(kA, kW)));
  EXPECT_EQ(*book.Set(kMain, Call(1, Lock(kB, kW), true)), LockOutcome::kWaiting);
  EXPECT_EQ(*book.Set(kMain, Call(1, Lock(kB, kW), true)), LockOutcome::kWaiting);
  EXPECT_TRUE(book.TakeEnded().empty());
  (void)book.Set(kMain, Call(2, Lock(kA, kU)));
  const auto ended = book.TakeEnded();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0], (WaiterId{kB, 1}));
  EXPECT_TRUE(book.TakeEnded().empty());
  EXPECT_EQ(*book.Set(kMain, Call(1, Lock(kB, kW), true)), LockOutcome::kDone) << "the answer was lost";
  EXPECT_TRUE(*book.Cancel(kMain, kB, 1)) << "too late: it has the lock";
}

TEST(LockBook, WhatIsGivenUpIsNeverGranted) {
  LockBook book;
  (void)book.Set(kMain, Call(1, Lock(kA, kW)));
  (void)book.Set(kMain, Call(1, Lock(kB, kW), true));
  EXPECT_FALSE(*book.Cancel(kMain, kB, 1));
  // A call that arrives after it was given up.
  EXPECT_FALSE(*book.Cancel(kMain, kB, 2));
  (void)book.Set(kMain, Call(2, Lock(kA, kU)));
  EXPECT_TRUE(book.TakeEnded().empty());
  EXPECT_EQ(book.Set(kMain, Call(1, Lock(kB, kW), true)).code(), Code::kInterrupted);
  EXPECT_EQ(book.Set(kMain, Call(2, Lock(kB, kW))).code(), Code::kInterrupted);
  EXPECT_EQ(book.lock_count(), 0u);
  EXPECT_EQ(book.Cancel(kMain, kB, 2).code(), Code::kOk);
  (void)book.Set(kMain, Call(9, Lock(kB, kU), false, 9));
  EXPECT_EQ(book.Cancel(kMain, kB, 2).code(), Code::kInvalid);
}

TEST(LockBook, AnEndedSessionHoldsAndWaitsForNothing) {
  LockBook book;
  (void)book.Set(kMain, Call(1, Lock(kA, kW)));
  (void)book.Set(kMain, Call(1, Lock(kB, kW), true));
  EXPECT_EQ(book.BlockedBy(kMain, kA), std::vector<InodeId>{kFile});
  EXPECT_TRUE(book.BlockedBy(kMain, kB).empty());
  EXPECT_EQ(book.SessionsAgainst(kMain, Lock(kB, kW)), std::set<SessionId>{kA});
  book.EndSession(kMain, kA);
  EXPECT_EQ(book.TakeEnded().size(), 1u);
  book.EndSession(kMain, kB);
  EXPECT_TRUE(book.empty());
}

TEST(LockBook, BranchesHaveTheirOwnLocks) {
  LockBook book;
  EXPECT_EQ(*book.Set(kMain, Call(1, Lock(kA, kW))), LockOutcome::kDone);
  EXPECT_EQ(*book.Set(kSide, Call(1, Lock(kB, kW))), LockOutcome::kDone);
  EXPECT_FALSE(book.Test(kSide, Lock(kB, kW)));
  EXPECT_TRUE(book.Test(kMain, Lock(kB, kW)));
}

TEST(LockBook, AdoptsWhatASessionKeptToItself) {
  LockBook book;
  const FileLock mine = Lock(kA, kW, 0, 9);
  FileLock waits = Lock(kA, kW, 0, 9);
  waits.owner.id = 6;
  ASSERT_TRUE(book.Adopt(kMain, kA, {mine}, {{waits, 4, false}}).ok());
  ASSERT_TRUE(book.Adopt(kMain, kA, {mine}, {{waits, 4, false}}).ok()) << "told twice";
  EXPECT_EQ(book.lock_count(), 1u);
  EXPECT_EQ(*book.Set(kMain, Call(1, Lock(kB, kW), true)), LockOutcome::kWaiting);
  EXPECT_EQ(*book.Set(kMain, Call(4, waits, true)), LockOutcome::kWaiting) << "the wait goes on in its place";
  (void)book.Set(kMain, Call(5, Lock(kA, kU)));
  const auto ended = book.TakeEnded();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0], (WaiterId{kA, 4}));
}

TEST(LockBook, AClaimThatConflictsIsRefusedAsAWhole) {
  LockBook book;
  (void)book.Set(kMain, Call(1, Lock(kB, kW, 5, 5)));
  EXPECT_EQ(book.Adopt(kMain, kA, {Lock(kA, kW, 0, 1), Lock(kA, kW, 4, 6)}, {}).code(), Code::kFenced);
  EXPECT_EQ(book.lock_count(), 1u);
}

TEST(LockBook, NothingThatMakesNoSense) {
  LockBook book;
  SetLockRequest foreign = Call(1, Lock(kB, kW));
  foreign.session = kA;
  EXPECT_EQ(book.Set(kMain, foreign).code(), Code::kInvalid);
  EXPECT_EQ(book.Set(kMain, Call(1, Lock(kA, kW, 5, 4))).code(), Code::kInvalid);
  SetLockRequest other_id = Call(1, Lock(kA, kW), true);
  other_id.request.waiter = 2;
  EXPECT_EQ(book.Set(kMain, other_id).code(), Code::kInvalid);
  EXPECT_EQ(book.Set(kMain, Call(1, Lock(kA, kU), true)).code(), Code::kInvalid);
  EXPECT_EQ(book.Adopt(kMain, kA, {Lock(kB, kW)}, {}).code(), Code::kInvalid);
  EXPECT_EQ(book.Adopt(kMain, kA, {}, {{Lock(kA, kW), std::nullopt, false}}).code(), Code::kInvalid);
  EXPECT_TRUE(book.empty());
}

}  // namespace
}  // namespace archil
