// A stream is one call of gRPC's callback API: reactions come on gRPC's threads, callers wait on the stream's condition variable. A
// stream never comes back once it has ended; SessionStreams makes another.
#include "common/rpc/session_stream.h"

#include <fmt/format.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/rpc/limits.h"

namespace archil {

// How many streams gRPC still knows. The channel must not go before them, nor on a thread of gRPC.
struct SessionStreams::Living {
  Mutex mu{RealScheduler()};
  CondVar cv{RealScheduler()};
  int count ABSL_GUARDED_BY(mu) = 0;

  class Member {
   public:
    explicit Member(std::shared_ptr<Living> living) : living_(std::move(living)) {
      MutexLock lock(living_->mu);
      ++living_->count;
    }
    ~Member() {
      MutexLock lock(living_->mu);
      --living_->count;
      living_->cv.SignalAll();
    }

   private:
    const std::shared_ptr<Living> living_;
  };
};

class SessionStreams::Stream final : public grpc::ClientBidiReactor<v1::SessionUp, v1::SessionDown>,
                                     public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(const SessionStreams& owner) : member_(owner.living_), channel_(owner.channel_), stub_(owner.stub_) {}

  // Nothing: the stream is over, the call was not begun.
  std::optional<Status> Call(const OpContext& ctx, CallKind kind, v1::SessionUp& request, v1::SessionDown* reply) {
    Pending call{kind, reply, std::nullopt};
    MutexLock lock(mu_);
    if (ended_ || Stuck()) return std::nullopt;
    if (calls_.size() >= kMaxSessionCalls) {
      return Status(Error(Code::kUnavailable, fmt::format("{} calls of this session wait for {}", calls_.size(), channel_.address())));
    }
    const uint64_t id = ++last_id_;
    request.set_id(id);
    calls_.emplace(id, &call);
    queue_.insert(request.has_renew() ? queue_.begin() : queue_.end(), std::move(request));
    started_ ? Advance() : Start();
    while (!call.outcome) {
      if (ctx.cancelled()) return GiveUp(id, kind, Code::kInterrupted);
      const bool late = cv_.WaitUntil(mu_, ctx.deadline);
      if (late && !call.outcome) return GiveUp(id, kind, std::nullopt);
    }
    return call.outcome;
  }

  // Its callers look whether they are cancelled.
  void Wake() {
    MutexLock lock(mu_);
    cv_.SignalAll();
  }

  void End(const std::string& why) {
    bool hold = false;
    {
      MutexLock lock(mu_);
      if (std::exchange(ended_, true)) return;
      hold = started_;
      FailCalls(grpc::Status(grpc::StatusCode::CANCELLED, why));
    }
    if (!hold) return;
    context_.TryCancel();
    RemoveHold();
  }

  bool over() {
    MutexLock lock(mu_);
    return ended_ || Stuck();
  }

  // --- reactions

  void OnReadDone(bool ok) override {
    if (ok) {
      Take();
      StartRead(&down_);
      return;
    }
    {
      MutexLock lock(mu_);
      if (std::exchange(ended_, true)) return;
    }
    RemoveHold();  // OnDone comes, and says why
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    writing_ = false;
    if (ok) Advance();
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Stream> self = std::move(self_);  // may be the last
    MutexLock lock(mu_);
    ended_ = true;
    FailCalls(status);
  }

 private:
  // A caller that waits, on its stack.
  struct Pending {
    const CallKind kind;
    v1::SessionDown* const reply;
    std::optional<Status> outcome;
  };

