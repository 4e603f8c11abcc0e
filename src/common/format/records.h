// Records of the metadata state: what stands behind the keys of server/meta/store/keys.h.
//
//   value     = u8 version (1) ‖ body ‖ u32 checksum (low half of XXH3 over version and body)
//   tombstone = the single byte 0: the key is absent at this epoch and hides older versions
// Integers in bodies are varints unless said. A newer version is kNotSupported; a bad checksum, short or trailing
// bytes, and impossible fields are kCorrupt. Pure; pinned by golden tests (docs/formats.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/meta_service.h"
#include "common/api/types.h"
#include "common/base/ids.h"
#include "common/base/result.h"

namespace archil {

std::string_view TombstoneValue();
bool IsTombstone(std::string_view value);

// --- records of a branch (versioned by epoch)

struct InodeRecord {
  Attr attr;
  std::string target;                         // symlinks
  std::map<std::string, std::string> xattrs;  // small ones; large ones have records of their own
  uint64_t large_xattrs = 0;                  // how many of those
  friend bool operator==(const InodeRecord&, const InodeRecord&) = default;
};
std::string Encode(const InodeRecord& r);
Result<InodeRecord> DecodeInode(std::string_view value);

struct DentryRecord {
  InodeId ino;
  FileType type = FileType::kRegular;
  friend bool operator==(const DentryRecord&, const DentryRecord&) = default;
};
std::string Encode(const DentryRecord& r);
Result<DentryRecord> DecodeDentry(std::string_view value);

// An extent of one chunk. kInline ones name a record of the bytes table, (bytes_offset, bytes_serial), and show it from `skip` on.
struct StoredExtent {
  uint32_t begin = 0;  // in the chunk
  uint32_t end = 0;
  ExtentKind kind = ExtentKind::kZero;
  SegmentId segment;
  uint64_t segment_offset = 0;
  uint64_t bytes_offset = 0;  // file offset at which the bytes were written
  uint64_t bytes_serial = 0;  // change counter of the inode when they were
  uint32_t skip = 0;
  friend bool operator==(const StoredExtent&, const StoredExtent&) = default;
};
// Sorted, non-overlapping, not empty.
struct ChunkRecord {
  std::vector<StoredExtent> extents;
  friend bool operator==(const ChunkRecord&, const ChunkRecord&) = default;
};
std::string Encode(const ChunkRecord& r);
Result<ChunkRecord> DecodeChunk(std::string_view value);

// Values that are bytes and nothing else: the bytes and xattr tables; empty for the parent table.
std::string EncodeBlob(std::string_view bytes);
Result<std::string> DecodeBlob(std::string_view value);

struct OrphanRecord {
  std::vector<SessionId> sessions;  // sorted; those that still have it open
  friend bool operator==(const OrphanRecord&, const OrphanRecord&) = default;
};
std::string Encode(const OrphanRecord& r);
Result<OrphanRecord> DecodeOrphan(std::string_view value);

struct CountersRecord {
  uint64_t bytes = 0;   // sum of Attr.allocated
  uint64_t inodes = 0;  // root and orphans included
  friend bool operator==(const CountersRecord&, const CountersRecord&) = default;
};
std::string Encode(const CountersRecord& r);
Result<CountersRecord> DecodeCounters(std::string_view value);

// --- records of the disk (no epoch)

struct DiskRecord {
  DiskId id;
  std::string name;
  Timestamp created;
  uint64_t quota_bytes = 0;
  uint64_t next_inode_block = 1;  // ranges are blocks of kInodeRange numbers; block 0 holds the root
  uint64_t next_segment = 1;
  uint64_t next_session = 1;
  uint64_t next_branch = 2;
  friend bool operator==(const DiskRecord&, const DiskRecord&) = default;
};
std::string Encode(const DiskRecord& r);
Result<DiskRecord> DecodeDisk(std::string_view value);

struct BranchRecord {
  BranchId id;
  std::string name;
  Epoch epoch;       // current one
  Epoch first_epoch; // the one it was born with
  BranchId parent;   // 0: none
  Epoch parent_epoch;
  friend bool operator==(const BranchRecord&, const BranchRecord&) = default;
};
std::string Encode(const BranchRecord& r);
Result<BranchRecord> DecodeBranch(std::string_view value);

struct SessionRecord {
  enum class State : uint8_t { kLive = 1, kClosed = 2, kFenced = 3 };
  SessionId id;
  SessionKey key;
  BranchId branch;
  SessionMode mode = SessionMode::kReadWrite;
  State state = State::kLive;
  std::string client_name;
  Timestamp opened;
  uint64_t lease_ms = 0;
  Seq applied;
  std::string end_reason;
  Sharing sharing = Sharing::kShared;
  uint64_t credit = 0;         // bytes that its commits may still add (docs/quota.md)
  uint64_t space_request = 0;  // number of its newest reservation
  friend bool operator==(const SessionRecord&, const SessionRecord&) = default;
};
std::string Encode(const SessionRecord& r);
Result<SessionRecord> DecodeSession(std::string_view value);

struct SegmentRecord {
  enum class State : uint8_t {
    kWritable = 1,   // its session may append and name it
    kReleased = 2,   // its session appends no more, but may name it
    kOrphaned = 3,   // its session ended; kept while something refers to it
    kCondemned = 4,  // nothing refers to it and no op may name it; to be deleted
  };
  SegmentId id;
  SessionId session;
  State state = State::kWritable;
  uint64_t token = 0;
  std::vector<uint32_t> servers;
  friend bool operator==(const SegmentRecord&, const SegmentRecord&) = default;
};
std::string Encode(const SegmentRecord& r);
Result<SegmentRecord> DecodeSegment(std::string_view value);

// What was taken of an inode from a session that has not settled it; the key names both.
struct TakenMark {
  bool right = false;
  bool locks = false;
  friend bool operator==(const TakenMark&, const TakenMark&) = default;
};
std::string Encode(const TakenMark& r);
Result<TakenMark> DecodeTaken(std::string_view value);

// A block of kInodeRange inode numbers, granted to a session.
struct RangeRecord {
  SessionId session;
  friend bool operator==(const RangeRecord&, const RangeRecord&) = default;
};
std::string Encode(const RangeRecord& r);
Result<RangeRecord> DecodeRange(std::string_view value);

inline constexpr uint64_t kInodeRange = 65536;    // numbers of one grant
inline constexpr uint64_t kInodesPerUsed = 512;   // numbers per record of used ones
// Which numbers of a granted block were used, kInodesPerUsed bits per record.
struct UsedRecord {
  std::string bits = std::string(kInodesPerUsed / 8, '\0');
  bool test(uint64_t i) const { return (static_cast<uint8_t>(bits[i / 8]) >> (i % 8)) & 1; }
  void set(uint64_t i) { bits[i / 8] = static_cast<char>(static_cast<uint8_t>(bits[i / 8]) | (1u << (i % 8))); }
};
std::string Encode(const UsedRecord& r);
Result<UsedRecord> DecodeUsed(std::string_view value);

// What an operation applied at the server was answered with (SRV-1), by session and id.
struct ServerResultRecord {
  std::optional<InodeRecord> inode;  // as the operation left it
  InodeId removed;
  friend bool operator==(const ServerResultRecord&, const ServerResultRecord&) = default;
};
std::string Encode(const ServerResultRecord& r);
Result<ServerResultRecord> DecodeServerResult(std::string_view value);
// Operations of a session with ids below it are finished.
std::string EncodeFinished(uint64_t finished);
Result<uint64_t> DecodeFinished(std::string_view value);

// Newest log record that the state holds.
std::string EncodeApplied(Lsn lsn);
Result<Lsn> DecodeApplied(std::string_view value);

}  // namespace archil
