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

  BlockCache(Scheduler& scheduler, uint64_t limit_bytes);
  ~BlockCache();

  // The cached bytes of a block, which may be shorter than kBlock (a segment that was still growing).
  std::optional<Buffer> Get(SegmentId segment, uint64_t block);
  // Keeps the longer one if the block is there. Counts the bytes of `bytes` itself (a slice of a larger buffer is
  // copied, so that the limit is hard).
  void Put(SegmentId segment, uint64_t block, const Buffer& bytes);
  void Clear();
  uint64_t bytes() const;
  uint64_t limit_bytes() const;
  uint64_t hits() const;
  uint64_t misses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace archil
