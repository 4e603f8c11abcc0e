#include "server/meta/service/served_streams.h"

#include <fmt/format.h>
#include <grpcpp/support/server_callback.h>

#include <utility>
#include <vector>

#include "archil/v1/meta.pb.h"
#include "common/rpc/convert.h"
#include "common/rpc/limits.h"
#include "common/rpc/status.h"

namespace archil {
namespace {

OpContext ContextOf(const v1::SessionUp& up) {
  OpContext ctx;
  if (up.timeout_ns() != 0) ctx.deadline = RealClock().Boot() + absl::Nanoseconds(up.timeout_ns());
  return ctx;
}

}  // namespace

class ServedStreams::Stream final : public Reactor, public std::enable_shared_from_this<Stream> {
 public:
  Stream(ServedStreams& owner, MetaServer& server) : owner_(owner), server_(server) {}

  void Begin() { StartRead(&up_); }

  // Ends when everything that was taken is answered.
  void End(const Error& why) {
    MutexLock lock(mu_);
    if (std::exchange(ending_, true)) return;
    why_ = why;
    Advance();
  }

  // --- reactions

  void OnReadDone(bool ok) override {
    if (ok) {
      if (Take()) StartRead(&up_);
      return;
    }
    // Cancelled, then the status does not arrive. Ours are never closed in another way.
    End(Error(Code::kInvalid, "the stream was closed by its client, or what came is no message of a session"));
    CancelWaits();
  }

  void OnWriteDone(bool) override {
    MutexLock lock(mu_);
    writing_ = false;
    calls_.erase(down_.id());
    Advance();
  }

  void OnCancel() override { Abort(Error(Code::kInterrupted, "the client has left")); }

  void OnDone() override { owner_.Gone(this); }

 private:
  using Ticket = std::shared_ptr<WaitTicket>;

  // One message. False: the last.
  bool Take() {
    const uint64_t id = up_.id();
    if (up_.has_cancel()) {
      if (const Ticket ticket = TicketOf(id)) ticket->Cancel();
      return true;
    }
    const Ticket ticket = up_.has_poll() ? std::make_shared<WaitTicket>(RealScheduler()) : nullptr;
    switch (Admit(id, ticket)) {
      case Admission::kTaken: Serve(id, ticket); return true;
      case Admission::kEnding: return false;
      case Admission::kTwice: Abort(Error(Code::kInvalid, fmt::format("two calls with the number {}", id))); return false;
      case Admission::kTooMany:
        Abort(Error(Code::kTryAgain, fmt::format("over {} calls of one session at once", kMaxCallsServed)));
        return false;
    }
    return false;
  }

  enum class Admission : uint8_t { kTaken, kEnding, kTwice, kTooMany };
  Admission Admit(uint64_t id, const Ticket& ticket) {
    MutexLock lock(mu_);
    if (ending_) return Admission::kEnding;
    if (calls_.size() >= kMaxCallsServed) return Admission::kTooMany;
    return calls_.emplace(id, ticket).second ? Admission::kTaken : Admission::kTwice;
  }

  void Serve(uint64_t id, const Ticket& ticket) {
    if (const size_t size = up_.ByteSizeLong(); size > kMaxStreamMessage) {
      return Refuse(id, Error(Code::kTooBig, fmt::format("a message of {} bytes, limit {}", size, kMaxStreamMessage)));
    }
    const OpContext ctx = ContextOf(up_);
    switch (up_.call_case()) {
      case v1::SessionUp::kRenew: return Renew(id, ctx, up_.renew());
      case v1::SessionUp::kPoll: return Poll(id, ctx, up_.poll(), ticket);
      case v1::SessionUp::kAnswerRecall: return AnswerRecall(id, ctx, up_.answer_recall());
      default: return Refuse(id, Error(Code::kInvalid, "a message that says nothing, or what this server does not know"));
    }
  }

  void Renew(uint64_t id, const OpContext& ctx, const v1::RenewRequest& request) {
    if (!request.has_key()) return Refuse(id, Missing("key"));
    server_.RenewAsync(ctx, SessionId(request.session()), FromProto(request.key()), request.progress(),
                       [self = shared_from_this(), id](Result<RenewReply> result) {
                         if (!result.ok()) return self->Refuse(id, result.error());
                         v1::SessionDown down;
                         ToProto(*result, down.mutable_renew());
                         self->Answer(id, std::move(down));
                       });
  }

