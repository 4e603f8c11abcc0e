// Operations at the server over restarts and kills, contention as the sessions meet it, and the pure parts: the rule of
// contention, and reservations in the queue of the delegation table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/meta/delegation/delegation_table.h"
#include "tests/support/meta_world.h"

namespace archil::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr BranchId kBranch{1};
constexpr SessionId kA{1}, kB{2};
constexpr InodeId kDir{2}, kFile{10}, kOther{11};

// --- contention

BootTime At(double seconds) { return BootTime{absl::Seconds(100 + seconds)}; }

TEST(ContentionTest, SoManyCollisionsWithinASecondAndACalmSecondAfterTheLast) {
  Contention c(3);
  c.Collided(kDir, At(0));
  c.Collided(kDir, At(0.9));
  EXPECT_FALSE(c.Contended(kDir, At(0.9)));
  c.Collided(kDir, At(1.8));
  EXPECT_FALSE(c.Contended(kDir, At(1.8))) << "the first is more than a second old";
  c.Collided(kDir, At(1.85));
  EXPECT_TRUE(c.Contended(kDir, At(1.9)));
  EXPECT_FALSE(c.Contended(kFile, At(1.9)));
  c.Used(kDir, kA, At(2.0));
  c.Used(kDir, kB, At(2.8));
  EXPECT_TRUE(c.Contended(kDir, At(3.7))) << "they take turns";
  c.Used(kDir, kB, At(3.7));
  EXPECT_FALSE(c.Contended(kDir, At(3.9))) << "one alone is left";
  c.Used(kDir, kA, At(4.0));
  EXPECT_FALSE(c.Contended(kDir, At(4.0)));
  Contention never(0);
  for (int i = 0; i < 100; ++i) never.Collided(kDir, At(0));
  EXPECT_FALSE(never.Contended(kDir, At(0)));
}

// --- reservations

class NamedTree final : public Tree {
 public:
  Kind KindOf(BranchId, InodeId ino) override {
    if (ino == kRootInode || ino == kDir) return Kind::kDirectory;
    return ino == kFile || ino == kOther ? Kind::kOther : Kind::kAbsent;
  }
  InodeId HomeOf(BranchId, InodeId ino) override { return ino == kFile || ino == kOther ? kDir : InodeId{0}; }
  InodeId ChildOf(BranchId, InodeId dir, const std::string& name) override {
    ++asked;
    return dir == kDir && name == "name" ? shown : InodeId{0};
  }
  InodeId ParentOf(BranchId, InodeId ino) override { return ino == kDir ? kRootInode : InodeId{0}; }
  bool Reaches(BranchId, InodeId, SessionId) override { return true; }
  InodeId shown = kFile;
  int asked = 0;
};

class ReservationTest : public ::testing::Test {
 protected:
  ReservationTest() {
    for (const SessionId s : {kA, kB}) {
      table_.Add(
          {s, kBranch, SessionMode::kReadWrite, Sharing::kShared, "client", Lease{now_, absl::Seconds(15), now_}}, 0,
          DelegationTable::Birth::kNew);
    }
  }
  DelegationEffects Look() {
    DelegationEffects fx;
    table_.Look(tree_, now_, fx);
    return fx;
  }
  uint64_t Get(SessionId session, InodeId ino, Right right) {
    EXPECT_TRUE(table_.Acquire(++request_, session, {{ino, right}}, BootTime::Infinite()).ok());
    const auto fx = Look();
    EXPECT_EQ(fx.granted.size(), 1u);
    return fx.granted.empty() ? 0 : fx.granted[0].grants[0].number;
  }
  uint64_t Reserve(SessionId session, Reservation::Kind kind = Reservation::Kind::kChange) {
    Reservation r;
    r.kind = kind;
    r.wants = {{kDir, kind == Reservation::Kind::kChange ? Right::kWrite : Right::kRead}};
    r.names = {{kDir, "name", kind == Reservation::Kind::kChange ? Right::kWrite : Right::kRead}};
    EXPECT_TRUE(table_.Reserve(++request_, session, r, BootTime::Infinite()).ok());
    return request_;
  }
  // Answers every message of the session; the inodes.
  std::vector<InodeId> AnswerAll(SessionId session) {
    std::vector<InodeId> inodes;
    for (const SessionMessage& m : table_.Poll(session, 0, 10)) {
      inodes.push_back(m.ino);
      EXPECT_TRUE(table_.Answer(session, {.message = m.number}, tree_, now_).ok());
    }
    return inodes;
  }

  NamedTree tree_;
  BootTime now_{absl::Seconds(100)};
  DelegationTable table_{DelegationLimits{.contended_after = 2}};
  uint64_t request_ = 0;
};

