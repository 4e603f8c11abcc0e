// Operations: the changes of metadata in a session's ordered log, as the client acknowledged them.
//
// Every op carries what the client decided (inode numbers, times), so that applying one is a pure
// function of the op and the records it names: client, server and replay come to the same state.
// `now` of an op is later than every time the session gave out before (Attr times move to exactly it).
// The server sets ctime = max(op's time, old ctime), so that placing bytes again (same times) changes no time.
// Which times an op moves: see each op. "parent's times" = mtime and ctime of the directory.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "common/api/types.h"

namespace archil {

// A new inode under a new name. Sets all four times of the inode and the parent's times to now.
// A directory also adds one to the parent's nlink.
struct CreateOp {
  InodeId parent;
  std::string name;
  InodeId ino;
  FileType type = FileType::kRegular;
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t rdev = 0;
  std::string target;  // symlinks
  Timestamp now;
};

// A further name for an inode that is not a directory. ctime of the inode and parent's times.
struct LinkOp {
  InodeId ino;
  InodeId parent;
  std::string name;
  Timestamp now;
};

// Removes a name of a non-directory. ctime of the inode and parent's times. At nlink 0 the inode goes,
// or becomes an orphan of this session if `still_open`, until ReleaseOrphanOp or the session's end.
struct UnlinkOp {
  InodeId parent;
  std::string name;
  InodeId ino;  // what the name must show
  bool still_open = false;
  Timestamp now;
};

// Removes an empty directory. Parent's times; parent's nlink - 1. `still_open` as for UnlinkOp.
struct RmdirOp {
  InodeId parent;
  std::string name;
  InodeId ino;
  bool still_open = false;
  Timestamp now;
};

// rename(2). ctime of the moved inode, times of both parents, ctime of a replaced inode that stays.
struct RenameOp {
  enum class Mode : uint8_t { kPlain = 0, kNoReplace = 1, kExchange = 2 };
  InodeId parent;
  std::string name;
  InodeId new_parent;
  std::string new_name;
  InodeId ino;     // what `name` must show
  InodeId victim;  // what `new_name` must show; 0: nothing
  Mode mode = Mode::kPlain;
  bool victim_still_open = false;
  Timestamp now;
};

// Sets attributes. ctime = now always. Truncation (kSize) drops extents past the new size.
struct SetAttrOp {
  enum Field : uint32_t {
    kMode = 1, kUid = 2, kGid = 4, kSize = 8, kAtime = 16, kMtime = 32,
  };
  InodeId ino;
  uint32_t fields = 0;
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t size = 0;
  Timestamp atime;
  Timestamp mtime;
  Timestamp now;
};

// Data of a file is now at `extents` (sorted, non-overlapping; each within the file's new size). Replaces what
// the ranges showed before and nothing else. Sets size, mtime and ctime to what they were when the
// bytes were taken from the dirty state (EXT-1); the size never shrinks by this op.
struct SetExtentsOp {
  InodeId ino;
  std::vector<Extent> extents;
  uint64_t size = 0;
  Timestamp mtime;
  Timestamp ctime;
  // Set-id bits that the write cleared (kernel's or ours), applied to mode.
  uint32_t clear_mode = 0;
};

// The range becomes a hole (kPunch) or allocated zeros (kZero); `size` is the file's size afterwards.
struct ClearRangeOp {
  enum class Kind : uint8_t { kPunch = 0, kZero = 1, kAllocate = 2 /* zero only what is a hole */ };
  InodeId ino;
  Kind kind = Kind::kPunch;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t size = 0;
  Timestamp now;
};

struct SetXattrOp {
  InodeId ino;
  std::string name;
  std::string value;
  Timestamp now;  // ctime
};

struct RemoveXattrOp {
  InodeId ino;
  std::string name;
  Timestamp now;  // ctime
};

// The session's last reference is gone to an inode that it unlinked while it was open, or that it has told the server to be open
// (RecallAnswer::opens). No error if it is no orphan of the session, or is gone.
struct ReleaseOrphanOp {
  InodeId ino;
};

// Times of a directory whose entries changed by ops that were absorbed.
struct TouchOp {
  InodeId ino;
  Timestamp mtime;
  Timestamp ctime;
};

using Op = std::variant<CreateOp, LinkOp, UnlinkOp, RmdirOp, RenameOp, SetAttrOp, SetExtentsOp,
                        ClearRangeOp, SetXattrOp, RemoveXattrOp, ReleaseOrphanOp, TouchOp>;

}  // namespace archil
