#include "tests/unit/client/fuse/mounted.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace archil {
namespace {

bool g_can_mount = false;

// Before any thread exists.
class OwnMountNamespace : public ::testing::Environment {
 public:
  void SetUp() override {
    g_can_mount = unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                  access("/dev/fuse", R_OK | W_OK) == 0;
  }
};
[[maybe_unused]] const auto* const g_environment = ::testing::AddGlobalTestEnvironment(new OwnMountNamespace);

}  // namespace

void OnRealMount::SetUp() {
  ASSERT_TRUE(g_can_mount) << "this test mounts: it needs /dev/fuse and the right to use mount namespaces (root); ctest -LE e2e leaves it out";
}

Mounted::Mounted(FuseOptions options) : fs_(RealScheduler()), done_(RealScheduler()) {
  char dir[] = "/tmp/archil-fuse-test-XXXXXX";
  EXPECT_NE(mkdtemp(dir), nullptr);
  dir_ = dir;
  EXPECT_EQ(chmod(dir, 0755), 0);  // other users look in
  root_ = dir_ + "/mnt";
  EXPECT_EQ(mkdir(root_.c_str(), 0755), 0);
  options.mountpoint = root_;
  options.fsname = "memory";
  mount_ = FuseMount::Create(RealScheduler(), options);
  const Status started = mount_->Start(fs_);
  EXPECT_TRUE(started.ok()) << started.error().ToString();
  // A process that waits for its own mount cannot be killed; a test that hangs is freed by cutting the connection.
  watchdog_ = RealScheduler().Spawn("watchdog", [this] {
    if (done_.WaitUntil(RealClock().Boot() + absl::Seconds(90))) return;
    ADD_FAILURE() << "the mount is cut off: the test takes too long";
    mount_->Abort();
  });
}

Mounted::~Mounted() {
  done_.Notify();
  watchdog_->Join();
  if (!mount_->Unmount(false).ok()) (void)mount_->Unmount(true);
  mount_->Stop();
  rmdir(root_.c_str());
  rmdir(dir_.c_str());
}

uint64_t Mounted::Upcalls() {
  EXPECT_TRUE(Eventually([&] { return fs_.open_handles() == 0; }));
  uint64_t sum = 0;
  for (const auto& [name, value] : mount_->Metrics()) {
    if (name.rfind("upcall_", 0) == 0 && name != "upcall_forget" && name != "upcall_batch_forget" && name != "upcall_init") {
      sum += value;
    }
  }
  return sum;
}

int Shell(const Mounted& mounted, const std::string& script, int seconds) {
  char log[] = "/tmp/archil-fuse-shell-XXXXXX";
  const int out = mkstemp(log);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    const std::string limit = std::to_string(seconds);
    execlp("timeout", "timeout", "-k", "2", limit.c_str(), "bash", "-euc", script.c_str(), "bash", mounted.root().c_str(), nullptr);
    _exit(127);
  }
  int status = -1;
  EXPECT_TRUE(AwaitChild(pid, seconds + 10, &status));
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code != 0) {
    std::string text(16384, '\0');
    const ssize_t n = pread(out, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    ADD_FAILURE() << "script ended with " << code << ":\n" << text;
  }
  close(out);
  unlink(log);
  return code;
}

void WriteFile(const std::string& path, const std::string& bytes, int flags) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  ASSERT_GE(fd, 0) << path << ": " << std::strerror(errno);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    ASSERT_GT(n, 0) << std::strerror(errno);
    done += static_cast<size_t>(n);
  }
  close(fd);
}

std::string ReadFile(const std::string& path) {
  std::string bytes;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0) << path << ": " << std::strerror(errno);
  if (fd < 0) return bytes;
  std::string buf(1 << 20, '\0');
  for (ssize_t n; (n = read(fd, buf.data(), buf.size())) > 0;) bytes.append(buf, 0, static_cast<size_t>(n));
  close(fd);
  return bytes;
}

bool AwaitChild(pid_t pid, int seconds, int* status) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  pollfd p = {fd, POLLIN, 0};
  const bool ended = poll(&p, 1, seconds * 1000) > 0;
  close(fd);
  if (!ended) kill(pid, SIGKILL);
  if (ended) waitpid(pid, status, 0);
  return ended;
}

bool Eventually(const std::function<bool()>& condition, int seconds) {
  const BootTime end = RealClock().Boot() + absl::Seconds(seconds);
  while (!condition()) {
    if (RealClock().Boot() > end) return false;
    sched_yield();
  }
  return true;
}

}  // namespace archil
