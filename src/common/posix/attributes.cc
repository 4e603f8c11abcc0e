#include "common/posix/attributes.h"

#include <sys/stat.h>

#include <algorithm>

namespace archil {
namespace {

constexpr int64_t kDaySeconds = 24 * 60 * 60;

uint32_t SetIdCleared(uint32_t mode) {
  uint32_t cleared = mode & S_ISUID;
  if ((mode & S_ISGID) && (mode & S_IXGRP)) cleared |= S_ISGID;
  return cleared;
}

}  // namespace

uint32_t SetIdClearedByWrite(FileType type, uint32_t mode) {
  return type == FileType::kRegular ? SetIdCleared(mode) : 0;
}

uint32_t SetIdClearedByChown(FileType type, uint32_t mode) {
  return type != FileType::kDirectory ? SetIdCleared(mode) : 0;
}

NewInodeOwner OwnerOfNewInode(const Attr& directory, FileType type, uint32_t mode, uint32_t caller_gid) {
  if ((directory.mode & S_ISGID) == 0) return {caller_gid, mode};
  return {directory.gid, type == FileType::kDirectory ? mode | S_ISGID : mode};
}

bool RelatimeMoves(const Attr& attr, Timestamp now) {
  if (attr.atime <= attr.mtime || attr.atime <= attr.ctime) return true;
  // Timestamps may lie far apart: no subtraction that could overflow.
  return attr.atime.sec <= INT64_MAX - kDaySeconds &&
         Timestamp{attr.atime.sec + kDaySeconds, attr.atime.nsec} <= now;
}

Code CheckTruncate(FileType type, uint64_t size) {
  if (type == FileType::kDirectory) return Code::kIsDirectory;
  if (type != FileType::kRegular) return Code::kInvalid;
  return size > kMaxFileSize ? Code::kFileTooBig : Code::kOk;
}

Result<uint64_t> WritableBytes(uint64_t offset, uint64_t length) {
  if (length == 0) return length;
  if (offset >= kMaxFileSize) return Code::kFileTooBig;
  return std::min(length, kMaxFileSize - offset);
}

Code CheckRange(uint64_t offset, uint64_t length) {
  if (length == 0) return Code::kInvalid;
  return offset > kMaxFileSize || length > kMaxFileSize - offset ? Code::kFileTooBig : Code::kOk;
}

}  // namespace archil
