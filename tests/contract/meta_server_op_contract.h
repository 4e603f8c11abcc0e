// What holds for operations applied at the server (SRV-1) at every MetaService. As meta_delegation_contract.h.
#pragma once

#include "tests/contract/meta_delegation_contract.h"

namespace archil {

class MetaServerOpContract : public MetaDelegationContract {
 protected:
  ApplyOpRequest Request(Session& s, Op op, uint32_t flags = 0) {
    ApplyOpRequest request;
    request.session = s.id();
    request.key = s.key();
    request.id = ++ids_[s.id()];
    request.after = s.applied();
    request.op = std::move(op);
    request.flags = flags;
    return request;
  }
  Result<ApplyOpReply> Send(const ApplyOpRequest& request, absl::Duration wait = absl::Minutes(1)) {
    OpContext waiting;
    waiting.deadline = RealScheduler().clock().Boot() + wait;
    return service().ApplyOp(waiting, request);
  }
  Result<ApplyOpReply> Apply(Session& s, Op op, uint32_t flags = 0) { return Send(Request(s, std::move(op), flags)); }
  Result<ReadOnceReply> Look(Session& s, InodeId ino, const std::string& name = "",
                             absl::Duration wait = absl::Minutes(1)) {
    OpContext waiting;
    waiting.deadline = RealScheduler().clock().Boot() + wait;
    return service().ReadOnce(waiting, {s.id(), s.key(), ino, name});
  }
  // A call that waits, on a thread of its own.
  template <class T>
  class Waiting {
   public:
    explicit Waiting(std::function<Result<T>()> call) {
      thread_ = RealScheduler().Spawn("waiting", [this, call = std::move(call)] {
        result_ = call();
        done_.Notify();
      });
    }
    ~Waiting() { thread_->Join(); }
    bool answered() { return done_.HasBeenNotified(); }
    const Result<T>& Answer() {
      done_.Wait();
      return result_;
    }

   private:
    Notification done_{RealScheduler()};
    Result<T> result_ = Code::kInternal;
    std::unique_ptr<Thread> thread_;
  };
  UnlinkOp Unlink(Session& s, const std::string& name) { return {dir_.ino, name, InodeId{}, false, s.Now()}; }

