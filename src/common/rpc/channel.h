// A connection to one server and the way every unary call of ours takes. Internal to the clients of this room.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>
#include <utility>

#include "common/api/context.h"
#include "common/rpc/client.h"
#include "common/rpc/status.h"

namespace archil {

// Cancels running calls soon after their flags are set. One thread, which looks at the flags every 10 ms while
// calls that can be cancelled come, and sleeps otherwise. Thread safe.
class CancelWatcher {
 public:
  CancelWatcher();
  ~CancelWatcher();
  // `call` and `flag` must stay until Remove.
  void Add(grpc::ClientContext* call, const CancelFlag* flag);
  void Remove(grpc::ClientContext* call);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class RpcChannel {
 public:
  RpcChannel(std::string address, const RpcOptions& options, std::shared_ptr<CancelWatcher> watcher);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& address() const { return address_; }

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
  Status Admit(const OpContext& ctx) const;
  void Begin(const OpContext& ctx, grpc::ClientContext* call) const;
  Status End(const OpContext& ctx, CallKind kind, grpc::ClientContext* call, const grpc::Status& status) const;

  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<CancelWatcher> watcher_;  // owners: the channels of one client or pool
};

}  // namespace archil
