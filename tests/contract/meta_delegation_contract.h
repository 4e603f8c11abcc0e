// What holds for rights and their recall (docs/delegation.md) at every MetaService. As meta_service_contract.h, whose factories it takes.
#pragma once

#include <optional>

#include "tests/contract/meta_service_contract.h"

namespace archil {

// Two sessions of a disk that has a directory with two files; neither is alone.
class MetaDelegationContract : public MetaServiceContract {
 protected:
  void SetUp() override {
    MetaServiceContract::SetUp();
    a_.emplace(Open({1, 1}, "host-a"));
    dir_ = a_->File(kRootInode, "dir", FileType::kDirectory);
    file_ = a_->File(dir_.ino, "file");
    other_ = a_->File(dir_.ino, "other");
    ASSERT_TRUE(a_->Commit({dir_, file_, other_}).ok());
    b_.emplace(Open({2, 2}, "host-b"));
    Asking asking(*b_, {{dir_.ino, Right::kRead}});
    const auto recall = a_->GiveUpNext();
    ASSERT_TRUE(recall.ok()) << Why(recall);
    EXPECT_EQ(recall->kind, SessionMessage::Kind::kRecallAlone);
    EXPECT_EQ(recall->grant, a_->reply().number);
    ASSERT_TRUE(asking.Answer().ok());
    ASSERT_TRUE(service().GiveBack(ctx_, b_->id(), b_->key(), {dir_.ino}, {}).ok());
  }
  // An Acquire on a thread of its own.
  class Asking {
   public:
    Asking(Session session, std::vector<Want> wants, absl::Duration wait = absl::Minutes(1)) {
      thread_ = RealScheduler().Spawn("asking", [this, session = std::move(session), wants = std::move(wants), wait]() mutable {
        result_ = session.Acquire(wants, 0, wait);
        done_.Notify();
      });
    }
    ~Asking() { thread_->Join(); }
    bool answered() { return done_.HasBeenNotified(); }
    const Result<AcquireReply>& Answer() {
      done_.Wait();
      return result_;
    }

   private:
    Notification done_{RealScheduler()};
    Result<AcquireReply> result_ = Code::kInternal;
    std::unique_ptr<Thread> thread_;
  };
  bool Has(Session& s, InodeId ino, Right right) {
    const auto rights = service().ListRights(ctx_, "disk", 0);
    EXPECT_TRUE(rights.ok()) << Why(rights);
    for (const RightInfo& info : *rights) {
      if (info.session == s.id() && info.ino == ino) return info.right == right;
    }
    return right == Right::kNone;
  }