  std::map<SessionId, uint64_t> ids_;
};

TEST_P(MetaServerOpContract, AnOperationIsDecidedOnNamesAndLeavesNoRight) {
  CreateOp op = b_->File(dir_.ino, "new");
  op.mode = 0640;
  const auto made = Apply(*b_, op);
  ASSERT_TRUE(made.ok()) << Why(made);
  EXPECT_EQ(made->inode.attr.ino, op.ino);
  EXPECT_EQ(made->inode.attr.mode, 0640u);
  EXPECT_EQ(made->inode.attr.nlink, 1u);
  EXPECT_EQ(a_->Lookup(dir_.ino, "new")->attr.ino, op.ino);
  EXPECT_TRUE(Has(*b_, op.ino, Right::kNone));
  EXPECT_TRUE(Has(*b_, dir_.ino, Right::kNone));
  EXPECT_EQ(b_->Commit({b_->Inline(op.ino, 0, "x", 1)}).code(), Code::kInvalid) << "nothing is born delegated";
  const auto dir = Apply(*b_, b_->File(dir_.ino, "sub", FileType::kDirectory));
  ASSERT_TRUE(dir.ok()) << Why(dir);
  EXPECT_EQ(dir->inode.parent, dir_.ino);
  EXPECT_TRUE(Has(*b_, dir->inode.attr.ino, Right::kNone));
  const auto link = Apply(*b_, LinkOp{op.ino, dir_.ino, "second", b_->Now()});
  ASSERT_TRUE(link.ok()) << Why(link);
  EXPECT_EQ(link->inode.attr.nlink, 2u);
  RenameOp rename;
  rename.parent = rename.new_parent = dir_.ino;
  rename.name = "second";
  rename.new_name = "other";
  rename.now = b_->Now();
  const auto replaced = Apply(*b_, rename);
  ASSERT_TRUE(replaced.ok()) << Why(replaced);
  EXPECT_EQ(replaced->removed, other_.ino);
  EXPECT_EQ(a_->Lookup(dir_.ino, "other")->attr.ino, op.ino);
  EXPECT_EQ(a_->Stat(other_.ino).code(), Code::kNotFound);
  SetAttrOp attr;
  attr.ino = op.ino;
  attr.fields = SetAttrOp::kMode;
  attr.mode = 0600;
  attr.now = b_->Now();
  const auto changed = Apply(*b_, attr);
  ASSERT_TRUE(changed.ok()) << Why(changed);
  EXPECT_EQ(changed->inode.attr.mode, 0600u);
  EXPECT_GT(changed->inode.attr.ctime, link->inode.attr.ctime);
  ASSERT_TRUE(Apply(*b_, SetXattrOp{op.ino, "user.x", "1", b_->Now()}).ok());
  EXPECT_EQ(Apply(*b_, SetXattrOp{op.ino, "user.x", "2", b_->Now()}, ApplyOpRequest::kMustBeNew).code(), Code::kExists);
  ASSERT_TRUE(Apply(*b_, RemoveXattrOp{op.ino, "user.x", b_->Now()}).ok());
  EXPECT_EQ(Apply(*b_, RemoveXattrOp{op.ino, "user.x", b_->Now()}).code(), Code::kNoData);
  ASSERT_TRUE(Apply(*b_, Unlink(*b_, "new")).ok());
  ASSERT_TRUE(Apply(*b_, RmdirOp{dir_.ino, "sub", InodeId{}, false, b_->Now()}).ok());
}

TEST_P(MetaServerOpContract, ItsVerdictsAreThoseOfTheSystemCall) {
  EXPECT_EQ(Apply(*b_, b_->File(dir_.ino, "file")).code(), Code::kExists);
  EXPECT_EQ(Apply(*b_, b_->File(file_.ino, "x")).code(), Code::kNotDirectory);
  EXPECT_EQ(Apply(*b_, b_->File(InodeId{999}, "x")).code(), Code::kNotFound);
  EXPECT_EQ(Apply(*b_, Unlink(*b_, "absent")).code(), Code::kNotFound);
  EXPECT_EQ(Apply(*b_, UnlinkOp{kRootInode, "dir", InodeId{}, false, b_->Now()}).code(), Code::kIsDirectory);
  EXPECT_EQ(Apply(*b_, RmdirOp{kRootInode, "dir", InodeId{}, false, b_->Now()}).code(), Code::kNotEmpty);
  EXPECT_EQ(Apply(*b_, RmdirOp{dir_.ino, "file", InodeId{}, false, b_->Now()}).code(), Code::kNotDirectory);
  EXPECT_EQ(Apply(*b_, LinkOp{dir_.ino, kRootInode, "x", b_->Now()}).code(), Code::kPermission);
  RenameOp rename;
  rename.parent = kRootInode;
  rename.name = "dir";
  rename.new_parent = dir_.ino;
  rename.new_name = "below";
  rename.now = b_->Now();
  EXPECT_EQ(Apply(*b_, rename).code(), Code::kInvalid) << "below itself";
  EXPECT_EQ(Apply(*b_, TouchOp{dir_.ino, {}, {}}).code(), Code::kInvalid) << "no operation for the server";
  auto bad = Request(*b_, Unlink(*b_, "file"));
  bad.after = Seq{b_->applied().value + 1};
  EXPECT_EQ(Send(bad).code(), Code::kInvalid) << "what was acknowledged before is not there";
  bad.key = {77, 77};
  EXPECT_EQ(Send(bad).code(), Code::kPermission);
  auto c = Open({3, 3}, "host-c", SessionMode::kReadOnly);
  EXPECT_EQ(Apply(c, Unlink(c, "file")).code(), Code::kReadOnly);
  EXPECT_EQ(a_->Names(dir_.ino)->size(), 2u) << "and nothing has changed";
}

TEST_P(MetaServerOpContract, ARepeatHasNoSecondEffect) {
  const auto request = Request(*b_, Unlink(*b_, "file"));
  ASSERT_TRUE(Send(request).ok());
  ASSERT_TRUE(Apply(*a_, a_->File(dir_.ino, "file")).ok());
  const auto again = Send(request);
  ASSERT_TRUE(again.ok()) << Why(again);
  EXPECT_EQ(again->removed, file_.ino);
  EXPECT_TRUE(a_->Lookup(dir_.ino, "file").ok()) << "the name is another file's now";
  const auto refused = Request(*b_, b_->File(dir_.ino, "other"));
  EXPECT_EQ(Send(refused).code(), Code::kExists);
  ASSERT_TRUE(Apply(*a_, Unlink(*a_, "other")).ok());
  EXPECT_EQ(Send(refused).code(), Code::kExists) << "a verdict stays as well";
  auto next = Request(*b_, Unlink(*b_, "file"));
  next.finished = next.id;
  ASSERT_TRUE(Send(next).ok());
  EXPECT_EQ(Send(request).code(), Code::kInvalid) << "finished: a copy that was delayed";
  EXPECT_EQ(Send(refused).code(), Code::kInvalid);
}

TEST_P(MetaServerOpContract, ItWaitsForTheAnswersOfAllHoldersItsOwnIncluded) {
  ASSERT_TRUE(b_->Acquire({{file_.ino, Right::kWrite}}).ok());
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kRead}}).ok());  // without the file
  const auto request = Request(*b_, Unlink(*b_, "file"));
  Waiting<ApplyOpReply> call([&] { return Send(request); });
  const auto theirs = a_->GiveUpNext();
  ASSERT_TRUE(theirs.ok()) << Why(theirs);
  EXPECT_EQ(theirs->ino, dir_.ino);
  EXPECT_EQ(theirs->keep, Right::kNone);
  EXPECT_FALSE(call.answered());
  const auto own = b_->GiveUpNext();
  ASSERT_TRUE(own.ok()) << Why(own);
  EXPECT_EQ(own->ino, file_.ino);
  ASSERT_TRUE(call.Answer().ok()) << Why(call.Answer());
  EXPECT_EQ(call.Answer()->removed, file_.ino);
}

