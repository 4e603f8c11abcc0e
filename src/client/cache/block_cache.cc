#include "client/cache/block_cache.h"

#include <list>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace archil {

struct BlockCache::Impl {
  using Key = std::pair<SegmentId, uint64_t>;
  struct Entry {
    Key key;
    Buffer bytes;
  };
  using Lru = std::list<Entry>;  // most recently used first

  Impl(Scheduler& scheduler, uint64_t limit) : limit(limit), mu(scheduler) {}

  static uint64_t Charge(const Entry& entry) { return entry.bytes.size() + kEntryOverhead; }

  // Moves entries to `out` until the rest fits; they die there, without the lock.
  void EvictTo(Lru& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    while (bytes > limit) {
      auto last = std::prev(lru.end());
      bytes -= Charge(*last);
      index.erase(last->key);
      out.splice(out.end(), lru, last);
    }
  }

  const uint64_t limit;
  mutable Mutex mu;
  Lru lru ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<Key, Lru::iterator> index ABSL_GUARDED_BY(mu);
  uint64_t bytes ABSL_GUARDED_BY(mu) = 0;
  uint64_t hits ABSL_GUARDED_BY(mu) = 0;
  uint64_t misses ABSL_GUARDED_BY(mu) = 0;
};

BlockCache::BlockCache(Scheduler& scheduler, uint64_t limit_bytes)
    : impl_(std::make_unique<Impl>(scheduler, limit_bytes)) {}
BlockCache::~BlockCache() = default;

std::optional<Buffer> BlockCache::Get(SegmentId segment, uint64_t block) {
  MutexLock lock(impl_->mu);
  auto it = impl_->index.find({segment, block});
  if (it == impl_->index.end()) {
    ++impl_->misses;
    return std::nullopt;
  }
  ++impl_->hits;
  impl_->lru.splice(impl_->lru.begin(), impl_->lru, it->second);
  return it->second->bytes;
}

void BlockCache::Put(SegmentId segment, uint64_t block, const Buffer& bytes) {
  if (bytes.size() + kEntryOverhead > impl_->limit) return;
  Impl::Lru fresh;
  // Copied, because the buffer may be a slice of a whole reply.
  fresh.push_back({{segment, block}, Buffer::Copy(bytes.view())});
  Impl::Lru dead;
  MutexLock lock(impl_->mu);
  auto it = impl_->index.find({segment, block});
  if (it != impl_->index.end()) {
    impl_->lru.splice(impl_->lru.begin(), impl_->lru, it->second);
    if (it->second->bytes.size() >= bytes.size()) return;
    impl_->bytes += bytes.size() - it->second->bytes.size();
    std::swap(it->second->bytes, fresh.front().bytes);
  } else {
    impl_->bytes += Impl::Charge(fresh.front());
    impl_->index.emplace(fresh.front().key, fresh.begin());
    impl_->lru.splice(impl_->lru.begin(), fresh);
  }
  impl_->EvictTo(dead);
}

void BlockCache::Clear() {
  Impl::Lru dead;
  MutexLock lock(impl_->mu);
  dead.swap(impl_->lru);
  impl_->index.clear();
  impl_->bytes = 0;
}

uint64_t BlockCache::bytes() const {
  MutexLock lock(impl_->mu);
  return impl_->bytes;
}

uint64_t BlockCache::limit_bytes() const { return impl_->limit; }

uint64_t BlockCache::hits() const {
  MutexLock lock(impl_->mu);
  return impl_->hits;
}

uint64_t BlockCache::misses() const {
  MutexLock lock(impl_->mu);
  return impl_->misses;
}

}  // namespace archil
