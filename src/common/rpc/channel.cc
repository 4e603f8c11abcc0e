#include "common/rpc/channel.h"

#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/env/sched.h"
#include "common/rpc/limits.h"

namespace archil {
namespace {

constexpr absl::Duration kCancelTick = absl::Milliseconds(10);
constexpr int kIdleTicks = 100;  // the watcher sleeps after this many ticks without a call to watch

// A channel with no call in it is looked after by nobody but gRPC's backup poller, every 5 s by default. Meanwhile a lost
// connection is not noticed, a new one is not seen to be there, and a server that stops waits for us. The interval can be
// set only through the environment, before gRPC starts. (A thread of ours that polls all the time would cost every call
// a change of threads.)
void PollIdleChannelsOften() {
  static const int once = setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", 0);
  (void)once;
}

int Millis(absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(d)); }

grpc::ChannelArguments ArgumentsOf(const RpcOptions& options) {
  PollIdleChannelsOften();
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  // Channels of one process to the same server share no connection: a bulk append never stands before a heartbeat.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Millis(options.max_backoff));
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Millis(options.connect_timeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(options.keepalive_interval));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(options.keepalive_timeout));
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The addresses are ours, not a web site's: no proxy from the environment, no TXT records.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return args;
}

}  // namespace

struct CancelWatcher::State {
  Scheduler& scheduler = RealScheduler();
  Mutex mu{scheduler};
  CondVar cv{scheduler};
  struct Call {
    const CancelFlag* flag;
    std::function<void()> cancel;
  };
  absl::flat_hash_map<const void*, Call> calls ABSL_GUARDED_BY(mu);
  bool asleep ABSL_GUARDED_BY(mu) = true;
  bool stop ABSL_GUARDED_BY(mu) = false;
  std::unique_ptr<Thread> thread ABSL_GUARDED_BY(mu);  // started by the first call that can be cancelled

  void Run() {
    MutexLock lock(mu);
    int idle = 0;
    while (!stop) {
      idle = calls.empty() ? idle + 1 : 0;
      for (const auto& [name, call] : calls) {
        if (call.flag->cancelled()) call.cancel();
      }
      if (idle < kIdleTicks) {
        cv.WaitUntil(mu, scheduler.clock().Boot() + kCancelTick);
        continue;
      }
      asleep = true;
      while (asleep && !stop) cv.Wait(mu);
      idle = 0;
    }
  }
};

CancelWatcher::CancelWatcher() : state_(std::make_unique<State>()) {}

CancelWatcher::~CancelWatcher() {
  std::unique_ptr<Thread> thread;
  {
    MutexLock lock(state_->mu);
    state_->stop = true;
    state_->cv.SignalAll();
    thread = std::move(state_->thread);
  }
  if (thread != nullptr) thread->Join();
}

void CancelWatcher::Add(const void* call, const CancelFlag* flag, std::function<void()> cancel) {
  MutexLock lock(state_->mu);
  state_->calls.emplace(call, State::Call{flag, std::move(cancel)});
  if (state_->thread == nullptr) {
    state_->thread = state_->scheduler.Spawn("rpc-cancel", [state = state_.get()] { state->Run(); });
  }
  if (state_->asleep) {
    state_->asleep = false;
    state_->cv.SignalAll();
  }
}

void CancelWatcher::Remove(const void* call) {
  MutexLock lock(state_->mu);
  state_->calls.erase(call);
}

RpcChannel::RpcChannel(std::string address, const RpcOptions& options, std::shared_ptr<CancelWatcher> watcher)
    : address_(std::move(address)),
      channel_(grpc::CreateCustomChannel("dns:///" + address_, grpc::InsecureChannelCredentials(), ArgumentsOf(options))),
      watcher_(std::move(watcher)) {}

Status RpcChannel::Admit(const OpContext& ctx) const {
  if (!ctx.may_block) return Code::kWouldBlock;
  if (ctx.cancelled()) return Code::kInterrupted;
  if (ctx.deadline <= RealClock().Boot()) return Error(Code::kUnavailable, "the deadline passed before the call was sent");
  return Ok();
}

void RpcChannel::Begin(const OpContext& ctx, grpc::ClientContext* call) const {
  const absl::Duration left = ctx.deadline - RealClock().Boot();
  if (left < kLongDeadline) call->set_deadline(gpr_time_from_nanos(absl::ToInt64Nanoseconds(left), GPR_TIMESPAN));
  if (ctx.cancel != nullptr) watcher_->Add(call, ctx.cancel, [call] { call->TryCancel(); });
}

Status RpcChannel::End(const OpContext& ctx, CallKind kind, grpc::ClientContext* call, const grpc::Status& status) const {
  if (ctx.cancel != nullptr) watcher_->Remove(call);
  if (status.ok()) return Ok();
  if (status.error_code() == grpc::StatusCode::CANCELLED && ctx.cancelled()) return Code::kInterrupted;
  return FromGrpc(status, kind, address_);
}

}  // namespace archil
