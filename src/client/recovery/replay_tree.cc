#include "client/recovery/replay_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "common/base/errno.h"

namespace archil {
namespace {

constexpr int kPathFlags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
constexpr size_t kZeroBytes = 1 << 20;

Status Done(int rc, std::string_view what) { return rc == 0 ? Ok() : ErrnoError(errno, what); }

// A way to name exactly what a descriptor of kind O_PATH shows, for calls that take none.
std::string ProcPath(const Fd& fd) { return fmt::format("/proc/self/fd/{}", fd.get()); }

Result<Fd> OpenPath(const Spot& spot) {
  Fd fd(openat(spot.dir.get(), spot.name.c_str(), kPathFlags));
  if (fd.get() < 0) return ErrnoError(errno, "open");
  return fd;
}

Status WriteZeros(const Fd& file, uint64_t offset, uint64_t length) {
  const std::string zeros(std::min<uint64_t>(length, kZeroBytes), '\0');
  for (uint64_t done = 0; done < length; done += zeros.size()) {
    const size_t n = std::min<uint64_t>(zeros.size(), length - done);
    ARCHIL_RETURN_IF_ERROR(WriteAt(file, offset + done, std::string_view(zeros).substr(0, n)));
  }
  return Ok();
}

// The first of these ways that the file system has; at last by writing.
Status Clear(const Fd& file, uint64_t offset, uint64_t length, const std::vector<int>& ways) {
  ARCHIL_ASSIGN_OR_RETURN(const uint64_t size, SizeOf(file));
  if (offset >= size) return Ok();
  length = std::min(length, size - offset);
  if (length == 0) return Ok();
  for (const int way : ways) {
    if (fallocate(file.get(), way | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(length)) == 0) {
      return Ok();
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) return ErrnoError(errno, "fallocate");
  }
  return WriteZeros(file, offset, length);
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Result<ReplayTree> ReplayTree::Open(const std::string& dir) {
  Fd top(open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (top.get() < 0) return ErrnoError(errno, dir);
  return ReplayTree(std::move(top));
}

Result<Fd> ReplayTree::OpenDir(const std::vector<std::string>& names, size_t make_from,
                               const std::function<void(size_t index)>& made) const {
  Fd dir(openat(top_.get(), ".", kPathFlags | O_DIRECTORY));
  if (dir.get() < 0) return ErrnoError(errno, "open");
  for (size_t i = 0; i < names.size(); i++) {
    if (!IsValidName(names[i])) return Error(Code::kInvalid, "a name that is none");
    Fd next(openat(dir.get(), names[i].c_str(), kPathFlags | O_DIRECTORY));
    if (next.get() < 0 && errno == ENOENT && i >= make_from) {
      if (mkdirat(dir.get(), names[i].c_str(), 0755) != 0) return ErrnoError(errno, "mkdir");
      made(i);
      next = Fd(openat(dir.get(), names[i].c_str(), kPathFlags | O_DIRECTORY));
    }
    if (next.get() < 0) return ErrnoError(errno == ELOOP ? ENOTDIR : errno, "open");
    dir = std::move(next);
  }
  return dir;
}

Result<Spot> ReplayTree::Top() const {
  ARCHIL_ASSIGN_OR_RETURN(Fd dir, OpenDir({}, 0, [](size_t) {}));
  return Spot{std::move(dir), "."};
}

Result<struct stat> Look(const Spot& spot) {
  struct stat st {};
  if (fstatat(spot.dir.get(), spot.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return ErrnoError(errno, "stat");
  return st;
}

Status MakeFile(int dir, const std::string& name) {
  const Fd fd(openat(dir, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  return Done(fd.get() < 0 ? -1 : 0, "create");
}

Status MakeDir(int dir, const std::string& name) { return Done(mkdirat(dir, name.c_str(), 0700), "mkdir"); }

Status MakeSymlink(int dir, const std::string& name, const std::string& target) {
  return Done(symlinkat(target.c_str(), dir, name.c_str()), "symlink");
}

Status MakeNode(int dir, const std::string& name, FileType type, uint64_t rdev) {
  return Done(mknodat(dir, name.c_str(), ModeBitsOf(type) | 0600, static_cast<dev_t>(rdev)), "mknod");
}

Status Unlink(const Spot& spot) { return Done(unlinkat(spot.dir.get(), spot.name.c_str(), 0), "unlink"); }
Status Rmdir(const Spot& spot) { return Done(unlinkat(spot.dir.get(), spot.name.c_str(), AT_REMOVEDIR), "rmdir"); }

Status MakeLink(const Spot& from, int dir, const std::string& name) {
  return Done(linkat(from.dir.get(), from.name.c_str(), dir, name.c_str(), 0), "link");
}

Status Rename(const Spot& from, int dir, const std::string& name, RenameKind kind) {
  const unsigned flags = kind == RenameKind::kNoReplace  ? RENAME_NOREPLACE
                         : kind == RenameKind::kExchange ? RENAME_EXCHANGE
                                                         : 0;
  if (renameat2(from.dir.get(), from.name.c_str(), dir, name.c_str(), flags) == 0) return Ok();
  // EINVAL is said by file systems without the flag, too; a rename that is invalid by itself will say so again.
  if (kind != RenameKind::kNoReplace || (errno != EINVAL && errno != ENOSYS)) return ErrnoError(errno, "rename");
  struct stat st;
  if (fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) return Error(Code::kExists, "rename: it exists");
  return Done(renameat(from.dir.get(), from.name.c_str(), dir, name.c_str()), "rename");
}

Result<Fd> OpenForWrite(const Spot& spot) {
  // Looked at first: to open a device or a pipe may do something.
  ARCHIL_ASSIGN_OR_RETURN(const struct stat before, Look(spot));
  if (!S_ISREG(before.st_mode)) return Error(Code::kInvalid, "it is no regular file");
  Fd fd(openat(spot.dir.get(), spot.name.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoError(errno, "open");
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoError(errno, "stat");
  if (!S_ISREG(st.st_mode)) return Error(Code::kInvalid, "it is no regular file");
  return fd;
}

Status SetMode(const Spot& spot, uint32_t mode) {
  ARCHIL_ASSIGN_OR_RETURN(const Fd fd, OpenPath(spot));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoError(errno, "stat");
  if (S_ISLNK(st.st_mode)) return Ok();
  return Done(chmod(ProcPath(fd).c_str(), mode), "chmod");
}

Status SetOwner(const Spot& spot, int64_t uid, int64_t gid) {
  return Done(fchownat(spot.dir.get(), spot.name.c_str(), static_cast<uid_t>(uid), static_cast<gid_t>(gid),
                       AT_SYMLINK_NOFOLLOW),
              "chown");
}

Status SetTimes(const Spot& spot, const timespec times[2]) {
  return Done(utimensat(spot.dir.get(), spot.name.c_str(), times, AT_SYMLINK_NOFOLLOW), "utimens");
}

Status SetXattr(const Spot& spot, const std::string& name, const std::string& value) {
  ARCHIL_ASSIGN_OR_RETURN(const Fd fd, OpenPath(spot));
  return Done(setxattr(ProcPath(fd).c_str(), name.c_str(), value.data(), value.size(), 0), "setxattr");
}

Status RemoveXattr(const Spot& spot, const std::string& name) {
  ARCHIL_ASSIGN_OR_RETURN(const Fd fd, OpenPath(spot));
  return Done(removexattr(ProcPath(fd).c_str(), name.c_str()), "removexattr");
}

Status SyncEntry(const Spot& spot) {
  ARCHIL_ASSIGN_OR_RETURN(const struct stat st, Look(spot));
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return Ok();
  const int flags = (S_ISDIR(st.st_mode) ? O_DIRECTORY : 0) | O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const Fd fd(openat(spot.dir.get(), spot.name.c_str(), flags));
  if (fd.get() < 0) return ErrnoError(errno, "open");
  return Done(fsync(fd.get()), "fsync");
}

Status WriteAt(const Fd& file, uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return Ok();
}

Result<uint64_t> SizeOf(const Fd& file) {
  struct stat st;
  if (fstat(file.get(), &st) != 0) return ErrnoError(errno, "stat");
  return static_cast<uint64_t>(st.st_size);
}

Status SetSize(const Fd& file, uint64_t size) {
  return Done(ftruncate(file.get(), static_cast<off_t>(size)), "truncate");
}

Status ZeroRange(const Fd& file, uint64_t offset, uint64_t length) {
  return Clear(file, offset, length, {FALLOC_FL_ZERO_RANGE, FALLOC_FL_PUNCH_HOLE});
}

Status PunchHole(const Fd& file, uint64_t offset, uint64_t length) {
  return Clear(file, offset, length, {FALLOC_FL_PUNCH_HOLE});
}

Status Allocate(const Fd& file, uint64_t offset, uint64_t length) {
  if (offset > kMaxFileSize || length > kMaxFileSize - offset) return Error(Code::kInvalid, "fallocate: out of range");
  if (length == 0) return Ok();
  const int rc = fallocate(file.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(length));
  return rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS ? Ok() : ErrnoError(errno, "fallocate");
}

}  // namespace archil
