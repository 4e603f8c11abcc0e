// GETLK, SETLK, SETLKW, flock and FLUSH, where file locks are the daemon's.
#include <fcntl.h>
#include <sys/file.h>

#include "client/fuse/replies.h"
#include "client/fuse/session.h"

namespace archil::fuse {
namespace {

bool SetLock(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, HandleId handle, LockCall call) {
  // Asked only when it has to wait, and then the caller sleeps: its system call can be seen.
  if (ctx.may_block && call.wait && call.family == LockFamily::kRange) {
    call.detect_deadlock = IsInClassicLockWait(static_cast<uint32_t>(ctx.caller.pid));
  }
  return ReplyStatus(req, s.fs().SetLock(ctx, ino, handle, call));
}

bool GetLock(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, LockCall call) {
  const Result<std::optional<FileLock>> found = s.fs().TestLock(ctx, ino, call);
  if (!found.ok()) return ReplyError(req, found.code());
  struct flock out = {};
  out.l_type = F_UNLCK;
  if (*found) {
    const FileLock& lock = **found;
    out.l_type = lock.type == LockType::kWrite ? F_WRLCK : F_RDLCK;
    out.l_whence = SEEK_SET;
    out.l_start = static_cast<off_t>(lock.first);
    out.l_len = lock.last == kLockEnd ? 0 : static_cast<off_t>(lock.last - lock.first + 1);
    out.l_pid = lock.pid;
  }
  fuse_reply_lock(req, &out);
  return true;
}

bool Flush(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, HandleId handle, uint64_t owner) {
  return ReplyStatus(req, s.fs().Flush(ctx, ino, handle, owner));
}

// The kernel has made the range absolute. False: it makes no sense.
bool Decode(const struct flock& in, uint64_t owner, int32_t pid, LockCall* call) {
  if (in.l_start < 0 || in.l_len < 0) return false;
  call->family = LockFamily::kRange;
  call->owner = owner;
  call->pid = pid;
  call->first = static_cast<uint64_t>(in.l_start);
  call->last = in.l_len == 0 ? kLockEnd : call->first + static_cast<uint64_t>(in.l_len) - 1;
  switch (in.l_type) {
    case F_RDLCK: call->type = LockType::kRead; break;
    case F_WRLCK: call->type = LockType::kWrite; break;
    case F_UNLCK: call->type = LockType::kUnlock; break;
    default: return false;
  }
  return call->last <= kLockEnd;
}

void RunSetLock(Session& s, fuse_req_t req, fuse_ino_t ino, HandleId handle, const LockCall& call) {
  if (call.wait) {
    s.RunLockWait(req, SetLock, s.InodeOf(ino), handle, call);
  } else {
    s.Run(req, SetLock, s.InodeOf(ino), handle, call);
  }
}

void OnGetLk(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi, struct flock* lock) {
  Session& s = SessionOf(req);
  LockCall call;
  if (!Decode(*lock, fi->lock_owner, s.current().lock_pid, &call)) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  s.Run(req, GetLock, s.InodeOf(ino), call);
}

void OnSetLk(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi, struct flock* lock, int sleep) {
  Session& s = SessionOf(req);
  LockCall call;
  if (!Decode(*lock, fi->lock_owner, s.current().lock_pid, &call)) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  call.wait = sleep != 0 && call.type != LockType::kUnlock;
  RunSetLock(s, req, ino, fi->fh, call);
}

void OnFlock(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi, int op) {
  Session& s = SessionOf(req);
  LockCall call;
  call.family = LockFamily::kWhole;
  call.owner = fi->lock_owner;
  call.pid = s.current().lock_pid;
  switch (op & ~LOCK_NB) {
    case LOCK_SH: call.type = LockType::kRead; break;
    case LOCK_EX: call.type = LockType::kWrite; break;
    case LOCK_UN: call.type = LockType::kUnlock; break;
    default: fuse_reply_err(req, EINVAL); return;
  }
  call.wait = !(op & LOCK_NB) && call.type != LockType::kUnlock;
  RunSetLock(s, req, ino, fi->fh, call);
}

void OnFlush(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Session& s = SessionOf(req);
  s.Run(req, Flush, s.InodeOf(ino), fi->fh, fi->lock_owner);
}

}  // namespace

void AddLockHandlers(fuse_lowlevel_ops* ops) {
  ops->getlk = OnGetLk;
  ops->setlk = OnSetLk;
  ops->flock = OnFlock;
  ops->flush = OnFlush;
}

}  // namespace archil::fuse
