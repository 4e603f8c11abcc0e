// fcntl and flock locks that the daemon keeps, asked through a real kernel. (One mount: what crosses mounts is tested with the servers.)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <vector>

#include "tests/unit/client/fuse/mounted.h"

namespace archil {
namespace {

int Lock(int fd, int command, short type, off_t start = 0, off_t length = 0) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return fcntl(fd, command, &lock) == 0 ? 0 : errno;
}

class FuseLock : public OnRealMount {
 protected:
  void SetUp() override {
    OnRealMount::SetUp();
    if (HasFatalFailure()) return;
    mounted_ = std::make_unique<Mounted>();
    path_ = mounted_->Path("f");
    WriteFile(path_, "0123456789");
  }
  int Open(int flags = O_RDWR) {
    const int fd = open(path_.c_str(), flags | O_CLOEXEC);
    EXPECT_GE(fd, 0);
    return fd;
  }
  // A process that runs `body` on a descriptor of its own and exits with what it returns.
  pid_t Child(const std::function<int(int fd)>& body, int flags = O_RDWR) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    signal(SIGUSR1, [](int) {});
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    sigaction(SIGUSR1, &action, nullptr);  // without SA_RESTART
    const int fd = open(path_.c_str(), flags);
    _exit(body(fd));
  }
  int Exit(pid_t pid) {
    int status = 0;
    EXPECT_TRUE(AwaitChild(pid, 20, &status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int InChild(const std::function<int(int fd)>& body, int flags = O_RDWR) { return Exit(Child(body, flags)); }
  bool AwaitWaiters(uint64_t count) {
    return Eventually([&] { return mounted_->Metrics()["fuse_lock_waiters"] == count; });
  }
  // They stand in the queue; `count` of them since the mount was made.
  bool AwaitQueued(uint64_t count) {
    return Eventually([&] { return mounted_->fs().Metrics()["lock_waits"] == count; });
  }
  uint64_t Count(const std::string& name) { return mounted_->Metrics()[name]; }
  uint64_t Held() { return mounted_->fs().Metrics()["locks_held"]; }

  std::unique_ptr<Mounted> mounted_;
  std::string path_;
};

TEST_F(FuseLock, TheDaemonIsAsked) {
  const std::vector<std::string> flags = mounted_->mount().InitFlags();
  EXPECT_NE(std::find(flags.begin(), flags.end(), "posix_locks"), flags.end());
  EXPECT_NE(std::find(flags.begin(), flags.end(), "flock_locks"), flags.end());
  const int fd = Open();
  EXPECT_EQ(Lock(fd, F_SETLK, F_WRLCK, 2, 3), 0);
  EXPECT_EQ(flock(fd, LOCK_EX), 0);
  EXPECT_EQ(Held(), 2u);
  EXPECT_EQ(Count("upcall_setlk"), 1u);
  EXPECT_EQ(Count("upcall_setlkw"), 1u);
  close(fd);
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));
}

TEST_F(FuseLock, RangesExcludeOtherProcessesAndGetlkTellsWhich) {
  const int fd = Open();
  ASSERT_EQ(Lock(fd, F_SETLK, F_WRLCK, 2, 3), 0);
  ASSERT_EQ(Lock(fd, F_SETLK, F_RDLCK, 7, 0), 0);
  EXPECT_EQ(InChild([](int f) { return Lock(f, F_SETLK, F_WRLCK, 0, 2); }), 0);
  EXPECT_EQ(InChild([](int f) { return Lock(f, F_SETLK, F_RDLCK, 4, 1); }), EAGAIN);
  EXPECT_EQ(InChild([](int f) { return Lock(f, F_SETLK, F_RDLCK, 8, 1); }), 0);
  EXPECT_EQ(InChild([](int f) { return Lock(f, F_SETLK, F_WRLCK, 100, 1); }), EAGAIN);
  const pid_t parent = getpid();
  EXPECT_EQ(InChild([parent](int f) {
              struct flock lock = {};
              lock.l_type = F_WRLCK;
              lock.l_start = 1;
              lock.l_len = 20;
              if (fcntl(f, F_GETLK, &lock) != 0) return errno;
              if (lock.l_type != F_WRLCK || lock.l_start != 2 || lock.l_len != 3 || lock.l_pid != parent) return 201;
              lock = {};
              lock.l_type = F_WRLCK;
              lock.l_start = 50;
              if (fcntl(f, F_GETLK, &lock) != 0) return errno;
              if (lock.l_type != F_RDLCK || lock.l_start != 7 || lock.l_len != 0) return 202;
              lock = {};
              lock.l_type = F_RDLCK;
              lock.l_start = 50;
              if (fcntl(f, F_GETLK, &lock) != 0) return errno;
              return lock.l_type == F_UNLCK ? 0 : 203;
            }), 0);
  close(fd);
}

TEST_F(FuseLock, CloseOfAnyDescriptorEndsTheLocksOfTheProcess) {
  const int a = Open();
  const int b = Open();
  ASSERT_EQ(Lock(a, F_SETLK, F_WRLCK), 0);
  ASSERT_EQ(Held(), 1u);
  close(b);
  EXPECT_EQ(Held(), 0u) << "close(2) returns when they are gone";
  EXPECT_EQ(Lock(a, F_SETLK, F_WRLCK), 0);
  close(Open(O_RDONLY));  // opened while there is a lock, so its close is told
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(Lock(a, F_SETLK, F_WRLCK), 0);
  // A child that closes what it inherited ends nothing of its parent.
  const pid_t pid = fork();
  if (pid == 0) {
    close(a);
    _exit(0);
  }
  Exit(pid);
  EXPECT_EQ(Held(), 1u);
  close(a);
  EXPECT_EQ(Held(), 0u);
}

TEST_F(FuseLock, LocksThroughReadOnlyHandlesEndWithTheHandle) {
  const int a = Open(O_RDONLY);
  ASSERT_EQ(Lock(a, F_SETLK, F_RDLCK), 0);
  const uint64_t flushes = Count("upcall_flush");
  close(a);
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));
  EXPECT_EQ(Count("upcall_flush"), flushes);
  // Two of them: the lock ends with the last one that it was taken through.
  const int b = Open(O_RDONLY);
  const int c = Open(O_RDONLY);
  ASSERT_EQ(Lock(b, F_SETLK, F_RDLCK), 0);
  ASSERT_EQ(Lock(c, F_SETLK, F_RDLCK), 0);
  close(b);
  ASSERT_TRUE(Eventually([&] { return mounted_->fs().open_handles() == 1; }));
  EXPECT_EQ(Held(), 1u);
  close(c);
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));
}

