#include "tests/unit/client/cache/file_map_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/env/random.h"

namespace archil {
namespace {

// Segments of different ranges never touch by accident: each range gets its own segment and an odd offset.
constexpr uint64_t kSegmentBase = 4096;

}  // namespace

FileMapModel::FileMapModel(bool born_here, uint64_t chunks, uint64_t near, uint64_t seed)
    : chunks_(chunks), map_(born_here), known_from_(born_here ? 0 : ~0ULL) {
  std::set<uint64_t> begins;
  for (uint64_t chunk = 0; chunk <= chunks; ++chunk) {
    const uint64_t boundary = chunk * kChunkSize;
    for (uint64_t i = 0; i <= near; ++i) {
      if (boundary >= i) begins.insert(boundary - i);
      if (boundary + i <= chunks * kChunkSize) begins.insert(boundary + i);
    }
  }
  begins_.assign(begins.begin(), begins.end());
  here_.resize(cells());
  touched_.resize(cells());
  if (!born_here) {
    auto random = SeededRandom(seed);
    for (size_t first = 0; first < cells();) {
      const size_t last = std::min<size_t>(cells(), first + 1 + random->Below(near + 1));
      State state{.kind = static_cast<Kind>(random->Below(4)), .version = next_version_++};
      if (state.kind == Kind::kSegment) {
        state.segment = SegmentId{next_segment_++};
        state.delta = static_cast<int64_t>(kSegmentBase + random->Below(1 << 20));
      }
      // A long stretch of inline bytes would be against the limits.
      for (size_t cell = first; cell < last; ++cell) {
        const bool is_long = begins_[cell + 1] - begins_[cell] > kMaxInlineBytes;
        here_[cell] = state;
        if (is_long && state.kind == Kind::kInline) here_[cell] = State{.kind = Kind::kZero};
        if (here_[cell].kind == Kind::kHole || here_[cell].kind == Kind::kZero) here_[cell].version = 0;
      }
      first = last;
    }
  }
  server_ = here_;
}

std::string FileMapModel::Bytes(uint32_t version, uint64_t begin, uint64_t end) {
  std::string bytes(end - begin, '\0');
  for (uint64_t p = begin; p < end; ++p) bytes[p - begin] = Pattern(version, p);
  return bytes;
}

// Long ranges are compared at some places only.
bool FileMapModel::Shows(std::string_view bytes, uint64_t offset, uint32_t version) const {
  const size_t step = bytes.size() > 4096 ? 509 : 1;
  for (size_t i = 0; i < bytes.size(); i += step) {
    if (bytes[i] != Pattern(version, offset + i)) return false;
  }
  return bytes.empty() || bytes.back() == Pattern(version, offset + bytes.size() - 1);
}

size_t FileMapModel::CellAt(uint64_t offset) const {
  return std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin() - 1;
}

void FileMapModel::Fail(std::string what) {
  if (!failure_.empty()) return;
  failure_ = what + "\nafter:";
  for (const Noted& n : history_) failure_ += fmt::format(" {}({}, {}, {});", n.verb, n.a, n.b, n.c);
}

// ---- changes

void FileMapModel::Write(size_t first, size_t last) {
  Note("Write", first, last);
  const uint32_t version = next_version_++;
  map_.Write(begins_[first], Bytes(version, begins_[first], begins_[last]));
  for (size_t cell = first; cell < last; ++cell) {
    here_[cell] = {.kind = Kind::kMemory, .version = version};
    touched_[cell] = true;
  }
}

void FileMapModel::Truncate(size_t first) {
  Note("Truncate", first);
  const uint64_t size = begins_[first];
  map_.Truncate(size);
  for (size_t cell = first; cell < cells(); ++cell) {
    here_[cell] = {};
    touched_[cell] = true;
  }
  known_from_ = std::min(known_from_, (size + kChunkSize - 1) / kChunkSize);
  log_.push_back({.verb = LogOp::Verb::kTruncate, .first = first, .last = cells()});
}

void FileMapModel::Clear(size_t first, size_t last, ClearKind kind) {
  if (kind == ClearKind::kAllocate) {
    for (size_t cell = first; cell < last; ++cell) {
      if (!Known(cell)) return;
    }
  }
  Note("Clear", first, last, static_cast<uint64_t>(kind));
  map_.Clear(begins_[first], begins_[last] - begins_[first], kind);
  for (size_t cell = first; cell < last; ++cell) {
    if (kind == ClearKind::kAllocate && here_[cell].kind != Kind::kHole) continue;
    here_[cell] = {.kind = kind == ClearKind::kPunch ? Kind::kHole : Kind::kZero};
    touched_[cell] = true;
  }
  log_.push_back({.verb = LogOp::Verb::kClear, .first = first, .last = last, .kind = kind});
}

// ---- the server

std::vector<Extent> FileMapModel::ExtentsOf(const std::vector<State>& states, uint64_t chunk) const {
  std::vector<Extent> extents;
  for (size_t cell = 0; cell < cells(); ++cell) {
    const State& state = states[cell];
    if (chunk_of(cell) != chunk || state.kind == Kind::kHole) continue;
    Extent extent{.offset = begins_[cell], .length = begins_[cell + 1] - begins_[cell]};
    if (state.kind == Kind::kZero) {
      extent.kind = ExtentKind::kZero;
    } else if (state.kind == Kind::kInline) {
      extent.kind = ExtentKind::kInline;
      extent.data = Buffer(Bytes(state.version, begins_[cell], begins_[cell + 1]));
    } else {
      extent.segment = state.segment;
      extent.segment_offset = begins_[cell] + state.delta;
    }
    extents.push_back(std::move(extent));
  }
  return extents;
}

void FileMapModel::Fetch(uint64_t chunk) {
  Note("Fetch", chunk);
  answers_[chunk] = server_;
}

void FileMapModel::Load(uint64_t chunk) {
  auto answer = answers_.find(chunk);
  if (answer == answers_.end()) return;
  Note("Load", chunk);
  map_.LoadChunk(chunk, ExtentsOf(answer->second, chunk));
  bool some_touched = false;
  for (size_t cell = 0; cell < cells(); ++cell) {
    if (chunk_of(cell) != chunk || ChunkKnown(chunk)) continue;
    if (touched_[cell]) some_touched = true;
    if (!touched_[cell] && !(here_[cell] == answer->second[cell])) Fail("the model is wrong: an untouched cell differs");
  }
  if (some_touched) ++filled_around_;
  known_.insert(chunk);
  answers_.erase(answer);
}

void FileMapModel::Apply(const LogOp& op) {
  if (op.verb == LogOp::Verb::kExtents) {
    for (const auto& [cell, state] : op.extents) server_[cell] = state;
    return;
  }
  for (size_t cell = op.first; cell < op.last; ++cell) {
    const bool zero = op.verb == LogOp::Verb::kClear && op.kind != ClearKind::kPunch;
    if (zero && op.kind == ClearKind::kAllocate && server_[cell].kind != Kind::kHole) continue;
    server_[cell] = {.kind = zero ? Kind::kZero : Kind::kHole};
  }
}

void FileMapModel::Commit() {
  Note("Commit");
  while (!log_.empty() && !log_.front().pending) {
    Apply(log_.front());
    log_.pop_front();
  }
}

void FileMapModel::DropClean() {
  if (!log_.empty()) return;
  Note("DropClean");
  ++dropped_;
  map_.DropClean();
  std::set<uint64_t> ours;
  for (size_t cell = 0; cell < cells(); ++cell) {
    if (here_[cell].kind == Kind::kMemory) ours.insert(chunk_of(cell));
  }
  std::set<uint64_t> known;
  for (const uint64_t chunk : ours) {
    if (ChunkKnown(chunk)) known.insert(chunk);
  }
  for (size_t cell = 0; cell < cells(); ++cell) {
    if (ours.contains(chunk_of(cell))) continue;
    touched_[cell] = false;
    if (!(here_[cell] == server_[cell])) Fail("the model is wrong: all is durable and the server differs");
  }
  known_ = std::move(known);
  known_from_ = ~0ULL;
  answers_.clear();  // older than the drop: the caller must not use them
}

// ---- uploads

void FileMapModel::NoteTaken(const std::vector<DirtyRange>& ranges, TakeId take, uint64_t max_range, Kind from) {
  std::vector<std::pair<uint64_t, uint64_t>> expected;
  for (size_t cell = 0; cell < cells(); ++cell) {
    if (here_[cell].kind != from || here_[cell].take != 0 || !Known(cell)) continue;
    const bool touches = !expected.empty() && expected.back().second == begins_[cell];
    if (touches) {
      expected.back().second = begins_[cell + 1];
    } else {
      expected.push_back({begins_[cell], begins_[cell + 1]});
    }
  }
  std::vector<std::pair<uint64_t, uint64_t>> split;
  for (auto [begin, end] : expected) {
    for (; begin < end; begin += max_range) split.push_back({begin, std::min(end, begin + max_range)});
  }
  std::vector<std::pair<uint64_t, uint64_t>> got;
  for (const DirtyRange& range : ranges) got.push_back({range.offset, range.offset + range.data.size()});
  if (got != split) Fail(fmt::format("take {} gave {} ranges, expected {}", take, got.size(), split.size()));
  if (!failure_.empty() || ranges.empty()) return;
  ++took_;
  log_.push_back({.take = take, .pending = true});
  for (const DirtyRange& range : ranges) {
    TakenRange taken{.first = CellAt(range.offset), .last = CellAt(range.offset + range.data.size()), .data = range.data};
    for (size_t cell = taken.first; cell < taken.last; ++cell) {
      const uint64_t skip = begins_[cell] - range.offset;
      const std::string_view bytes = range.data.view().substr(skip, begins_[cell + 1] - begins_[cell]);
      if (!Shows(bytes, begins_[cell], here_[cell].version)) Fail(fmt::format("wrong bytes taken in cell {}", cell));
      taken.states.push_back({.version = here_[cell].version});
      here_[cell] = {.kind = Kind::kMemory,
                     .version = here_[cell].version,
                     .take = take,
                     .was_inline = from == Kind::kInline};
    }
    takes_[take].push_back(std::move(taken));
  }
}

// Ranges end between cells: a long stretch is not cut into small ranges.
uint64_t FileMapModel::UsableRange(uint64_t max_range, Kind kind) const {
  for (size_t cell = 0; cell < cells(); ++cell) {
    if (here_[cell].kind == kind && begins_[cell + 1] - begins_[cell] > 1) return kMaxAppend;
  }
  return max_range;
}

void FileMapModel::Take(uint64_t max_range) {
  max_range = UsableRange(max_range, Kind::kMemory);
  Note("Take", max_range);
  const TakeId take = next_take_++;
  NoteTaken(map_.Take(take, max_range), take, max_range, Kind::kMemory);
}

void FileMapModel::TakeInline(uint64_t max_range) {
  max_range = UsableRange(max_range, Kind::kInline);
  Note("TakeInline", max_range);
  const TakeId take = next_take_++;
  NoteTaken(map_.TakeInline(take, max_range), take, max_range, Kind::kInline);
}

void FileMapModel::PlaceRange(TakeId take, const TakenRange& range, ExtentKind kind) {
  Extent extent{.offset = begins_[range.first], .length = begins_[range.last] - begins_[range.first], .kind = kind};
  if (kind == ExtentKind::kSegment) {
    extent.segment = SegmentId{next_segment_++};
    extent.segment_offset = kSegmentBase + extent.segment.value;
  } else {
    extent.data = range.data;
  }
  map_.Placed(take, {extent});
  ++placed_;
  auto op = std::find_if(log_.begin(), log_.end(), [&](const LogOp& o) { return o.take == take; });
  for (size_t cell = range.first; cell < range.last; ++cell) {
    State state = range.states[cell - range.first];
    state.kind = kind == ExtentKind::kSegment ? Kind::kSegment : Kind::kInline;
    if (kind == ExtentKind::kSegment) {
      state.segment = extent.segment;
      state.delta = static_cast<int64_t>(extent.segment_offset) - static_cast<int64_t>(extent.offset);
    }
    op->extents[cell] = state;
    if (here_[cell].kind == Kind::kMemory && here_[cell].take == take) here_[cell] = state;
  }
}

void FileMapModel::Place(ExtentKind kind, bool all) {
  if (takes_.empty()) return;
  Note("Place", static_cast<uint64_t>(kind), all);
  auto& [take, ranges] = *takes_.begin();
  while (!ranges.empty()) {
    PlaceRange(take, ranges.back(), kind);
    ranges.pop_back();
    if (!all) break;
  }
  if (!ranges.empty()) return;
  std::find_if(log_.begin(), log_.end(), [&](const LogOp& o) { return o.take == take; })->pending = false;
  takes_.erase(takes_.begin());
}

void FileMapModel::Untake(bool newest) {
  if (takes_.empty()) return;
  Note("Untake", newest);
  auto it = newest ? std::prev(takes_.end()) : takes_.begin();
  const TakeId take = it->first;
  map_.Untake(take);
  for (State& state : here_) {
    if (state.kind != Kind::kMemory || state.take != take) continue;
    if (state.was_inline) state.kind = Kind::kInline;
    state.was_inline = false;
    state.take = 0;
  }
  std::find_if(log_.begin(), log_.end(), [&](const LogOp& o) { return o.take == take; })->pending = false;
  takes_.erase(it);
}

// ---- comparing

void FileMapModel::KeepBuffers() {
  Note("KeepBuffers");
  for (size_t cell = 0; cell < cells(); ++cell) {
    const bool in_memory = here_[cell].kind == Kind::kMemory || here_[cell].kind == Kind::kInline;
    if (!in_memory || !Known(cell)) continue;
    const uint64_t begin = begins_[cell];
    for (FilePiece& piece : map_.Read(begin, begins_[cell + 1] - begin)) {
      kept_.push_back({piece.data, piece.offset, here_[cell].version});
    }
  }
  if (kept_.size() > 300) kept_.erase(kept_.begin(), kept_.begin() + 150);
}

void FileMapModel::CheckCell(size_t cell, const FilePiece& piece) {
  const State& state = here_[cell];
  const uint64_t begin = std::max(begins_[cell], piece.offset);
  const uint64_t end = std::min(begins_[cell + 1], piece.offset + piece.length);
  bool same = piece.take == state.take;
  switch (piece.source) {
    case FilePiece::Source::kHole: same = same && state.kind == Kind::kHole; break;
    case FilePiece::Source::kZero: same = same && state.kind == Kind::kZero; break;
    case FilePiece::Source::kSegment:
      same = same && state.kind == Kind::kSegment && state.segment == piece.segment &&
             static_cast<int64_t>(piece.segment_offset) - static_cast<int64_t>(piece.offset) == state.delta;
      break;
    case FilePiece::Source::kMemory:
    case FilePiece::Source::kInline: {
      const Kind kind = piece.source == FilePiece::Source::kMemory ? Kind::kMemory : Kind::kInline;
      same = same && state.kind == kind && piece.data.size() == piece.length &&
             Shows(piece.data.view().substr(begin - piece.offset, end - begin), begin, state.version);
      break;
    }
  }
  if (!same) {
    Fail(fmt::format("cell {} at {}: the map says source {} take {}, the model kind {} take {} version {}", cell, begin,
                     static_cast<int>(piece.source), piece.take, static_cast<int>(state.kind), state.take,
                     state.version));
  }
}

void FileMapModel::CheckRun(size_t first, size_t last) {
  uint64_t at = begins_[first];
  size_t cell = first;
  for (const FilePiece& piece : map_.Read(begins_[first], begins_[last] - begins_[first])) {
    if (piece.offset != at || piece.length == 0) Fail(fmt::format("pieces do not join at {}", at));
    at = piece.offset + piece.length;
    if (at > begins_[last]) Fail("pieces past the range");
    if (!failure_.empty()) return;
    while (cell < last && begins_[cell] < at) {
      CheckCell(cell, piece);
      if (begins_[cell + 1] > at) break;
      ++cell;
    }
  }
  if (at != begins_[last]) Fail("pieces end early");
}

void FileMapModel::CheckCounters() {
  uint64_t dirty = 0, taken = 0, in_line = 0, allocated = 0;
  for (size_t cell = 0; cell < cells(); ++cell) {
    if (!Known(cell)) continue;
    const State& state = here_[cell];
    const uint64_t length = begins_[cell + 1] - begins_[cell];
    if (state.kind == Kind::kMemory) (state.take == 0 ? dirty : taken) += length;
    if (state.kind == Kind::kInline) in_line += length;
    if (state.kind != Kind::kHole) allocated += length;
  }
  if (map_.dirty_bytes() != dirty) Fail(fmt::format("dirty_bytes {} != {}", map_.dirty_bytes(), dirty));
  if (map_.taken_bytes() != taken) Fail(fmt::format("taken_bytes {} != {}", map_.taken_bytes(), taken));
  if (map_.inline_bytes() != in_line) Fail(fmt::format("inline_bytes {} != {}", map_.inline_bytes(), in_line));
  if (map_.allocated_bytes() != allocated) Fail(fmt::format("allocated {} != {}", map_.allocated_bytes(), allocated));
  const uint64_t bound = 2 * (dirty + taken + in_line) + 1024 * (map_.pieces() + 1);
  // The reserve of a tail whose forerunners are gone comes on top.
  if (map_.memory_bytes() > bound + (2 << 20)) Fail(fmt::format("{} bytes of memory", map_.memory_bytes()));
}

void FileMapModel::CheckMissing() {
  for (uint64_t chunk = 0; chunk < chunks_ + 2; ++chunk) {
    if (map_.ChunkKnown(chunk) != ChunkKnown(chunk)) Fail(fmt::format("chunk {} known: {}", chunk, ChunkKnown(chunk)));
  }
  std::vector<uint64_t> missing;
  for (size_t cell = 0; cell < cells(); ++cell) {
    if (!Known(cell) && (missing.empty() || missing.back() != chunk_of(cell))) missing.push_back(chunk_of(cell));
  }
  if (map_.MissingChunks(0, chunks_ * kChunkSize) != missing) Fail("missing chunks differ");
}

void FileMapModel::CheckSeek() {
  std::optional<uint64_t> data, hole;
  const uint64_t size = chunks_ * kChunkSize;
  for (size_t cell = cells(); cell-- > 0;) {
    if (!Known(cell)) return;
    (here_[cell].kind == Kind::kHole ? hole : data) = begins_[cell];
    if (map_.SeekData(begins_[cell], size) != data) Fail(fmt::format("SeekData of cell {}", cell));
    if (map_.SeekHole(begins_[cell], size) != hole) Fail(fmt::format("SeekHole of cell {}", cell));
  }
}

void FileMapModel::Check() {
  if (!failure_.empty()) return;
  CheckMissing();
  CheckCounters();
  for (size_t first = 0; first < cells() && failure_.empty();) {
    size_t last = first;
    while (last < cells() && Known(last)) ++last;
    if (last > first) CheckRun(first, last);
    first = std::max(last, first + 1);
  }
  if (failure_.empty()) CheckSeek();
  for (const KeptBuffer& kept : kept_) {
    if (!Shows(kept.data.view(), kept.offset, kept.version)) Fail("bytes that were handed out have changed");
  }
}

void FileMapModel::Finish() {
  auto load_all = [&] {
    for (const uint64_t chunk : map_.MissingChunks(0, chunks_ * kChunkSize)) {
      Fetch(chunk);
      Load(chunk);
    }
    if (!map_.MissingChunks(0, chunks_ * kChunkSize).empty()) Fail("chunks stay missing after they were loaded");
    Check();
  };
  load_all();
  Take(kMaxAppend);
  while (failure_.empty() && !takes_.empty()) Place(ExtentKind::kSegment, true);
  Check();
  Commit();
  if (failure_.empty() && !log_.empty()) Fail("the log does not drain");
  if (failure_.empty() && map_.has_memory()) Fail("bytes stay in memory");
  for (size_t cell = 0; cell < cells() && failure_.empty(); ++cell) {
    if (!(server_[cell] == here_[cell])) Fail(fmt::format("the server's truth differs in cell {}", cell));
  }
  DropClean();
  if (failure_.empty() && map_.pieces() != 0) Fail("pieces stay after DropClean of a durable file");
  load_all();
}

}  // namespace archil
