// DiskCore: an open disk: its state, its log, and what the strand knows about its sessions. Made by OpenDiskCore,
// used by one strand; thrown away as a whole when the log fails, because the state may then be ahead of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/format/log_record.h"
#include "common/format/records.h"
#include "server/coord/coordination.h"
#include "server/meta/delegation/delegation_table.h"
#include "server/meta/delegation/lock_book.h"
#include "server/meta/executor.h"
#include "server/meta/log/log_writer.h"
#include "server/meta/meta_server.h"
#include "server/meta/metrics.h"
#include "server/meta/delegation/space_book.h"
#include "server/meta/store/records.h"

namespace archil {

// What all disks of a server share. References outlive the disks.
struct DiskHost {
  MetaServerEnv env;
  MetaServerConfig config;
  Coordination& coord;
  ThreadPool& strands;     // deciding: never blocks on the network
  ThreadPool& log_pool;    // appends to logs
  ThreadPool& background;  // opening, flushing, collecting garbage
  MetaMetrics& metrics;
  std::atomic<bool>& draining;                // nobody waits for rights or messages any more
  std::function<void(BootTime)> wake;         // Disk::LookIfDue is called at that time, or soon after

  BootTime Now() const { return env.scheduler.clock().Boot(); }
};

// Numbers of grants and messages of an epoch are above this, those of earlier ones below.
inline uint64_t FirstNumber(uint64_t epoch) { return epoch << 40; }

inline constexpr size_t kEndsAtOnce = 16;  // sessions ended in one turn of the strand

// Operations of a session that were applied here (SRV-1): what was answered, also verdicts that changed nothing. The
// state has the successes as well.
struct ServerOps {
  uint64_t finished = 0;  // ids below it do not come again
  std::map<uint64_t, Result<ApplyOpReply>> answers;

  void Finished(uint64_t below) {
    finished = std::max(finished, below);
    answers.erase(answers.begin(), answers.lower_bound(finished));
  }
};

struct DiskCore {
  explicit DiskCore(const MetaServerConfig& config)
      : table(DelegationLimits{.recall_grace = config.recall_grace, .keep_silent = config.keep_silent, .rights_kept = config.rights_kept, .contended_after = config.contended_after}) {}

  std::shared_ptr<KvStore> kv;  // owners: the core, and background work that reads or flushes it
  std::unique_ptr<LogWriter> log;
  Lsn applied;                     // newest record in kv; the log knows how much of it is durable
  DiskRecord disk;
  std::map<SessionId, SessionRecord> sessions;  // live ones, and ended ones that are remembered
  DelegationTable table;
  uint64_t epoch = 0;              // of the leader; numbers of sessions begin above it, so that they grow over restarts

  // Calls that wait, by their own numbers, and the one Poll of each session.
  struct AcquireWait {
    AcquireRequest request;
    std::function<void(Result<AcquireReply>)> done;
  };
  struct PollWait {
    uint64_t id = 0;
    uint64_t after = 0;
    BootTime deadline;
    std::function<void(Result<PollReply>)> done;
  };
  std::map<uint64_t, AcquireWait> acquires;
  struct ApplyWait {
    ApplyOpRequest request;
    std::function<void(Result<ApplyOpReply>)> done;
  };
  struct LookWait {
    ReadOnceRequest request;
    std::function<void(Result<ReadOnceReply>)> done;
  };
  std::map<uint64_t, ApplyWait> applies;
  std::map<uint64_t, LookWait> looks;
  std::map<SessionId, ServerOps> server_ops;
  std::map<uint64_t, std::function<void(Result<bool>)>> revokes;
  std::map<SessionId, PollWait> polls;
  std::set<std::pair<BootTime, SessionId>> poll_ends;  // at least their deadlines; those that ended earlier go when they come up
  // Waits for file locks; the book has their places.
  struct LockWait {
    uint64_t id = 0;
    BootTime deadline;
    std::function<void(Result<LockOutcome>)> done;
  };
  LockBook locks;
  std::map<WaiterId, LockWait> lock_waits;
  BootTime lock_look;  // from whoever is silent then and stands in the way of one its locks are taken
  // Credits on a disk with a quota; calls that wait for one.
  SpaceBook space;
  std::map<uint64_t, std::function<void(Result<Credit>)>> space_waits;
  uint64_t records_shown = 0;  // of rights, in the gauge

  // Flushing: changes wait in `held` from the moment at which the state's end is fixed until it is on disk.
  bool flushing = false;
  std::deque<std::function<void(DiskCore*)>> held;
  BootTime last_flush;
  Lsn flushed;
  uint64_t unflushed_log_bytes = 0;

  // Garbage collection.
  bool collecting = false;
  std::deque<std::function<void(Result<uint64_t>)>> next_collection;  // who asked while one was under way
  std::set<SegmentId> named_meanwhile;            // by ops applied since the snapshot was taken
  std::map<SegmentId, BootTime> released_at;      // by live sessions, as far as this process knows
  bool deleted = false;                           // the disk is being deleted: calls answer kNoSuchDisk
};

// Blocking. In order: state, new epoch in the manifest, fence, the rest of the log, a new log segment. `create`: the
// first record of a disk that does not exist yet. kCorrupt: damage, found and not touched; kUnavailable: try again later.
Result<std::unique_ptr<DiskCore>> OpenDiskCore(const DiskHost& host, DiskId id, const std::optional<DiskCreatedRecord>& create,
                                               LogWriter::Hooks hooks);
std::string DiskDir(const MetaServerConfig& config, DiskId id);

}  // namespace archil
