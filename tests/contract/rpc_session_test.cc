// The stream of a session: many calls at once, callers that leave, streams that break, servers that stop, and what no client of
// ours sends.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <deque>
#include <future>

#include "archil/v1/meta.grpc.pb.h"
#include "common/rpc/limits.h"
#include "common/rpc/status.h"
#include "tests/contract/rpc_fakes.h"
#include "tests/support/tcp_relay.h"

namespace archil {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kSoon = absl::Seconds(10);  // of what is expected to take no time

// Every call of a stream is held until the test answers it.
class HoldingMeta final : public FakeMetaServer {
 public:
  struct Held {
    std::string call;
    SessionId session;
    uint64_t number = 0;  // progress, newest message seen, message answered
    absl::Duration left;  // of its time
    std::function<void(const Status&)> answer;  // a renewal with a lease of `number` ns
  };
  // Waits for the next call.
  Held Next() {
    MutexLock lock(mu_);
    while (held_.empty()) cv_.Wait(mu_);
    Held next = std::move(held_.front());
    held_.pop_front();
    return next;
  }
  size_t held() {
    MutexLock lock(mu_);
    return held_.size();
  }
  void WaitHeld(size_t n) {
    MutexLock lock(mu_);
    while (held_.size() < n) cv_.Wait(mu_);
  }
  void WaitCancelled(int n) {
    MutexLock lock(mu_);
    while (cancelled_ < n) cv_.Wait(mu_);
  }

  void RenewAsync(const OpContext& ctx, SessionId s, SessionKey, uint64_t progress, std::function<void(Result<RenewReply>)> done) override {
    Hold(ctx, "Renew", s, progress, [progress, done = std::move(done)](const Status& status) {
      RenewReply reply;
      reply.lease = absl::Nanoseconds(progress);
      done(status.ok() ? Result<RenewReply>(reply) : Result<RenewReply>(status.error()));
    });
  }
  void PollAsync(const OpContext& ctx, SessionId s, SessionKey, uint64_t after, std::shared_ptr<WaitTicket> ticket,
                 std::function<void(Result<PollReply>)> done) override {
    ticket->WhenCancelled([this] {
      MutexLock lock(mu_);
      ++cancelled_;
      cv_.SignalAll();
    });
    Hold(ctx, "Poll", s, after, [this, done = std::move(done)](const Status& status) {
      done(status.ok() ? Result<PollReply>(poll_reply) : Result<PollReply>(status.error()));
    });
  }
  void AnswerRecallAsync(const OpContext& ctx, SessionId s, SessionKey, RecallAnswer a, std::function<void(Status)> done) override {
    Hold(ctx, "AnswerRecall", s, a.message, std::move(done));
  }
  void EndWaits() override {
    std::deque<Held> polls;
    {
      MutexLock lock(mu_);
      ending_ = true;
      cv_.SignalAll();
      for (auto it = held_.begin(); it != held_.end();) {
        const bool poll = it->call == "Poll";
        if (poll) polls.push_back(std::move(*it));
        it = poll ? held_.erase(it) : it + 1;
      }
    }
    for (const Held& poll : polls) poll.answer(Error(Code::kUnavailable, "the server is stopping"));
  }
  void WaitEnding() {
    MutexLock lock(mu_);
    while (!ending_) cv_.Wait(mu_);
  }

 private:
  void Hold(const OpContext& ctx, const char* call, SessionId session, uint64_t number, std::function<void(const Status&)> answer) {
    MutexLock lock(mu_);
    held_.push_back({call, session, number, ctx.deadline - RealClock().Boot(), std::move(answer)});
    cv_.SignalAll();
  }

  Mutex mu_{RealScheduler()};
  CondVar cv_{RealScheduler()};
  std::deque<Held> held_ ABSL_GUARDED_BY(mu_);
  int cancelled_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

class RpcSession : public testing::Test {
 protected:
  ~RpcSession() override {
    client_.reset();
    server_.reset();
  }

  void Serve(uint16_t port) {
    auto reserved = ReservedPort::Bind({"127.0.0.1", port});
    ARCHIL_CHECK(reserved.ok());
    auto server = RpcServer::Start(std::move(reserved).value(), {service_.get()});
    ARCHIL_CHECK(server.ok());
    server_ = std::move(server).value();
  }

