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
#include "common/api/locks.h"
#include "common/api/ops.h"
#include "common/api/types.h"
#include "common/base/result.h"
#include "common/delegation/right.h"

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

// May others mount the branch at the same time (docs/delegation.md)?
enum class Sharing : uint8_t { kShared = 0, kExclusive = 1 };

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
  Sharing sharing = Sharing::kShared;
  bool force = false;        // fences who stands in the way instead of being refused
  bool conditional = false;  // never alone: it wants to hold nothing (its operations are applied at the server)
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
  bool alone = false;      // the session holds WRITE on everything until it is recalled
  uint64_t number = 0;     // of that grant; messages and grants of the session have higher ones
};

// What others wanted of a silent session, and got without its answer (FENCE-1).
struct Taken {
  InodeId ino;
  bool right = false;  // all that it held on the inode, and on what that covered
  bool locks = false;  // its file locks on it
  friend bool operator==(const Taken&, const Taken&) = default;
};
inline constexpr size_t kMaxTaken = 4096;  // of one session; then it is ended

struct RenewReply {
  absl::Duration lease;  // what is left of it, counted from the sending of the request: less than it was if it was not renewed, 0 if nothing
  Seq applied;  // newest op of this session that is durable at the server
  absl::Time server_time;
  std::vector<DataServerInfo> data_servers;
  bool reclaim = false;  // the server was restarted: Reclaim before anything else
  // In order of inodes. Until they are settled the session has no lease, is granted nothing, and commits only what does not touch them.
  std::vector<Taken> taken;
};

