// DataService: the plain C++ face of one data server. Implemented by the server (in-process) and by the gRPC
// stub (common/rpc); one contract suite holds for both. Blocking; thread safe.
//
// A segment is an append-only run of bytes with one writer, immutable below its acknowledged length (SEG-1).
#pragma once

#include <string>
#include <vector>

#include "common/api/context.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/result.h"

namespace archil {

struct DataServerInfo {
  uint32_t id = 0;
  std::string address;  // HOST:PORT
};

struct SegmentKey {
  DiskId disk;
  SegmentId segment;
  friend auto operator<=>(const SegmentKey&, const SegmentKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const SegmentKey& k) {
    return H::combine(std::move(h), k.disk, k.segment);
  }
};

enum class SegmentState : uint8_t {
  kOpen = 1,
  kSealed = 2,    // no more appends; complete on local disk
  kUploaded = 3,  // also an object; the local copy is cache
};

struct SegmentInfo {
  SegmentKey key;
  SegmentState state = SegmentState::kOpen;
  uint64_t length = 0;  // acknowledged bytes
  uint64_t token = 0;   // lowest fencing token that may append
};

class DataService {
 public:
  virtual ~DataService() = default;

  // Appends `bytes` (1 .. kMaxAppend) at `offset`, which must be the acknowledged length; the first append, at 0, creates the
  // segment. True success: the bytes are on stable storage. `checksum` is Checksum(bytes), verified before
  // anything is written (kCorrupt). Repeating an append whose bytes are already there is success
  // (same offset, length and checksum). kInvalid: wrong offset or length; kFenced: token below the segment's, or sealed;
  // kNoSpace: nothing was written.
  virtual Status Append(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset, const Buffer& bytes,
                        uint64_t checksum) = 0;
  // [offset, offset + length) below the acknowledged length, verified against the stored checksums; from local disk, else
  // from the object store. kInvalid outside, kNotFound for an unknown segment, kCorrupt when no good copy is left.
  virtual Result<Buffer> Read(const OpContext& ctx, SegmentKey key, uint64_t offset, uint64_t length) = 0;
  // No append with a lower token succeeds after this returns, also after a crash (SEG-2). The answer's length holds everything that was
  // acknowledged. Fencing an unknown segment creates it, empty and fenced.
  virtual Result<SegmentInfo> Fence(const OpContext& ctx, SegmentKey key, uint64_t token) = 0;
  // Ends appends at the acknowledged length; idempotent. Queued for upload. kNotFound for unknown.
  virtual Result<SegmentInfo> Seal(const OpContext& ctx, SegmentKey key, uint64_t token) = 0;
  virtual Result<SegmentInfo> Stat(const OpContext& ctx, SegmentKey key) = 0;
  // Removes local copy and object; absent is success.
  virtual Status Delete(const OpContext& ctx, SegmentKey key) = 0;
  virtual Result<std::vector<SegmentInfo>> List(const OpContext& ctx, DiskId disk) = 0;
};

// Connects to data servers by address. Returned objects live as long as the pool. Thread safe.
class DataServicePool {
 public:
  virtual ~DataServicePool() = default;
  virtual DataService& For(const DataServerInfo& server) = 0;
};

}  // namespace archil