  std::optional<Session> a_, b_;
  CreateOp dir_, file_, other_;
};

TEST_P(MetaDelegationContract, ReadIsSharedAndAWriterRecallsIt) {
  const auto a = a_->Acquire({{dir_.ino, Right::kRead, true}, {InodeId{999}, Right::kRead}});
  ASSERT_TRUE(a.ok()) << Why(a);
  ASSERT_EQ(a->grants.size(), 1u);
  EXPECT_EQ(a->grants[0].ino, dir_.ino);
  EXPECT_EQ(a->inodes[0].attr.size, 2u);
  EXPECT_THAT(a->missing, testing::ElementsAre(InodeId{999}));
  ASSERT_EQ(a->listings.size(), 1u);
  EXPECT_TRUE(a->listings[0].complete);
  ASSERT_EQ(a->listings[0].entries.size(), 2u);
  EXPECT_TRUE(a->listings[0].entries[0].inode.covered);
  ASSERT_TRUE(b_->Acquire({{dir_.ino, Right::kRead}}).ok());
  EXPECT_EQ(b_->Commit({TouchOp{dir_.ino, {1, 0}, {1, 0}}}).code(), Code::kInvalid) << "READ is not WRITE (DLG-2)";
  Asking asking(*b_, {{dir_.ino, Right::kWrite}});
  const auto recall = a_->GiveUpNext(Right::kRead);
  ASSERT_TRUE(recall.ok()) << Why(recall);
  EXPECT_EQ(recall->ino, dir_.ino);
  EXPECT_EQ(recall->grant, a->grants[0].number);
  EXPECT_GT(recall->number, recall->grant);
  EXPECT_EQ(recall->keep, Right::kNone);
  ASSERT_TRUE(asking.Answer().ok()) << Why(asking.Answer());
  EXPECT_EQ(asking.Answer()->grants[0].right, Right::kWrite);
  EXPECT_TRUE(Has(*a_, dir_.ino, Right::kNone));
  EXPECT_TRUE(b_->Commit({b_->File(dir_.ino, "of-b")}).ok());
}

TEST_P(MetaDelegationContract, AHolderThatWritesKeepsReadAndAChildIsCarvedOut) {
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kWrite}}).ok());
  ASSERT_TRUE(a_->Commit({a_->Inline(file_.ino, 0, "aaa", 3)}).ok());
  EXPECT_TRUE(a_->Lookup(dir_.ino, "file")->covered);
  {
    Asking asking(*b_, {{file_.ino, Right::kWrite}});
    const auto recall = a_->GiveUpNext();
    ASSERT_TRUE(recall.ok()) << Why(recall);
    EXPECT_EQ(recall->ino, file_.ino);
    EXPECT_EQ(recall->home, dir_.ino);
    ASSERT_TRUE(asking.Answer().ok()) << Why(asking.Answer());
  }
  EXPECT_TRUE(b_->Commit({b_->Inline(file_.ino, 3, "bbb", 6)}).ok());
  EXPECT_FALSE(a_->Lookup(dir_.ino, "file")->covered);
  EXPECT_TRUE(a_->Lookup(dir_.ino, "other")->covered);
  EXPECT_EQ(a_->Commit({a_->Inline(file_.ino, 0, "x", 6)}).code(), Code::kInvalid);
  EXPECT_TRUE(a_->Commit({a_->Inline(other_.ino, 0, "x", 1)}).ok());
  Asking asking(*b_, {{dir_.ino, Right::kRead}});
  const auto recall = a_->GiveUpNext(Right::kRead);
  ASSERT_TRUE(recall.ok()) << Why(recall);
  EXPECT_EQ(recall->keep, Right::kRead);
  ASSERT_TRUE(asking.Answer().ok());
  EXPECT_TRUE(Has(*a_, dir_.ino, Right::kRead));
  EXPECT_EQ(*a_->Content(file_.ino), "aaabbb");
}

TEST_P(MetaDelegationContract, WhoWasAloneKeepsWhatItNames) {
  ASSERT_TRUE(service().CloseSession(ctx_, a_->id(), a_->key()).ok());
  ASSERT_TRUE(service().CloseSession(ctx_, b_->id(), b_->key()).ok());
  Session c = Open({3, 3}, "host-c");
  ASSERT_TRUE(c.reply().alone);
  EXPECT_GT(c.reply().number, 0u);
  Session d = Open({4, 4}, "host-d");
  EXPECT_FALSE(d.reply().alone);
  Asking asking(d, {{kRootInode, Right::kRead}});
  ASSERT_TRUE(c.GiveUpNext(Right::kNone, {}, {{dir_.ino, Right::kWrite}}).ok());
  ASSERT_TRUE(asking.Answer().ok());
  EXPECT_TRUE(Has(c, dir_.ino, Right::kWrite));
  EXPECT_TRUE(Has(d, kRootInode, Right::kRead));
  EXPECT_TRUE(c.Commit({c.File(dir_.ino, "still-mine")}).ok());
  EXPECT_EQ(c.Commit({c.File(kRootInode, "not-mine")}).code(), Code::kInvalid);
  // A directory that it makes is its own at once.
  const CreateOp below = c.File(dir_.ino, "below", FileType::kDirectory);
  ASSERT_TRUE(c.Commit({below}).ok());
  EXPECT_TRUE(c.Commit({c.File(below.ino, "deep")}).ok());
}