  void Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    started_ = true;
    self_ = shared_from_this();
    stub_.async()->Session(&context_, this);
    AddHold();  // calls write from outside of the reactions, until it has ended
    StartRead(&down_);
    StartCall();
    Advance();
  }

  // So many callers have left without an answer that none is to be expected.
  bool Stuck() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (calls_.size() < kMaxSessionCalls) return false;
    const auto left = std::count_if(calls_.begin(), calls_.end(), [](const auto& call) { return call.second == nullptr; });
    return static_cast<size_t>(left) >= kMaxSessionCalls / 2;
  }

  // Sends what is next, one at a time.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || ended_ || queue_.empty()) return;
    up_ = std::move(queue_.front());
    queue_.pop_front();
    writing_ = true;
    StartWrite(&up_);
  }

  void Take() {
    MutexLock lock(mu_);
    const auto it = calls_.find(down_.id());
    if (it == calls_.end()) return;
    if (Pending* call = it->second; call != nullptr) {
      call->outcome = down_.has_error() ? Status(FromProto(down_.error())) : Ok();
      call->reply->Swap(&down_);
      cv_.SignalAll();
    }
    calls_.erase(it);
  }

  // `code`, or that the deadline has passed. What was sent keeps its place until the server has answered it, so that no more is under
  // way there than is known here.
  Status GiveUp(uint64_t id, CallKind kind, std::optional<Code> code) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto queued = std::find_if(queue_.begin(), queue_.end(), [id](const v1::SessionUp& up) { return up.id() == id; });
    if (queued != queue_.end()) {
      queue_.erase(queued);
      calls_.erase(id);
      kind = CallKind::kRead;  // nobody has seen it
    } else {
      calls_[id] = nullptr;
      v1::SessionUp cancel;
      cancel.set_id(id);
      cancel.set_cancel(true);
      queue_.push_back(std::move(cancel));
      Advance();
    }
    if (code) return *code;
    return FromGrpc(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, ""), kind, channel_.address());
  }

  void FailCalls(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::set<uint64_t> queued;
    for (const v1::SessionUp& up : queue_) queued.insert(up.id());
    for (const auto& [id, call] : calls_) {
      if (call != nullptr) call->outcome = Lost(status, queued.contains(id) ? CallKind::kRead : call->kind);
    }
    calls_.clear();
    queue_.clear();
    cv_.SignalAll();
  }

  // What the end of the stream means to a call without answer: never a verdict on the call.
  Error Lost(const grpc::Status& status, CallKind kind) const {
    const Error error = status.ok() ? Error(Code::kUnavailable, "it ended the session's stream") : FromGrpc(status, kind, channel_.address());
    // kUnavailable of our server: it has answered all that it has taken.
    if (error.code() == Code::kUnavailable || error.code() == Code::kNotSupported) return error;
    return Error(kind == CallKind::kChange ? Code::kUnknown : Code::kUnavailable, std::string(error.message()));
  }

  const Living::Member member_;  // first: goes last
  const RpcChannel& channel_;
  v1::Meta::Stub& stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Stream> self_;  // from the start to OnDone
  v1::SessionDown down_;          // gRPC's, between reads the reaction's
  Mutex mu_{RealScheduler()};
  CondVar cv_{RealScheduler()};
  v1::SessionUp up_ ABSL_GUARDED_BY(mu_);  // gRPC's while `writing_`
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // takes no more calls and sends nothing
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<v1::SessionUp> queue_ ABSL_GUARDED_BY(mu_);  // to be sent; at most a call and its cancellation for each of `calls_`
  std::map<uint64_t, Pending*> calls_ ABSL_GUARDED_BY(mu_);  // without answer; null: its caller has left
};

SessionStreams::SessionStreams(const RpcChannel& channel, v1::Meta::Stub& stub)
    : channel_(channel), stub_(stub), living_(std::make_shared<Living>()), mu_(RealScheduler()) {}

SessionStreams::~SessionStreams() {
  std::map<SessionId, std::shared_ptr<Stream>> streams;
  {
    MutexLock lock(mu_);
    streams.swap(streams_);
  }
  for (auto& [session, stream] : streams) stream->End("the client goes");
  streams.clear();
  MutexLock lock(living_->mu);
  while (living_->count > 0) living_->cv.Wait(living_->mu);
}

std::shared_ptr<SessionStreams::Stream> SessionStreams::Of(SessionId session) {
  std::shared_ptr<Stream> current, old;
  {
    MutexLock lock(mu_);
    std::shared_ptr<Stream>& stream = streams_[session];
    if (stream != nullptr && stream->over()) old = std::move(stream);
    if (stream == nullptr) stream = std::make_shared<Stream>(*this);
    current = stream;
  }
  if (old != nullptr) old->End("it answers nothing");  // if it has not ended already
  return current;
}

Status SessionStreams::Call(const OpContext& ctx, CallKind kind, SessionId session, v1::SessionUp request, v1::SessionDown* reply) {
  ARCHIL_RETURN_IF_ERROR(channel_.Admit(ctx));
  const absl::Duration left = ctx.deadline - RealClock().Boot();
  if (left < kLongDeadline) request.set_timeout_ns(std::max<int64_t>(absl::ToInt64Nanoseconds(left), 1));
  for (;;) {
    const std::shared_ptr<Stream> stream = Of(session);
    if (ctx.cancel != nullptr) channel_.watcher().Add(&request, ctx.cancel, [&stream] { stream->Wake(); });
    const std::optional<Status> outcome = stream->Call(ctx, kind, request, reply);
    if (ctx.cancel != nullptr) channel_.watcher().Remove(&request);
    if (outcome) return *outcome;
  }
}

void SessionStreams::End(SessionId session) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mu_);
    const auto it = streams_.find(session);
    if (it == streams_.end()) return;
    stream = std::move(it->second);
    streams_.erase(it);
  }
  stream->End("the session has ended");
}

}  // namespace archil
