#include "client/fuse/fuse_mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "client/fuse/kernel_notifier.h"
#include "client/fuse/mount_table.h"
#include "client/fuse/session.h"
#include "common/base/errno.h"
#include "common/obs/log.h"

namespace archil {
namespace {

// The largest WRITE (1 MiB, 256 pages) and the header page that libfuse reckons with.
constexpr size_t kRequestBuffer = (256 + 1) * 4096;
// FUSE_NOTIFY_INC_EPOCH of linux/fuse.h, newer than the headers of Debian 12.
constexpr int32_t kNotifyIncEpoch = 8;
// How often a request whose thread was interrupted is looked at again.
constexpr int kRecheckMillis = 100;

uint64_t MonotonicNanos() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// fuse_session_new and fuse_session_mount say why only on stderr or in errno.
Status MountError(const FuseOptions& options, int err) {
  if (err == EPERM || err == EACCES) {
    return Error(Code::kPermission,
                 fmt::format("not allowed to mount on {}: run as root, or install fuse3 and set user_allow_other in "
                             "/etc/fuse.conf", options.mountpoint));
  }
  if (err == ENODEV || err == ENXIO) {
    return Error(Code::kNotSupported, "the kernel has no FUSE (/dev/fuse is missing): load it with `modprobe fuse`");
  }
  if (err == ENOTCONN) {
    return Error(Code::kBusy, fmt::format("{} is the mount point of a daemon that died: `umount -l {}` first",
                                          options.mountpoint, options.mountpoint));
  }
  return ErrnoError(err == 0 ? EIO : err, fmt::format("mounting on {}", options.mountpoint));
}

class FuseMountImpl final : public FuseMount {
 public:
  FuseMountImpl(Scheduler& scheduler, const FuseOptions& options)
      : scheduler_(scheduler),
        options_(options),
        session_(scheduler, this, options),
        notifier_(scheduler, [this](const KernelNotifier::Item& item) { Deliver(item); }),
        mu_(scheduler),
        serving_(scheduler),
        ended_(scheduler) {}
  ~FuseMountImpl() override { Stop(); }

  KernelCache& kernel_cache() override { return notifier_; }
  Status Start(FsApi& fs) override;
  void WaitForEnd() override { ended_.Wait(); }
  bool ended() override { return ended_.HasBeenNotified(); }
  Status Unmount(bool lazy) override;
  void Abort() override;
  void Stop() override;
  std::map<std::string, uint64_t> Metrics() override;
  std::vector<std::string> InitFlags() override { return InitFlagNames(init_flags_.load()); }
  bool keeps_names() override { return session_.keeps_names(); }
  uint32_t connection() override { return connection_.load(); }

 private:
  Status MountAndPrepare();
  void ReadLoop();
  // Waits for a request or the end. False: the end.
  bool AwaitReadable(bool may_poll, uint64_t last_request);
  void Serve(char* request, size_t size);
  void Deliver(const KernelNotifier::Item& item);
  ssize_t Send(int fd, iovec* iov, int count);
  static ssize_t SendHook(int fd, iovec* iov, int count, void* self);
  static ssize_t ReadHook(int fd, void* buf, size_t size, void* self);
  void EnlargeReadahead(const MountEntry& mount);
  bool Severed() const;

  Scheduler& scheduler_;
  const FuseOptions options_;
  fuse::Session session_;
  KernelNotifier notifier_;
  fuse_session* se_ = nullptr;
  int fd_ = -1;       // the session's own
  int stop_fd_ = -1;  // readable: the reader ends
  std::unique_ptr<Thread> reader_;

