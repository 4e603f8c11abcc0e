#include "server/data/data_server.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/api/types.h"
#include "common/base/checksum.h"
#include "server/data/data_server_impl.h"

namespace archil {
namespace {

constexpr uint64_t kMaxQueuedBytes = 256ULL << 20;
constexpr size_t kMaxQueuedRequests = 100'000;

}  // namespace

std::shared_ptr<const OpenSegment> OpenCache::Get(SegmentKey key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  order_.splice(order_.end(), order_, it->second.order);
  return it->second.open;
}

void OpenCache::Put(SegmentKey key, std::shared_ptr<const OpenSegment> open) {
  Drop(key);
  entries_ += Weight(*open);
  by_key_[key] = {std::move(open), order_.insert(order_.end(), key)};
  while (order_.size() > 1 && (order_.size() > kMaxOpen || entries_ > kMaxIndexEntries)) Drop(order_.front());
}

void OpenCache::Drop(SegmentKey key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return;
  entries_ -= Weight(*it->second.open);
  order_.erase(it->second.order);
  by_key_.erase(it);
}

void OpenCache::Clear() {
  by_key_.clear();
  order_.clear();
  entries_ = 0;
}

Result<std::unique_ptr<DataServer>> DataServer::Open(const DataServerEnv& env, const DataServerConfig& config) {
  auto server = std::make_unique<DataServerImpl>(env, config);
  ARCHIL_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<DataServer>(std::move(server));
}

DataServerImpl::DataServerImpl(const DataServerEnv& env, const DataServerConfig& config)
    : env_(env), config_(config), mu_(env.scheduler), queue_cv_(env.scheduler), upload_cv_(env.scheduler),
      idle_cv_(env.scheduler) {}

DataServerImpl::~DataServerImpl() { Stop(); }

Status DataServerImpl::Start() {
  ARCHIL_RETURN_IF_ERROR(env_.files.MakeDirs(SegmentsDir()));
  Result<std::unique_ptr<File>> lock = env_.files.LockFile(JoinPath(config_.dir, "lock"));
  if (lock.code() == Code::kBusy) {
    return Error(Code::kBusy, "another process serves segments from " + config_.dir + "; stop it or choose another directory");
  }
  if (!lock.ok()) return lock.error();
  dir_lock_ = std::move(*lock);
  ARCHIL_RETURN_IF_ERROR(Recover());
  Evict();
  {
    MutexLock l(mu_);
    started_ = true;
  }
  syncer_ = env_.scheduler.Spawn("data-sync", [this] { SyncLoop(); });
  uploader_ = env_.scheduler.Spawn("data-upload", [this] { UploadLoop(); });
  return Ok();
}

void DataServerImpl::Stop() {
  {
    MutexLock lock(mu_);
    if (!started_) return;
    stopping_ = true;
    queue_cv_.SignalAll();
    upload_cv_.SignalAll();
    idle_cv_.SignalAll();
    if (joined_) return;
    joined_ = true;
  }
  syncer_->Join();
  uploader_->Join();
  MutexLock lock(mu_);
  open_.Clear();
  dir_lock_.reset();
}

SegmentInfo DataServerImpl::InfoOf(const Segment& segment) {
  return {segment.key, segment.state, segment.length, segment.token};
}

SegmentPtr DataServerImpl::FindVisible(SegmentKey key) {
  const auto it = segments_.find(key);
  return it == segments_.end() || !it->second->visible ? nullptr : it->second;
}

void DataServerImpl::Count(const char* name, uint64_t n) {
  MutexLock lock(mu_);
  counters_[name] += n;
}

void DataServerImpl::Forget(const SegmentPtr& segment) {
  RemoveCached(segment);
  open_.Drop(segment->key);
  uploads_.erase(segment->key);
  const auto it = segments_.find(segment->key);
  if (it != segments_.end() && it->second == segment) segments_.erase(it);
}

// What can be said of a request without the state of its segment.
Status DataServerImpl::Admit(const Request& request) {
  if (!request.key.disk || !request.key.segment) return Error(Code::kInvalid, "a segment has a disk and a number");
  if (request.kind != Request::Kind::kAppend) return Ok();
  const size_t size = request.bytes.size();
  if (size == 0 || size > kMaxAppend) return Error(Code::kInvalid, "an append has 1 byte to 4 MiB");
  if (request.offset >= kMaxSegment) return Error(Code::kInvalid, "the segment is full: seal it");
  if (Checksum(request.bytes.view()) != request.checksum) {
    return Error(Code::kCorrupt, "the bytes of the append fail their checksum");
  }
  return Ok();
}

void DataServerImpl::Enqueue(Request request) {
  request.refused = Admit(request);
  if (request.refused.ok() && request.kind == Request::Kind::kAppend) {
    const std::string_view bytes = request.bytes.view();
    if (bytes.size() <= kMaxFramePayload) {
      request.frame_checksums.push_back(request.checksum);
    } else {
      for (size_t at = 0; at < bytes.size(); at += kMaxFramePayload) {
        request.frame_checksums.push_back(Checksum(bytes.substr(at, kMaxFramePayload)));
      }
    }
  }
  Status refused;
  {
    MutexLock lock(mu_);
    if (stopping_ || !started_) {
      refused = Error(Code::kUnavailable, "the data server is stopping");
    } else if (queued_bytes_ > kMaxQueuedBytes || queue_.size() >= kMaxQueuedRequests) {
      refused = Error(Code::kTryAgain, "too many appends wait on this data server");
    } else {
      queued_bytes_ += request.bytes.size();
      queue_.push_back(std::move(request));
      queue_cv_.Signal();
      return;
    }
  }
  request.done(refused.error());
}

Result<SegmentInfo> DataServerImpl::EnqueueAndWait(const OpContext& ctx, Request request) {
  struct Waiter {
    explicit Waiter(Scheduler& scheduler) : answered(scheduler) {}
    Notification answered;
    Result<SegmentInfo> result = Code::kUnknown;
  };
  const auto waiter = std::make_shared<Waiter>(env_.scheduler);  // owners: this call and the request
  request.done = [waiter](Result<SegmentInfo> result) {
    waiter->result = std::move(result);
    waiter->answered.Notify();
  };
  Enqueue(std::move(request));
  if (waiter->answered.WaitUntil(ctx.deadline)) return waiter->result;
  return Error(Code::kUnknown, "the deadline passed before the data server had written");
}

Status DataServerImpl::Append(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset,
                              const Buffer& bytes, uint64_t checksum) {
  const Result<SegmentInfo> result =
      EnqueueAndWait(ctx, {Request::Kind::kAppend, key, token, offset, bytes, checksum, {}, {}, {}});
  return result.ok() ? Ok() : Status(result.error());
}

void DataServerImpl::AppendAsync(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset,
                                 const Buffer& bytes, uint64_t checksum, std::function<void(Status)> done) {
  Enqueue({Request::Kind::kAppend, key, token, offset, bytes, checksum, {}, {},
           [done = std::move(done)](Result<SegmentInfo> result) { done(result.ok() ? Ok() : Status(result.error())); }});
}

Result<SegmentInfo> DataServerImpl::Fence(const OpContext& ctx, SegmentKey key, uint64_t token) {
  return EnqueueAndWait(ctx, {Request::Kind::kFence, key, token, 0, {}, 0, {}, {}, {}});
}

Result<SegmentInfo> DataServerImpl::Seal(const OpContext& ctx, SegmentKey key, uint64_t token) {
  return EnqueueAndWait(ctx, {Request::Kind::kSeal, key, token, 0, {}, 0, {}, {}, {}});
}

Result<SegmentInfo> DataServerImpl::Stat(const OpContext& ctx, SegmentKey key) {
  MutexLock lock(mu_);
  if (stopping_) return Code::kUnavailable;
  const SegmentPtr segment = FindVisible(key);
  if (segment == nullptr) return Error(Code::kNotFound, "no segment " + SegmentName(key));
  if (!segment->unusable.ok()) return segment->unusable.error();
  return InfoOf(*segment);
}

Result<std::vector<SegmentInfo>> DataServerImpl::List(const OpContext& ctx, DiskId disk) {
  MutexLock lock(mu_);
  if (stopping_) return Code::kUnavailable;
  std::vector<SegmentInfo> infos;
  for (auto it = segments_.lower_bound({disk, SegmentId(0)}); it != segments_.end() && it->first.disk == disk; ++it) {
    if (it->second->visible && it->second->unusable.ok()) infos.push_back(InfoOf(*it->second));
  }
  return infos;
}

Status DataServerImpl::RemoveFilesOf(SegmentKey key) {
  for (const std::string& path : {SegmentPath(key), StatePath(key)}) {
    const Status removed = env_.files.Remove(path);
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  }
  const Status synced = env_.files.SyncDir(DirName(SegmentPath(key)));
  return synced.code() == Code::kNotFound ? Ok() : synced;
}

Status DataServerImpl::Delete(const OpContext& ctx, SegmentKey key) {
  if (!key.disk || !key.segment) return Error(Code::kInvalid, "a segment has a disk and a number");
  SegmentPtr segment;
  bool may_be_object = true;
  {
    MutexLock lock(mu_);
    if (stopping_) return Code::kUnavailable;
    if (const auto it = segments_.find(key); it != segments_.end()) segment = it->second;
    if (segment != nullptr) {
      if (segment->deleting) return Error(Code::kTryAgain, "segment " + SegmentName(key) + " is being deleted");
      segment->deleting = true;  // from here on appends are refused, so that what is under way ends
      while (segment->in_batch || segment->uploading) {
        if (!idle_cv_.WaitUntil(mu_, ctx.deadline)) continue;
        segment->deleting = false;
        upload_cv_.Signal();
        return Error(Code::kUnavailable, "segment " + SegmentName(key) + " is still in use");
      }
      may_be_object = segment->state != SegmentState::kOpen;
    }
  }
  // The object first: while a file is left the segment is known, and a repeat of this call finds it. Objects of
  // unknown segments too: an upload may have been cut off between the object and our record of it.
  Status status = may_be_object ? env_.objects.Delete(ctx, SegmentName(key)) : Ok();
  if (status.ok()) status = env_.faults.Hit("data.delete.before_files");
  if (status.ok()) status = RemoveFilesOf(key);
  MutexLock lock(mu_);
  if (segment != nullptr) {
    segment->deleting = false;
    if (status.ok()) Forget(segment);
    idle_cv_.SignalAll();
    upload_cv_.Signal();
  }
  if (status.ok()) ++counters_["deletes"];
  return status;
}

std::map<std::string, uint64_t> DataServerImpl::Metrics() {
  MutexLock lock(mu_);
  std::map<std::string, uint64_t> m = counters_;
  m["segments"] = segments_.size();
  m["uploads_waiting"] = uploads_.size();
  m["cached_bytes"] = cached_bytes_;
  m["queued_bytes"] = queued_bytes_;
  m["open_files"] = open_.size();
  for (const auto& [key, segment] : segments_) {
    if (segment->damaged) ++m["damaged_segments"];
    if (segment->broken) ++m["broken_segments"];
    if (!segment->unusable.ok()) ++m["unusable_segments"];
  }
  return m;
}

}  // namespace archil
