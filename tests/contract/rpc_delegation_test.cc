// The messages of delegations: every field there and back, large ones, bad ones, and callers that leave while they wait.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include "archil/v1/meta.grpc.pb.h"
#include "common/rpc/limits.h"
#include "common/rpc/status.h"
#include "tests/contract/rpc_fakes.h"

namespace archil {
namespace {

const OpContext kCtx;

class RpcDelegation : public testing::Test {
 protected:
  FakeServers servers_;
  FakeMetaServer& meta_ = servers_.meta;
  std::unique_ptr<MetaService> client_ = NewMetaClient(servers_.address());
};

TEST_F(RpcDelegation, SessionsThatShare) {
  OpenSessionRequest request;
  request.disk = "disk";
  request.sharing = Sharing::kExclusive;
  request.force = true;
  meta_.open_reply.alone = true;
  meta_.open_reply.number = 1ULL << 41;
  const auto opened = client_->OpenSession(kCtx, request);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(meta_.opened.sharing, Sharing::kExclusive);
  EXPECT_TRUE(meta_.opened.force);
  EXPECT_TRUE(opened->alone);
  EXPECT_EQ(opened->number, 1ULL << 41);
  meta_.renew_reply.reclaim = true;
  meta_.renew_reply.taken = {{InodeId(4), true, false}, {InodeId(5), false, true}};
  const auto renewed = client_->Renew(kCtx, SessionId(1), {}, 77);
  ASSERT_TRUE(renewed.ok());
  EXPECT_EQ(meta_.number, 77u);
  EXPECT_TRUE(renewed->reclaim);
  EXPECT_EQ(renewed->taken, meta_.renew_reply.taken);
}

TEST_F(RpcDelegation, Acquire) {
  InodeInfo info;
  info.attr.ino = InodeId(7);
  info.attr.type = FileType::kRegular;
  info.covered = true;
  InodeInfo dir = info;
  dir.attr.type = FileType::kDirectory;
  DirPage page;
  page.directory = dir;
  page.entries = {{"name", info}};
  page.complete = true;
  page.position = Lsn(9);
  meta_.acquire_reply = {Lsn(5), {{InodeId(7), Right::kWrite, 8}}, {dir}, {InodeId(6)}, {page}};
  AcquireRequest request;
  request.session = SessionId(1);
  request.key = {2, 3};
  request.wants = {{InodeId(7), Right::kWrite, true}, {InodeId(6), Right::kRead, false}};
  request.prefetch = 11;
  const auto reply = client_->Acquire(kCtx, request);
  ASSERT_TRUE(reply.ok()) << reply.error().ToString();
  EXPECT_EQ(meta_.acquired.session, SessionId(1));
  EXPECT_EQ(meta_.acquired.key, (SessionKey{2, 3}));
  ASSERT_EQ(meta_.acquired.wants.size(), 2u);
  EXPECT_EQ(meta_.acquired.wants[0].ino, InodeId(7));
  EXPECT_EQ(meta_.acquired.wants[0].right, Right::kWrite);
  EXPECT_TRUE(meta_.acquired.wants[0].list);
  EXPECT_EQ(meta_.acquired.wants[1].right, Right::kRead);
  EXPECT_FALSE(meta_.acquired.wants[1].list);
  EXPECT_EQ(meta_.acquired.prefetch, 11u);
  EXPECT_EQ(reply->position, Lsn(5));
  ASSERT_EQ(reply->grants.size(), 1u);
  EXPECT_EQ(reply->grants[0].ino, InodeId(7));
  EXPECT_EQ(reply->grants[0].right, Right::kWrite);
  EXPECT_EQ(reply->grants[0].number, 8u);
  EXPECT_EQ(reply->inodes[0].attr.type, FileType::kDirectory);
  EXPECT_EQ(reply->missing, std::vector<InodeId>{InodeId(6)});
  ASSERT_EQ(reply->listings.size(), 1u);
  EXPECT_TRUE(reply->listings[0].complete);
  EXPECT_EQ(reply->listings[0].position, Lsn(9));
  EXPECT_TRUE(reply->listings[0].entries[0].inode.covered);
  request.wants.assign(kMaxWants + 1, {InodeId(1), Right::kRead});
  EXPECT_EQ(client_->Acquire(kCtx, request).code(), Code::kInvalid);
}

TEST_F(RpcDelegation, MessagesAndAnswers) {
  meta_.poll_reply.messages = {{8, SessionMessage::Kind::kRecall, InodeId(1), InodeId(2), 3, Right::kRead},
                               {9, SessionMessage::Kind::kRecallAlone, InodeId(0), InodeId(0), 4, Right::kNone}};
  meta_.poll_reply.reclaim = true;
  const auto polled = client_->Poll(kCtx, SessionId(1), {2, 3}, 7);
  ASSERT_TRUE(polled.ok());
  EXPECT_EQ(meta_.session, SessionId(1));
  EXPECT_EQ(meta_.key, (SessionKey{2, 3}));
  EXPECT_EQ(meta_.number, 7u);
  EXPECT_TRUE(polled->reclaim);
  ASSERT_EQ(polled->messages.size(), 2u);
  EXPECT_EQ(polled->messages[0].number, 8u);
  EXPECT_EQ(polled->messages[0].kind, SessionMessage::Kind::kRecall);
  EXPECT_EQ(polled->messages[0].ino, InodeId(1));
  EXPECT_EQ(polled->messages[0].home, InodeId(2));
  EXPECT_EQ(polled->messages[0].grant, 3u);
  EXPECT_EQ(polled->messages[0].keep, Right::kRead);
  EXPECT_EQ(polled->messages[1].kind, SessionMessage::Kind::kRecallAlone);

  RecallAnswer answer{9, Right::kRead, Seq(4), {InodeId(5)}, {{InodeId(6), Right::kWrite}, {InodeId(7), Right::kRead}}};
  ASSERT_TRUE(client_->AnswerRecall(kCtx, SessionId(1), {2, 3}, answer).ok());
  EXPECT_EQ(meta_.answered.message, 9u);
  EXPECT_EQ(meta_.answered.kept, Right::kRead);
  EXPECT_EQ(meta_.answered.last, Seq(4));
  EXPECT_EQ(meta_.answered.opens, answer.opens);
  ASSERT_EQ(meta_.answered.keeps.size(), 2u);
  EXPECT_EQ(meta_.answered.keeps[0].ino, InodeId(6));
  EXPECT_EQ(meta_.answered.keeps[0].right, Right::kWrite);
  EXPECT_EQ(meta_.answered.keeps[1].right, Right::kRead);

  ASSERT_TRUE(client_->GiveBack(kCtx, SessionId(1), {2, 3}, {InodeId(1), InodeId(2)}, {InodeId(3)}).ok());
  EXPECT_EQ(meta_.given_back, (std::vector<InodeId>{InodeId(1), InodeId(2)}));
  EXPECT_EQ(meta_.told_open, std::vector<InodeId>{InodeId(3)});
}

TEST_F(RpcDelegation, OperationsAtTheServerAndWhatIsSettled) {
  ApplyOpRequest request;
  request.session = SessionId(1);
  request.key = {2, 3};
  request.id = 7;
  request.finished = 6;
  request.after = Seq{40};
  request.op = UnlinkOp{InodeId(5), std::string("n\xff", 2), InodeId(), false, {1, 2}};
  request.flags = ApplyOpRequest::kOpen;
  meta_.apply_op_reply.position = Lsn{9};
  meta_.apply_op_reply.inode.attr.ino = InodeId(70001);
  meta_.apply_op_reply.removed = InodeId(70002);
  meta_.apply_op_reply.contended = true;
  const auto reply = client_->ApplyOp(kCtx, request);
  ASSERT_TRUE(reply.ok()) << reply.error().ToString();
  EXPECT_EQ(reply->position, Lsn{9});
  EXPECT_EQ(reply->inode.attr.ino, InodeId(70001));
  EXPECT_EQ(reply->removed, InodeId(70002));
  EXPECT_TRUE(reply->contended);
  EXPECT_EQ(meta_.applied_op.session, SessionId(1));
  EXPECT_EQ(meta_.applied_op.key, (SessionKey{2, 3}));
  EXPECT_EQ(meta_.applied_op.id, 7u);
  EXPECT_EQ(meta_.applied_op.finished, 6u);
  EXPECT_EQ(meta_.applied_op.after, Seq{40});
  EXPECT_EQ(meta_.applied_op.flags, ApplyOpRequest::kOpen);
  ASSERT_TRUE(std::holds_alternative<UnlinkOp>(meta_.applied_op.op));
  EXPECT_EQ(std::get<UnlinkOp>(meta_.applied_op.op).name, std::string("n\xff", 2));

  meta_.read_once_reply.absent = true;
  meta_.read_once_reply.contended = true;
  const auto looked = client_->ReadOnce(kCtx, {SessionId(1), {2, 3}, InodeId(5), "name"});
  ASSERT_TRUE(looked.ok()) << looked.error().ToString();
  EXPECT_TRUE(looked->absent);
  EXPECT_TRUE(looked->contended);
  EXPECT_EQ(meta_.read_once.ino, InodeId(5));
  EXPECT_EQ(meta_.read_once.name, "name");

  meta_.credit = {Lsn{11}, Seq{78}, 900};
  const auto credit = client_->ReserveSpace(kCtx, {SessionId(1), {2, 3}, 4, 500, 1000, 6});
  ASSERT_TRUE(credit.ok()) << credit.error().ToString();
  EXPECT_EQ(credit->position, Lsn{11});
  EXPECT_EQ(credit->applied, Seq{78});
  EXPECT_EQ(credit->left, 900u);
  EXPECT_EQ(meta_.reserved.session, SessionId(1));
  EXPECT_EQ(meta_.reserved.key, (SessionKey{2, 3}));
  EXPECT_EQ(meta_.reserved.id, 4u);
  EXPECT_EQ(meta_.reserved.least, 500u);
  EXPECT_EQ(meta_.reserved.wanted, 1000u);
  EXPECT_EQ(meta_.reserved.message, 6u);

  meta_.checkout_number = 99;
  const auto number = client_->Checkout(kCtx, {SessionId(1), {2, 3}, 4, InodeId(5), true, true});
  ASSERT_TRUE(number.ok()) << number.error().ToString();
  EXPECT_EQ(*number, 99u);
  EXPECT_EQ(meta_.checked_out.session, SessionId(1));
  EXPECT_EQ(meta_.checked_out.key, (SessionKey{2, 3}));
  EXPECT_EQ(meta_.checked_out.id, 4u);
  EXPECT_EQ(meta_.checked_out.ino, InodeId(5));
  EXPECT_TRUE(meta_.checked_out.in);
  EXPECT_TRUE(meta_.checked_out.force);

  meta_.read_once_reply = {};
  meta_.read_once_reply.inode.attr.ino = InodeId(5);
  meta_.read_once_reply.chunks = {{3, {}}};
  meta_.read_once_reply.xattrs = {{"user.x", "1"}};
  ReadOnceRequest more{.session = SessionId(1), .key = {2, 3}, .ino = InodeId(5), .first_chunk = 3, .chunks = 2, .xattrs = true, .open = true};
  const auto further = client_->ReadOnce(kCtx, more);
  ASSERT_TRUE(further.ok()) << further.error().ToString();
  ASSERT_EQ(further->chunks.size(), 1u);
  EXPECT_EQ(further->chunks[0].chunk, 3u);
  EXPECT_EQ(further->xattrs, meta_.read_once_reply.xattrs);
  EXPECT_EQ(meta_.read_once.first_chunk, 3u);
  EXPECT_EQ(meta_.read_once.chunks, 2u);
  EXPECT_TRUE(meta_.read_once.xattrs);
  EXPECT_TRUE(meta_.read_once.open);

  SettleRequest settle{SessionId(1), {2, 3}, {InodeId(4), InodeId(5)}, Seq{77}};
  ASSERT_TRUE(client_->Settle(kCtx, settle).ok());
  EXPECT_EQ(meta_.settled.session, SessionId(1));
  EXPECT_EQ(meta_.settled.key, (SessionKey{2, 3}));
  EXPECT_EQ(meta_.settled.taken, settle.taken);
  EXPECT_EQ(meta_.settled.last, Seq{77});
}

TEST_F(RpcDelegation, ReclaimAndPeople) {
  meta_.reclaim_reply.number = 12;
  ReclaimRequest request;
  request.checkouts = {{InodeId(8), 80}};
  request.last_checkout = 9;
  request.session = SessionId(1);
  request.key = {2, 3};
  request.alone = true;
  request.opens = {InodeId(4)};
  for (uint64_t i = 0; i < 500'000; ++i) request.rights.push_back({InodeId(UINT64_MAX - i), i % 2 == 0 ? Right::kRead : Right::kWrite});
  const auto reply = client_->Reclaim(kCtx, request);
  ASSERT_TRUE(reply.ok()) << reply.error().ToString();
  EXPECT_EQ(reply->number, 12u);
  EXPECT_EQ(meta_.reclaimed.session, SessionId(1));
  EXPECT_EQ(meta_.reclaimed.key, (SessionKey{2, 3}));
  EXPECT_TRUE(meta_.reclaimed.alone);
  EXPECT_EQ(meta_.reclaimed.checkouts, request.checkouts);
  EXPECT_EQ(meta_.reclaimed.last_checkout, 9u);
  EXPECT_EQ(meta_.reclaimed.opens, request.opens);
  ASSERT_EQ(meta_.reclaimed.rights.size(), 500'000u);
  EXPECT_EQ(meta_.reclaimed.rights[499'999].ino, request.rights[499'999].ino);
  EXPECT_EQ(meta_.reclaimed.rights[499'999].right, Right::kWrite);
  request.rights.resize(kMaxRights + 1);
  EXPECT_EQ(client_->Reclaim(kCtx, request).code(), Code::kInvalid);

  meta_.rights = {{SessionId(1), InodeId(2), Right::kWrite, 3}, {SessionId(4), InodeId(0), Right::kRead, 0}};
  const auto rights = client_->ListRights(kCtx, "disk", 5);
  ASSERT_TRUE(rights.ok());
  EXPECT_EQ(meta_.name, "disk");
  EXPECT_EQ(meta_.number, 5u);
  ASSERT_EQ(rights->size(), 2u);
  EXPECT_EQ((*rights)[0].session, SessionId(1));
  EXPECT_EQ((*rights)[0].ino, InodeId(2));
  EXPECT_EQ((*rights)[0].right, Right::kWrite);
  EXPECT_EQ((*rights)[0].exceptions, 3u);
  ASSERT_TRUE(client_->Revoke(kCtx, "other", SessionId(9), InodeId(8)).ok());
  EXPECT_EQ(meta_.name, "other");
  EXPECT_EQ(meta_.session, SessionId(9));
  EXPECT_EQ(meta_.number, 8u);
}

// A caller that leaves frees what the server keeps for it.
TEST_F(RpcDelegation, AWaitEndsWhenItsCallerLeaves) {
  meta_.hold_polls = true;
  CancelFlag flag;
  OpContext cancelled;
  cancelled.cancel = &flag;
  auto canceller = RealScheduler().Spawn("cancel", [&] {
    Notification never(RealScheduler());
    while (meta_.polls_held == 0) never.WaitUntil(RealClock().Boot() + absl::Milliseconds(5));
    flag.Cancel();
  });
  EXPECT_EQ(client_->Poll(cancelled, SessionId(1), {}, 0).code(), Code::kInterrupted);
  canceller->Join();
  EXPECT_EQ(client_->Poll(Within(absl::Milliseconds(100)), SessionId(1), {}, 0).code(), Code::kUnavailable);
  EXPECT_EQ(meta_.polls_held, 2);
  servers_.StopRpc();  // returns: both have been answered
}

TEST_F(RpcDelegation, WhatNoClientOfOursSends) {
  grpc::ChannelArguments args;
  args.SetMaxSendMessageSize(-1);
  const auto stub = v1::Meta::NewStub(grpc::CreateCustomChannel(servers_.address(), grpc::InsecureChannelCredentials(), args));
  const auto code = [&](auto method, const auto& request, auto reply) {
    grpc::ClientContext call;
    const grpc::Status status = (*stub.*method)(&call, request, &reply);
    return status.ok() ? Code::kOk : FromGrpc(status, CallKind::kRead, "server").code();
  };
  v1::AcquireRequest acquire;
  EXPECT_EQ(code(&v1::Meta::Stub::Acquire, acquire, v1::AcquireReply()), Code::kInvalid) << "no key";
  acquire.mutable_key();
  acquire.add_wants()->set_right(static_cast<v1::Right>(3));
  EXPECT_EQ(code(&v1::Meta::Stub::Acquire, acquire, v1::AcquireReply()), Code::kInvalid);
  v1::AnswerRecallRequest answer;
  EXPECT_EQ(code(&v1::Meta::Stub::AnswerRecall, answer, v1::AnswerRecallReply()), Code::kInvalid);
  answer.mutable_key();
  answer.mutable_keeps()->add_inos(1);
  EXPECT_EQ(code(&v1::Meta::Stub::AnswerRecall, answer, v1::AnswerRecallReply()), Code::kInvalid) << "an inode without a right";
  answer.mutable_keeps()->set_rights("\x05");
  EXPECT_EQ(code(&v1::Meta::Stub::AnswerRecall, answer, v1::AnswerRecallReply()), Code::kInvalid);
  answer.mutable_keeps()->set_rights("\x02");
  EXPECT_EQ(code(&v1::Meta::Stub::AnswerRecall, answer, v1::AnswerRecallReply()), Code::kOk);
  EXPECT_EQ(code(&v1::Meta::Stub::GiveBack, v1::GiveBackRequest(), v1::GiveBackReply()), Code::kInvalid);
  EXPECT_EQ(code(&v1::Meta::Stub::Reclaim, v1::ReclaimRequest(), v1::ReclaimReply()), Code::kInvalid);
  v1::RevokeRequest revoke;
  revoke.set_disk(std::string(5000, 'x'));
  EXPECT_EQ(code(&v1::Meta::Stub::Revoke, revoke, v1::RevokeReply()), Code::kInvalid);
}

}  // namespace
}  // namespace archil
