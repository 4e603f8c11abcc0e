// Extents of files, chunk by chunk. Attr.allocated and the branch's counters follow exactly; inline bytes that no
// extent refers to any more are deleted. Same error rules as op_env.h.
#pragma once

#include <cstdint>
#include <vector>

#include "server/meta/store/records.h"

namespace archil {

// Zeros that one op may allocate: bounds the records that it writes.
inline constexpr uint64_t kMaxZeroSpan = 1ULL << 40;

// --- one chunk's sorted list, pure
// Nothing is in [begin, end) any more; extents that cross a border are trimmed.
void CutExtents(std::vector<StoredExtent>& extents, uint32_t begin, uint32_t end);
// Adds an extent whose range is free, and joins it with neighbours that go on where it begins or ends.
void InsertExtent(std::vector<StoredExtent>& extents, const StoredExtent& extent);
// Zero extents for what is a hole in [begin, end).
void FillHoles(std::vector<StoredExtent>& extents, uint32_t begin, uint32_t end);
uint64_t AllocatedBytes(const std::vector<StoredExtent>& extents);

// Changes one chunk: Open, edit extents(), Close.
class ChunkEditor {
 public:
  ChunkEditor(Txn& txn, InodeId ino) : txn_(txn), ino_(ino) {}
  // Closes the chunk that was open.
  Status Open(uint64_t chunk);
  std::vector<StoredExtent>& extents() { return extents_; }
  // Writes the chunk back, deletes inline bytes that lost their last extent.
  Status Close();
  // Accounts what changed since construction to the inode and the branch. Once, after the last Close.
  Status Account();

 private:
  Txn& txn_;
  const InodeId ino_;
  bool open_ = false;
  uint64_t chunk_ = 0;
  std::vector<StoredExtent> before_;
  std::vector<StoredExtent> extents_;
  uint64_t added_ = 0;
  uint64_t removed_ = 0;
};

// Drops everything at or past `offset`.
Status RemoveExtentsFrom(Txn& txn, InodeId ino, uint64_t offset);
// Makes [offset, offset + length) a hole, touching only chunks that exist.
Status PunchExtents(Txn& txn, InodeId ino, uint64_t offset, uint64_t length);

}  // namespace archil
