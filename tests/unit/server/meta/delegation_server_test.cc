// Rights over restarts, on a clock that the test moves, and the messages that wait when a server stops. The rest of what the server
// does with rights: tests/contract/meta_service_contract.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/meta_world.h"
#include "tests/support/virtual_scheduler.h"

namespace archil::test {
namespace {

using testing::HasSubstr;

class DelegationServerTest : public ::testing::Test {
 protected:
  // Two sessions, of which the first holds WRITE on a directory with a file and the second READ on the root.
  void SetUp() override {
    ASSERT_TRUE(w_.Start().ok());
    ASSERT_TRUE(w_.meta().CreateDisk({}, "disk", 0).ok());
    a_.emplace(Open({1, 1}, "host-a"));
    dir_ = a_->File(kRootInode, "dir", FileType::kDirectory);
    file_ = a_->File(dir_.ino, "file");
    ASSERT_TRUE(a_->Commit({dir_, file_}).ok());
    b_.emplace(Open({2, 2}, "host-b"));
    Notification granted(RealScheduler());
    AcquireAsync(*b_, {{kRootInode, Right::kRead}}, [&](Result<AcquireReply> r) {
      EXPECT_TRUE(r.ok());
      granted.Notify();
    });
    const auto polled = w_.meta().Poll({}, a_->id(), a_->key(), 0);
    ASSERT_TRUE(polled.ok());
    ASSERT_EQ(polled->messages.size(), 1u);
    RecallAnswer answer;
    answer.message = polled->messages[0].number;
    answer.keeps = {{dir_.ino, Right::kWrite}};
    ASSERT_TRUE(a_->Answer(answer).ok());
    granted.Wait();
    seen_ = answer.message;
  }
  TestSession Open(SessionKey key, const std::string& name) {
    auto s = TestSession::Open(w_.meta(), "disk", key, name, SessionMode::kReadWrite, absl::Seconds(15));
    EXPECT_TRUE(s.ok()) << s.error().ToString();
    return *s;
  }
  void AcquireAsync(const TestSession& s, std::vector<Want> wants, std::function<void(Result<AcquireReply>)> done) {
    AcquireRequest request;
    request.session = s.id();
    request.key = s.key();
    request.wants = std::move(wants);
    w_.meta().AcquireAsync({}, request, nullptr, std::move(done));
  }
  Result<ReclaimReply> Reclaim(TestSession& s, std::vector<HeldRight> rights, bool alone = false, std::vector<InodeId> opens = {}) {
    s.Use(w_.meta());
    ReclaimRequest request;
    request.session = s.id();
    request.key = s.key();
    request.rights = std::move(rights);
    request.alone = alone;
    request.opens = std::move(opens);
    return w_.meta().Reclaim({}, request);
  }
  void Restart() {
    w_.Kill();
    ASSERT_TRUE(w_.Start().ok());
    a_->Use(w_.meta());
    b_->Use(w_.meta());
  }

