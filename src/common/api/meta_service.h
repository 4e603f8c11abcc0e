// MetaService: the plain C++ face of a metadata server, for one caller or many. Implemented by the server
// itself (in-process) and by the gRPC stub (common/rpc); one contract suite holds for both.
//
// All calls block until answered, the context's deadline passes (kUnknown for calls that change
// something, kUnavailable for others) or it is cancelled (kInterrupted). Thread safe.
// LOG-1: every answer, reads included, is given only when the log is durable up to what it saw.
// Errors of every call on a session: kFenced (the server ended it; message says why), kUnavailable.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/api/context.h"
#include "common/api/data_service.h"
#include "common/api/ops.h"
#include "common/api/types.h"
#include "common/base/result.h"

namespace archil {

struct DiskInfo {
  DiskId id;
  std::string name;
  Timestamp created;
  uint64_t used_bytes = 0;   // allocated by the files of all branches
  uint64_t used_inodes = 0;
  uint64_t quota_bytes = 0;  // 0: none
  // Who is mounted; empty if nobody.
  struct Client {
    SessionId session;
    std::string name;
    absl::Duration age;
    bool silent = false;  // its lease has run out
  };
  std::vector<Client> clients;
};

enum class SessionMode : uint8_t { kReadWrite = 0, kReadOnly = 1 };

// Proof that a session is one's own: a random secret made by the client. Also the way for a new mount to end a
// predecessor that its lock file proves dead.
struct SessionKey {
  uint64_t hi = 0;
  uint64_t lo = 0;
  friend bool operator==(const SessionKey&, const SessionKey&) = default;
};

struct InodeRange {
  InodeId first;
  uint64_t count = 0;
};

struct OpenSessionRequest {
  std::string disk;
  std::string branch = "main";
  std::string client_name;  // for people: host, pid, mount point
  SessionMode mode = SessionMode::kReadWrite;
  SessionKey key;
  absl::Duration lease;  // wanted; zero: the server's default. The server may shorten or lengthen it
  SessionId predecessor;  // ended first if `predecessor_key` is its key
  SessionKey predecessor_key;
};

struct OpenSessionReply {
  SessionId session;
  DiskInfo disk;
  BranchId branch;
  Epoch epoch;
  absl::Duration lease;
  InodeRange inodes;  // the first range to create from
  std::vector<DataServerInfo> data_servers;
  absl::Time server_time;
};

struct RenewReply {
  absl::Duration lease;
  Seq applied;  // newest op of this session that is durable at the server
  absl::Time server_time;
  std::vector<DataServerInfo> data_servers;
};

struct CommitRequest {
  SessionId session;
  SessionKey key;
  Seq first;      // sequence number of the first op
  uint64_t count = 0;
  // Sequence number that the session's log reaches with this commit; >= first + count - 1. Absorbed ops have numbers but
  // are not sent: the batch holds `count` ops and stands for the numbers first..last.
  Seq last;
  std::string ops;  // EncodeOps
};

struct CommitReply {
  Seq applied;  // >= request.last
  Lsn position;
};

struct InodeInfo {
  Attr attr;
  std::string target;  // symlinks
  bool has_xattrs = false;
  InodeId parent;  // directories: the one above; 0 for the root and for removed ones
};

struct DirEntry {
  std::string name;
  InodeInfo inode;
};

struct DirPage {
  InodeInfo directory;
  std::vector<DirEntry> entries;  // in name order (bytes)
  bool complete = false;          // no name after the last one
  Lsn position;
};

// The extents of one chunk, sorted, clipped to the chunk; file offsets.
struct ChunkExtents {
  uint64_t chunk = 0;
  std::vector<Extent> extents;
};

// A segment assigned to the session as its only writer.
struct SegmentGrant {
  SegmentId segment;
  uint64_t token = 0;  // fencing token for appends
  std::vector<DataServerInfo> replicas;  // first one is written to
};

struct FsStats {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t total_inodes = 0;
  uint64_t free_inodes = 0;
  uint64_t used_inodes = 0;
};

class MetaService {
 public:
  virtual ~MetaService() = default;

  // --- control of disks. Names: 1..63 of [a-z0-9._-], starting with a letter or digit.
  virtual Result<DiskInfo> CreateDisk(const OpContext& ctx, const std::string& name, uint64_t quota_bytes) = 0;
  virtual Result<std::vector<DiskInfo>> ListDisks(const OpContext& ctx) = 0;
  virtual Result<DiskInfo> ShowDisk(const OpContext& ctx, const std::string& name) = 0;
  // Refused with kHeldElsewhere while a session lives, unless `force`.
  virtual Status DeleteDisk(const OpContext& ctx, const std::string& name, bool force) = 0;

  // --- sessions
  // kNoSuchDisk; kHeldElsewhere naming the holder and its age. A holder whose lease has run out is ended (FEN-1).
  virtual Result<OpenSessionReply> OpenSession(const OpContext& ctx, const OpenSessionRequest& request) = 0;
  // Renews the lease: a heartbeat, and the resume after a broken connection or a server restart.
  virtual Result<RenewReply> Renew(const OpContext& ctx, SessionId session, SessionKey key) = 0;
  // Orderly end; what was committed stays, orphans of the session are removed.
  virtual Status CloseSession(const OpContext& ctx, SessionId session, SessionKey key) = 0;

  // --- changes
  // Applies all ops or none, in order, exactly once: a repeat of numbers already applied is answered
  // without effect. kInvalid (naming the op) if an op is not allowed: the session's log cannot go on.
  virtual Result<CommitReply> Commit(const OpContext& ctx, const CommitRequest& request) = 0;
  virtual Result<InodeRange> AllocateInodes(const OpContext& ctx, SessionId session, SessionKey key) = 0;
  virtual Result<std::vector<SegmentGrant>> AllocateSegments(const OpContext& ctx, SessionId session, SessionKey key,
                                                             uint32_t count) = 0;
  // The session will append no more to these; they may be sealed and uploaded.
  virtual Status ReleaseSegments(const OpContext& ctx, SessionId session, SessionKey key,
                                 const std::vector<SegmentId>& segments) = 0;

  // --- reads, of the session's branch as the server has it (without what the session has not committed)
  virtual Result<InodeInfo> GetInode(const OpContext& ctx, SessionId session, InodeId ino) = 0;
  virtual Result<InodeInfo> Lookup(const OpContext& ctx, SessionId session, InodeId parent, const std::string& name) = 0;
  // Names after `after` (exclusive; empty: from the start), at most `limit` (server's bound 4,096).
  virtual Result<DirPage> ReadDir(const OpContext& ctx, SessionId session, InodeId ino, const std::string& after,
                                  uint32_t limit) = 0;
  virtual Result<std::vector<ChunkExtents>> GetExtents(const OpContext& ctx, SessionId session, InodeId ino,
                                                       uint64_t first_chunk, uint32_t count) = 0;
  virtual Result<std::map<std::string, std::string>> GetXattrs(const OpContext& ctx, SessionId session, InodeId ino) = 0;
  // Where a segment can be read.
  virtual Result<std::vector<DataServerInfo>> LocateSegment(const OpContext& ctx, SessionId session, SegmentId segment) = 0;
  virtual Result<FsStats> StatFs(const OpContext& ctx, SessionId session) = 0;
};

}  // namespace archil
