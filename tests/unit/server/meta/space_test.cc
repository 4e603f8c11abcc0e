// Credits on a disk with a quota (docs/quota.md): who gets what, and that it holds through restarts.
#include <gtest/gtest.h>

#include "server/meta/delegation/space_book.h"
#include "tests/support/meta_world.h"

namespace archil::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;
const SessionId kA{1}, kB{2}, kC{3};

// --- the book

TEST(SpaceBook, DecidesBetweenLeastAndWanted) {
  EXPECT_EQ(SpaceBook::Decide(100, 0, 101, 200), std::nullopt);
  EXPECT_EQ(SpaceBook::Decide(100, 0, 100, 200), 100u);
  EXPECT_EQ(SpaceBook::Decide(100, 80, 10, 20), 20u) << "a return";
  EXPECT_EQ(SpaceBook::Decide(0, 80, 90, 80), 80u) << "a return asks for no room";
  EXPECT_EQ(SpaceBook::Decide(1600 * kMiB, 0, 0, 1000 * kMiB), 100 * kMiB) << "a sixteenth of what is free";
  EXPECT_EQ(SpaceBook::Decide(1600 * kMiB, 0, 0, 10 * kMiB), 10 * kMiB);
  EXPECT_EQ(SpaceBook::Decide(15 * kMiB, 0, 5, 10 * kMiB), 5u) << "near the quota there is no headroom";
  EXPECT_EQ(SpaceBook::Decide(100, 90, 95, 200), 95u);
  EXPECT_EQ(SpaceBook::Decide(100, 99, 95, 200), 99u) << "a raise takes nothing";
}

class BookTest : public ::testing::Test {
 protected:
  void Add(uint64_t id, SessionId session, uint64_t least, absl::Duration deadline = absl::Hours(1)) {
    book_.Add({id, session, id, least, least, BootTime{deadline}, {}});
  }
  SpaceEffects Look(uint64_t used, absl::Duration now = absl::ZeroDuration()) {
    SpaceEffects out;
    book_.Look(100, used, BootTime{now}, [this] { return live_; }, out);
    return out;
  }
  SpaceBook book_;
  std::vector<SessionId> live_{kA, kB, kC};
};

TEST_F(BookTest, AsksEverybodyOnceAndRefusesWhenNothingComes) {
  book_.Set(kB, 60);
  Add(1, kA, 50);
  SpaceEffects out = Look(10);
  EXPECT_TRUE(out.grants.empty());
  EXPECT_EQ(out.ask, (std::vector<SessionId>{kB, kC}));
  book_.Asked(kB, 7);
  book_.Asked(kC, 3);
  EXPECT_TRUE(Look(10).ask.empty());
  book_.Returned(kC, 3);
  EXPECT_TRUE(Look(10).failed.empty()) << "one still owes an answer";
  book_.Returned(kB, 6);
  EXPECT_TRUE(Look(10).failed.empty()) << "an answer to an older message";
  book_.Set(kB, 41);
  book_.Returned(kB, 7);
  out = Look(10);
  ASSERT_EQ(out.failed.size(), 1u);
  EXPECT_EQ(out.failed[0].wait, 1u);
  EXPECT_EQ(out.failed[0].error.code(), Code::kNoSpace);
  EXPECT_FALSE(book_.Waiting());
}

TEST_F(BookTest, GrantsWhenEnoughHasComeBack) {
  book_.Set(kB, 60);
  Add(1, kA, 50);
  (void)Look(10);
  book_.Set(kB, 40);
  const SpaceEffects out = Look(10);
  ASSERT_EQ(out.grants.size(), 1u);
  EXPECT_EQ(out.grants[0].credit, 50u);
  EXPECT_EQ(book_.CreditOf(kA), 50u);
  EXPECT_EQ(book_.total(), 90u);
}

TEST_F(BookTest, NobodyPassesTheFirstInLine) {
  book_.Set(kC, 50);
  Add(1, kA, 80);
  Add(2, kB, 10);
  EXPECT_TRUE(Look(20).grants.empty()) << "10 would fit, but 80 was there first";
  book_.Set(kC, 0);
  const SpaceEffects out = Look(20);
  ASSERT_EQ(out.grants.size(), 1u);
  EXPECT_EQ(out.grants[0].session, kA);
  EXPECT_TRUE(book_.Waiting());
}

