// FileMap: where every byte of one file is, as this mount sees it: one merged view of what the server has,
// what is on its way there, and what is dirty. Pure: no locks, clocks or I/O; the caller serialises.
//
// The file is divided in chunks (kChunkSize). A chunk is known when the map holds its whole truth; a map of a
// file that was born here is known everywhere. Writes may land on unknown chunks: what they cover is true at
// once, the rest of the chunk is filled in by LoadChunk, which never touches what was changed here since.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/api/ops.h"
#include "common/api/types.h"
#include "common/base/bytes.h"

namespace archil {

// Names one act of taking dirty bytes for upload; 0 is none, never reused in a mount.
using TakeId = uint64_t;

using ClearKind = ClearRangeOp::Kind;

struct FilePiece {
  enum class Source : uint8_t {
    kHole,     // reads as zeros, not allocated
    kZero,     // reads as zeros, allocated
    kMemory,   // `data`: dirty or taken, not yet at the server
    kSegment,  // (segment, segment_offset)
    kInline,   // `data`: in the bytes table at the server, and here
  };
  uint64_t offset = 0;
  uint64_t length = 0;
  Source source = Source::kHole;
  Buffer data;
  SegmentId segment;
  uint64_t segment_offset = 0;
  TakeId take = 0;  // kMemory: 0 dirty, else taken
};

struct DirtyRange {
  uint64_t offset = 0;
  Buffer data;
};

class FileMap {
 public:
  // `born_here`: a new, empty file; every chunk is known.
  explicit FileMap(bool born_here);

  // New bytes at `offset`, dirty. Small writes that follow the last one are merged so that the map stays small
  // (a sequential writer of 100-byte pieces makes few pieces; amortised cost per byte is constant).
  void Write(uint64_t offset, std::string_view data);
  // Nothing is at or past `size` any more, also in chunks that are unknown (they are holes past it).
  void Truncate(uint64_t size);
  // The range becomes a hole or allocated zeros; as ClearRangeOp::Kind. kAllocate changes holes only and needs every chunk of
  // the range known.
  void Clear(uint64_t offset, uint64_t length, ClearKind kind);

  bool ChunkKnown(uint64_t chunk) const;
  // Chunks touching the range that are unknown and not wholly covered by what is true here; ask for them before Read.
  std::vector<uint64_t> MissingChunks(uint64_t offset, uint64_t length) const;
  // What the server said of a chunk. Fills only what was not changed here.
  void LoadChunk(uint64_t chunk, const std::vector<Extent>& extents);
  // Pieces that cover the range without gaps, in order. Precondition: MissingChunks(range) is empty.
  std::vector<FilePiece> Read(uint64_t offset, uint64_t length) const;
  // The first offset >= `offset` and < `size` that is data (or a hole); nullopt if there is none. Allocated zeros count as data.
  // Precondition: chunks of [offset, size) are known.
  std::optional<uint64_t> SeekData(uint64_t offset, uint64_t size) const;
  std::optional<uint64_t> SeekHole(uint64_t offset, uint64_t size) const;

  // All dirty ranges (sorted, merged where they touch, at most `max_range` bytes each); they are taken under `take` now.
  // Later writes over them are dirty again.
  std::vector<DirtyRange> Take(TakeId take, uint64_t max_range);
  // As Take, for inline bytes at the server (compaction): they stay readable and are taken.
  std::vector<DirtyRange> TakeInline(TakeId take, uint64_t max_range);
  // Bytes taken under `take` are at `extents` now (durable, in the log or ready for it); what was changed since stays as it is.
  // Memory of kSegment extents is given up; kInline ones keep their bytes.
  void Placed(TakeId take, const std::vector<Extent>& extents);
  // The upload did not happen: bytes still taken under `take` are dirty again.
  void Untake(TakeId take);

  // Gives up what can be had again from the server: known chunks without bytes of ours, and inline bytes.
  void DropClean();

  uint64_t dirty_bytes() const { return dirty_bytes_; }    // not taken
  uint64_t taken_bytes() const { return taken_bytes_; }
  uint64_t inline_bytes() const { return inline_bytes_; }
  // Bytes held by pieces other than holes, in what is known.
  uint64_t allocated_bytes() const { return allocated_bytes_; }
  bool has_memory() const { return dirty_bytes_ + taken_bytes_ > 0; }
  size_t pieces() const { return pieces_.size(); }

 private:
  // The implementer decides; the fields below are what the accessors need.
  absl::btree_map<uint64_t, FilePiece> pieces_;  // by offset; non-overlapping
  bool born_here_;
  uint64_t dirty_bytes_ = 0;
  uint64_t taken_bytes_ = 0;
  uint64_t inline_bytes_ = 0;
  uint64_t allocated_bytes_ = 0;
};

}  // namespace archil
