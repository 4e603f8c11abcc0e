// Vfs: POSIX semantics over the merged view of a mount; implements FsApi.
//
// Every call: look whether the session may answer (DLG-3: only within the lease), make sure that what it needs is in memory
// (Ensure…, which give the lock up to ask the server and then say "look again"), decide and change memory and log in
// one go under the lock, answer. So a change is acknowledged in memory; Writeback carries it to the servers.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "client/core/fs_api.h"
#include "client/locks/file_locks.h"
#include "client/recovery/lost_log.h"
#include "client/read/segment_reader.h"
#include "client/session/session.h"
#include "client/vfs/state.h"
#include "client/writeback/writeback.h"
#include "common/posix/rename.h"

namespace archil {

// The metadata server as locks see it.
class SessionLocks final : public LockServer {
 public:
  SessionLocks(MetaService& meta, Session& session) : meta_(meta), session_(session) {}
  Result<LockOutcome> Set(const OpContext& ctx, uint64_t id, uint64_t finished, const LockRequest& request) override;
  Result<bool> Cancel(const OpContext& ctx, uint64_t id) override;
  Result<std::optional<FileLock>> Test(const OpContext& ctx, const FileLock& lock) override;

 private:
  MetaService& meta_;
  Session& session_;
};

class Vfs final : public FsApi {
 public:
  Vfs(const MountEnv& env, const MountConfig& config, Session& session, BlockCache& cache, SegmentReader& reader,
      Writeback& writeback);

  // The session is open and says nothing yet: what it holds. Once, before everything else.
  void SessionOpened();
  // Reads the root of the mounted subtree. kNotFound, kNotDirectory naming the part of the path.
  Status OpenRoot(const OpContext& ctx);
  void SetKernelCache(KernelCache* kernel) { kernel_ = kernel; }
  // The lease ran out or came back, or the session is over. Without locks.
  void SessionChanged(Session::State state);
  // Does what the server asks for, and answers it; may take long. Without locks, on a thread of its own.
  void OnMessage(const SessionMessage& message);
  // After a restart of the server: what this session holds. `number`: what Reclaim answered.
  ReclaimRequest HeldForReclaim();
  void Reclaimed(uint64_t number);
  // Before each heartbeat. Files that were told as open because they had just been looked up, and were not opened: the server hears that.
  void BeforeBeat();
  // After each that was answered: space that is not needed goes back.
  void AfterBeat(const OpContext& ctx);
  // FENCE-1, as of Session::Events: the session is told what was taken from it while it was silent.
  Status TakenAway(const RenewReply& reply);
  Status BeforeSettle(const OpContext& ctx, SettleRequest& request);
  // The session has ended, or its log is refused: what is not durable is lost, and saved.
  void LoseEverything(const std::string& reason);
  // Grows while recalls come nearer to their answers.
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // As Mount::Believed.
  std::vector<HeldRight> Believed();
  // Ends waits of OnMessage; what it was doing is not answered.
  void StopRecalls();

