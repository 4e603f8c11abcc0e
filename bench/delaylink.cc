// delaylink: a switch in user space that joins hosts (network namespaces) and keeps every frame for a fixed time. Each
// host gets a TAP device in its namespace. Links can be cut and healed while it runs.
//
//   delaylink --delay 250us --control PATH [--device NAME] --host NAME=NETNS --host NAME=NETNS…
//
// Says "ready" on standard output when all devices are up. Commands are packets on the SEQPACKET socket PATH, one
// answer each: "cut HOST", "heal HOST", "status" (a line of JSON). SIGTERM and SIGINT end it; the devices go with it.
//
// The frames wait in one ring of bytes in order of arrival, which is the order of leaving because all wait equally
// long. A frame is read from one device into its place and written from there to the others: nothing is copied in
// between. The devices leave segmentation to nobody (virtio headers, TSO): a "frame" of a TCP stream is up to 64 KiB,
// so that the calls of the kernel are few. A full ring is not read into; then the queue of the device drops, as at any
// router.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace archil {
namespace {

constexpr size_t kMaxHosts = 64;
constexpr size_t kHeader = 10;              // struct virtio_net_hdr, which C++ cannot include
constexpr size_t kMaxFrame = (68 << 10);    // a segment of 64 KiB with all headers
constexpr size_t kRingBytes = (256 << 20);  // 20 ms of 100 Gbit/s; touched only as far as it fills
constexpr int64_t kAwakeNs =
    100'000;                // before a frame is due the thread is awake: an idle processor is late by as much
constexpr int kBatch = 64;  // frames read from one device before the others have their turn

[[noreturn]] void Die(int code, const std::string& what) {
  std::fprintf(stderr, "delaylink: %s\n", what.c_str());
  std::exit(code);
}

[[noreturn]] void DieErrno(const std::string& what) { Die(1, what + ": " + std::strerror(errno)); }

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Options {
  struct Host {
    std::string name;
    std::string netns;
  };
  absl::Duration delay = absl::ZeroDuration();
  std::string control;
  std::string device = "eth0";
  std::vector<Host> hosts;
};

bool ValidName(std::string_view name) {
  return !name.empty() && name.size() < IFNAMSIZ &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
}

Options::Host ParseHost(const std::string& value) {
  const size_t equal = value.find('=');
  if (equal == std::string::npos || equal + 1 == value.size() || !ValidName(value.substr(0, equal))) {
    Die(2, fmt::format("--host {}: want NAME=PATH-OF-A-NETWORK-NAMESPACE", value));
  }
  return {value.substr(0, equal), value.substr(equal + 1)};
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  bool delay_given = false;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name != "--delay" && name != "--control" && name != "--device" && name != "--host") {
      Die(2, fmt::format("unknown argument {}"
                         "\nusage: delaylink --delay 250us --control PATH [--device NAME] --host NAME=NETNS…",
                         name));
    }
    if (i + 1 == argc) Die(2, fmt::format("{} needs a value", name));
    const std::string value = argv[i + 1];
    if (name == "--delay") {
      delay_given = absl::ParseDuration(value, &options.delay) && options.delay >= absl::ZeroDuration() &&
                    options.delay <= absl::Seconds(10);
      if (!delay_given) Die(2, fmt::format("--delay {}: want a time one way from 0 to 10s, such as 250us", value));
    } else if (name == "--control") {
      options.control = value;
      if (value.empty() || value.size() >= sizeof(sockaddr_un::sun_path)) {
        Die(2, "--control: the path is empty or too long for a socket");
      }
    } else if (name == "--device") {
      options.device = value;
      if (!ValidName(value)) Die(2, fmt::format("--device {}: no name for a network device", value));
    } else {
      options.hosts.push_back(ParseHost(value));
    }
  }
  if (!delay_given) Die(2, "--delay is missing");
  if (options.control.empty()) Die(2, "--control is missing");
  if (options.hosts.size() < 2 || options.hosts.size() > kMaxHosts) {
    Die(2, fmt::format("want 2 to {} times --host, not {}", kMaxHosts, options.hosts.size()));
  }
  for (size_t i = 0; i < options.hosts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (options.hosts[i].name == options.hosts[j].name) {
        Die(2, fmt::format("--host {} is there twice", options.hosts[i].name));
      }
    }
  }
  return options;
}

