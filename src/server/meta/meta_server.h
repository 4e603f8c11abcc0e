// MetaServer: the metadata of many disks; one strand per disk decides everything about it in one order.
// Contracts of the calls: common/api/meta_service.h. Thread safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/api/data_service.h"
#include "common/api/meta_service.h"
#include "common/env/faults.h"
#include "common/env/files.h"
#include "common/env/random.h"
#include "common/env/sched.h"
#include "server/meta/store/kv_store.h"
#include "server/meta/wait_ticket.h"

namespace archil {

// The data servers that segments are placed on. Thread safe; references live as long as the set.
class DataServerSet {
 public:
  virtual ~DataServerSet() = default;
  virtual std::vector<DataServerInfo> All() = 0;
  // Null for an unknown id.
  virtual DataService* ById(uint32_t id) = 0;
};

struct MetaServerEnv {
  Scheduler& scheduler;
  Random& random;
  Files& files;
  Faults& faults;
  DataServerSet& data;
  // Opens the state of one disk in a directory that exists (RocksDB), or in memory.
  std::function<Result<std::unique_ptr<KvStore>>(const std::string& dir)> open_kv;
};

struct MetaServerConfig {
  std::string dir;
  absl::Duration default_lease = absl::Seconds(15);
  absl::Duration min_lease = absl::Milliseconds(200);
  absl::Duration max_lease = absl::Minutes(5);
  uint64_t log_segment_bytes = 64ULL << 20;   // a log segment is closed at this length
  uint64_t flush_bytes = 64ULL << 20;         // the state is flushed when this much of the log is not in it
  absl::Duration flush_interval = absl::Seconds(60);
  absl::Duration recall_grace = absl::Seconds(5);  // LSE-1: for so long an answer may be owed without progress
  absl::Duration keep_silent = absl::Hours(24);    // FENCE-1: a session that was silent for longer is ended when something of it is wanted
  // A directory that was recalled so often within a second is contended until its sessions have left each other alone
  // for a second: its operations are applied at the server. 0: never.
  uint32_t contended_after = 10;
  size_t rights_kept = 256 << 10;  // of a session: beyond it the oldest are recalled
  uint64_t total_bytes = 0;  // capacity that statfs shows for disks without quota; 0: 1 PiB
};

class MetaServer : public MetaService {
 public:
  // Opens every disk of the directory: state, then the rest of its log. A damaged disk is kept aside with its error (its calls
  // answer kCorrupt with what was found); the others serve.
  static Result<std::unique_ptr<MetaServer>> Open(const MetaServerEnv& env, const MetaServerConfig& config);

  // As the calls of the same name without Async; `done` runs once, on a thread of the server, and must not block.
  virtual void CommitAsync(const OpContext& ctx, CommitRequest request, std::function<void(Result<CommitReply>)> done) = 0;
  virtual void RenewAsync(const OpContext& ctx, SessionId session, SessionKey key, uint64_t progress,
                          std::function<void(Result<RenewReply>)> done) = 0;
  virtual void AnswerRecallAsync(const OpContext& ctx, SessionId session, SessionKey key, RecallAnswer answer,
                                 std::function<void(Status)> done) = 0;
  // These wait, but occupy no thread. `ticket` may be null.
  virtual void AcquireAsync(const OpContext& ctx, AcquireRequest request, std::shared_ptr<WaitTicket> ticket,
                            std::function<void(Result<AcquireReply>)> done) = 0;
  virtual void PollAsync(const OpContext& ctx, SessionId session, SessionKey key, uint64_t after, std::shared_ptr<WaitTicket> ticket,
                         std::function<void(Result<PollReply>)> done) = 0;
  virtual void RevokeAsync(const OpContext& ctx, const std::string& disk, SessionId session, InodeId ino, std::shared_ptr<WaitTicket> ticket,
                           std::function<void(Status)> done) = 0;
  virtual void SetLockAsync(const OpContext& ctx, SetLockRequest request, std::shared_ptr<WaitTicket> ticket,
                            std::function<void(Result<LockOutcome>)> done) = 0;
  virtual void ApplyOpAsync(const OpContext& ctx, ApplyOpRequest request, std::shared_ptr<WaitTicket> ticket,
                            std::function<void(Result<ApplyOpReply>)> done) = 0;
  virtual void ReadOnceAsync(const OpContext& ctx, ReadOnceRequest request, std::shared_ptr<WaitTicket> ticket,
                             std::function<void(Result<ReadOnceReply>)> done) = 0;
  virtual void CheckoutAsync(const OpContext& ctx, const CheckoutRequest& request, std::shared_ptr<WaitTicket> ticket,
                             std::function<void(Result<uint64_t>)> done) = 0;
  virtual void ReserveSpaceAsync(const OpContext& ctx, const ReserveSpaceRequest& request, std::shared_ptr<WaitTicket> ticket,
                                 std::function<void(Result<Credit>)> done) = 0;
  // From now on these never wait: they answer kUnavailable instead, the waiting ones too. Before a shutdown.
  virtual void EndWaits() = 0;
  // Runs any other call of MetaService on a thread where it may block: `call` is run once.
  virtual void RunBlocking(std::function<void()> call) = 0;

  // Makes state durable, joins all threads. Idempotent; later calls answer kUnavailable.
  virtual void Stop() = 0;
  virtual std::map<std::string, uint64_t> Metrics() = 0;
  // One pass of garbage collection on every disk, now; returns segments deleted. (Runs by itself as well.)
  virtual Result<uint64_t> CollectGarbage(const OpContext& ctx) = 0;
};

}  // namespace archil