// The session knows of it: what its log held of these inodes is lost or applied.
struct SettleRequest {
  SessionId session;
  SessionKey key;
  std::vector<InodeId> taken;
  Seq last;  // newest number of its log that was lost or applied: none up to it comes (again)
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

// What a session may still promise on a disk with a quota (docs/quota.md): the ops after `applied` may add `left` bytes. Of several the
// one with the highest position is true.
struct Credit {
  Lsn position;  // 0: nothing is said
  Seq applied;   // newest op of the session that is applied, and charged
  uint64_t left = 0;
};

struct CommitReply {
  Seq applied;  // >= request.last
  Lsn position;
  Credit credit;  // on a disk with a quota
};

// Sets the session's credit to something between the two, or to `wanted` if it has more.
struct ReserveSpaceRequest {
  SessionId session;
  SessionKey key;
  uint64_t id = 0;       // ascending in a session, from 1: one that is not above the newest changes nothing
  uint64_t least = 0;    // bytes that ops after the newest applied one add, as far as they are promised or about to be
  uint64_t wanted = 0;   // at least `least`
  uint64_t message = 0;  // of the server (kReturnSpace), that this answers; 0: none
};

struct InodeInfo {
  Attr attr;
  std::string target;  // symlinks
  bool has_xattrs = false;
  InodeId parent;  // directories: the one above; 0 for the root and for removed ones
  // Others than directories, in a listing or a Lookup: the asking session's right on the directory covers it.
  bool covered = false;
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

// --- delegations: docs/delegation.md

struct Want {
  InodeId ino;
  Right right = Right::kRead;
  bool list = false;  // a directory: with the first page of its listing
};

struct AcquireRequest {
  SessionId session;
  SessionKey key;
  std::vector<Want> wants;  // 1 to kMaxWants, of different inodes
  // Entries of directories below the listed ones that may come along, with READ, where nobody conflicts; 0: none.
  uint32_t prefetch = 0;
  // Where a wanted directory is contended, nothing is granted and the answer says so: the operation is to be applied at
  // the server.
  bool or_at_server = false;
  // What is granted is recalled in the same step: it serves one operation.
  bool brief = false;
  // READ of what another session has checked out is granted like any other, since it is not enough to read it once (the kernel keeps
  // what it is told, of listings and of files that were open before): the checkout does not keep its holder from being recalled to READ
  // then. Else nothing is granted, and the answer says `through`.
  bool must_hold = false;
};
inline constexpr size_t kMaxWants = 64;
inline constexpr uint32_t kMaxPrefetch = 16384;

struct Grant {
  InodeId ino;
  Right right = Right::kNone;  // at least what was wanted
  uint64_t number = 0;         // its own, or that of an older grant that is as good
  // READ of a directory that has become WRITE: children that it does not cover any more, READ of their own remains.
  std::vector<InodeId> uncovered;
};

struct AcquireReply {
  Lsn position;
  std::vector<Grant> grants;        // what exists of the wants, in their order; then directories that came along
  std::vector<InodeInfo> inodes;    // of the grants, in their order; `covered` does not count here
  std::vector<InodeId> missing;     // wanted, and gone
  std::vector<DirPage> listings;    // of granted directories; those that came along (READ; all if alone) are complete
  std::vector<InodeId> at_server;   // contended ones of the wants: then nothing was granted
  std::vector<InodeId> through;     // those that another session has checked out: likewise, they are read by ReadOnce
};

// --- operations applied at the server (SRV-1, docs/delegation.md)

// An operation that the server decides, on names as they are there: create, link, unlink, rmdir, rename, set-attr,
// set-xattr or remove-xattr. What only the server knows is left out of the op: which inodes the names show (0),
// still_open, gid and mode of a new inode (the caller's are given), set-id bits to be cleared. `now` is the least that
// the times become; SetAttrOp: see kAtimeNow, kMtimeNow.
struct ApplyOpRequest {
  enum Flag : uint32_t {
    kOpen = 1,       // create: the session has the new inode open
    kMustBeNew = 2,  // set-xattr: XATTR_CREATE
    kMustExist = 4,  // set-xattr: XATTR_REPLACE
    kKillSetId = 8,  // set-attr: set-id bits go, as by a write
    kAtimeNow = 16,  // set-attr: times become the operation's
    kMtimeNow = 32,
  };
  SessionId session;
  SessionKey key;
  uint64_t id = 0;        // of this operation: from 1, ascending in a session, the same over all retries
  uint64_t finished = 0;  // operations with ids below it do not come (again)
  Seq after;              // newest op of the session's log that was acknowledged before this one began: it is applied
  Op op;
  uint32_t flags = 0;
};
inline constexpr uint32_t kAllServerOpFlags = 63;
inline constexpr size_t kMaxServerOps = 1024;  // of a session, not finished

struct ApplyOpReply {
  Lsn position;
  InodeInfo inode;         // that was made, linked or changed; without number after unlink, rmdir and rename
  InodeId removed;         // lost its last name by it; 0: none
  bool contended = false;  // the directory is: the next operation is applied at the server as well
};

// One look at an inode, or at what a name shows: nothing is kept of it. With more of the inode itself, all as of one moment.
struct ReadOnceRequest {
  SessionId session;
  SessionKey key;
  InodeId ino;
  std::string name;  // empty: the inode itself
  uint64_t first_chunk = 0;
  uint32_t chunks = 0;      // at most kMaxChunksOnce of a file's extents
  bool xattrs = false;
  bool open = false;        // a file: the session is about to open it, and says with ReleaseOrphanOp when it is not open any more
};
inline constexpr uint32_t kMaxChunksOnce = 16;

struct ReadOnceReply {
  Lsn position;
  bool absent = false;  // there is no such name
  InodeInfo inode;
  bool contended = false;  // the directory (`ino`) is, or the inode is checked out by another session
  std::vector<ChunkExtents> chunks;
  std::map<std::string, std::string> xattrs;
};

// --- checkouts: a directory of a session with all below it, which is not recalled for others

struct CheckoutRequest {
  SessionId session;
  SessionKey key;
  uint64_t id = 0;     // of this call, out or in: ascending in a session, the same over its retries. An older one that comes late does nothing
  InodeId ino;
  bool in = false;     // it is checked in
  bool force = false;  // ends other sessions' checkouts of it, of what is below and of what is above
};

struct HeldCheckout {
  InodeId ino;
  uint64_t number = 0;  // given by the server: of two that exclude each other the higher one is good
  friend bool operator==(const HeldCheckout&, const HeldCheckout&) = default;
};

// What the server tells a session.
struct SessionMessage {
  enum class Kind : uint8_t {
    kRecall = 1,       // give up `ino`, except `keep`
    kRecallAlone = 2,  // others have come: name what you keep of everything
    kReturnSpace = 3,  // others need space: make durable what you have promised, and return the rest of the credit
    kFlush = 4,        // make durable what was changed of `ino`; what is held stays
    kCheckoutEnded = 5,  // of `ino`, by force; no answer is owed
  };
  uint64_t number = 0;
  Kind kind = Kind::kRecall;
  InodeId ino;
  InodeId home;         // the directory whose grant covers `ino`; 0: a grant of its own. The newer, if both; both end
  uint64_t grant = 0;   // number of the grant that ends, or is weakened; of the checkout
  Right keep = Right::kNone;
};

struct PollReply {
  std::vector<SessionMessage> messages;  // ascending
  bool reclaim = false;
};

struct HeldRight {
  InodeId ino;
  Right right = Right::kNone;
};

struct RecallAnswer {
  uint64_t message = 0;
  Right kept = Right::kNone;    // kRecall: at most what the message lets stay
  Seq last;                     // newest op that touches what is given up; applied before this is sent
  std::vector<InodeId> opens;   // of what is given up, open here
  std::vector<HeldRight> keeps; // kRecallAlone: all that the session goes on to hold
  // kRecallAlone: the file locks, which the session kept to itself until now, and those that wait for them, in order.
  std::vector<FileLock> locks;
  std::vector<LockRequest> waiters;
};

struct ReclaimRequest {
  SessionId session;
  SessionKey key;
  bool alone = false;
  std::vector<HeldRight> rights;
  std::vector<InodeId> opens;  // told as open before, and open still
  std::vector<FileLock> locks; // held at the server; waits are asked for again
  std::vector<HeldCheckout> checkouts;
  uint64_t last_checkout = 0;  // number of the newest such call
  // Calls with ids below these do not come (again), as in the requests themselves: a copy that was delayed over the restart finds
  // no answer that is remembered.
  uint64_t finished_ops = 0;
  uint64_t finished_locks = 0;
};

struct ReclaimReply {
  uint64_t number = 0;  // of every right reclaimed; later grants and messages have higher ones
};

// A file lock or an unlock (LOCK-1).
struct SetLockRequest {
  SessionId session;
  SessionKey key;
  uint64_t id = 0;        // of this call, ascending in a session, the same over all retries
  uint64_t finished = 0;  // calls with ids below it do not come (again)
  LockRequest request;    // of an owner of this session; `waiter` is empty or `id`
};
inline constexpr size_t kMaxLocksMoved = 100'000;  // in one answer or reclaim, locks and waiters together

// For people: who holds what (archil clients, archil delegations).
struct RightInfo {
  SessionId session;
  InodeId ino;  // 0: everything (alone)
  Right right = Right::kNone;
  uint32_t exceptions = 0;  // children of a directory that it does not cover
  bool checkout = false;    // not a right: the session has checked out the directory
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
  // kNoSuchDisk; kHeldElsewhere naming the holder and its age, if one of the two is exclusive. A holder whose lease has run out is ended
  // instead (FEN-1), also where all others are silent: the new session is alone then.
  virtual Result<OpenSessionReply> OpenSession(const OpContext& ctx, const OpenSessionRequest& request) = 0;
  // Renews the lease: a heartbeat, and the resume after a broken connection or a server restart. `progress` grows
  // whenever the session comes nearer to the answer of a recall: who owes one and stands still for 5 s is not renewed (LSE-1).
  virtual Result<RenewReply> Renew(const OpContext& ctx, SessionId session, SessionKey key, uint64_t progress) = 0;
  // Orderly end; what was committed stays, orphans of the session are removed.
  virtual Status CloseSession(const OpContext& ctx, SessionId session, SessionKey key) = 0;

