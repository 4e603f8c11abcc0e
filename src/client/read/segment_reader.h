// SegmentReader: bytes of segments, through the block cache, from the data servers. Content below a segment's
// acknowledged length never changes (SEG-1), so nothing here is ever invalidated. Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client/cache/block_cache.h"
#include "client/session/session.h"

namespace archil {

class SegmentReader {
 public:
  SegmentReader(const MountEnv& env, Session& session, BlockCache& cache);

  // Appends slices of cached blocks that hold [offset, offset + length) of the segment to `out`.
  // `neighbours`: also fetch what lies around it (up to 1 MiB), because files that were written together are read together.
  // kWouldBlock if ctx forbids waiting and something is not cached; kNotFound if the segment is gone.
  Status Read(const OpContext& ctx, SegmentId segment, uint64_t offset, uint64_t length, bool neighbours,
              std::vector<Buffer>& out);
  // Where a segment that this session writes is.
  void Learn(SegmentId segment, const DataServerInfo& server);
  // Bytes that were appended by this session: [offset, offset + bytes.size()) of the segment, which was complete below `offset`.
  void Wrote(SegmentId segment, uint64_t offset, const Buffer& bytes);

  uint64_t fetched_bytes() const { return fetched_bytes_.load(); }
  uint64_t fetches() const { return fetches_.load(); }

 private:
  struct Place {
    DataServerInfo server;
    uint64_t length = 0;  // known acknowledged length; may have grown since
  };
  Result<Place> Locate(const OpContext& ctx, SegmentId segment, uint64_t at_least);
  Result<Buffer> Fetch(const OpContext& ctx, SegmentId segment, uint64_t offset, uint64_t length, bool neighbours);

  MountEnv env_;
  Session& session_;
  BlockCache& cache_;
  std::atomic<uint64_t> fetched_bytes_{0};
  std::atomic<uint64_t> fetches_{0};
  Mutex mu_;
  absl::flat_hash_map<SegmentId, Place> places_ ABSL_GUARDED_BY(mu_);
};

}  // namespace archil
