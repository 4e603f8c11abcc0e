#include "client/cache/file_map.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "client/cache/file_map_block.h"
#include "common/base/check.h"

namespace archil {
namespace {

using Source = FilePiece::Source;

constexpr uint64_t kNoChunk = std::numeric_limits<uint64_t>::max();
// The block that continues a run of small writes is twice as large as the piece before, within these. So a run of n bytes
// makes about log n + n / kMaxReserve pieces and copies nothing.
constexpr uint64_t kMinReserve = 256;
constexpr uint64_t kMaxReserve = 1 << 20;

uint64_t ChunkOf(uint64_t offset) { return offset / kChunkSize; }

}  // namespace

FileMap::FileMap(bool born_here) : known_from_(born_here ? 0 : kNoChunk) {}
FileMap::~FileMap() = default;

size_t FileMap::memory_bytes() const {
  constexpr size_t kPerPiece = sizeof(Pieces::value_type) + sizeof(Block) + 64;
  return block_bytes_ + pieces_.size() * kPerPiece + known_.size() * sizeof(uint64_t);
}

// ---- pieces

void FileMap::Account(uint64_t offset, const Piece& piece) {
  const bool dirty = piece.source == Source::kMemory && piece.take == 0;
  if (dirty) dirty_.insert(offset);
  if (dirty) dirty_bytes_ += piece.length;
  if (piece.source == Source::kMemory && !dirty) taken_bytes_ += piece.length;
  if (piece.source == Source::kInline) inline_bytes_ += piece.length;
  if (piece.source != Source::kHole) allocated_bytes_ += piece.length;
  if (piece.block != nullptr) {
    if (piece.block->pieces++ == 0) block_bytes_ += piece.block->capacity;
    piece.block->live += piece.length;
  }
}

void FileMap::Unaccount(uint64_t offset, const Piece& piece) {
  const bool dirty = piece.source == Source::kMemory && piece.take == 0;
  if (dirty) dirty_.erase(offset);
  if (dirty) dirty_bytes_ -= piece.length;
  if (piece.source == Source::kMemory && !dirty) taken_bytes_ -= piece.length;
  if (piece.source == Source::kInline) inline_bytes_ -= piece.length;
  if (piece.source != Source::kHole) allocated_bytes_ -= piece.length;
  if (piece.block != nullptr) {
    if (--piece.block->pieces == 0) block_bytes_ -= piece.block->capacity;
    piece.block->live -= piece.length;
  }
}

void FileMap::Enter(uint64_t offset, Piece piece) {
  Account(offset, piece);
  pieces_.emplace(offset, std::move(piece));
}

FileMap::Pieces::iterator FileMap::Erase(Pieces::iterator it) {
  Unaccount(it->first, it->second);
  return pieces_.erase(it);
}

void FileMap::SplitAt(uint64_t offset) {
  auto it = pieces_.lower_bound(offset);
  if (it == pieces_.begin()) return;
  --it;
  const uint64_t begin = it->first;
  if (begin + it->second.length <= offset) return;
  Piece left = it->second;
  Piece right = it->second;
  Erase(it);
  left.length = offset - begin;
  right.length -= left.length;
  if (right.source == Source::kSegment || right.block != nullptr) right.at += left.length;
  Enter(begin, std::move(left));
  Enter(offset, std::move(right));
}

void FileMap::Cut(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  SplitAt(begin);
  SplitAt(end);
  std::vector<std::shared_ptr<Block>> touched;
  auto it = pieces_.lower_bound(begin);
  while (it != pieces_.end() && it->first < end) {
    std::shared_ptr<Block>& block = it->second.block;
    const bool seen = block == nullptr || (!touched.empty() && touched.back() == block);
    if (!seen) touched.push_back(block);
    it = Erase(it);
  }
  for (const std::shared_ptr<Block>& block : touched) ShrinkIfWasteful(block);
}

bool FileMap::Joins(const Piece& left, const Piece& right) {
  if (left.source != right.source || left.take != right.take || left.was_inline != right.was_inline) return false;
  switch (left.source) {
    case Source::kHole:
    case Source::kZero: return true;
    case Source::kSegment: return left.segment == right.segment && left.at + left.length == right.at;
    case Source::kMemory:
    case Source::kInline: return left.block == right.block && left.at + left.length == right.at;
  }
  return false;
}

void FileMap::Merge(uint64_t begin, uint64_t end) {
  auto it = pieces_.lower_bound(begin);
  if (it != pieces_.begin()) --it;
  while (it != pieces_.end() && it->first <= end) {
    auto next = std::next(it);
    if (next == pieces_.end()) return;
    if (it->first + it->second.length != next->first || !Joins(it->second, next->second)) {
      it = next;
      continue;
    }
    const uint64_t offset = it->first;
    Piece joined = it->second;
    joined.length += next->second.length;
    Unaccount(next->first, next->second);
    Unaccount(offset, it->second);
    Account(offset, joined);
    pieces_.erase(next);
    it = pieces_.find(offset);
    it->second = std::move(joined);
  }
}

std::vector<FileMap::Range> FileMap::Gaps(uint64_t begin, uint64_t end) const {
  std::vector<Range> gaps;
  auto it = pieces_.lower_bound(begin);
  if (it != pieces_.begin()) --it;
  uint64_t at = begin;
  for (; it != pieces_.end() && it->first < end; ++it) {
    if (it->first > at) gaps.push_back({at, it->first});
    at = std::max(at, it->first + it->second.length);
  }
  if (at < end) gaps.push_back({at, end});
  return gaps;
}

// ---- bytes in memory

void FileMap::EnterBytes(uint64_t offset, std::string_view data, size_t capacity, Piece like) {
  auto block = std::make_shared<Block>(offset, capacity);
  std::memcpy(block->bytes.get(), data.data(), data.size());
  block->used = data.size();
  like.length = data.size();
  like.at = 0;
  like.block = std::move(block);
  Enter(offset, std::move(like));
}

// Few live bytes must not keep a large block: what is left of it moves to blocks of its own. Each copied byte is paid for by
// one that went away or was reserved. Bytes of a block lie between its begin and begin + used.
void FileMap::ShrinkIfWasteful(const std::shared_ptr<Block>& block) {
  if (block->live == 0 || !block->wasteful()) return;
  const uint64_t end = block->begin + block->used;
  for (auto it = pieces_.lower_bound(block->begin); it != pieces_.end() && it->first < end; ++it) {
    Piece& piece = it->second;
    if (piece.block != block) continue;
    Unaccount(it->first, piece);
    auto own = std::make_shared<Block>(it->first, piece.length);
    std::memcpy(own->bytes.get(), block->bytes.get() + piece.at, piece.length);
    own->used = piece.length;
    piece.at = 0;
    piece.block = std::move(own);
    Account(it->first, piece);
  }
}

// Dirty bytes that no Buffer shares are changed where they are. Returns how many bytes of the front of `data` were done.
size_t FileMap::OverwriteInPlace(uint64_t offset, std::string_view data) {
  size_t done = 0;
  auto it = pieces_.upper_bound(offset);
  if (it == pieces_.begin()) return 0;
  for (--it; it != pieces_.end() && done < data.size(); ++it) {
    Piece& piece = it->second;
    const uint64_t at = offset + done;
    if (at < it->first || at >= it->first + piece.length) break;
    if (piece.source != Source::kMemory || piece.take != 0) break;
    if (static_cast<size_t>(piece.block.use_count()) != piece.block->pieces) break;
    // Nobody else holds the block. Giving up one more reference orders what its readers did before our change.
    { const std::shared_ptr<Block> order = piece.block; }
    const uint64_t skip = at - it->first;
    const size_t n = std::min<uint64_t>(piece.length - skip, data.size() - done);
    std::memcpy(piece.block->bytes.get() + piece.at + skip, data.data() + done, n);
    done += n;
  }
  return done;
}

// A dirty piece that ends at `offset` grows into the reserve of its block. Returns how many bytes of the front of `data` went
// there, and the length of the dirty piece that now ends where the rest begins (0: none).
size_t FileMap::AppendToPrevious(uint64_t offset, std::string_view data, uint64_t* previous_length) {
  *previous_length = 0;
  auto it = pieces_.lower_bound(offset);
  if (it == pieces_.begin()) return 0;
  --it;
  Piece& piece = it->second;
  if (it->first + piece.length != offset || piece.source != Source::kMemory || piece.take != 0) return 0;
  Block& block = *piece.block;
  size_t n = 0;
  if (piece.at + piece.length == block.used) {
    n = std::min(block.capacity - block.used, data.size());
    std::memcpy(block.bytes.get() + block.used, data.data(), n);
    block.used += n;
    block.live += n;
    piece.length += n;
    dirty_bytes_ += n;
    allocated_bytes_ += n;
  }
  *previous_length = piece.length;
  return n;
}

void FileMap::Write(uint64_t offset, std::string_view data) {
  ARCHIL_CHECK(offset < kFileEnd && data.size() <= kFileEnd - offset);
  const size_t changed = OverwriteInPlace(offset, data);
  offset += changed;
  data.remove_prefix(changed);
  if (data.empty()) return;

  Cut(offset, offset + data.size());
  uint64_t previous_length = 0;
  const size_t appended = AppendToPrevious(offset, data, &previous_length);
  offset += appended;
  data.remove_prefix(appended);
  if (data.empty()) return;

  uint64_t capacity = data.size();
  if (previous_length > 0) {
    capacity = std::max(capacity, std::clamp(previous_length * 2, kMinReserve, kMaxReserve));
  }
  EnterBytes(offset, data, capacity, {.source = Source::kMemory});
}

// ---- holes and zeros

void FileMap::Truncate(uint64_t size) {
  ARCHIL_CHECK(size < kFileEnd);
  Cut(size, kFileEnd);
  const uint64_t chunk = ChunkOf(size);
  const uint64_t within = size % kChunkSize;
  if (within != 0 && !ChunkKnown(chunk)) {
    Enter(size, {.length = kChunkSize - within, .source = Source::kHole});
    Merge(size, size);
  }
  known_from_ = std::min(known_from_, within == 0 ? chunk : chunk + 1);
  known_.erase(known_.lower_bound(known_from_), known_.end());
}

void FileMap::Clear(uint64_t offset, uint64_t length, ClearKind kind) {
  const uint64_t end = EndOf(offset, length);
  if (offset >= end) return;
  if (kind == ClearKind::kAllocate) {
    std::vector<Range> holes = Gaps(offset, end);
    for (const Range& gap : holes) ARCHIL_CHECK(!AnyUnknown(gap.begin, gap.end));
    SplitAt(offset);
    SplitAt(end);
    for (auto it = pieces_.lower_bound(offset); it != pieces_.end() && it->first < end;) {
      if (it->second.source != Source::kHole) {
        ++it;
        continue;
      }
      holes.push_back({it->first, it->first + it->second.length});
      it = Erase(it);
    }
    for (const Range& hole : holes) Enter(hole.begin, {.length = hole.end - hole.begin, .source = Source::kZero});
    Merge(offset, end);
    return;
  }
  Cut(offset, end);
  if (kind == ClearKind::kZero) {
    Enter(offset, {.length = end - offset, .source = Source::kZero});
  } else if (AnyUnknown(offset, end)) {
    Enter(offset, {.length = end - offset, .source = Source::kHole});
  }
  Merge(offset, end);
}

// ---- what the server has

bool FileMap::ChunkKnown(uint64_t chunk) const { return chunk >= known_from_ || known_.contains(chunk); }

bool FileMap::AnyUnknown(uint64_t begin, uint64_t end) const {
  uint64_t chunk = ChunkOf(begin);
  const uint64_t stop = std::min(ChunkOf(end - 1) + 1, known_from_);
  for (auto it = known_.lower_bound(chunk); chunk < stop && it != known_.end() && *it == chunk; ++it) ++chunk;
  return chunk < stop;
}

std::vector<uint64_t> FileMap::MissingChunks(uint64_t offset, uint64_t length) const {
  std::vector<uint64_t> missing;
  const uint64_t end = EndOf(offset, length);
  for (const Range& gap : Gaps(offset, end)) {
    const uint64_t stop = std::min(ChunkOf(gap.end - 1) + 1, known_from_);
    for (uint64_t chunk = ChunkOf(gap.begin); chunk < stop; ++chunk) {
      if (known_.contains(chunk)) continue;
      if (missing.empty() || missing.back() != chunk) missing.push_back(chunk);
    }
  }
  return missing;
}

uint64_t FileMap::Unallocated(uint64_t offset, uint64_t length) const {
  const uint64_t end = EndOf(offset, length);
  uint64_t allocated = 0;
  auto it = pieces_.upper_bound(offset);
  if (it != pieces_.begin()) --it;
  for (; it != pieces_.end() && it->first < end; ++it) {
    const uint64_t begin = std::max(offset, it->first);
    const uint64_t stop = std::min(end, it->first + it->second.length);
    if (it->second.source != FilePiece::Source::kHole && begin < stop) allocated += stop - begin;
  }
  return end - offset - allocated;
}

// The part of an extent that the vacant range shows.
void FileMap::EnterExtent(const Extent& extent, uint64_t begin, uint64_t end) {
  const uint64_t skip = begin - extent.offset;
  switch (extent.kind) {
    case ExtentKind::kZero: Enter(begin, {.length = end - begin, .source = Source::kZero}); return;
    case ExtentKind::kSegment:
      Enter(begin, {.length = end - begin,
                    .source = Source::kSegment,
                    .segment = extent.segment,
                    .at = extent.segment_offset + skip});
      return;
    case ExtentKind::kInline:
      // Copied: the buffer may be a slice of a whole reply.
      EnterBytes(begin, extent.data.view().substr(skip, end - begin), end - begin, {.source = Source::kInline});
      return;
  }
}

void FileMap::LoadChunk(uint64_t chunk, const std::vector<Extent>& extents) {
  if (ChunkKnown(chunk)) return;
  const uint64_t chunk_begin = chunk * kChunkSize;
  const uint64_t chunk_end = EndOf(chunk_begin, kChunkSize);
  for (const Extent& extent : extents) {
    const uint64_t begin = std::max(extent.offset, chunk_begin);
    uint64_t end = std::min(EndOf(std::min(extent.offset, kFileEnd), extent.length), chunk_end);
    if (extent.kind == ExtentKind::kInline) end = std::min(end, extent.offset + extent.data.size());
    if (begin >= end) continue;
    for (const Range& gap : Gaps(begin, end)) EnterExtent(extent, gap.begin, gap.end);
  }
  known_.insert(chunk);
  // Holes made here need no pieces any more.
  for (auto it = pieces_.lower_bound(chunk_begin); it != pieces_.end() && it->first < chunk_end;) {
    const bool inside = it->first + it->second.length <= chunk_end;
    it = it->second.source == Source::kHole && inside ? Erase(it) : std::next(it);
  }
  Merge(chunk_begin, chunk_end);
}

void FileMap::DropClean() {
  std::vector<Range> kept;  // whole chunks with memory, ascending
  for (const auto& [offset, piece] : pieces_) {
    if (piece.source != Source::kMemory) continue;
    const uint64_t begin = ChunkOf(offset) * kChunkSize;
    const uint64_t end = (ChunkOf(offset + piece.length - 1) + 1) * kChunkSize;
    if (!kept.empty() && begin <= kept.back().end) {
      kept.back().end = std::max(kept.back().end, end);
    } else {
      kept.push_back({begin, end});
    }
  }
  absl::btree_set<uint64_t> known;
  uint64_t at = 0;
  for (const Range& range : kept) {
    Cut(at, range.begin);
    at = range.end;
    for (uint64_t chunk = ChunkOf(range.begin); chunk < ChunkOf(range.end); ++chunk) {
      if (ChunkKnown(chunk)) known.insert(chunk);
    }
  }
  Cut(at, kFileEnd);
  known_ = std::move(known);
  known_from_ = kNoChunk;
}

// ---- reading

std::vector<FilePiece> FileMap::Read(uint64_t offset, uint64_t length) const {
  std::vector<FilePiece> out;
  const uint64_t end = EndOf(offset, length);
  uint64_t at = offset;
  auto hole = [&](uint64_t until) {
    if (at >= until) return;
    if (!out.empty() && out.back().source == Source::kHole) {
      out.back().length += until - at;
    } else {
      out.push_back({.offset = at, .length = until - at, .source = Source::kHole});
    }
    at = until;
  };
  auto gap = [&](uint64_t until) {
    ARCHIL_CHECK(at >= until || !AnyUnknown(at, until));
    hole(until);
  };
  auto it = pieces_.upper_bound(offset);
  if (it != pieces_.begin()) --it;
  for (; at < end && it != pieces_.end() && it->first < end; ++it) {
    const Piece& piece = it->second;
    const uint64_t piece_end = it->first + piece.length;
    if (piece_end <= at) continue;
    gap(it->first);
    const uint64_t until = std::min(end, piece_end);
    if (piece.source == Source::kHole) {
      hole(until);
      continue;
    }
    const uint64_t skip = at - it->first;
    FilePiece shown{.offset = at, .length = until - at, .source = piece.source, .take = piece.take};
    if (piece.source == Source::kSegment) {
      shown.segment = piece.segment;
      shown.segment_offset = piece.at + skip;
    } else if (piece.block != nullptr) {
      shown.data = Buffer::Alias(piece.block, {piece.block->bytes.get() + piece.at + skip, shown.length});
    }
    out.push_back(std::move(shown));
    at = until;
  }
  gap(end);
  return out;
}

std::optional<uint64_t> FileMap::SeekData(uint64_t offset, uint64_t size) const {
  if (offset >= size) return std::nullopt;
  uint64_t at = offset;
  auto it = pieces_.upper_bound(offset);
  if (it != pieces_.begin()) --it;
  for (; it != pieces_.end() && it->first < size; ++it) {
    const uint64_t piece_end = it->first + it->second.length;
    if (piece_end <= at) continue;
    ARCHIL_CHECK(at >= it->first || !AnyUnknown(at, it->first));
    at = std::max(at, it->first);
    if (it->second.source != Source::kHole) return at;
    at = piece_end;
  }
  ARCHIL_CHECK(at >= size || !AnyUnknown(at, size));
  return std::nullopt;
}

std::optional<uint64_t> FileMap::SeekHole(uint64_t offset, uint64_t size) const {
  uint64_t at = offset;
  auto it = pieces_.upper_bound(offset);
  if (it != pieces_.begin()) --it;
  for (; at < size && it != pieces_.end(); ++it) {
    const uint64_t piece_end = it->first + it->second.length;
    if (piece_end <= at) continue;
    if (it->first > at || it->second.source == Source::kHole) break;
    at = piece_end;
  }
  if (at >= size) return std::nullopt;
  return at;
}

}  // namespace archil
