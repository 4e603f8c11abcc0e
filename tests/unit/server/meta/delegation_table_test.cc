// The rules of the delegation table, one by one (docs/delegation.md). All of them together: delegation_random_test.
#include "tests/unit/server/meta/delegation_table_fixture.h"

namespace archil {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(DelegationTableTest, ReadIsSharedAndWriteRecallsIt) {
  AddThree();
  const uint64_t a = Get(kA, kDir, Right::kRead);
  Get(kB, kDir, Right::kRead);
  EXPECT_GT(a, kBase);
  EXPECT_EQ(Get(kA, kDir, Right::kRead), a) << "held already: the present number";
  Ask(kC, {{kDir, Right::kWrite}});
  EXPECT_THAT(fx_.granted, IsEmpty());
  EXPECT_THAT(fx_.told, ElementsAre(kA, kB));
  const SessionMessage m = Message(kA);
  EXPECT_EQ(m.kind, SessionMessage::Kind::kRecall);
  EXPECT_EQ(m.ino, kDir);
  EXPECT_EQ(m.home, InodeId{0});
  EXPECT_EQ(m.grant, a);
  EXPECT_GT(m.number, a);
  EXPECT_EQ(m.keep, Right::kNone);
  Look();
  EXPECT_EQ(fx_.recalls, 0u) << "one recall for each session and inode";
  Answer(kA, m.number, Right::kRead);  // more than may stay
  EXPECT_EQ(Has(kA, kDir), Right::kNone);
  EXPECT_THAT(fx_.granted, IsEmpty());
  Answer(kB, Message(kB).number, Right::kNone);
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(Has(kC, kDir), Right::kWrite);
  EXPECT_THAT(table_.Poll(kA, m.number, 10), IsEmpty()) << "acknowledged";
  Answer(kA, m.number, Right::kNone);  // a repeat
  EXPECT_EQ(Has(kC, kDir), Right::kWrite);
}

TEST_F(DelegationTableTest, WhatFellOutOfAGrantIsToldAgain) {
  AddThree();
  Get(kA, kDir, Right::kRead);
  Get(kB, kFile, Right::kRead);
  const auto uncovered = [&](Right want) {
    Ask(kA, {{kDir, want}});
    EXPECT_EQ(fx_.granted.size(), 1u);
    return fx_.granted.empty() ? std::vector<InodeId>() : fx_.granted[0].grants[0].uncovered;
  };
  EXPECT_THAT(uncovered(Right::kWrite), ElementsAre(kFile));
  EXPECT_THAT(uncovered(Right::kWrite), ElementsAre(kFile)) << "the first answer may have been lost";
  EXPECT_THAT(uncovered(Right::kRead), ElementsAre(kFile)) << "WRITE is what it has";
  EXPECT_EQ(Has(kA, kFile), Right::kRead);
}

TEST_F(DelegationTableTest, NothingIsCoveredWhileOthersMayHaveCarvedItOut) {
  Add(kA, DelegationTable::Birth::kUnclaimed);
  Add(kB, DelegationTable::Birth::kUnclaimed);
  ASSERT_TRUE(table_.Reclaim({.session = kA, .rights = {{kDir, Right::kRead}}}, tree_, fx_).ok());
  EXPECT_FALSE(table_.Covered(kA, kDir, kFile));
  ASSERT_TRUE(table_.Reclaim({.session = kB, .rights = {{kFile, Right::kWrite}}}, tree_, fx_).ok());
  EXPECT_FALSE(table_.Covered(kA, kDir, kFile)) << "that is what was not known";
}

TEST_F(DelegationTableTest, WhatIsWeakenedHasTheNumberOfTheMessage) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  Ask(kB, {{kDir, Right::kRead}});
  const SessionMessage m = Message(kA);
  EXPECT_EQ(m.keep, Right::kRead);
  Answer(kA, m.number, Right::kRead);
  EXPECT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(Get(kA, kDir, Right::kRead), m.number);
  EXPECT_EQ(Has(kA, kFile), Right::kRead) << "children as well";
}

