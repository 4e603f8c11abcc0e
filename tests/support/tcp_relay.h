// TcpRelay: a port of the loopback interface that passes bytes on to another one, and breaks connections where the test says.
// Thread safe; one thread of its own.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/env/sched.h"

namespace archil::test {

class TcpRelay {
 public:
  explicit TcpRelay(uint16_t to) : to_(to), listen_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), wake_(eventfd(0, EFD_CLOEXEC)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    ARCHIL_CHECK(bind(listen_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listen_, 16) == 0);
    ARCHIL_CHECK(getsockname(listen_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = RealScheduler().Spawn("tcp-relay", [this] { Loop(); });
  }
  ~TcpRelay() {
    Order([this] { stop_ = true; });
    thread_->Join();
    close(listen_);
    close(wake_);
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Every connection ends.
  void Cut() {
    Order([this] { cut_ = true; });
  }
  // The same after so many more bytes to the server.
  void CutAfter(size_t bytes) {
    Order([this, bytes] { up_left_ = bytes; });
  }
  // What the server says next is lost, and with it every connection.
  void LoseNextAnswer() {
    Order([this] { lose_down_ = true; });
  }
  int cuts() {
    MutexLock lock(mu_);
    return cuts_;
  }

 private:
  struct Pair {
    int client;
    int server;
  };

  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  template <class Fn>
  void Order(const Fn& fn) {
    MutexLock lock(mu_);
    fn();
    const uint64_t one = 1;
    ARCHIL_CHECK(write(wake_, &one, sizeof(one)) == sizeof(one));
  }

  void Loop() {
    std::vector<Pair> pairs;
    for (;;) {
      std::vector<pollfd> fds{{wake_, POLLIN, 0}, {listen_, POLLIN, 0}};
      for (const Pair& p : pairs) {
        fds.push_back({p.client, POLLIN, 0});
        fds.push_back({p.server, POLLIN, 0});
      }
      ARCHIL_CHECK(poll(fds.data(), fds.size(), -1) > 0);
      MutexLock lock(mu_);
      uint64_t orders = 0;
      if (fds[0].revents != 0) ARCHIL_CHECK(read(wake_, &orders, sizeof(orders)) == sizeof(orders));
      std::vector<Pair> left;
      for (size_t i = 0; i < pairs.size(); ++i) {
        const bool goes_on = !stop_ && !cut_ && (fds[2 + 2 * i].revents == 0 || PassUp(pairs[i])) &&
                             (fds[3 + 2 * i].revents == 0 || PassDown(pairs[i]));
        if (goes_on) {
          left.push_back(pairs[i]);
        } else {
          Close(pairs[i]);
        }
      }
      if (std::exchange(cut_, false)) {
        cuts_ += pairs.empty() ? 0 : 1;
        for (const Pair& pair : left) Close(pair);
        left.clear();
      }
      pairs = std::move(left);
      if (stop_) return;
      if (fds[1].revents != 0) Accept(pairs);
    }
  }

  bool PassUp(const Pair& pair) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::string bytes = Read(pair.client);
    const bool last = up_left_ && *up_left_ <= bytes.size();
    if (last) {
      bytes.resize(*up_left_);
      up_left_.reset();
      cut_ = true;
    } else if (up_left_) {
      *up_left_ -= bytes.size();
    }
    return Write(pair.server, bytes) && !last && !bytes.empty();
  }
  bool PassDown(const Pair& pair) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::string bytes = Read(pair.server);
    if (bytes.empty()) return false;
    if (std::exchange(lose_down_, false)) {
      cut_ = true;
      return false;
    }
    return Write(pair.client, bytes);
  }
  static std::string Read(int fd) {
    std::string bytes(64 << 10, '\0');
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(recv(fd, bytes.data(), bytes.size(), 0), 0)));
    return bytes;
  }
  static bool Write(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  static void Close(const Pair& pair) {
    close(pair.client);
    close(pair.server);
  }
  void Accept(std::vector<Pair>& pairs) const {
    const Pair pair{accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC), socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const sockaddr_in address = Loopback(to_);
    if (pair.client >= 0 && connect(pair.server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      pairs.push_back(pair);
    } else {
      Close(pair);
    }
  }

  const uint16_t to_;
  const int listen_;
  const int wake_;
  uint16_t port_ = 0;
  Mutex mu_{RealScheduler()};
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool cut_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<size_t> up_left_ ABSL_GUARDED_BY(mu_);
  bool lose_down_ ABSL_GUARDED_BY(mu_) = false;
  int cuts_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<Thread> thread_;
};

}  // namespace archil::test
