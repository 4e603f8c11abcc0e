// The syncer: group commit. While one batch is being synced the next one gathers, so that a lone append waits for nothing
// and many share one fdatasync.
#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/base/checksum.h"
#include "common/obs/log.h"
#include "server/data/data_server_impl.h"

namespace archil {
namespace {

constexpr uint64_t kMaxBatchBytes = 32ULL << 20;
constexpr size_t kMaxBatchSegments = 128;  // each holds a descriptor until it is synced
// A small append into space that was written before needs no change of the file's size or extents, which
// makes its fdatasync two to three times cheaper than a growing one. So files that get small appends are filled with zeros ahead of them.
constexpr uint64_t kSmallBatch = 64 * 1024;
constexpr uint64_t kMinZeroAhead = 16 * 1024;  // as much as there is, between these: never more than doubles a file
constexpr uint64_t kMaxZeroAhead = 256 * 1024;

}  // namespace

void DataServerImpl::SyncLoop() {
  while (true) {
    std::deque<Request> requests;
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stopping_) queue_cv_.Wait(mu_);
      if (queue_.empty()) return;
      uint64_t bytes = 0;
      std::set<SegmentKey> touched;
      while (!queue_.empty() && bytes < kMaxBatchBytes) {
        if (touched.size() == kMaxBatchSegments && !touched.contains(queue_.front().key)) break;
        touched.insert(queue_.front().key);
        bytes += queue_.front().bytes.size();
        requests.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
      queued_bytes_ -= bytes;
      ++counters_["batches"];
    }
    RunBatch(std::move(requests));
  }
}

void DataServerImpl::AnswerAll(std::vector<Request> requests, const Result<SegmentInfo>& result) {
  for (Request& request : requests) request.done(result);
}

void DataServerImpl::RunBatch(std::deque<Request> requests) {
  uint64_t space = 0;
  if (const Result<uint64_t> free = env_.files.FreeBytes(config_.dir); free.ok()) {
    space = *free - std::min(*free, config_.reserve_bytes);
  }
  Batch batch;
  std::vector<Answer> answers;
  for (Request& request : requests) Decide(std::move(request), &space, &batch, &answers);
  for (Answer& answer : answers) answer.request.done(std::move(answer.result));

  for (auto& [key, work] : batch) {
    if (work.bytes.empty()) continue;
    const Status status = WriteWork(&work);
    if (!status.ok()) FinishWork(&work, UndoWrite(&work) ? status : Status(Code::kIo));
  }
  for (auto& [key, work] : batch) {
    if (!work.wrote) continue;
    const Status status = SyncWork(&work);
    if (status.ok()) {
      Publish(&work);
    } else {
      BreakSegment(&work, status.error());
    }
    // Durable, but the answer is lost on the way.
    const Status answered = status.ok() ? env_.faults.Hit("data.append.after_sync") : status;
    FinishWork(&work, answered.ok() || !status.ok() ? status : Status(Code::kUnknown));
  }
  for (auto& [key, work] : batch) {
    if (!work.seals.empty()) SealWork(&work);
  }
  MutexLock lock(mu_);
  for (auto& [key, work] : batch) {
    work.segment->in_batch = false;
    if (!work.segment->visible) Forget(work.segment);
  }
  idle_cv_.SignalAll();
  upload_cv_.Signal();
}

void DataServerImpl::FinishWork(Work* work, const Status& status) {
  std::vector<Request> writers = std::move(work->writers);
  work->writers.clear();
  if (!status.ok()) {
    AnswerAll(std::move(writers), status.error());
    return;
  }
  SegmentInfo info;
  {
    MutexLock lock(mu_);
    info = InfoOf(*work->segment);
  }
  AnswerAll(std::move(writers), info);
}

// The work of a request's segment, begun or made if need be. Null: the request is refused.
DataServerImpl::Work* DataServerImpl::WorkFor(const Request& request, Batch* batch, Status* refused) {
  if (const auto it = batch->find(request.key); it != batch->end()) return &it->second;
  MutexLock lock(mu_);
  SegmentPtr& slot = segments_[request.key];
  if (slot == nullptr) {
    const bool makes = request.kind == Request::Kind::kFence ||
                       (request.kind == Request::Kind::kAppend && request.offset == 0);
    if (!makes) {
      segments_.erase(request.key);
      *refused = request.kind == Request::Kind::kSeal
                     ? Error(Code::kNotFound, "no segment " + SegmentName(request.key))
                     : Error(Code::kInvalid, "no segment " + SegmentName(request.key) + ": its first append is at 0");
      return nullptr;
    }
    slot = std::make_shared<Segment>(request.key);
  }
  if (slot->deleting) {
    *refused = Error(Code::kTryAgain, "segment " + SegmentName(request.key) + " is being deleted");
    return nullptr;
  }
  if (!slot->unusable.ok()) {
    *refused = slot->unusable;
    return nullptr;
  }
  slot->in_batch = true;
  Work work;
  work.segment = slot;
  work.state = slot->state;
  work.broken = slot->broken;
  work.failed = slot->failed;
  work.length = slot->length;
  work.token = slot->token;
  return &batch->emplace(request.key, std::move(work)).first->second;
}

