// One file per (server, disk and branch, mount point) in the state directory, flock'ed while its daemon lives. It
// holds the session's id and key, so that a new mount can prove that a predecessor is dead (it can lock the file) and
// end it at once instead of waiting for its lease.
#pragma once

#include <memory>
#include <string>

#include "common/api/meta_service.h"
#include "common/base/result.h"

namespace archil::cli {

struct SessionRecord {
  SessionId session;
  SessionKey key;
};

struct MountIdentity {
  std::string server;
  std::string disk;  // with "@branch" if not main
  std::string mountpoint;
};

class StateFile {
 public:
  // Creates or opens and locks. kBusy: a living daemon holds it.
  static Result<StateFile> Lock(const std::string& state_dir, const MountIdentity& identity);
  StateFile(StateFile&& other) noexcept;
  StateFile& operator=(StateFile&& other) noexcept;
  ~StateFile();  // unlocks

  // The session that a dead daemon left, in this file or in that of another mount point of the same disk; none: id 0.
  SessionRecord Predecessor() const { return predecessor_; }
  // Durable when it returns.
  Status Record(const SessionRecord& session);
  // No session came about: forgets the file unless a predecessor's record stands in it.
  void Discard();
  // The session has ended in order: nothing is left to be told.
  void Clear();

 private:
  StateFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
  MountIdentity identity_;
  SessionRecord predecessor_;
  std::string predecessor_path_;  // of another mount point; emptied when our own session is recorded
};

}  // namespace archil::cli