TEST_P(MetaDelegationContract, AnUnlinkedFileLivesWhereItIsOpen) {
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kRead}}).ok());
  {
    Asking asking(*b_, {{dir_.ino, Right::kWrite}});
    ASSERT_TRUE(a_->GiveUpNext(Right::kNone, {file_.ino, other_.ino}).ok());
    ASSERT_TRUE(asking.Answer().ok());
  }
  RenameOp over{dir_.ino, "file", dir_.ino, "other", file_.ino, other_.ino};
  over.now = b_->Now();
  ASSERT_TRUE(b_->Commit({b_->Inline(other_.ino, 0, "kept", 4), over, UnlinkOp{dir_.ino, "other", file_.ino, true, b_->Now()}}).ok());
  EXPECT_EQ(a_->Stat(other_.ino)->attr.nlink, 0u);
  EXPECT_EQ(*a_->Content(other_.ino), "kept");
  ASSERT_TRUE(a_->Commit({ReleaseOrphanOp{other_.ino}, ReleaseOrphanOp{file_.ino}}).ok());
  EXPECT_EQ(a_->Stat(other_.ino).code(), Code::kNotFound);
  EXPECT_TRUE(a_->Stat(file_.ino).ok()) << "the other one has it open still";
  ASSERT_TRUE(b_->Commit({ReleaseOrphanOp{file_.ino}}).ok());
  EXPECT_EQ(a_->Stat(file_.ino).code(), Code::kNotFound);
}

// Who found the name before it was removed, and asks for the file after that, gets nothing: it would not be asked when the last who has it
// open closes it.
TEST_P(MetaDelegationContract, AnOrphanIsGoneForWhoDoesNotHaveItOpen) {
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kRead}}).ok());
  {
    Asking asking(*b_, {{dir_.ino, Right::kWrite}});
    ASSERT_TRUE(a_->GiveUpNext(Right::kNone, {file_.ino}).ok());
    ASSERT_TRUE(asking.Answer().ok());
  }
  ASSERT_TRUE(b_->Commit({UnlinkOp{dir_.ino, "file", file_.ino, false, b_->Now()}}).ok());
  Session c = Open({3, 3}, "host-c");
  {
    Asking asking(c, {{file_.ino, Right::kRead}});
    ASSERT_TRUE(b_->GiveUpNext().ok());
    const auto& answer = asking.Answer();
    ASSERT_TRUE(answer.ok()) << Why(answer);
    EXPECT_TRUE(answer->grants.empty());
    EXPECT_EQ(answer->missing, std::vector<InodeId>{file_.ino});
  }
  const auto opener = a_->Acquire({{file_.ino, Right::kWrite}});
  ASSERT_TRUE(opener.ok()) << Why(opener);
  EXPECT_EQ(opener->grants.size(), 1u);
}

TEST_P(MetaDelegationContract, WhatIsGivenBackIsFree) {
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kWrite}, {kRootInode, Right::kRead}}).ok());
  ASSERT_TRUE(service().GiveBack(ctx_, a_->id(), a_->key(), {dir_.ino}, {file_.ino}).ok());
  ASSERT_TRUE(b_->Acquire({{dir_.ino, Right::kWrite}}).ok());
  ASSERT_TRUE(b_->Commit({UnlinkOp{dir_.ino, "file", file_.ino, false, b_->Now()}}).ok());
  EXPECT_TRUE(a_->Stat(file_.ino).ok()) << "open here, it said";
  EXPECT_TRUE(Has(*a_, kRootInode, Right::kRead));
}

TEST_P(MetaDelegationContract, ATreeComesAlong) {
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kWrite}}).ok());
  std::vector<Op> ops;
  std::vector<CreateOp> below;
  for (int i = 0; i < 3; ++i) {
    below.push_back(a_->File(dir_.ino, "d" + std::to_string(i), FileType::kDirectory));
    ops.push_back(below.back());
    for (int j = 0; j < 5 * i; ++j) ops.push_back(a_->File(below.back().ino, "f" + std::to_string(j)));
  }
  const CreateOp deep = a_->File(below[1].ino, "deep", FileType::kDirectory);
  ops.push_back(deep);
  ASSERT_TRUE(a_->Commit(ops).ok());
  ASSERT_TRUE(service().GiveBack(ctx_, a_->id(), a_->key(), {dir_.ino, below[0].ino, below[1].ino, deep.ino}, {}).ok());
  // below[2] is held by its maker for writing: it stays away.
  const auto got = b_->Acquire({{dir_.ino, Right::kRead, true}}, 1000);
  ASSERT_TRUE(got.ok()) << Why(got);
  std::vector<InodeId> inos;
  for (const Grant& g : got->grants) inos.push_back(g.ino);
  EXPECT_THAT(inos, testing::ElementsAre(dir_.ino, below[0].ino, below[1].ino, deep.ino));
  ASSERT_EQ(got->listings.size(), 4u);
  EXPECT_EQ(got->listings[2].entries.size(), 6u);
  EXPECT_TRUE(got->listings[2].complete);
  EXPECT_TRUE(got->listings[2].entries[1].inode.covered);
  EXPECT_TRUE(Has(*b_, deep.ino, Right::kRead));
  // Within the budget only.
  ASSERT_TRUE(service().GiveBack(ctx_, b_->id(), b_->key(), inos, {}).ok());
  const auto little = b_->Acquire({{dir_.ino, Right::kRead, true}}, 4);
  ASSERT_TRUE(little.ok()) << Why(little);
  ASSERT_EQ(little->grants.size(), 2u);
  EXPECT_EQ(little->grants[1].ino, below[0].ino);
}

