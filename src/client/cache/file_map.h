// FileMap: where every byte of one file is, as this mount sees it: one merged view of what the server has,
// what is on its way there, and what is dirty. Pure: no locks, clocks or I/O; the caller serialises.
//
// The file is divided in chunks (kChunkSize). A chunk is known when the map holds its whole truth; a map of a
// file that was born here is known everywhere. Writes may land on unknown chunks: what they cover is true at
// once, the rest of the chunk is filled in by LoadChunk, which never touches what was changed here since.
//
// Bytes handed out in a Buffer never change and may outlive the map and be read on any thread. Offsets and lengths
// are bytes and stay within kMaxFileSize; extents given to the map are valid in themselves (checked where they
// were decoded) and kInline ones hold their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
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
  FileMap(FileMap&&) = default;
  FileMap& operator=(FileMap&&) = default;
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;
  ~FileMap();

  // New bytes at `offset`, dirty. Small writes that follow the last one are merged so that the map stays small
  // (a sequential writer of 100-byte pieces makes few pieces; amortised cost per byte is constant).
  void Write(uint64_t offset, std::string_view data);
  // Nothing is at or past `size` any more, also in chunks that are unknown: they are known holes past it, and stay that when
  // the file grows again. On a new map it may tell what is known of the server's file: that it ends at `size`.
  void Truncate(uint64_t size);
  // The range becomes a hole or allocated zeros; as ClearRangeOp::Kind. kAllocate changes holes only and needs every chunk of
  // the range known.
  void Clear(uint64_t offset, uint64_t length, ClearKind kind);

  bool ChunkKnown(uint64_t chunk) const;
  // Unknown chunks of which some byte in the range is not covered by what is true here, ascending; ask for them before Read.
  std::vector<uint64_t> MissingChunks(uint64_t offset, uint64_t length) const;
  // What the server said of a chunk. Fills only what was not changed here; ignored for a known chunk. The chunk is known then.
  void LoadChunk(uint64_t chunk, const std::vector<Extent>& extents);
  // Pieces that cover the range without gaps, in order. Precondition: MissingChunks(range) is empty.
  std::vector<FilePiece> Read(uint64_t offset, uint64_t length) const;
  // The first offset >= `offset` and < `size` that is data (or a hole); nullopt if there is none. Allocated zeros count as data.
  // Precondition: chunks of [offset, size) are known.
  std::optional<uint64_t> SeekData(uint64_t offset, uint64_t size) const;
  std::optional<uint64_t> SeekHole(uint64_t offset, uint64_t size) const;

  // Bytes of the range that may be allocated when it is written: holes, and what is unknown.
  uint64_t Unallocated(uint64_t offset, uint64_t length) const;

  // All dirty ranges (sorted, merged where they touch, at most `max_range` bytes each); they are taken under `take` now.
  // Later writes over them are dirty again.
  std::vector<DirtyRange> Take(TakeId take, uint64_t max_range);
  // As Take, for inline bytes at the server (compaction): they stay readable and are taken. Untake gives
  // them back as inline, not as dirty.
  std::vector<DirtyRange> TakeInline(TakeId take, uint64_t max_range);
  // Bytes taken under `take` are at `extents` now (durable, in the log or ready for it); what was changed since stays as it is,
  // and so does what was taken and is in none of the extents (it stays taken: Placed may be called for one part after another).
  // Memory of kSegment extents is given up; kInline ones keep their bytes.
  void Placed(TakeId take, const std::vector<Extent>& extents);
  // The upload did not happen: bytes still taken under `take` are dirty again.
  void Untake(TakeId take);

  // Gives up what can be had again from the server: everything but the chunks that hold a dirty or taken byte, which stay as
  // they are. Inline bytes go with their chunk.
  // Precondition: every op of this inode that was logged is durable (SetExtents, ClearRange and size changes alike). The map
  // cannot know; called earlier, a later LoadChunk would bring back what a local change had replaced.
  void DropClean();

  uint64_t dirty_bytes() const { return dirty_bytes_; }    // not taken
  uint64_t taken_bytes() const { return taken_bytes_; }
  uint64_t inline_bytes() const { return inline_bytes_; }
  // Bytes held by pieces other than holes, in what is known.
  uint64_t allocated_bytes() const { return allocated_bytes_; }
  bool has_memory() const { return dirty_bytes_ + taken_bytes_ > 0; }
  size_t pieces() const { return pieces_.size(); }
  // Rough memory held: blocks of bytes, reserve included, and bookkeeping. At most about twice dirty + taken + inline bytes,
  // plus some 200 bytes a piece.
  size_t memory_bytes() const;

 private:
  struct Block;  // bytes of one or more pieces; see file_map_block.h
  struct Piece {
    uint64_t length = 0;
    FilePiece::Source source = FilePiece::Source::kHole;
    bool was_inline = false;  // taken by TakeInline
    TakeId take = 0;
    SegmentId segment;
    uint64_t at = 0;               // offset in the segment or block
    std::shared_ptr<Block> block;  // owners: pieces of this map, and Buffers handed out
  };
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  using Pieces = absl::btree_map<uint64_t, Piece>;

  // Bookkeeping of every piece that enters or leaves pieces_.
  void Enter(uint64_t offset, Piece piece);
  void Account(uint64_t offset, const Piece& piece);
  void Unaccount(uint64_t offset, const Piece& piece);
  Pieces::iterator Erase(Pieces::iterator it);
  // Makes `offset` a boundary between pieces.
  void SplitAt(uint64_t offset);
  // Removes what pieces show in the range.
  void Cut(uint64_t begin, uint64_t end);
  // Joins pieces in and next to the range that are one.
  void Merge(uint64_t begin, uint64_t end);
  static bool Joins(const Piece& left, const Piece& right);

  size_t OverwriteInPlace(uint64_t offset, std::string_view data);
  size_t AppendToPrevious(uint64_t offset, std::string_view data, uint64_t* previous_length);
  void EnterBytes(uint64_t offset, std::string_view data, size_t capacity, Piece like);
  void ShrinkIfWasteful(const std::shared_ptr<Block>& block);

  std::vector<Range> Gaps(uint64_t begin, uint64_t end) const;
  bool AnyUnknown(uint64_t begin, uint64_t end) const;
  void EnterExtent(const Extent& extent, uint64_t begin, uint64_t end);
  std::vector<DirtyRange> TakeRanges(const std::vector<Range>& runs, TakeId take, uint64_t max_range);
  DirtyRange TakeRange(Range range, TakeId take);

  // Non-overlapping, by offset. A gap is a hole in a known chunk and unknown in an unknown one; holes made here in unknown
  // chunks are pieces.
  Pieces pieces_;
  absl::btree_set<uint64_t> dirty_;   // offsets of dirty pieces
  absl::btree_set<uint64_t> known_;   // known chunks below known_from_
  uint64_t known_from_;               // every chunk from here on is known
  uint64_t dirty_bytes_ = 0;
  uint64_t taken_bytes_ = 0;
  uint64_t inline_bytes_ = 0;
  uint64_t allocated_bytes_ = 0;
  uint64_t block_bytes_ = 0;  // capacities of the blocks of pieces_
};

}  // namespace archil
