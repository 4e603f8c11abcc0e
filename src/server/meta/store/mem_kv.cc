// KvStore in memory: an immutable map shared by snapshots, copied at the first write after one was taken.
#include <algorithm>
#include <map>

#include "absl/synchronization/mutex.h"
#include "common/env/sched.h"
#include "server/meta/store/kv_store.h"

namespace archil {
namespace {

using Map = std::map<std::string, std::string, std::less<>>;

Result<std::optional<std::string>> GetIn(const Map& map, std::string_view key) {
  const auto it = map.find(key);
  if (it == map.end()) return std::optional<std::string>();
  return std::optional<std::string>(it->second);
}

Status ScanIn(const Map& map, std::string_view begin, std::string_view end,
              const std::function<bool(std::string_view, std::string_view)>& fn) {
  for (auto it = map.lower_bound(begin); it != map.end(); ++it) {
    if (!end.empty() && std::string_view(it->first) >= end) break;
    if (!fn(it->first, it->second)) break;
  }
  return Ok();
}

class MemView final : public KvView {
 public:
  explicit MemView(std::shared_ptr<const Map> map) : map_(std::move(map)) {}
  Result<std::optional<std::string>> Get(std::string_view key) override { return GetIn(*map_, key); }
  Status Scan(std::string_view begin, std::string_view end,
              const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return ScanIn(*map_, begin, end, fn);
  }

 private:
  const std::shared_ptr<const Map> map_;  // owners: every snapshot of this state, and the store until it writes
};

class MemKvStore final : public KvStore {
 public:
  MemKvStore() : mu_(RealScheduler()), map_(std::make_shared<Map>()) {}

  Result<std::optional<std::string>> Get(std::string_view key) override {
    MutexLock lock(mu_);
    return GetIn(*map_, key);
  }

  // fn may call the store again.
  Status Scan(std::string_view begin, std::string_view end,
              const std::function<bool(std::string_view, std::string_view)>& fn) override {
    std::shared_ptr<const Map> map;
    {
      MutexLock lock(mu_);
      map = map_;
    }
    return ScanIn(*map, begin, end, fn);
  }

  Status Write(const KvBatch& batch) override {
    MutexLock lock(mu_);
    if (map_.use_count() > 1) map_ = std::make_shared<Map>(*map_);
    for (const auto& [begin, end] : batch.delete_ranges) {
      if (begin >= end) continue;
      map_->erase(map_->lower_bound(begin), map_->lower_bound(end));
    }
    for (const auto& e : batch.entries) {
      unflushed_ += e.key.size() + (e.value ? e.value->size() : 0);
      if (e.value) {
        map_->insert_or_assign(e.key, *e.value);
      } else {
        map_->erase(e.key);
      }
    }
    return Ok();
  }

  std::unique_ptr<KvView> Snapshot() override {
    MutexLock lock(mu_);
    return std::make_unique<MemView>(map_);
  }

  Status Flush() override {
    MutexLock lock(mu_);
    unflushed_ = 0;
    return Ok();
  }

  uint64_t UnflushedBytes() override {
    MutexLock lock(mu_);
    return unflushed_;
  }

 private:
  Mutex mu_;
  std::shared_ptr<Map> map_ ABSL_GUARDED_BY(mu_);
  uint64_t unflushed_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

std::unique_ptr<KvStore> NewMemKvStore() { return std::make_unique<MemKvStore>(); }

}  // namespace archil