  template <class Fn>
  static auto Go(Fn fn) {
    return std::async(std::launch::async, std::move(fn));
  }
  std::future<Result<RenewReply>> Renew(uint64_t progress, absl::Duration within = kSoon, SessionId session = kSession) {
    return Go([=, this] { return client_->Renew(Within(within), session, {}, progress); });
  }
  std::future<Result<PollReply>> Poll(uint64_t after, absl::Duration within = kSoon) {
    return Go([=, this] { return client_->Poll(Within(within), kSession, {}, after); });
  }
  std::future<Status> Answer(uint64_t message, absl::Duration within = kSoon) {
    return Go([=, this] { return client_->AnswerRecall(Within(within), kSession, {}, Small(message)); });
  }
  static RecallAnswer Small(uint64_t message) {
    RecallAnswer answer;
    answer.message = message;
    return answer;
  }
  // The stream works.
  void ExpectServes(uint64_t progress = 4711) {
    auto renewed = Renew(progress);
    HoldingMeta::Held call = meta_.Next();
    EXPECT_EQ(call.call, "Renew");
    EXPECT_EQ(call.number, progress);
    call.answer(Ok());
    const auto reply = renewed.get();
    ASSERT_TRUE(reply.ok()) << reply.error().ToString();
    EXPECT_EQ(reply->lease, absl::Nanoseconds(progress));
  }
  // As ExpectServes, of a connection that may have to be made again first.
  void ExpectServesAgain() {
    for (const BootTime begin = RealClock().Boot();;) {
      ASSERT_LT(RealClock().Boot() - begin, kSoon);
      auto renewed = Renew(1);
      while (renewed.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
        if (meta_.held() > 0) meta_.Next().answer(Ok());
      }
      const auto reply = renewed.get();
      if (reply.ok()) return;
      ASSERT_EQ(reply.code(), Code::kUnavailable) << reply.error().ToString();
    }
  }