  VirtualScheduler clock_;
  MetaWorld w_{1, clock_};
  std::optional<TestSession> a_, b_;
  CreateOp dir_, file_;
  uint64_t seen_ = 0;
};

TEST_F(DelegationServerTest, AfterARestartSessionsSayWhatTheyHold) {
  Restart();
  EXPECT_TRUE(w_.meta().Poll({}, a_->id(), a_->key(), seen_)->reclaim);
  EXPECT_TRUE(w_.meta().Renew({}, a_->id(), a_->key(), 0)->reclaim);
  const auto early = a_->Commit({a_->File(dir_.ino, "early")});
  ASSERT_EQ(early.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(early.error().message()), HasSubstr("reclaim"));
  const auto number = Reclaim(*a_, {{dir_.ino, Right::kWrite}});
  ASSERT_TRUE(number.ok()) << number.error().ToString();
  EXPECT_GT(number->number, seen_);
  EXPECT_FALSE(w_.meta().Renew({}, a_->id(), a_->key(), 0)->reclaim);
  EXPECT_TRUE(a_->Commit({a_->File(dir_.ino, "more")}).ok()) << "at once, others or not";
  EXPECT_EQ(a_->Commit({a_->File(kRootInode, "x")}).code(), Code::kInvalid);
  // Nothing is granted before the other one has come, or cannot come any more.
  Notification granted(RealScheduler());
  AcquireAsync(*a_, {{kRootInode, Right::kWrite}}, [&](Result<AcquireReply> r) {
    EXPECT_TRUE(r.ok());
    granted.Notify();
  });
  clock_.Advance(absl::Seconds(14));
  ASSERT_TRUE(w_.meta().Renew({}, a_->id(), a_->key(), 0).ok());
  ASSERT_TRUE(w_.meta().Renew({}, b_->id(), b_->key(), 0).ok());
  EXPECT_FALSE(granted.HasBeenNotified());
  clock_.Advance(absl::Seconds(2));
  granted.Wait();
  const auto late = Reclaim(*b_, {{kRootInode, Right::kRead}});
  ASSERT_EQ(late.code(), Code::kFenced);
  EXPECT_THAT(std::string(late.error().message()), HasSubstr("did not come back"));
  // FEN-1: that is in the log.
  Restart();
  EXPECT_EQ(Reclaim(*b_, {{kRootInode, Right::kRead}}).code(), Code::kFenced);
  EXPECT_TRUE(Reclaim(*a_, {{dir_.ino, Right::kWrite}, {kRootInode, Right::kWrite}}).ok());
}

TEST_F(DelegationServerTest, AConflictingClaimEndsItsSession) {
  Restart();
  ASSERT_TRUE(Reclaim(*a_, {{dir_.ino, Right::kWrite}}).ok());
  const auto bad = Reclaim(*b_, {{dir_.ino, Right::kRead}});
  ASSERT_EQ(bad.code(), Code::kFenced);
  EXPECT_THAT(std::string(bad.error().message()), HasSubstr("reclaimed"));
  EXPECT_EQ(b_->Stat(kRootInode).code(), Code::kFenced);
  EXPECT_EQ(w_.Metric("meta_reclaims"), 1u);
}

TEST_F(DelegationServerTest, ARemovalWaitsUntilOthersHaveSaidWhatTheyHaveOpen) {
  Restart();
  ASSERT_TRUE(Reclaim(*a_, {{dir_.ino, Right::kWrite}}).ok());
  const UnlinkOp unlink{dir_.ino, "file", file_.ino, false, a_->Now()};
  const auto early = a_->Commit({unlink});
  ASSERT_EQ(early.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(early.error().message()), HasSubstr("open"));
  const CreateOp own = a_->File(dir_.ino, "own");
  EXPECT_TRUE(a_->Commit({own, UnlinkOp{dir_.ino, "own", own.ino, false, a_->Now()}}).ok()) << "nobody else has seen it";
  ASSERT_TRUE(Reclaim(*b_, {{kRootInode, Right::kRead}}, false, {file_.ino}).ok());
  ASSERT_TRUE(a_->Commit({unlink}).ok());
  EXPECT_TRUE(b_->Stat(file_.ino).ok());
}

TEST_F(DelegationServerTest, ARemovalEndsWhoDoesNotComeBack) {
  Restart();
  ASSERT_TRUE(Reclaim(*a_, {{dir_.ino, Right::kWrite}}).ok());
  const UnlinkOp unlink{dir_.ino, "file", file_.ino, false, a_->Now()};
  clock_.Advance(absl::Seconds(14));
  ASSERT_EQ(a_->Commit({unlink}).code(), Code::kUnavailable);
  clock_.Advance(absl::Seconds(2));
  ASSERT_EQ(a_->Commit({unlink}).code(), Code::kUnavailable) << "the end comes first";
  EXPECT_TRUE(a_->Commit({unlink}).ok());
  const auto late = Reclaim(*b_, {}, false, {file_.ino});
  ASSERT_EQ(late.code(), Code::kFenced);
  EXPECT_THAT(std::string(late.error().message()), HasSubstr("did not come back"));
}

TEST_F(DelegationServerTest, WhatIsOpenElsewhereIsInTheLogOfTheUnlink) {
  Restart();
  ASSERT_TRUE(Reclaim(*a_, {{dir_.ino, Right::kWrite}}).ok());
  ASSERT_TRUE(Reclaim(*b_, {{kRootInode, Right::kRead}}, false, {file_.ino}).ok());
  ASSERT_TRUE(a_->Commit({UnlinkOp{dir_.ino, "file", file_.ino, false, a_->Now()}}).ok());
  EXPECT_TRUE(b_->Stat(file_.ino).ok());
  w_.Stop();
  w_.states.Forget();  // from the log alone
  ASSERT_TRUE(w_.Start().ok());
  ASSERT_TRUE(Reclaim(*b_, {}).ok());
  EXPECT_EQ(b_->Stat(file_.ino)->attr.nlink, 0u);
  ASSERT_TRUE(w_.meta().CloseSession({}, b_->id(), b_->key()).ok());
  ASSERT_TRUE(Reclaim(*a_, {}).ok());
  EXPECT_EQ(a_->Stat(file_.ino).code(), Code::kNotFound);
}

TEST_F(DelegationServerTest, AnExclusiveSessionIsSoAfterARestart) {
  ASSERT_TRUE(w_.meta().CloseSession({}, a_->id(), a_->key()).ok());
  ASSERT_TRUE(w_.meta().CloseSession({}, b_->id(), b_->key()).ok());
  OpenSessionRequest request;
  request.disk = "disk";
  request.key = {5, 5};
  request.sharing = Sharing::kExclusive;
  const auto opened = w_.meta().OpenSession({}, request);
  ASSERT_TRUE(opened.ok());
  for (const bool forget : {false, true}) {
    w_.Stop();
    if (forget) w_.states.Forget();
    ASSERT_TRUE(w_.Start().ok());
    EXPECT_EQ(TestSession::Open(w_.meta(), "disk", {6, 6}).code(), Code::kHeldElsewhere);
  }
  request = {};
  request.disk = "disk";
  request.key = {6, 6};
  request.force = true;
  const auto forced = w_.meta().OpenSession({}, request);
  ASSERT_TRUE(forced.ok());
  EXPECT_TRUE(forced->alone);
}

TEST_F(DelegationServerTest, FromWhoStandsStillItIsTakenAlthoughItRenews) {
  Notification granted(RealScheduler());
  AcquireAsync(*b_, {{dir_.ino, Right::kWrite}}, [&](Result<AcquireReply> r) {
    EXPECT_TRUE(r.ok());
    granted.Notify();
  });
  ASSERT_TRUE(w_.meta().Poll({}, a_->id(), a_->key(), seen_).ok());
  absl::Duration left;
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(absl::Seconds(4));
    auto a = w_.meta().Renew({}, a_->id(), a_->key(), i < 2 ? i + 1 : 2);
    if (a.ok()) left = a->lease;
    ASSERT_TRUE(w_.meta().Renew({}, b_->id(), b_->key(), 0).ok());
    EXPECT_FALSE(granted.HasBeenNotified()) << i;
  }
  EXPECT_EQ(left, absl::Seconds(7)) << "renewed at 12 s for the last time, with progress at 8 s";
  clock_.Advance(absl::Seconds(7));
  granted.Wait();
  EXPECT_EQ(w_.Metric("meta_silent_taken"), 1u);
  EXPECT_EQ(w_.Metric("meta_silent_ended"), 0u);
}

// FENCE-1, FEN-1: what was taken stays so over restarts, until the session has settled it.
TEST_F(DelegationServerTest, WhatIsTakenIsInTheLog) {
  Notification granted(RealScheduler());
  AcquireAsync(*b_, {{dir_.ino, Right::kWrite}}, [&](Result<AcquireReply> r) {
    EXPECT_TRUE(r.ok());
    granted.Notify();
  });
  clock_.Advance(absl::Seconds(10));
  ASSERT_TRUE(w_.meta().Renew({}, b_->id(), b_->key(), 0).ok());
  clock_.Advance(absl::Seconds(5));
  granted.Wait();
  for (const bool forget : {false, true}) {
    w_.Stop();
    if (forget) w_.states.Forget();
    ASSERT_TRUE(w_.Start().ok());
    a_->Use(w_.meta());
    b_->Use(w_.meta());
    const auto told = w_.meta().Renew({}, a_->id(), a_->key(), 0);
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(told->taken, (std::vector<Taken>{{dir_.ino, true, false}})) << forget;
  }
  ASSERT_TRUE(Reclaim(*b_, {{dir_.ino, Right::kWrite}}).ok());
  ASSERT_TRUE(Reclaim(*a_, {{dir_.ino, Right::kWrite}, {kRootInode, Right::kRead}}).ok());
  EXPECT_EQ(a_->Commit({a_->File(dir_.ino, "late")}).code(), Code::kTryAgain);
  EXPECT_EQ(a_->Stat(kRootInode).code(), Code::kUnavailable) << "it has no lease";
  ASSERT_TRUE(b_->Commit({b_->File(dir_.ino, "of b")}).ok());
  SettleRequest settle;
  settle.session = a_->id();
  settle.key = a_->key();
  settle.taken = {dir_.ino};
  settle.last = Seq{100};
  ASSERT_TRUE(w_.meta().Settle({}, settle).ok());
  ASSERT_TRUE(w_.meta().Settle({}, settle).ok()) << "the answer was lost";
  w_.Kill();
  w_.states.Forget();
  ASSERT_TRUE(w_.Start().ok());
  const auto told = w_.meta().Renew({}, a_->id(), a_->key(), 0);
  ASSERT_TRUE(told.ok());
  EXPECT_TRUE(told->taken.empty());
  EXPECT_EQ(told->applied, Seq{100}) << "a commit that was delayed is a repeat";
}

TEST_F(DelegationServerTest, AServerThatStopsAnswersWhoWaits) {
  Notification acquired(RealScheduler()), polled(RealScheduler());
  AcquireAsync(*b_, {{dir_.ino, Right::kWrite}}, [&](Result<AcquireReply> r) {
    EXPECT_EQ(r.code(), Code::kUnavailable);
    acquired.Notify();
  });
  w_.meta().PollAsync({}, b_->id(), b_->key(), 0, nullptr, [&](Result<PollReply> r) {
    EXPECT_EQ(r.code(), Code::kUnavailable);
    polled.Notify();
  });
  w_.meta().EndWaits();
  acquired.Wait();
  polled.Wait();
  EXPECT_EQ(w_.meta().Poll({}, b_->id(), b_->key(), 0).code(), Code::kUnavailable);
  EXPECT_TRUE(b_->Stat(kRootInode).ok()) << "other calls go on";
}

TEST_F(DelegationServerTest, WithoutItsLogADiskAnswersWhoWaits) {
  Notification acquired(RealScheduler());
  AcquireAsync(*b_, {{dir_.ino, Right::kWrite}}, [&](Result<AcquireReply> r) {
    EXPECT_EQ(r.code(), Code::kUnavailable);
    acquired.Notify();
  });
  w_.data.at(0).DieAfter(0, true);
  EXPECT_FALSE(a_->Commit({a_->File(dir_.ino, "x")}).ok());
  acquired.Wait();
  w_.data.at(0).SetDown(false);
}

}  // namespace
}  // namespace archil::test
