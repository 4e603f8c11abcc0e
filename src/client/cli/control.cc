#include "client/cli/control.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/errno.h"

namespace archil::cli {
namespace {

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(Code::kNameTooLong, fmt::format("{}: too long for a socket; set ARCHIL_RUNTIME_DIR to a shorter path", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// -1 with errno if nobody listens.
int ConnectTo(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const int err = errno;
  close(fd);
  errno = err;
  return -1;
}

bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool SendLine(int fd, const Json& json) { return SendAll(fd, json.Dump() + "\n"); }

}  // namespace

ControlServer::ControlServer(Scheduler& scheduler, std::string path, Handler handler)
    : scheduler_(scheduler), path_(std::move(path)), handler_(std::move(handler)), mu_(scheduler) {}

ControlServer::~ControlServer() { Stop(); }

Status ControlServer::Start() {
  ARCHIL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path_));
  if (const int fd = ConnectTo(address); fd >= 0) {
    close(fd);
    return Error(Code::kBusy, fmt::format("another daemon listens on {}", path_));
  }
  unlink(path_.c_str());
  listen_fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listen_fd_ < 0) return ErrnoError(errno, "control socket");
  const mode_t mask = umask(0177);
  const int bound = bind(listen_fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  umask(mask);
  if (bound != 0 || listen(listen_fd_, 16) != 0) return ErrnoError(errno, path_);
  acceptor_ = scheduler_.Spawn("control", [this] { AcceptLoop(); });
  return Ok();
}

void ControlServer::AcceptLoop() {
  for (;;) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    MutexLock lock(mu_);
    if (fd < 0 || stopping_) {
      if (fd >= 0) close(fd);
      return;
    }
    Reap();
    if (connections_.size() >= kMaxConnections) {
      close(fd);
      continue;
    }
    Connection& connection = connections_.emplace_back();
    connection.fd = fd;
    connection.thread = scheduler_.Spawn("control-conn", [this, &connection] { Serve(connection); });
  }
}

void ControlServer::Serve(Connection& connection) {
  std::string line;
  char buf[4096];
  while (line.find('\n') == std::string::npos && line.size() < kMaxControlLine) {
    const ssize_t n = read(connection.fd, buf, sizeof(buf));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    line.append(buf, static_cast<size_t>(n));
  }
  Result<Json> request = ParseJson(std::string_view(line).substr(0, line.find('\n')));
  Json reply;
  if (request.ok()) {
    reply = handler_(*request, [&](const Json& progress) { SendLine(connection.fd, progress); });
  } else if (!line.empty()) {
    reply.Set("ok", false);
    reply.Set("message", "the request is not a line of JSON");
  }
  reply.Set("done", true);
  SendLine(connection.fd, reply);
  MutexLock lock(mu_);
  close(std::exchange(connection.fd, -1));
  connection.ended = true;
}

void ControlServer::Reap() {
  connections_.remove_if([](Connection& c) {
    if (!c.ended) return false;
    c.thread->Join();
    return true;
  });
}

void ControlServer::Stop() {
  if (listen_fd_ < 0) return;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    // Connections that have not asked anything yet end here; handlers that run are waited for.
    for (Connection& c : connections_) {
      if (c.fd >= 0) shutdown(c.fd, SHUT_RD);
    }
  }
  shutdown(listen_fd_, SHUT_RDWR);
  if (acceptor_ != nullptr) acceptor_->Join();
  std::list<Connection> connections;
  {
    // List nodes stay where they are, so the threads' references hold.
    MutexLock lock(mu_);
    connections.swap(connections_);
  }
  for (Connection& c : connections) c.thread->Join();
  close(std::exchange(listen_fd_, -1));
  unlink(path_.c_str());
}

// ---- client

Result<ControlClient> ControlClient::Connect(const std::string& path) {
  ARCHIL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  const int fd = ConnectTo(address);
  if (fd < 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return Error(Code::kNotFound, "no daemon listens on " + path);
    return ErrnoError(errno, path);
  }
  ucred peer = {};
  socklen_t size = sizeof(peer);
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return ControlClient(fd, peer.pid);
}

ControlClient::ControlClient(ControlClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), pid_(other.pid_), buffered_(std::move(other.buffered_)) {}

ControlClient::~ControlClient() {
  if (fd_ >= 0) close(fd_);
}

Result<Json> ControlClient::Call(const Json& request, absl::Duration patience,
                                 const std::function<void(const Json&)>& progress) {
  if (!SendLine(fd_, request)) return Error(Code::kUnavailable, "the mount's daemon has ended");
  for (;;) {
    ARCHIL_ASSIGN_OR_RETURN(const std::string line, ReadLine(absl::Now() + patience));
    ARCHIL_ASSIGN_OR_RETURN(Json json, ParseJson(line));
    if (json.GetBool("done")) return json;
    if (progress) progress(json);
  }
}

Result<std::string> ControlClient::ReadLine(absl::Time give_up) {
  for (;;) {
    const size_t newline = buffered_.find('\n');
    if (newline != std::string::npos) {
      std::string line = buffered_.substr(0, newline);
      buffered_.erase(0, newline + 1);
      return line;
    }
    if (buffered_.size() > kMaxControlLine) return Error(Code::kInvalid, "an endless line from the daemon");
    pollfd p = {fd_, POLLIN, 0};
    const int64_t left = absl::ToInt64Milliseconds(give_up - absl::Now());
    const int n = poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error(Code::kUnavailable, "the mount's daemon does not answer");
    char buf[4096];
    const ssize_t got = read(fd_, buf, sizeof(buf));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error(Code::kUnavailable, "the mount's daemon ended before it answered");
    buffered_.append(buf, static_cast<size_t>(got));
  }
}

}  // namespace archil::cli
