#include "client/writeback/writeback.h"

#include <algorithm>
#include <utility>

#include "common/base/checksum.h"
#include "common/obs/log.h"

namespace archil {
namespace {

constexpr int kUploaders = 2;
constexpr uint64_t kMaxRange = 1 << 20;               // of one taken range, so that packs fill well
constexpr uint64_t kCompactBytes = 256 * 1024;        // inline bytes of a file that are moved to a segment
constexpr absl::Duration kCommitAttempt = absl::Seconds(5);  // of one RPC; a longer wait is several attempts

}  // namespace

Writeback::Writeback(const MountEnv& env, const MountConfig& config, MountState& state, Session& session,
                     SegmentReader& reader)
    : state_(state), env_(env), config_(config), session_(session), reader_(reader),
      flusher_wake_(env.scheduler), uploader_wake_(env.scheduler) {}

Writeback::~Writeback() { Stop(); }

void Writeback::Start() {
  threads_.push_back(env_.scheduler.Spawn("archil-flush", [this] { FlusherLoop(); }));
  for (int i = 0; i < kUploaders; ++i) {
    threads_.push_back(env_.scheduler.Spawn("archil-upload", [this] { UploaderLoop(); }));
  }
}

void Writeback::Stop() {
  {
    MutexLock lock(state_.mu);
    stopping_ = true;
    stop_.Cancel();
    flusher_wake_.SignalAll();
    uploader_wake_.SignalAll();
    state_.changed.SignalAll();
  }
  for (auto& thread : threads_) thread->Join();
  threads_.clear();
}

Seq Writeback::Log(Op op, std::initializer_list<Inode*> touched) {
  const bool release = std::holds_alternative<ReleaseOrphanOp>(op);
  const Seq seq = state_.log.Append(std::move(op));
  if (!release) last_change_ = seq;
  for (Inode* inode : touched) {
    if (inode != nullptr) Touched(*inode, seq);
  }
  counters.ops_logged.fetch_add(1, std::memory_order_relaxed);
  StartTimer();
  if (state_.log.size() >= config_.flush_ops && state_.log.size() % 64 == 0) flusher_wake_.Signal();
  return seq;
}

void Writeback::Touched(Inode& inode, Seq seq) {
  inode.last_op = seq;
  if (!inode.home) return;
  if (Inode* home = state_.Find(inode.home)) home->covered_last = seq;
}

void Writeback::TakeCovered(const Inode& dir) {
  for (const InodeId ino : dirty_list_) {
    Inode* inode = state_.Find(ino);
    if (inode != nullptr && inode->home == dir.ino()) Take(*inode);
  }
}

void Writeback::Account(uint64_t before, uint64_t after) {
  if (after >= before) {
    dirty_bytes_.fetch_add(after - before, std::memory_order_relaxed);
  } else {
    dirty_bytes_.fetch_sub(before - after, std::memory_order_relaxed);
  }
}

void Writeback::StartTimer() {
  if (!oldest_) {
    oldest_ = Now();
    flusher_wake_.Signal();
  }
}

void Writeback::MapChanged(Inode& inode, uint64_t before) {
  const uint64_t after = MemoryOf(inode);
  Account(before, after);
  if (after > before) untaken_bytes_ += after - before;
  if (inode.map->dirty_bytes() > 0 && !inode.in_dirty_list) {
    inode.in_dirty_list = true;
    dirty_list_.push_back(inode.ino());
    StartTimer();
  }
  if (untaken_bytes_ >= config_.flush_bytes) {
    TakeAll();
    StartUploads(state_.log.last());
    Kick();
  }
}

void Writeback::Enqueue(Inode& inode, TakeId take, std::vector<DirtyRange> ranges) {
  if (ranges.empty()) return;
  SetExtentsOp op;
  op.ino = inode.ino();
  op.size = inode.attr.size;
  op.mtime = inode.attr.mtime;
  op.ctime = inode.attr.ctime;
  op.clear_mode = std::exchange(inode.clear_mode, 0);
  auto upload = std::make_shared<Upload>();
  upload->ino = inode.ino();
  upload->take = take;
  for (const DirtyRange& range : ranges) upload->bytes += range.data.size();
  upload->ranges = std::move(ranges);
  upload->seq = last_change_ = state_.log.AppendPending(std::move(op));
  Touched(inode, upload->seq);
  counters.ops_logged.fetch_add(1, std::memory_order_relaxed);
  unfinished_[inode.ino()].push_back(upload);
  queue_.push_back(std::move(upload));
  StartTimer();
}

void Writeback::Take(Inode& inode) {
  if (!inode.map) return;
  const uint64_t promised = inode.promised;
  state_.EndPromise(inode);
  if (inode.map->dirty_bytes() == 0) return;
  const TakeId take = next_take_++;
  untaken_bytes_ -= std::min(untaken_bytes_, inode.map->dirty_bytes());
  Enqueue(inode, take, inode.map->Take(take, kMaxRange));
  state_.promises.Logged(inode.last_op, promised);
}

void Writeback::TakeAll() {
  std::deque<InodeId> list;
  list.swap(dirty_list_);
  for (const InodeId ino : list) {
    Inode* inode = state_.Find(ino);
    if (inode == nullptr) continue;
    inode->in_dirty_list = false;
    Take(*inode);
  }
  untaken_bytes_ = 0;
}

void Writeback::TakeForCompaction() {
  std::deque<InodeId> list;
  list.swap(compact_list_);
  for (const InodeId ino : list) {
    Inode* inode = state_.Find(ino);
    if (inode == nullptr || !inode->map || inode->attr.nlink == 0) continue;
    if (inode->map->inline_bytes() < kCompactBytes) continue;
    Take(*inode);  // dirty bytes first: the op that moves bytes carries the size that they made
    const uint64_t before = MemoryOf(*inode);
    const TakeId take = next_take_++;
    Enqueue(*inode, take, inode->map->TakeInline(take, kMaxRange));
    Account(before, MemoryOf(*inode));
  }
}

void Writeback::Discard(Inode& inode) {
  const uint64_t before = MemoryOf(inode);
  state_.EndPromise(inode);
  untaken_bytes_ -= std::min(untaken_bytes_, inode.map->dirty_bytes());
  if (const auto it = unfinished_.find(inode.ino()); it != unfinished_.end()) {
    std::vector<std::shared_ptr<Upload>> kept;
    for (const auto& upload : it->second) {
      if (state_.log.Cancel(upload->seq)) {
        upload->cancelled = true;
        upload->next_range = upload->ranges.size();  // what an uploader has of it goes on, for nobody
      } else {
        kept.push_back(upload);  // a commit may end before the death: the bytes go out as ever
      }
    }
    it->second = std::move(kept);
    if (it->second.empty()) unfinished_.erase(it);
    state_.changed.SignalAll();
  }
  inode.map = std::make_unique<FileMap>(true);
  Account(before, 0);
}

void Writeback::StartUploads(Seq goal) {
  if (goal <= upload_goal_) return;
  upload_goal_ = goal;
  uploader_wake_.SignalAll();
}

Extent Writeback::InlineExtent(const DirtyRange& range) {
  Extent extent;
  extent.offset = range.offset;
  extent.length = range.data.size();
  extent.kind = ExtentKind::kInline;
  extent.data = range.data;
  return extent;
}

bool Writeback::PlaceInline(Seq target) {
  // Bytes up to `target` that nobody uploads yet ride inside the commit if they are few.
  uint64_t bytes = 0;
  for (const auto& upload : queue_) {
    if (upload->seq > target) break;
    if (upload->cancelled) continue;
    if (upload->next_range > 0) return false;
    bytes += upload->bytes;
    if (bytes > kMaxInlineBytes) return false;
  }
  while (!queue_.empty() && queue_.front()->seq <= target) {
    const std::shared_ptr<Upload> upload = queue_.front();
    queue_.pop_front();
    if (upload->cancelled) continue;
    for (DirtyRange& range : upload->ranges) {
      upload->extents.push_back(InlineExtent(range));
    }
    counters.inline_bytes.fetch_add(upload->bytes, std::memory_order_relaxed);
    Finish(*upload);
  }
  return true;
}

void Writeback::Finish(Upload& upload) {
  if (upload.cancelled) return;
  if (const auto it = unfinished_.find(upload.ino); it != unfinished_.end()) {
    std::erase_if(it->second, [&](const auto& u) { return u.get() == &upload; });
    if (it->second.empty()) unfinished_.erase(it);
  }
  std::sort(upload.extents.begin(), upload.extents.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  if (Inode* inode = state_.Find(upload.ino); inode != nullptr && inode->map) {
    const uint64_t before = MemoryOf(*inode);
    inode->map->Placed(upload.take, upload.extents);
    Account(before, MemoryOf(*inode));
    if (inode->map->inline_bytes() >= kCompactBytes &&
        std::find(compact_list_.begin(), compact_list_.end(), upload.ino) == compact_list_.end()) {
      compact_list_.push_back(upload.ino);
    }
  }
  state_.log.Fill(upload.seq, std::move(upload.extents));
  state_.changed.SignalAll();
}

Status Writeback::WaitChanged(const OpContext& ctx, BootTime until) {
  if (!ctx.may_block) return Code::kWouldBlock;
  if (ctx.cancelled()) return Code::kInterrupted;
  if (stopping_) return Error(Code::kIo, "the mount is going away");
  if (state_.broken) return Error(Code::kIo, state_.broken_reason);
  if (Now() >= ctx.deadline) return Error(Code::kIo, "the server did not answer in time");
  (void)state_.changed.WaitUntil(state_.mu, std::min(ctx.deadline, until));
  return Ok();
}

Status Writeback::MakeDurable(const OpContext& ctx, Seq target) {
  while (state_.log.durable() < target) {
    if (!ctx.may_block) return Code::kWouldBlock;
    if (state_.broken) return Error(Code::kIo, state_.broken_reason);
    if (stopping_) return Error(Code::kIo, "the mount is going away");
    if (ctx.cancelled()) return Code::kInterrupted;
    if (Now() >= ctx.deadline) return Error(Code::kIo, "the server did not answer in time");
    const Seq reach = state_.log.Reach(target);
    if (!PlaceInline(reach)) StartUploads(reach);
    ARCHIL_RETURN_IF_ERROR(CommitOnce(ctx, target));
  }
  return Ok();
}

// Sends one batch, or waits for what stands in its way. Success says only that it is worth looking again.
Status Writeback::CommitOnce(const OpContext& ctx, Seq target) {
  if (committing_ || held_) return WaitChanged(ctx, BootTime::Infinite());
  if (Now() < retry_at_) return WaitChanged(ctx, retry_at_);
  if (!batch_) {
    batch_ = state_.log.Plan(target, BatchLimits{});
    if (!batch_) return WaitChanged(ctx, BootTime::Infinite());
  }
  if (batch_->count > 0) {
    CommitRequest request;
    request.session = session_.id();
    request.key = session_.key();
    request.first = Seq{server_applied_.value + 1};
    request.count = batch_->count;
    request.last = batch_->last;
    request.ops = batch_->ops;
    committing_ = true;
    Result<CommitReply> reply = Code::kUnknown;
    {
      ReleaseLock unlocked(state_.mu);
      reply = env_.meta.Commit(ctx.WithDeadline(Now() + kCommitAttempt), request);
    }
    committing_ = false;
    if (!reply.ok()) {
      const Error& error = reply.error();
      state_.changed.SignalAll();
      if (error.band() == Band::kVerdict || error.band() == Band::kBroken) {
        if (error.code() == Code::kFenced) {
          ReleaseLock unlocked(state_.mu);
          (void)session_.Note(error);
        }
        Break(error.ToString());
        LogError("writeback.commit_refused", {{"error", error.ToString()}, {"first", request.first.value}, {"last", request.last.value}});
        if (refused_) {
          ReleaseLock unlocked(state_.mu);
          refused_(error.ToString());
        }
        return Error(Code::kIo, state_.broken_reason);
      }
      counters.commit_retries.fetch_add(1);
      refusals_ = error.code() == Code::kTryAgain ? refusals_ + 1 : 0;
      commit_failures_ = std::min(commit_failures_ + 1, 10);
      if (error.code() != Code::kInterrupted) {
        retry_at_ = Now() + std::min(absl::Milliseconds(10) * (1 << commit_failures_), absl::Seconds(1));
      }
      return Ok();
    }
    server_applied_ = batch_->last;
    state_.promises.Told(reply->credit);
    counters.commits.fetch_add(1);
    counters.ops_sent.fetch_add(batch_->count);
  }
  commit_failures_ = refusals_ = 0;
  counters.ops_absorbed.fetch_add(batch_->absorbed_ops);
  counters.inodes_absorbed.fetch_add(batch_->absorbed.size());
  state_.log.Committed(batch_->last);
  batch_.reset();
  if (state_.log.size() == 0 && dirty_list_.empty()) oldest_.reset();
  state_.changed.SignalAll();
  return Ok();
}

Status Writeback::Throttle(const OpContext& ctx) {
  const uint64_t limit = config_.dirty_limit_bytes;
  const uint64_t dirty = dirty_bytes();
  if (dirty <= limit / 2) return Ok();
  if (!ctx.may_block) return Code::kWouldBlock;
  if (untaken_bytes_ >= kMaxRange || dirty >= limit) {
    TakeAll();
    StartUploads(state_.log.last());
    Kick();
  }
  if (dirty < limit) {
    // Up to 10 ms, in proportion to how much of the second half is used: writers slow down before they stop.
    const double fill = static_cast<double>(dirty - limit / 2) / static_cast<double>(limit / 2 + 1);
    return WaitChanged(ctx, Now() + absl::Milliseconds(10) * fill);
  }
  while (dirty_bytes() >= limit) ARCHIL_RETURN_IF_ERROR(WaitChanged(ctx, BootTime::Infinite()));
  return Ok();
}

void Writeback::Kick() {
  kicked_ = true;
  flusher_wake_.Signal();
}

void Writeback::Break(std::string reason) {
  if (state_.broken) return;
  state_.broken = true;
  state_.broken_reason = std::move(reason);
  state_.changed.SignalAll();
  flusher_wake_.SignalAll();
  uploader_wake_.SignalAll();
}

bool Writeback::FlushDue(BootTime* next) {
  *next = BootTime::Infinite();
  if (state_.broken) return false;
  if (kicked_ || state_.log.size() >= config_.flush_ops) return true;
  if (!oldest_) return false;
  *next = *oldest_ + config_.flush_after;
  return Now() >= *next;
}

void Writeback::FlusherLoop() {
  MutexLock lock(state_.mu);
  while (!stopping_) {
    BootTime next;
    if (!FlushDue(&next)) {
      flusher_wake_.WaitUntil(state_.mu, next);
      continue;
    }
    kicked_ = false;
    // What is acknowledged from here on is the next flush's; its age counts from now.
    oldest_.reset();
    TakeAll();
    TakeForCompaction();
    StartUploads(state_.log.last());
    // Runs until it succeeds, the mount breaks or ends: WaitChanged notices both.
    OpContext ctx;
    ctx.cancel = &stop_;
    if (const Status done = MakeDurable(ctx, state_.log.last()); !done.ok()) continue;
    if (state_.log.size() > 0 || !dirty_list_.empty()) StartTimer();
  }
}

// --- uploading

std::vector<Writeback::Piece> Writeback::NextPack() {
  std::vector<Piece> pack;
  uint64_t bytes = 0;
  while (!queue_.empty() && queue_.front()->seq <= upload_goal_) {
    const std::shared_ptr<Upload>& upload = queue_.front();
    while (upload->next_range < upload->ranges.size()) {
      const uint64_t size = upload->ranges[upload->next_range].data.size();
      if (bytes + size > kMaxAppend) return pack;
      pack.push_back({upload, upload->next_range++});
      bytes += size;
    }
    queue_.pop_front();
  }
  return pack;
}

void Writeback::PlacePack(const std::vector<Piece>& pack, SegmentId segment, uint64_t offset) {
  for (const Piece& piece : pack) {
    Upload& upload = *piece.upload;
    const DirtyRange& range = upload.ranges[piece.range];
    Extent extent;
    extent.offset = range.offset;
    extent.length = range.data.size();
    extent.kind = ExtentKind::kSegment;
    extent.segment = segment;
    extent.segment_offset = offset;
    offset += extent.length;
    upload.extents.push_back(std::move(extent));
    if (++upload.placed == upload.ranges.size()) Finish(upload);
  }
}

std::optional<uint64_t> Writeback::AppendOnce(OpenSegment& segment, const Buffer& bytes) {
  OpContext ctx;
  ctx.cancel = &stop_;
  ctx.deadline = Now() + absl::Seconds(10);
  const SegmentKey key{session_.opened().disk.id, segment.grant.segment};
  DataService& server = env_.data.For(segment.grant.replicas.front());
  const Status done =
      server.Append(ctx, key, segment.grant.token, segment.length, bytes, Checksum(bytes.view()));
  if (done.ok()) {
    segment.failures = 0;
    const uint64_t offset = segment.length;
    segment.length += bytes.size();
    return offset;
  }
  counters.append_retries.fetch_add(1);
  // An answer that was lost is asked for again: repeating an append is safe. Anything else ends the segment.
  const bool again = done.error().band() == Band::kNotApplied || done.error().band() == Band::kUnknown;
  segment.failures = again ? segment.failures + 1 : 100;
  return std::nullopt;
}

bool Writeback::Append(std::optional<OpenSegment>& segment, const Buffer& bytes, uint64_t* offset) {
  if (segment && (segment->length + bytes.size() > kMaxSegment || segment->failures >= 3)) {
    session_.ReleaseSegment(segment->grant.segment);
    segment.reset();
  }
  if (!segment) {
    OpContext ctx;
    ctx.cancel = &stop_;
    ctx.deadline = Now() + absl::Seconds(10);
    auto grant = session_.TakeSegment(ctx);
    if (!grant.ok() || grant->replicas.empty()) return false;
    segment = OpenSegment{*grant, 0, 0};
    reader_.Learn(grant->segment, grant->replicas.front());
  }
  const auto placed = AppendOnce(*segment, bytes);
  if (!placed) return false;
  *offset = *placed;
  reader_.Wrote(segment->grant.segment, *offset, bytes);
  counters.appends.fetch_add(1);
  counters.append_bytes.fetch_add(bytes.size());
  return true;
}

void Writeback::UploaderLoop() {
  std::optional<OpenSegment> segment;
  MutexLock lock(state_.mu);
  while (!stopping_) {
    const std::vector<Piece> pack = NextPack();
    if (pack.empty()) {
      uploader_wake_.Wait(state_.mu);
      continue;
    }
    bool placed = false;
    uint64_t offset = 0;
    for (int failures = 0; !placed && !stopping_ && !state_.broken; ++failures) {
      if (failures > 0) {
        const BootTime until = Now() + std::min(absl::Milliseconds(20) * (1 << std::min(failures, 6)), absl::Seconds(1));
        while (!stopping_ && !state_.broken && !uploader_wake_.WaitUntil(state_.mu, until)) {
        }
      }
      ReleaseLock unlocked(state_.mu);
      std::string joined;
      for (const Piece& piece : pack) joined.append(piece.upload->ranges[piece.range].data.view());
      placed = Append(segment, Buffer(std::move(joined)), &offset);
    }
    if (placed) PlacePack(pack, segment->grant.segment, offset);
  }
  if (segment) session_.ReleaseSegment(segment->grant.segment);
}

}  // namespace archil