void DataServerImpl::Decide(Request request, uint64_t* space, Batch* batch, std::vector<Answer>* answers) {
  Status refused = request.refused;
  Work* work = refused.ok() ? WorkFor(request, batch, &refused) : nullptr;
  if (refused.ok() && request.token < work->token) {
    refused = Error(Code::kFenced, fmt::format("segment {} is fenced: token {} is below {}", SegmentName(request.key),
                                               request.token, work->token));
  }
  if (!refused.ok()) {
    answers->push_back({std::move(request), refused.error()});
    return;
  }
  switch (request.kind) {
    case Request::Kind::kAppend: return DecideAppend(std::move(request), work, space, answers);
    case Request::Kind::kFence: return DecideFence(std::move(request), work, answers);
    case Request::Kind::kSeal: return DecideSeal(std::move(request), work, answers);
  }
}

void DataServerImpl::DecideAppend(Request request, Work* work, uint64_t* space, std::vector<Answer>* answers) {
  const Segment& segment = *work->segment;
  const uint64_t end = request.offset + request.bytes.size();
  const auto refuse = [&](Error error) { answers->push_back({std::move(request), std::move(error)}); };
  if (end <= work->length) {
    const auto same = std::find_if(work->writers.begin(), work->writers.end(), [&request](const Request& r) {
      return r.kind == Request::Kind::kAppend && r.offset == request.offset && r.checksum == request.checksum &&
             r.bytes.size() == request.bytes.size();
    });
    if (same != work->writers.end()) {
      work->writers.push_back(std::move(request));
      return;
    }
    if (IsRepeat(request, *work)) {
      answers->push_back({std::move(request), SegmentInfo{segment.key, work->state, work->length, work->token}});
      return;
    }
  }
  if (work->failed) return refuse(Error(Code::kIo, "segment " + SegmentName(segment.key) + " is broken: take a new one"));
  if (work->state != SegmentState::kOpen || work->sealing) {
    return refuse(Error(Code::kFenced, "segment " + SegmentName(segment.key) + " is sealed"));
  }
  if (request.offset != work->length) {
    return refuse(Error(Code::kInvalid, fmt::format("append of {} bytes at {} to segment {}, which has {} bytes",
                                                    request.bytes.size(), request.offset, SegmentName(segment.key),
                                                    work->length)));
  }
  if (segment.frames.size() + work->frames.size() + request.frame_checksums.size() > kMaxSegmentFrames) {
    return refuse(Error(Code::kInvalid, "the segment has too many appends: seal it"));
  }
  const uint64_t cost = request.bytes.size() + request.frame_checksums.size() * kFrameHeaderSize + kSegmentHeaderSize;
  if (cost > *space) return refuse(Error(Code::kNoSpace, "the data server's disk is full"));
  *space -= cost;
  LayOut(request, work);
  work->writers.push_back(std::move(request));
}

void DataServerImpl::DecideFence(Request request, Work* work, std::vector<Answer>* answers) {
  const Segment& segment = *work->segment;
  if (work->sealing) {
    work->seals.push_back(std::move(request));  // sealed is fenced against everybody
  } else if (work->state != SegmentState::kOpen ||
             (work->bytes.empty() && segment.visible && request.token == segment.token)) {
    answers->push_back({std::move(request), SegmentInfo{segment.key, work->state, work->length, work->token}});
  } else {
    LayOut(request, work);
    work->writers.push_back(std::move(request));
  }
}

void DataServerImpl::DecideSeal(Request request, Work* work, std::vector<Answer>* answers) {
  if (work->state == SegmentState::kOpen) {
    work->sealing = true;
    work->seals.push_back(std::move(request));
    return;
  }
  const Segment& segment = *work->segment;
  if (work->broken && !segment.end_recorded && !RecordBroken(work->segment)) {
    answers->push_back({std::move(request), Error(Code::kIo, "the end of a broken segment cannot be recorded")});
    return;
  }
  answers->push_back({std::move(request), SegmentInfo{segment.key, work->state, work->length, work->token}});
}