TEST_F(ReservationTest, KeepsItsPlaceUntilItIsApplied) {
  const uint64_t op = Reserve(kA);
  EXPECT_EQ(Look().ready, op);
  ASSERT_TRUE(table_.Acquire(++request_, kA, {{kDir, Right::kRead}}, BootTime::Infinite()).ok());
  ASSERT_TRUE(table_.Acquire(++request_, kB, {{kRootInode, Right::kRead}}, BootTime::Infinite()).ok());
  auto fx = Look();
  EXPECT_EQ(fx.ready, op);
  ASSERT_EQ(fx.granted.size(), 1u) << "its own session's request waits behind it, what does not touch it goes on";
  EXPECT_EQ(fx.granted[0].grants[0].ino, kRootInode);
  table_.Cancel(op);
  fx = Look();
  EXPECT_EQ(fx.ready, 0u);
  ASSERT_EQ(fx.granted.size(), 1u);
  EXPECT_EQ(fx.granted[0].grants[0].ino, kDir);
}

// Thousands may wait for one directory: each look costs what its head needs.
TEST_F(ReservationTest, WhoStandsBehindIsNotResolved) {
  const uint64_t first = Reserve(kA);
  for (int i = 0; i < 100; ++i) {
    Reserve(kB);
    Reserve(kA);
  }
  EXPECT_EQ(Look().ready, first);
  EXPECT_EQ(tree_.asked, 1);
  table_.Cancel(first);
  EXPECT_EQ(Look().ready, first + 1) << "in order of arrival";
  EXPECT_EQ(tree_.asked, 2);
}

TEST_F(ReservationTest, RecallsWhatTheNamesShowAtThatMomentItsOwnIncluded) {
  Get(kB, kFile, Right::kWrite);
  Get(kA, kOther, Right::kWrite);
  const uint64_t op = Reserve(kA);
  EXPECT_EQ(Look().ready, 0u);
  EXPECT_THAT(AnswerAll(kB), ElementsAre(kFile));
  tree_.shown = kOther;  // another operation came between
  EXPECT_EQ(Look().ready, 0u);
  EXPECT_THAT(AnswerAll(kA), ElementsAre(kOther));
  EXPECT_EQ(Look().ready, op);
}

TEST_F(ReservationTest, ALookSharesWithItsOwnSessionAndStandsBehindAWaitingWriter) {
  Get(kA, kDir, Right::kWrite);
  const uint64_t own = Reserve(kA, Reservation::Kind::kLook);
  auto fx = Look();
  ASSERT_EQ(fx.granted.size(), 1u);
  EXPECT_EQ(fx.granted[0].id, own);
  EXPECT_THAT(fx.granted[0].grants, IsEmpty());
  ASSERT_TRUE(table_.Acquire(++request_, kB, {{kDir, Right::kWrite}}, BootTime::Infinite()).ok());
  (void)Look();
  Reserve(kA, Reservation::Kind::kLook);
  EXPECT_THAT(Look().granted, IsEmpty());
}

TEST_F(ReservationTest, AContendedDirectoryIsNotGrantedToWhoCanDoWithout) {
  for (int i = 0; i < 2; ++i) {
    Get(kA, kDir, Right::kWrite);
    ASSERT_TRUE(table_.Acquire(++request_, kB, {{kDir, Right::kWrite}}, BootTime::Infinite()).ok());
    (void)Look();
    AnswerAll(kA);
    EXPECT_EQ(Look().granted.size(), 1u);
    ASSERT_TRUE(table_.GiveBack(kB, {kDir}, {}, tree_).ok());
  }
  ASSERT_TRUE(table_.Contended(kBranch, kDir, now_));
  DelegationTable::Manner manner;
  manner.or_at_server = true;
  ASSERT_TRUE(
      table_.Acquire(++request_, kA, {{kDir, Right::kWrite}, {kFile, Right::kRead}}, BootTime::Infinite(), manner)
          .ok());
  auto fx = Look();
  ASSERT_EQ(fx.granted.size(), 1u);
  EXPECT_THAT(fx.granted[0].at_server, ElementsAre(kDir));
  EXPECT_THAT(fx.granted[0].grants, IsEmpty());
  Get(kA, kDir, Right::kRead);  // who cannot is granted it all the same
  ASSERT_TRUE(table_.Acquire(++request_, kA, {{kDir, Right::kRead}, {kFile, Right::kRead}}, BootTime::Infinite(), manner).ok());
  fx = Look();
  ASSERT_EQ(fx.granted.size(), 1u);
  EXPECT_EQ(fx.granted[0].grants.size(), 2u) << "what it holds it need not be sent away for: it would ask again and again";
  ASSERT_TRUE(table_.GiveBack(kA, {kDir}, {}, tree_).ok());
  now_ = now_ + absl::Seconds(3);
  ASSERT_TRUE(table_.Acquire(++request_, kA, {{kDir, Right::kWrite}}, BootTime::Infinite(), manner).ok());
  fx = Look();
  ASSERT_EQ(fx.granted.size(), 1u);
  EXPECT_EQ(fx.granted[0].grants.size(), 1u) << "granting resumes";
}

// --- at a server

class ServerOpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(w_.Start().ok());
    ASSERT_TRUE(w_.meta().CreateDisk({}, "disk", 0).ok());
    OpenSessionRequest open;
    open.disk = "disk";
    open.key = {1, 2};
    open.conditional = true;
    const auto opened = w_.meta().OpenSession({}, open);
    ASSERT_TRUE(opened.ok());
    s_.emplace(w_.meta(), *opened, open.key);
  }
  Status Restart(bool kill) {
    kill ? w_.Kill() : w_.Stop();
    ARCHIL_RETURN_IF_ERROR(w_.Start());
    s_->Use(w_.meta());
    ReclaimRequest request;
    request.session = s_->id();
    request.key = s_->key();
    request.finished_ops = finished_;
    request.finished_locks = finished_locks_;
    ARCHIL_RETURN_IF_ERROR(w_.meta().Reclaim({}, request));
    return Ok();
  }
  ApplyOpRequest Request(Op op) {
    ApplyOpRequest request;
    request.session = s_->id();
    request.key = s_->key();
    request.id = ++id_;
    request.finished = finished_;
    request.op = std::move(op);
    return request;
  }

  MetaWorld w_;
  std::optional<TestSession> s_;
  uint64_t id_ = 0, finished_ = 0, finished_locks_ = 0;
};

// A verdict is in no log. A copy of a call that was answered with one, delayed over a restart, must not be decided once more.
TEST_F(ServerOpTest, WhatWasRefusedIsNotTriedAgainByACopyAfterARestart) {
  const auto unlink = Request(UnlinkOp{kRootInode, "x", InodeId{}, false, s_->Now()});
  ASSERT_EQ(w_.meta().ApplyOp({}, unlink).code(), Code::kNotFound);
  const CreateOp create = s_->File(kRootInode, "x");
  ASSERT_TRUE(w_.meta().ApplyOp({}, Request(create)).ok());
  SetLockRequest lock{s_->id(), s_->key(), 1, 1, {}};
  lock.request.lock = {create.ino, LockFamily::kWhole, {s_->id(), 7}, LockType::kWrite};
  ASSERT_TRUE(w_.meta().SetLock({}, lock).ok());
  finished_ = id_ + 1;
  finished_locks_ = 2;
  ASSERT_TRUE(Restart(true).ok());
  EXPECT_EQ(w_.meta().ApplyOp({}, unlink).code(), Code::kInvalid);
  EXPECT_THAT(*s_->Names(kRootInode), ElementsAre("x"));
  EXPECT_EQ(w_.meta().SetLock({}, lock).code(), Code::kInvalid) << "it was let go before the restart";
}

TEST_F(ServerOpTest, TheResultIsAsDurableAsTheEffect) {
  const auto create = Request(s_->File(kRootInode, "x"));
  const auto made = w_.meta().ApplyOp({}, create);
  ASSERT_TRUE(made.ok()) << made.error().ToString();
  const auto unlink = Request(UnlinkOp{kRootInode, "x", InodeId{}, false, s_->Now()});
  ASSERT_TRUE(w_.meta().ApplyOp({}, unlink).ok());
  for (const bool kill : {true, false, true}) {
    ASSERT_TRUE(Restart(kill).ok());
    const auto again = w_.meta().ApplyOp({}, create);
    ASSERT_TRUE(again.ok()) << again.error().ToString();
    EXPECT_EQ(again->inode.attr, made->inode.attr) << "also when it is gone since";
    EXPECT_EQ(w_.meta().ApplyOp({}, unlink)->removed, made->inode.attr.ino);
    EXPECT_THAT(*s_->Names(kRootInode), IsEmpty());
  }
  EXPECT_EQ(w_.Metric("meta_server_ops"), 0u);
  EXPECT_EQ(w_.Metric("meta_server_ops_repeated"), 2u);
  finished_ = id_ + 1;
  ASSERT_TRUE(w_.meta().ApplyOp({}, Request(s_->File(kRootInode, "y"))).ok());
  ASSERT_TRUE(Restart(true).ok());
  EXPECT_EQ(w_.meta().ApplyOp({}, create).code(), Code::kInvalid) << "finished, also for a new server";
  EXPECT_THAT(*s_->Names(kRootInode), ElementsAre("y"));
}

TEST_F(ServerOpTest, WhatAnEndedSessionHadOpenGoesWithItAndSoDoItsResults) {
  auto create = Request(s_->File(kRootInode, "x"));
  create.flags = ApplyOpRequest::kOpen;
  ASSERT_TRUE(w_.meta().ApplyOp({}, create).ok());
  ASSERT_TRUE(w_.meta().ApplyOp({}, Request(UnlinkOp{kRootInode, "x", InodeId{}, false, s_->Now()})).ok());
  EXPECT_EQ(w_.meta().ShowDisk({}, "disk")->used_inodes, 2u);
  ASSERT_TRUE(Restart(true).ok());
  ASSERT_TRUE(w_.meta().CloseSession({}, s_->id(), s_->key()).ok());
  EXPECT_EQ(w_.meta().ShowDisk({}, "disk")->used_inodes, 1u);
}

}  // namespace
}  // namespace archil::test
