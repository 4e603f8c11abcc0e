// Disk: one disk of a metadata server. Its strand decides everything about it in one order; answers leave when the log is
// durable up to what they saw (LOG-1). Thread safe. Calls never block: `done` runs once, on a thread of the server or, when
// the disk is not serving, in the caller.
//
// States: serving; down (the log failed; opened again in the background, meanwhile kUnavailable); damaged (kCorrupt with what
// was found); stopped.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/api/meta_service.h"
#include "common/env/planted.h"
#include "server/meta/disk_core.h"
#include "server/meta/listing.h"

namespace archil {

template <class T>
using Done = std::function<void(Result<T>)>;

class Disk : public std::enable_shared_from_this<Disk> {
 public:
  Disk(const DiskHost& host, DiskId id, std::string name);
  ~Disk();

  DiskId id() const { return id_; }
  const std::string& name() const { return name_; }

  // Blocking; once, before any other call. kCorrupt leaves a damaged disk that answers so; kUnavailable one that is down
  // and tries again.
  Status Start(const std::optional<DiskCreatedRecord>& create);
  // Blocking: makes the state durable and closes. Idempotent; later calls answer kUnavailable.
  void Stop();
  // Every second or so: flushing, reopening.
  void Tick();
  // What waits for a moment that has come (deadlines, leases) goes on. When to call again at the latest; it may ask for earlier by
  // DiskHost::wake.
  BootTime LookIfDue(BootTime now);

  void Info(Done<DiskInfo> done);
  // Ends all sessions for good, or is refused with kHeldElsewhere; afterwards every call answers kNoSuchDisk.
  void PrepareDelete(bool force, Done<bool> done);
  // The disk stays after all.
  void CancelDelete();
  void OpenSession(OpenSessionRequest request, Done<OpenSessionReply> done);
  void Renew(SessionId session, SessionKey key, uint64_t progress, Done<RenewReply> done);
  void CloseSession(SessionId session, SessionKey key, Done<bool> done);
  // These wait, at most until the deadline; `ticket` may be null.
  void Acquire(AcquireRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<AcquireReply> done);
  void Poll(SessionId session, SessionKey key, uint64_t after, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<PollReply> done);
  void Revoke(SessionId session, InodeId ino, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<bool> done);
  void SetLock(SetLockRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<LockOutcome> done);
  void CancelLock(SessionId session, SessionKey key, uint64_t id, Done<bool> done);
  void TestLock(SessionId session, SessionKey key, FileLock lock, Done<std::optional<FileLock>> done);
  void ApplyOp(ApplyOpRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket,
               Done<ApplyOpReply> done);
  void ReadOnce(ReadOnceRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket,
                Done<ReadOnceReply> done);
  void Checkout(CheckoutRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<uint64_t> done);
  void ReserveSpace(ReserveSpaceRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<Credit> done);
  // Answers what waits, with kUnavailable.
  void EndWaits();
  void AnswerRecall(SessionId session, SessionKey key, RecallAnswer answer, Done<bool> done);
  void GiveBack(SessionId session, SessionKey key, std::vector<InodeId> inodes, std::vector<InodeId> opens, Done<bool> done);
  void Reclaim(ReclaimRequest request, Done<ReclaimReply> done);
  void SettleTaken(SettleRequest request, Done<bool> done);
  void ListRights(uint32_t limit, Done<std::vector<RightInfo>> done);
  void Commit(CommitRequest request, Done<CommitReply> done);
  void AllocateInodes(SessionId session, SessionKey key, Done<InodeRange> done);
  void AllocateSegments(SessionId session, SessionKey key, uint32_t count, Done<std::vector<SegmentGrant>> done);
  void ReleaseSegments(SessionId session, SessionKey key, std::vector<SegmentId> segments, Done<bool> done);
  void GetInode(SessionId session, InodeId ino, Done<InodeInfo> done);
  void Lookup(SessionId session, InodeId parent, std::string name, Done<InodeInfo> done);
  void ReadDir(SessionId session, InodeId ino, std::string after, uint32_t limit, Done<DirPage> done);
  void GetExtents(SessionId session, InodeId ino, uint64_t first_chunk, uint32_t count, Done<std::vector<ChunkExtents>> done);
  void GetXattrs(SessionId session, InodeId ino, Done<std::map<std::string, std::string>> done);
  void LocateSegment(SessionId session, SegmentId segment, Done<std::vector<DataServerInfo>> done);
  void StatFs(SessionId session, Done<FsStats> done);
  // One pass now; segments deleted. A pass that is under way is waited for.
  void CollectGarbage(Done<uint64_t> done);

 private:
  enum class Kind : uint8_t { kRead, kChange, kHeartbeat };  // kHeartbeat: a read that waits for little

