// Coordination: the small, strongly consistent store that decides who leads which disk and where its log is.
// Implementations: a local file (below), for `archild all`; etcd later. Thread safe; blocking.
//
// Every key has a version, +1 at each change, 0 while absent; a deleted and re-created key goes on counting from a
// higher version. A transaction compares versions and then puts and deletes, all or nothing.
// True success of Commit: durable, visible to every later call. On kUnknown or kIo it may have happened: read again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/env/files.h"
#include "common/env/sched.h"

namespace archil {

struct CoordEntry {
  std::string key;
  std::string value;
  uint64_t version = 0;
};

struct CoordTxn {
  struct Compare {
    std::string key;
    uint64_t version = 0;  // 0: the key is absent
  };
  std::vector<Compare> compares;
  std::vector<std::pair<std::string, std::string>> puts;
  std::vector<std::string> deletes;  // absent is fine
};

class Coordination {
 public:
  virtual ~Coordination() = default;
  virtual Result<std::optional<CoordEntry>> Get(const std::string& key) = 0;
  // In key order (bytes).
  virtual Result<std::vector<CoordEntry>> List(const std::string& prefix) = 0;
  // kBusy: a comparison failed, nothing was done.
  virtual Status Commit(const CoordTxn& txn) = 0;
};

// One file in `dir` (made if absent), replaced atomically by each transaction; one process at a time.
// kBusy if another process has it, kCorrupt if it is damaged.
Result<std::unique_ptr<Coordination>> OpenLocalCoordination(Scheduler& scheduler, Files& files, const std::string& dir);

}  // namespace archil
