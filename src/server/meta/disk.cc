#include "server/meta/disk.h"

#include <fmt/format.h>

#include <utility>

#include "server/meta/apply.h"

namespace archil {
namespace {

// The memtable may hold several times the log's bytes; beyond this it is flushed whatever the log says.
constexpr uint64_t kFlushStateBytes = 192ULL << 20;

}  // namespace

Disk::Disk(const DiskHost& host, DiskId id, std::string name)
    : host_(host),
      id_(id),
      name_(std::move(name)),
      strand_(std::make_shared<Strand>(host.env.scheduler, host.strands)),
      lane_(std::make_shared<Strand>(host.env.scheduler, host.background)) {}

Disk::~Disk() = default;

Error Disk::NotServing() const {
  if (stopped_.load()) return Error(Code::kUnavailable, "the server is stopping");
  return Error(not_serving_code_, fmt::format("disk {}: {}", name_, not_serving_));
}

Status Disk::Start(const std::optional<DiskCreatedRecord>& create) {
  auto opened = OpenDiskCore(host_, id_, create, HooksForLog());
  if (opened.ok()) {
    core_ = std::move(*opened);
    ++generation_;
    ScheduleCollection();
    return Ok();
  }
  const bool damaged = opened.code() == Code::kCorrupt || opened.code() == Code::kNotSupported;
  not_serving_code_ = damaged ? Code::kCorrupt : Code::kUnavailable;
  not_serving_ = std::string(opened.error().message());
  return opened.error();
}

void Disk::RunOnStrand(Kind kind, std::function<void(DiskCore*)> fn) {
  if (stopped_.load()) return fn(nullptr);
  PostOnStrand(kind, std::move(fn));
}

void Disk::PostOnStrand(Kind kind, std::function<void(DiskCore*)> fn) {
  auto run = [self = shared_from_this(), kind, fn = std::move(fn)]() mutable {
    DiskCore* core = self->core_.get();
    if (core != nullptr && core->flushing && kind == Kind::kChange) {
      core->held.push_back(std::move(fn));
      return;
    }
    fn(core);
  };
  strand_->Post(std::move(run), kind == Kind::kHeartbeat ? Strand::Order::kFirst : Strand::Order::kInTurn);
}

LogWriter::Hooks Disk::HooksForLog() {
  const std::weak_ptr<Disk> weak = weak_from_this();
  LogWriter::Hooks hooks;
  hooks.on_failed = [weak](const Error& error) {
    if (const auto self = weak.lock()) {
      self->strand_->Post([self, error] { self->StepDown(error); });
    }
  };
  hooks.on_closed = [weak](const LogSegment& closed) {
    const auto self = weak.lock();
    if (self == nullptr || closed.end == 0) return;
    self->SealInBackground({SegmentRecord{closed.segment, SessionId{0}, SegmentRecord::State::kReleased, UINT64_MAX, closed.servers}});
  };
  return hooks;
}

Status Disk::WriteRecord(DiskCore& core, Txn& txn, const LogRecord& record, LogWriter::Done done) {
  const Lsn lsn{core.applied.value + 1};
  txn.PutDisk(AppliedKey(), EncodeApplied(lsn));
  ARCHIL_ASSIGN_OR_RETURN(const KvBatch batch, txn.Finish());
  std::string frame = EncodeLogRecord(lsn, record);
  if (const Status s = core.kv->Write(batch); !s.ok()) {
    // Part of it may be in the store's memory: only the log knows the truth now.
    strand_->Post([self = shared_from_this(), s] { self->StepDown(s.error()); });
    return Error(Code::kUnavailable, fmt::format("the state cannot be written: {}", s.error().ToString()));
  }
  core.applied = lsn;
  core.unflushed_log_bytes += frame.size();
  ++host_.metrics.records_logged;
  host_.metrics.log_bytes += frame.size();
  core.log->Submit(lsn, std::move(frame), std::move(done));
  return Ok();
}

Status Disk::Change(DiskCore& core, const LogRecord& record, std::function<void()> durable) {
  Txn txn(*core.kv);
  ARCHIL_RETURN_IF_ERROR(ApplyRecord(txn, record));
  ARCHIL_RETURN_IF_ERROR(WriteRecord(core, txn, record, [durable = std::move(durable)](Status s) {
    if (s.ok() && durable) durable();
  }));
  ARCHIL_ASSIGN_OR_RETURN(auto raw, GetDiskWide(*core.kv, DiskKey()));
  if (!raw) return Error(Code::kCorrupt, "the disk's own record is missing");
  ARCHIL_ASSIGN_OR_RETURN(core.disk, DecodeDisk(*raw));
  return Ok();
}

// The state in memory may be ahead of what the log will show: all of it is thrown away and read again.
void Disk::StepDown(const Error& cause) {
  if (core_ == nullptr) return;
  ++host_.metrics.step_downs;
  not_serving_code_ = Code::kUnavailable;
  not_serving_ = std::string(cause.message());
  ++generation_;
  std::deque<std::function<void(DiskCore*)>> held = std::move(core_->held);
  std::shared_ptr<DiskCore> old = std::move(core_);
  FailWaits(*old, NotServing());
  for (auto& fn : held) fn(nullptr);
  opening_ = true;
  lane_->Post([self = shared_from_this(), old = std::move(old)]() mutable {
    old->log->Stop();
    old.reset();
    self->TryOpen();
  });
}

// On the lane.
void Disk::TryOpen() {
  Result<std::unique_ptr<DiskCore>> opened = Code::kUnavailable;
  if (!stopped_.load()) opened = OpenDiskCore(host_, id_, std::nullopt, HooksForLog());
  auto shared = std::make_shared<Result<std::unique_ptr<DiskCore>>>(std::move(opened));
  strand_->Post([self = shared_from_this(), shared] {
    self->opening_ = false;
    if (!shared->ok()) {
      const bool damaged = shared->code() == Code::kCorrupt || shared->code() == Code::kNotSupported;
      self->not_serving_code_ = damaged ? Code::kCorrupt : Code::kUnavailable;
      self->not_serving_ = std::string(shared->error().message());
      return;
    }
    if (self->core_ != nullptr) return;  // cannot be: one opener at a time
    self->core_ = std::move(**shared);
    ++self->generation_;
    ++self->host_.metrics.reopens;
    self->ScheduleCollection();
  });
}

void Disk::Tick() {
  if (stopped_.load()) return;
  strand_->Post([self = shared_from_this()] {
    if (self->core_ != nullptr) return self->MaybeFlush(*self->core_);
    if (self->opening_ || self->not_serving_code_ != Code::kUnavailable) return;
    self->opening_ = true;
    self->lane_->Post([self] { self->TryOpen(); });
  });
}

// The state on disk must never be ahead of the log: the state's end is fixed, the log is durable up to it, then it is flushed.
// Changes wait meanwhile.
void Disk::MaybeFlush(DiskCore& core) {
  if (core.flushing || core.applied == core.flushed) return;
  const bool due = core.unflushed_log_bytes >= host_.config.flush_bytes || core.kv->UnflushedBytes() >= kFlushStateBytes ||
                   host_.Now() - core.last_flush >= host_.config.flush_interval;
  if (!due) return;
  core.flushing = true;
  core.log->WhenDurable([self = shared_from_this(), generation = generation_](Status s) {
    if (!s.ok()) return;  // the disk steps down; what is held is answered there
    self->strand_->Post([self, generation] { self->FlushNow(generation); });
  });
}

void Disk::FlushNow(uint64_t generation) {
  if (core_ == nullptr || generation_ != generation) return;
  const auto flush = [self = shared_from_this(), generation, kv = core_->kv] {
    Status s = self->host_.env.faults.Hit("meta.flush");
    if (s.ok()) s = kv->Flush();
    self->strand_->Post([self, generation, s] {
      if (self->core_ != nullptr && self->generation_ == generation) self->FlushDone(s);
    });
  };
  host_.log_pool.Post(flush);
}

void Disk::FlushDone(const Status& s) {
  DiskCore& core = *core_;
  core.flushing = false;
  core.last_flush = host_.Now();
  if (!s.ok()) return StepDown(s.error());
  ++host_.metrics.flushes;
  core.flushed = core.applied;
  core.unflushed_log_bytes = 0;
  std::deque<std::function<void(DiskCore*)>> held = std::move(core.held);
  core.held.clear();
  for (auto& fn : held) fn(core_.get());
}

void Disk::Stop() {
  if (stopped_.exchange(true)) return;
  auto closing = std::make_shared<Notification>(host_.env.scheduler);
  std::shared_ptr<DiskCore> core;
  strand_->Post([self = shared_from_this(), closing, &core] {
    core = std::move(self->core_);
    self->not_serving_code_ = Code::kUnavailable;
    self->not_serving_ = "the server is stopping";
    closing->Notify();
  });
  closing->Wait();
  // What is on the lane works on a core that is gone, or opens one that is thrown away.
  auto idle = std::make_shared<Notification>(host_.env.scheduler);
  lane_->Post([idle] { idle->Notify(); });
  idle->Wait();
  auto drained = std::make_shared<Notification>(host_.env.scheduler);
  strand_->Post([self = shared_from_this(), drained] {
    self->core_.reset();
    drained->Notify();
  });
  drained->Wait();
  if (core == nullptr) return;
  FailWaits(*core, NotServing());
  for (auto& fn : core->held) fn(nullptr);
  auto durable = std::make_shared<Notification>(host_.env.scheduler);
  auto outcome = std::make_shared<Status>();
  core->log->WhenDurable([durable, outcome](Status s) {
    *outcome = s;
    durable->Notify();
  });
  durable->Wait();
  core->log->Stop();
  if (outcome->ok() && core->kv->Flush().ok()) ++host_.metrics.flushes;
}

std::vector<DataServerInfo> Disk::ServersOf(const std::vector<uint32_t>& ids) const {
  std::vector<DataServerInfo> out;
  for (const DataServerInfo& server : host_.env.data.All()) {
    for (uint32_t id : ids) {
      if (server.id == id) out.push_back(server);
    }
  }
  return out;
}

}  // namespace archil