  // --- disk.cc
  // Runs `fn` on the strand with the open core, changes after a flush that is under way.
  template <class T>
  void Run(Kind kind, Done<T> done, std::function<void(DiskCore&, Done<T>)> fn);
  // As Run; null: the disk is not serving.
  void RunOnStrand(Kind kind, std::function<void(DiskCore*)> fn);
  void PostOnStrand(Kind kind, std::function<void(DiskCore*)> fn);
  // Answers once everything applied so far is durable.
  template <class T>
  static void Reply(DiskCore& core, Kind kind, const Done<T>& done, Result<T> result);
  // Applies a record and submits it to the log. Empty `durable`: nobody waits for it.
  Status Change(DiskCore& core, const LogRecord& record, std::function<void()> durable = nullptr);
  // The second half: writes what a transaction changed, in the order of the log.
  Status WriteRecord(DiskCore& core, Txn& txn, const LogRecord& record, LogWriter::Done done);
  LogWriter::Hooks HooksForLog();
  void StepDown(const Error& cause);
  void TryOpen();
  void MaybeFlush(DiskCore& core);
  void FlushNow(uint64_t generation);
  void FlushDone(const Status& s);
  Error NotServing() const;
  // Servers of a list of ids, unknown ones left out.
  std::vector<DataServerInfo> ServersOf(const std::vector<uint32_t>& ids) const;

  // --- disk_sessions.cc
  void DoOpenSession(DiskCore& core, const OpenSessionRequest& request, BootTime received, const Done<OpenSessionReply>& done);
  Status MakeRoom(DiskCore& core, const OpenSessionRequest& request, BranchId branch);
  Status EndSession(DiskCore& core, SessionId session, bool fenced, std::string reason);
  Result<OpenSessionReply> SessionReply(DiskCore& core, const SessionRecord& session, InodeRange range);
  Result<InodeRange> GrantRange(DiskCore& core, SessionId session);
  Result<DiskInfo> MakeInfo(DiskCore& core);
  // A live session of this id (and key, if given); renews its lease. kUnavailable if it has not reclaimed, unless that does not matter.
  // Of one that has something taken and unsettled likewise.
  enum class Claim : uint8_t { kNeeded, kUnsettled /* reclaimed, but may be unsettled */, kNot };
  static Result<SessionRecord*> LiveSession(DiskCore& core, SessionId session, const SessionKey* key, BootTime received, Claim claim = Claim::kNeeded);
  Status RefuseOrEnd(DiskCore& core, const std::vector<Holder>& in_the_way, const OpenSessionRequest& request);

  // --- disk_delegations.cc
  // Looks at the requests and answers what can be answered; ends who is to be ended. After everything that may let one go on.
  void Settle(DiskCore& core);
  void SettleSoon();
  // FENCE-1: ends and takes, first in the log. False: not now, or the disk steps down.
  bool TakeFromSilent(DiskCore& core, const DelegationEffects& effects);
  Status Take(DiskCore& core, SessionId session, const std::vector<Taken>& taken);
  void Do(DiskCore& core, const DelegationEffects& effects);
  void AnswerPolls(DiskCore& core, BootTime now);
  void EndPoll(DiskCore& core, SessionId session, const Error& error);
  void WakeForWaits(DiskCore& core);
  void FailWaits(DiskCore& core, const Error& error);
  void OnCancel(const std::shared_ptr<WaitTicket>& ticket, uint64_t wait);
  void CancelWait(DiskCore& core, uint64_t wait);
  // The table was asked about the state: false, and the disk steps down, if that could not be read.
  bool TreeIsGood(const StateTree& tree);
  void StepDownSoon(const Error& cause);
  Result<AcquireReply> GrantReply(DiskCore& core, const AcquireRequest& request, const DelegationEffects::Granted& granted);
  Status BringAlong(DiskCore& core, const AcquireRequest& request, const Records& records, size_t bytes, AcquireReply& reply);
  static void MarkCovered(DiskCore& core, SessionId session, DirPage& page);
  static void MarkCovered(DiskCore& core, SessionId session, InodeId parent, InodeInfo& info);

  // --- disk_server_ops.cc
  Result<std::optional<Result<ApplyOpReply>>> BeginServerOp(DiskCore& core, const ApplyOpRequest& request,
                                                            uint64_t wait, BootTime deadline, BootTime received);
  Result<std::optional<ApplyOpReply>> StoredAnswer(DiskCore& core, const ApplyOpRequest& request);
  void ApplyReady(DiskCore& core, uint64_t wait);
  Result<ApplyOpReply> ApplyNow(DiskCore& core, const ApplyOpRequest& request);
  Status LookFurther(DiskCore& core, const ReadOnceRequest& request, const Records& records, ReadOnceReply& reply);
  Result<ReadOnceReply> LookNow(DiskCore& core, const ReadOnceRequest& request);
  // False: it is not one of these.
  bool AnswerServerWait(DiskCore& core, const DelegationEffects::Granted& granted);
  bool FailServerWait(DiskCore& core, uint64_t wait, const Error& error);
  void FailServerWaits(DiskCore& core, const Error& error);

