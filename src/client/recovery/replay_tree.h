// ReplayTree: entries below one directory of this machine, reached by descriptors of directories, one name after the
// other. No symbolic link is followed, no name with a slash and no ".." is taken, so nothing outside the directory is
// reached, whoever changes it meanwhile. Not thread safe.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/api/types.h"
#include "common/base/result.h"

namespace archil {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// A name in an open directory.
struct Spot {
  Fd dir;  // O_PATH
  std::string name;
};

class ReplayTree {
 public:
  // kNotFound, kNotDirectory …
  static Result<ReplayTree> Open(const std::string& dir);

  // The directory at these names from the top. Missing ones are made (0755) from the index `make_from` on; the names of
  // those made are told to `made`. kNotFound; kNotDirectory, also for a symlink; kInvalid for a bad name.
  Result<Fd> OpenDir(const std::vector<std::string>& names, size_t make_from,
                     const std::function<void(size_t index)>& made) const;
  // The top itself as an entry.
  Result<Spot> Top() const;

 private:
  explicit ReplayTree(Fd top) : top_(std::move(top)) {}
  Fd top_;
};

// All of these: errors of the system call, with its name.
Result<struct stat> Look(const Spot& spot);
Status MakeFile(int dir, const std::string& name);  // 0600, kExists if there is anything
Status MakeDir(int dir, const std::string& name);   // 0700
Status MakeSymlink(int dir, const std::string& name, const std::string& target);
Status MakeNode(int dir, const std::string& name, FileType type, uint64_t rdev);
Status Unlink(const Spot& spot);
Status Rmdir(const Spot& spot);
Status MakeLink(const Spot& from, int dir, const std::string& name);
enum class RenameKind : uint8_t { kReplace, kNoReplace, kExchange };
Status Rename(const Spot& from, int dir, const std::string& name, RenameKind kind);
// A regular file for writing; kInvalid if it is anything else.
Result<Fd> OpenForWrite(const Spot& spot);

Status SetMode(const Spot& spot, uint32_t mode);              // not of a symlink: done without effect
Status SetOwner(const Spot& spot, int64_t uid, int64_t gid);  // -1: as it is
Status SetTimes(const Spot& spot, const timespec times[2]);   // UTIME_OMIT: as it is
Status SetXattr(const Spot& spot, const std::string& name, const std::string& value);
Status RemoveXattr(const Spot& spot, const std::string& name);
Status SyncEntry(const Spot& spot);  // a file or directory; others: done without effect

Status WriteAt(const Fd& file, uint64_t offset, std::string_view bytes);
Result<uint64_t> SizeOf(const Fd& file);
Status SetSize(const Fd& file, uint64_t size);
// Zeros over the range, as a hole if need be; never past the end of the file.
Status ZeroRange(const Fd& file, uint64_t offset, uint64_t length);
Status PunchHole(const Fd& file, uint64_t offset, uint64_t length);
Status Allocate(const Fd& file, uint64_t offset, uint64_t length);

}  // namespace archil
