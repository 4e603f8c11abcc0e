// File locks of the mount (LOCK-1). client/locks keeps them; here they meet the session: its lease, its end, its calls to the server.
#include "client/vfs/vfs.h"

namespace archil {

Result<LockOutcome> SessionLocks::Set(const OpContext& ctx, uint64_t id, uint64_t finished, const LockRequest& request) {
  const auto outcome = meta_.SetLock(ctx, {session_.id(), session_.key(), id, finished, request});
  if (!outcome.ok()) (void)session_.Note(outcome.error());
  return outcome;
}

Result<bool> SessionLocks::Cancel(const OpContext& ctx, uint64_t id) {
  const auto granted = meta_.CancelLock(ctx, session_.id(), session_.key(), id);
  if (!granted.ok()) (void)session_.Note(granted.error());
  return granted;
}

Result<std::optional<FileLock>> SessionLocks::Test(const OpContext& ctx, const FileLock& lock) {
  auto found = meta_.TestLock(ctx, session_.id(), session_.key(), lock);
  if (!found.ok()) (void)session_.Note(found.error());
  return found;
}

void Vfs::SessionOpened() {
  locks_.SetSession(session_.id(), session_.opened().alone);
  MutexLock lock(wb_.state_.mu);
  wb_.state_.rights.SetAlone(session_.opened().alone);
}

Status Vfs::SetLock(const OpContext& ctx, InodeId ino, HandleId handle, const LockCall& call) {
  const bool unlock = call.type == LockType::kUnlock;
  OpContext through = ctx;
  through.handle = handle;
  const auto usable = [&]() -> Status {
    MutexLock lock(wb_.state_.mu);
    return Usable(through);
  };
  if (!unlock) ARCHIL_RETURN_IF_ERROR(usable());
  OpContext limited = ctx;
  if (!call.wait) limited = ctx.WithDeadline(env_.scheduler.clock().Boot() + config_.op_deadline);
  ARCHIL_RETURN_IF_ERROR(locks_.Set(limited, ino, handle, call));
  // A lock that was waited for here is worth nothing if the lease ran out meanwhile: others may have it.
  return call.wait && !unlock ? usable() : Ok();
}

Result<std::optional<FileLock>> Vfs::TestLock(const OpContext& ctx, InodeId ino, const LockCall& call) {
  {
    MutexLock lock(wb_.state_.mu);
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
  }
  return locks_.Test(ctx.WithDeadline(env_.scheduler.clock().Boot() + config_.op_deadline), ino, call);
}

Status Vfs::Flush(const OpContext& ctx, InodeId ino, HandleId handle, uint64_t owner) {
  ARCHIL_RETURN_IF_ERROR(locks_.Close(ctx.WithDeadline(env_.scheduler.clock().Boot() + config_.op_deadline), ino, owner));
  // Said, and not used up: a close may be that of a child process, which nobody looks at.
  MutexLock lock(wb_.state_.mu);
  const auto open = wb_.state_.handles.find(handle);
  if (open != wb_.state_.handles.end() && open->second.lost) return LostError();
  return Ok();
}

}  // namespace archil