  // --- disk_space.cc
  static Result<uint64_t> UsedBytes(DiskCore& core);
  static Credit CreditOf(const DiskCore& core, const SessionRecord& session);
  Status SetCredit(DiskCore& core, SessionId session, uint64_t request, uint64_t credit);
  void LookAtSpace(DiskCore& core, BootTime now, DelegationEffects& out);
  static BootTime NextSpaceLook(const DiskCore& core, BootTime now);
  void EndSpace(DiskCore& core, SessionId session, const Error& error);
  static void CancelSpaceWait(DiskCore& core, uint64_t wait, const Error& error);
  static void FailSpaceWaits(DiskCore& core, const Error& error);
  static Result<bool> MayOverdraw(DiskCore& core, Txn& txn, SessionId session);

  // --- disk_locks.cc
  // kUnavailable while another session of the branch may hold locks that are not known here. The session's branch.
  // Of the inode, that is.
  Result<BranchId> LocksKnown(DiskCore& core, SessionId session, InodeId ino);
  Status TakeSilentLocks(DiskCore& core, BranchId branch, SessionId session, const FileLock& lock);
  void LookAtLocks(DiskCore& core, BootTime now, DelegationEffects& out);
  BootTime NextLockLook(const DiskCore& core) const;
  // Tells those whose wait has ended.
  void AnswerLocks(DiskCore& core);
  // Without those that were taken from it.
  static std::vector<FileLock> Untaken(DiskCore& core, SessionId session, const std::vector<FileLock>& locks);
  void EndLocks(DiskCore& core, SessionId session, BranchId branch, const Error& error);
  void FailLockWaits(DiskCore& core, const Error& error);
  void CancelLockWait(DiskCore& core, uint64_t wait, const Error& error);

  // --- disk_commit.cc
  void DoCommit(DiskCore& core, CommitRequest& request, const std::vector<Op>& ops, BootTime received, const Done<CommitReply>& done);
  void TellTable(DiskCore& core, const SessionRecord& session, const std::vector<Op>& ops);

  // --- disk_reads.cc
  template <class T>
  void Read(SessionId session, Done<T> done, std::function<Result<T>(DiskCore&, const Records&)> fn);

  // --- disk_gc.cc; in this order, on the strand or in the background
  struct Collection;
  void StartCollection(Done<uint64_t> done);                            // strand
  void ListSegments(const std::shared_ptr<Collection>& gc);             // background
  void SnapshotForCollection(const std::shared_ptr<Collection>& gc);    // strand
  void FindReferences(const std::shared_ptr<Collection>& gc);           // background
  void Condemn(const std::shared_ptr<Collection>& gc);                  // strand
  void DeleteCondemned(const std::shared_ptr<Collection>& gc);          // background
  void FinishCollection(const std::shared_ptr<Collection>& gc);         // strand
  bool CoreOf(const Collection& gc) const;
  void ScheduleCollection();
  void SealInBackground(std::vector<SegmentRecord> segments);
  bool MayCondemn(DiskCore& core, const SegmentRecord& segment) const;

  const DiskHost host_;
  const DiskId id_;
  const std::string name_;
  const std::shared_ptr<Strand> strand_;
  const std::shared_ptr<Strand> lane_;  // background work of this disk, one piece at a time
  std::atomic<bool> stopped_{false};

  // Of the strand.
  std::unique_ptr<DiskCore> core_;
  std::string not_serving_ = "the disk is not open yet";
  Code not_serving_code_ = Code::kUnavailable;
  bool opening_ = false;
  std::atomic<int64_t> look_at_ns_{INT64_MAX};  // on the boot clock
  std::atomic<uint64_t> next_wait_{1};
  uint64_t generation_ = 0;  // of core_: what comes back from the background may be about an older one
};

template <class T>
void Disk::Run(Kind kind, Done<T> done, std::function<void(DiskCore&, Done<T>)> fn) {
  RunOnStrand(kind, [this, done = std::move(done), fn = std::move(fn)](DiskCore* core) {
    if (core == nullptr) return done(NotServing());
    fn(*core, done);
  });
}

template <class T>
void Disk::Reply(DiskCore& core, Kind kind, const Done<T>& done, Result<T> result) {
  if (Planted(Plant::kAnswerBeforeLog)) return done(std::move(result));
  core.log->WhenDurable([kind, done, result = std::move(result)](Status s) {
    if (s.ok()) return done(result);
    // A change may be in the log, or not: whoever repeats it under its own number finds out.
    done(Error(kind == Kind::kChange && result.ok() ? Code::kUnknown : Code::kUnavailable, std::string(s.error().message())));
  });
}

}  // namespace archil
