// InodeFs: what the model tests ask of a file system, by inode number: the reference and the client core wear it.
// Single-threaded. A success of Lookup and of every call that makes a name counts one reference on the
// inode, given back by Forget. Errors are those of the man pages as Linux gives them below the permission checks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/types.h"
#include "common/base/result.h"

namespace archil::test {

enum class RenameKind : uint8_t { kPlain, kNoReplace, kExchange };
enum class XattrKind : uint8_t { kEither, kCreate, kReplace };
enum class AllocKind : uint8_t { kAllocate, kAllocateKeepSize, kPunchHole, kZeroRange, kZeroRangeKeepSize };
enum class SeekKind : uint8_t { kData, kHole };

struct Who {
  uint32_t uid = 0;
  uint32_t gid = 0;
};

struct AttrChange {
  enum Field : uint32_t {
    kMode = 1,
    kUid = 2,
    kGid = 4,
    kSize = 8,
    kAtime = 16,
    kMtime = 32,
    kAtimeNow = 64,
    kMtimeNow = 128,
    kKillSetId = 256,
  };
  uint32_t fields = 0;
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t size = 0;
  Timestamp atime;
  Timestamp mtime;
};

struct ListedName {
  std::string name;
  InodeId ino;
  FileType type = FileType::kRegular;
  friend bool operator<(const ListedName& a, const ListedName& b) { return a.name < b.name; }
};

struct OpenedFile {
  Attr attr;
  uint64_t handle = 0;
};

class InodeFs {
 public:
  virtual ~InodeFs() = default;
  virtual InodeId Root() = 0;
  virtual Result<Attr> Lookup(InodeId parent, std::string_view name) = 0;
  virtual void Forget(InodeId ino) = 0;
  virtual Result<Attr> GetAttr(InodeId ino) = 0;
  virtual Result<Attr> SetAttr(InodeId ino, const AttrChange& change) = 0;
  virtual Result<std::string> Readlink(InodeId ino) = 0;
  virtual Result<Attr> Mkdir(Who who, InodeId parent, std::string_view name, uint32_t mode) = 0;
  virtual Result<Attr> Mknod(Who who, InodeId parent, std::string_view name, FileType type, uint32_t mode,
                             uint64_t rdev) = 0;
  virtual Result<Attr> Symlink(Who who, InodeId parent, std::string_view name, std::string_view target) = 0;
  virtual Result<Attr> Link(InodeId ino, InodeId parent, std::string_view name) = 0;
  // O_CREAT | O_EXCL.
  virtual Result<OpenedFile> Create(Who who, InodeId parent, std::string_view name, uint32_t mode, int flags) = 0;
  virtual Status Unlink(InodeId parent, std::string_view name) = 0;
  virtual Status Rmdir(InodeId parent, std::string_view name) = 0;
  virtual Status Rename(InodeId parent, std::string_view name, InodeId new_parent, std::string_view new_name,
                        RenameKind kind) = 0;
  virtual Result<uint64_t> Open(InodeId ino, int flags) = 0;
  virtual Result<std::string> Read(InodeId ino, uint64_t offset, size_t length) = 0;
  virtual Result<uint64_t> Write(InodeId ino, uint64_t offset, std::string_view data, bool append,
                                 bool kill_set_id) = 0;
  virtual Status Fsync(InodeId ino, uint64_t handle, bool data_only) = 0;
  virtual Status FsyncDir(InodeId ino) = 0;
  virtual void Release(InodeId ino, uint64_t handle) = 0;
  virtual Status Fallocate(InodeId ino, AllocKind kind, uint64_t offset, uint64_t length) = 0;
  virtual Result<uint64_t> Seek(InodeId ino, uint64_t offset, SeekKind what) = 0;
  // All names but "." and "..", in any order.
  virtual Result<std::vector<ListedName>> Readdir(InodeId ino) = 0;
  virtual Result<std::string> GetXattr(InodeId ino, std::string_view name) = 0;
  virtual Result<std::vector<std::string>> ListXattrs(InodeId ino) = 0;
  virtual Status SetXattr(InodeId ino, std::string_view name, std::string_view value, XattrKind kind) = 0;
  virtual Status RemoveXattr(InodeId ino, std::string_view name) = 0;
  virtual Status Sync() = 0;
  virtual void DropCaches() = 0;
};

}  // namespace archil::test