  void Poll(uint64_t id, const OpContext& ctx, const v1::PollRequest& request, const Ticket& ticket) {
    if (!request.has_key()) return Refuse(id, Missing("key"));
    server_.PollAsync(ctx, SessionId(request.session()), FromProto(request.key()), request.after(), ticket,
                      [self = shared_from_this(), id](Result<PollReply> result) {
                        if (!result.ok()) return self->Refuse(id, result.error());
                        if (result->messages.size() > kMessagesPerAnswer) result->messages.resize(kMessagesPerAnswer);
                        v1::SessionDown down;
                        ToProto(*result, down.mutable_poll());
                        self->Answer(id, std::move(down));
                      });
  }

  void AnswerRecall(uint64_t id, const OpContext& ctx, const v1::AnswerRecallRequest& request) {
    if (!request.has_key()) return Refuse(id, Missing("key"));
    auto answer = FromProto(request);
    if (!answer.ok()) return Refuse(id, answer.error());
    server_.AnswerRecallAsync(ctx, SessionId(request.session()), FromProto(request.key()), std::move(answer).value(),
                              [self = shared_from_this(), id](Status status) {
                                if (!status.ok()) return self->Refuse(id, status.error());
                                v1::SessionDown down;
                                down.mutable_answer_recall();
                                self->Answer(id, std::move(down));
                              });
  }

  void Refuse(uint64_t id, const Error& error) {
    v1::SessionDown down;
    ToProto(error, down.mutable_error());
    Answer(id, std::move(down));
  }

  void Answer(uint64_t id, v1::SessionDown down) {
    down.set_id(id);
    MutexLock lock(mu_);
    if (aborted_) return;
    queue_.insert(down.has_renew() ? queue_.begin() : queue_.end(), std::move(down));
    Advance();
  }

  // Does what is next: one write at a time, and the end when there is nothing left to be written.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      down_ = std::move(queue_.front());
      queue_.erase(queue_.begin());
      writing_ = true;
      StartWrite(&down_);
    } else if (ending_ && calls_.empty()) {
      finished_ = true;
      Finish(ToGrpc(why_));
    }
  }

  // Ends without regard to what is under way.
  void Abort(const Error& why) {
    CancelWaits();
    MutexLock lock(mu_);
    if (!std::exchange(ending_, true)) why_ = why;
    aborted_ = true;
    queue_.clear();
    calls_.clear();
    Advance();
  }

  Ticket TicketOf(uint64_t id) {
    MutexLock lock(mu_);
    const auto it = calls_.find(id);
    return it == calls_.end() ? nullptr : it->second;
  }

  // They are answered soon; the ones who asked do not want it any more.
  void CancelWaits() {
    std::vector<Ticket> tickets;
    {
      MutexLock lock(mu_);
      for (const auto& [id, ticket] : calls_) {
        if (ticket != nullptr) tickets.push_back(ticket);
      }
    }
    for (const Ticket& ticket : tickets) ticket->Cancel();
  }

  ServedStreams& owner_;
  MetaServer& server_;
  v1::SessionUp up_;  // gRPC's, between reads the reaction's
  Mutex mu_{RealScheduler()};
  v1::SessionDown down_ ABSL_GUARDED_BY(mu_);  // gRPC's while `writing_`
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;   // takes no more calls
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;  // answers no more
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  Status why_ ABSL_GUARDED_BY(mu_) = Ok();
  std::map<uint64_t, Ticket> calls_ ABSL_GUARDED_BY(mu_);  // taken, and their answer not written yet; null: it does not wait
  std::vector<v1::SessionDown> queue_ ABSL_GUARDED_BY(mu_);  // to be written; each is of one of `calls_`
};

ServedStreams::ServedStreams(MetaServer& server) : server_(server), mu_(RealScheduler()) {}

ServedStreams::~ServedStreams() = default;

ServedStreams::Reactor* ServedStreams::Open() {
  auto stream = std::make_shared<Stream>(*this, server_);
  bool ending = false;
  {
    MutexLock lock(mu_);
    streams_.emplace(stream.get(), stream);
    ending = ending_;
  }
  if (ending) {
    stream->End(Error(Code::kUnavailable, "the server is stopping"));
  } else {
    stream->Begin();
  }
  return stream.get();
}

void ServedStreams::End() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    MutexLock lock(mu_);
    ending_ = true;
    for (const auto& [key, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->End(Error(Code::kUnavailable, "the server is stopping"));
}

void ServedStreams::Gone(Stream* stream) {
  std::shared_ptr<Stream> last;
  MutexLock lock(mu_);
  if (auto node = streams_.extract(stream)) last = std::move(node.mapped());
}

}  // namespace archil
