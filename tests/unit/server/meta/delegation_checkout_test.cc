// Checkouts by the rules of the table (docs/delegation.md, "Checkouts").
#include "tests/unit/server/meta/delegation_table_fixture.h"

namespace archil {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DelegationCheckoutTest : public DelegationTableTest {
 protected:
  Status Call(SessionId session, uint64_t id, InodeId dir, bool in = false, bool force = false) {
    fx_ = {};
    const Status s = table_.Checkout(++request_, {.session = session, .id = id, .ino = dir, .in = in, .force = force}, BootTime::Infinite(), tree_, now_, fx_);
    if (s.ok()) {
      table_.Look(tree_, now_, fx_);
    } else {
      table_.Cancel(request_);
    }
    return s;
  }
  bool Granted() {
    return std::any_of(fx_.granted.begin(), fx_.granted.end(), [&](const auto& g) { return g.id == request_; });
  }
  void Want(SessionId session, InodeId ino, Right right, bool must_hold = false) {
    ASSERT_TRUE(table_.Acquire(++request_, session, {{ino, right}}, BootTime::Infinite(), {.must_hold = must_hold}).ok());
    Look();
  }
};

TEST_F(DelegationCheckoutTest, WhatOthersHoldBelowIsRecalledFirst) {
  AddThree();
  Get(kB, kFile, Right::kWrite);
  Get(kC, kOther, Right::kWrite);
  ASSERT_TRUE(Call(kA, 1, kDir).ok());
  EXPECT_FALSE(Granted());
  EXPECT_THAT(table_.Poll(kC, 0, 10), IsEmpty()) << "beside it";
  const uint64_t checkout = request_;
  Answer(kB, Message(kB).number, Right::kNone);
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(fx_.granted[0].id, checkout);
  EXPECT_GT(table_.CheckoutNumber(kA, kDir), 0u);
  EXPECT_EQ(table_.CheckedOutBy(kBranch, kFile, kB, tree_, now_), kA);
  EXPECT_EQ(table_.CheckedOutBy(kBranch, kFile, kA, tree_, now_), SessionId{0});
  EXPECT_EQ(table_.CheckedOutBy(kBranch, kTwoNames, kB, tree_, now_), SessionId{0}) << "a file with several names";
  EXPECT_EQ(table_.CheckedOutBy(kBranch, kFile, kB, tree_, now_ + kLease), SessionId{0}) << "silent";
}

TEST_F(DelegationCheckoutTest, OthersAreRefusedOrReadThrough) {
  AddThree();
  ASSERT_TRUE(Call(kA, 1, kDir).ok());
  Get(kA, kDir, Right::kWrite);
  Want(kB, kFile, Right::kWrite);
  ASSERT_EQ(fx_.failed.size(), 1u);
  EXPECT_EQ(fx_.failed[0].error.code(), Code::kHeldElsewhere);
  EXPECT_THAT(std::string(fx_.failed[0].error.message()), HasSubstr("client-1"));
  Want(kB, kFile, Right::kRead);
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_THAT(fx_.granted[0].grants, IsEmpty());
  EXPECT_THAT(fx_.granted[0].through, ElementsAre(kFile));
  EXPECT_THAT(table_.Poll(kA, 0, 10), IsEmpty()) << "nothing is recalled";
  Want(kB, kFile, Right::kRead, true);
  EXPECT_EQ(Message(kA).kind, SessionMessage::Kind::kRecall);
  EXPECT_EQ(Message(kA).keep, Right::kRead);
}

TEST_F(DelegationCheckoutTest, ALookWaitsForAFlushOfItsOwn) {
  AddThree();
  ASSERT_TRUE(Call(kA, 1, kDir).ok());
  Get(kA, kDir, Right::kWrite);
  Reservation look;
  look.kind = Reservation::Kind::kLook;
  look.wants.push_back({kFile, Right::kRead, false});
  ASSERT_TRUE(table_.Reserve(++request_, kB, look, BootTime::Infinite()).ok());
  ASSERT_TRUE(table_.Reserve(++request_, kC, look, BootTime::Infinite()).ok());
  Look();
  const auto asked = table_.Poll(kA, 0, 10);
  ASSERT_EQ(asked.size(), 2u) << "each waits for what was acknowledged before it came";
  for (const SessionMessage& m : asked) EXPECT_EQ(m.kind, SessionMessage::Kind::kFlush);
  Answer(kA, asked[0].number, Right::kNone);
  ASSERT_EQ(fx_.granted.size(), 1u);
  EXPECT_EQ(fx_.granted[0].id, request_ - 1);
  EXPECT_EQ(Has(kA, kFile), Right::kWrite) << "the holder goes on";
  // The lease of the holder runs out: then it is asked for its right.
  now_ = now_ + kLease;
  table_.Renew(kC, now_);
  Look();
  ASSERT_EQ(fx_.takes.size(), 1u);
  EXPECT_EQ(fx_.takes[0].taken, (Taken{kFile, true, false}));
}

TEST_F(DelegationCheckoutTest, ByForceAndAfterARestart) {
  AddThree();
  ASSERT_TRUE(Call(kA, 7, kDir).ok());
  EXPECT_EQ(Call(kB, 1, kDir).code(), Code::kHeldElsewhere);
  ASSERT_TRUE(Call(kB, 2, kDir, false, true).ok());
  EXPECT_EQ(Message(kA).kind, SessionMessage::Kind::kCheckoutEnded);
  EXPECT_EQ(Call(kA, 7, kDir, false, true).code(), Code::kInvalid) << "a late copy";
  EXPECT_EQ(Call(kA, 8, kDir, true).code(), Code::kNotFound);
  EXPECT_EQ(Call(kB, 1, kDir).code(), Code::kInvalid) << "older";
  ASSERT_TRUE(Call(kB, 3, kDir, true).ok());
  EXPECT_TRUE(Granted());

  DelegationTable later;
  for (const SessionId id : {kA, kB}) {
    later.Add({id, kBranch, SessionMode::kReadWrite, Sharing::kShared, "c", Lease{now_, kLease, now_}}, kBase, DelegationTable::Birth::kUnclaimed);
  }
  DelegationEffects fx;
  ASSERT_TRUE(later.Reclaim({.session = kA, .checkouts = {{kDir, 5}}, .last_checkout = 7}, tree_, fx).ok());
  EXPECT_EQ(later.CheckoutNumber(kA, kDir), 5u);
  ASSERT_TRUE(later.Reclaim({.session = kB, .checkouts = {{kDir, 6}}}, tree_, fx).ok());
  EXPECT_EQ(later.CheckoutNumber(kA, kDir), 0u);
  EXPECT_EQ(later.CheckoutNumber(kB, kDir), 6u);
  EXPECT_TRUE(fx.told.contains(kA));
}

}  // namespace
}  // namespace archil