TEST_F(DelegationTableTest, AChildIsCarvedOut) {
  AddThree();
  const uint64_t dir = Get(kA, kDir, Right::kWrite);
  EXPECT_TRUE(table_.Covered(kA, kDir, kFile));
  EXPECT_EQ(Has(kA, kTwoNames), Right::kNone) << "two names are not covered";
  Ask(kB, {{kFile, Right::kRead}});
  const SessionMessage m = Message(kA);
  EXPECT_EQ(m.ino, kFile);
  EXPECT_EQ(m.home, kDir);
  EXPECT_EQ(m.grant, dir);
  EXPECT_EQ(Has(kA, kFile), Right::kWrite) << "until it has answered";
  EXPECT_FALSE(table_.Covered(kA, kDir, kFile)) << "it may have given it up already";
  Answer(kA, m.number, Right::kRead);
  EXPECT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(Has(kA, kFile), Right::kRead);
  EXPECT_EQ(Has(kA, kDir), Right::kWrite);
  EXPECT_FALSE(table_.Covered(kA, kDir, kFile));
  // Only a new grant covers it again, if nobody else has it.
  ASSERT_TRUE(table_.GiveBack(kA, {kDir}, {}, tree_).ok());
  Get(kA, kDir, Right::kRead);
  EXPECT_TRUE(table_.Covered(kA, kDir, kFile)) << "READ beside READ";
  ASSERT_TRUE(table_.GiveBack(kA, {kDir, kFile}, {}, tree_).ok());
  Get(kC, kDir, Right::kWrite);
  EXPECT_EQ(Has(kC, kFile), Right::kNone);
  EXPECT_EQ(Has(kB, kFile), Right::kRead);
}

TEST_F(DelegationTableTest, AnAnswerAboutTheDirectoryMayOvertakeThatAboutTheChild) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  Ask(kB, {{kFile, Right::kRead}});
  const uint64_t child = Message(kA).number;
  Ask(kC, {{kDir, Right::kWrite}});
  Answer(kA, Message(kA, child).number, Right::kNone);
  EXPECT_EQ(fx_.granted.size(), 1u) << "the directory";
  EXPECT_EQ(Has(kA, kFile), Right::kWrite) << "not answered yet";
  EXPECT_EQ(Has(kC, kFile), Right::kNone);
  Answer(kA, child, Right::kRead);
  EXPECT_EQ(Has(kA, kFile), Right::kRead);
  EXPECT_EQ(Has(kB, kFile), Right::kRead);
}

TEST_F(DelegationTableTest, NothingIsCalledCoveredWhileAnAnswerIsOwed) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  Get(kA, kOther, Right::kWrite);
  Ask(kB, {{kFile, Right::kRead}});
  const uint64_t child = Message(kA).number;
  // Moved to another directory of the session: that covers it, but the session may have given it up.
  tree_.homes[kFile] = kOther;
  table_.Committed(kA, {{kFile, {.left = {kDir}}}}, tree_);
  EXPECT_EQ(Has(kA, kFile), Right::kWrite);
  EXPECT_FALSE(table_.Covered(kA, kOther, kFile));
  Answer(kA, child, Right::kNone);
  EXPECT_FALSE(table_.Covered(kA, kOther, kFile));
  EXPECT_EQ(Has(kA, kFile), Right::kNone);
  tree_.homes[InodeId{13}] = kOther;
  EXPECT_TRUE(table_.Covered(kA, kOther, InodeId{13}));
  Ask(kC, {{kOther, Right::kRead}});
  EXPECT_FALSE(table_.Covered(kA, kOther, InodeId{13})) << "the directory is recalled";
}

TEST_F(DelegationTableTest, ACoveredChildIsGivenBack) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  ASSERT_TRUE(table_.GiveBack(kA, {kFile}, {}, tree_).ok());
  EXPECT_EQ(Has(kA, kFile), Right::kNone);
  EXPECT_EQ(Has(kA, kDir), Right::kWrite);
  Get(kB, kFile, Right::kWrite);
}

TEST_F(DelegationTableTest, NothingNewBeforeTheAnswer) {
  AddThree();
  Get(kA, kDir, Right::kRead);
  const uint64_t first = Ask(kB, {{kDir, Right::kWrite}});
  const SessionMessage m = Message(kA);
  table_.Cancel(first);
  Ask(kA, {{kDir, Right::kRead}});
  EXPECT_THAT(fx_.granted, IsEmpty());
  Answer(kA, m.number, Right::kNone);
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_GT(fx_.granted[0].grants[0].number, m.number);
}

