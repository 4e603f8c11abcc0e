// DataServer: a store of segments on a local disk, uploaded to an object store once sealed.
// Contracts of the calls: common/api/data_service.h. Thread safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/api/data_service.h"
#include "common/env/faults.h"
#include "common/env/files.h"
#include "common/env/sched.h"
#include "server/object/object_store.h"

namespace archil {

struct DataServerEnv {
  Scheduler& scheduler;
  Files& files;
  ObjectStore& objects;
  Faults& faults;
};

struct DataServerConfig {
  std::string dir;
  uint64_t cache_limit_bytes = 8ULL << 30;  // local copies of uploaded segments kept
  uint64_t reserve_bytes = 1ULL << 30;      // appends answer kNoSpace when less than this is free on the disk
  absl::Duration upload_retry = absl::Seconds(1);
};

class DataServer : public DataService {
 public:
  // Recovers the directory: torn tails of open segments are cut at the last good append that may have been
  // acknowledged; sealed ones that were not uploaded are queued. kBusy if another process has the directory.
  static Result<std::unique_ptr<DataServer>> Open(const DataServerEnv& env, const DataServerConfig& config);

  // As Append; `done` runs once, on a thread of the server, and must not block. Only what the server does not even
  // queue is answered at once, on the caller's thread: kTryAgain (too much waits already), kUnavailable (stopped).
  virtual void AppendAsync(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset, const Buffer& bytes,
                           uint64_t checksum, std::function<void(Status)> done) = 0;
  // Returns when all sealed segments are uploaded (for tests and a clean stop), or kUnknown at the deadline.
  virtual Status DrainUploads(const OpContext& ctx) = 0;
  // Finishes what was accepted, then joins all threads. Idempotent; later calls answer kUnavailable.
  virtual void Stop() = 0;
  virtual std::map<std::string, uint64_t> Metrics() = 0;
};

}  // namespace archil