// Are the bytes of this append, all below the acknowledged length, those that are there?
bool DataServerImpl::IsRepeat(const Request& request, const Work& work) {
  if (request.offset + request.bytes.size() > work.segment->length) return false;
  const Result<std::string> stored = ReadLocal(work.segment, request.offset, request.bytes.size());
  return stored.ok() && *stored == request.bytes.view();
}

// Turns a request into frames behind those that the work has.
void DataServerImpl::LayOut(const Request& request, Work* work) {
  const Segment& segment = *work->segment;
  if (segment.file_end == 0 && work->bytes.empty()) work->bytes = EncodeSegmentHeader(segment.key);
  work->token = request.token;
  FrameHeader header;
  header.token = request.token;
  header.synced = segment.file_end;
  header.offset = work->length;
  if (request.kind == Request::Kind::kFence) {
    header.kind = FrameKind::kFence;
    header.checksum = Checksum({});
    EncodeFrameHeader(header, segment.key, &work->bytes);
    return;
  }
  std::string_view bytes = request.bytes.view();
  for (const uint64_t checksum : request.frame_checksums) {
    const std::string_view payload = bytes.substr(0, kMaxFramePayload);
    bytes.remove_prefix(payload.size());
    header.ends_append = bytes.empty();
    header.length = static_cast<uint32_t>(payload.size());
    header.offset = work->length;
    header.checksum = checksum;
    work->frames.push_back({static_cast<uint32_t>(work->length), static_cast<uint32_t>(work->end(segment.file_end)),
                            header.length});
    EncodeFrameHeader(header, segment.key, &work->bytes);
    work->bytes.append(payload);
    work->length += payload.size();
  }
}

Status DataServerImpl::WriteWork(Work* work) {
  Segment& segment = *work->segment;
  ARCHIL_RETURN_IF_ERROR(env_.faults.Hit("data.append.before_write"));
  if (segment.file_end == 0) {
    const std::string path = SegmentPath(segment.key);
    ARCHIL_RETURN_IF_ERROR(env_.files.MakeDirs(DirName(path)));
    work->created = true;
    ARCHIL_ASSIGN_OR_RETURN(std::unique_ptr<File> file, env_.files.Open(path, OpenMode::kCreateOrOpen));
    ARCHIL_RETURN_IF_ERROR(file->Truncate(0));  // what an earlier attempt left
    work->file = std::move(file);
    auto open = std::make_shared<OpenSegment>();
    open->file = work->file;
    MutexLock lock(mu_);
    open_.Put(segment.key, std::move(open));
  } else {
    ARCHIL_ASSIGN_OR_RETURN(const std::shared_ptr<const OpenSegment> open, OpenLocal(work->segment));
    work->file = open->file;
  }
  work->wrote = true;
  const uint64_t end = work->end(segment.file_end);
  if (!work->created && work->bytes.size() < kSmallBatch && end > segment.zeroed_to && !work->sealing) {
    const uint64_t zeros = std::clamp(segment.file_end, kMinZeroAhead, kMaxZeroAhead);
    std::string bytes = work->bytes;
    bytes.resize(bytes.size() + zeros);
    const Status written = work->file->Write(segment.file_end, bytes);
    if (written.ok()) {
      segment.zeroed_to = end + zeros;
      return env_.faults.Hit("data.append.after_write");
    }
    if (written.code() != Code::kNoSpace) return written;
  }
  ARCHIL_RETURN_IF_ERROR(work->file->Write(segment.file_end, work->bytes));
  segment.zeroed_to = std::max(segment.zeroed_to, end);
  return env_.faults.Hit("data.append.after_write");
}

// After a write that failed: the file becomes again what it was, durably, for nothing of what was refused
// may come to light later. False: that failed as well, and the segment is broken.
bool DataServerImpl::UndoWrite(Work* work) {
  Segment& segment = *work->segment;
  const bool wrote = std::exchange(work->wrote, false);
  if (work->created) return RemoveNewFile(segment.key);
  if (!wrote) return true;
  Status undone = work->file->Truncate(segment.file_end);
  if (undone.ok()) undone = work->file->Sync();
  segment.zeroed_to = segment.file_end;
  if (!undone.ok()) BreakSegment(work, undone.error());
  return undone.ok();
}

bool DataServerImpl::RemoveNewFile(SegmentKey key) {
  {
    MutexLock lock(mu_);
    open_.Drop(key);
  }
  const Status removed = env_.files.Remove(SegmentPath(key));
  if (removed.code() == Code::kNotFound) return true;
  return removed.ok() && env_.files.SyncDir(DirName(SegmentPath(key))).ok();
}

