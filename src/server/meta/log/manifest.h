// Manifest: where the log of a disk is; kept at the coordination. Every change is a transaction against the version that
// was read, so a leader that was overtaken cannot change it.
//
//   value = u8 version (1) ‖ varint epoch ‖ varint next segment ‖ varint count ‖ count × entry ‖ u64 checksum
//   entry = varint segment ‖ varint first lsn ‖ u8 closed ‖ varint end ‖ varint count ‖ count × varint server
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "server/coord/coordination.h"

namespace archil {

// Log segments have their own numbers, apart from the data segments of the disk.
inline constexpr uint64_t kLogSegmentBit = 1ULL << 63;

struct LogSegment {
  SegmentId segment;
  Lsn first;            // of the first record in it
  bool closed = false;  // its content is exactly [0, end)
  uint64_t end = 0;     // bytes, if closed
  std::vector<uint32_t> servers;
};

struct Manifest {
  uint64_t epoch = 0;  // of the leader; also the fencing token of its appends
  uint64_t next_segment = 1;
  std::vector<LogSegment> segments;  // in log order; only the last one may be open
};
std::string EncodeManifest(const Manifest& m);
Result<Manifest> DecodeManifest(std::string_view value);

// Not thread safe; one user.
class ManifestStore {
 public:
  ManifestStore(Coordination& coord, DiskId disk);
  // An empty manifest if there is none yet.
  Result<Manifest> Load();
  // kFenced if it was changed by another leader since; kUnknown if the outcome is open (Load again).
  Status Store(const Manifest& m);
  static std::string KeyOf(DiskId disk);

 private:
  Coordination& coord_;
  const std::string key_;
  uint64_t version_ = 0;
};

}  // namespace archil
