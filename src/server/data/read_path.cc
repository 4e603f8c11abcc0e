// Verified reads: whatever leaves here was checked against the checksums that its append left, whether it
// came from the local file or from the object.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/checksum.h"
#include "common/obs/log.h"
#include "server/data/data_server_impl.h"

namespace archil {
namespace {

constexpr uint64_t kReadSpan = 4ULL << 20;  // bytes of the file that are read at once
constexpr int kReplacedRetries = 3;         // a segment's file is replaced at most once or twice in its life

uint64_t EndOf(const FrameRef& f) { return uint64_t{f.offset} + f.length; }
uint64_t FileEndOf(const FrameRef& f) { return uint64_t{f.position} + kFrameHeaderSize + f.length; }

Status CheckFrame(std::string_view bytes, SegmentKey key, const FrameRef& ref) {
  ARCHIL_ASSIGN_OR_RETURN(const FrameHeader header, DecodeFrameHeader(bytes, key));
  const bool is_it = header.kind == FrameKind::kData && header.offset == ref.offset && header.length == ref.length;
  if (!is_it || Checksum(bytes.substr(kFrameHeaderSize, ref.length)) != header.checksum) {
    return Error(Code::kCorrupt, fmt::format("bytes {}..{} of segment {} fail their checksum", ref.offset, EndOf(ref),
                                             SegmentName(key)));
  }
  return Ok();
}

}  // namespace

// The frames that hold any byte of the range.
FrameIndex DataServerImpl::FramesOf(const FrameIndex& frames, uint64_t offset, uint64_t length) {
  const auto first = std::partition_point(frames.begin(), frames.end(),
                                          [offset](const FrameRef& f) { return EndOf(f) <= offset; });
  const auto last = std::partition_point(first, frames.end(),
                                         [end = offset + length](const FrameRef& f) { return f.offset < end; });
  return FrameIndex(first, last);
}

Result<std::string> DataServerImpl::ReadFrames(SegmentKey key, const FrameIndex& frames, uint64_t offset,
                                               uint64_t length, const RangeReader& piece) {
  const uint64_t end = offset + length;
  std::string out;
  out.reserve(length);
  for (size_t i = 0; i < frames.size();) {
    size_t j = i + 1;
    while (j < frames.size() && FileEndOf(frames[j]) - frames[i].position <= kReadSpan) ++j;
    const uint64_t span = FileEndOf(frames[j - 1]) - frames[i].position;
    ARCHIL_ASSIGN_OR_RETURN(const std::string bytes, piece(frames[i].position, span));
    if (bytes.size() != span) return Error(Code::kCorrupt, "segment " + SegmentName(key) + " is cut short");
    const uint64_t base = frames[i].position;
    for (; i < j; ++i) {
      const FrameRef& f = frames[i];
      const std::string_view frame =
          std::string_view(bytes).substr(f.position - base, kFrameHeaderSize + f.length);
      ARCHIL_RETURN_IF_ERROR(CheckFrame(frame, key, f));
      const uint64_t from = std::max<uint64_t>(offset, f.offset);
      const uint64_t to = std::min<uint64_t>(end, EndOf(f));
      if (from != offset + out.size() || to <= from) return Error(Code::kCorrupt, "the frames have a hole");
      out.append(frame.substr(kFrameHeaderSize + (from - f.offset), to - from));
    }
  }
  if (out.size() != length) {
    return Error(Code::kCorrupt, fmt::format("bytes {}..{} of segment {} are damaged", offset + out.size(), end,
                                             SegmentName(key)));
  }
  return out;
}

Result<std::shared_ptr<const FrameIndex>> DataServerImpl::LoadIndex(SegmentKey key, uint64_t file_size,
                                                                    const RangeReader& piece) {
  if (file_size < kSegmentTrailerSize || file_size > kMaxSegmentFile) {
    return Error(Code::kCorrupt, "segment " + SegmentName(key) + " has an impossible size");
  }
  ARCHIL_ASSIGN_OR_RETURN(const std::string tail, piece(file_size - kSegmentTrailerSize, kSegmentTrailerSize));
  ARCHIL_ASSIGN_OR_RETURN(const SegmentTrailer trailer, DecodeTrailer(tail, key, file_size));
  ARCHIL_ASSIGN_OR_RETURN(const std::string bytes, piece(trailer.index_position, trailer.index_size));
  ARCHIL_ASSIGN_OR_RETURN(FrameIndex index, DecodeIndex(bytes, key, trailer.index_position, trailer.length));
  return std::make_shared<const FrameIndex>(std::move(index));
}

// The open file of a segment, from the cache if it is there; with the index if the segment is sealed.
Result<std::shared_ptr<const OpenSegment>> DataServerImpl::OpenLocal(const SegmentPtr& segment) {
  const SegmentKey key = segment->key;
  bool writable = false;
  auto open = std::make_shared<OpenSegment>();
  uint64_t generation = 0;
  {
    MutexLock lock(mu_);
    if (auto cached = open_.Get(key); cached != nullptr && cached->file != nullptr) return cached;
    writable = segment->state == SegmentState::kOpen;
    generation = segment->generation;
    // Of a broken or damaged file what its frames said when it was open or recovered; it may have no index.
    if (!writable && !segment->frames.empty()) open->index = std::make_shared<const FrameIndex>(segment->frames);
  }
  ARCHIL_ASSIGN_OR_RETURN(std::unique_ptr<File> file,
                          env_.files.Open(SegmentPath(key), writable ? OpenMode::kReadWrite : OpenMode::kRead));
  open->file = std::move(file);
  if (!writable && open->index == nullptr) {
    ARCHIL_ASSIGN_OR_RETURN(const uint64_t size, open->file->Size());
    const RangeReader piece = [&open](uint64_t at, uint64_t n) { return open->file->Read(at, n); };
    auto index = LoadIndex(key, size, piece);
    if (!index.ok() && index.code() == Code::kCorrupt && size <= kMaxSegmentFile) {
      // The frames tell as much as the index.
      ARCHIL_ASSIGN_OR_RETURN(const std::string bytes, open->file->Read(0, size));
      Count("bad_indexes");
      index = std::make_shared<const FrameIndex>(ScanSegment(bytes, key).frames);
    }
    if (!index.ok()) return index.error();
    open->index = std::move(*index);
  }
  MutexLock lock(mu_);
  // Not if the segment was sealed, replaced or removed meanwhile: the next one opens what is there then.
  const bool still = segment->generation == generation && writable == (segment->state == SegmentState::kOpen);
  const auto it = segments_.find(key);
  if (still && it != segments_.end() && it->second == segment) open_.Put(key, open);
  return std::shared_ptr<const OpenSegment>(open);
}

Result<std::string> DataServerImpl::ReadLocal(const SegmentPtr& segment, uint64_t offset, uint64_t length) {
  for (int attempt = 0;; ++attempt) {
    uint64_t generation = 0;
    FrameIndex frames;
    bool live = false;
    {
      MutexLock lock(mu_);
      generation = segment->generation;
      live = segment->state == SegmentState::kOpen;
      if (live) frames = FramesOf(segment->frames, offset, length);
    }
    ARCHIL_ASSIGN_OR_RETURN(const std::shared_ptr<const OpenSegment> open, OpenLocal(segment));
    if (!live && open->index != nullptr) frames = FramesOf(*open->index, offset, length);
    const Result<std::string> bytes =
        ReadFrames(segment->key, frames, offset, length,
                   [&open](uint64_t at, uint64_t n) { return open->file->Read(at, n); });
    if (bytes.ok() || attempt == kReplacedRetries) return bytes;
    MutexLock lock(mu_);
    // Sealed or replaced between the look at its state and the read: what was read belongs to neither.
    if (segment->generation == generation && live == (segment->state == SegmentState::kOpen)) return bytes;
  }
}

Result<std::shared_ptr<const FrameIndex>> DataServerImpl::ObjectIndex(const OpContext& ctx,
                                                                      const SegmentPtr& segment) {
  const SegmentKey key = segment->key;
  uint64_t size = 0;
  {
    MutexLock lock(mu_);
    if (const auto cached = open_.Get(key); cached != nullptr && cached->index != nullptr) return cached->index;
    size = segment->file_size;
  }
  const RangeReader piece = [&](uint64_t at, uint64_t n) -> Result<std::string> {
    ARCHIL_ASSIGN_OR_RETURN(const Buffer bytes, env_.objects.Get(ctx, SegmentName(key), at, n));
    if (bytes.size() != n) return Error(Code::kCorrupt, "the object store gave a short range");
    return std::string(bytes.view());
  };
  ARCHIL_ASSIGN_OR_RETURN(std::shared_ptr<const FrameIndex> index, LoadIndex(key, size, piece));
  auto open = std::make_shared<OpenSegment>();
  open->index = index;
  MutexLock lock(mu_);
  const auto it = segments_.find(key);
  if (it != segments_.end() && it->second == segment && open_.Get(key) == nullptr) open_.Put(key, std::move(open));
  return index;
}

Result<std::string> DataServerImpl::ReadObject(const OpContext& ctx, const SegmentPtr& segment, uint64_t offset,
                                               uint64_t length) {
  const SegmentKey key = segment->key;
  const auto read = [&]() -> Result<std::string> {
    ARCHIL_ASSIGN_OR_RETURN(const std::shared_ptr<const FrameIndex> index, ObjectIndex(ctx, segment));
    return ReadFrames(key, FramesOf(*index, offset, length), offset, length,
                      [&](uint64_t at, uint64_t n) -> Result<std::string> {
                        ARCHIL_ASSIGN_OR_RETURN(const Buffer bytes, env_.objects.Get(ctx, SegmentName(key), at, n));
                        return std::string(bytes.view());
                      });
  };
  Result<std::string> bytes = read();
  Count("object_reads");
  // An object that is absent or shorter than it was made is damage, not an answer.
  if (bytes.code() == Code::kNotFound || bytes.code() == Code::kInvalid) {
    return Error(Code::kCorrupt, "the object of segment " + SegmentName(key) + " is gone or cut short");
  }
  return bytes;
}

// A local copy that turned out bad although the object is good: it was only cache.
void DataServerImpl::DropBadCopy(const SegmentPtr& segment) {
  {
    MutexLock lock(mu_);
    if (!segment->local || segment->state != SegmentState::kUploaded || segment->deleting) return;
    RemoveCached(segment);
    segment->local = false;
    open_.Drop(segment->key);
    ++counters_["bad_copies_dropped"];
  }
  (void)env_.files.Remove(SegmentPath(segment->key));
}

Result<Buffer> DataServerImpl::Read(const OpContext& ctx, SegmentKey key, uint64_t offset, uint64_t length) {
  SegmentPtr segment;
  bool local = false;
  bool uploaded = false;
  {
    MutexLock lock(mu_);
    if (stopping_) return Code::kUnavailable;
    segment = FindVisible(key);
    if (segment == nullptr || segment->deleting) return Error(Code::kNotFound, "no segment " + SegmentName(key));
    if (!segment->unusable.ok()) return segment->unusable.error();
    if (offset > segment->length || length > segment->length - offset) {
      return Error(Code::kInvalid, fmt::format("{} bytes at {} of segment {}, which has {}", length, offset,
                                               SegmentName(key), segment->length));
    }
    local = segment->local;
    uploaded = segment->state == SegmentState::kUploaded;
    if (local && uploaded) cached_.splice(cached_.end(), cached_, segment->lru);
    ++counters_["reads"];
    counters_["read_bytes"] += length;
  }
  if (length == 0) return Buffer();
  Result<std::string> bytes = Code::kCorrupt;
  if (local) {
    bytes = ReadLocal(segment, offset, length);
    if (bytes.ok()) return Buffer(std::move(*bytes));
    if (!uploaded) {  // it may have been uploaded and evicted since we looked
      MutexLock lock(mu_);
      uploaded = segment->state == SegmentState::kUploaded;
    }
    if (bytes.code() == Code::kCorrupt) {
      Count("corrupt_reads");
      LogError("local bytes are corrupt", {{"error", bytes.error().ToString()}, {"uploaded", uploaded}});
    }
  }
  if (!uploaded) {
    if (bytes.code() == Code::kNotFound) return Error(Code::kCorrupt, "the file of segment " + SegmentName(key) + " is gone");
    return bytes.error();
  }
  const bool copy_is_bad = local && bytes.code() == Code::kCorrupt;
  bytes = ReadObject(ctx, segment, offset, length);
  if (!bytes.ok()) return bytes.error();
  if (copy_is_bad) DropBadCopy(segment);
  return Buffer(std::move(*bytes));
}

}  // namespace archil