  // --- delegations (docs/delegation.md)
  // Waits until every wanted right is granted; nothing is granted if it fails. kUnavailable when the deadline passes, naming
  // who holds what is waited for; kReadOnly for WRITE on a read-only session; kUnknown: perhaps granted, the grant is recalled like any other.
  virtual Result<AcquireReply> Acquire(const OpContext& ctx, const AcquireRequest& request) = 0;
  // Messages numbered above `after`, which are thereby acknowledged; waits until there are some. Empty when the deadline passes, or earlier.
  virtual Result<PollReply> Poll(const OpContext& ctx, SessionId session, SessionKey key, uint64_t after) = 0;
  // Idempotent: an answer to a message that the server does not know (any more) changes nothing. kInvalid if `last` is not applied.
  virtual Status AnswerRecall(const OpContext& ctx, SessionId session, SessionKey key, const RecallAnswer& answer) = 0;
  // The session needs these no more. `opens` as in an answer. Ignored on inodes that are being recalled.
  virtual Status GiveBack(const OpContext& ctx, SessionId session, SessionKey key, const std::vector<InodeId>& inodes,
                          const std::vector<InodeId>& opens) = 0;
  // kFenced if it conflicts with what others reclaimed, or comes too late.
  virtual Result<ReclaimReply> Reclaim(const OpContext& ctx, const ReclaimRequest& request) = 0;
  // Ends the state of being taken. kUnavailable while the session owes the answer to kRecallAlone, or has not reclaimed. Idempotent.
  virtual Status Settle(const OpContext& ctx, const SettleRequest& request) = 0;
  // --- file locks. While a session is alone it keeps them to itself, and hands them over when it answers kRecallAlone.
  // Waits, if request.waiter says so, until granted; never answers kWaiting. When the deadline passes: kUnavailable, the wait keeps
  // its place and is asked for again. A repeat is answered as the first time, without effect.
  virtual Result<LockOutcome> SetLock(const OpContext& ctx, const SetLockRequest& request) = 0;
  // The call `id` of the session is given up. True: it was granted before. False: it never will be.
  virtual Result<bool> CancelLock(const OpContext& ctx, SessionId session, SessionKey key, uint64_t id) = 0;
  // A lock that `lock` conflicts with: the one that begins first.
  virtual Result<std::optional<FileLock>> TestLock(const OpContext& ctx, SessionId session, SessionKey key,
                                                   const FileLock& lock) = 0;
  // Every right on the disk, at most `limit`.
  // Out: waits until nobody else holds anything below the directory. kHeldElsewhere, naming who has checked out some of it, unless `force`.
  // From then on others read there through the holder (`through`), and their changes are refused with kHeldElsewhere, until it is checked
  // in, the session ends, or for as long as its lease has run out. A file with several names is not part of it. Again: a success.
  // Its number. In: kNotFound if it was not checked out.
  virtual Result<uint64_t> Checkout(const OpContext& ctx, const CheckoutRequest& request) = 0;
  virtual Result<std::vector<RightInfo>> ListRights(const OpContext& ctx, const std::string& disk, uint32_t limit) = 0;
  // Ends a session (`ino` 0), or recalls one inode from it; returns when that has happened or the session was ended for its silence.
  virtual Status Revoke(const OpContext& ctx, const std::string& disk, SessionId session, InodeId ino) = 0;