// A TAP device in `netns`, up, that hands over unsegmented TCP. Ends the program if that is not possible. The calling
// thread is left in that namespace.
int OpenTap(const std::string& netns, const std::string& device) {
  const int ns = open(netns.c_str(), O_RDONLY | O_CLOEXEC);
  if (ns < 0) DieErrno(netns);
  if (setns(ns, CLONE_NEWNET) != 0) DieErrno("entering " + netns);
  close(ns);
  const int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tap < 0) DieErrno("/dev/net/tun");
  ifreq request = {};
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  std::memcpy(request.ifr_name, device.data(), device.size());
  if (ioctl(tap, TUNSETIFF, &request) != 0) DieErrno(fmt::format("making {} in {}", device, netns));
  int header = kHeader;
  if (ioctl(tap, TUNSETVNETHDRSZ, &header) != 0) DieErrno("TUNSETVNETHDRSZ");
  if (ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN) != 0) DieErrno("TUNSETOFFLOAD");
  const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (control < 0 || ioctl(control, SIOCGIFFLAGS, &request) != 0) DieErrno(device);
  request.ifr_flags = static_cast<int16_t>(request.ifr_flags | IFF_UP);
  if (ioctl(control, SIOCSIFFLAGS, &request) != 0) DieErrno("bringing up " + device);
  close(control);
  return tap;
}

