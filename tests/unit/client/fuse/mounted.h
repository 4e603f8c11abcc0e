// A MemFsApi really mounted in a directory of its own, for tests. The program runs in a mount namespace of its own, so
// nothing stays mounted, however it ends.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>

#include "client/fuse/fuse_mount.h"
#include "tests/support/mem_fs_api.h"

namespace archil {

// Tests on real mounts. Where the kernel or the user's rights do not allow mounting they fail, and say so: they carry the
// label e2e, with which they can be left out.
class OnRealMount : public ::testing::Test {
 protected:
  void SetUp() override;
};

class Mounted {
 public:
  explicit Mounted(FuseOptions options = {});
  ~Mounted();

  MemFsApi& fs() { return fs_; }
  FuseMount& mount() { return *mount_; }
  const std::string& root() const { return root_; }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  // Requests so far, FORGET and INIT left out; waits until no handle is open (RELEASE comes after close(2)).
  uint64_t Upcalls();
  std::map<std::string, uint64_t> Metrics() { return mount_->Metrics(); }

 private:
  std::string dir_;
  std::string root_;
  MemFsApi fs_;
  std::unique_ptr<FuseMount> mount_;
  Notification done_;
  std::unique_ptr<Thread> watchdog_;
};

// Runs a shell script for at most `seconds`; its output is shown when it fails. $1 is the mount's root.
int Shell(const Mounted& mounted, const std::string& script, int seconds = 60);
// Writes or reads a whole file with plain system calls; errors are reported as test failures.
void WriteFile(const std::string& path, const std::string& bytes, int flags = 0);
std::string ReadFile(const std::string& path);
// Waits for a child for at most `seconds`; then it is killed and false is returned.
bool AwaitChild(pid_t pid, int seconds, int* status);
// Yields until `condition` holds or `seconds` have passed.
bool Eventually(const std::function<bool()>& condition, int seconds = 10);

}  // namespace archil