  static constexpr SessionId kSession{1};
  HoldingMeta meta_;
  std::unique_ptr<RpcService> service_ = NewMetaRpcService(meta_);
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<MetaService> client_ = [this] {
    Serve(0);
    return NewMetaClient(server_->address().ToString());
  }();
};

TEST_F(RpcSession, AnswersComeInAnyOrderAndEachToItsCall) {
  constexpr uint64_t kCalls = kMaxSessionCalls - 1;
  std::vector<std::future<Result<RenewReply>>> renewals;
  std::vector<std::future<Status>> answers;
  for (uint64_t i = 1; i <= kCalls; ++i) {
    if (i % 3 == 0) {
      answers.push_back(Answer(i));
    } else {
      renewals.push_back(Renew(i));
    }
  }
  std::vector<HoldingMeta::Held> calls;
  for (uint64_t i = 0; i < kCalls; ++i) calls.push_back(meta_.Next());
  for (auto it = calls.rbegin(); it != calls.rend(); ++it) {
    it->answer(it->call == "Renew" ? Ok() : Status(Error(Code::kInvalid, fmt::format("answer {}", it->number))));
  }
  uint64_t i = 0;
  for (auto& renewal : renewals) {
    if (++i % 3 == 0) ++i;
    const auto reply = renewal.get();
    ASSERT_TRUE(reply.ok()) << reply.error().ToString();
    EXPECT_EQ(reply->lease, absl::Nanoseconds(i));
  }
  i = 0;
  for (auto& answer : answers) {
    const Status refused = answer.get();
    EXPECT_EQ(refused.code(), Code::kInvalid);
    EXPECT_EQ(refused.error().message(), fmt::format("answer {}", i += 3));
  }
}

TEST_F(RpcSession, SessionsHaveStreamsOfTheirOwn) {
  auto first = Renew(1, kSoon, SessionId(1));
  auto second = Renew(2, kSoon, SessionId(2));
  HoldingMeta::Held calls[] = {meta_.Next(), meta_.Next()};
  EXPECT_EQ(calls[0].session.value, calls[0].number);
  EXPECT_EQ(calls[1].session.value, calls[1].number);
  // The end of one is nothing to the other.
  EXPECT_TRUE(client_->CloseSession(Within(kSoon), SessionId(1), {}).ok());
  EXPECT_EQ(first.get().code(), Code::kUnavailable);
  for (auto& call : calls) call.answer(Ok());
  EXPECT_TRUE(second.get().ok());
}

TEST_F(RpcSession, TheServerSeesTheTimeOfACall) {
  auto poll = Poll(5, absl::Seconds(100));
  HoldingMeta::Held call = meta_.Next();
  EXPECT_EQ(call.number, 5u);
  EXPECT_GT(call.left, absl::Seconds(50));
  EXPECT_LE(call.left, absl::Seconds(101));
  call.answer(Ok());
  EXPECT_TRUE(poll.get().ok());
  poll = Go([this] { return client_->Poll(OpContext(), kSession, {}, 6); });
  call = meta_.Next();
  EXPECT_EQ(call.left, absl::InfiniteDuration());
  call.answer(Ok());
  EXPECT_TRUE(poll.get().ok());
}

TEST_F(RpcSession, ALateAnswerIsNoAnswerToAnotherCall) {
  const absl::Duration little = absl::Milliseconds(100);
  auto poll = Poll(1, little);
  HoldingMeta::Held late[3] = {meta_.Next()};
  auto renewal = Renew(2, little);
  late[1] = meta_.Next();
  auto answer = Answer(3, little);
  late[2] = meta_.Next();
  EXPECT_EQ(poll.get().code(), Code::kUnavailable);
  EXPECT_EQ(renewal.get().code(), Code::kUnavailable);
  EXPECT_EQ(answer.get().code(), Code::kUnknown) << "it was sent, and changes something";
  meta_.WaitCancelled(1);
  ExpectServes(4);
  for (auto& call : late) call.answer(Ok());
  ExpectServes(5);
}

TEST_F(RpcSession, CancelEndsACallSoonHereAndThere) {
  CancelFlag flag;
  OpContext ctx;
  ctx.cancel = &flag;
  auto poll = Go([&] { return client_->Poll(ctx, kSession, {}, 0); });
  auto answer = Go([&] { return client_->AnswerRecall(ctx, kSession, {}, Small(1)); });
  HoldingMeta::Held calls[] = {meta_.Next(), meta_.Next()};
  const BootTime cancelled = RealClock().Boot();
  flag.Cancel();
  EXPECT_EQ(poll.get().code(), Code::kInterrupted);
  EXPECT_EQ(answer.get().code(), Code::kInterrupted);
  EXPECT_LT(RealClock().Boot() - cancelled, absl::Milliseconds(500));
  meta_.WaitCancelled(1);
  ExpectServes();
  for (auto& call : calls) call.answer(Ok());
  // What is cancelled before it begins is not sent.
  EXPECT_EQ(client_->Poll(ctx, kSession, {}, 0).code(), Code::kInterrupted);
  ctx = OpContext();
  ctx.may_block = false;
  EXPECT_EQ(client_->Poll(ctx, kSession, {}, 0).code(), Code::kWouldBlock);
  EXPECT_EQ(client_->Poll(Within(-absl::Seconds(1)), kSession, {}, 0).code(), Code::kUnavailable);
  EXPECT_EQ(meta_.held(), 0u);
}

TEST_F(RpcSession, OneCallTooManyIsRefusedHere) {
  std::vector<std::future<Result<RenewReply>>> renewals;
  std::vector<HoldingMeta::Held> calls;
  for (uint64_t i = 0; i < kMaxSessionCalls; ++i) {
    renewals.push_back(Renew(i));
    calls.push_back(meta_.Next());
  }
  const auto refused = client_->Renew(Within(kSoon), kSession, {}, 0);
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("calls of this session"));
  for (auto& call : calls) call.answer(Ok());
  for (auto& renewal : renewals) EXPECT_TRUE(renewal.get().ok());
  ExpectServes();
}

// A server that goes on but answers nothing must not be asked on the same stream for ever.
TEST_F(RpcSession, AStreamWithoutAnswersIsGivenUp) {
  std::vector<std::future<Result<RenewReply>>> renewals;
  std::vector<HoldingMeta::Held> calls;
  for (uint64_t i = 0; i < kMaxSessionCalls; ++i) renewals.push_back(Renew(i, absl::Milliseconds(300)));
  for (uint64_t i = 0; i < kMaxSessionCalls; ++i) calls.push_back(meta_.Next());
  for (auto& renewal : renewals) EXPECT_EQ(renewal.get().code(), Code::kUnavailable);
  ExpectServes();
  for (auto& call : calls) call.answer(Ok());  // into the void
  ExpectServes();
}

TEST_F(RpcSession, LargeAnswersGoTheirOwnWay) {
  RecallAnswer answer = Small(7);
  for (uint64_t i = 0; i < kMaxStreamMessage; ++i) answer.opens.emplace_back(i);
  EXPECT_TRUE(client_->AnswerRecall(Within(kSoon), kSession, {}, answer).ok());
  EXPECT_EQ(meta_.answered.opens, answer.opens);
  EXPECT_EQ(meta_.held(), 0u) << "it went over the stream";
  // The largest that still goes over the stream is accepted there.
  answer.opens.assign(8100, InodeId(300));
  auto answered = Go([&] { return client_->AnswerRecall(Within(kSoon), kSession, {}, answer); });
  meta_.Next().answer(Ok());
  EXPECT_TRUE(answered.get().ok());
}

TEST_F(RpcSession, ManyMessagesComeInSeveralAnswers) {
  for (uint64_t i = 1; i <= 2 * kMessagesPerAnswer; ++i) meta_.poll_reply.messages.push_back({.number = i});
  auto poll = Poll(0);
  meta_.Next().answer(Ok());
  const auto reply = poll.get();
  ASSERT_TRUE(reply.ok());
  ASSERT_EQ(reply->messages.size(), kMessagesPerAnswer);
  EXPECT_EQ(reply->messages.back().number, kMessagesPerAnswer);
}

TEST_F(RpcSession, ABrokenConnectionEndsEveryCallAndTheNextOneMakesItAgain) {
  test::TcpRelay relay(server_->address().port);
  client_ = NewMetaClient(relay.address());
  for (int round = 0; round < 3; ++round) {
    auto poll = Poll(1);
    HoldingMeta::Held calls[3] = {meta_.Next()};
    auto renewal = Renew(2);
    calls[1] = meta_.Next();
    auto answer = Answer(3);
    calls[2] = meta_.Next();
    relay.Cut();
    EXPECT_EQ(poll.get().code(), Code::kUnavailable);
    EXPECT_EQ(renewal.get().code(), Code::kUnavailable);
    EXPECT_EQ(answer.get().code(), Code::kUnknown);
    meta_.WaitCancelled(round + 1);
    for (auto& call : calls) call.answer(Ok());
    ExpectServesAgain();
  }
  EXPECT_EQ(relay.cuts(), 3);
}

TEST_F(RpcSession, AServerThatStopsAnswersWhatItHasTakenAndEndsTheStream) {
  auto poll = Poll(1);
  auto renewal = Renew(2);
  meta_.WaitHeld(2);
  const BootTime begin = RealClock().Boot();
  auto stopped = Go([this] { server_->Stop(absl::Seconds(60)); });
  meta_.WaitEnding();
  EXPECT_EQ(poll.get().code(), Code::kUnavailable);
  meta_.Next().answer(Ok());
  const auto reply = renewal.get();
  EXPECT_TRUE(reply.ok()) << reply.error().ToString();
  stopped.get();
  EXPECT_LT(RealClock().Boot() - begin, kSoon);
  EXPECT_EQ(client_->Renew(Within(kSoon), kSession, {}, 3).code(), Code::kUnavailable);
  EXPECT_EQ(meta_.held(), 0u);
}

TEST_F(RpcSession, AServerThatIsStartedAgainIsFound) {
  const uint16_t port = server_->address().port;
  ExpectServes();
  auto answer = Answer(1);
  HoldingMeta::Held call = meta_.Next();
  server_->Stop(absl::ZeroDuration());
  EXPECT_EQ(answer.get().code(), Code::kUnknown);
  EXPECT_EQ(client_->Renew(Within(kSoon), kSession, {}, 2).code(), Code::kUnavailable);
  call.answer(Ok());  // the server's work ends after its stream
  server_.reset();
  service_ = NewMetaRpcService(meta_);
  Serve(port);
  ExpectServesAgain();
}

// --- what no client of ours sends

class RpcSessionHostile : public RpcSession {
 protected:
  struct Raw {
    explicit Raw(v1::Meta::Stub& stub) : stream(stub.Session(&context)) {}
    // The answer to `up`, which gets a number of its own.
    v1::SessionDown Ask(v1::SessionUp up) {
      up.set_id(++last_id);
      EXPECT_TRUE(stream->Write(up));
      v1::SessionDown down;
      EXPECT_TRUE(stream->Read(&down)) << "the stream has ended";
      EXPECT_EQ(down.id(), up.id());
      return down;
    }
    // What the server says at the end.
    Error End() {
      v1::SessionDown down;
      while (stream->Read(&down)) {
      }
      const grpc::Status status = stream->Finish();
      return status.ok() ? Error(Code::kOk) : FromGrpc(status, CallKind::kRead, "server");
    }
    uint64_t last_id = 0;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::SessionUp, v1::SessionDown>> stream;
  };
  ~RpcSessionHostile() override { ExpectServes(); }

