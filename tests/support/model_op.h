// ModelOp: one step of a random run as plain data, printed as one line of text and read back, so that a
// failing run can be pasted into a test.
//
// Paths are relative: `at` names the slot of an open file or directory to start from (-1: the root); an empty path
// is that inode itself. No component follows a symbolic link. Every op may be run in any state: one that makes no sense
// gives an error, and the same one everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/time.h"
#include "tests/support/inode_fs.h"

namespace archil::test {

enum class OpKind : uint8_t {
  kMkdir,
  kMknod,
  kSymlink,
  kLink,
  kCreate,
  kOpen,
  kClose,
  kUnlink,
  kRmdir,
  kRename,
  kChmod,
  kChown,
  kTruncate,
  kUtimens,
  kWrite,
  kRead,
  kFallocate,
  kSeek,
  kSetXattr,
  kGetXattr,
  kListXattrs,
  kRemoveXattr,
  kReaddir,
  kStat,
  kReadlink,
  kFsync,
  kFsyncDir,
  kSync,
  kDropCaches,
  // Steps of the run itself, not calls of the file system.
  kCompare,  // the whole tree
  kRemount,  // orderly, with an empty cache
  kCrashClient,
  kRestartServer,
  kCrashServer,
  kCrashBoth,
  kCount,
};

inline constexpr int kSlots = 6;

struct ModelOp {
  OpKind kind = OpKind::kStat;
  int at = -1;
  std::string path;
  int at2 = -1;       // link, rename: the new name
  std::string path2;  // also: target of a symlink
  int slot = -1;      // create, open, close: where the handle is kept
  int flags = 0;      // open(2)
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t rdev = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t fill = 0;  // which bytes are written, see FillBytes
  uint32_t sub = 0;   // FileType, RenameKind, AllocKind, SeekKind, XattrKind, or fields of AttrChange
  bool kill_set_id = false;
  std::string name;  // xattr
  Timestamp atime;
  Timestamp mtime;

  friend bool operator==(const ModelOp&, const ModelOp&) = default;
};

// `length` bytes that depend on `fill` and hold no zero; fill 0 is all zeros.
std::string FillBytes(uint64_t fill, uint64_t length);

std::string ToString(const ModelOp& op);
std::string ToString(const std::vector<ModelOp>& ops);
std::optional<ModelOp> ParseModelOp(std::string_view line);
// Lines that are empty or start with '#' are skipped; nullopt if a line is not understood.
std::optional<std::vector<ModelOp>> ParseModelOps(std::string_view text);

}  // namespace archil::test