  InodeId Root() const override { return root_; }
  Result<Entry> Lookup(const OpContext& ctx, InodeId parent, std::string_view name) override;
  absl::Duration NegativeTtl(InodeId parent) override;
  void Forget(InodeId ino, uint64_t count) override;
  Result<AttrReply> GetAttr(const OpContext& ctx, InodeId ino) override;
  Result<AttrReply> SetAttr(const OpContext& ctx, InodeId ino, const SetAttrRequest& request) override;
  Result<std::string> Readlink(const OpContext& ctx, InodeId ino) override;
  Result<Entry> Mkdir(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode) override;
  Result<Entry> Mknod(const OpContext& ctx, InodeId parent, std::string_view name, FileType type, uint32_t mode,
                      uint64_t rdev) override;
  Result<Entry> Symlink(const OpContext& ctx, InodeId parent, std::string_view name, std::string_view target) override;
  Result<Entry> Link(const OpContext& ctx, InodeId ino, InodeId parent, std::string_view name) override;
  Result<CreateReply> Create(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode,
                             int flags) override;
  Status Unlink(const OpContext& ctx, InodeId parent, std::string_view name) override;
  Status Rmdir(const OpContext& ctx, InodeId parent, std::string_view name) override;
  Status Rename(const OpContext& ctx, InodeId parent, std::string_view name, InodeId new_parent,
                std::string_view new_name, RenameMode mode) override;
  Result<OpenReply> Open(const OpContext& ctx, InodeId ino, int flags) override;
  Result<ReadReply> Read(const OpContext& ctx, InodeId ino, uint64_t offset, size_t length) override;
  Result<size_t> Write(const OpContext& ctx, InodeId ino, uint64_t offset, std::string_view data, bool append,
                       bool kill_set_id) override;
  Status Fsync(const OpContext& ctx, InodeId ino, HandleId handle, bool data_only) override;
  Status FsyncDir(const OpContext& ctx, InodeId ino) override;
  void Release(InodeId ino, HandleId handle) override;
  Status Fallocate(const OpContext& ctx, InodeId ino, FallocateMode mode, uint64_t offset, uint64_t length) override;
  Result<uint64_t> Seek(const OpContext& ctx, InodeId ino, uint64_t offset, SeekWhat what) override;
  Status Readdir(const OpContext& ctx, InodeId ino, uint64_t cookie, bool plus,
                 const std::function<bool(const DirItem&)>& fn) override;
  Status SetLock(const OpContext& ctx, InodeId ino, HandleId handle, const LockCall& call) override;
  Result<std::optional<FileLock>> TestLock(const OpContext& ctx, InodeId ino, const LockCall& call) override;
  Status Flush(const OpContext& ctx, InodeId ino, HandleId handle, uint64_t owner) override;
  Status Checkout(const OpContext& ctx, InodeId ino, bool force) override;
  Status Checkin(const OpContext& ctx, InodeId ino) override;
  Result<std::string> GetXattr(const OpContext& ctx, InodeId ino, std::string_view name) override;
  Result<std::vector<std::string>> ListXattrs(const OpContext& ctx, InodeId ino) override;
  Status SetXattr(const OpContext& ctx, InodeId ino, std::string_view name, std::string_view value,
                  XattrMode mode) override;
  Status RemoveXattr(const OpContext& ctx, InodeId ino, std::string_view name) override;
  Result<FsStats> StatFs(const OpContext& ctx) override;
  Result<SyncReport> Sync(const OpContext& ctx) override;
  void DropCaches() override;
  MountStatus GetStatus() override;
  std::vector<HeldDelegation> Delegations(size_t limit) override;
  std::map<std::string, uint64_t> Metrics() override;
  void WakeWaiters() override;

 private:
  struct NewNode {
    FileType type = FileType::kRegular;
    uint32_t mode = 0;
    uint64_t rdev = 0;
    std::string target;
  };

  struct ListedItem {
    std::string name;
    uint64_t cookie = 0;
    InodeId ino;
    FileType type = FileType::kRegular;
    std::optional<Entry> entry;
  };
  static constexpr size_t kReaddirItems = 256;
  Status CopyListing(const OpContext& ctx, InodeId ino, uint64_t cookie, bool plus, std::vector<ListedItem>* out);

  // --- before anything
  // Waits until the lease is good; kIo when the mount is broken or the deadline passes.
  Status Usable(const OpContext& ctx) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Status UsableForChange(const OpContext& ctx) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);

