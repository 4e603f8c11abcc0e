#include "common/posix/lock_table.h"

#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>

namespace archil {
namespace {

constexpr InodeId kFile{7};
constexpr InodeId kOther{8};
constexpr LockOwner kA{SessionId{1}, 10};
constexpr LockOwner kB{SessionId{2}, 10};  // the same number of another session's kernel
constexpr LockOwner kC{SessionId{3}, 30};

FileLock Range(LockOwner owner, LockType type, uint64_t first, uint64_t last, InodeId ino = kFile) {
  return {ino, LockFamily::kRange, owner, type, first, last, static_cast<int32_t>(owner.session.value * 100)};
}
FileLock Whole(LockOwner owner, LockType type, InodeId ino = kFile) {
  return {ino, LockFamily::kWhole, owner, type, 0, kLockEnd, static_cast<int32_t>(owner.session.value * 100)};
}
constexpr LockType kR = LockType::kRead;
constexpr LockType kW = LockType::kWrite;
constexpr LockType kU = LockType::kUnlock;

class LockTableTest : public ::testing::Test {
 protected:
  LockOutcome Try(const FileLock& lock) { return table_.Set({lock, std::nullopt, false}, &granted_); }
  LockOutcome Wait(const FileLock& lock, uint64_t waiter, bool detect = false) {
    return table_.Set({lock, waiter, detect}, &granted_);
  }
  // "session/id" of the waiters let through since the last call.
  std::string Granted() {
    std::string out;
    for (const WaiterId& w : granted_) out += fmt::format("{}/{} ", w.session.value, w.id);
    granted_.clear();
    return out;
  }
  // "session:first-last r|w" of every lock.
  std::string Held() {
    std::string out;
    for (const FileLock& l : table_.Locks()) {
      const std::string last = l.last == kLockEnd ? "end" : fmt::format("{}", l.last);
      out += fmt::format("{}:{}-{}{} ", l.owner.session.value, l.first, last, l.type == kR ? "r" : "w");
    }
    return out;
  }
  LockTable table_;
  std::vector<WaiterId> granted_;
};

TEST_F(LockTableTest, RangesSplitMergeAndChangeTheirType) {
  EXPECT_EQ(Try(Range(kA, kW, 10, 19)), LockOutcome::kDone);
  EXPECT_EQ(Try(Range(kA, kR, 13, 15)), LockOutcome::kDone);
  EXPECT_EQ(Held(), "1:10-12w 1:13-15r 1:16-19w ");
  EXPECT_EQ(Try(Range(kA, kU, 12, 13)), LockOutcome::kDone);
  EXPECT_EQ(Held(), "1:10-11w 1:14-15r 1:16-19w ");
  EXPECT_EQ(Try(Range(kA, kW, 12, 15)), LockOutcome::kDone);
  EXPECT_EQ(Held(), "1:10-19w ");
  EXPECT_EQ(Try(Range(kA, kW, 20, kLockEnd)), LockOutcome::kDone);
  EXPECT_EQ(Try(Range(kA, kW, 0, 9)), LockOutcome::kDone);
  EXPECT_EQ(Held(), "1:0-endw ");
  EXPECT_EQ(Try(Range(kA, kU, 5, 5)), LockOutcome::kDone);
  EXPECT_EQ(Held(), "1:0-4w 1:6-endw ");
  EXPECT_EQ(Try(Range(kA, kU, 0, kLockEnd)), LockOutcome::kDone);
  EXPECT_EQ(Held(), "");
  EXPECT_EQ(table_.lock_count(), 0u);
}

TEST_F(LockTableTest, SharedExclusiveAndTheOwnersOfTwoSessions) {
  EXPECT_EQ(Try(Range(kA, kR, 0, 9)), LockOutcome::kDone);
  EXPECT_EQ(Try(Range(kB, kR, 5, 14)), LockOutcome::kDone);
  EXPECT_EQ(Try(Range(kB, kW, 9, 9)), LockOutcome::kConflict);
  EXPECT_EQ(Try(Range(kB, kW, 10, 14)), LockOutcome::kDone);
  EXPECT_EQ(Try(Range(kA, kW, 0, 4)), LockOutcome::kDone);
  EXPECT_EQ(Held(), "1:0-4w 1:5-9r 2:5-9r 2:10-14w ");
}

TEST_F(LockTableTest, TestNamesTheFirstConflictingLock) {
  (void)Try(Range(kA, kW, 20, 29));
  (void)Try(Range(kA, kR, 5, 9));
  EXPECT_EQ(table_.Test(Range(kB, kW, 0, 100)), Range(kA, kR, 5, 9));
  EXPECT_EQ(table_.Test(Range(kB, kR, 0, 100)), Range(kA, kW, 20, 29));
  EXPECT_EQ(table_.Test(Range(kB, kR, 0, 19)), std::nullopt);
  EXPECT_EQ(table_.Test(Range(kA, kW, 0, 100)), std::nullopt);
  EXPECT_EQ(table_.Test(Range(kB, kW, 0, 100, kOther)), std::nullopt);
}

TEST_F(LockTableTest, FamiliesDoNotSeeEachOther) {
  EXPECT_EQ(Try(Range(kA, kW, 0, kLockEnd)), LockOutcome::kDone);
  EXPECT_EQ(Try(Whole(kB, kW)), LockOutcome::kDone);
  EXPECT_EQ(Try(Whole(kC, kR)), LockOutcome::kConflict);
}

TEST_F(LockTableTest, NobodyOvertakesAWaiterThatHeConflictsWith) {
  (void)Try(Range(kA, kR, 0, 9));
  EXPECT_EQ(Wait(Range(kB, kW, 0, 9), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Try(Range(kC, kR, 0, 9)), LockOutcome::kConflict);
  EXPECT_EQ(Wait(Range(kC, kR, 0, 9), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Try(Range(kC, kR, 10, 19)), LockOutcome::kDone) << "another range has nothing to do with it";
  // A waits for nobody; the one for whom B waits may go on, B would wait for ever else.
  EXPECT_EQ(Try(Range(kA, kR, 5, 14)), LockOutcome::kDone);
  (void)Try(Range(kA, kU, 0, 14));
  EXPECT_EQ(Granted(), "2/1 ");
  (void)Try(Range(kB, kU, 0, 9));
  EXPECT_EQ(Granted(), "3/1 ");
}

TEST_F(LockTableTest, AWeakerLockLetsReadersThrough) {
  (void)Try(Range(kA, kW, 0, 9));
  EXPECT_EQ(Wait(Range(kB, kR, 0, 4), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(kC, kR, 5, 9), 2), LockOutcome::kWaiting);
  (void)Try(Range(kA, kR, 0, 6));
  EXPECT_EQ(Granted(), "2/1 ");
  (void)Try(Range(kA, kR, 7, 9));
  EXPECT_EQ(Granted(), "3/2 ");
}

TEST_F(LockTableTest, FairnessAloneNeverClosesACircle) {
  // P reads X. W waits to write X. P waits for Y, which O holds. O reads X: behind W it would wait for itself.
  const LockOwner o = kA, p = kB, w = kC;
  (void)Try(Range(o, kW, 0, 0, kOther));
  (void)Try(Range(p, kR, 0, 0));
  EXPECT_EQ(Wait(Range(w, kW, 0, 0), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(p, kW, 0, 0, kOther), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Try(Range(o, kR, 0, 0)), LockOutcome::kDone);
}

TEST_F(LockTableTest, AWaiterIsLetPastWhenTheCircleClosesLater) {
  const LockOwner o = kA, p = kB, w = kC;
  (void)Try(Range(o, kW, 0, 0, kOther));
  (void)Try(Range(p, kR, 0, 0));
  EXPECT_EQ(Wait(Range(w, kW, 0, 0), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(o, kR, 0, 0), 5), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(p, kW, 0, 0, kOther), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Granted(), "1/5 ");
}

TEST_F(LockTableTest, ProcessesAreFollowedFromOneFamilyToTheOther) {
  // As above, but P holds X as an open file and waits for Y as a process.
  LockOwner p_file = kB;
  p_file.id = 999;
  (void)Try(Range(kA, kW, 0, 0, kOther));
  (void)Try(Whole(p_file, kR));
  EXPECT_EQ(Wait(Whole(kC, kW), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(kB, kW, 0, 0, kOther), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Try(Whole(LockOwner{kA.session, 11}, kR)), LockOutcome::kDone);
}

TEST_F(LockTableTest, DeadlockIsSeenAmongThoseWhoAskOnly) {
  (void)Try(Range(kA, kW, 0, 0));
  (void)Try(Range(kB, kW, 1, 1));
  (void)Try(Range(kC, kW, 2, 2, kOther));
  EXPECT_EQ(Wait(Range(kA, kW, 1, 1), 1, true), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(kB, kW, 2, 2, kOther), 1, true), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(kC, kR, 0, 0), 1, true), LockOutcome::kDeadlock);
  EXPECT_FALSE(table_.IsWaiting({kC.session, 1}));
  EXPECT_EQ(Wait(Range(kC, kR, 0, 0), 2, false), LockOutcome::kWaiting) << "as an OFD lock it just waits";
}

TEST_F(LockTableTest, NoFalseDeadlock) {
  // Equal numbers in two sessions are two owners.
  (void)Try(Range(kA, kW, 0, 0));
  (void)Try(Range(kC, kW, 1, 1));
  EXPECT_EQ(Wait(Range(kA, kW, 1, 1), 1, true), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(kB, kW, 0, 0), 1, true), LockOutcome::kWaiting);
  // A circle through one who does not ask is none: another thread may end it.
  EXPECT_TRUE(table_.Cancel({kA.session, 1}, &granted_));
  EXPECT_EQ(Wait(Range(kA, kW, 1, 1), 2, false), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(kC, kW, 0, 0), 1, true), LockOutcome::kWaiting);
  // Nor is one that has been broken since.
  (void)table_.Cancel({kC.session, 1}, &granted_);
  (void)table_.Cancel({kA.session, 2}, &granted_);
  EXPECT_EQ(Wait(Range(kC, kW, 0, 0), 2, true), LockOutcome::kWaiting);
}

TEST_F(LockTableTest, CancelGivesThePlaceOn) {
  (void)Try(Range(kA, kR, 0, 0));
  EXPECT_EQ(Wait(Range(kB, kW, 0, 0), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Wait(Range(kC, kR, 0, 0), 1), LockOutcome::kWaiting);
  EXPECT_TRUE(table_.Cancel({kB.session, 1}, &granted_));
  EXPECT_EQ(Granted(), "3/1 ");
  EXPECT_FALSE(table_.Cancel({kB.session, 1}, &granted_));
  EXPECT_FALSE(table_.Cancel({kC.session, 1}, &granted_)) << "it was granted";
}

TEST_F(LockTableTest, AskingAgainKeepsThePlace) {
  (void)Try(Range(kA, kW, 0, 0));
  (void)Wait(Range(kB, kW, 0, 0), 1);
  (void)Wait(Range(kC, kW, 0, 0), 1);
  EXPECT_EQ(Wait(Range(kB, kW, 0, 0), 1), LockOutcome::kWaiting);
  EXPECT_EQ(table_.waiter_count(), 2u);
  (void)Try(Range(kA, kU, 0, 0));
  EXPECT_EQ(Granted(), "2/1 ");
  EXPECT_EQ(Wait(Range(kB, kW, 0, 0), 1), LockOutcome::kDone) << "the answer was lost; asking again changes nothing";
}

TEST_F(LockTableTest, FlockUpgradeLosesTheOldLockFirst) {
  (void)Try(Whole(kA, kR));
  (void)Try(Whole(kB, kR));
  EXPECT_EQ(Try(Whole(kA, kW)), LockOutcome::kConflict);
  EXPECT_EQ(Held(), "2:0-endr ");
  (void)Try(Whole(kA, kR));
  // Two that upgrade do not wait for each other.
  EXPECT_EQ(Wait(Whole(kA, kW), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Try(Whole(kB, kW)), LockOutcome::kDone);
  (void)Try(Whole(kB, kU));
  EXPECT_EQ(Granted(), "1/1 ");
  // A downgrade is never held up.
  EXPECT_EQ(Wait(Whole(kC, kW), 1), LockOutcome::kWaiting);
  EXPECT_EQ(Try(Whole(kA, kR)), LockOutcome::kDone);
  EXPECT_EQ(Held(), "1:0-endr ");
}

// LOCK-1: what is taken from a session that is silent.
TEST_F(LockTableTest, ASessionsLocksOnOneInodeGo) {
  EXPECT_EQ(Try(Range(kA, kW, 0, 9)), LockOutcome::kDone);
  EXPECT_EQ(Try(Whole(kA, kW)), LockOutcome::kDone);
  EXPECT_EQ(Try(Range(kA, kW, 0, 9, kOther)), LockOutcome::kDone);
  EXPECT_EQ(Wait(Range(kB, kW, 5, 5), 1), LockOutcome::kWaiting);
  EXPECT_EQ(table_.BlockedBy(kA.session), std::vector<InodeId>{kFile});
  EXPECT_TRUE(table_.BlockedBy(kB.session).empty());
  table_.ReleaseInode(kA.session, kFile, &granted_);
  EXPECT_EQ(Granted(), "2/1 ");
  EXPECT_EQ(Held(), "2:5-5w 1:0-9w ");
  EXPECT_TRUE(table_.BlockedBy(kA.session).empty());
}

TEST_F(LockTableTest, ReleaseOfOwnerSessionAndInode) {
  (void)Try(Range(kA, kW, 0, 0));
  (void)Try(Range(kA, kW, 5, 5));
  (void)Try(Whole(kA, kW));
  (void)Try(Range(kA, kW, 0, 0, kOther));
  (void)Wait(Range(kB, kW, 5, 5), 1);
  (void)Wait(Whole(kC, kW), 1);
  EXPECT_TRUE(table_.Holds(kFile, LockFamily::kRange, kA));
  EXPECT_TRUE(table_.Release(kFile, LockFamily::kRange, kA, &granted_));
  EXPECT_FALSE(table_.Release(kFile, LockFamily::kRange, kA, &granted_));
  EXPECT_EQ(Granted(), "2/1 ");
  EXPECT_EQ(table_.lock_count(), 3u);
  (void)Wait(Range(kA, kW, 5, 5), 9);
  table_.ReleaseSession(kA.session, &granted_);
  EXPECT_EQ(Granted(), "3/1 ");
  EXPECT_FALSE(table_.IsWaiting({kA.session, 9}));
  EXPECT_EQ(Held(), "2:5-5w 3:0-endw ");
  (void)Wait(Range(kC, kW, 5, 5), 2);
  std::vector<WaiterId> lost;
  table_.DropInode(kFile, &lost);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0], (WaiterId{kC.session, 2}));
  EXPECT_EQ(table_.lock_count() + table_.waiter_count(), 0u);
}

TEST_F(LockTableTest, LimitsRefuseAndUnlockingGoesOn) {
  LockTable table({4, 2});
  std::vector<WaiterId> granted;
  const auto set = [&](const FileLock& lock, std::optional<uint64_t> waiter = std::nullopt) {
    return table.Set({lock, waiter, false}, &granted);
  };
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(set(Range(kA, kW, i * 10, i * 10 + 5)), LockOutcome::kDone);
  EXPECT_EQ(set(Range(kA, kW, 90, 90)), LockOutcome::kFull);
  EXPECT_EQ(set(Range(kA, kU, 2, 3)), LockOutcome::kFull) << "it would make two of one";
  EXPECT_EQ(set(Range(kA, kU, 3, 15)), LockOutcome::kDone);
  EXPECT_EQ(table.lock_count(), 3u);
  EXPECT_EQ(set(Range(kB, kW, 90, 90)), LockOutcome::kDone) << "another session has its own";
  EXPECT_EQ(set(Range(kB, kW, 0, 0), 1), LockOutcome::kWaiting);
  EXPECT_EQ(set(Range(kB, kW, 0, 0), 2), LockOutcome::kWaiting);
  EXPECT_EQ(set(Range(kB, kW, 0, 0), 3), LockOutcome::kFull);
}

TEST_F(LockTableTest, MovesWithLocksAndWaitersInOrder) {
  (void)Try(Range(kA, kW, 0, 9));
  (void)Try(Range(LockOwner{kA.session, 11}, kR, 20, 29));
  (void)Wait(Range(LockOwner{kA.session, 12}, kW, 0, 9), 3);
  (void)Wait(Range(LockOwner{kA.session, 13}, kW, 0, 9), 2);
  LockTable other;
  for (const FileLock& lock : table_.Locks()) EXPECT_EQ(other.Restore(lock), LockOutcome::kDone);
  const auto waiters = table_.Waiters();
  ASSERT_EQ(waiters.size(), 2u);
  EXPECT_EQ(waiters[0].waiter, 3u);
  for (const LockRequest& waiter : waiters) EXPECT_EQ(other.Set(waiter, &granted_), LockOutcome::kWaiting);
  EXPECT_EQ(other.Locks(), table_.Locks());
  EXPECT_EQ(other.Restore(Range(kB, kR, 9, 9)), LockOutcome::kConflict);
}

TEST(FileLock, WhatIsValid) {
  EXPECT_TRUE(IsValid(Range(kA, kW, 0, kLockEnd)));
  EXPECT_FALSE(IsValid(Range(kA, kW, 1, 0)));
  EXPECT_FALSE(IsValid(Range(kA, kW, 0, kLockEnd + 1)));
  EXPECT_FALSE(IsValid(Range(kA, static_cast<LockType>(3), 0, 1)));
  FileLock whole = Whole(kA, kR);
  EXPECT_TRUE(IsValid(whole));
  whole.first = 1;
  EXPECT_FALSE(IsValid(whole));
  whole.first = 0;
  whole.family = static_cast<LockFamily>(2);
  EXPECT_FALSE(IsValid(whole));
}

}  // namespace
}  // namespace archil