TEST_F(BookTest, WhoIsSilentIsNotWaitedForAndKeepsItsCredit) {
  book_.Set(kB, 60);
  live_ = {kA, kC};
  Add(1, kA, 50);
  EXPECT_EQ(Look(10).ask, std::vector<SessionId>{kC});
  live_ = {kA};
  EXPECT_EQ(Look(10).failed.size(), 1u);
  EXPECT_EQ(book_.CreditOf(kB), 60u);
}

TEST_F(BookTest, AWaitEndsByItsTimeByALaterCallAndWithItsSession) {
  book_.Set(kB, 100);
  Add(1, kA, 50, absl::Seconds(5));
  (void)Look(0);
  EXPECT_EQ(book_.NextDeadline(), BootTime{absl::Seconds(5)});
  const SpaceEffects late = Look(0, absl::Seconds(5));
  ASSERT_EQ(late.failed.size(), 1u);
  EXPECT_EQ(late.failed[0].error.code(), Code::kUnavailable);
  Add(2, kA, 50);
  Add(3, kC, 50);
  EXPECT_TRUE(book_.Overtaken(kA, 2).empty());
  EXPECT_EQ(book_.Overtaken(kA, 3), std::vector<uint64_t>{2});
  book_.Cancel(3);
  EXPECT_FALSE(book_.Waiting());
  EXPECT_EQ(book_.NextDeadline(), BootTime::Infinite());
}

// --- the server

class SpaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(w_.Start().ok());
    ASSERT_TRUE(w_.meta().CreateDisk({}, "disk", 1000).ok());
  }
  TestSession Open(SessionKey key) {
    auto s = TestSession::Open(w_.meta(), "disk", key);
    EXPECT_TRUE(s.ok());
    return std::move(*s);
  }
  Result<Credit> Reserve(TestSession& s, uint64_t id, uint64_t least, uint64_t wanted, uint64_t message = 0, absl::Duration wait = absl::Seconds(30)) {
    OpContext ctx;
    ctx.deadline = RealScheduler().clock().Boot() + wait;
    return w_.meta().ReserveSpace(ctx, {s.id(), s.key(), id, least, wanted, message});
  }
  uint64_t Used() { return w_.meta().ShowDisk({}, "disk")->used_bytes; }

  MetaWorld w_;
};

TEST_F(SpaceTest, ACommitIsChargedAndAnswersWithWhatIsLeft) {
  TestSession a = Open({1, 1});
  const auto credit = Reserve(a, 1, 300, 300);
  ASSERT_TRUE(credit.ok()) << credit.error().ToString();
  EXPECT_EQ(credit->left, 300u);
  const CreateOp f = a.File(kRootInode, "f");
  const auto reply = a.Commit({f, a.Inline(f.ino, 0, std::string(100, 'x'), 100)});
  ASSERT_TRUE(reply.ok()) << reply.error().ToString();
  EXPECT_EQ(reply->credit.left, 200u);
  EXPECT_EQ(reply->credit.applied, reply->applied);
  EXPECT_GT(reply->credit.position, credit->position);
  // Over what is there: nothing is added.
  EXPECT_EQ(a.Commit({a.Inline(f.ino, 0, std::string(100, 'y'), 100)})->credit.left, 200u);
  // What is freed is everybody's.
  EXPECT_EQ(a.Commit({UnlinkOp{kRootInode, "f", f.ino, false, a.Now()}})->credit.left, 200u);
  EXPECT_EQ(Used(), 0u);
}

TEST_F(SpaceTest, WithinItsCreditACommitIsAppliedWhateverOthersDid) {
  TestSession a = Open({1, 1});
  const CreateOp mine = a.File(kRootInode, "mine");
  ASSERT_TRUE(a.Commit({mine}).ok());
  ASSERT_TRUE(Reserve(a, 1, 400, 400).ok());
  TestSession b = Open({2, 2});
  EXPECT_EQ(Reserve(b, 1, 601, 601, 0, absl::Milliseconds(300)).code(), Code::kUnavailable) << "the other is asked, and does not answer";
  ASSERT_TRUE(Reserve(b, 2, 600, 600).ok());
  ASSERT_TRUE(a.Commit({a.Inline(mine.ino, 0, std::string(400, 'x'), 400)}).ok());
}