TEST_F(DelegationTableTest, RequestsAreServedInOrder) {
  AddThree();
  Get(kA, kDir, Right::kRead);
  const uint64_t write = Ask(kB, {{kDir, Right::kWrite}});
  Ask(kC, {{kDir, Right::kRead}, {kOther, Right::kRead}});
  EXPECT_THAT(fx_.granted, IsEmpty()) << "a READ does not pass a waiting WRITE";
  const uint64_t third = Ask(kA, {{kOther, Right::kWrite}});
  EXPECT_THAT(fx_.granted, IsEmpty()) << "nor this the request before it";
  Answer(kA, Message(kA).number, Right::kNone);
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(fx_.granted[0].id, write);
  table_.Cancel(request_ - 1);  // the one in the middle
  Look();
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(fx_.granted[0].id, third);
}

TEST_F(DelegationTableTest, ADirectoryDoesNotTakeWhatOthersWaitFor) {
  AddThree();
  Get(kA, kOther, Right::kWrite);
  Ask(kB, {{kFile, Right::kWrite}, {kOther, Right::kWrite}});
  Get(kC, kDir, Right::kWrite);
  EXPECT_EQ(Has(kC, kFile), Right::kNone);
  Answer(kA, Message(kA).number, Right::kNone);
  EXPECT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(Has(kB, kFile), Right::kWrite);
}

TEST_F(DelegationTableTest, AnUpgradeTakesNoCoverAway) {
  AddThree();
  Get(kA, kDir, Right::kRead);
  Get(kB, kFile, Right::kRead);
  Get(kA, kDir, Right::kWrite);
  EXPECT_EQ(Has(kA, kFile), Right::kRead) << "until the grant arrives it is used";
  EXPECT_FALSE(table_.Covered(kA, kDir, kFile));
}

TEST_F(DelegationTableTest, MissingInodesAndBadRequests) {
  AddThree();
  Add(SessionId{4}, DelegationTable::Birth::kNew, SessionMode::kReadOnly);
  Ask(kA, {{kGone, Right::kWrite}, {kFile, Right::kRead}});
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_THAT(fx_.granted[0].missing, ElementsAre(kGone));
  EXPECT_EQ(fx_.granted[0].grants.size(), 1u);
  const BootTime never = BootTime::Infinite();
  EXPECT_EQ(table_.Acquire(90, kA, {}, never).code(), Code::kInvalid);
  EXPECT_EQ(table_.Acquire(90, kA, {{kDir, Right::kRead}, {kDir, Right::kWrite}}, never).code(), Code::kInvalid);
  EXPECT_EQ(table_.Acquire(90, kA, {{kDir, Right::kNone}}, never).code(), Code::kInvalid);
  EXPECT_EQ(table_.Acquire(90, SessionId{4}, {{kDir, Right::kWrite}}, never).code(), Code::kReadOnly);
  EXPECT_EQ(table_.Acquire(90, SessionId{9}, {{kDir, Right::kWrite}}, never).code(), Code::kFenced);
  Get(kA, kDir, Right::kWrite);
  for (uint64_t i = 0; i < 256; ++i) ASSERT_TRUE(table_.Acquire(100 + i, kB, {{kDir, Right::kRead}}, never).ok());
  EXPECT_EQ(table_.Acquire(99, kB, {{kDir, Right::kRead}}, never).code(), Code::kTryAgain);
}

TEST_F(DelegationTableTest, ALateRequestNamesWhoHoldsWhatItWantsAndLetsOthersGoOn) {
  AddThree();
  Get(kA, kDir, Right::kRead);
  const uint64_t late = Ask(kB, {{kDir, Right::kWrite}}, now_ + absl::Seconds(1));
  const uint64_t behind = Ask(kC, {{kDir, Right::kRead}});
  EXPECT_EQ(table_.NextLook(), now_ + absl::Seconds(1));
  now_ = now_ + absl::Seconds(1);
  Look();
  ASSERT_EQ(fx_.failed.size(), 1u);
  EXPECT_EQ(fx_.failed[0].id, late);
  EXPECT_EQ(fx_.failed[0].error.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(fx_.failed[0].error.message()), HasSubstr("inode 2 is held by client-1"));
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(fx_.granted[0].id, behind);
  EXPECT_TRUE(fx_.ends.empty());
}