  // --- what must be in memory. True: it is, the lock was never given up. False: it was asked for; look again from the
  // start. `pinned` inodes stay in memory meanwhile.
  // The rights, all at once, and what they cover: every wanted inode is in memory and true.
  // Where a wanted directory is contended: kAtServer looks again as well, and then finds it AtServer.
  // Otherwise it waits for the right; or the operation is to be applied at the server where that is better; or what another mount has
  // checked out is to be read through that: then contended_ and through_ know, and the caller has to look there first.
  enum class Otherwise : uint8_t { kWait, kAtServer, kThrough };
  Result<bool> Need(const OpContext& ctx, Claim& claim, absl::Span<const Want> wants,
                    Otherwise otherwise = Otherwise::kWait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<bool> EnsureInode(const OpContext& ctx, Claim& claim, InodeId ino)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<bool> EnsureDir(const OpContext& ctx, Claim& claim, InodeId ino, Right right)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<bool> EnsureName(const OpContext& ctx, Inode& dir, std::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<bool> EnsureComplete(const OpContext& ctx, Inode& dir) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<bool> EnsureChunks(const OpContext& ctx, Inode& inode, uint64_t offset, uint64_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<bool> EnsureXattrs(const OpContext& ctx, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<bool> EnsureInodeNumber(const OpContext& ctx, InodeId* ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Status LoadListing(const OpContext& ctx, Inode& dir) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<bool> LoadAlone(const OpContext& ctx, InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // What the server said of an inode that a right covers enters memory, if no truth about it is there.
  void Insert(const InodeInfo& info, InodeId parent, uint64_t stamp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void InsertPage(Inode& dir, const DirPage& page, uint64_t stamp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void Refresh(Inode& inode, const InodeInfo& info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);

  // --- vfs_rights.cc: getting rights, and giving them up
  Result<bool> Acquire(const OpContext& ctx, Claim& claim, absl::Span<const Want> wants, Otherwise otherwise)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  AcquireRequest RequestFor(absl::Span<const Want> wants) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void Install(const AcquireReply& reply, uint64_t stamp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void Gone(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  bool AcquiresUpTo(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  bool Claimed(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void Recall(const SessionMessage& message);
  void RecallAlone(const SessionMessage& message);
  void ForCovered(InodeId ino, const std::function<void(Inode&)>& fn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // These give the lock up for a while.
  void DropNow(KernelCache::Names names, const std::vector<KernelCache::Drop>& drops)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void DropFromKernel(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void SealFromKernel(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // What the kernel must drop before `ino` is given up.
  std::vector<KernelCache::Drop> KernelDrops(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // Commits what touches `ino` and what it covers.
  Status FlushFor(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void GiveUp(const SessionMessage& message, RecallAnswer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  bool JustLookedUp(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void GiveUpInode(Inode& inode, RecallAnswer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  std::vector<HeldRight> EndAlone(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void EndGrace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);

  // --- vfs_taken.cc: what is lost when the session was silent for too long, or was ended
  struct Reach {  // of what was taken
    absl::flat_hash_set<InodeId> taken;
    absl::flat_hash_set<InodeId> with;  // and what was in it at some time of the log
    bool directory = false;
  };
  Reach ReachOf(const std::vector<Taken>& taken) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  bool Touches(const Reach& reach, InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Seq FirstOpTouching(const Reach& reach) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // The ops from `first` on are saved and leave the log, but for data of files that none of the others touches, nor `reach`
  // (null: all go); gives the lock up.
  void Lose(Seq first, const Reach* reach, const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // Everything that is not durable is; gives the lock up.
  void LoseRest(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // Names of the inodes of these ops and of the directories above, as they are now.
  std::map<InodeId, LostLog::Name> NamesFor(const std::vector<Op>& ops) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void MarkLost(const std::vector<Op>& ops) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void FillBytes(std::vector<Op>& ops);
  // Nothing in memory says anything about it or what it covered any more, and no right on it is held.
  void ForgetAll(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void LoseLocks(const std::vector<Taken>& taken);
  static Error LostError() { return Error(Code::kIo, "changes were lost while the mount was silent"); }
  bool TakeLost(HandleId handle, InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);

  // What an unsuccessful answer means for the call: an error to return, or "look again" after a pause while the
  // server is away and the deadline has not passed.
  Result<bool> RetryLater(const OpContext& ctx, const Error& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Status CheckAnswer(const Error& error);

  // --- vfs_server_ops.cc: operations applied at the server. All of them give the lock up.
  // What needs this right on it is to be asked of the server.
  bool AtServer(InodeId ino, Right right) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  std::vector<InodeId> ContendedNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void NoteContended(InodeId ino, bool contended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<ApplyOpReply> Apply(const OpContext& ctx, Claim& claim, InodeId dir, Op op, uint32_t flags)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<ReadOnceReply> LookOnce(const OpContext& ctx, Claim& claim, ReadOnceRequest request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Inode& Shown(const InodeInfo& info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Entry ShownEntry(const InodeInfo& info) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  bool Believed(InodeId ino, uint64_t stamp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void ShownInContended(const Inode& inode, bool contended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  bool WentAway(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void Glimpsed(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  bool AbsentOnce(InodeId parent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<Entry> LookupAtServer(const OpContext& ctx, Claim& claim, InodeId parent, std::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // False: look again.
  Result<bool> AttrAtServer(const OpContext& ctx, Claim& claim, InodeId ino, Attr* attr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<Entry> MakeAtServer(const OpContext& ctx, Claim& claim, InodeId ino, InodeId parent, std::string_view name,
                             NewNode node, Inode** made) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<Entry> LinkAtServer(const OpContext& ctx, Claim& claim, InodeId ino, InodeId parent, std::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Status RenameAtServer(const OpContext& ctx, Claim& claim, InodeId parent, std::string_view name, InodeId new_parent,
                        std::string_view new_name, RenameOp::Mode mode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<AttrReply> SetAttrAtServer(const OpContext& ctx, Claim& claim, InodeId ino, const SetAttrRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);

  // --- pieces of changes
  Timestamp NextTime() ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<Entry> MakeNode(const OpContext& ctx, InodeId parent, std::string_view name, NewNode node, Inode** made)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // `dir` must be covered for change already.
  Result<bool> FindName(const OpContext& ctx, InodeId parent, std::string_view name, Inode** dir, InodeId* child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void TouchDir(Inode& dir, Timestamp now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // It has another number of names than one from now on: only a right of its own covers it.
  void Uncover(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // Its bytes may be forgotten when its last name and handle here are gone: no other mount can have it open.
  bool OnlyOurs(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // Right before the op that removes the inode's last name: bytes that others may still read get their place before it.
  void BeforeLastName(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // Somebody may use it without a name.
  bool InUse(const Inode& inode) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // It is not in use any more: what was kept for that goes.
  void LastUse(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // The inode lost its last name.
  void LostLastName(Inode& inode, bool still_open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  RenameDecision CheckRename(const Inode& from_dir, const Inode& to_dir, const Inode& moved, const Inode* victim,
                             RenameMode mode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // READ on every directory above, so that no loop can be made (REN-1); wanted ones are left out.
  void AddAncestors(const Inode& dir, std::vector<Want>& wants) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // Precondition: CheckRename decided so, and the link counts of the parents are set.
  void ApplyRename(Inode& from_dir, std::string_view name, Inode& to_dir, std::string_view new_name, Inode& moved,
                   Inode* victim, RenameMode mode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void Resize(Inode& inode, uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<bool> EnsureCapabilityKnown(const OpContext& ctx, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void DropCapability(Inode& inode, Timestamp now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  OpenReply NewHandle(Inode& inode, int flags, bool direct = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // --- vfs_checkout.cc: what other mounts have checked out is looked at through the server, and nothing is kept of it
  bool Through(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void NoteThrough(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // The kernel keeps what is read through the handle.
  bool KernelKeeps(HandleId handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<std::vector<FilePiece>> ReadThrough(const OpContext& ctx, Claim& claim, InodeId ino, uint64_t offset, size_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<OpenReply> OpenThrough(const OpContext& ctx, Claim& claim, InodeId ino, int flags) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<std::map<std::string, std::string>> XattrsThrough(const OpContext& ctx, Claim& claim, InodeId ino)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Result<uint64_t> CallCheckout(const OpContext& ctx, CheckoutRequest request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void FlushOnly(const SessionMessage& message);
  void CheckoutEnded(const SessionMessage& message);

  // --- vfs_space.cc: a disk with a quota (docs/quota.md)
  // True: the range of the file may be written. False: the lock was given up, look again. kNoSpace.
  Result<bool> EnsureSpace(const OpContext& ctx, InodeId ino, uint64_t offset, uint64_t length) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Status GetSpace(const OpContext& ctx, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Status Reserve(const OpContext& ctx, uint64_t more, uint64_t headroom, uint64_t message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void ReturnSpace(uint64_t message);
  uint64_t Pending();
  static void AppendZeros(uint64_t length, std::vector<Buffer>& out);
  Status FsyncInode(const OpContext& ctx, InodeId ino);
  // What the kernel keeps of written files comes here before this returns.
  Status DrainKernel(const OpContext& ctx);

  // --- answers
  Attr AttrOf(const Inode& inode) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  absl::Duration AttrTtl(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  // A name of each wanted inode, and of every directory, as far as memory has them.
  absl::flat_hash_map<InodeId, LostLog::Name> NamesOf(const std::function<bool(InodeId)>& wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  Entry EntryOf(const Inode& inode, const Inode& dir) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);
  void DropPart(bool everything) ABSL_EXCLUSIVE_LOCKS_REQUIRED(wb_.state_.mu);

  struct Counters {
    std::atomic<uint64_t> rpc_get_inode{0}, rpc_lookup{0}, rpc_read_dir{0}, rpc_get_extents{0}, rpc_get_xattrs{0},
        rpc_stat_fs{0}, rpc_acquire{0}, rpc_apply_op{0}, rpc_read_once{0}, rpc_reserve_space{0}, recalls{0}, read_bytes{0}, waits{0};
  };

  // First, because the lock that the others are guarded by is reached through it: wb_.state_.mu.
  Writeback& wb_;
  MountEnv env_;
  const MountConfig config_;
  Session& session_;
  BlockCache& cache_;
  SegmentReader& reader_;
  SessionLocks lock_server_;
  FileLocks locks_;
  KernelCache* kernel_ = nullptr;
  InodeId root_ = kRootInode;
  // Until then what the kernel forgets is dropped at once (DropCaches).
  BootTime shrink_until_ ABSL_GUARDED_BY(wb_.state_.mu);
  bool reserving_ ABSL_GUARDED_BY(wb_.state_.mu) = false;   // a call asks for space, others wait for it
  uint64_t promises_at_beat_ ABSL_GUARDED_BY(wb_.state_.mu) = 0;
  // Acquire calls under way, by the order of their beginning.
  std::set<uint64_t> acquires_ ABSL_GUARDED_BY(wb_.state_.mu);
  uint64_t last_acquire_ ABSL_GUARDED_BY(wb_.state_.mu) = 0;
  // +1 when everything held was told to a restarted server: grants of before are not believed.
  uint64_t reclaims_ ABSL_GUARDED_BY(wb_.state_.mu) = 0;
  // Files looked up lately, the newest ones: the kernel is about to open them (it walks a path again only once).
  std::deque<std::pair<InodeId, BootTime>> looked_up_ ABSL_GUARDED_BY(wb_.state_.mu);
  // Those of them that were given up and told as open.
  std::vector<InodeId> grace_ ABSL_GUARDED_BY(wb_.state_.mu);
  // While what was taken is settled: commits were held, and none on its way, when the newest heartbeat was sent.
  bool quiet_ ABSL_GUARDED_BY(wb_.state_.mu) = false;
  bool silent_alone_ ABSL_GUARDED_BY(wb_.state_.mu) = false;  // it was when its lease ran out
  std::set<InodeId> not_true_ ABSL_GUARDED_BY(wb_.state_.mu);      // touched by lost ops, or taken; to be forgotten
  std::set<InodeId> not_held_ ABSL_GUARDED_BY(wb_.state_.mu);      // of them: no right on it is the server's view
  std::set<InodeId> never_born_ ABSL_GUARDED_BY(wb_.state_.mu);    // made by lost ops
  // For people: all that was lost so far, and where the newest of it was saved.
  uint64_t lost_ops_ ABSL_GUARDED_BY(wb_.state_.mu) = 0;
  std::string lost_file_ ABSL_GUARDED_BY(wb_.state_.mu);
  uint32_t bad_handles_ ABSL_GUARDED_BY(wb_.state_.mu) = 0;        // open ones whose lock was lost
  // Directories whose operations are applied at the server, until when.
  absl::flat_hash_map<InodeId, BootTime> contended_ ABSL_GUARDED_BY(wb_.state_.mu);
  // What others have checked out, until when that is believed.
  absl::flat_hash_map<InodeId, BootTime> through_ ABSL_GUARDED_BY(wb_.state_.mu);
  std::map<InodeId, uint64_t> checkouts_ ABSL_GUARDED_BY(wb_.state_.mu);  // this mount's, with their numbers
  std::set<uint64_t> ended_checkouts_ ABSL_GUARDED_BY(wb_.state_.mu);  // whose answers are on their way
  uint64_t last_checkout_ ABSL_GUARDED_BY(wb_.state_.mu) = 0;
  bool checking_out_ ABSL_GUARDED_BY(wb_.state_.mu) = false;
  // Operations at the server that are under way, by id.
  std::set<uint64_t> server_ops_ ABSL_GUARDED_BY(wb_.state_.mu);
  uint64_t last_server_op_ ABSL_GUARDED_BY(wb_.state_.mu) = 0;
  // Directories of which the server said lately that a name is absent.
  absl::flat_hash_map<InodeId, BootTime> absent_once_ ABSL_GUARDED_BY(wb_.state_.mu);
  // Directories asked for one after the other: more are asked for at once.
  uint32_t walk_ ABSL_GUARDED_BY(wb_.state_.mu) = 0;
  BootTime last_walk_ ABSL_GUARDED_BY(wb_.state_.mu);
  std::atomic<uint64_t> progress_{0};  // of recalls
  CancelFlag stop_;                    // ends the waits of recalls
  Counters counters_;
};

// For a call's loop: `continue`s when the lock was given up, returns on error.
#define ARCHIL_ENSURE(expr)                                      \
  {                                                              \
    auto archil_ensured_ = (expr);                               \
    if (!archil_ensured_.ok()) return archil_ensured_.error();   \
    if (!*archil_ensured_) continue;                             \
  }                                                              \
  static_assert(true)

}  // namespace archil
