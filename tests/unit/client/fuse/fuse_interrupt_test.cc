// Calls that do not come back: killed processes end, interrupted ones go on waiting, an abort frees everybody.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "tests/unit/client/fuse/mounted.h"

namespace archil {
namespace {

class FuseInterrupt : public OnRealMount {
 protected:
  // In a directory of its own: a lookup that hangs keeps the kernel's lock on its directory.
  static void Hold(Mounted& m) {
    ASSERT_EQ(mkdir(m.Path("held").c_str(), 0755), 0);
    m.fs().HoldName("never");
  }
  // A process that is held in stat(2); exits with the errno that it got.
  static pid_t HeldChild(const Mounted& m) {
    const std::string path = m.Path("held/never");
    const pid_t pid = fork();
    if (pid != 0) return pid;
    struct sigaction ignore = {};
    ignore.sa_handler = [](int) {};
    sigaction(SIGUSR1, &ignore, nullptr);
    struct stat st;
    _exit(stat(path.c_str(), &st) == 0 ? 0 : errno);
  }
};

TEST_F(FuseInterrupt, KilledProcessEnds) {
  Mounted m;
  Hold(m);
  const pid_t pid = HeldChild(m);
  m.fs().AwaitHeld(1);
  kill(pid, SIGKILL);
  int status = 0;
  ASSERT_TRUE(AwaitChild(pid, 10, &status)) << "a killed process stays until the daemon answers";
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_GE(m.Metrics()["fuse_cancelled"], 1u);
}

TEST_F(FuseInterrupt, OtherSignalsDoNotCancelButALaterKillDoes) {
  Mounted m;
  Hold(m);
  const pid_t pid = HeldChild(m);
  m.fs().AwaitHeld(1);
  kill(pid, SIGUSR1);
  ASSERT_TRUE(Eventually([&] { return m.Metrics()["upcall_interrupt"] >= 1; }));
  EXPECT_EQ(m.Metrics()["fuse_cancelled"], 0u);
  EXPECT_EQ(m.Metrics()["fuse_waiting"], 1u);
  kill(pid, SIGKILL);  // the kernel tells of no second interrupt
  int status = 0;
  ASSERT_TRUE(AwaitChild(pid, 10, &status));
  EXPECT_EQ(m.Metrics()["fuse_cancelled"], 1u);
}

TEST_F(FuseInterrupt, KillFreesRequestsThatFoundNoWorker) {
  FuseOptions options;
  options.max_workers = 2;
  Mounted m(options);
  Hold(m);
  std::vector<pid_t> pids;
  for (int i = 0; i < 5; ++i) {
    pids.push_back(HeldChild(m));
    // Lookups of one name in one directory may run in parallel; each is its own request once the dentry is unhashed.
  }
  m.fs().AwaitHeld(1);
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  for (const pid_t pid : pids) {
    int status = 0;
    EXPECT_TRUE(AwaitChild(pid, 10, &status));
  }
  EXPECT_TRUE(Eventually([&] { return m.Metrics()["fuse_waiting"] == 0; }));
}

TEST_F(FuseInterrupt, MountServesOthersMeanwhile) {
  Mounted m;
  Hold(m);
  const pid_t pid = HeldChild(m);
  m.fs().AwaitHeld(1);
  ASSERT_EQ(mkdir(m.Path("d").c_str(), 0755), 0);
  WriteFile(m.Path("d/f"), "served");
  EXPECT_EQ(ReadFile(m.Path("d/f")), "served");
  kill(pid, SIGKILL);
  int status = 0;
  ASSERT_TRUE(AwaitChild(pid, 10, &status));
}

TEST_F(FuseInterrupt, AbortFreesEverybody) {
  Mounted m;
  Hold(m);
  const pid_t pid = HeldChild(m);
  m.fs().AwaitHeld(1);
  m.mount().Abort();
  int status = 0;
  ASSERT_TRUE(AwaitChild(pid, 10, &status));
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_TRUE(WEXITSTATUS(status) == ECONNABORTED || WEXITSTATUS(status) == ENOTCONN || WEXITSTATUS(status) == EIO)
      << WEXITSTATUS(status);
  m.mount().WaitForEnd();
  m.mount().Stop();
}

}  // namespace
}  // namespace archil
