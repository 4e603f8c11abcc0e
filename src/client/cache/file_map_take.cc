// FileMap: taking dirty bytes for upload, and where they went.
#include <cstring>

#include "client/cache/file_map.h"
#include "client/cache/file_map_block.h"
#include "common/base/check.h"

namespace archil {
namespace {

using Source = FilePiece::Source;

}  // namespace

DirtyRange FileMap::TakeRange(Range range, TakeId take) {
  SplitAt(range.begin);
  SplitAt(range.end);
  const uint64_t length = range.end - range.begin;
  auto it = pieces_.find(range.begin);
  Piece piece = it->second;
  piece.was_inline = piece.source == Source::kInline;
  piece.source = Source::kMemory;
  piece.take = take;
  const Block& block = *piece.block;
  if (piece.length == length && !block.wasteful()) {
    Erase(it);
    const Buffer data = Buffer::Alias(piece.block, {block.bytes.get() + piece.at, length});
    Enter(range.begin, std::move(piece));
    return {range.begin, data};
  }
  // Several pieces, or one in too large a block: one exact block, which map and uploader share.
  auto joined = std::make_shared<Block>(range.begin, length);
  for (; it != pieces_.end() && it->first < range.end; ++it) {
    const Piece& part = it->second;
    std::memcpy(joined->bytes.get() + (it->first - range.begin), part.block->bytes.get() + part.at, part.length);
  }
  joined->used = length;
  Cut(range.begin, range.end);
  piece.length = length;
  piece.at = 0;
  piece.block = joined;
  Enter(range.begin, std::move(piece));
  return {range.begin, Buffer::Alias(joined, {joined->bytes.get(), length})};
}

std::vector<DirtyRange> FileMap::TakeRanges(const std::vector<Range>& runs, TakeId take, uint64_t max_range) {
  ARCHIL_CHECK(take != 0 && max_range > 0);
  std::vector<DirtyRange> out;
  for (const Range& run : runs) {
    for (uint64_t at = run.begin; at < run.end;) {
      const uint64_t until = run.end - at > max_range ? at + max_range : run.end;
      out.push_back(TakeRange({at, until}, take));
      at = until;
    }
  }
  return out;
}

std::vector<DirtyRange> FileMap::Take(TakeId take, uint64_t max_range) {
  std::vector<Range> runs;
  for (const uint64_t offset : dirty_) {
    const uint64_t end = offset + pieces_.find(offset)->second.length;
    if (!runs.empty() && runs.back().end == offset) {
      runs.back().end = end;
    } else {
      runs.push_back({offset, end});
    }
  }
  return TakeRanges(runs, take, max_range);
}

std::vector<DirtyRange> FileMap::TakeInline(TakeId take, uint64_t max_range) {
  std::vector<Range> runs;
  for (const auto& [offset, piece] : pieces_) {
    if (piece.source != Source::kInline) continue;
    const uint64_t end = offset + piece.length;
    if (!runs.empty() && runs.back().end == offset) {
      runs.back().end = end;
    } else {
      runs.push_back({offset, end});
    }
  }
  return TakeRanges(runs, take, max_range);
}

void FileMap::Placed(TakeId take, const std::vector<Extent>& extents) {
  ARCHIL_CHECK(take != 0);
  for (const Extent& extent : extents) {
    const uint64_t end = EndOf(extent.offset, extent.length);
    SplitAt(extent.offset);
    SplitAt(end);
    std::vector<Range> ours;
    std::vector<std::shared_ptr<Block>> touched;
    for (auto it = pieces_.lower_bound(extent.offset); it != pieces_.end() && it->first < end; ++it) {
      if (it->second.source == Source::kMemory && it->second.take == take) {
        ours.push_back({it->first, it->first + it->second.length});
      }
    }
    for (const Range& range : ours) {
      auto it = pieces_.find(range.begin);
      Piece piece = it->second;
      if (extent.kind == ExtentKind::kInline) {
        Erase(it);
        piece.source = Source::kInline;
        piece.take = 0;
        piece.was_inline = false;
        Enter(range.begin, std::move(piece));
      } else {
        Erase(it);
        touched.push_back(std::move(piece.block));
        EnterExtent(extent, range.begin, range.end);
      }
    }
    for (const std::shared_ptr<Block>& block : touched) ShrinkIfWasteful(block);
    Merge(extent.offset, end);
  }
}

void FileMap::Untake(TakeId take) {
  ARCHIL_CHECK(take != 0);
  if (taken_bytes_ == 0) return;
  for (auto& [offset, piece] : pieces_) {
    if (piece.source != Source::kMemory || piece.take != take) continue;
    Unaccount(offset, piece);
    if (piece.was_inline) piece.source = Source::kInline;
    piece.was_inline = false;
    piece.take = 0;
    Account(offset, piece);
  }
  Merge(0, kFileEnd);
}

}  // namespace archil
