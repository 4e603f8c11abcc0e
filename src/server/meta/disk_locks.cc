// File locks (LOCK-1): the book decides on the strand; who waits is answered when it has been let through. A grant is answered when
// the log is durable up to it, as everything: the end of the session that held the lock before is in the log then (FEN-1).
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/meta/disk.h"

namespace archil {

Result<BranchId> Disk::LocksKnown(DiskCore& core, SessionId session, InodeId ino) {
  const Holder* self = core.table.Find(session);
  if (self == nullptr) return Error(Code::kFenced, "the session has ended");
  if (!core.table.LocksKnown(session, ino)) {
    return Error(Code::kUnavailable, "another session has not said yet which locks it holds: it was alone, or the server was restarted");
  }
  return self->branch;
}

// FENCE-1: the locks of a session that has not been heard for its lease are free for whoever wants them. One that was alone may hold any.
Status Disk::TakeSilentLocks(DiskCore& core, BranchId branch, SessionId session, const FileLock& lock) {
  if (lock.type == LockType::kUnlock) return Ok();
  const BootTime now = host_.Now();
  const std::set<SessionId> against = core.locks.SessionsAgainst(branch, lock);
  for (const Holder& holder : core.table.OnBranch(branch)) {
    if (holder.session == session || !holder.lease.Expired(now)) continue;
    const bool any = core.table.AloneNumber(holder.session) != 0 && !core.table.LocksTaken(holder.session, lock.ino);
    if (!any && !against.contains(holder.session)) continue;
    if (core.flushing) return Error(Code::kUnavailable, "the state is being made durable");
    if (core.table.MayTake(holder.session, now)) {
      ARCHIL_RETURN_IF_ERROR(Take(core, holder.session, {{lock.ino, false, true}}));
    } else {
      ++host_.metrics.silent_ended;
      ARCHIL_RETURN_IF_ERROR(EndSession(core, holder.session, true, core.table.SilentReason(holder.session, session, now)));
    }
  }
  return Ok();
}

void Disk::SetLock(SetLockRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<LockOutcome> done) {
  const uint64_t wait = next_wait_.fetch_add(1);
  auto shared = std::make_shared<const SetLockRequest>(std::move(request));
  Run<LockOutcome>(Kind::kRead, std::move(done), [this, wait, deadline, shared, received = host_.Now()](DiskCore& core, Done<LockOutcome> done) {
    if (host_.draining.load()) return done(Error(Code::kUnavailable, "the server is stopping"));
    const auto set = [&]() -> Result<LockOutcome> {
      ARCHIL_RETURN_IF_ERROR(LiveSession(core, shared->session, &shared->key, received));
      ARCHIL_RETURN_IF_ERROR(TakeSilentLocks(core, core.sessions[shared->session].branch, shared->session, shared->request.lock));
      ARCHIL_ASSIGN_OR_RETURN(const BranchId branch, LocksKnown(core, shared->session, shared->request.lock.ino));
      ++host_.metrics.lock_calls;
      return core.locks.Set(branch, *shared);
    };
    const Result<LockOutcome> outcome = set();
    if (outcome.ok() && *outcome == LockOutcome::kWaiting) {
      DiskCore::LockWait& slot = core.lock_waits[{shared->session, shared->id}];
      // One at a time: the older one's caller has left, or asks again.
      if (slot.done) slot.done(Error(Code::kUnavailable, "the call was asked again"));
      slot = {wait, deadline, done};
      ++host_.metrics.lock_waits;
      core.lock_look = std::min(core.lock_look, host_.Now());
    } else {
      Reply(core, Kind::kRead, done, outcome);
    }
    AnswerLocks(core);
    if (!core.lock_waits.empty()) SettleSoon();
  });
  OnCancel(ticket, wait);
}

void Disk::CancelLock(SessionId session, SessionKey key, uint64_t id, Done<bool> done) {
  Run<bool>(Kind::kRead, std::move(done), [this, session, key, id, received = host_.Now()](DiskCore& core, Done<bool> done) {
    const auto cancel = [&]() -> Result<bool> {
      ARCHIL_ASSIGN_OR_RETURN(const SessionRecord* rec, LiveSession(core, session, &key, received));
      return core.locks.Cancel(rec->branch, session, id);
    };
    const Result<bool> granted = cancel();
    if (granted.ok() && !*granted) {
      if (auto waited = core.lock_waits.extract({session, id})) waited.mapped().done(Error(Code::kInterrupted, "the call was given up"));
    }
    Reply(core, Kind::kRead, done, granted);
    AnswerLocks(core);
  });
}

void Disk::TestLock(SessionId session, SessionKey key, FileLock lock, Done<std::optional<FileLock>> done) {
  using Found = std::optional<FileLock>;
  Run<Found>(Kind::kRead, std::move(done), [this, session, key, lock, received = host_.Now()](DiskCore& core, Done<Found> done) {
    const auto test = [&]() -> Result<Found> {
      ARCHIL_RETURN_IF_ERROR(LiveSession(core, session, &key, received));
      if (!IsValid(lock) || lock.owner.session != session) return Error(Code::kInvalid, "no lock of this session has such a range");
      ARCHIL_RETURN_IF_ERROR(TakeSilentLocks(core, core.sessions[session].branch, session, lock));
      ARCHIL_ASSIGN_OR_RETURN(const BranchId branch, LocksKnown(core, session, lock.ino));
      return core.locks.Test(branch, lock);
    };
    Reply(core, Kind::kRead, done, test());
    AnswerLocks(core);
  });
}

// --- waits

void Disk::AnswerLocks(DiskCore& core) {
  for (const WaiterId& waiter : core.locks.TakeEnded()) {
    auto wait = core.lock_waits.extract(waiter);
    if (!wait) continue;  // its caller asks again
    Reply(core, Kind::kRead, wait.mapped().done, Result<LockOutcome>(LockOutcome::kDone));
  }
}

void Disk::LookAtLocks(DiskCore& core, BootTime now, DelegationEffects& out) {
  AnswerLocks(core);
  if (core.lock_waits.empty()) return;
  for (auto it = core.lock_waits.begin(); it != core.lock_waits.end();) {
    if (now < it->second.deadline) {
      ++it;
      continue;
    }
    Reply(core, Kind::kRead, it->second.done, Result<LockOutcome>(Error(Code::kUnavailable, "the lock is not free yet")));
    it = core.lock_waits.erase(it);
  }
  if (now < core.lock_look) return;
  core.lock_look = BootTime::Infinite();
  for (const Holder& holder : core.table.Holders()) {
    if (!holder.lease.Expired(now)) {
      core.lock_look = std::min(core.lock_look, now + core.table.LeaseLeft(holder.session, now));
      continue;
    }
    const std::vector<InodeId> blocked = core.locks.BlockedBy(holder.branch, holder.session);
    for (const InodeId ino : blocked) {
      if (core.table.MayTake(holder.session, now)) out.takes.push_back({holder.session, {ino, false, true}});
    }
    if (!blocked.empty() && !core.table.MayTake(holder.session, now)) {
      out.ends.push_back({holder.session, "its lease had run out and a file lock that it held was wanted"});
    }
  }
}

BootTime Disk::NextLockLook(const DiskCore& core) const {
  if (core.lock_waits.empty()) return BootTime::Infinite();
  BootTime next = core.lock_look;
  for (const auto& [waiter, wait] : core.lock_waits) next = std::min(next, wait.deadline);
  return next;
}

std::vector<FileLock> Disk::Untaken(DiskCore& core, SessionId session, const std::vector<FileLock>& locks) {
  std::vector<FileLock> out;
  std::copy_if(locks.begin(), locks.end(), std::back_inserter(out),
               [&](const FileLock& lock) { return !core.table.LocksTaken(session, lock.ino); });
  return out;
}

void Disk::EndLocks(DiskCore& core, SessionId session, BranchId branch, const Error& error) {
  core.locks.EndSession(branch, session);
  for (auto it = core.lock_waits.lower_bound({session, 0}); it != core.lock_waits.end() && it->first.session == session;) {
    Reply(core, Kind::kRead, it->second.done, Result<LockOutcome>(error));
    it = core.lock_waits.erase(it);
  }
  AnswerLocks(core);
}

void Disk::FailLockWaits(DiskCore& core, const Error& error) {
  for (auto& [waiter, wait] : std::exchange(core.lock_waits, {})) wait.done(error);
}

// The caller has left; its place stays until the session gives it up or asks again.
void Disk::CancelLockWait(DiskCore& core, uint64_t wait, const Error& error) {
  for (auto it = core.lock_waits.begin(); it != core.lock_waits.end(); ++it) {
    if (it->second.id != wait) continue;
    it->second.done(error);
    core.lock_waits.erase(it);
    return;
  }
}

}  // namespace archil
