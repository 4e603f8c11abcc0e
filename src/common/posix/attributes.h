// Rules for attributes and sizes: what the kernel leaves to the file system. Pure.
#pragma once

#include <cstdint>

#include "common/api/types.h"
#include "common/base/result.h"
#include "common/base/time.h"

namespace archil {

// Set-id bits that a write or a size change takes from a regular file, when the writer is not privileged (the kernel says so:
// FUSE_WRITE_KILL_SUIDGID, FATTR_KILL_SUIDGID): S_ISUID always, S_ISGID only with group execution (without it the bit means
// mandatory locking). As should_remove_suid() in Linux. Returns the bits to clear.
uint32_t SetIdClearedByWrite(FileType type, uint32_t mode);
// The same for chown(2), by anybody, privileged or not: of everything but directories.
uint32_t SetIdClearedByChown(FileType type, uint32_t mode);

// Group and mode of a new inode. In a set-gid directory the group is the directory's, and a directory inherits the bit.
// `mode` has the umask applied and the set-gid bit of strangers to the group taken away (both are the kernel's).
struct NewInodeOwner {
  uint32_t gid = 0;
  uint32_t mode = 0;

  friend bool operator==(const NewInodeOwner&, const NewInodeOwner&) = default;
};
NewInodeOwner OwnerOfNewInode(const Attr& directory, FileType type, uint32_t mode, uint32_t caller_gid);

// mount(8) relatime: a read moves atime only if it is not newer than mtime or ctime, or a day old.
bool RelatimeMoves(const Attr& attr, Timestamp now);

// truncate(2): a directory is kIsDirectory, other than a regular file kInvalid, over kMaxFileSize kFileTooBig.
Code CheckTruncate(FileType type, uint64_t size);
// write(2): how many bytes may be written at `offset`: fewer than `length` at the end of what a file can hold, kFileTooBig when
// nothing can. Zero bytes are allowed anywhere.
Result<uint64_t> WritableBytes(uint64_t offset, uint64_t length);
// fallocate(2): length 0 is kInvalid, an end over kMaxFileSize kFileTooBig.
Code CheckRange(uint64_t offset, uint64_t length);

}  // namespace archil
