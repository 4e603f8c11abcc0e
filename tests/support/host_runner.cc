#include "tests/support/host_runner.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/errno.h"

namespace archil::test {
namespace {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int Take() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int ErrOf(ssize_t result) { return result < 0 ? errno : 0; }

Timestamp TimeOf(const statx_timestamp& t) { return {t.tv_sec, t.tv_nsec}; }

Attr AttrOf(const struct statx& s) {
  Attr a;
  a.ino = InodeId{s.stx_ino};
  a.type = TypeOfModeBits(s.stx_mode);
  a.mode = s.stx_mode & 07777;
  a.uid = s.stx_uid;
  a.gid = s.stx_gid;
  a.nlink = s.stx_nlink;
  a.size = s.stx_size;
  a.allocated = s.stx_blocks * 512;
  a.rdev = makedev(s.stx_rdev_major, s.stx_rdev_minor);
  a.atime = TimeOf(s.stx_atime);
  a.mtime = TimeOf(s.stx_mtime);
  a.ctime = TimeOf(s.stx_ctime);
  a.btime = TimeOf(s.stx_btime);
  return a;
}

int StatFd(int fd, Attr* out) {
  struct statx s;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &s) < 0) return errno;
  *out = AttrOf(s);
  return 0;
}

// A path of the name itself for calls that have no *at form; a link in the last place is not followed by l* calls.
std::string ProcPath(int dir, const std::string& name) {
  return name.empty() ? fmt::format("/proc/self/fd/{}", dir) : fmt::format("/proc/self/fd/{}/{}", dir, name);
}

int ListFd(int fd, std::vector<ListedName>* out) {
  Fd copy(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // "." of a removed directory cannot be opened: the kernel lists nothing there either.
  if (copy.get() < 0) return errno;
  DIR* dir = fdopendir(copy.get());
  if (dir == nullptr) return errno;
  copy.Take();
  errno = 0;
  bool dot = false;
  bool dotdot = false;
  while (const dirent* e = readdir(dir)) {
    const std::string name = e->d_name;
    if (name == ".") {
      dot = true;
    } else if (name == "..") {
      dotdot = true;
    } else {
      out->push_back({name, InodeId{e->d_ino}, TypeOfModeBits(DTTOIF(e->d_type))});
    }
    errno = 0;
  }
  const int err = errno;
  closedir(dir);
  // glibc shows the ENOENT of a removed directory as an empty listing.
  if (err == 0 && !(dot && dotdot)) return out->empty() ? ENOENT : EPROTO;
  std::sort(out->begin(), out->end());
  return err;
}

int ReadLink(int dir, const std::string& name, std::string* out) {
  out->resize(4096);
  const ssize_t n = readlinkat(dir, name.c_str(), out->data(), out->size());
  if (n < 0) return errno;
  out->resize(n);
  return 0;
}

int ListX(const std::string& path, std::vector<std::string>* out) {
  std::string buffer(65536, '\0');
  const ssize_t n = llistxattr(path.c_str(), buffer.data(), buffer.size());
  if (n < 0) return errno;
  for (size_t i = 0; i < static_cast<size_t>(n);) {
    const std::string name = buffer.c_str() + i;
    i += name.size() + 1;
    if (name.starts_with("user.")) out->push_back(name);
  }
  std::sort(out->begin(), out->end());
  return 0;
}

int GetX(const std::string& path, const std::string& name, std::string* out) {
  out->resize(65536);
  const ssize_t n = lgetxattr(path.c_str(), name.c_str(), out->data(), out->size());
  if (n < 0) return errno;
  out->resize(n);
  return 0;
}

int ReadFd(int fd, uint64_t offset, uint64_t length, std::string* out) {
  out->resize(length);
  size_t done = 0;
  ssize_t n = 0;
  do {  // also for a length of 0, which may still be an error
    n = pread(fd, out->data() + done, length - done, offset + done);
    if (n < 0) return errno;
    done += n;
  } while (n > 0);
  out->resize(done);
  return 0;
}

int AllocFlags(AllocKind kind) {
  switch (kind) {
    case AllocKind::kAllocate: return 0;
    case AllocKind::kAllocateKeepSize: return FALLOC_FL_KEEP_SIZE;
    case AllocKind::kPunchHole: return FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    case AllocKind::kZeroRange: return FALLOC_FL_ZERO_RANGE;
    case AllocKind::kZeroRangeKeepSize: return FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
  }
  return 0;
}

timespec TimeArg(const ModelOp& op, Timestamp t, uint32_t set, uint32_t now) {
  if ((op.sub & now) != 0) return {0, UTIME_NOW};
  if ((op.sub & set) != 0) return {t.sec, t.nsec};
  return {0, UTIME_OMIT};
}

}  // namespace

