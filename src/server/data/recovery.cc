// What Open makes of a directory after a stop or a crash.
//
// Files whose process was killed may hold more than was ever synced, so everything that is kept is synced before it counts as acknowledged.
#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "common/obs/log.h"
#include "server/data/data_server_impl.h"

namespace archil {
namespace {

// 16 hexadecimal digits, as SegmentName writes them.
bool ParseHex(std::string_view text, uint64_t* value) {
  if (text.size() != 16) return false;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), *value, 16);
  return ec == std::errc() && end == text.data() + text.size() && *value != 0;
}

}  // namespace

Status DataServerImpl::Recover() {
  // Names that a killed process made but did not sync.
  ARCHIL_RETURN_IF_ERROR(env_.files.SyncDir(config_.dir));
  ARCHIL_RETURN_IF_ERROR(env_.files.SyncDir(SegmentsDir()));
  ARCHIL_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.files.List(SegmentsDir()));
  for (const std::string& name : names) {
    uint64_t disk = 0;
    if (!ParseHex(name, &disk)) continue;
    ARCHIL_RETURN_IF_ERROR(RecoverDisk(DiskId(disk), JoinPath(SegmentsDir(), name)));
  }
  return Ok();
}

Status DataServerImpl::RecoverDisk(DiskId disk, const std::string& dir) {
  ARCHIL_RETURN_IF_ERROR(env_.files.SyncDir(dir));
  struct Seen {
    bool file = false;
    bool state = false;
  };
  std::map<SegmentKey, Seen> seen;
  ARCHIL_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.files.List(dir));
  for (const std::string& name : names) {
    if (name.ends_with(".tmp")) {
      ARCHIL_RETURN_IF_ERROR(env_.files.Remove(JoinPath(dir, name)));
      continue;
    }
    const std::string_view view = name;
    const size_t dot = std::min(view.find('.'), view.size());
    uint64_t segment = 0;
    if (!ParseHex(view.substr(0, dot), &segment)) continue;
    Seen& s = seen[{disk, SegmentId(segment)}];
    if (view.substr(dot) == ".seg") s.file = true;
    if (view.substr(dot) == ".state") s.state = true;
  }
  for (const auto& [key, s] : seen) {
    if (s.file || s.state) ARCHIL_RETURN_IF_ERROR(RecoverSegment(key, s.file, s.state));
  }
  return Ok();
}

Status DataServerImpl::RecoverSegment(SegmentKey key, bool has_file, bool has_state) {
  const auto segment = std::make_shared<Segment>(key);
  segment->visible = true;
  segment->local = has_file;
  bool drop = false;
  const Status status = RecoverFrom(segment, has_file, has_state, &drop);
  if (!status.ok()) {  // one bad segment does not keep the others from being served
    segment->unusable = status;
    segment->damaged = true;
    Count("unusable_found");
    LogError("segment cannot be used", {{"segment", SegmentName(key)}, {"error", status.error().ToString()}});
  } else if (drop) {
    Count("torn_creations");
    LogInfo("segment never acknowledged, removed", {{"segment", SegmentName(key)}});
    return RemoveFilesOf(key);
  }
  MutexLock lock(mu_);
  segments_[key] = segment;
  if (!status.ok()) return Ok();
  if (segment->state == SegmentState::kUploaded) AddCached(segment);
  if (segment->state == SegmentState::kSealed && !segment->damaged) QueueUpload(key);
  return Ok();
}

Status DataServerImpl::RecoverFrom(const SegmentPtr& segment, bool has_file, bool has_state, bool* drop) {
  const SegmentKey key = segment->key;
  Result<StateRecord> record = Code::kNotFound;
  if (has_state) {
    ARCHIL_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(env_.files, StatePath(key)));
    record = DecodeStateRecord(bytes, key);
    if (record.code() == Code::kNotSupported) return record.error();
    if (!record.ok()) Count("bad_state_records");
  }
  if (record.ok() && record->kind == StateRecord::Kind::kUploaded) return RecoverUploaded(segment, *record, has_file);
  if (has_file) return RecoverFile(segment, record.ok() ? &*record : nullptr, drop);
  return RecoverLostRecord(segment);
}

Status DataServerImpl::RecoverUploaded(const SegmentPtr& segment, const StateRecord& record, bool has_file) {
  segment->state = SegmentState::kUploaded;
  segment->length = record.length;
  segment->token = record.token;
  segment->file_size = record.object_size;
  if (!has_file) return Ok();
  // A local copy of another size is no copy. What is inside is checked by every read.
  const Result<FileInfo> info = env_.files.Stat(SegmentPath(segment->key));
  if (info.ok() && info->size == record.object_size) return Ok();
  segment->local = false;
  Count("bad_copies_dropped");
  return env_.files.Remove(SegmentPath(segment->key));
}