// The recall of a child is on its way while its holder's READ of the directory becomes WRITE: the holder does not know of it yet, and may not
// take the child for covered.
TEST_F(DelegationTableTest, AGrantThatOvertakesTheRecallOfAChildNamesTheChild) {
  AddThree();
  Get(kA, kDir, Right::kRead);
  Get(kB, kFile, Right::kRead);
  Ask(kB, {{kFile, Right::kWrite}});
  EXPECT_EQ(Message(kA).ino, kFile);
  Ask(kA, {{kDir, Right::kWrite}});
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(fx_.granted[0].grants[0].uncovered, std::vector<InodeId>{kFile});
  EXPECT_EQ(Has(kA, kFile), Right::kRead);
}

// LSE-1
TEST_F(DelegationTableTest, WhoOwesAnAnswerAndStandsStillIsNotRenewed) {
  AddThree();
  Get(kA, kDir, Right::kRead);
  Ask(kB, {{kDir, Right::kWrite}});
  now_ = now_ + absl::Seconds(4);
  table_.Progress(kA, 7, now_);
  now_ = now_ + absl::Seconds(5);
  table_.Progress(kA, 7, now_);
  table_.Renew(kA, now_);
  EXPECT_EQ(table_.LeaseLeft(kA, now_), kLease);
  now_ = now_ + absl::Seconds(1);
  table_.Renew(kA, now_);
  EXPECT_EQ(table_.LeaseLeft(kA, now_), kLease - absl::Seconds(1));
  Answer(kA, Message(kA).number, Right::kNone);
  table_.Renew(kA, now_);
  EXPECT_EQ(table_.LeaseLeft(kA, now_), kLease);
}

TEST_F(DelegationTableTest, AloneEndsWithARecallThatNamesWhatStays) {
  Add(kA);
  const uint64_t alone = table_.MakeAlone(kA);
  EXPECT_GT(alone, kBase);
  EXPECT_EQ(Has(kA, kTwoNames), Right::kWrite);
  EXPECT_EQ(Get(kA, kDir, Right::kRead), alone);
  Add(kB);
  EXPECT_EQ(table_.MakeAlone(kB), 0u);
  EXPECT_FALSE(table_.TakesNote(kA));
  Ask(kB, {{kOther, Right::kRead}});
  const SessionMessage m = Message(kA);
  EXPECT_EQ(m.kind, SessionMessage::Kind::kRecallAlone);
  EXPECT_EQ(m.grant, alone);
  // What it makes after it has named what it keeps, and before that arrives.
  tree_.dirs.insert(InodeId{20});
  EXPECT_TRUE(table_.TakesNote(kA));
  table_.Committed(kA, {{InodeId{20}, {.born = true}}}, tree_);
  ASSERT_TRUE(table_.Answer(kA, {.message = m.number, .keeps = {{kDir, Right::kWrite}, {kTwoNames, Right::kWrite}, {kGone, Right::kWrite}}}, tree_, now_).ok());
  Look();
  EXPECT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(Has(kA, kFile), Right::kWrite);
  EXPECT_EQ(Has(kA, kTwoNames), Right::kWrite);
  EXPECT_EQ(Has(kA, InodeId{20}), Right::kWrite);
  EXPECT_EQ(Has(kA, kOther), Right::kNone);
  EXPECT_EQ(Get(kA, kDir, Right::kWrite), m.number);
}

TEST_F(DelegationTableTest, NamesThatComeAndGo) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  Get(kA, kOther, Right::kWrite);
  // A second name: no cover, but a record of its own.
  tree_.homes[kFile] = InodeId{0};
  table_.Committed(kA, {{kFile, {.links_changed = true}}}, tree_);
  EXPECT_EQ(Has(kA, kFile), Right::kWrite);
  ASSERT_TRUE(table_.GiveBack(kA, {kDir}, {}, tree_).ok());
  Get(kB, kDir, Right::kRead);
  EXPECT_EQ(Has(kB, kFile), Right::kNone);
  // One name is left, in a directory that somebody else holds: not covered there.
  tree_.homes[kFile] = kDir;
  table_.Committed(kA, {{kFile, {.links_changed = true, .left = {kOther}}}}, tree_);
  EXPECT_EQ(Has(kA, kFile), Right::kWrite);
  EXPECT_EQ(Has(kB, kFile), Right::kNone);
  Get(kC, kDir, Right::kRead);
  EXPECT_EQ(Has(kC, kFile), Right::kNone) << "found by its home";
  // Gone: nothing is left of it.
  tree_.homes.erase(kFile);
  table_.Committed(kA, {{kFile, {.links_changed = true, .left = {kDir}}}}, tree_);
  EXPECT_EQ(table_.records(), 3u);
  const auto all = table_.List(100);
  ASSERT_EQ(all.size(), 3u);
  for (const RightInfo& info : all) EXPECT_EQ(info.exceptions, 0u);
}