struct HostRunner::Place {
  int dir = -1;      // borrowed, unless `own` holds it
  std::string name;  // empty: `dir` itself
  Fd own;
};

HostRunner::HostRunner(const std::string& root) {
  umask(0);
  root_ = open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ARCHIL_CHECK(root_ >= 0);
  std::fill(std::begin(slots_), std::end(slots_), -1);
}

HostRunner::~HostRunner() {
  CloseSlots();
  close(root_);
}

void HostRunner::CloseSlots() {
  for (int& fd : slots_) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
}

int HostRunner::Walk(int at, const std::string& path, Place* out) {
  out->dir = root_;
  if (at >= kSlots || (at >= 0 && slots_[at] < 0)) return EBADF;
  if (at >= 0) out->dir = slots_[at];
  std::string_view rest = path;
  for (size_t slash; (slash = rest.find('/')) != std::string_view::npos; rest.remove_prefix(slash + 1)) {
    const std::string part(rest.substr(0, slash));
    Fd next(openat(out->dir, part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (next.get() < 0) return errno;
    out->own = std::move(next);
    out->dir = out->own.get();
  }
  out->name = std::string(rest);
  return 0;
}

int HostRunner::StatPlace(const Place& place, Attr* out) {
  struct statx s;
  const int flags = AT_SYMLINK_NOFOLLOW | (place.name.empty() ? AT_EMPTY_PATH : 0);
  if (statx(place.dir, place.name.c_str(), flags, STATX_BASIC_STATS | STATX_BTIME, &s) < 0) return errno;
  *out = AttrOf(s);
  return 0;
}

Outcome HostRunner::Run(const ModelOp& op) {
  Outcome out;
  const int err = Dispatch(op, &out);
  if (err != 0) return Outcome{.err = err};
  return out;
}

int HostRunner::Dispatch(const ModelOp& op, Outcome* out) {
  switch (op.kind) {
    case OpKind::kMkdir:
    case OpKind::kMknod:
    case OpKind::kSymlink: return RunMake(op, out);
    case OpKind::kLink: return RunLink(op, out);
    case OpKind::kCreate:
    case OpKind::kOpen: return RunOpen(op, out);
    case OpKind::kClose:
      if (op.slot < 0 || op.slot >= kSlots || slots_[op.slot] < 0) return EBADF;
      close(std::exchange(slots_[op.slot], -1));
      return 0;
    case OpKind::kUnlink:
    case OpKind::kRmdir: return RunRemove(op);
    case OpKind::kRename: return RunRename(op);
    case OpKind::kChmod:
    case OpKind::kChown:
    case OpKind::kTruncate:
    case OpKind::kUtimens: return RunSetAttr(op, out);
    case OpKind::kWrite:
    case OpKind::kRead:
    case OpKind::kFallocate:
    case OpKind::kSeek: return RunData(op, out);
    case OpKind::kSetXattr:
    case OpKind::kGetXattr:
    case OpKind::kListXattrs:
    case OpKind::kRemoveXattr: return RunXattr(op, out);
    case OpKind::kReaddir:
    case OpKind::kStat:
    case OpKind::kReadlink: return RunRead(op, out);
    case OpKind::kFsync:
    case OpKind::kFsyncDir:
    case OpKind::kSync:
    case OpKind::kDropCaches: return RunSync(op);
    default: return ENOSYS;
  }
}

int HostRunner::RunMake(const ModelOp& op, Outcome* out) {
  Place p;
  if (const int err = Walk(op.at, op.path, &p)) return err;
  if (p.name.empty()) return EINVAL;
  int err = 0;
  if (op.kind == OpKind::kMkdir) {
    err = ErrOf(mkdirat(p.dir, p.name.c_str(), op.mode));
  } else if (op.kind == OpKind::kMknod) {
    err = ErrOf(mknodat(p.dir, p.name.c_str(), ModeBitsOf(static_cast<FileType>(op.sub)) | op.mode, op.rdev));
  } else {
    err = ErrOf(symlinkat(op.path2.c_str(), p.dir, p.name.c_str()));
  }
  if (err != 0) return err;
  out->attrs.resize(1);
  return StatPlace(p, &out->attrs[0]);
}

int HostRunner::RunLink(const ModelOp& op, Outcome* out) {
  Place from;
  Place to;
  Attr attr;
  if (const int err = Walk(op.at, op.path, &from)) return err;
  if (const int err = StatPlace(from, &attr)) return err;
  if (const int err = Walk(op.at2, op.path2, &to)) return err;
  if (to.name.empty()) return EINVAL;
  const int flags = from.name.empty() ? AT_EMPTY_PATH : 0;
  if (linkat(from.dir, from.name.c_str(), to.dir, to.name.c_str(), flags) < 0) return errno;
  out->attrs.resize(1);
  return StatPlace(to, &out->attrs[0]);
}

int HostRunner::RunOpen(const ModelOp& op, Outcome* out) {
  if (op.slot < 0 || op.slot >= kSlots) return EBADF;
  Place p;
  if (const int err = Walk(op.at, op.path, &p)) return err;
  if (p.name.empty()) return EINVAL;
  Attr attr;
  const int err = StatPlace(p, &attr);
  if (err != 0 && !(err == ENOENT && op.kind == OpKind::kCreate)) return err;
  const bool made = err == ENOENT;
  if (!made && !(op.kind == OpKind::kCreate && (op.flags & O_EXCL) != 0)) {
    // Opening a device or a pipe is the kernel's business, and might wait.
    if (attr.type == FileType::kSymlink) return ELOOP;
    if (attr.type != FileType::kRegular && attr.type != FileType::kDirectory) return ENXIO;
  }
  const int flags = op.flags | O_NOFOLLOW | O_CLOEXEC | O_NOATIME | (op.kind == OpKind::kCreate ? O_CREAT : 0);
  const int fd = openat(p.dir, p.name.c_str(), flags, op.mode);
  if (fd < 0) return errno;
  if (slots_[op.slot] >= 0) close(slots_[op.slot]);
  slots_[op.slot] = fd;
  if (!made) return 0;
  out->attrs.resize(1);
  return StatFd(fd, &out->attrs[0]);
}

int HostRunner::RunRemove(const ModelOp& op) {
  Place p;
  if (const int err = Walk(op.at, op.path, &p)) return err;
  if (p.name.empty()) return EINVAL;
  return ErrOf(unlinkat(p.dir, p.name.c_str(), op.kind == OpKind::kRmdir ? AT_REMOVEDIR : 0));
}

int HostRunner::RunRename(const ModelOp& op) {
  Place from;
  Place to;
  if (const int err = Walk(op.at, op.path, &from)) return err;
  if (from.name.empty()) return EINVAL;
  if (const int err = Walk(op.at2, op.path2, &to)) return err;
  if (to.name.empty()) return EINVAL;
  unsigned flags = 0;
  if (op.sub == static_cast<uint32_t>(RenameKind::kNoReplace)) flags = RENAME_NOREPLACE;
  if (op.sub == static_cast<uint32_t>(RenameKind::kExchange)) flags = RENAME_EXCHANGE;
  return ErrOf(renameat2(from.dir, from.name.c_str(), to.dir, to.name.c_str(), flags));
}

int HostRunner::RunSetAttr(const ModelOp& op, Outcome* out) {
  Place p;
  Attr attr;
  if (const int err = Walk(op.at, op.path, &p)) return err;
  if (const int err = StatPlace(p, &attr)) return err;
  const bool by_fd = p.name.empty();
  int err = 0;
  if (op.kind == OpKind::kChmod) {
    if (attr.type == FileType::kSymlink) return EOPNOTSUPP;
    err = ErrOf(by_fd ? fchmod(p.dir, op.mode) : fchmodat(p.dir, p.name.c_str(), op.mode, 0));
  } else if (op.kind == OpKind::kChown) {
    err = ErrOf(fchownat(p.dir, p.name.c_str(), op.uid, op.gid, AT_SYMLINK_NOFOLLOW | (by_fd ? AT_EMPTY_PATH : 0)));
  } else if (op.kind == OpKind::kTruncate) {
    if (attr.type == FileType::kDirectory) return EISDIR;
    if (attr.type != FileType::kRegular) return EINVAL;
    err = ErrOf(by_fd ? ftruncate(p.dir, op.length) : truncate(ProcPath(p.dir, p.name).c_str(), op.length));
  } else {
    const timespec times[2] = {TimeArg(op, op.atime, AttrChange::kAtime, AttrChange::kAtimeNow),
                               TimeArg(op, op.mtime, AttrChange::kMtime, AttrChange::kMtimeNow)};
    err = ErrOf(by_fd ? futimens(p.dir, times) : utimensat(p.dir, p.name.c_str(), times, AT_SYMLINK_NOFOLLOW));
  }
  if (err != 0) return err;
  out->attrs.resize(1);
  return StatPlace(p, &out->attrs[0]);
}

int HostRunner::RunData(const ModelOp& op, Outcome* out) {
  if (op.at < 0 || op.at >= kSlots || slots_[op.at] < 0) return EBADF;
  const int fd = slots_[op.at];
  Attr attr;
  if (const int err = StatFd(fd, &attr)) return err;
  if (attr.type == FileType::kDirectory) return EISDIR;
  if (op.kind == OpKind::kWrite) {
    const std::string data = FillBytes(op.fill, op.length);
    const ssize_t n = pwrite(fd, data.data(), data.size(), op.offset);
    if (n < 0) return errno;
    out->number = n;
    return 0;
  }
  if (op.kind == OpKind::kRead) return ReadFd(fd, op.offset, op.length, &out->text);
  if (op.kind == OpKind::kFallocate) {
    return ErrOf(fallocate(fd, AllocFlags(static_cast<AllocKind>(op.sub)), op.offset, op.length));
  }
  const int whence = op.sub == static_cast<uint32_t>(SeekKind::kData) ? SEEK_DATA : SEEK_HOLE;
  const off_t found = lseek(fd, op.offset, whence);
  if (found < 0) return errno;
  out->number = found;
  return 0;
}

int HostRunner::RunXattr(const ModelOp& op, Outcome* out) {
  Place p;
  Attr attr;
  if (const int err = Walk(op.at, op.path, &p)) return err;
  if (const int err = StatPlace(p, &attr)) return err;
  // By descriptor the l* calls would see the magic link itself.
  const std::string path = ProcPath(p.dir, p.name) + (p.name.empty() && attr.type == FileType::kDirectory ? "/." : "");
  const bool by_fd = p.name.empty() && attr.type != FileType::kDirectory;
  if (op.kind == OpKind::kSetXattr) {
    const std::string value = FillBytes(op.fill, op.length);
    int flags = 0;
    if (op.sub == static_cast<uint32_t>(XattrKind::kCreate)) flags = XATTR_CREATE;
    if (op.sub == static_cast<uint32_t>(XattrKind::kReplace)) flags = XATTR_REPLACE;
    const auto set = by_fd ? setxattr : lsetxattr;
    return ErrOf(set(path.c_str(), op.name.c_str(), value.data(), value.size(), flags));
  }
  if (op.kind == OpKind::kGetXattr) {
    out->text.resize(65536);
    const auto get = by_fd ? getxattr : lgetxattr;
    const ssize_t n = get(path.c_str(), op.name.c_str(), out->text.data(), out->text.size());
    if (n < 0) return errno;
    out->text.resize(n);
    return 0;
  }
  if (op.kind == OpKind::kRemoveXattr) {
    return ErrOf((by_fd ? removexattr : lremovexattr)(path.c_str(), op.name.c_str()));
  }
  std::vector<std::string> names;
  if (by_fd) {
    std::string buffer(65536, '\0');
    const ssize_t n = listxattr(path.c_str(), buffer.data(), buffer.size());
    if (n < 0) return errno;
    for (size_t i = 0; i < static_cast<size_t>(n); i += strlen(buffer.c_str() + i) + 1)
      names.push_back(buffer.c_str() + i);
    std::sort(names.begin(), names.end());
  } else if (const int err = ListX(path, &names)) {
    return err;
  }
  for (const std::string& name : names) {
    if (name.starts_with("user.")) out->text += name + "\n";
  }
  return 0;
}

int HostRunner::RunRead(const ModelOp& op, Outcome* out) {
  Place p;
  Attr attr;
  if (const int err = Walk(op.at, op.path, &p)) return err;
  if (const int err = StatPlace(p, &attr)) return err;
  if (op.kind == OpKind::kStat) {
    out->attrs.push_back(attr);
    return 0;
  }
  if (op.kind == OpKind::kReadlink) {
    if (attr.type != FileType::kSymlink) return EINVAL;
    return ReadLink(p.dir, p.name, &out->text);
  }
  if (attr.type != FileType::kDirectory) return ENOTDIR;
  if (p.name.empty()) return ListFd(p.dir, &out->names);
  Fd dir(openat(p.dir, p.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (dir.get() < 0) return errno;
  return ListFd(dir.get(), &out->names);
}

int HostRunner::RunSync(const ModelOp& op) {
  if (op.kind == OpKind::kDropCaches) return 0;
  if (op.kind == OpKind::kSync) return ErrOf(fsync(root_));
  if (op.kind == OpKind::kFsync) {
    if (op.at < 0 || op.at >= kSlots || slots_[op.at] < 0) return EBADF;
    Attr attr;
    if (const int err = StatFd(slots_[op.at], &attr)) return err;
    if (attr.type == FileType::kDirectory) return EISDIR;
    return ErrOf(op.sub != 0 ? fdatasync(slots_[op.at]) : fsync(slots_[op.at]));
  }
  Place p;
  Attr attr;
  if (const int err = Walk(op.at, op.path, &p)) return err;
  if (const int err = StatPlace(p, &attr)) return err;
  if (attr.type != FileType::kDirectory) return ENOTDIR;
  if (p.name.empty()) return ErrOf(fsync(p.dir));
  Fd dir(openat(p.dir, p.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (dir.get() < 0) return errno;
  return ErrOf(fsync(dir.get()));
}

Result<Tree> HostRunner::Dump() {
  Tree tree;
  ARCHIL_RETURN_IF_ERROR(DumpAt(root_, "", "", tree));
  return tree;
}

Status HostRunner::DumpAt(int dir, const std::string& name, const std::string& path, Tree& out) {
  const auto failed = [&](int err, std::string_view what) {
    return ErrnoError(err, fmt::format("{} of '{}'", what, path));
  };
  TreeNode& node = out[path];
  Place place;
  place.dir = dir;
  place.name = name;
  if (const int err = StatPlace(place, &node.attr)) return failed(err, "stat");
  const std::string proc = ProcPath(dir, name) + (name.empty() ? "/." : "");
  if (node.attr.type == FileType::kSymlink) {
    if (const int err = ReadLink(dir, name, &node.target)) return failed(err, "readlink");
    return Ok();
  }
  std::vector<std::string> xattrs;
  if (const int err = ListX(proc, &xattrs)) return failed(err, "listxattr");
  for (const std::string& x : xattrs) {
    if (const int err = GetX(proc, x, &node.xattrs[x])) return failed(err, "getxattr");
  }
  const bool is_dir = node.attr.type == FileType::kDirectory;
  if (!is_dir && node.attr.type != FileType::kRegular) return Ok();
  const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME | (is_dir ? O_DIRECTORY : 0);
  Fd fd(openat(dir, name.empty() ? "." : name.c_str(), flags));
  if (fd.get() < 0) return failed(errno, "open");
  if (!is_dir) {
    if (const int err = ReadFd(fd.get(), 0, node.attr.size + 1, &node.content)) return failed(err, "read");
    return Ok();
  }
  std::vector<ListedName> names;
  if (const int err = ListFd(fd.get(), &names)) return failed(err, "readdir");
  for (const ListedName& item : names) {
    ARCHIL_RETURN_IF_ERROR(DumpAt(fd.get(), item.name, path.empty() ? item.name : path + "/" + item.name, out));
  }
  return Ok();
}

}  // namespace archil::test