// Neither a file nor a readable record, only the name of one: the object says what the segment was.
Status DataServerImpl::RecoverLostRecord(const SegmentPtr& segment) {
  const SegmentKey key = segment->key;
  segment->state = SegmentState::kUploaded;
  const OpContext ctx;
  ARCHIL_ASSIGN_OR_RETURN(const ObjectInfo info, env_.objects.Head(ctx, SegmentName(key)));
  if (info.size < kSegmentTrailerSize) return Error(Code::kCorrupt, "object " + info.key + " is no segment");
  ARCHIL_ASSIGN_OR_RETURN(const Buffer tail, env_.objects.Get(ctx, info.key, info.size - kSegmentTrailerSize,
                                                              kSegmentTrailerSize));
  ARCHIL_ASSIGN_OR_RETURN(const SegmentTrailer trailer, DecodeTrailer(tail.view(), key, info.size));
  segment->length = trailer.length;
  segment->token = trailer.token;
  segment->file_size = info.size;
  const StateRecord record{StateRecord::Kind::kUploaded, trailer.length, trailer.token, info.size};
  return WriteFileAtomically(env_.files, StatePath(key), EncodeStateRecord(record, key));
}

// A file without an object. `broken`: its record, if a sync of it failed. `drop`: nothing was ever acknowledged.
Status DataServerImpl::RecoverFile(const SegmentPtr& segment, const StateRecord* broken, bool* drop) {
  const SegmentKey key = segment->key;
  ARCHIL_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, env_.files.Open(SegmentPath(key), OpenMode::kReadWrite));
  ARCHIL_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  if (size > kMaxSegmentFile) return Error(Code::kCorrupt, "file of segment " + SegmentName(key) + " is too long");
  const uint64_t tail_size = std::min<uint64_t>(size, kSegmentTrailerSize);
  ARCHIL_ASSIGN_OR_RETURN(const std::string tail, file->Read(size - tail_size, tail_size));
  const Result<SegmentTrailer> trailer = DecodeTrailer(tail, key, size);
  if (trailer.code() == Code::kNotSupported) return trailer.error();
  if (trailer.ok() && (broken == nullptr || trailer->length == broken->length)) {
    ARCHIL_RETURN_IF_ERROR(file->Sync());
    segment->state = SegmentState::kSealed;
    segment->length = trailer->length;
    segment->token = trailer->token;
    segment->file_size = size;
    segment->file_end = trailer->index_position;
    return Ok();
  }
  return RecoverFrames(segment, broken, *file, size, drop);
}

Status DataServerImpl::RecoverFrames(const SegmentPtr& segment, const StateRecord* broken, File& file, uint64_t size,
                                     bool* drop) {
  const SegmentKey key = segment->key;
  ARCHIL_ASSIGN_OR_RETURN(const std::string bytes, file.Read(0, size));
  if (const Status header = DecodeSegmentHeader(bytes, key); header.code() == Code::kNotSupported) return header;
  SegmentScan scan = ScanSegment(bytes, key);
  segment->frames = std::move(scan.frames);
  segment->length = scan.length;
  segment->token = scan.token;
  segment->file_end = scan.end;
  segment->file_size = size;
  if (scan.damaged) {  // nothing is cut; what can be verified is read
    Count("damaged_found");
    LogError("segment is damaged, kept as it is", {{"segment", SegmentName(key)}, {"length", scan.length}});
    segment->damaged = true;
    segment->state = SegmentState::kSealed;
  }
  if (broken != nullptr) {  // it ends at its acknowledged length, whatever else came through
    segment->state = SegmentState::kSealed;
    segment->broken = true;
    segment->end_recorded = true;
    segment->damaged |= segment->length < broken->length;
    segment->length = broken->length;
    segment->token = std::max(segment->token, broken->token);
    std::erase_if(segment->frames, [end = broken->length](const FrameRef& f) { return f.offset >= end; });
    return Ok();
  }
  if (scan.damaged) return Ok();
  if (scan.end == kSegmentHeaderSize) {
    *drop = true;
    return Ok();
  }
  if (!scan.header_ok) ARCHIL_RETURN_IF_ERROR(file.Write(0, EncodeSegmentHeader(key)));
  if (scan.sealing) return FinishSeal(segment, file);
  segment->zeroed_to = size;
  if (scan.torn) {
    Count("torn_tails");
    LogInfo("torn tail cut", {{"segment", SegmentName(key)}, {"length", scan.length}, {"file_end", scan.end}});
    ARCHIL_RETURN_IF_ERROR(file.Truncate(scan.end));
    segment->zeroed_to = scan.end;
  }
  // Also what is whole may be in the page cache only.
  return file.Sync();
}

// A seal was under way, or its trailer is damaged: either way the frames are all there and sealing is right.
Status DataServerImpl::FinishSeal(const SegmentPtr& segment, File& file) {
  Count("seals_finished");
  const std::string bytes =
      EncodeSegmentEnd(segment->frames, segment->file_end, segment->length, segment->token, segment->key);
  ARCHIL_RETURN_IF_ERROR(file.Write(segment->file_end, bytes));
  ARCHIL_RETURN_IF_ERROR(file.Truncate(segment->file_end + bytes.size()));
  ARCHIL_RETURN_IF_ERROR(file.Sync());
  segment->file_size = segment->file_end + bytes.size();
  segment->state = SegmentState::kSealed;
  segment->frames = {};
  return Ok();
}

}  // namespace archil
