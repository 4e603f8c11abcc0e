// Writeback: carries acknowledged ops and dirty bytes to the servers, in order.
//
//   write ──► FileMap (dirty) ──Take──► pending SetExtents in the log + upload queue ──upload──► Fill ──commit──► durable
//
// EXT-1: bytes get their place in the log when they are taken. ORD-2: renames, links, truncations … take the dirty bytes
// of their inodes first. Commits are prefixes of the log, one in flight, sent by whichever thread wants one (a
// thread in fsync sends it itself; others that wait meanwhile are served by the same or the next one).
//
// Threads: one flusher (age and size of the log), `kUploaders` uploaders. Functions marked REQUIRES(mu) that may give
// the lock up for a while say so; pointers into MountState are not valid afterwards.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/core/mount.h"
#include "client/read/segment_reader.h"
#include "client/session/session.h"
#include "client/vfs/state.h"

namespace archil {

class Writeback {
 public:
  // What the mount keeps in memory; public so that users name the one lock in the same way (wb.state_.mu).
  MountState& state_;

  Writeback(const MountEnv& env, const MountConfig& config, MountState& state, Session& session, SegmentReader& reader);
  ~Writeback();

  void Start();
  // Ends all threads; what is not durable stays where it is. Idempotent.
  void Stop();

  // An op: appends it to the log and notes it on the inodes it touches (null ones are skipped).
  Seq Log(Op op, std::initializer_list<Inode*> touched) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // After a change of the inode's map: accounts `before` (dirty + taken bytes before the change) and starts timers.
  void MapChanged(Inode& inode, uint64_t before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // Bytes of an inode that only memory holds.
  static uint64_t MemoryOf(const Inode& inode) {
    return inode.map ? inode.map->dirty_bytes() + inode.map->taken_bytes() : 0;
  }
  // Takes the inode's dirty bytes: they have their place in the log now.
  void Take(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // Takes those of every inode, in the order in which they became dirty.
  void TakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // Takes those of the inodes that a directory covers.
  void TakeCovered(const Inode& dir) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // The inode's last name and reference are gone: its bytes are needed by nobody.
  void Discard(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);

  // Returns when the log is durable up to `target`; may give the lock up. kIo past the deadline or when the mount
  // is broken, kInterrupted, kWouldBlock.
  Status MakeDurable(const OpContext& ctx, Seq target) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // Slows a writer while much is dirty, and stops it while too much is; may give the lock up.
  Status Throttle(const OpContext& ctx) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // Starts a flush of everything without waiting for it.
  void Kick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // Every later call fails with kIo; waiters are woken.
  void Break(std::string reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);

  // Called, without the lock, when the server refuses the log: it cannot go on. Before Start.
  void OnRefused(std::function<void(const std::string&)> refused) { refused_ = std::move(refused); }

  // --- FENCE-1: what was taken from this session, or all of it, is lost (docs/delegation.md)
  // No commit begins while they are held; one may still be on its way.
  void HoldCommits(bool hold) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  bool committing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu) { return committing_; }
  // They are held, and none is on its way.
  bool quiet() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu) { return held_ && !committing_; }
  // The server says that it has applied the log so far. Nothing is on its way.
  void CatchUp(Seq applied) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // The ops from `first` on (and before, where the log cannot be divided) leave the log, with the bytes that memory has as inline extents.
  // Waits for them end as if they were durable: ask Lost. Nothing is on its way. Data of inodes that `keep` names stays, at the log's end.
  std::vector<Op> Lose(Seq first, const std::function<bool(InodeId)>& keep) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  bool Lost(Seq seq) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // What memory has of the file's content is not true any more.
  void ForgetContent(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // How often in a row, since commits were held last, the server refused one because it touches what was taken.
  int refusals() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu) { return refusals_; }
  // The server will count everything up to `last`, which is durable, as applied: the next commit begins after it. Until it is known to
  // have done so (SettlementDone, which also lets commits go on) it is not said of anything that it is applied for that reason.
  void Settling(Seq last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu) {
    if (!settling_from_) settling_from_ = server_applied_;
    server_applied_ = std::max(server_applied_, last);
  }
  void SettlementDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu) {
    settling_from_.reset();
    HoldCommits(false);
  }