TEST_P(MetaDelegationContract, ALateRequestIsToldWhoHoldsItAndLeavesNothing) {
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kRead}}).ok());
  const auto late = b_->Acquire({{dir_.ino, Right::kWrite}}, 0, absl::Seconds(1));
  ASSERT_EQ(late.code(), Code::kUnavailable) << Why(late);
  EXPECT_NE(late.error().message().find("held by host-a"), std::string_view::npos) << Why(late);
  ASSERT_TRUE(a_->GiveUpNext().ok());
  EXPECT_TRUE(Has(*b_, dir_.ino, Right::kNone));
}

TEST_P(MetaDelegationContract, AnAnswerNamesOnlyWhatIsApplied) {
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kRead}}).ok());
  Asking asking(*b_, {{dir_.ino, Right::kWrite}});
  const auto polled = a_->Poll(a_->seen());
  ASSERT_TRUE(polled.ok());
  ASSERT_EQ(polled->messages.size(), 1u);
  RecallAnswer answer;
  answer.message = polled->messages[0].number;
  answer.last = Seq{a_->applied().value + 1};
  EXPECT_EQ(a_->Answer(answer).code(), Code::kInvalid);
  EXPECT_FALSE(asking.answered());
  answer.last = a_->applied();
  EXPECT_TRUE(a_->Answer(answer).ok());
  EXPECT_TRUE(a_->Answer(answer).ok()) << "a repeat";
  EXPECT_TRUE(asking.Answer().ok());
}

TEST_P(MetaDelegationContract, PollAnswersInTimeAndOnlyToTheNewest) {
  const auto empty = a_->Poll(UINT64_MAX, absl::Milliseconds(200));
  ASSERT_TRUE(empty.ok()) << Why(empty);
  EXPECT_TRUE(empty->messages.empty());
  EXPECT_FALSE(empty->reclaim);
  EXPECT_EQ(service().Poll(ctx_, a_->id(), {7, 7}, 0).code(), Code::kPermission);
  CancelFlag flag;
  OpContext cancelled;
  cancelled.cancel = &flag;
  auto canceller = RealScheduler().Spawn("cancel", [&] {
    Notification never(RealScheduler());
    never.WaitUntil(RealScheduler().clock().Boot() + absl::Milliseconds(50));
    flag.Cancel();
  });
  EXPECT_EQ(service().Poll(cancelled, a_->id(), a_->key(), UINT64_MAX).code(), Code::kInterrupted);
  canceller->Join();
}

