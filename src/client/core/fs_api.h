// FsApi: the plain C++ face of a mounted disk; FUSE, later the S3 gateway, and the tests are its users.
// POSIX semantics by inode number. Thread safe; calls block unless ctx.may_block is false, then a call that would
// have to wait returns kWouldBlock with no effect.
//
// Visibility: what returned success is visible to every later call. Durability: only Fsync, FsyncDir, Sync
// and Close make durable (DUR-1); the rest reaches the server in order (ORD-1, ORD-2).
// Permission checks are the caller's (the kernel's, with default_permissions); ownership rules that the
// kernel leaves to us (clearing set-id bits) are made here.
// Errors beside those of the man pages: kIo when the session is lost or a deadline passed, kReadOnly on read-only mounts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "common/api/context.h"
#include "common/api/locks.h"
#include "common/api/meta_service.h"
#include "common/api/types.h"
#include "common/base/bytes.h"
#include "common/base/result.h"

namespace archil {

// What the kernel may keep and for how long (KRN-1): zero unless a delegation covers it.
struct Entry {
  Attr attr;
  absl::Duration entry_ttl;
  absl::Duration attr_ttl;
};

struct AttrReply {
  Attr attr;
  absl::Duration ttl;
};

using HandleId = uint64_t;  // of an open file or directory; never reused in a mount

struct OpenReply {
  HandleId handle = 0;
  bool keep_cache = false;  // pages that the kernel has are still true
  bool direct_io = false;
  bool locked = false;  // somebody on this mount holds fcntl locks on it, which the close of the handle may end (Flush)
};

struct CreateReply {
  Entry entry;
  OpenReply open;
};

// Which attributes to set; the rest of `attr` is ignored. kNow fields take the mount's clock.
struct SetAttrRequest {
  enum Field : uint32_t {
    kMode = 1, kUid = 2, kGid = 4, kSize = 8, kAtime = 16, kMtime = 32, kAtimeNow = 64, kMtimeNow = 128,
    kKillSetId = 256,  // also clear set-id bits as a write by an unprivileged user does
    kCtime = 512,      // of a caller that keeps the times (MountConfig::kernel_writeback): not below the one that is there
  };
  uint32_t fields = 0;
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t size = 0;
  Timestamp atime;
  Timestamp mtime;
  Timestamp ctime;
};

// Bytes of a read as slices of cached buffers, no copy; total may be short only at the end of the file.
struct ReadReply {
  std::vector<Buffer> pieces;
  size_t size = 0;
};

struct DirItem {
  std::string_view name;
  uint64_t cookie = 0;  // hand it to Readdir to go on after this one
  InodeId ino;
  FileType type = FileType::kRegular;
  const Entry* entry = nullptr;  // readdirplus only, null for "." and ".."
};

enum class RenameMode : uint8_t { kPlain, kNoReplace, kExchange };
enum class XattrMode : uint8_t { kEither, kCreate, kReplace };
enum class FallocateMode : uint8_t { kAllocate, kAllocateKeepSize, kPunchHole, kZeroRange, kZeroRangeKeepSize };
enum class SeekWhat : uint8_t { kData, kHole };

// What fcntl(2) or flock(2) asks. Bytes from `first` to `last`, inclusive; a whole-file lock has all of them.
struct LockCall {
  LockFamily family = LockFamily::kRange;
  uint64_t owner = 0;  // as the kernel calls it: a process, or for OFD locks and flock an open file
  LockType type = LockType::kUnlock;
  uint64_t first = 0;
  uint64_t last = kLockEnd;
  int32_t pid = 0;
  bool wait = false;
  bool detect_deadlock = false;  // kDeadlock rather than to wait in a circle: classic POSIX locks
};

// What the core tells the kernel side to drop. Called from threads of the core, never from inside a call of FsApi
// and never with a lock held.
class KernelCache {
 public:
  virtual ~KernelCache() = default;
  virtual void InvalidateInode(InodeId ino, uint64_t offset, uint64_t length /* 0: attributes only */) = 0;
  virtual void InvalidateEntry(InodeId parent, const std::string& name) = 0;
  // Drops names and what is cached of inodes, and returns when the kernel has done so, or when `blocked` says that it cannot:
  // that a request holds locks on pages and waits for the caller (asked every few milliseconds; the rest is done as soon as
  // they are free). Names, present and absent ones: all of the mount's, the kernel asks for them again. An inode's attributes
  // always, its pages (a directory's: the cached listing) if wanted.
  struct Drop {
    InodeId ino;
    bool pages = true;
  };
  enum class Names : uint8_t { kKeep, kForget };
  virtual void DropNow(Names names, const std::vector<Drop>& inodes, const std::function<bool()>& blocked) = 0;
};

struct SyncReport {
  uint64_t ops = 0;    // ops of the log that were committed for it
  uint64_t bytes = 0;  // data that was uploaded for it
};

// What `archil delegations` shows: a right of this mount's session, or a directory whose operations are applied at the
// server for now because several mounts want it at once (right kNone).
struct HeldDelegation {
  InodeId ino;       // 0: everything
  std::string path;  // below the mounted root; empty if it is not known here
  Right right = Right::kNone;
  bool directory = false;  // with its names and files
  absl::Duration age;
  bool checkout = false;   // with all below it, not recalled for others
};

// What `archil status` shows.
struct MountStatus {
  std::string disk;
  std::string branch;
  SessionId session;
  std::string state;  // "active", "reconnecting" (lease still good), "waiting" (lease run out), "fenced", "closed"
  std::string state_detail;
  absl::Duration lease;
  absl::Duration lease_left;
  uint64_t dirty_bytes = 0;
  uint64_t dirty_limit_bytes = 0;
  uint64_t log_ops = 0;  // acknowledged, not yet durable
  uint64_t inodes = 0;   // in memory
  bool alone = false;    // nobody else has the disk mounted, as far as this session was told
  uint64_t delegations = 0;
  bool conditional = false;  // every operation is applied at the server
  uint64_t contended = 0;    // directories whose operations are, for now
  uint64_t cache_bytes = 0;
  uint64_t cache_limit_bytes = 0;
  Seq acknowledged;
  Seq durable;
  uint64_t lost_ops = 0;  // acknowledged, and lost because the mount was silent for too long (FENCE-1)
  std::string lost_file;  // where the newest of them were saved; empty: nowhere
};

class FsApi {
 public:
  virtual ~FsApi() = default;