TEST_P(MetaServerOpContract, WhatIsOpenSomewhereStays) {
  ASSERT_TRUE(a_->Acquire({{file_.ino, Right::kRead}}).ok());
  const auto made = Apply(*b_, b_->File(dir_.ino, "born-open"), ApplyOpRequest::kOpen);
  ASSERT_TRUE(made.ok());
  Waiting<ApplyOpReply> call([&] { return Apply(*b_, Unlink(*b_, "file")); });
  ASSERT_TRUE(a_->GiveUpNext(Right::kNone, {file_.ino}).ok());
  ASSERT_TRUE(call.Answer().ok());
  EXPECT_EQ(a_->Stat(file_.ino)->attr.nlink, 0u) << "open at another session";
  ASSERT_TRUE(a_->Commit({ReleaseOrphanOp{file_.ino}}).ok());
  EXPECT_EQ(a_->Stat(file_.ino).code(), Code::kNotFound);
  ASSERT_TRUE(Apply(*b_, Unlink(*b_, "born-open")).ok());
  EXPECT_EQ(b_->Stat(made->inode.attr.ino)->attr.nlink, 0u) << "open at its own";
  // Shown to a session that may be about to open it.
  const auto seen = Look(*a_, dir_.ino, "other");
  ASSERT_TRUE(seen.ok()) << Why(seen);
  ASSERT_TRUE(Apply(*b_, Unlink(*b_, "other")).ok());
  EXPECT_TRUE(a_->Stat(other_.ino).ok());
  ASSERT_TRUE(a_->Commit({ReleaseOrphanOp{other_.ino}}).ok());
  EXPECT_EQ(a_->Stat(other_.ino).code(), Code::kNotFound);
}