TEST_F(SpaceTest, BeyondCreditAndQuotaACommitIsRefused) {
  TestSession a = Open({1, 1});
  const CreateOp f = a.File(kRootInode, "f");
  ASSERT_TRUE(a.Commit({f, a.Inline(f.ino, 0, std::string(1000, 'x'), 1000)}).ok()) << "without a credit, but there is room";
  const auto refused = a.Commit({a.Inline(f.ino, 1000, "y", 1001)});
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_EQ(Used(), 1000u);
}

TEST_F(SpaceTest, AnOlderCallThatComesLateChangesNothing) {
  TestSession a = Open({1, 1});
  ASSERT_TRUE(Reserve(a, 5, 500, 500).ok());
  EXPECT_EQ(Reserve(a, 4, 10, 10)->left, 500u);
  EXPECT_EQ(Reserve(a, 5, 10, 10)->left, 500u);
  EXPECT_EQ(Reserve(a, 6, 10, 10)->left, 10u);
  // Nor after the server was started again.
  w_.Kill();
  ASSERT_TRUE(w_.Start().ok());
  ASSERT_TRUE(a.Back(w_.meta()).ok());
  EXPECT_EQ(Reserve(a, 5, 500, 500)->left, 10u);
  EXPECT_EQ(Reserve(a, 7, 20, 20)->left, 20u);
}

TEST_F(SpaceTest, CreditsAreInTheLog) {
  TestSession a = Open({1, 1});
  ASSERT_TRUE(Reserve(a, 1, 800, 800).ok());
  w_.Kill();
  ASSERT_TRUE(w_.Start().ok());
  ASSERT_TRUE(a.Back(w_.meta()).ok());
  TestSession b = Open({2, 2});
  EXPECT_EQ(Reserve(b, 1, 201, 201, 0, absl::Milliseconds(300)).code(), Code::kUnavailable);
  ASSERT_TRUE(Reserve(b, 2, 200, 200).ok());
  // It ends with its session.
  ASSERT_TRUE(w_.meta().CloseSession({}, a.id(), a.key()).ok());
  EXPECT_EQ(Reserve(b, 3, 1000, 1000)->left, 1000u);
}

TEST_F(SpaceTest, WhoHasWhatItDoesNotNeedIsAskedForIt) {
  TestSession a = Open({1, 1});
  ASSERT_TRUE(Reserve(a, 1, 900, 900).ok());
  TestSession b = Open({2, 2});
  Result<Credit> got = Code::kInternal;
  auto asking = RealScheduler().Spawn("asking", [&] { got = Reserve(b, 1, 500, 500); });
  const auto told = a.Poll(a.reply().number);
  ASSERT_TRUE(told.ok()) << told.error().ToString();
  ASSERT_EQ(told->messages.size(), 1u);
  EXPECT_EQ(told->messages[0].kind, SessionMessage::Kind::kReturnSpace);
  EXPECT_EQ(Reserve(a, 2, 300, 300, told->messages[0].number)->left, 300u);
  asking->Join();
  ASSERT_TRUE(got.ok()) << got.error().ToString();
  EXPECT_EQ(got->left, 500u);
  // Now nobody has anything to return.
  auto refusing = RealScheduler().Spawn("asking", [&] { got = Reserve(b, 2, 701, 701); });
  const auto again = a.Poll(told->messages[0].number);
  ASSERT_EQ(again->messages.size(), 1u);
  EXPECT_EQ(Reserve(a, 3, 300, 300, again->messages[0].number)->left, 300u);
  refusing->Join();
  EXPECT_EQ(got.code(), Code::kNoSpace);
  EXPECT_EQ(w_.Metric("meta_space_refused"), 1u);
}

TEST_F(SpaceTest, BadCallsAreRefusedWithTheReason) {
  TestSession a = Open({1, 1});
  EXPECT_EQ(Reserve(a, 1, 2, 1).code(), Code::kInvalid);
  EXPECT_EQ(w_.meta().ReserveSpace({}, {a.id(), {9, 9}, 1, 1, 1, 0}).code(), Code::kPermission);
  ASSERT_TRUE(w_.meta().CreateDisk({}, "free", 0).ok());
  auto free = TestSession::Open(w_.meta(), "free", {3, 3});
  ASSERT_TRUE(free.ok());
  const auto none = w_.meta().ReserveSpace({}, {free->id(), free->key(), 1, 1, 1, 0});
  EXPECT_EQ(none.code(), Code::kInvalid);
  EXPECT_NE(none.error().message().find("no quota"), std::string::npos);
}

}  // namespace
}  // namespace archil::test