  virtual InodeId Root() const = 0;  // of the mounted subtree

  // Each success counts one kernel reference on the inode, given back by Forget.
  virtual Result<Entry> Lookup(const OpContext& ctx, InodeId parent, std::string_view name) = 0;
  // How long the kernel may remember that a name is absent, after Lookup answered kNotFound.
  virtual absl::Duration NegativeTtl(InodeId parent) = 0;
  virtual void Forget(InodeId ino, uint64_t count) = 0;

  virtual Result<AttrReply> GetAttr(const OpContext& ctx, InodeId ino) = 0;
  virtual Result<AttrReply> SetAttr(const OpContext& ctx, InodeId ino, const SetAttrRequest& request) = 0;
  virtual Result<std::string> Readlink(const OpContext& ctx, InodeId ino) = 0;

  // `mode` holds permission bits only, umask already applied. All count one reference, as Lookup.
  virtual Result<Entry> Mkdir(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode) = 0;
  virtual Result<Entry> Mknod(const OpContext& ctx, InodeId parent, std::string_view name, FileType type, uint32_t mode,
                              uint64_t rdev) = 0;
  virtual Result<Entry> Symlink(const OpContext& ctx, InodeId parent, std::string_view name, std::string_view target) = 0;
  virtual Result<Entry> Link(const OpContext& ctx, InodeId ino, InodeId parent, std::string_view name) = 0;
  // `flags` as of open(2). kExists if the name exists (the kernel creates only names it knows absent).
  virtual Result<CreateReply> Create(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode, int flags) = 0;
  virtual Status Unlink(const OpContext& ctx, InodeId parent, std::string_view name) = 0;
  virtual Status Rmdir(const OpContext& ctx, InodeId parent, std::string_view name) = 0;
  virtual Status Rename(const OpContext& ctx, InodeId parent, std::string_view name, InodeId new_parent,
                        std::string_view new_name, RenameMode mode) = 0;