TEST_F(DelegationTableTest, WhatIsOpenElsewhereIsKnownUntilItIsClosed) {
  AddThree();
  Get(kB, kDir, Right::kRead);
  Ask(kA, {{kDir, Right::kWrite}});
  Answer(kB, Message(kB).number, Right::kNone, {kFile, kGone});
  EXPECT_THAT(table_.OpenElsewhere(kBranch, kFile, kA), ElementsAre(kB));
  EXPECT_THAT(table_.OpenElsewhere(kBranch, kFile, kB), IsEmpty());
  EXPECT_THAT(table_.OpenElsewhere(kBranch, kGone, kA), IsEmpty());
  table_.Closed(kB, kFile);
  EXPECT_THAT(table_.OpenElsewhere(kBranch, kFile, kA), IsEmpty());
  ASSERT_TRUE(table_.GiveBack(kC, {}, {kFile}, tree_).ok());
  EXPECT_THAT(table_.OpenElsewhere(kBranch, kFile, kA), ElementsAre(kC));
  table_.Remove(kC, "ended", fx_);
  EXPECT_THAT(table_.OpenElsewhere(kBranch, kFile, kA), IsEmpty());
}

TEST_F(DelegationTableTest, NothingIsGrantedWhileSomebodyMayReclaim) {
  Add(kA, DelegationTable::Birth::kUnclaimed);
  Add(kB, DelegationTable::Birth::kUnclaimed);
  Add(kC);
  EXPECT_EQ(table_.MakeAlone(kC), 0u);
  Ask(kC, {{kOther, Right::kRead}});
  EXPECT_THAT(fx_.granted, IsEmpty());
  ReclaimRequest request;
  request.session = kA;
  request.rights = {{kDir, Right::kWrite}, {kGone, Right::kWrite}};
  request.opens = {kFile};
  const auto number = table_.Reclaim(request, tree_, fx_);
  ASSERT_TRUE(number.ok());
  EXPECT_GT(*number, kBase);
  EXPECT_EQ(*table_.Reclaim(request, tree_, fx_), *number) << "the answer was lost";
  EXPECT_EQ(Has(kA, kDir), Right::kWrite);
  EXPECT_THAT(table_.OpenElsewhere(kBranch, kFile, kB), ElementsAre(kA));
  Look();
  EXPECT_THAT(fx_.granted, IsEmpty());
  EXPECT_EQ(table_.NextLook(), now_ + kLease);
  table_.Renew(kB, now_ + absl::Seconds(10));
  now_ = now_ + kLease;
  Look();
  ASSERT_EQ(fx_.ends.size(), 1u) << "renewing is not reclaiming";
  EXPECT_EQ(fx_.ends[0].session, kB);
  EXPECT_THAT(fx_.granted, IsEmpty());
  table_.Remove(kB, "ended", fx_);
  Look();
  EXPECT_EQ(fx_.granted.size(), 1u);
}

