// Space on a disk with a quota: it is reserved at the server before a write is acknowledged (docs/quota.md).

#include <algorithm>
#include <utility>

#include "client/vfs/vfs.h"

namespace archil {
namespace {

constexpr absl::Duration kAttempt = absl::Seconds(20);
constexpr uint64_t kHeadroom = 256 << 20;  // asked for beyond what is needed; the server decides

}  // namespace

Result<bool> Vfs::EnsureSpace(const OpContext& ctx, InodeId ino, uint64_t offset, uint64_t length) {
  Promises& promises = wb_.state_.promises;
  if (!promises.counted()) return true;
  const uint64_t bytes = wb_.state_.Find(ino)->map->Unallocated(offset, length);
  if (promises.Fits(bytes)) return true;
  const Status got = GetSpace(ctx, bytes);
  if (got.ok()) return false;
  // It may overwrite what is there: that needs none.
  Inode* inode = wb_.state_.Find(ino);
  const bool unknown = inode != nullptr && wb_.state_.MayChange(*inode) && inode->map && !inode->map->MissingChunks(offset, length).empty();
  if (got.code() == Code::kNoSpace && unknown) return EnsureChunks(ctx, *inode, offset, length);
  return got.error();
}

// Success says only that it is worth looking again.
Status Vfs::GetSpace(const OpContext& ctx, uint64_t bytes) {
  if (!ctx.may_block) return Code::kWouldBlock;
  if (ctx.cancelled()) return Code::kInterrupted;
  if (reserving_) {
    if (env_.scheduler.clock().Boot() >= ctx.deadline) return Error(Code::kIo, "the server did not answer in time");
    (void)wb_.state_.changed.WaitUntil(wb_.state_.mu, ctx.deadline);
    return Ok();
  }
  reserving_ = true;
  Status got = Reserve(ctx, bytes, kHeadroom, 0);
  if (got.code() == Code::kNoSpace) {
    // What was promised becomes exact, and what was freed here is seen.
    wb_.TakeAll();
    const Status flushed = wb_.MakeDurable(ctx, wb_.state_.log.last());
    got = flushed.ok() ? Reserve(ctx, bytes, kHeadroom, 0) : flushed;
  }
  reserving_ = false;
  wb_.state_.changed.SignalAll();
  if (got.ok() || got.code() == Code::kNoSpace) return got;
  const Result<bool> again = RetryLater(ctx, got.error());
  return again.ok() ? Ok() : Status(again.error());
}

Status Vfs::Reserve(const OpContext& ctx, uint64_t more, uint64_t headroom, uint64_t message) {
  Promises& promises = wb_.state_.promises;
  ReserveSpaceRequest request;
  request.session = session_.id();
  request.key = session_.key();
  request.least = promises.promised() + more;
  request.wanted = request.least + headroom;
  request.message = message;
  request.id = promises.Ask(request.wanted);
  Result<Credit> credit = Code::kUnavailable;
  {
    ReleaseLock unlocked(wb_.state_.mu);
    counters_.rpc_reserve_space.fetch_add(1);
    credit = env_.meta.ReserveSpace(ctx.WithDeadline(env_.scheduler.clock().Boot() + kAttempt), request);
  }
  if (!credit.ok()) return credit.error();
  promises.Told(*credit);
  promises.Answered(request.id);
  wb_.state_.changed.SignalAll();
  return Ok();
}

// Others need space: what was promised is made durable, so that it is exact, and the rest goes back.
void Vfs::ReturnSpace(uint64_t message) {
  OpContext ctx;
  ctx.cancel = &stop_;
  MutexLock lock(wb_.state_.mu);
  while (!stop_.cancelled() && !wb_.state_.broken) {
    wb_.TakeAll();
    if (!wb_.MakeDurable(ctx, wb_.state_.log.last()).ok()) return;  // the mount is at its end
    const Status told = Reserve(ctx, 0, 0, message);
    if (told.ok() || !RetryLater(ctx, told.error()).ok()) return;
  }
}

void Vfs::AfterBeat(const OpContext& ctx) {
  MutexLock lock(wb_.state_.mu);
  const uint64_t made = wb_.state_.promises.made();
  const bool idle = made == std::exchange(promises_at_beat_, made);
  // What is not heard is said again after the next one.
  if (idle && wb_.state_.promises.limit() > wb_.state_.promises.promised() && !wb_.state_.broken) (void)Reserve(ctx, 0, 0, 0);
}

// Bytes that are acknowledged and not at the server yet.
uint64_t Vfs::Pending() {
  MutexLock lock(wb_.state_.mu);
  return wb_.state_.promises.counted() ? wb_.state_.promises.promised() : wb_.dirty_bytes();
}

}  // namespace archil
