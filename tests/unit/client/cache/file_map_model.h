// FileMapModel: a naive file map beside the real one. It keeps one state per cell and the truth of a simulated server
// with an ordered log (EXT-1: what is taken stands pending in it), drives both, and compares them completely.
//
// Cells: every byte near a chunk boundary is a cell of its own; the long stretches between are one cell each. All offsets used
// by a test are boundaries of cells.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/cache/file_map.h"

namespace archil {

class FileMapModel {
 public:
  // `near`: how many bytes on each side of a chunk boundary are cells. `seed` decides the server's first content.
  FileMapModel(bool born_here, uint64_t chunks, uint64_t near, uint64_t seed);

  size_t cells() const { return begins_.size() - 1; }
  uint64_t chunks() const { return chunks_; }
  const std::string& failure() const { return failure_; }  // empty: the two agree

  // Each drives the real map and the model; [first, last) are cells.
  void Write(size_t first, size_t last);
  void Truncate(size_t first);
  void Clear(size_t first, size_t last, ClearKind kind);  // ignored where the precondition of kAllocate does not hold
  void Fetch(uint64_t chunk);                             // the server answers now …
  void Load(uint64_t chunk);                              // … and the answer arrives; ignored if none is on its way
  void Take(uint64_t max_range);
  void TakeInline(uint64_t max_range);
  // Places one range of the oldest take (`all`: every one), as `kind`.
  void Place(ExtentKind kind, bool all);
  void Untake(bool newest);
  void Commit();     // the server applies what stands before the first pending op
  void DropClean();  // ignored unless every op is durable
  void KeepBuffers();  // as readers do; their bytes are checked for ever after

  // Compares everything that can be asked.
  void Check();
  // Loads what is missing and compares the whole file; then places and commits all and compares it to the server's truth.
  void Finish();

  uint64_t took() const { return took_; }
  uint64_t placed() const { return placed_; }
  uint64_t filled_around() const { return filled_around_; }  // loads of chunks partly changed here
  uint64_t dropped() const { return dropped_; }

 private:
  enum class Kind : uint8_t { kHole, kZero, kSegment, kInline, kMemory };
  struct State {
    Kind kind = Kind::kHole;
    uint32_t version = 0;  // names the bytes: the byte at p is Pattern(version, p)
    TakeId take = 0;
    bool was_inline = false;
    SegmentId segment;
    int64_t delta = 0;  // segment offset - file offset
    friend bool operator==(const State&, const State&) = default;
  };
  struct LogOp {
    enum class Verb : uint8_t { kExtents, kTruncate, kClear } verb = Verb::kExtents;
    TakeId take = 0;
    bool pending = false;
    std::map<size_t, State> extents;  // by cell
    size_t first = 0;
    size_t last = 0;
    ClearKind kind = ClearKind::kPunch;
  };
  struct TakenRange {
    size_t first = 0;
    size_t last = 0;
    std::vector<State> states;  // as placed they show these bytes
    Buffer data;
  };
  struct Noted {
    const char* verb;
    uint64_t a, b, c;
  };
  struct KeptBuffer {
    Buffer data;
    uint64_t offset;
    uint32_t version;
  };

  static char Pattern(uint32_t version, uint64_t offset) {
    return static_cast<char>(version * 167 + offset + (offset >> 8) * 31);
  }
  static std::string Bytes(uint32_t version, uint64_t begin, uint64_t end);
  bool Shows(std::string_view bytes, uint64_t offset, uint32_t version) const;

  uint64_t chunk_of(size_t cell) const { return begins_[cell] / kChunkSize; }
  size_t CellAt(uint64_t offset) const;
  bool ChunkKnown(uint64_t chunk) const { return chunk >= known_from_ || known_.contains(chunk); }
  bool Known(size_t cell) const { return touched_[cell] || ChunkKnown(chunk_of(cell)); }
  void Fail(std::string what);
  void Note(const char* verb, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) { history_.push_back({verb, a, b, c}); }
  std::vector<Extent> ExtentsOf(const std::vector<State>& states, uint64_t chunk) const;
  uint64_t UsableRange(uint64_t max_range, Kind kind) const;
  void NoteTaken(const std::vector<DirtyRange>& ranges, TakeId take, uint64_t max_range, Kind from);
  void PlaceRange(TakeId take, const TakenRange& range, ExtentKind kind);
  void Apply(const LogOp& op);
  void CheckRun(size_t first, size_t last);
  void CheckCell(size_t cell, const FilePiece& piece);
  void CheckCounters();
  void CheckMissing();
  void CheckSeek();

  const uint64_t chunks_;
  std::vector<uint64_t> begins_;  // of cells, and the end of the last
  FileMap map_;
  std::vector<State> here_;    // the truth as this mount sees it
  std::vector<State> server_;  // what is durable
  std::vector<bool> touched_;  // changed here while the chunk was unknown
  std::set<uint64_t> known_;
  uint64_t known_from_;
  std::deque<LogOp> log_;
  std::map<TakeId, std::vector<TakenRange>> takes_;  // not yet placed
  std::map<uint64_t, std::vector<State>> answers_;   // of the server, on their way, by chunk
  std::vector<KeptBuffer> kept_;
  uint32_t next_version_ = 1;
  TakeId next_take_ = 1;
  uint64_t next_segment_ = 1;
  uint64_t took_ = 0, placed_ = 0, filled_around_ = 0, dropped_ = 0;
  std::vector<Noted> history_;
  std::string failure_;
};

}  // namespace archil