  std::atomic<uint64_t> init_flags_{0};
  std::atomic<uint32_t> connection_{0};
  std::atomic<uint64_t> sleeps_{0};
  std::atomic<uint64_t> poll_hits_{0};
  uint64_t offered_ = 0;  // by the kernel at INIT; the reader's
  std::atomic<bool> in_init_{false};

  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  Notification serving_;  // INIT was answered, or never will be
  Notification ended_;
};

Status FuseMountImpl::Start(FsApi& fs) {
  session_.set_fs(&fs);
  session_.set_root(fs.Root());
  ARCHIL_RETURN_IF_ERROR(MountAndPrepare());
  notifier_.Start();
  reader_ = scheduler_.Spawn("fuse-reader", [this] { ReadLoop(); });
  if (!serving_.WaitUntil(scheduler_.clock().Boot() + absl::Seconds(20)) || init_flags_.load() == 0) {
    Abort();
    return Error(Code::kIo, fmt::format("the kernel did not start the mount on {}", options_.mountpoint));
  }
  if (const uint64_t missing = InitPolicyOf(options_.personality).must & ~init_flags_.load(); missing != 0) {
    Abort();
    return Error(Code::kNotSupported,
                 fmt::format("this kernel's FUSE lacks {}", fmt::join(InitFlagNames(missing), ", ")));
  }
  if (const std::optional<MountEntry> mount = FindMount(options_.mountpoint)) {
    connection_ = mount->device_minor;
    EnlargeReadahead(*mount);
  }
  return Ok();
}

Status FuseMountImpl::MountAndPrepare() {
  std::string mount_options = fmt::format("default_permissions,subtype=archil,fsname={},dev,suid", options_.fsname);
  if (options_.allow_other) mount_options += ",allow_other";
  if (options_.read_only) mount_options += ",ro";
  char name[] = "archil";
  char dash_o[] = "-o";
  char* argv[] = {name, dash_o, mount_options.data(), nullptr};
  fuse_args args = {3, argv, 0};
  const fuse_lowlevel_ops ops = fuse::Handlers(options_.personality);
  se_ = fuse_session_new(&args, &ops, sizeof(ops), &session_);
  fuse_opt_free_args(&args);
  if (se_ == nullptr) return Error(Code::kInternal, "libfuse refuses the options " + mount_options);
  errno = 0;
  if (fuse_session_mount(se_, options_.mountpoint.c_str()) != 0) {
    const int err = errno;
    fuse_session_destroy(std::exchange(se_, nullptr));
    return MountError(options_, err);
  }
  fd_ = fuse_session_fd(se_);
  stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  fuse_custom_io io = {};
  io.writev = SendHook;
  io.read = ReadHook;
  const bool hooked = fuse_session_custom_io(se_, &io, fd_) == 0;
  fcntl(fd_, F_SETFD, FD_CLOEXEC);
  // The reader polls by reading, so reads must not sleep; writes to the device never do.
  if (!hooked || stop_fd_ < 0 || fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK) != 0) {
    umount2(options_.mountpoint.c_str(), MNT_DETACH);
    return Error(Code::kInternal, "preparing /dev/fuse failed");
  }
  return Ok();
}

// The kernel caps read-ahead by the device's setting, 128 KiB by default. Best effort: needs root.
void FuseMountImpl::EnlargeReadahead(const MountEntry& mount) {
  const std::string path =
      fmt::format("/sys/class/bdi/{}:{}/read_ahead_kb", mount.device_major, mount.device_minor);
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  const std::string value = fmt::format("{}", options_.max_readahead_kb);
  if (write(fd, value.data(), value.size()) < 0) {
    // The default stays.
  }
  close(fd);
}

// ---- the reader

void FuseMountImpl::ReadLoop() {
  std::unique_ptr<char, void (*)(void*)> buffer(static_cast<char*>(std::aligned_alloc(4096, kRequestBuffer)), std::free);
  const bool may_poll = options_.poll_for > absl::ZeroDuration();
  uint64_t last_request = 0;
  for (;;) {
    const ssize_t n = read(fd_, buffer.get(), kRequestBuffer);
    if (n > 0) {
      Serve(buffer.get(), static_cast<size_t>(n));
      if (may_poll) last_request = MonotonicNanos();
      continue;
    }
    if (n == 0) break;
    if (errno == EINTR || errno == ENOENT) continue;  // ENOENT: the request was taken back while it was read
    if (errno != EAGAIN) break;                       // ENODEV: unmounted. ECONNABORTED: aborted
    if (!AwaitReadable(may_poll, last_request)) break;
  }
  notifier_.Close();
  serving_.Notify();
  ended_.Notify();
}

bool FuseMountImpl::AwaitReadable(bool may_poll, uint64_t last_request) {
  pollfd fds[] = {{fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  if (may_poll) {
    const uint64_t until = last_request + absl::ToInt64Nanoseconds(options_.poll_for);
    while (MonotonicNanos() < until) {
      if (poll(fds, 1, 0) != 0) {
        poll_hits_.fetch_add(1, std::memory_order_relaxed);
        return true;
      }
    }
  }
  sleeps_.fetch_add(1, std::memory_order_relaxed);
  for (;;) {
    const int timeout = session_.waiting().HasInterrupted() ? kRecheckMillis : -1;
    const int n = poll(fds, 2, timeout);
    if (n > 0) return (fds[1].revents & POLLIN) == 0;
    if (n < 0 && errno != EINTR) return false;
    if (n == 0) session_.waiting().Recheck();
  }
}

void FuseMountImpl::Serve(char* request, size_t size) {
  const RequestPeek peek = Peek(request, size);
  session_.Begin(peek);
  if (peek.opcode == FUSE_INTERRUPT) {
    // Ours to act on: only requests that wait in a worker can be found by it, and the reader is the one that adds them.
    session_.waiting().Interrupt(peek.interrupted);
    return;
  }
  if (peek.opcode == FUSE_INIT) {
    offered_ = peek.init_flags;
    in_init_ = true;
  }
  fuse_buf buf = {};
  buf.size = size;
  buf.mem = request;
  fuse_session_process_buf(se_, &buf);
  if (peek.opcode == FUSE_INIT) {
    in_init_ = false;
    serving_.Notify();
  }
}

ssize_t FuseMountImpl::ReadHook(int fd, void* buf, size_t size, void*) { return read(fd, buf, size); }

ssize_t FuseMountImpl::SendHook(int fd, iovec* iov, int count, void* userdata) {
  auto* session = static_cast<fuse::Session*>(userdata);
  return static_cast<FuseMountImpl*>(session->owner())->Send(fd, iov, count);
}

ssize_t FuseMountImpl::Send(int fd, iovec* iov, int count) {
  if (in_init_.load(std::memory_order_relaxed) && count == 2 && iov[1].iov_len >= sizeof(fuse_init_out)) {
    init_flags_ = CorrectInitReply(iov[1].iov_base, iov[1].iov_len, offered_, InitPolicyOf(options_.personality));
  }
  const ssize_t n = writev(fd, iov, count);
  // After an unmount or abort nobody wants the answer; to libfuse that is an interrupted request.
  if (n < 0 && (errno == ENODEV || errno == ECONNABORTED || errno == ENOTCONN || errno == EPERM)) errno = ENOENT;
  return n;
}

void FuseMountImpl::Deliver(const KernelNotifier::Item& item) {
  if (item.all_names) {
    if (!session_.keeps_names()) return;
    // libfuse 3.14 does not know this one (Linux 6.16, FUSE 7.44). It does not wait for anything.
    fuse_out_header header = {};
    header.len = sizeof(header);
    header.error = kNotifyIncEpoch;
    iovec iov = {&header, sizeof(header)};
    if (Send(fd_, &iov, 1) < 0 && errno != ENOENT) LogError("fuse.names_not_dropped", {{"mountpoint", options_.mountpoint}, {"errno", errno}});
    return;
  }
  const fuse_ino_t node = session_.NodeOf(item.ino);
  if (!item.name.empty()) {
    fuse_lowlevel_notify_inval_entry(se_, node, item.name.data(), item.name.size());
    return;
  }
  if (item.length == 0) {
    fuse_lowlevel_notify_inval_inode(se_, node, -1, 0);
    return;
  }
  // To the kernel length 0 means up to the end.
  constexpr uint64_t kMaxOffset = kMaxFileSize;
  const bool to_end = item.length >= kMaxOffset || item.offset > kMaxOffset - item.length;
  fuse_lowlevel_notify_inval_inode(se_, node, static_cast<off_t>(item.offset), to_end ? 0 : static_cast<off_t>(item.length));
}

// ---- the end

Status FuseMountImpl::Unmount(bool lazy) {
  if (umount2(options_.mountpoint.c_str(), lazy ? MNT_DETACH : 0) == 0) return Ok();
  const int err = errno;
  if (err == EINVAL && !FindMount(options_.mountpoint)) return Ok();  // someone else unmounted it
  if (err != EPERM) return ErrnoError(err, fmt::format("unmounting {}", options_.mountpoint));
  // Not root: the setuid helper may do it for the one who mounted.
  const pid_t child = fork();
  if (child == 0) {
    execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", options_.mountpoint.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return ErrnoError(errno, "running fusermount3");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Ok();
  return Error(Code::kBusy, fmt::format("fusermount3 could not unmount {}", options_.mountpoint));
}

void FuseMountImpl::Abort() {
  const std::optional<MountEntry> mount = FindMount(options_.mountpoint);
  // The mount may be detached already, or not be ours any more; the reader's end cuts the connection in any case.
  if (mount && (connection_ == 0 || mount->device_minor == connection_)) AbortConnection(*mount);
  const uint64_t one = 1;
  if (stop_fd_ >= 0 && write(stop_fd_, &one, sizeof(one)) < 0) {
    // The counter is full: it is readable, which is all that is wanted.
  }
}

// True if the connection has ended: unmounted or aborted.
bool FuseMountImpl::Severed() const {
  pollfd device = {fd_, 0, 0};
  return poll(&device, 1, 0) == 1 && (device.revents & POLLERR) != 0;
}

void FuseMountImpl::Stop() {
  {
    MutexLock lock(mu_);
    if (std::exchange(stopped_, true)) return;
  }
  if (se_ == nullptr) return;
  if (reader_ != nullptr) {
    if (!ended()) Abort();
    reader_->Join();
  }
  session_.waiting().CancelAll();
  session_.pool().Stop();
  session_.lock_pool().Stop();
  // An invalidation under way may wait for a page of a request that was never answered; closing the device ends it.
  const bool mounted = FindMount(options_.mountpoint).has_value();
  if (mounted && connection_ != 0 && FindMount(options_.mountpoint)->device_minor == connection_) {
    umount2(options_.mountpoint.c_str(), MNT_DETACH);
  }
  notifier_.Stop();
  // libfuse frees its copy of the mount point only here. While the connection lives it would also unmount what is at that path by
  // now, which need not be ours; then the copy is left.
  if (Severed()) fuse_session_unmount(se_);
  fuse_session_destroy(std::exchange(se_, nullptr));
  fd_ = -1;  // closed by either of the two
  if (stop_fd_ >= 0) close(std::exchange(stop_fd_, -1));
}

std::map<std::string, uint64_t> FuseMountImpl::Metrics() {
  std::map<std::string, uint64_t> m;
  for (uint32_t op = 0; op <= kMaxOpcode; ++op) {
    const uint64_t count = session_.upcalls(op);
    const std::string_view name = OpcodeName(op);
    if (name.empty() && count == 0) continue;
    m["upcall_" + (name.empty() ? "other" : std::string(name))] += count;
  }
  m["fuse_handed_over"] = session_.handed_over();
  m["fuse_reader_sleeps"] = sleeps_.load(std::memory_order_relaxed);
  m["fuse_reader_poll_hits"] = poll_hits_.load(std::memory_order_relaxed);
  m["fuse_cancelled"] = session_.waiting().cancelled();
  m["fuse_waiting"] = session_.waiting().size();
  m["fuse_workers"] = session_.pool().threads();
  m["fuse_lock_waiters"] = session_.lock_waiters();
  m["fuse_invalidations"] = notifier_.delivered();
  return m;
}

}  // namespace

std::unique_ptr<FuseMount> FuseMount::Create(Scheduler& scheduler, const FuseOptions& options) {
  return std::make_unique<FuseMountImpl>(scheduler, options);
}

}  // namespace archil
