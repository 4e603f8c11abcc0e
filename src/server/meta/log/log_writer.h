// LogWriter: appends records to the log of one disk, many per append (group commit). LOG-1: whoever answers from the state
// waits for WhenDurable first. Thread safe; records are submitted by one thread (the strand) in Lsn order.
//
// The next append starts as soon as the previous one returned, with all that came meanwhile. A segment is closed and the next
// one opened in one transaction of the manifest, before the first record of the new one is answered. When the log cannot be
// extended the writer fails for good: every waiter gets an error and `on_failed` runs once; the disk then steps down.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/api/data_service.h"
#include "common/env/faults.h"
#include "common/env/sched.h"
#include "server/meta/executor.h"
#include "server/meta/log/manifest.h"
#include "server/meta/meta_server.h"

namespace archil {

struct LogWriterEnv {
  Scheduler& scheduler;
  ThreadPool& pool;  // appends block one thread of it
  DataServerSet& data;
  Faults& faults;
};

struct LogWriterStats {
  uint64_t records = 0;
  uint64_t bytes = 0;
  uint64_t appends = 0;
  uint64_t rotations = 0;
};

class LogWriter {
 public:
  using Done = std::function<void(Status)>;
  struct Hooks {
    // Runs on a thread of the pool; must not block.
    std::function<void(const Error&)> on_failed;
    // A segment gets no more appends and may be sealed.
    std::function<void(const LogSegment&)> on_closed;
  };

  // `manifest` is the newest one, stored through `store`, of this leader; its last segment is open and empty.
  LogWriter(const LogWriterEnv& env, DiskId disk, ManifestStore store, Manifest manifest, Lsn durable, uint64_t segment_bytes,
            Hooks hooks);
  ~LogWriter();  // as Stop

  // `done` runs once, in Lsn order, on a thread of the pool: with success when the record is durable.
  void Submit(Lsn lsn, std::string frame, Done done);
  // `done` runs when everything submitted before is durable; at once, in the caller, if it is already.
  void WhenDurable(Done done);
  Lsn durable();
  LogWriterStats stats();
  // Bytes that were submitted since the last call.
  uint64_t TakeSubmittedBytes();
  // Fails what waits, returns when no append is running. Idempotent.
  void Stop();

 private:
  struct Item {
    Lsn lsn;
    std::string frame;  // empty: waits only
    Done done;
  };
  void StartPump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Pump();
  std::vector<Item> TakeBatch();
  void Fail(const Error& error, std::vector<Item> batch);
  Status AppendAll(const std::string& bytes, Lsn first);
  Status AppendHere(const std::string& bytes);
  Status Rotate(Lsn first);
  Status Backoff(int attempt);

  const LogWriterEnv env_;
  const DiskId disk_;
  const uint64_t segment_bytes_;
  const Hooks hooks_;

  // Used by the pump only, one at a time.
  ManifestStore store_;
  Manifest manifest_;
  uint64_t length_ = 0;  // of the open segment, whole durable records only
  uint64_t placed_ = 0;  // counts rotations, to go round the servers

  Mutex mu_;
  CondVar cv_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mu_);
  bool pumping_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<const Error> failed_ ABSL_GUARDED_BY(mu_);
  Lsn submitted_ ABSL_GUARDED_BY(mu_);
  Lsn durable_ ABSL_GUARDED_BY(mu_);
  uint64_t submitted_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  LogWriterStats stats_ ABSL_GUARDED_BY(mu_);
};

// A server for the next log segment, another one than `avoid` if there is any. kUnavailable if there is none at all.
Result<uint32_t> PickLogServer(DataServerSet& data, uint64_t turn, uint32_t avoid);

}  // namespace archil
