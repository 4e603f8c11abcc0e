// A gRPC server for the services of one process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/result.h"
#include "common/rpc/address.h"

namespace grpc {
class Service;
}

namespace archil {

// One role's calls, ready to be served; made by the adaptors in server/*/service. Opaque to everybody but RpcServer.
class RpcService {
 public:
  virtual ~RpcService() = default;
  // Owned by this object.
  virtual std::vector<grpc::Service*> GrpcServices() = 0;
  // The server is about to stop: calls that wait for something to happen are to be answered now.
  virtual void EndWaits() {}
};

// A port that nobody else can take, before it is served: the check that an address is usable, made early.
class ReservedPort {
 public:
  // kBusy if somebody listens there, kNoSuchAddress if the host is not of this machine, kAccess; the message names
  // the remedy. Port 0 takes a free one.
  static Result<ReservedPort> Bind(const HostPort& listen);
  ReservedPort(ReservedPort&& other) noexcept;
  ReservedPort& operator=(ReservedPort&&) = delete;
  ~ReservedPort();

  const HostPort& address() const { return address_; }  // with the real port

 private:
  ReservedPort(int fd, HostPort address) : fd_(fd), address_(std::move(address)) {}
  int fd_;
  HostPort address_;
};

class RpcServer {
 public:
  // Serves when it returns. `services` are borrowed and must outlive the server. kBusy if the port could not be had.
  static Result<std::unique_ptr<RpcServer>> Start(ReservedPort port, const std::vector<RpcService*>& services);
  virtual ~RpcServer() = default;  // stops
  virtual const HostPort& address() const = 0;
  // Takes no new calls, waits up to `drain` for running ones, then cancels them towards their callers. Returns when
  // every handler has ended, which nobody can hurry but the service itself. Idempotent.
  virtual void Stop(absl::Duration drain) = 0;
};

// "gRPC 1.51.1, protobuf 3.21.12".
std::string RpcVersion();

}  // namespace archil