  static v1::SessionUp Renewal(uint64_t id) {
    v1::SessionUp up;
    up.set_id(id);
    up.mutable_renew()->mutable_key();
    return up;
  }

  std::shared_ptr<grpc::Channel> channel_ = grpc::CreateChannel(server_->address().ToString(), grpc::InsecureChannelCredentials());
  std::unique_ptr<v1::Meta::Stub> stub_ = v1::Meta::NewStub(channel_);
};

TEST_F(RpcSessionHostile, ABadCallIsRefusedAndTheStreamGoesOn) {
  Raw raw(*stub_);
  const auto refusal = [&raw](const v1::SessionUp& up) { return FromProto(raw.Ask(up).error()).code(); };
  v1::SessionUp up;
  EXPECT_EQ(refusal(up), Code::kInvalid) << "nothing is asked";
  up.mutable_renew();
  EXPECT_EQ(refusal(up), Code::kInvalid) << "no key";
  up.mutable_poll();
  EXPECT_EQ(refusal(up), Code::kInvalid) << "no key";
  up.mutable_answer_recall();
  EXPECT_EQ(refusal(up), Code::kInvalid) << "no key";
  up.mutable_answer_recall()->mutable_key();
  up.mutable_answer_recall()->mutable_keeps()->add_inos(1);
  EXPECT_EQ(refusal(up), Code::kInvalid) << "an inode without a right";
  for (uint64_t i = 0; i < kMaxStreamMessage; ++i) up.mutable_answer_recall()->add_opens(i);
  EXPECT_EQ(refusal(up), Code::kTooBig);
  v1::SessionUp cancel;
  cancel.set_id(77);  // of no call
  cancel.set_cancel(true);
  ASSERT_TRUE(raw.stream->Write(cancel));
  for (int64_t timeout : {INT64_MIN, int64_t{-1}, INT64_MAX}) {
    up = Renewal(0);
    up.set_timeout_ns(timeout);
    auto answered = Go([&] { return raw.Ask(up); });
    meta_.Next().answer(Ok());
    EXPECT_TRUE(answered.get().has_renew()) << timeout;
  }
  raw.stream->WritesDone();
  EXPECT_EQ(raw.End().code(), Code::kInvalid);
}

TEST_F(RpcSessionHostile, AFloodEndsTheStream) {
  Raw raw(*stub_);
  std::vector<HoldingMeta::Held> calls;
  for (uint64_t id = 1; id <= kMaxCallsServed; ++id) {
    ASSERT_TRUE(raw.stream->Write(Renewal(id)));
    calls.push_back(meta_.Next());
  }
  ASSERT_TRUE(raw.stream->Write(Renewal(kMaxCallsServed + 1)));
  const Error end = raw.End();
  EXPECT_EQ(end.code(), Code::kTryAgain);
  EXPECT_THAT(std::string(end.message()), HasSubstr("calls of one session at once"));
  EXPECT_EQ(meta_.held(), 0u);
  for (auto& call : calls) call.answer(Ok());
}

// One that asks and asks and reads nothing.
TEST_F(RpcSessionHostile, AnswersThatAreNotReadDoNotPileUp) {
  v1::SessionUp up;
  up.mutable_poll()->mutable_key();
  for (uint64_t i = 1; i <= kMessagesPerAnswer; ++i) meta_.poll_reply.messages.push_back({.number = i, .ino = InodeId(UINT64_MAX)});
  Raw raw(*stub_);
  constexpr uint64_t kAsked = 8 * kMaxCallsServed;
  auto answerer = Go([this] {
    for (uint64_t served = 0;; ++served) {
      HoldingMeta::Held call = meta_.Next();
      if (call.call != "Poll") return call.answer(Ok()), served;
      call.answer(Ok());
    }
  });
  for (uint64_t id = 1; id <= kAsked; ++id) {
    up.set_id(id);
    if (!raw.stream->Write(up)) break;
  }
  meta_.WaitCancelled(1);  // the stream was ended
  raw.context.TryCancel();
  (void)raw.End();
  EXPECT_TRUE(client_->Renew(Within(kSoon), kSession, {}, 1).ok());
  const uint64_t served = answerer.get();
  EXPECT_GE(served, kMaxCallsServed);
  EXPECT_LT(served, kAsked);
}

// LSE-1, with a client that is slow to read.
TEST_F(RpcSessionHostile, ARenewalIsAnsweredBeforeWhatWaits) {
  constexpr uint64_t kPolls = kMaxCallsServed / 2;
  for (uint64_t i = 1; i <= kMessagesPerAnswer; ++i) meta_.poll_reply.messages.push_back({.number = i, .ino = InodeId(UINT64_MAX)});
  // What the server may send to who does not read does not grow.
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::Meta::NewStub(grpc::CreateCustomChannel(server_->address().ToString(), grpc::InsecureChannelCredentials(), args));
  Raw raw(*stub);
  v1::SessionUp up;
  up.mutable_poll()->mutable_key();
  for (uint64_t id = 1; id <= kPolls; ++id) {
    up.set_id(id);
    ASSERT_TRUE(raw.stream->Write(up));
    meta_.Next().answer(Ok());
  }
  ASSERT_TRUE(raw.stream->Write(Renewal(kPolls + 1)));
  meta_.Next().answer(Ok());
  v1::SessionDown down;
  uint64_t before = 0;
  for (; raw.stream->Read(&down) && !down.has_renew(); ++before) {
  }
  EXPECT_TRUE(down.has_renew());
  EXPECT_LT(before, kPolls / 2) << "answers that a renewal stood behind";
  for (uint64_t i = before; i < kPolls; ++i) ASSERT_TRUE(raw.stream->Read(&down) && down.has_poll());
}

TEST_F(RpcSessionHostile, ANumberThatIsUnderWayEndsTheStream) {
  Raw raw(*stub_);
  ASSERT_TRUE(raw.stream->Write(Renewal(1)));
  HoldingMeta::Held call = meta_.Next();
  ASSERT_TRUE(raw.stream->Write(Renewal(1)));
  EXPECT_EQ(raw.End().code(), Code::kInvalid);
  call.answer(Ok());
}

TEST_F(RpcSessionHostile, Garbage) {
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"), std::string(1 << 20, '\x1a')}) {
    grpc::GenericStub stub(channel_);
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    const auto next = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    auto call = stub.PrepareCall(&context, "/archil.v1.Meta/Session", &queue);
    call->StartCall(nullptr);
    ASSERT_TRUE(next());
    grpc::Slice slice(bytes);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    ASSERT_TRUE(next());
    grpc::Status status;
    call->Finish(&status, nullptr);
    ASSERT_TRUE(next());
    const Error end = FromGrpc(status, CallKind::kRead, "server");
    EXPECT_EQ(end.code(), Code::kInvalid) << end.ToString();
    EXPECT_THAT(std::string(end.message()), HasSubstr("no message of a session"));
  }
}

TEST_F(RpcSessionHostile, AClientThatLeavesWithCallsUnderWay) {
  {
    Raw raw(*stub_);
    v1::SessionUp up;
    up.mutable_poll()->mutable_key();
    ASSERT_TRUE(raw.stream->Write(up));
    ASSERT_TRUE(raw.stream->Write(Renewal(1)));
    meta_.WaitHeld(2);
    raw.context.TryCancel();
    (void)raw.End();
  }
  meta_.WaitCancelled(1);
  for (int i = 0; i < 2; ++i) meta_.Next().answer(Ok());
}

}  // namespace
}  // namespace archil