// The switch. One thread; nothing in it waits but Run's ppoll.
class Relay {
 public:
  Relay(const Options& options, int listener, const sigset_t& while_waiting)
      : delay_ns_(absl::ToInt64Nanoseconds(options.delay)), listener_(listener), while_waiting_(while_waiting) {
    ring_ = static_cast<uint8_t*>(
        mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (ring_ == MAP_FAILED) DieErrno("mmap");
    for (const Options::Host& host : options.hosts) ports_.push_back({host.name, OpenTap(host.netns, options.device)});
  }

  // Until `ended` is set by a signal, which is let in only while nothing is to be done.
  void Run(const volatile sig_atomic_t& ended) {
    while (!ended) {
      Wait();
      for (size_t i = 0; i < ports_.size(); ++i) {
        if (polled_[i].revents != 0) Receive(i);
        Deliver();
      }
      Deliver();
      Serve();
    }
  }

 private:
  struct Port {
    std::string name;
    int fd;
    bool cut = false;
    uint64_t received = 0;
    uint64_t sent = 0;
    uint64_t dropped = 0;  // by a cut, or because the device did not take it
  };
  struct Frame {
    int64_t due_ns;
    size_t at;  // in the ring
    uint32_t size;
    uint32_t from;
    uint64_t to;  // a bit for each port
  };

  void Wait() {
    polled_.clear();
    for (const Port& port : ports_) polled_.push_back({HasRoom() ? port.fd : -1, POLLIN, 0});
    polled_.push_back({listener_, POLLIN, 0});
    for (const int caller : callers_) polled_.push_back({caller, POLLIN, 0});
    timespec timeout = {3600, 0};
    if (!frames_.empty()) {
      const int64_t left = std::max<int64_t>(0, frames_.front().due_ns - NowNs() - kAwakeNs);
      timeout = {left / 1'000'000'000, left % 1'000'000'000};
    }
    if (ppoll(polled_.data(), polled_.size(), &timeout, &while_waiting_) < 0) {
      if (errno != EINTR) DieErrno("ppoll");
      for (pollfd& p : polled_) p.revents = 0;
    }
  }

  // Whether a frame of any size fits at head_ after the call; moves it to the start of the ring when the end is near.
  // The bytes of the oldest frame are the tail.
  bool HasRoom() {
    if (frames_.empty()) {
      head_ = 0;
      return true;
    }
    const size_t tail = frames_.front().at;
    if (head_ > tail) {
      if (kRingBytes - head_ >= kMaxFrame) return true;
      if (tail < kMaxFrame) return false;
      head_ = 0;
    }
    return tail - head_ > kMaxFrame;
  }

  void Receive(size_t from) {
    Port& port = ports_[from];
    for (int i = 0; i < kBatch && HasRoom(); ++i) {
      uint8_t* const place = ring_ + head_;
      const ssize_t size = read(port.fd, place, kMaxFrame);
      if (size < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        DieErrno("the device of " + port.name);  // its namespace is gone
      }
      if (static_cast<size_t>(size) < kHeader + 14) continue;
      ++port.received;
      if (port.cut) {
        ++port.dropped;
        continue;
      }
      frames_.push_back({NowNs() + delay_ns_, head_, static_cast<uint32_t>(size), static_cast<uint32_t>(from),
                         Targets(from, place + kHeader)});
      head_ += (static_cast<size_t>(size) + 7) & ~size_t{7};
    }
  }

  // Learns where the sender of an Ethernet frame is, and says where its receiver is: everywhere else if that is
  // unknown.
  uint64_t Targets(size_t from, const uint8_t* frame) {
    const auto address = [](const uint8_t* bytes) {
      uint64_t value = 0;
      std::memcpy(&value, bytes, 6);
      return value;
    };
    places_[address(frame + 6)] = from;
    const auto found = places_.find(address(frame));
    const uint64_t to = found != places_.end() ? uint64_t{1} << found->second : ~uint64_t{0} >> (64 - ports_.size());
    return to & ~(uint64_t{1} << from);
  }

  void Deliver() {
    while (!frames_.empty()) {
      const Frame frame = frames_.front();
      const int64_t late = NowNs() - frame.due_ns;
      if (late < 0) return;
      late_max_ns_ = std::max(late_max_ns_, late);
      late_sum_ns_ += late;
      ++delivered_;
      for (size_t to = 0; to < ports_.size(); ++to) {
        if ((frame.to >> to & 1) == 0) continue;
        Port& port = ports_[to];
        // What was on its way when a link was cut is lost too.
        const bool lost = port.cut || ports_[frame.from].cut;
        if (!lost && write(port.fd, ring_ + frame.at, frame.size) == static_cast<ssize_t>(frame.size)) {
          ++port.sent;
        } else {
          ++port.dropped;
        }
      }
      frames_.pop_front();
    }
  }

  void Serve() {
    const size_t first = ports_.size() + 1;
    for (size_t i = first; i < polled_.size(); ++i) {
      if (polled_[i].revents == 0) continue;
      char text[256];
      const ssize_t size = recv(polled_[i].fd, text, sizeof(text), MSG_DONTWAIT);
      if (size > 0) {
        const std::string answer = Answer(std::string_view(text, static_cast<size_t>(size)));
        (void)send(polled_[i].fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      } else {
        close(polled_[i].fd);
        callers_.erase(std::find(callers_.begin(), callers_.end(), polled_[i].fd));
      }
    }
    if (polled_[first - 1].revents != 0) {
      const int caller = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (caller >= 0) callers_.push_back(caller);
    }
  }

  std::string Answer(std::string_view command) {
    if (command == "status") return Status();
    const size_t space = command.find(' ');
    const std::string_view verb = command.substr(0, space);
    if (space == std::string_view::npos || (verb != "cut" && verb != "heal")) {
      return "error: want \"cut HOST\", \"heal HOST\" or \"status\"";
    }
    for (Port& port : ports_) {
      if (port.name != command.substr(space + 1)) continue;
      port.cut = verb == "cut";
      return "ok";
    }
    return fmt::format("error: no host {}", command.substr(space + 1));
  }

  std::string Status() const {
    std::string hosts;
    for (const Port& port : ports_) {
      hosts += fmt::format(R"({}"{}":{{"cut":{},"received":{},"sent":{},"dropped":{}}})", hosts.empty() ? "" : ",",
                           port.name, port.cut, port.received, port.sent, port.dropped);
    }
    const double mean = delivered_ == 0 ? 0 : static_cast<double>(late_sum_ns_) / static_cast<double>(delivered_);
    return fmt::format(
        R"({{"delay_us":{:.1f},"waiting":{},"late_us_mean":{:.1f},"late_us_max":{:.1f},"hosts":{{{}}}}})",
        static_cast<double>(delay_ns_) / 1000, frames_.size(), mean / 1000, static_cast<double>(late_max_ns_) / 1000,
        hosts);
  }

  const int64_t delay_ns_;
  const int listener_;
  const sigset_t while_waiting_;
  uint8_t* ring_;
  size_t head_ = 0;           // where the next frame is read to
  std::deque<Frame> frames_;  // in order of arrival
  std::vector<Port> ports_;
  std::map<uint64_t, size_t> places_;  // Ethernet address to port
  std::vector<pollfd> polled_;         // the ports, the listener, the callers
  std::vector<int> callers_;
  uint64_t delivered_ = 0;
  int64_t late_sum_ns_ = 0;
  int64_t late_max_ns_ = 0;
};

int Listen(const std::string& path) {
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 8) != 0) {
    DieErrno("--control " + path);
  }
  return listener;
}

volatile sig_atomic_t g_ended = 0;

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  prctl(PR_SET_TIMERSLACK, 1);    // ns: else every waiting is 50 us longer
  const sched_param first = {1};  // before all that computes, if that is allowed: a switch waits for nobody
  (void)sched_setscheduler(0, SCHED_RR, &first);
  sigset_t ending, before;
  sigemptyset(&ending);
  for (const int sig : {SIGTERM, SIGINT}) {
    signal(sig, [](int) { g_ended = 1; });
    sigaddset(&ending, sig);
  }
  sigprocmask(SIG_BLOCK, &ending, &before);
  Relay relay(options, Listen(options.control), before);
  std::printf("ready\n");
  std::fflush(stdout);
  relay.Run(g_ended);
  unlink(options.control.c_str());
  return 0;
}

}  // namespace
}  // namespace archil

int main(int argc, char** argv) { return archil::Main(argc, argv); }
