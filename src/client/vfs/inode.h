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

  uint64_t lookups = 0;  // references of the kernel (FORGET gives them back)
  uint32_t opens = 0;    // open handles
  uint32_t pins = 0;     // calls that released the lock and come back to it
  bool orphan = false;   // unlinked while open: ReleaseOrphanOp is due at the last close
  bool mapped = false;   // `map` knows every chunk (born here), so allocated bytes are exact

  Seq last_op;  // newest op of the log that touches it; above the durable one it cannot leave memory
  // Written to since its dirty bytes were last taken.
  bool in_dirty_list = false;
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
};

}  // namespace archil
