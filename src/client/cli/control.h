// The control socket of a mount: a unix stream socket in the runtime directory. A client sends one line of JSON
// ({"command": NAME, …}) and reads lines until one has "done": true; lines before it tell progress. It needs neither the server
// nor the mounted file system.
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/cli/json.h"
#include "common/base/result.h"
#include "common/env/sched.h"

namespace archil::cli {

inline constexpr size_t kMaxControlLine = 1 << 20;

// The daemon's side. Each connection has a thread, so a long command keeps no short one waiting.
class ControlServer {
 public:
  // Sends a line that is not the last.
  using Progress = std::function<void(const Json&)>;
  // Returns the last line's members. Called from many threads.
  using Handler = std::function<Json(const Json& request, const Progress& progress)>;

  ControlServer(Scheduler& scheduler, std::string path, Handler handler);
  ~ControlServer();  // Stop

  // Replaces a socket that nobody listens on. kBusy if somebody does.
  Status Start();
  // Ends all connections once their handlers have returned, and removes the socket. Idempotent.
  void Stop();

 private:
  struct Connection {
    int fd = -1;
    std::unique_ptr<Thread> thread;
    bool ended = false;
  };
  static constexpr size_t kMaxConnections = 32;
  void AcceptLoop();
  void Serve(Connection& connection);
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Scheduler& scheduler_;
  const std::string path_;
  const Handler handler_;
  int listen_fd_ = -1;
  std::unique_ptr<Thread> acceptor_;
  Mutex mu_;
  std::list<Connection> connections_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

// The command's side: one request over one connection.
class ControlClient {
 public:
  // kNotFound: no daemon listens there (none was started, or it died).
  static Result<ControlClient> Connect(const std::string& path);
  ControlClient(ControlClient&& other) noexcept;
  ControlClient& operator=(ControlClient&&) = delete;
  ~ControlClient();

  // Sends the request and reads until the last line, which it returns; `progress` sees the others. kUnavailable when
  // no line comes for `patience`, or the daemon ends first.
  Result<Json> Call(const Json& request, absl::Duration patience, const std::function<void(const Json&)>& progress = {});
  pid_t daemon_pid() const { return pid_; }

 private:
  ControlClient(int fd, pid_t pid) : fd_(fd), pid_(pid) {}
  Result<std::string> ReadLine(absl::Time give_up);
  int fd_;
  pid_t pid_;
  std::string buffered_;
};

}  // namespace archil::cli