TEST_F(DelegationTableTest, AConflictingClaimIsRefused) {
  const auto claim = [&](SessionId session, bool alone, std::vector<HeldRight> rights) {
    ReclaimRequest request;
    request.session = session;
    request.alone = alone;
    request.rights = std::move(rights);
    return table_.Reclaim(request, tree_, fx_).code();
  };
  for (SessionId s : {kA, kB, kC, SessionId{4}}) Add(s, DelegationTable::Birth::kUnclaimed);
  EXPECT_EQ(claim(kA, false, {{kDir, Right::kRead}}), Code::kOk);
  EXPECT_EQ(claim(kB, false, {{kDir, Right::kWrite}}), Code::kFenced);
  EXPECT_EQ(claim(kB, true, {}), Code::kFenced);
  EXPECT_EQ(claim(kB, false, {{kFile, Right::kWrite}, {kDir, Right::kRead}}), Code::kOk) << "carved out of A's directory before";
  EXPECT_EQ(Has(kA, kFile), Right::kNone);
  EXPECT_EQ(Has(kB, kFile), Right::kWrite);
  EXPECT_EQ(claim(kC, false, {{kDir, Right::kRead}}), Code::kOk);
  EXPECT_EQ(Has(kC, kFile), Right::kNone);
  for (SessionId s : {kA, kB, kC}) table_.Remove(s, "", fx_);
  Add(kA, DelegationTable::Birth::kUnclaimed);
  EXPECT_EQ(claim(kA, true, {}), Code::kOk);
  EXPECT_EQ(Has(kA, kTwoNames), Right::kWrite);
  EXPECT_EQ(claim(SessionId{4}, false, {{kDir, Right::kRead}}), Code::kFenced);
  EXPECT_EQ(claim(SessionId{4}, false, {}), Code::kOk);
}

TEST_F(DelegationTableTest, ARevocationTakesOneInode) {
  AddThree();
  Get(kA, kDir, Right::kWrite);
  table_.Revoke(++request_, kA, kFile, BootTime::Infinite());
  Look();
  EXPECT_THAT(fx_.granted, IsEmpty());
  Answer(kA, Message(kA).number, Right::kRead);
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(Has(kA, kFile), Right::kNone);
  EXPECT_EQ(Has(kA, kDir), Right::kWrite);
  table_.Revoke(++request_, kA, kFile, BootTime::Infinite());
  Look();
  EXPECT_EQ(fx_.granted.size(), 1u) << "nothing to take";
}

TEST_F(DelegationTableTest, WhatComesAlong) {
  AddThree();
  EXPECT_TRUE(table_.GrantAlong(kA, kDir, table_.NewNumber(kA), tree_).has_value());
  EXPECT_EQ(Has(kA, kDir), Right::kRead);
  EXPECT_FALSE(table_.GrantAlong(kA, kDir, table_.NewNumber(kA), tree_).has_value()) << "held already";
  Get(kB, kOther, Right::kWrite);
  EXPECT_FALSE(table_.GrantAlong(kA, kOther, table_.NewNumber(kA), tree_).has_value());
  Ask(kC, {{kDir, Right::kWrite}});
  EXPECT_FALSE(table_.GrantAlong(kB, kDir, table_.NewNumber(kB), tree_).has_value()) << "somebody waits for it";
}

TEST_F(DelegationTableTest, ManyRecallsGoOutInTurns) {
  DelegationLimits limits;
  limits.recalls = 2;
  DelegationTable table(limits);
  table.Add({kA, kBranch, SessionMode::kReadWrite, Sharing::kShared, "a", Lease{now_, kLease, now_}}, 0, DelegationTable::Birth::kNew);
  table.Add({kB, kBranch, SessionMode::kReadWrite, Sharing::kShared, "b", Lease{now_, kLease, now_}}, 0, DelegationTable::Birth::kNew);
  std::vector<Want> wants;
  for (uint64_t i = 0; i < 5; ++i) {
    tree_.dirs.insert(InodeId{100 + i});
    wants.push_back({InodeId{100 + i}, Right::kWrite});
  }
  DelegationEffects fx;
  ASSERT_TRUE(table.Acquire(1, kA, wants, BootTime::Infinite()).ok());
  ASSERT_TRUE(table.Acquire(2, kB, wants, BootTime::Infinite()).ok());
  table.Look(tree_, now_, fx);
  uint64_t after = 0, answered = 0;
  while (fx.granted.size() < 2 && answered < 10) {
    const auto messages = table.Poll(kA, after, 10);
    ASSERT_FALSE(messages.empty());
    ASSERT_LE(messages.size(), 2u);
    after = messages[0].number;
    ASSERT_TRUE(table.Answer(kA, {.message = messages[0].number}, tree_, now_).ok());
    ++answered;
    table.Look(tree_, now_, fx);
  }
  EXPECT_EQ(answered, 5u);
  EXPECT_EQ(fx.granted.size(), 2u);
}

}  // namespace
}  // namespace archil
