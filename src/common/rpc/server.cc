#include "common/rpc/server.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>
#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "common/base/errno.h"
#include "common/env/sched.h"
#include "common/rpc/limits.h"

namespace archil {
namespace {

Error BindError(int errno_value, const HostPort& listen) {
  const std::string where = listen.ToString();
  switch (errno_value) {
    case EADDRINUSE:
      return Error(Code::kBusy, fmt::format("{} is in use by another process; stop that one or choose another --listen", where));
    case EADDRNOTAVAIL:
      return Error(Code::kNoSuchAddress,
                   fmt::format("{} is no address of this machine; choose another --listen (0.0.0.0 means all of them)", where));
    case EACCES:
      return Error(Code::kAccess, fmt::format("not allowed to listen on {}; choose a port from 1024 on", where));
    default:
      return ErrnoError(errno_value, fmt::format("cannot listen on {}", where));
  }
}

uint16_t PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

class RpcServerImpl final : public RpcServer {
 public:
  RpcServerImpl(std::unique_ptr<grpc::Server> server, HostPort address, std::vector<RpcService*> services)
      : server_(std::move(server)), address_(std::move(address)), services_(std::move(services)), mu_(RealScheduler()) {}
  ~RpcServerImpl() override { Stop(absl::ZeroDuration()); }

  const HostPort& address() const override { return address_; }

  void Stop(absl::Duration drain) override {
    {
      MutexLock lock(mu_);
      if (std::exchange(stopped_, true)) return;
    }
    for (RpcService* service : services_) service->EndWaits();
    server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(drain));
  }

 private:
  std::unique_ptr<grpc::Server> server_;
  const HostPort address_;
  const std::vector<RpcService*> services_;
  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

Result<ReservedPort> ReservedPort::Bind(const HostPort& listen) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(listen.host.c_str(), std::to_string(listen.port).c_str(), &hints, &found);
  if (rc != 0) {
    return Error(Code::kNoSuchAddress, fmt::format("cannot resolve {}: {}", listen.host, gai_strerror(rc)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return BindError(errno, listen);
  ReservedPort port(fd, listen);
  // Two sockets with this option may be bound to one port as long as none listens; so gRPC can bind it while we hold it.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return BindError(errno, listen);
  }
  port.address_.port = PortOf(bound);
  return port;
}

ReservedPort::ReservedPort(ReservedPort&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), address_(std::move(other.address_)) {}

ReservedPort::~ReservedPort() {
  if (fd_ >= 0) close(fd_);
}

Result<std::unique_ptr<RpcServer>> RpcServer::Start(ReservedPort port, const std::vector<RpcService*>& services) {
  grpc::ServerBuilder builder;
  int selected = 0;
  builder.AddListeningPort(port.address().ToString(), grpc::InsecureServerCredentials(), &selected);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // or a second server could share the port unseen
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1024);
  // Clients probe silent connections; that is no abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  for (RpcService* service : services) {
    for (grpc::Service* s : service->GrpcServices()) builder.RegisterService(s);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || selected == 0) return BindError(EADDRINUSE, port.address());
  return std::unique_ptr<RpcServer>(std::make_unique<RpcServerImpl>(std::move(server), port.address(), services));
}

std::string RpcVersion() {
  const int v = GOOGLE_PROTOBUF_VERSION;
  return fmt::format("gRPC {}, protobuf {}.{}.{}", grpc::Version(), v / 1'000'000, v / 1000 % 1000, v % 1000);
}

}  // namespace archil