Status DataServerImpl::SyncWork(Work* work) {
  ARCHIL_RETURN_IF_ERROR(env_.faults.Hit("data.append.before_sync"));
  ARCHIL_RETURN_IF_ERROR(work->file->Sync());
  if (!work->created) return Ok();
  return env_.files.SyncDir(DirName(SegmentPath(work->segment->key)));
}

// The batch is on stable storage: SEG-1 holds for it from here on, and SEG-2 for its fences.
void DataServerImpl::Publish(Work* work) {
  MutexLock lock(mu_);
  Segment& segment = *work->segment;
  counters_["append_bytes"] += work->length - segment.length;
  counters_["appends"] += work->writers.size();
  ++counters_["syncs"];
  segment.length = work->length;
  segment.token = work->token;
  segment.file_end = work->end(segment.file_end);
  segment.frames.insert(segment.frames.end(), work->frames.begin(), work->frames.end());
  segment.visible = true;
  segment.local = true;
  work->bytes.clear();
}

// A sync failed: the kernel may have dropped what it had not written, and a later sync would not tell. So the
// segment ends at its acknowledged length; a record beside the file keeps that over a restart, if it can be written.
void DataServerImpl::BreakSegment(Work* work, const Error& why) {
  const SegmentPtr& segment = work->segment;
  work->wrote = false;
  Count("sync_failures");
  LogError("segment broken: it ends at its acknowledged length",
           {{"segment", SegmentName(segment->key)}, {"length", segment->length}, {"error", why.ToString()}});
  if (!segment->visible) {  // nothing of it was ever acknowledged
    (void)RemoveNewFile(segment->key);
    return;
  }
  {
    MutexLock lock(mu_);
    open_.Drop(segment->key);
    segment->broken = true;
    segment->failed = true;
    segment->state = SegmentState::kSealed;
  }
  (void)RecordBroken(segment);
  MutexLock lock(mu_);
  QueueUpload(segment->key);
}

bool DataServerImpl::RecordBroken(const SegmentPtr& segment) {
  const StateRecord record{StateRecord::Kind::kBroken, segment->length, segment->token, 0};
  segment->end_recorded =
      WriteFileAtomically(env_.files, StatePath(segment->key), EncodeStateRecord(record, segment->key)).ok();
  if (!segment->end_recorded) Count("broken_records_not_written");
  return segment->end_recorded;
}

Status DataServerImpl::WriteSeal(Work* work) {
  Segment& segment = *work->segment;
  ARCHIL_RETURN_IF_ERROR(env_.faults.Hit("data.seal.before_trailer"));
  ARCHIL_ASSIGN_OR_RETURN(const std::shared_ptr<const OpenSegment> open, OpenLocal(work->segment));
  const std::string bytes =
      EncodeSegmentEnd(segment.frames, segment.file_end, segment.length, segment.token, segment.key);
  ARCHIL_RETURN_IF_ERROR(open->file->Write(segment.file_end, bytes));
  ARCHIL_RETURN_IF_ERROR(open->file->Truncate(segment.file_end + bytes.size()));
  ARCHIL_RETURN_IF_ERROR(open->file->Sync());
  ARCHIL_RETURN_IF_ERROR(env_.faults.Hit("data.seal.after_trailer"));
  MutexLock lock(mu_);
  segment.file_size = segment.file_end + bytes.size();
  segment.state = SegmentState::kSealed;
  segment.frames = {};
  open_.Drop(segment.key);
  ++counters_["seals"];
  QueueUpload(segment.key);
  return Ok();
}

// Its frames are synced. A seal that cannot be written breaks the segment, which ends it as well.
void DataServerImpl::SealWork(Work* work) {
  Segment& segment = *work->segment;
  std::vector<Request> seals = std::move(work->seals);
  if (!segment.visible) return AnswerAll(std::move(seals), Error(Code::kIo, "the segment could not be written"));
  bool broken = false;
  {
    MutexLock lock(mu_);
    broken = segment.broken;
  }
  if (!broken) {
    if (const Status status = WriteSeal(work); !status.ok()) {
      BreakSegment(work, status.error());
      broken = true;
    }
  }
  if (broken && !segment.end_recorded) {
    return AnswerAll(std::move(seals), Error(Code::kIo, "the end of a broken segment cannot be recorded"));
  }
  SegmentInfo info;
  {
    MutexLock lock(mu_);
    info = InfoOf(segment);
  }
  AnswerAll(std::move(seals), info);
}

}  // namespace archil
