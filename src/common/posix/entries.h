// Rules for names and entries of directories. Pure; permissions and the sticky bit are the kernel's (default_permissions).
#pragma once

#include <cstdint>
#include <string_view>

#include "common/api/types.h"
#include "common/base/result.h"

namespace archil {

// For a name that is to be created, removed or moved. Empty: kNotFound (path_resolution(7)); "." and "..", or a '/' or NUL
// inside: kInvalid; over NAME_MAX: kNameTooLong.
Code CheckName(std::string_view name);

// A new inode's link count, and what its name adds to the link count of the directory (2 + number of its directories, which
// has no limit: kMaxLinks is for the names of other inodes).
constexpr uint32_t InitialNlink(FileType type) { return type == FileType::kDirectory ? 2 : 1; }
constexpr int32_t ParentNlinkOf(FileType type) { return type == FileType::kDirectory ? 1 : 0; }

// link(2): a directory is kPermission; an inode without a name (removed, still open) kNotFound; at kMaxLinks kTooManyLinks.
Code CheckLink(FileType type, uint32_t nlink);
// unlink(2): a directory is kIsDirectory, as on Linux (POSIX says EPERM).
Code CheckUnlink(FileType type);
// rmdir(2): kNotDirectory, kBusy for the root, kNotEmpty.
Code CheckRmdir(InodeId ino, FileType type, bool empty);

}  // namespace archil
