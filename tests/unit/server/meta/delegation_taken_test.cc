// What is taken from a session that is silent, by the rules of the table (FENCE-1, docs/delegation.md).
#include "tests/unit/server/meta/delegation_table_fixture.h"

namespace archil {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

using DelegationTakenTest = DelegationTableTest;

// FENCE-1, FEN-1: nothing is granted before the log has what is taken.
TEST_F(DelegationTakenTest, OfASilentHolderOnlyWhatIsWantedIsTaken) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  Get(kA, kOther, Right::kWrite);
  Ask(kB, {{kFile, Right::kRead}});
  now_ = now_ + absl::Seconds(14);
  table_.Renew(kB, now_);
  Look();
  EXPECT_THAT(fx_.takes, IsEmpty());
  EXPECT_EQ(table_.NextLook(), now_ + absl::Seconds(1));
  now_ = now_ + absl::Seconds(1);
  Look();
  EXPECT_THAT(fx_.ends, IsEmpty());
  EXPECT_THAT(fx_.granted, IsEmpty());
  ASSERT_EQ(fx_.takes.size(), 1u);
  EXPECT_EQ(fx_.takes[0].session, kA);
  EXPECT_EQ(fx_.takes[0].taken, (Taken{kFile, true, false}));
  table_.Take(kA, fx_.takes[0].taken, tree_);
  Look();
  EXPECT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(Has(kA, kFile), Right::kNone);
  EXPECT_EQ(Has(kA, kDir), Right::kWrite);
  EXPECT_EQ(Has(kA, kOther), Right::kWrite);
}

TEST_F(DelegationTakenTest, AnUnsettledSessionIsGrantedNothingAndGetsNothingBack) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  const uint64_t waits = Ask(kA, {{kOther, Right::kRead}, {kTwoNames, Right::kRead}});
  (void)waits;
  Get(kB, kOther, Right::kRead);
  table_.Take(kA, {kDir, true, false}, tree_);
  EXPECT_TRUE(table_.Unsettled(kA));
  EXPECT_EQ(Has(kA, kDir), Right::kNone);
  EXPECT_EQ(Has(kA, kFile), Right::kNone) << "it was covered";
  EXPECT_EQ(table_.Acquire(99, kA, {{kDir, Right::kRead}}, BootTime::Infinite()).code(), Code::kUnavailable);
  table_.Take(kA, {kFile, false, true}, tree_);
  EXPECT_TRUE(table_.LocksTaken(kA, kFile));
  EXPECT_EQ(table_.TakenOf(kA), (std::vector<Taken>{{kDir, true, false}, {kFile, false, true}}));
  EXPECT_TRUE(table_.CheckSettle(kA).ok());
  table_.Settle(kA, {kDir});
  EXPECT_TRUE(table_.Unsettled(kA)) << "it does not know of all";
  table_.Settle(kA, {kFile, kDir});
  EXPECT_FALSE(table_.Unsettled(kA));
  Get(kA, kDir, Right::kRead);
}

TEST_F(DelegationTakenTest, WhatItHasInATakenDirectoryByARecordOfItsOwnIsTakenAsWell) {
  AddThree();
  Get(kA, kDir, Right::kRead);
  Get(kA, kFile, Right::kWrite);
  now_ = now_ + kLease;
  table_.Renew(kB, now_);
  table_.Take(kA, {kDir, true, false}, tree_);
  Ask(kB, {{kFile, Right::kRead}});
  ASSERT_EQ(fx_.takes.size(), 1u);
  EXPECT_EQ(fx_.takes[0].taken, (Taken{kFile, true, false}));
}

TEST_F(DelegationTakenTest, RequestsOfASessionFromWhichSomethingIsTakenFail) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  Get(kB, kOther, Right::kWrite);
  const uint64_t waits = Ask(kA, {{kOther, Right::kWrite}});
  EXPECT_THAT(fx_.failed, IsEmpty());
  table_.Take(kA, {kDir, true, false}, tree_);
  Look();
  ASSERT_EQ(fx_.failed.size(), 1u);
  EXPECT_EQ(fx_.failed[0].id, waits);
}

