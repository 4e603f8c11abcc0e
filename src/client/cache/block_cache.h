// BlockCache: bytes of segments in memory, by (segment, block). Immutable content, so nothing is ever invalidated;
// a strict LRU by bytes. Thread safe (one short lock, nothing blocks under it).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/env/sched.h"

namespace archil {

class BlockCache {
 public:
  static constexpr uint64_t kBlock = 128 * 1024;
  // Charged against the limit for every block, beside its bytes.
  static constexpr uint64_t kEntryOverhead = 192;

  BlockCache(Scheduler& scheduler, uint64_t limit_bytes);
  ~BlockCache();

  // The cached bytes of a block, which may be shorter than kBlock (a segment that was still growing).
  std::optional<Buffer> Get(SegmentId segment, uint64_t block);
  // Keeps the longer one if the block is there. `bytes` is copied, so that a slice keeps no larger buffer alive and the limit is
  // hard; a block above the limit is not kept. The least recently used blocks go until the limit holds.
  void Put(SegmentId segment, uint64_t block, const Buffer& bytes);
  void Clear();
  uint64_t bytes() const;  // with overheads; never above the limit
  uint64_t limit_bytes() const;
  uint64_t hits() const;
  uint64_t misses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace archil