TEST_P(MetaServerOpContract, AReadOnlySessionGivesUpWhatItHadOpen) {
  auto c = Open({3, 3}, "host-c", SessionMode::kReadOnly);
  ASSERT_TRUE(c.Acquire({{file_.ino, Right::kRead}}).ok());
  Waiting<ApplyOpReply> call([&] { return Apply(*b_, Unlink(*b_, "file")); });
  ASSERT_TRUE(c.GiveUpNext(Right::kNone, {file_.ino}).ok());
  ASSERT_TRUE(call.Answer().ok());
  EXPECT_TRUE(c.Stat(file_.ino).ok());
  const auto released = c.Commit({ReleaseOrphanOp{file_.ino}});
  ASSERT_TRUE(released.ok()) << Why(released);
  EXPECT_EQ(c.Stat(file_.ino).code(), Code::kNotFound);
  EXPECT_EQ(c.Commit({TouchOp{dir_.ino, {1, 0}, {1, 0}}}).code(), Code::kInvalid);
}

TEST_P(MetaServerOpContract, ALookSeesWhatAWriterHadAndKeepsNothing) {
  ASSERT_TRUE(a_->Acquire({{dir_.ino, Right::kWrite}}).ok());
  ASSERT_TRUE(a_->Commit({a_->Inline(file_.ino, 0, "abc", 3)}).ok());
  Waiting<ReadOnceReply> call([&] { return Look(*b_, dir_.ino, "file"); });
  std::set<InodeId> recalled;
  for (int i = 0; i < 2; ++i) {
    const auto m = a_->GiveUpNext(Right::kRead);
    ASSERT_TRUE(m.ok()) << Why(m);
    EXPECT_EQ(m->keep, Right::kRead);
    recalled.insert(m->ino);
  }
  EXPECT_THAT(recalled, testing::ElementsAre(dir_.ino, file_.ino));
  ASSERT_TRUE(call.Answer().ok()) << Why(call.Answer());
  EXPECT_EQ(call.Answer()->inode.attr.size, 3u);
  EXPECT_TRUE(Has(*b_, file_.ino, Right::kNone));
  EXPECT_TRUE(Look(*b_, dir_.ino, "absent")->absent);
  EXPECT_EQ(Look(*b_, dir_.ino)->inode.attr.size, 2u);
  EXPECT_EQ(Look(*b_, InodeId{999}).code(), Code::kStale);
  EXPECT_EQ(Look(*b_, file_.ino, "x").code(), Code::kNotDirectory);
}

TEST_P(MetaServerOpContract, BriefGrantsAreRecalledAtOnceAndConditionalSessionsAreNeverAlone) {
  AcquireRequest request;
  request.session = b_->id();
  request.key = b_->key();
  request.wants = {{file_.ino, Right::kWrite}};
  request.brief = true;
  const auto granted = service().Acquire(ctx_, request);
  ASSERT_TRUE(granted.ok()) << Why(granted);
  ASSERT_TRUE(b_->Commit({b_->Inline(file_.ino, 0, "abc", 3)}).ok());
  const auto recall = b_->GiveUpNext();
  ASSERT_TRUE(recall.ok()) << Why(recall);
  EXPECT_EQ(recall->ino, file_.ino);
  EXPECT_EQ(recall->grant, granted->grants[0].number);
  EXPECT_TRUE(Has(*b_, file_.ino, Right::kNone));
  ASSERT_TRUE(service().CreateDisk(ctx_, "second", 0).ok());
  OpenSessionRequest open;
  open.disk = "second";
  open.key = {9, 9};
  open.conditional = true;
  const auto opened = service().OpenSession(ctx_, open);
  ASSERT_TRUE(opened.ok()) << Why(opened);
  EXPECT_FALSE(opened->alone);
  Session s(service(), *opened, {9, 9});
  ASSERT_TRUE(Apply(s, s.File(kRootInode, "first")).ok());
}

}  // namespace archil