  // O_TRUNC in flags truncates.
  virtual Result<OpenReply> Open(const OpContext& ctx, InodeId ino, int flags) = 0;
  virtual Result<ReadReply> Read(const OpContext& ctx, InodeId ino, uint64_t offset, size_t length) = 0;
  // Writes all or fails. `append`: the offset is the size at that moment. Data is copied before return.
  // `kill_set_id`: the kernel asks that set-id bits are cleared. Waits while too many bytes are dirty.
  virtual Result<size_t> Write(const OpContext& ctx, InodeId ino, uint64_t offset, std::string_view data, bool append,
                               bool kill_set_id) = 0;
  // `handle` carries the error that is reported once after a loss; 0: none.
  virtual Status Fsync(const OpContext& ctx, InodeId ino, HandleId handle, bool data_only) = 0;
  virtual Status FsyncDir(const OpContext& ctx, InodeId ino) = 0;
  virtual void Release(InodeId ino, HandleId handle) = 0;
  virtual Status Fallocate(const OpContext& ctx, InodeId ino, FallocateMode mode, uint64_t offset, uint64_t length) = 0;
  virtual Result<uint64_t> Seek(const OpContext& ctx, InodeId ino, uint64_t offset, SeekWhat what) = 0;

  // Calls fn for each item after `cookie` (0: from the start, "." and ".." included) until it returns false or the
  // directory ends. `plus`: items carry entries; each item that fn accepted with an entry counts one reference.
  // fn runs under no lock that another call of FsApi needs to finish, but must not call FsApi.
  virtual Status Readdir(const OpContext& ctx, InodeId ino, uint64_t cookie, bool plus,
                         const std::function<bool(const DirItem&)>& fn) = 0;

  // LOCK-1: file locks hold across mounts. kTryAgain: another owner is in the way, or stands before; kInterrupted: the context was
  // cancelled while it waited, and nothing has changed (flock: a lock to be converted may be lost); kDeadlock; kNoLocks.
  virtual Status SetLock(const OpContext& ctx, InodeId ino, HandleId handle, const LockCall& call) = 0;
  // A lock that `call` conflicts with, if any; pid 0: of another mount.
  virtual Result<std::optional<FileLock>> TestLock(const OpContext& ctx, InodeId ino, const LockCall& call) = 0;
  // A descriptor is closed by `owner`: its fcntl locks on the inode end, also if the wait for that is cancelled. (Locks taken
  // through a handle end with Release at the latest.)
  virtual Status Flush(const OpContext& ctx, InodeId ino, HandleId handle, uint64_t owner) = 0;

  virtual Result<std::string> GetXattr(const OpContext& ctx, InodeId ino, std::string_view name) = 0;
  virtual Result<std::vector<std::string>> ListXattrs(const OpContext& ctx, InodeId ino) = 0;
  virtual Status SetXattr(const OpContext& ctx, InodeId ino, std::string_view name, std::string_view value, XattrMode mode) = 0;
  virtual Status RemoveXattr(const OpContext& ctx, InodeId ino, std::string_view name) = 0;
  virtual Result<FsStats> StatFs(const OpContext& ctx) = 0;

  // Everything acknowledged before is durable when this returns success.
  virtual Result<SyncReport> Sync(const OpContext& ctx) = 0;
  // Drops what can be had again: clean data, inodes the kernel does not know.
  virtual void DropCaches() = 0;
  virtual MountStatus GetStatus() = 0;
  // At most `limit`, by inode number.
  virtual std::vector<HeldDelegation> Delegations(size_t limit) = 0;

  // A directory with all below it is this mount's until Checkin: it is not recalled for others, who read it through this mount and
  // whose changes of it are refused. kHeldElsewhere naming who has checked out some of it, unless `force`. Waits for what others hold.
  virtual Status Checkout(const OpContext&, InodeId, bool) { return Code::kNotSupported; }
  virtual Status Checkin(const OpContext&, InodeId) { return Code::kNotSupported; }
  // Counters by name, for `archil metrics`; names are documented in docs/metrics.md.
  virtual std::map<std::string, uint64_t> Metrics() = 0;
  // Wakes all waits so that cancelled contexts are noticed.
  virtual void WakeWaiters() = 0;
};

}  // namespace archil
