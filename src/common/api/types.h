// Vocabulary of a disk's tree, shared by client, server and wire.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/time.h"

namespace archil {

// Limits. Bytes unless said. Checked at the client before an op is acknowledged and again at the server.
inline constexpr size_t kMaxName = 255;                      // NAME_MAX
inline constexpr size_t kMaxSymlink = 4095;                  // PATH_MAX - 1
inline constexpr uint32_t kMaxLinks = 65000;                 // as ext4
inline constexpr uint64_t kMaxFileSize = (1ULL << 63) - 1;   // off_t
inline constexpr size_t kMaxXattrName = 255;                 // XATTR_NAME_MAX
inline constexpr size_t kMaxXattrValue = 65536;              // XATTR_SIZE_MAX
inline constexpr size_t kMaxXattrList = 65536;               // XATTR_LIST_MAX
inline constexpr uint64_t kChunkSize = 1ULL << 20;           // unit of extent records
inline constexpr size_t kMaxInlineBytes = 64 * 1024;         // data of one op inside a commit
inline constexpr size_t kMaxAppend = 4 * 1024 * 1024;        // one segment append
inline constexpr uint64_t kMaxSegment = 64ULL * 1024 * 1024; // a segment is sealed at this length
inline constexpr size_t kMaxOpsPerCommit = 4096;
inline constexpr size_t kMaxCommitBytes = 8 * 1024 * 1024;   // encoded ops of one commit

enum class FileType : uint8_t {
  kRegular = 1,
  kDirectory = 2,
  kSymlink = 3,
  kFifo = 4,
  kSocket = 5,
  kCharDevice = 6,
  kBlockDevice = 7,
};
bool IsValid(FileType type);
// S_IFxxx bits of a type, and back (0-type on unknown bits is not valid).
uint32_t ModeBitsOf(FileType type);
FileType TypeOfModeBits(uint32_t mode);

struct Attr {
  InodeId ino;
  FileType type = FileType::kRegular;
  uint32_t mode = 0;  // permission, set-id and sticky bits only (07777)
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t nlink = 0;  // a directory: 2 + number of its directories
  uint64_t size = 0;   // bytes; a symlink: length of the target; a directory: number of names
  uint64_t allocated = 0;  // bytes held by extents; st_blocks = allocated rounded up to 512, / 512
  uint64_t rdev = 0;
  Timestamp atime, mtime, ctime, btime;
  uint64_t change = 0;  // change counter: grows with every change of data or metadata

  friend bool operator==(const Attr&, const Attr&) = default;
};

// Where the bytes of a range of a file are.
enum class ExtentKind : uint8_t {
  kSegment = 1,  // (segment, segment_offset)
  kInline = 2,   // `data`, kept in the bytes table at the server
  kZero = 3,     // allocated and zero (fallocate)
};
// Ranges without an extent are holes and read as zeros.
struct Extent {
  uint64_t offset = 0;  // in the file
  uint64_t length = 0;
  ExtentKind kind = ExtentKind::kSegment;
  SegmentId segment;
  uint64_t segment_offset = 0;
  Buffer data;  // kInline only; size() == length

  uint64_t end() const { return offset + length; }
};

// A name may be 1..255 bytes, without '/' and NUL, and not "." or "..".
bool IsValidName(std::string_view name);

}  // namespace archil
