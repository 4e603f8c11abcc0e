// KvStore: the seam to an ordered key-value engine. Implementations: RocksDB (rocks_kv.cc) and a map in
// memory (mem_kv.cc); one contract suite holds for both. Keys compare as unsigned bytes.
//
// Durability: nothing is durable before Flush returns; after a crash the store holds what some Flush
// covered, or something newer, always a whole number of Write batches. The log makes up the rest.
// Thread safe; one writer at a time is enough for us (the strand).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace archil {

struct KvBatch {
  struct Entry {
    std::string key;
    std::optional<std::string> value;  // absent: delete
  };
  std::vector<Entry> entries;
  // Ranges [first, second) deleted before the entries are written.
  std::vector<std::pair<std::string, std::string>> delete_ranges;
};

// A consistent view, unmoved by later writes.
class KvView {
 public:
  virtual ~KvView() = default;
  // nullopt if absent.
  virtual Result<std::optional<std::string>> Get(std::string_view key) = 0;
  // Calls fn for keys in [begin, end) in order until it returns false. Empty `end`: no bound.
  virtual Status Scan(std::string_view begin, std::string_view end,
                      const std::function<bool(std::string_view key, std::string_view value)>& fn) = 0;
};

class KvStore : public KvView {
 public:
  // All of it or nothing, visible at once.
  virtual Status Write(const KvBatch& batch) = 0;
  virtual std::unique_ptr<KvView> Snapshot() = 0;
  // Everything written before is durable when this returns.
  virtual Status Flush() = 0;
  // Bytes written since the last Flush, roughly.
  virtual uint64_t UnflushedBytes() = 0;
};

std::unique_ptr<KvStore> NewMemKvStore();
// kCorrupt, kIo; kBusy if another process has it open.
Result<std::unique_ptr<KvStore>> OpenRocksKvStore(const std::string& dir);

}  // namespace archil
