#include "server/meta/ops/extents.h"

#include <algorithm>
#include <set>
#include <utility>

namespace archil {
namespace {

// `b` shows what follows `a` in the same place.
bool Continues(const StoredExtent& a, const StoredExtent& b) {
  if (a.kind != b.kind || a.end != b.begin) return false;
  switch (a.kind) {
    case ExtentKind::kZero: return true;
    case ExtentKind::kSegment: return a.segment == b.segment && a.segment_offset + (a.end - a.begin) == b.segment_offset;
    case ExtentKind::kInline:
      return a.bytes_offset == b.bytes_offset && a.bytes_serial == b.bytes_serial && a.skip + (a.end - a.begin) == b.skip;
  }
  return false;
}

StoredExtent TrimFront(StoredExtent e, uint32_t begin) {
  const uint32_t by = begin - e.begin;
  e.begin = begin;
  if (e.kind == ExtentKind::kSegment) e.segment_offset += by;
  if (e.kind == ExtentKind::kInline) e.skip += by;
  return e;
}

using BytesId = std::pair<uint64_t, uint64_t>;

std::set<BytesId> InlineOf(const std::vector<StoredExtent>& extents) {
  std::set<BytesId> out;
  for (const StoredExtent& e : extents) {
    if (e.kind == ExtentKind::kInline) out.emplace(e.bytes_offset, e.bytes_serial);
  }
  return out;
}

}  // namespace

void CutExtents(std::vector<StoredExtent>& extents, uint32_t begin, uint32_t end) {
  if (begin >= end) return;
  auto first = std::lower_bound(extents.begin(), extents.end(), begin, [](const StoredExtent& e, uint32_t v) { return e.end <= v; });
  auto last = first;
  StoredExtent keep[2];
  size_t kept = 0;
  for (; last != extents.end() && last->begin < end; ++last) {
    if (last->begin < begin) {
      keep[kept] = *last;
      keep[kept++].end = begin;
    }
    if (last->end > end) keep[kept++] = TrimFront(*last, end);
  }
  const auto at = extents.erase(first, last);
  extents.insert(at, keep, keep + kept);
}

void InsertExtent(std::vector<StoredExtent>& extents, const StoredExtent& extent) {
  auto it = std::lower_bound(extents.begin(), extents.end(), extent.begin, [](const StoredExtent& e, uint32_t v) { return e.begin < v; });
  it = extents.insert(it, extent);
  if (const auto next = std::next(it); next != extents.end() && Continues(*it, *next)) {
    it->end = next->end;
    it = std::prev(extents.erase(next));
  }
  if (it != extents.begin()) {
    const auto previous = std::prev(it);
    if (Continues(*previous, *it)) {
      previous->end = it->end;
      extents.erase(it);
    }
  }
}

void FillHoles(std::vector<StoredExtent>& extents, uint32_t begin, uint32_t end) {
  std::vector<StoredExtent> zeros;
  uint32_t at = begin;
  for (const StoredExtent& e : extents) {
    if (e.end <= at) continue;
    if (e.begin >= end) break;
    if (e.begin > at) zeros.push_back({.begin = at, .end = e.begin, .kind = ExtentKind::kZero});
    at = e.end;
  }
  if (at < end) zeros.push_back({.begin = at, .end = end, .kind = ExtentKind::kZero});
  for (const StoredExtent& z : zeros) InsertExtent(extents, z);
}

uint64_t AllocatedBytes(const std::vector<StoredExtent>& extents) {
  uint64_t sum = 0;
  for (const StoredExtent& e : extents) sum += e.end - e.begin;
  return sum;
}

Status ChunkEditor::Open(uint64_t chunk) {
  if (open_ && chunk == chunk_) return Ok();
  ARCHIL_RETURN_IF_ERROR(Close());
  ARCHIL_ASSIGN_OR_RETURN(auto raw, txn_.Get(ChunkKey(ino_, chunk)));
  before_.clear();
  if (raw) {
    ARCHIL_ASSIGN_OR_RETURN(ChunkRecord rec, DecodeChunk(*raw));
    before_ = std::move(rec.extents);
  }
  extents_ = before_;
  chunk_ = chunk;
  open_ = true;
  return Ok();
}

Status ChunkEditor::Close() {
  if (!open_) return Ok();
  open_ = false;
  if (extents_ == before_) return Ok();
  const std::set<BytesId> now = InlineOf(extents_);
  for (const auto& [offset, serial] : InlineOf(before_)) {
    if (!now.contains({offset, serial})) txn_.Delete(BytesKey(ino_, offset, serial));
  }
  removed_ += AllocatedBytes(before_);
  added_ += AllocatedBytes(extents_);
  if (extents_.empty()) {
    txn_.Delete(ChunkKey(ino_, chunk_));
  } else {
    txn_.Put(ChunkKey(ino_, chunk_), Encode(ChunkRecord{extents_}));
  }
  return Ok();
}

Status ChunkEditor::Account() {
  if (added_ == removed_) return Ok();
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, txn_.MutableInode(ino_));
  ARCHIL_ASSIGN_OR_RETURN(CountersRecord * counters, txn_.MutableCounters());
  if (inode == nullptr || inode->attr.allocated + added_ < removed_ || counters->bytes + added_ < removed_) {
    return Error(Code::kCorrupt, "allocated bytes do not add up");
  }
  inode->attr.allocated += added_ - removed_;
  counters->bytes += added_ - removed_;
  return Ok();
}

Status RemoveExtentsFrom(Txn& txn, InodeId ino, uint64_t offset) {
  return PunchExtents(txn, ino, offset, UINT64_MAX - offset);
}

Status PunchExtents(Txn& txn, InodeId ino, uint64_t offset, uint64_t length) {
  ARCHIL_ASSIGN_OR_RETURN(auto chunks, txn.List(ChunkPrefix(ino)));
  ChunkEditor editor(txn, ino);
  const uint64_t end = offset + length;
  for (const auto& [key, value] : chunks) {
    const uint64_t chunk = ChunkOfKey(key);
    const uint64_t base = chunk * kChunkSize;
    if (base >= end) break;
    if (base + kChunkSize <= offset) continue;
    const auto from = static_cast<uint32_t>(offset > base ? offset - base : 0);
    const auto to = static_cast<uint32_t>(std::min(end - base, kChunkSize));
    ARCHIL_RETURN_IF_ERROR(editor.Open(chunk));
    CutExtents(editor.extents(), from, to);
    ARCHIL_RETURN_IF_ERROR(editor.Close());
  }
  return editor.Account();
}

}  // namespace archil
