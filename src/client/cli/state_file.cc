#include "client/cli/state_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "client/cli/json.h"
#include "client/cli/paths.h"
#include "common/base/errno.h"

namespace archil::cli {
namespace {

constexpr std::string_view kSuffix = ".lock";

std::string ReadAll(int fd) {
  std::string text(4096, '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

// None if the file is empty, damaged or of another disk.
SessionRecord ReadRecord(int fd, const MountIdentity& identity) {
  SessionRecord record;
  const Result<Json> json = ParseJson(ReadAll(fd));
  if (!json.ok() || json->GetString("server") != identity.server || json->GetString("disk") != identity.disk) return record;
  record.session = SessionId(json->GetNumber("session"));
  record.key = {json->GetNumber("key_hi"), json->GetNumber("key_lo")};
  return record;
}

std::string DiskPrefix(const MountIdentity& identity) { return PathKey(identity.server + "\n" + identity.disk) + "-"; }

}  // namespace

Result<StateFile> StateFile::Lock(const std::string& state_dir, const MountIdentity& identity) {
  const std::string prefix = DiskPrefix(identity);
  const std::string own = prefix + PathKey(identity.mountpoint) + std::string(kSuffix);
  StateFile file(-1, state_dir + "/" + own);
  for (;;) {
    file.fd_ = open(file.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file.fd_ < 0) return ErrnoError(errno, file.path_);
    if (flock(file.fd_, LOCK_EX | LOCK_NB) != 0) {
      return Error(Code::kBusy, fmt::format("{} is being mounted or mounted on {} by another daemon", identity.disk,
                                            identity.mountpoint));
    }
    struct stat locked, named;
    if (fstat(file.fd_, &locked) == 0 && stat(file.path_.c_str(), &named) == 0 && locked.st_ino == named.st_ino) break;
    close(std::exchange(file.fd_, -1));  // removed by its last owner between our open and lock
  }
  file.identity_ = identity;
  file.predecessor_ = ReadRecord(file.fd_, identity);
  if (file.predecessor_.session) return file;
  DIR* dir = opendir(state_dir.c_str());
  if (dir == nullptr) return file;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name == own || name.compare(0, prefix.size(), prefix) != 0) continue;
    const std::string path = state_dir + "/" + name;
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
      const SessionRecord record = ReadRecord(fd, identity);
      if (record.session) {
        file.predecessor_ = record;
        file.predecessor_path_ = path;
      }
    }
    close(fd);
  }
  closedir(dir);
  return file;
}

StateFile::StateFile(StateFile&& other) noexcept { *this = std::move(other); }

StateFile& StateFile::operator=(StateFile&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  path_ = std::move(other.path_);
  identity_ = std::move(other.identity_);
  predecessor_ = other.predecessor_;
  predecessor_path_ = std::move(other.predecessor_path_);
  return *this;
}

StateFile::~StateFile() {
  if (fd_ >= 0) close(fd_);
}

Status StateFile::Record(const SessionRecord& session) {
  Json json;
  json.Set("server", identity_.server);
  json.Set("disk", identity_.disk);
  json.Set("mountpoint", identity_.mountpoint);
  json.Set("session", session.session.value);
  json.Set("key_hi", session.key.hi);
  json.Set("key_lo", session.key.lo);
  const std::string text = json.Dump() + "\n";
  if (pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) || ftruncate(fd_, text.size()) != 0 ||
      fdatasync(fd_) != 0) {
    return ErrnoError(errno, path_);
  }
  if (!predecessor_path_.empty()) unlink(predecessor_path_.c_str());
  return Ok();
}

void StateFile::Discard() {
  if (!predecessor_.session || !predecessor_path_.empty()) Clear();
}

// Removed while locked; who locks the old file afterwards sees that its name is gone and starts over.
void StateFile::Clear() {
  if (fd_ < 0) return;
  if (ftruncate(fd_, 0) != 0) {
    // What stays names a session that has ended; ending it again is harmless.
  }
  unlink(path_.c_str());
}

}  // namespace archil::cli
