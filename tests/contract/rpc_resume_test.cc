// A mount's session at a real metadata server, over a connection that breaks again and again: no message is lost, none is handled
// twice, every answer arrives, the lease goes on.
#include <gtest/gtest.h>

#include <set>

#include "client/session/session.h"
#include "common/base/check.h"
#include "common/env/random.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "server/meta/service/meta_rpc.h"
#include "tests/support/meta_world.h"
#include "tests/support/tcp_relay.h"

namespace archil {
namespace {

using test::TcpRelay;
using test::TestSession;

class NoData final : public DataServicePool {
 public:
  DataService& For(const DataServerInfo&) override { std::abort(); }
};

// How the connection breaks while a recall is answered.
enum class Break : uint8_t { kNot, kBefore, kWithin, kAnswerLost };

class RpcResume : public testing::Test {
 protected:
  RpcResume() {
    ARCHIL_CHECK(world_.Start().ok());
    service_ = NewMetaRpcService(world_.meta());
    auto port = ReservedPort::Bind({"127.0.0.1", 0});
    ARCHIL_CHECK(port.ok());
    auto rpc = RpcServer::Start(std::move(port).value(), {service_.get()});
    ARCHIL_CHECK(rpc.ok());
    rpc_ = std::move(rpc).value();
    relay_.emplace(rpc_->address().port);
    RpcOptions options;
    options.max_backoff = absl::Milliseconds(100);
    client_ = NewMetaClient(relay_->address(), options);
  }
  ~RpcResume() override {
    session_->Stop();
    session_.reset();
    client_.reset();
    rpc_->Stop(absl::Seconds(10));
  }

  void Handle(const SessionMessage& message) {
    {
      MutexLock lock(mu_);
      EXPECT_TRUE(handled_.insert(message.number).second) << "message " << message.number << " is handled twice";
    }
    switch (how_) {
      case Break::kNot: break;
      case Break::kBefore: relay_->Cut(); break;
      case Break::kWithin: relay_->CutAfter(random_->Below(60)); break;
      case Break::kAnswerLost: relay_->LoseNextAnswer(); break;
    }
    RecallAnswer answer;
    answer.message = message.number;
    session_->Answer(answer);
  }

  // What the mount would do: again until it knows.
  void Acquire(InodeId ino) {
    AcquireRequest request;
    request.session = session_->id();
    request.key = session_->key();
    request.wants = {{ino, Right::kWrite}};
    for (;;) {
      OpContext ctx;
      ctx.deadline = RealClock().Boot() + absl::Minutes(1);
      const auto reply = client_->Acquire(ctx, request);
      if (reply.ok()) return;
      ASSERT_TRUE(reply.code() == Code::kUnavailable || reply.code() == Code::kUnknown) << reply.error().ToString();
    }
  }

  test::MetaWorld world_;
  std::unique_ptr<Random> random_ = SeededRandom(1);
  NoData data_;
  std::unique_ptr<RpcService> service_;
  std::unique_ptr<RpcServer> rpc_;
  std::optional<TcpRelay> relay_;
  std::unique_ptr<MetaService> client_;
  std::unique_ptr<Session> session_;
  std::atomic<Break> how_{Break::kNot};
  Mutex mu_{RealScheduler()};
  std::set<uint64_t> handled_ ABSL_GUARDED_BY(mu_);
};

TEST_F(RpcResume, NoMessageIsLostOrHandledTwice) {
  constexpr int kRounds = 60;
  ASSERT_TRUE(world_.meta().CreateDisk({}, "disk", 0).ok());
  MountConfig config;
  config.disk = "disk";
  config.lease = absl::Seconds(3);
  session_ = std::make_unique<Session>(MountEnv{RealScheduler(), *random_, *client_, data_}, config);
  ASSERT_TRUE(session_->Open({}).ok());
  Session::Events events;
  events.on_message = [this](const SessionMessage& m) { Handle(m); };
  session_->Start(std::move(events));
  auto other = TestSession::Open(world_.meta(), "disk", {9, 9}, "other");
  ASSERT_TRUE(other.ok());
  const CreateOp file = other->File(kRootInode, "file");
  ASSERT_TRUE(other->Acquire({{kRootInode, Right::kWrite}}).ok()) << "the first message: others have come";
  ASSERT_TRUE(other->Commit({file}).ok());
  const auto give_back = [&](InodeId ino) { return world_.meta().GiveBack({}, other->id(), other->key(), {ino}, {}); };
  ASSERT_TRUE(give_back(kRootInode).ok());
  for (int round = 0; round < kRounds; ++round) {
    how_ = Break::kNot;
    Acquire(file.ino);
    how_ = static_cast<Break>(round % 4);
    const auto granted = other->Acquire({{file.ino, Right::kWrite}});
    ASSERT_TRUE(granted.ok()) << "round " << round << ": " << granted.error().ToString();
    ASSERT_TRUE(give_back(file.ino).ok());
  }
  MutexLock lock(mu_);
  EXPECT_GE(handled_.size(), size_t{kRounds});
  EXPECT_EQ(handled_.size(), world_.Metric("meta_recalls"));
  EXPECT_GT(world_.Metric("meta_recall_answers"), handled_.size()) << "no answer had to be told again: nothing was shown";
  EXPECT_GE(relay_->cuts(), kRounds / 2);
  EXPECT_EQ(world_.Metric("meta_silent_taken") + world_.Metric("meta_silent_ended"), 0u);
  EXPECT_EQ(session_->state(), Session::State::kActive);
  EXPECT_GT(session_->renewals(), 0u);
}

}  // namespace
}  // namespace archil