  uint64_t dirty_bytes() const { return dirty_bytes_.load(); }
  // The newest op that the server was told of: what lies between it and the durable one was absorbed.
  Seq told() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu) { return std::min(server_applied_, settling_from_.value_or(server_applied_)); }

  // The newest op that changes what somebody sees: not one that gives up an orphan.
  Seq last_change() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu) { return last_change_; }

  struct Counters {
    std::atomic<uint64_t> ops_logged{0}, ops_sent{0}, ops_absorbed{0}, inodes_absorbed{0}, commits{0}, commit_retries{0},
        appends{0}, append_bytes{0}, append_retries{0}, inline_bytes{0}, bytes_written{0};
  };
  Counters counters;

 private:
  // One act of taking.
  struct Upload {
    Seq seq;
    InodeId ino;
    TakeId take = 0;
    std::vector<DirtyRange> ranges;
    uint64_t bytes = 0;
    size_t next_range = 0;  // ranges before it are with an uploader or placed
    size_t placed = 0;
    std::vector<Extent> extents;
    bool cancelled = false;
  };
  struct Piece {
    std::shared_ptr<Upload> upload;  // owners: the queue and the packs that hold its ranges
    size_t range = 0;
  };
  struct OpenSegment {
    SegmentGrant grant;
    uint64_t length = 0;
    int failures = 0;
  };

  static Extent InlineExtent(const DirtyRange& range);
  void LogAgain(OpLog::LostOp& op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  void Withdraw(Seq seq, SetExtentsOp& op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  void FlusherLoop();
  void UploaderLoop();
  bool FlushDue(BootTime* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  void Enqueue(Inode& inode, TakeId take, std::vector<DirtyRange> ranges) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  void TakeForCompaction() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  void StartUploads(Seq goal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  bool PlaceInline(Seq target) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  void Finish(Upload& upload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  std::vector<Piece> NextPack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  void PlacePack(const std::vector<Piece>& pack, SegmentId segment, uint64_t offset)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  // Without the lock. True: the bytes are on stable storage at the returned place.
  std::optional<uint64_t> AppendOnce(OpenSegment& segment, const Buffer& bytes);
  bool Append(std::optional<OpenSegment>& segment, const Buffer& bytes, uint64_t* offset);
  Status CommitOnce(const OpContext& ctx, Seq target) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  Status WaitChanged(const OpContext& ctx, BootTime until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  void Account(uint64_t before, uint64_t after);
  void Touched(Inode& inode, Seq seq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  void StartTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu);
  BootTime Now() { return env_.scheduler.clock().Boot(); }

  MountEnv env_;
  const MountConfig config_;
  Session& session_;
  SegmentReader& reader_;
  std::atomic<uint64_t> dirty_bytes_{0};
  std::function<void(const std::string&)> refused_;

  CondVar flusher_wake_;
  CondVar uploader_wake_;
  CancelFlag stop_;  // ends RPCs of our own threads
  bool stopping_ ABSL_GUARDED_BY(state_.mu) = false;
  TakeId next_take_ ABSL_GUARDED_BY(state_.mu) = 1;
  std::deque<InodeId> dirty_list_ ABSL_GUARDED_BY(state_.mu);
  uint64_t untaken_bytes_ ABSL_GUARDED_BY(state_.mu) = 0;
  std::deque<InodeId> compact_list_ ABSL_GUARDED_BY(state_.mu);
  std::deque<std::shared_ptr<Upload>> queue_ ABSL_GUARDED_BY(state_.mu);  // not wholly with an uploader
  // Taken and neither placed nor cancelled, by inode.
  absl::flat_hash_map<InodeId, std::vector<std::shared_ptr<Upload>>> unfinished_ ABSL_GUARDED_BY(state_.mu);
  Seq upload_goal_ ABSL_GUARDED_BY(state_.mu);
  std::optional<BootTime> oldest_ ABSL_GUARDED_BY(state_.mu);  // since when something waits
  bool kicked_ ABSL_GUARDED_BY(state_.mu) = false;

  std::optional<CommitBatch> batch_ ABSL_GUARDED_BY(state_.mu);  // planned, not known durable
  bool committing_ ABSL_GUARDED_BY(state_.mu) = false;
  bool held_ ABSL_GUARDED_BY(state_.mu) = false;
  std::vector<std::pair<Seq, Seq>> lost_ ABSL_GUARDED_BY(state_.mu);  // first and last numbers, ascending
  Seq last_change_ ABSL_GUARDED_BY(state_.mu);
  Seq server_applied_ ABSL_GUARDED_BY(state_.mu);
  std::optional<Seq> settling_from_ ABSL_GUARDED_BY(state_.mu);
  BootTime retry_at_ ABSL_GUARDED_BY(state_.mu);
  int commit_failures_ ABSL_GUARDED_BY(state_.mu) = 0;
  int refusals_ ABSL_GUARDED_BY(state_.mu) = 0;

  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace archil
