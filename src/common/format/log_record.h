// Records of a disk's log: every decision about a disk, in the order of its strand.
//
//   frame = u32 magic ‖ u8 version ‖ u64 lsn ‖ u32 body length ‖ u64 checksum ‖ body
//   body  = u8 kind ‖ fields
// A version is written only for what a lower one cannot say. 2: an exclusive session, a commit with inodes open elsewhere. 3: what was
// taken from a silent session, an operation applied at the server. 4: a credit.
// The checksum covers all of the frame but itself. Frames follow each other without gaps; a frame may be split
// over several appends but never over two segments. Applying a record is a pure function of it and the state (replay).
// Pure; pinned by golden tests (docs/formats.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/api/meta_service.h"
#include "common/base/ids.h"
#include "common/base/result.h"

namespace archil {

// The first record of every log.
struct DiskCreatedRecord {
  DiskId disk;
  std::string name;
  Timestamp created;
  uint64_t quota_bytes = 0;
};

struct SessionOpenedRecord {
  SessionId session;
  SessionKey key;
  BranchId branch;
  SessionMode mode = SessionMode::kReadWrite;
  std::string client_name;
  Timestamp opened;
  uint64_t lease_ms = 0;
  Sharing sharing = Sharing::kShared;
};

// FEN-1: durable before anything that the session held is given to another. It takes all of it.
struct SessionEndedRecord {
  SessionId session;
  bool fenced = false;  // by the server, not by its own wish
  std::string reason;
};

struct CommitRecord {
  // An inode that lost its last name, and the other sessions that have it open: it becomes an orphan of theirs.
  struct Open {
    InodeId ino;
    std::vector<SessionId> sessions;
  };
  SessionId session;
  Seq first;
  Seq last;
  std::string ops;  // EncodeOps
  std::vector<Open> opens;
};

// Inode numbers [block * kInodeRange, (block + 1) * kInodeRange).
struct RangeGrantedRecord {
  SessionId session;
  uint64_t block = 0;
};

struct SegmentsGrantedRecord {
  struct Grant {
    SegmentId segment;
    uint64_t token = 0;
    std::vector<uint32_t> servers;
  };
  SessionId session;
  std::vector<Grant> grants;
};

struct SegmentsReleasedRecord {
  SessionId session;
  std::vector<SegmentId> segments;
};

// Nothing refers to them; from here on no op may name them.
struct SegmentsCondemnedRecord {
  std::vector<SegmentId> segments;
};

// They are gone from the data servers.
struct SegmentsDeletedRecord {
  std::vector<SegmentId> segments;
};

// FEN-1: durable before any of it is given to another.
struct TakenRecord {
  SessionId session;
  std::vector<Taken> taken;
};

// The session knows of it, and its numbers go on after `last`.
struct SettledRecord {
  SessionId session;
  std::vector<InodeId> taken;
  Seq last;
};

// SRV-1: an operation that the server decided, and what it answered. The result is kept until the session says that it
// is finished.
struct ServerOpRecord {
  SessionId session;
  uint64_t id = 0;
  uint64_t finished = 0;
  std::string ops;  // EncodeOps, with everything filled in; none: it was a success that changes nothing
  std::vector<CommitRecord::Open> opens;
  InodeId shown;  // the inode of the answer, as the ops left it; 0: none
  InodeId removed;
};

// The session's credit is this from here on (docs/quota.md).
struct SpaceReservedRecord {
  SessionId session;
  uint64_t request = 0;  // number of the session's call
  uint64_t credit = 0;   // bytes
};

using LogRecord = std::variant<DiskCreatedRecord, SessionOpenedRecord, SessionEndedRecord, CommitRecord, RangeGrantedRecord,
                               SegmentsGrantedRecord, SegmentsReleasedRecord, SegmentsCondemnedRecord, SegmentsDeletedRecord, TakenRecord, SettledRecord,
                               ServerOpRecord, SpaceReservedRecord>;

inline constexpr size_t kLogFrameHeader = 4 + 1 + 8 + 4 + 8;
inline constexpr size_t kMaxOpensBytes = 1 << 20;  // of a commit's record
inline constexpr size_t kMaxLogBody = kMaxCommitBytes + kMaxOpensBytes + 4096;

// What `opens` takes in a record.
size_t OpensSize(const std::vector<CommitRecord::Open>& opens);
std::string EncodeLogRecord(Lsn lsn, const LogRecord& record);

struct LogFrame {
  Lsn lsn;
  LogRecord record;
  size_t size = 0;  // bytes of the frame
};
// The frame at the start of `bytes`. kNoData: `bytes` may be the beginning of a frame that is longer (or is empty); kCorrupt: it is
// not a frame; kNotSupported: a newer version, its checksum good.
Result<LogFrame> DecodeLogFrame(std::string_view bytes);
// True if a whole good frame starts somewhere in `bytes`: then what comes before it is damage, not a torn tail.
bool HasLogFrame(std::string_view bytes);

}  // namespace archil
