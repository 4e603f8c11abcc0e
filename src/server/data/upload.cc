// The uploader: sealed segments become objects, broken ones are first made whole, and local copies of uploaded
// ones go, the least recently read first, when there are too many.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/api/types.h"
#include "common/base/checksum.h"
#include "common/obs/log.h"
#include "server/data/data_server_impl.h"

namespace archil {
namespace {

constexpr absl::Duration kMaxBackoff = absl::Minutes(1);

}  // namespace

void DataServerImpl::QueueUpload(SegmentKey key) {
  uploads_[key] = {env_.scheduler.clock().Boot(), config_.upload_retry};
  upload_cv_.Signal();
}

// The segment whose turn it is, marked as being uploaded. Null: the server stops.
SegmentPtr DataServerImpl::NextUpload() {
  while (!stopping_) {
    BootTime first = BootTime::Infinite();
    const BootTime now = env_.scheduler.clock().Boot();
    for (const auto& [key, pending] : uploads_) {
      const SegmentPtr& segment = segments_.at(key);
      if (segment->deleting || segment->in_batch) continue;  // who does that wakes us
      if (pending.not_before <= now) {
        segment->uploading = true;
        return segment;
      }
      first = std::min(first, pending.not_before);
    }
    upload_cv_.WaitUntil(mu_, first);
  }
  return nullptr;
}

void DataServerImpl::UploadLoop() {
  while (true) {
    SegmentPtr segment;
    {
      MutexLock lock(mu_);
      segment = NextUpload();
      if (segment == nullptr) return;
    }
    const Status status = Upload(segment);
    if (!status.ok()) {
      LogWarning("segment not uploaded", {{"segment", SegmentName(segment->key)}, {"error", status.error().ToString()}});
    }
    if (status.ok()) Evict();
    MutexLock lock(mu_);
    segment->uploading = false;
    PendingUpload& pending = uploads_[segment->key];
    if (status.ok() || segment->damaged) {
      uploads_.erase(segment->key);
    } else {
      ++counters_["upload_retries"];
      pending.not_before = env_.scheduler.clock().Boot() + pending.backoff;
      pending.backoff = std::min(pending.backoff * 2, kMaxBackoff);
    }
    idle_cv_.SignalAll();
  }
}

Status DataServerImpl::Upload(const SegmentPtr& segment) {
  bool broken = false;
  {
    MutexLock lock(mu_);
    broken = segment->broken;
  }
  const Status verified = broken ? Status(Code::kCorrupt) : VerifyLocal(segment);
  if (verified.code() == Code::kCorrupt) {
    ARCHIL_RETURN_IF_ERROR(Rebuild(segment));
  } else {
    ARCHIL_RETURN_IF_ERROR(verified);
  }
  const SegmentKey key = segment->key;
  ARCHIL_RETURN_IF_ERROR(env_.faults.Hit("data.upload.before_put"));
  ARCHIL_RETURN_IF_ERROR(env_.objects.PutFile(OpContext{}, SegmentName(key), SegmentPath(key)));
  ARCHIL_RETURN_IF_ERROR(env_.faults.Hit("data.upload.before_record"));
  StateRecord record;
  {
    MutexLock lock(mu_);
    record = {StateRecord::Kind::kUploaded, segment->length, segment->token, segment->file_size};
  }
  ARCHIL_RETURN_IF_ERROR(WriteFileAtomically(env_.files, StatePath(key), EncodeStateRecord(record, key)));
  ARCHIL_RETURN_IF_ERROR(env_.faults.Hit("data.upload.after_record"));
  MutexLock lock(mu_);
  segment->state = SegmentState::kUploaded;
  ++counters_["uploads"];
  counters_["upload_bytes"] += segment->file_size;
  AddCached(segment);
  return Ok();
}

// Every byte of a file is checked before an object is made of it that may outlive all other copies.
Status DataServerImpl::VerifyLocal(const SegmentPtr& segment) {
  const SegmentKey key = segment->key;
  const std::string path = SegmentPath(key);
  ARCHIL_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, env_.files.Open(path, OpenMode::kRead));
  uint64_t expected = 0;
  uint64_t length = 0;
  {
    MutexLock lock(mu_);
    expected = segment->file_size;
    length = segment->length;
  }
  ARCHIL_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  const Error damaged(Code::kCorrupt, "the file of segment " + SegmentName(key) + " is damaged");
  if (size != expected) return damaged;
  const RangeReader piece = [&file](uint64_t at, uint64_t n) { return file->Read(at, n); };
  ARCHIL_ASSIGN_OR_RETURN(const std::string header, piece(0, kSegmentHeaderSize));
  ARCHIL_ASSIGN_OR_RETURN(const std::shared_ptr<const FrameIndex> index, LoadIndex(key, size, piece));
  if (!DecodeSegmentHeader(header, key).ok()) return damaged;
  for (uint64_t offset = 0; offset < length; offset += kMaxAppend) {
    const uint64_t n = std::min<uint64_t>(kMaxAppend, length - offset);
    ARCHIL_ASSIGN_OR_RETURN(const std::string bytes,
                            ReadFrames(key, FramesOf(*index, offset, n), offset, n, piece));
  }
  return Ok();
}

