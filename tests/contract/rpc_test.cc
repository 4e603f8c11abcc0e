// Outcomes of calls over gRPC: what each failure of server and network looks like to the caller, and how soon.
#include <gmock/gmock.h>
#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/rpc/status.h"
#include "tests/contract/rpc_fakes.h"

namespace archil {
namespace {

using testing::HasSubstr;

std::vector<Code> AllCodes() {
  std::vector<Code> codes;
  for (int v = 1; v < 256; ++v) {
    if (CodeName(static_cast<Code>(v)) != "undefined") codes.push_back(static_cast<Code>(v));
  }
  return codes;
}

TEST(RpcStatus, EveryCodeSurvivesExactly) {
  ASSERT_EQ(AllCodes().size(), 39u);
  for (Code code : AllCodes()) {
    for (const std::string& message : {std::string(), std::string("why"), std::string("bytes \0\xff\n%", 10)}) {
      const grpc::Status wire = ToGrpc(message.empty() ? Error(code) : Error(code, message));
      EXPECT_FALSE(wire.ok());
      const Error back = FromGrpc(wire, CallKind::kChange, "server");
      EXPECT_EQ(back.code(), code);
      EXPECT_EQ(back.message(), message);
    }
  }
  EXPECT_TRUE(ToGrpc(Ok()).ok());
}

TEST(RpcStatus, LongMessagesAreCut) {
  const Error back = FromGrpc(ToGrpc(Error(Code::kIo, std::string(100'000, 'x'))), CallKind::kRead, "s");
  EXPECT_EQ(back.code(), Code::kIo);
  EXPECT_EQ(back.message().size(), kMaxErrorMessage);
}

TEST(RpcStatus, CodesOfANewerPeerKeepTheirBand) {
  for (uint8_t v : {63, 95, 127, 255}) {
    const Error back =
        FromGrpc(ToGrpc(Error(static_cast<Code>(v), "new")), CallKind::kRead, "s");
    EXPECT_EQ(back.band(), BandOf(static_cast<Code>(v))) << int{v};
    EXPECT_NE(CodeName(back.code()), "undefined");
    EXPECT_EQ(back.message(), "new");
  }
}

TEST(RpcStatus, WhatGrpcSaysItselfDependsOnTheCall) {
  const auto code = [](grpc::StatusCode c, CallKind kind, const char* text) {
    return FromGrpc(grpc::Status(c, text), kind, "s").code();
  };
  for (auto lost : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::CANCELLED,
                    grpc::StatusCode::INTERNAL, grpc::StatusCode::UNKNOWN}) {
    EXPECT_EQ(code(lost, CallKind::kChange, "text"), Code::kUnknown);
    EXPECT_EQ(code(lost, CallKind::kRead, "text"), Code::kUnavailable);
  }
  EXPECT_EQ(code(grpc::StatusCode::UNAVAILABLE, CallKind::kChange, "failed to connect to all addresses; why"), Code::kUnavailable);
  EXPECT_EQ(code(grpc::StatusCode::INTERNAL, CallKind::kChange, "failed to connect to all addresses; why"), Code::kUnknown);
  EXPECT_EQ(code(grpc::StatusCode::UNIMPLEMENTED, CallKind::kChange, "text"), Code::kNotSupported);
  // Details that are no ErrorInfo are no verdict.
  const grpc::Status odd(grpc::StatusCode::UNAVAILABLE, "text", "\xff\xff garbage");
  EXPECT_EQ(FromGrpc(odd, CallKind::kRead, "s").code(), Code::kUnavailable);
}

TEST(Rpc, EveryCodeSurvivesTheWire) {
  FakeServers servers;
  const auto client = NewMetaClient(servers.address());
  for (Code code : AllCodes()) {
    servers.meta.before = [code](const OpContext&, const std::string& call) { return Error(code, call + " failed"); };
    const auto read = client->GetInode(Within(absl::Seconds(10)), SessionId(1), kRootInode);
    EXPECT_EQ(read.code(), code);
    EXPECT_EQ(read.error().message(), "GetInode failed");
    CommitRequest request;
    EXPECT_EQ(client->Commit(Within(absl::Seconds(10)), request).code(), code);
  }
}

TEST(Rpc, WithoutWaitingNothingIsSent) {
  FakeServers servers;
  const auto client = NewMetaClient(servers.address());
  OpContext ctx;
  ctx.may_block = false;
  EXPECT_EQ(client->StatFs(ctx, SessionId(1)).code(), Code::kWouldBlock);
  EXPECT_EQ(client->CreateDisk(Within(-absl::Seconds(1)), "d", 0).code(), Code::kUnavailable);
  CancelFlag cancel;
  cancel.Cancel();
  ctx = OpContext();
  ctx.cancel = &cancel;
  EXPECT_EQ(client->CreateDisk(ctx, "d", 0).code(), Code::kInterrupted);
  EXPECT_EQ(servers.meta.calls, 0);
}

// A server whose calls wait at a gate.
class RpcWaiting : public testing::Test {
 protected:
  RpcWaiting() {
    // The first connection takes its time; it is not what is measured.
    EXPECT_TRUE(client_->StatFs(Within(absl::Seconds(10)), SessionId(1)).ok());
    servers_.meta.before = [this](const OpContext&, const std::string&) {
      gate_.WaitOpen();
      return Ok();
    };
  }
  ~RpcWaiting() override { gate_.Open(); }

  Gate gate_;
  FakeServers servers_;
  std::unique_ptr<MetaService> client_ = NewMetaClient(servers_.address());
};

TEST_F(RpcWaiting, ADeadlineOfAChangeIsUnknownOfAReadUnavailable) {
  const BootTime begin = RealClock().Boot();
  EXPECT_EQ(client_->CreateDisk(Within(absl::Milliseconds(50)), "d", 0).code(), Code::kUnknown);
  EXPECT_EQ(client_->Commit(Within(absl::Milliseconds(50)), CommitRequest()).code(), Code::kUnknown);
  EXPECT_EQ(client_->ListDisks(Within(absl::Milliseconds(50))).code(), Code::kUnavailable);
  EXPECT_LT(RealClock().Boot() - begin, absl::Seconds(5));
  EXPECT_GE(RealClock().Boot() - begin, absl::Milliseconds(150));
}

TEST_F(RpcWaiting, TheServerSeesTheDeadline) {
  absl::Duration left;
  servers_.meta.before = [&](const OpContext& ctx, const std::string&) {
    left = ctx.deadline - RealClock().Boot();
    return Ok();
  };
  ASSERT_TRUE(client_->StatFs(Within(absl::Seconds(30)), SessionId(1)).ok());
  EXPECT_GT(left, absl::Seconds(20));
  EXPECT_LE(left, absl::Seconds(31));
  ASSERT_TRUE(client_->StatFs(OpContext(), SessionId(1)).ok());
  EXPECT_EQ(left, absl::InfiniteDuration());
}

TEST_F(RpcWaiting, CancelEndsACallSoon) {
  // Twice: the watcher may be asleep or awake when the call comes.
  for (int round = 0; round < 2; ++round) {
    CancelFlag cancel;
    BootTime cancelled;
    auto canceller = RealScheduler().Spawn("canceller", [&] {
      gate_.WaitArrived(round + 1);
      cancelled = RealClock().Boot();
      cancel.Cancel();
    });
    OpContext ctx;
    ctx.cancel = &cancel;
    EXPECT_EQ(client_->CreateDisk(ctx, "d", 0).code(), Code::kInterrupted);
    const BootTime ended = RealClock().Boot();
    canceller->Join();
    EXPECT_LT(ended - cancelled, absl::Milliseconds(500));
  }
}

TEST_F(RpcWaiting, CallsThatAreNotCancelledAreLeftAlone) {
  CancelFlag cancel, other;
  Status left_alone = Code::kInternal;
  auto caller = RealScheduler().Spawn("caller", [&] {
    OpContext ctx;
    ctx.cancel = &other;
    left_alone = client_->DeleteDisk(ctx, "d", false);
  });
  gate_.WaitArrived(1);
  auto canceller = RealScheduler().Spawn("canceller", [&] {
    gate_.WaitArrived(2);
    cancel.Cancel();
  });
  OpContext ctx;
  ctx.cancel = &cancel;
  EXPECT_EQ(client_->DeleteDisk(ctx, "d", false).code(), Code::kInterrupted);
  canceller->Join();
  gate_.Open();
  caller->Join();
  EXPECT_TRUE(left_alone.ok()) << left_alone.error().ToString();
}

TEST_F(RpcWaiting, AServerThatGoesAwayDuringACall) {
  Status change, read;
  auto changer = RealScheduler().Spawn("changer", [&] { change = client_->DeleteDisk(OpContext(), "d", false); });
  auto reader = RealScheduler().Spawn("reader", [&] { read = client_->GetXattrs(OpContext(), SessionId(1), kRootInode).error(); });
  gate_.WaitArrived(2);
  auto stopper = RealScheduler().Spawn("stopper", [&] { servers_.StopRpc(); });
  changer->Join();
  reader->Join();
  EXPECT_EQ(change.code(), Code::kUnknown) << change.error().ToString();
  EXPECT_EQ(read.code(), Code::kUnavailable) << read.error().ToString();
  gate_.Open();
  stopper->Join();
}

TEST(Rpc, NobodyThereIsKnownAtOnceAndNothingWasSent) {
  auto port = ReservedPort::Bind({"127.0.0.1", 0});
  ASSERT_TRUE(port.ok());
  const auto client = NewMetaClient(port->address().ToString());
  const BootTime begin = RealClock().Boot();
  for (int i = 0; i < 3; ++i) {
    const auto result = client->CreateDisk(Within(absl::Seconds(30)), "d", 0);
    EXPECT_EQ(result.code(), Code::kUnavailable);
    EXPECT_THAT(std::string(result.error().message()), HasSubstr(port->address().ToString()));
  }
  EXPECT_LT(RealClock().Boot() - begin, absl::Seconds(5));
}

TEST(Rpc, BadAddressesAreUnavailable) {
  for (const char* address : {"no such host:1", "127.0.0.1:99999"}) {
    const auto client = NewDataClient(address);
    const auto result = client->Fence(Within(absl::Seconds(5)), {DiskId(1), SegmentId(1)}, 1);
    EXPECT_EQ(result.code(), Code::kUnavailable) << address;
  }
}

TEST(Rpc, AServerThatComesBackIsFoundWithinTwoSeconds) {
  auto servers = std::make_unique<FakeServers>();
  const uint16_t port = servers->port();
  const auto client = NewMetaClient(servers->address());
  const auto pool = NewDataPool();
  DataService& data = pool->For({1, servers->address()});
  ASSERT_TRUE(client->StatFs(Within(absl::Seconds(10)), SessionId(1)).ok());
  ASSERT_TRUE(data.Stat(Within(absl::Seconds(10)), {DiskId(1), SegmentId(1)}).ok());
  servers.reset();
  Notification never(RealScheduler());
  // Long enough for the pause between attempts to have grown to its bound.
  const BootTime gone = RealClock().Boot();
  while (RealClock().Boot() - gone < absl::Seconds(2)) {
    EXPECT_EQ(client->StatFs(Within(absl::Seconds(10)), SessionId(1)).code(), Code::kUnavailable);
    never.WaitUntil(RealClock().Boot() + absl::Milliseconds(20));
  }
  servers = std::make_unique<FakeServers>(port);
  const BootTime back = RealClock().Boot();
  while (!client->StatFs(Within(absl::Seconds(10)), SessionId(1)).ok()) {
    ASSERT_LT(RealClock().Boot() - back, absl::Seconds(2));
    never.WaitUntil(RealClock().Boot() + absl::Milliseconds(20));
  }
  while (!data.Stat(Within(absl::Seconds(10)), {DiskId(1), SegmentId(1)}).ok()) {
    ASSERT_LT(RealClock().Boot() - back, absl::Seconds(2));
  }
}

TEST(Rpc, ThePoolKeepsOneClientForAnAddress) {
  const auto pool = NewDataPool();
  DataService& a = pool->For({1, "127.0.0.1:1"});
  EXPECT_EQ(&a, &pool->For({2, "127.0.0.1:1"}));
  EXPECT_NE(&a, &pool->For({1, "127.0.0.1:2"}));
}

TEST(ReservedPort, ATakenPortIsRefusedWithARemedy) {
  FakeServers servers;
  const auto second = ReservedPort::Bind({"127.0.0.1", servers.port()});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.code(), Code::kBusy);
  EXPECT_THAT(std::string(second.error().message()), HasSubstr("in use"));
  EXPECT_EQ(ReservedPort::Bind({"192.0.2.1", 0}).code(), Code::kNoSuchAddress);
  EXPECT_EQ(ReservedPort::Bind({"no-such-host.invalid", 0}).code(), Code::kNoSuchAddress);
}

TEST(ReservedPort, TwoThatReserveTheSamePortDoNotBothServe) {
  auto first = ReservedPort::Bind({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok());
  auto second = ReservedPort::Bind(first->address());  // possible: neither listens yet
  ASSERT_TRUE(second.ok());
  FakeMetaServer meta;
  const auto service = NewMetaRpcService(meta), other = NewMetaRpcService(meta);
  const auto server = RpcServer::Start(std::move(first).value(), {service.get()});
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(RpcServer::Start(std::move(second).value(), {other.get()}).code(), Code::kBusy);
}

TEST(Rpc, Ipv6) {
  auto port = ReservedPort::Bind({"::1", 0});
  if (!port.ok()) GTEST_SKIP() << port.error().message();
  FakeMetaServer meta;
  const auto service = NewMetaRpcService(meta);
  const auto server = RpcServer::Start(std::move(port).value(), {service.get()});
  ASSERT_TRUE(server.ok());
  const auto client = NewMetaClient((*server)->address().ToString());
  EXPECT_TRUE(client->DeleteDisk(Within(absl::Seconds(10)), "d", true).ok());
  EXPECT_EQ(meta.number, 1u);
  (*server)->Stop(absl::ZeroDuration());
}

TEST(HostPort, Parse) {
  for (const char* good : {"127.0.0.1:8100", "localhost:0", "[::1]:65535", "a-b.c_d:1", "[fe80::1%eth0]:1"}) {
    const auto parsed = ParseHostPort(good);
    ASSERT_TRUE(parsed.ok()) << good;
    EXPECT_EQ(parsed->ToString(), good);
  }
  for (const char* bad : {"", "host", ":1", "host:", "host:65536", "host:-1", "host:1x", "::1:1", "[::1]", "[::1", "[]:1",
                          "a b:1", "host:1 ", "[::1]x:1", "a/b:1"}) {
    EXPECT_EQ(ParseHostPort(bad).code(), Code::kInvalid) << bad;
  }
  EXPECT_TRUE(ParseHostPort("0.0.0.0:1")->wildcard());
  EXPECT_TRUE(ParseHostPort("[::]:1")->wildcard());
  EXPECT_FALSE(ParseHostPort("127.0.0.1:1")->wildcard());
}

}  // namespace
}  // namespace archil