TEST_F(FuseLock, OfdLocksBelongToTheOpenFile) {
  const int a = Open();
  const int b = Open();
  ASSERT_EQ(Lock(a, F_OFD_SETLK, F_WRLCK, 0, 5), 0);
  EXPECT_EQ(Lock(b, F_OFD_SETLK, F_WRLCK, 0, 5), EAGAIN) << "two open files of one process exclude each other";
  EXPECT_EQ(Lock(b, F_SETLK, F_WRLCK, 0, 5), EAGAIN) << "and so do OFD and classic locks";
  const int copy = dup(a);
  close(b);
  close(copy);
  EXPECT_EQ(Held(), 1u) << "only the last descriptor of the open file ends it";
  close(a);
  EXPECT_TRUE(Eventually([&] { return Held() == 0; }));
}

TEST_F(FuseLock, FlockBelongsToTheOpenFileAndNotToRanges) {
  const int a = Open(O_RDONLY);
  const int b = Open();
  ASSERT_EQ(flock(a, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(flock(b, LOCK_SH | LOCK_NB), -1);
  EXPECT_EQ(errno, EWOULDBLOCK);
  EXPECT_EQ(Lock(b, F_SETLK, F_WRLCK), 0);
  ASSERT_EQ(flock(a, LOCK_SH), 0);
  EXPECT_EQ(flock(b, LOCK_SH | LOCK_NB), 0);
  EXPECT_EQ(flock(a, LOCK_UN), 0);
  EXPECT_EQ(flock(b, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(InChild([](int) { return 0; }), 0) << "a child shares the open files; its exit ends nothing";
  EXPECT_EQ(flock(a, LOCK_SH | LOCK_NB), -1);
  close(b);
  EXPECT_TRUE(Eventually([&] { return flock(a, LOCK_SH | LOCK_NB) == 0; }));
  close(a);
}

TEST_F(FuseLock, WaitersAreServedWhenTheLockIsFree) {
  const int fd = Open();
  ASSERT_EQ(Lock(fd, F_SETLK, F_WRLCK), 0);
  const pid_t waits = Child([](int f) { return Lock(f, F_SETLKW, F_WRLCK); });
  ASSERT_TRUE(AwaitQueued(1));
  const pid_t next = Child([](int f) { return Lock(f, F_SETLKW, F_RDLCK); });
  ASSERT_TRUE(AwaitQueued(2));
  EXPECT_EQ(Lock(fd, F_SETLK, F_UNLCK), 0);
  EXPECT_EQ(Exit(waits), 0);
  EXPECT_EQ(Exit(next), 0);
  close(fd);
}

TEST_F(FuseLock, AnySignalEndsAWaitWithEintr) {
  const int fd = Open();
  ASSERT_EQ(Lock(fd, F_SETLK, F_WRLCK), 0);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  const pid_t range = Child([](int f) { return Lock(f, F_SETLKW, F_WRLCK); });
  const pid_t whole = Child([](int f) { return flock(f, LOCK_EX) == 0 ? 0 : errno; });
  ASSERT_TRUE(AwaitQueued(2));
  kill(range, SIGUSR1);
  kill(whole, SIGUSR1);
  EXPECT_EQ(Exit(range), EINTR);
  EXPECT_EQ(Exit(whole), EINTR);
  // Nobody is left who would get the lock.
  EXPECT_EQ(Lock(fd, F_SETLK, F_UNLCK), 0);
  EXPECT_EQ(InChild([](int f) { return Lock(f, F_SETLK, F_WRLCK); }), 0);
  close(fd);
}

TEST_F(FuseLock, AKilledWaiterIsGone) {
  const int fd = Open();
  ASSERT_EQ(Lock(fd, F_SETLK, F_WRLCK), 0);
  const pid_t waits = Child([](int f) { return Lock(f, F_SETLKW, F_WRLCK); });
  ASSERT_TRUE(AwaitWaiters(1));
  kill(waits, SIGKILL);
  EXPECT_EQ(Exit(waits), 1000 + SIGKILL);
  EXPECT_TRUE(AwaitWaiters(0));
  // And a killed holder.
  close(fd);
  const pid_t holds = Child([](int f) { return Lock(f, F_SETLKW, F_WRLCK) == 0 ? pause() : 1; });
  ASSERT_TRUE(Eventually([&] { return Held() == 1; }));
  kill(holds, SIGKILL);
  EXPECT_EQ(Exit(holds), 1000 + SIGKILL);
  EXPECT_EQ(InChild([](int f) { return Lock(f, F_SETLK, F_WRLCK); }), 0);
}

TEST_F(FuseLock, ACircleOfClassicLocksIsRefused) {
  const int fd = Open();
  ASSERT_EQ(Lock(fd, F_SETLK, F_WRLCK, 0, 1), 0);
  const pid_t other = Child([](int f) {
    if (Lock(f, F_SETLK, F_WRLCK, 1, 1) != 0) return 201;
    return Lock(f, F_SETLKW, F_WRLCK, 0, 1);
  });
  ASSERT_TRUE(AwaitQueued(1));
  EXPECT_EQ(Lock(fd, F_SETLKW, F_WRLCK, 1, 1), EDEADLK);
  close(fd);
  EXPECT_EQ(Exit(other), 0);
}

TEST_F(FuseLock, ACircleOfOfdLocksWaits) {
  const int fd = Open();
  ASSERT_EQ(Lock(fd, F_OFD_SETLK, F_WRLCK, 0, 1), 0);
  const pid_t other = Child([](int f) {
    if (Lock(f, F_OFD_SETLK, F_WRLCK, 1, 1) != 0) return 201;
    return Lock(f, F_OFD_SETLKW, F_WRLCK, 0, 1);
  });
  ASSERT_TRUE(AwaitQueued(1));
  const pid_t third = fork();  // shares the open file of this process: the same owner
  if (third == 0) {
    signal(SIGALRM, [](int) {});
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    alarm(1);
    _exit(Lock(fd, F_OFD_SETLKW, F_WRLCK, 1, 1));
  }
  EXPECT_EQ(Exit(third), EINTR);
  ASSERT_EQ(Lock(fd, F_OFD_SETLK, F_UNLCK), 0);  // the children have the open file too
  close(fd);
  EXPECT_EQ(Exit(other), 0);
}

TEST_F(FuseLock, WaitersTakeNoWorkerFromOthersAndHaveALimit) {
  FuseOptions options;
  options.max_workers = 1;
  options.max_lock_waiters = 3;
  mounted_ = std::make_unique<Mounted>(options);
  path_ = mounted_->Path("f");
  WriteFile(path_, "x");
  const int fd = Open();
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  std::vector<pid_t> pids;
  for (int i = 0; i < 3; ++i) pids.push_back(Child([](int f) { return flock(f, LOCK_SH) == 0 ? 0 : errno; }));
  ASSERT_TRUE(AwaitQueued(3));
  EXPECT_EQ(InChild([](int f) { return flock(f, LOCK_SH) == 0 ? 0 : errno; }), ENOLCK);
  mounted_->fs().set_always_wait(true);
  WriteFile(mounted_->Path("g"), "served by the one worker");
  EXPECT_EQ(ReadFile(mounted_->Path("g")), "served by the one worker");
  EXPECT_EQ(flock(fd, LOCK_UN), 0);
  for (const pid_t pid : pids) EXPECT_EQ(Exit(pid), 0);
  close(fd);
}

TEST_F(FuseLock, ACounterUnderALockIsExact) {
  for (const bool whole : {false, true}) {
    WriteFile(path_, "0", O_TRUNC);
    std::vector<pid_t> pids;
    for (int i = 0; i < 4; ++i) {
      pids.push_back(Child([whole](int f) {
        for (int n = 0; n < 100; ++n) {
          if ((whole ? flock(f, LOCK_EX) : Lock(f, F_SETLKW, F_WRLCK)) != 0) return 1;
          char text[16] = {};
          if (pread(f, text, sizeof(text) - 1, 0) < 0) return 2;
          const std::string next = std::to_string(atoi(text) + 1);
          if (pwrite(f, next.data(), next.size(), 0) < 0) return 3;
          if ((whole ? flock(f, LOCK_UN) : Lock(f, F_SETLK, F_UNLCK)) != 0) return 4;
        }
        return 0;
      }));
    }
    for (const pid_t pid : pids) EXPECT_EQ(Exit(pid), 0);
    EXPECT_EQ(ReadFile(path_), "400") << (whole ? "flock" : "fcntl");
  }
}

TEST_F(FuseLock, BudgetWithFlush) {
  const auto per_file = [&](int flags, const char* prefix) {
    const uint64_t before = mounted_->Upcalls();
    for (int i = 0; i < 50; ++i) WriteFile(mounted_->Path(prefix + std::to_string(i)), "x", flags);
    return static_cast<double>(mounted_->Upcalls() - before) / 50;
  };
  // LOOKUP, GETATTR of the directory, CREATE, WRITE, FLUSH, RELEASE.
  EXPECT_LE(per_file(0, "a"), 6.0);
  // What says O_EXCL and only writes sends no FLUSH.
  EXPECT_LE(per_file(O_EXCL, "b"), 5.1);
  EXPECT_GE(Count("upcall_flush"), 50u);
}

}  // namespace
}  // namespace archil
