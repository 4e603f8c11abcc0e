// Inode and Handle: what the mount knows of one inode, and of one open file. Plain data, guarded by MountState::mu.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "client/cache/dir_index.h"
#include "client/cache/file_map.h"
#include "client/core/fs_api.h"
#include "common/api/types.h"

namespace archil {

struct Inode {
  Attr attr;  // the merged view: with every acknowledged change
  std::string target;
  InodeId parent;  // directories: the one above, 0 if root or removed
  // Others: the directory whose right covers it; 0: only a right of its own does (docs/delegation.md).
  InodeId home;
  uint32_t covered = 0;  // directories: inodes in memory whose home it is
  // What stands here is true: it was loaded (or born) under a right that was held since. Otherwise it is loaded again.
  bool valid = true;
  bool gone = false;  // removed for good on another mount: no right is needed, nobody has one
  // Born here and never given up: no other mount can have it open.
  bool only_ours = false;
  bool told_open = false;       // a server was told that it is open here: it must hear of the last close
  uint32_t waiting_writes = 0;  // calls that wait for the right to write: the kernel may hold locks on pages for them
  bool drop_pages = false;      // the kernel's pages go when the last of those is answered
  bool in_kernel = false;       // the kernel may have pages of it: it was handed some since it was told to drop them
  bool recached = false;        // while it is given up: the kernel was handed pages after it had been told to drop them
  bool sealed = false;          // while it is given up: the kernel dropped all, reads and changes wait for the end
  uint32_t carved = 0;          // directories: files in it that were wanted for writing one by one
  bool lost = false;            // changes were lost (FENCE-1), the next fsync says so; where no handle can: directories, exclusive mounts
  uint64_t generation = 0;      // +1 whenever what stands here stops being true

  uint64_t lookups = 0;  // references of the kernel (FORGET gives them back)
  uint32_t opens = 0;    // open handles
  uint32_t pins = 0;     // calls that released the lock and come back to it
  bool orphan = false;   // unlinked while open: ReleaseOrphanOp is due at the last close
  Seq orphaned_by;       // the op that made it one
  bool mapped = false;   // `map` knows every chunk (born here), so allocated bytes are exact

  Seq last_op;  // newest op of the log that touches it; above the durable one it cannot leave memory
  Seq covered_last;  // directories: newest op that touches an inode that it covers, or covered then
  // Written to since its dirty bytes were last taken.
  bool in_dirty_list = false;
  uint64_t promised = 0;    // bytes that its dirty ones may add on a disk with a quota
  uint32_t clear_mode = 0;  // set-id bits that writes cleared since then

  std::unique_ptr<DirIndex> dir;                             // directories
  std::unique_ptr<FileMap> map;                              // regular files
  std::optional<std::map<std::string, std::string>> xattrs;  // absent: not loaded yet
  bool has_xattrs = false;                                   // at the server, while not loaded

  InodeId ino() const { return attr.ino; }
  bool is_dir() const { return attr.type == FileType::kDirectory; }
  bool is_file() const { return attr.type == FileType::kRegular; }
};

struct Handle {
  InodeId ino;
  int flags = 0;
  bool direct = false;     // the kernel keeps nothing of what is read through it
  bool lost = false;       // changes of the file were lost (FENCE-1): the next fsync says so, and every close before it
  bool lock_lost = false;  // a lock taken through it was taken away (LOCK-1): kIo until it is closed
};

}  // namespace archil