  // --- changes
  // Applies all ops or none, in order, exactly once: a repeat of numbers already applied is answered
  // without effect. kInvalid (naming the op) if an op is not allowed: the session's log cannot go on.
  virtual Result<CommitReply> Commit(const OpContext& ctx, const CommitRequest& request) = 0;
  // Waits until nobody holds a right on what the op names, itself included, applies it and answers; kUnavailable when
  // the deadline passes first. The verdict is that of the system call, and then nothing has changed; a repeat is
  // answered as the first time, without a second effect, also after a restart of the server. kInvalid: `after` is not
  // applied, or the id is finished; kTryAgain: too many.
  virtual Result<ApplyOpReply> ApplyOp(const OpContext& ctx, const ApplyOpRequest& request) = 0;
  // Waits until nobody else holds WRITE on what is read. A regular file that a name showed counts as open for a moment,
  // as what a mount has just looked up under a right. kStale: the inode is gone; kNotDirectory.
  virtual Result<ReadOnceReply> ReadOnce(const OpContext& ctx, const ReadOnceRequest& request) = 0;
  // Waits until others have returned what they do not need, if that is necessary. kNoSpace: `least` does not fit; kInvalid: the disk has no
  // quota; kUnavailable: as for Acquire.
  virtual Result<Credit> ReserveSpace(const OpContext& ctx, const ReserveSpaceRequest& request) = 0;
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
