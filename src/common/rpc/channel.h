// A connection to one server and the way every unary call of ours takes (session_stream.h: the others). Internal to the clients of this room.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/api/context.h"
#include "common/rpc/client.h"
#include "common/rpc/status.h"

namespace archil {

// What is nearer than this is told to the server as a deadline.
inline constexpr absl::Duration kLongDeadline = absl::Hours(24 * 365);

// Cancels running calls soon after their flags are set. One thread, which looks at the flags every 10 ms while
// calls that can be cancelled come, and sleeps otherwise. Thread safe.
class CancelWatcher {
 public:
  CancelWatcher();
  ~CancelWatcher();
  // Once `flag` is set `cancel` runs, and again each tick until Remove; it must not block. `call` is a name, any address that no other
  // call has.
  void Add(const void* call, const CancelFlag* flag, std::function<void()> cancel);
  // `cancel` does not run any more when this returns.
  void Remove(const void* call);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class RpcChannel {
 public:
  RpcChannel(std::string address, const RpcOptions& options, std::shared_ptr<CancelWatcher> watcher);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& address() const { return address_; }
  CancelWatcher& watcher() const { return *watcher_; }

  // Whether a call may begin: it may wait, is not cancelled and has time left.
  Status Admit(const OpContext& ctx) const;
  // Makes one call, `method` of `stub`; the outcomes of client.h.
  template <class Stub, class Request, class Reply>
  Status Call(const OpContext& ctx, CallKind kind, Stub& stub,
              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*), const Request& request,
              Reply* reply) const {
    ARCHIL_RETURN_IF_ERROR(Admit(ctx));
    grpc::ClientContext call;
    Begin(ctx, &call);
    const grpc::Status status = (stub.*method)(&call, request, reply);
    return End(ctx, kind, &call, status);
  }

 private:
  void Begin(const OpContext& ctx, grpc::ClientContext* call) const;
  Status End(const OpContext& ctx, CallKind kind, grpc::ClientContext* call, const grpc::Status& status) const;

  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<CancelWatcher> watcher_;  // owners: the channels of one client or pool
};

}  // namespace archil