// Puts a new, sealed file of the acknowledged bytes in the place of one whose sync failed or whose index is bad. If
// some of them are bad the segment is damaged and stays as it is: another replica may have good ones.
Status DataServerImpl::Rebuild(const SegmentPtr& segment) {
  const SegmentKey key = segment->key;
  uint64_t length = 0;
  uint64_t token = 0;
  {
    MutexLock lock(mu_);
    length = segment->length;
    token = segment->token;
  }
  std::string out = EncodeSegmentHeader(key);
  FrameIndex index;
  for (uint64_t offset = 0; offset < length;) {
    const uint64_t n = std::min<uint64_t>(kMaxFramePayload, length - offset);
    Result<std::string> payload = ReadLocal(segment, offset, n);
    if (payload.code() == Code::kCorrupt) {
      MutexLock lock(mu_);
      segment->damaged = true;
    }
    if (!payload.ok()) return payload.error();
    FrameHeader header;
    header.length = static_cast<uint32_t>(n);
    header.offset = offset;
    header.token = token;
    header.checksum = Checksum(*payload);
    index.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(out.size()), header.length});
    EncodeFrameHeader(header, key, &out);
    out += *payload;
    offset += n;
  }
  out += EncodeSegmentEnd(index, out.size(), length, token, key);
  ARCHIL_RETURN_IF_ERROR(WriteFileAtomically(env_.files, SegmentPath(key), out));
  {
    MutexLock lock(mu_);
    segment->broken = false;
    segment->file_size = out.size();
    ++segment->generation;
    segment->frames = {};
    open_.Drop(key);
    ++counters_["rebuilds"];
  }
  const Status removed = env_.files.Remove(StatePath(key));
  return removed.code() == Code::kNotFound ? Ok() : removed;
}

void DataServerImpl::AddCached(const SegmentPtr& segment) {
  if (!segment->local) return;
  segment->lru = cached_.insert(cached_.end(), segment->key);
  cached_bytes_ += segment->file_size;
}

void DataServerImpl::RemoveCached(const SegmentPtr& segment) {
  if (!segment->local || segment->state != SegmentState::kUploaded) return;
  cached_.erase(segment->lru);
  cached_bytes_ -= segment->file_size;
}

// Removes local copies down to the limit. A name that comes back after a crash is a good copy still.
void DataServerImpl::Evict() {
  while (true) {
    SegmentKey key;
    {
      MutexLock lock(mu_);
      if (cached_bytes_ <= config_.cache_limit_bytes || cached_.empty()) return;
      const SegmentPtr& segment = segments_.at(cached_.front());
      key = segment->key;
      RemoveCached(segment);
      segment->local = false;
      open_.Drop(key);
      ++counters_["evictions"];
    }
    if (!env_.files.Remove(SegmentPath(key)).ok()) Count("evictions_failed");
  }
}

Status DataServerImpl::DrainUploads(const OpContext& ctx) {
  MutexLock lock(mu_);
  while (!uploads_.empty()) {
    if (stopping_) return Code::kUnavailable;
    if (idle_cv_.WaitUntil(mu_, ctx.deadline)) {
      return Error(Code::kUnknown, fmt::format("{} segments are not uploaded yet", uploads_.size()));
    }
  }
  return Ok();
}

}  // namespace archil
