// HostRunner: runs the steps of a random run in a directory of this machine through system calls: on the host's own
// file system to keep the reference honest, on a mounted disk to test that. Needs root (devices, owners).
#pragma once

#include <string>

#include "tests/support/fs_runner.h"

namespace archil::test {

class HostRunner : public FsRunner {
 public:
  // `root` is an existing directory; what is in it belongs to the run. Sets the umask of the process to 0.
  explicit HostRunner(const std::string& root);
  ~HostRunner() override;
  HostRunner(const HostRunner&) = delete;
  HostRunner& operator=(const HostRunner&) = delete;

  Outcome Run(const ModelOp& op) override;
  Result<Tree> Dump() override;
  void CloseSlots() override;

 private:
  struct Place;  // a directory descriptor and a name in it, or a descriptor alone
  int Walk(int at, const std::string& path, Place* out);
  int StatPlace(const Place& place, Attr* out);
  int Dispatch(const ModelOp& op, Outcome* out);
  int RunMake(const ModelOp& op, Outcome* out);
  int RunLink(const ModelOp& op, Outcome* out);
  int RunOpen(const ModelOp& op, Outcome* out);
  int RunRemove(const ModelOp& op);
  int RunRename(const ModelOp& op);
  int RunSetAttr(const ModelOp& op, Outcome* out);
  int RunData(const ModelOp& op, Outcome* out);
  int RunXattr(const ModelOp& op, Outcome* out);
  int RunRead(const ModelOp& op, Outcome* out);
  int RunSync(const ModelOp& op);
  Status DumpAt(int dir, const std::string& name, const std::string& path, Tree& out);

  int root_ = -1;
  int slots_[kSlots];
};

}  // namespace archil::test