TEST_F(DelegationTakenTest, WhatIsTakenFromOneThatWasAloneIsNotGivenBackByItsAnswer) {
  Add(kA);
  ASSERT_NE(table_.MakeAlone(kA), 0u);
  Add(kB);
  Ask(kB, {{kDir, Right::kRead}});
  now_ = now_ + kLease;
  table_.Renew(kB, now_);
  Look();
  ASSERT_EQ(fx_.takes.size(), 1u);
  EXPECT_EQ(fx_.takes[0].taken, (Taken{kDir, true, false}));
  table_.Take(kA, fx_.takes[0].taken, tree_);
  Look();
  EXPECT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(Has(kA, kFile), Right::kNone);
  EXPECT_EQ(Has(kA, kOther), Right::kWrite) << "everything else is still its";
  EXPECT_EQ(table_.CheckSettle(kA).code(), Code::kUnavailable);
  Ask(kB, {{kOther, Right::kRead}});
  EXPECT_EQ(fx_.takes.size(), 1u) << "each wanted inode by its name";
  const uint64_t message = Message(kA).number;
  ASSERT_TRUE(table_.Answer(kA, {.message = message, .keeps = {{kDir, Right::kWrite}, {kFile, Right::kWrite}, {kOther, Right::kWrite}}}, tree_, now_).ok());
  EXPECT_EQ(Has(kA, kDir), Right::kNone);
  EXPECT_EQ(Has(kA, kFile), Right::kNone);
  EXPECT_EQ(Has(kA, kOther), Right::kWrite);
  EXPECT_TRUE(table_.CheckSettle(kA).ok());
}

TEST_F(DelegationTakenTest, WhoWouldLoseTooMuchOrIsSilentForTooLongIsEnded) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  Get(kA, kOther, Right::kRead);
  for (uint64_t i = 0; i < kMaxTaken; ++i) table_.Take(kA, {InodeId{1000 + i}, true, false}, tree_);
  Get(kC, kTwoNames, Right::kRead);
  now_ = now_ + kLease;
  table_.Renew(kB, now_);
  Ask(kB, {{kDir, Right::kRead}});
  ASSERT_EQ(fx_.ends.size(), 1u);
  EXPECT_EQ(fx_.ends[0].session, kA);
  EXPECT_THAT(fx_.ends[0].reason, HasSubstr("client-2"));
  EXPECT_THAT(fx_.takes, IsEmpty());
  table_.Remove(kA, "ended", fx_);
  Look();
  EXPECT_EQ(fx_.granted.size(), 1u);
  now_ = now_ + absl::Hours(24);
  table_.Renew(kB, now_);
  Ask(kB, {{kTwoNames, Right::kWrite}});
  ASSERT_EQ(fx_.ends.size(), 1u);
  EXPECT_EQ(fx_.ends[0].session, kC);
}

TEST_F(DelegationTakenTest, WhatWasTakenIsNotReclaimed) {
  Add(kA, DelegationTable::Birth::kUnclaimed);
  Add(kB, DelegationTable::Birth::kUnclaimed);
  table_.Take(kA, {kDir, true, false}, tree_);
  ReclaimRequest request;
  request.session = kB;
  request.rights = {{kDir, Right::kWrite}};
  ASSERT_TRUE(table_.Reclaim(request, tree_, fx_).ok());
  EXPECT_EQ(table_.CheckSettle(kA).code(), Code::kUnavailable);
  request.session = kA;
  request.rights = {{kDir, Right::kWrite}, {kFile, Right::kWrite}, {kOther, Right::kRead}};
  ASSERT_TRUE(table_.Reclaim(request, tree_, fx_).ok());
  EXPECT_EQ(Has(kA, kDir), Right::kNone);
  EXPECT_EQ(Has(kA, kFile), Right::kWrite) << "a record of its own, which nobody took";
  EXPECT_EQ(Has(kB, kFile), Right::kNone);
  EXPECT_EQ(Has(kA, kOther), Right::kRead);
}

}  // namespace
}  // namespace archil