// FENCE-1
TEST_P(MetaDelegationContract, OfASilentHolderIsTakenWhatIsWanted) {
  ASSERT_TRUE(service().CloseSession(ctx_, a_->id(), a_->key()).ok());
  auto silent = Session::Open(service(), "disk", {5, 5}, "sleeper", SessionMode::kReadWrite, absl::Milliseconds(300));
  ASSERT_TRUE(silent.ok());
  ASSERT_TRUE(silent->Acquire({{dir_.ino, Right::kWrite}}).ok());
  const auto got = b_->Acquire({{dir_.ino, Right::kWrite}});
  ASSERT_TRUE(got.ok()) << Why(got);
  const auto told = service().Renew(ctx_, silent->id(), silent->key(), 0);
  ASSERT_TRUE(told.ok()) << Why(told);
  EXPECT_EQ(told->taken, (std::vector<Taken>{{dir_.ino, true, false}}));
  EXPECT_EQ(silent->Acquire({{dir_.ino, Right::kRead}}).code(), Code::kUnavailable);
  EXPECT_EQ(silent->Commit({silent->File(dir_.ino, "late")}).code(), Code::kTryAgain);
  SettleRequest settle;
  settle.session = silent->id();
  settle.key = {7, 7};
  EXPECT_EQ(service().Settle(ctx_, settle).code(), Code::kPermission);
  settle.key = silent->key();
  settle.taken = {dir_.ino};
  ASSERT_TRUE(service().Settle(ctx_, settle).ok());
  const auto after = service().Renew(ctx_, silent->id(), silent->key(), 0);
  ASSERT_TRUE(after.ok());
  EXPECT_TRUE(after->taken.empty());
  EXPECT_TRUE(silent->Stat(kRootInode).ok());
}

TEST_P(MetaDelegationContract, RightsAndSessionsAreRevoked) {
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kWrite}}).ok());
  {
    auto answering = RealScheduler().Spawn("answer", [&] { EXPECT_TRUE(a_->GiveUpNext().ok()); });
    EXPECT_TRUE(service().Revoke(ctx_, "disk", a_->id(), dir_.ino).ok());
    answering->Join();
  }
  EXPECT_TRUE(Has(*a_, dir_.ino, Right::kNone));
  EXPECT_TRUE(service().Revoke(ctx_, "disk", a_->id(), dir_.ino).ok()) << "it has nothing";
  EXPECT_EQ(service().Revoke(ctx_, "disk", SessionId{1}, dir_.ino).code(), Code::kNotFound);
  EXPECT_EQ(service().Revoke(ctx_, "no-such", a_->id(), dir_.ino).code(), Code::kNoSuchDisk);
  EXPECT_EQ(service().ListRights(ctx_, "no-such", 1).code(), Code::kNoSuchDisk);
  ASSERT_TRUE(service().Revoke(ctx_, "disk", a_->id(), InodeId{0}).ok());
  const auto fenced = a_->Stat(kRootInode);
  ASSERT_EQ(fenced.code(), Code::kFenced);
  EXPECT_NE(fenced.error().message().find("revoked"), std::string_view::npos);
  OpContext soon;
  ASSERT_TRUE(b_->Acquire({{dir_.ino, Right::kWrite}}).ok());
  soon.deadline = RealScheduler().clock().Boot() + absl::Seconds(1);
  EXPECT_EQ(service().Revoke(soon, "disk", b_->id(), dir_.ino).code(), Code::kUnavailable);
}

TEST_P(MetaDelegationContract, LargeAnswersPass) {
  ASSERT_TRUE(service().CloseSession(ctx_, a_->id(), a_->key()).ok());
  ASSERT_TRUE(service().CloseSession(ctx_, b_->id(), b_->key()).ok());
  Session c = Open({3, 3}, "host-c");
  for (int batch = 0; batch < 16; ++batch) {
    std::vector<Op> ops;
    const CreateOp dir = c.File(dir_.ino, "big" + std::to_string(batch), FileType::kDirectory);
    ops.push_back(dir);
    for (int i = 0; i < 1000; ++i) ops.push_back(c.File(dir.ino, "a-file-with-some-name-" + std::to_string(i)));
    ASSERT_TRUE(c.Commit(ops).ok());
  }
  Session d = Open({4, 4}, "host-d");
  std::vector<HeldRight> keeps;
  for (uint64_t i = 0; i < 500'000; ++i) keeps.push_back({InodeId{(1ULL << 40) + i}, Right::kWrite});
  Asking asking(d, {{kRootInode, Right::kRead}});
  ASSERT_TRUE(c.GiveUpNext(Right::kNone, {}, keeps).ok());
  ASSERT_TRUE(asking.Answer().ok());
  const auto all = d.Acquire({{dir_.ino, Right::kRead, true}}, kMaxPrefetch);
  ASSERT_TRUE(all.ok()) << Why(all);
  EXPECT_EQ(all->listings.size(), 17u);
  size_t entries = 0;
  for (const DirPage& page : all->listings) entries += page.entries.size();
  EXPECT_EQ(entries, 16'018u);
}

}  // namespace archil
