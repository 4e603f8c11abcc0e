#include "client/locks/file_locks.h"

#include <algorithm>

#include "common/env/release_lock.h"

namespace archil {
namespace {

constexpr absl::Duration kWaitAttempt = absl::Seconds(20);  // of one request that waits at the server
constexpr absl::Duration kAttempt = absl::Seconds(5);
constexpr absl::Duration kGiveUp = absl::Seconds(2);  // how long an interrupted call waits to hear what became of it
constexpr absl::Duration kPause = absl::Milliseconds(100);

bool MayAskAgain(Code code) {
  const Band band = BandOf(code);
  return band == Band::kNotApplied || band == Band::kUnknown;
}

FileLock AllOf(FileLock lock) {
  lock.type = LockType::kUnlock;
  lock.first = 0;
  lock.last = kLockEnd;
  return lock;
}

Status StatusOf(LockOutcome outcome) {
  switch (outcome) {
    case LockOutcome::kDone: return Ok();
    case LockOutcome::kConflict: return Code::kTryAgain;
    case LockOutcome::kDeadlock: return Code::kDeadlock;
    case LockOutcome::kFull: return Code::kNoLocks;
    case LockOutcome::kWaiting: break;
  }
  return Code::kInternal;
}

}  // namespace

FileLocks::FileLocks(Scheduler& scheduler, LockServer* server)
    : scheduler_(scheduler), server_(server), mu_(scheduler), changed_(scheduler) {}

FileLocks::~FileLocks() { Stop(); }

void FileLocks::SetSession(SessionId session, bool local) {
  MutexLock lock(mu_);
  session_ = session;
  mode_ = local ? Mode::kLocal : Mode::kRemote;
}

FileLock FileLocks::LockOf(InodeId ino, const LockCall& call) const {
  return {ino, call.family, {session_, call.owner}, call.type, call.first, call.last, call.pid};
}

Status FileLocks::Settled(const OpContext& ctx, InodeId ino, LockFamily family) {
  while (mode_ == Mode::kMoving || unlocking_.contains({ino, family})) {
    if (broken_) return Code::kIo;
    if (!ctx.may_block) return Code::kWouldBlock;
    if (ctx.cancelled()) return Code::kInterrupted;
    if (changed_.WaitUntil(mu_, ctx.deadline)) return Code::kIo;
  }
  return broken_ ? Status(Code::kIo) : Ok();
}

Status FileLocks::Set(const OpContext& ctx, InodeId ino, HandleId handle, const LockCall& call) {
  MutexLock lock(mu_);
  const Place place{ino, call.family, call.owner};
  ARCHIL_RETURN_IF_ERROR(Settled(ctx, ino, call.family));
  const LockRequest request{LockOf(ino, call), std::nullopt, call.detect_deadlock};
  if (!IsValid(request.lock)) return Code::kInvalid;
  const bool unlock = call.type == LockType::kUnlock;
  if (unlock && !Owns(place) && !handles_of_.contains(place)) return Ok();
  const Result<LockOutcome> outcome =
      mode_ == Mode::kLocal ? SetLocal(ctx, request, call.wait) : SetRemote(ctx, request, call.wait);
  if (outcome.ok() && *outcome == LockOutcome::kDone) {
    if (!unlock) {
      through_[handle].insert(place);
      handles_of_[place].insert(handle);
    } else if (!Owns(place)) {
      ForgetHandles(place);
    }
  }
  return outcome.ok() ? StatusOf(*outcome) : Status(outcome.error());
}

// ---- here

Result<LockOutcome> FileLocks::SetLocal(const OpContext& ctx, LockRequest request, bool wait) {
  std::vector<WaiterId> granted;
  const LockOutcome outcome = table_.Set(request, &granted);
  Tell(granted);
  if (outcome != LockOutcome::kConflict || !wait) return outcome;
  if (!ctx.may_block) return Code::kWouldBlock;
  return WaitLocal(ctx, request);
}

Result<LockOutcome> FileLocks::WaitLocal(const OpContext& ctx, LockRequest request) {
  const uint64_t id = next_id_++;
  request.waiter = id;
  calls_.insert(id);
  std::vector<WaiterId> granted;
  const LockOutcome outcome = table_.Set(request, &granted);
  Tell(granted);
  if (outcome != LockOutcome::kWaiting) {
    calls_.erase(id);
    return outcome;
  }
  ++waits_;
  for (;;) {
    if (granted_.erase(id) != 0) {
      calls_.erase(id);
      return LockOutcome::kDone;
    }
    // With the others it has moved to the server, or is on its way there.
    if (mode_ == Mode::kRemote) return Ask(ctx, id, request);
    if (broken_ || (ctx.cancelled() && mode_ == Mode::kLocal)) {
      std::vector<WaiterId> others;
      (void)table_.Cancel({session_, id}, &others);
      Tell(others);
      calls_.erase(id);
      if (broken_) return Code::kIo;
      ++interrupted_;
      return Code::kInterrupted;
    }
    changed_.Wait(mu_);
  }
}

void FileLocks::Tell(const std::vector<WaiterId>& granted) {
  for (const WaiterId& waiter : granted) granted_.insert(waiter.id);
  if (!granted.empty()) changed_.SignalAll();
}

// ---- at the server

Result<LockOutcome> FileLocks::SetRemote(const OpContext& ctx, LockRequest request, bool wait) {
  if (!ctx.may_block) return Code::kWouldBlock;
  const uint64_t id = next_id_++;
  calls_.insert(id);
  if (wait) {
    request.waiter = id;
    ++waits_;
  }
  return Ask(ctx, id, request);
}

Result<LockOutcome> FileLocks::Send(const OpContext& ctx, uint64_t id, const LockRequest& request) {
  const uint64_t finished = Finished();
  const absl::Duration limit = request.waiter ? kWaitAttempt : kAttempt;
  const OpContext attempt = ctx.WithDeadline(scheduler_.clock().Boot() + limit);
  ++rpcs_;
  const ReleaseLock unlocked(mu_);
  return server_->Set(attempt, id, finished, request);
}

Result<LockOutcome> FileLocks::Ask(const OpContext& ctx, uint64_t id, const LockRequest& request) {
  const bool unlock = request.lock.type == LockType::kUnlock;
  if (unlock) Keep(request.lock);  // what is being unlocked is not reclaimed
  for (;;) {
    const Result<LockOutcome> outcome = Send(ctx, id, request);
    if (outcome.ok()) {
      calls_.erase(id);
      if (*outcome == LockOutcome::kDone && !unlock) Keep(request.lock);
      // flock(2): an upgrade that failed has lost the lock.
      if (*outcome != LockOutcome::kDone && request.lock.family == LockFamily::kWhole) Keep(AllOf(request.lock));
      return outcome;
    }
    if (broken_ || !MayAskAgain(outcome.code())) {
      calls_.erase(id);
      return Error(Code::kIo, outcome.error().ToString());
    }
    const bool late = scheduler_.clock().Boot() >= ctx.deadline;
    if (late || ctx.cancelled()) {
      const Result<LockOutcome> end = GiveUp(id, request);
      if (end.code() == Code::kInterrupted && !ctx.cancelled()) return Error(Code::kIo, outcome.error().ToString());
      return end;
    }
    changed_.WaitUntil(mu_, std::min(ctx.deadline, scheduler_.clock().Boot() + kPause));
  }
}

// The caller waits no more. What the server says has happened has happened; if it says nothing the call is undone later.
Result<LockOutcome> FileLocks::GiveUp(uint64_t id, const LockRequest& request) {
  ++interrupted_;
  const FileLock& lock = request.lock;
  if (lock.type == LockType::kUnlock) {
    UnlockInBackground({id, std::nullopt, lock});
    return Code::kInterrupted;
  }
  OpContext ctx;
  ctx.deadline = scheduler_.clock().Boot() + kGiveUp;
  Result<bool> granted = Code::kUnavailable;
  ++rpcs_;
  {
    const ReleaseLock unlocked(mu_);
    granted = server_->Cancel(ctx, id);
  }
  if (granted.ok()) calls_.erase(id);
  if (granted.ok() && *granted) {
    Keep(lock);
    return LockOutcome::kDone;
  }
  if (lock.family == LockFamily::kWhole) Keep(AllOf(lock));
  if (!granted.ok() && !MayAskAgain(granted.code())) {
    calls_.erase(id);
    return Code::kIo;
  }
  if (!granted.ok()) {
    FileLock undo = lock;
    undo.type = LockType::kUnlock;
    const uint64_t undo_id = next_id_++;
    calls_.insert(undo_id);
    UnlockInBackground({undo_id, id, undo});
  }
  return Code::kInterrupted;
}

void FileLocks::UnlockInBackground(Unlock unlock) {
  if (broken_ || stopping_) {
    calls_.erase(unlock.id);
    return;
  }
  ++unlocking_[{unlock.lock.ino, unlock.lock.family}];
  unlocks_.push_back(std::move(unlock));
  if (unlocker_ == nullptr) unlocker_ = scheduler_.Spawn("unlocker", [this] { UnlockLoop(); });
  changed_.SignalAll();
}

// True when there is nothing more to do for it.
bool FileLocks::RunUnlock(const Unlock& unlock) {
  OpContext ctx;
  ctx.cancel = &stop_;
  if (unlock.give_up && calls_.contains(*unlock.give_up)) {
    ctx.deadline = scheduler_.clock().Boot() + kAttempt;
    Result<bool> granted = false;
    {
      const ReleaseLock unlocked(mu_);
      granted = server_->Cancel(ctx, *unlock.give_up);
    }
    if (!granted.ok() && MayAskAgain(granted.code())) return false;
    calls_.erase(*unlock.give_up);
    if (!granted.ok() || !*granted) return true;
  }
  ctx.deadline = BootTime::Infinite();
  const Result<LockOutcome> outcome = Send(ctx, unlock.id, {unlock.lock, std::nullopt, false});
  return outcome.ok() || !MayAskAgain(outcome.code());
}

void FileLocks::UnlockLoop() {
  MutexLock lock(mu_);
  for (;;) {
    while ((unlocks_.empty() || mode_ == Mode::kMoving) && !stopping_ && !broken_) changed_.Wait(mu_);
    if (stopping_ || broken_) break;
    const Unlock unlock = unlocks_.front();
    if (!RunUnlock(unlock)) {
      changed_.WaitUntil(mu_, scheduler_.clock().Boot() + kPause);
      continue;
    }
    unlocks_.pop_front();
    calls_.erase(unlock.id);
    const std::pair<InodeId, LockFamily> file{unlock.lock.ino, unlock.lock.family};
    if (--unlocking_[file] == 0) unlocking_.erase(file);
    changed_.SignalAll();
  }
  unlocks_.clear();
  unlocking_.clear();
  changed_.SignalAll();
}

// ---- the rest

Result<std::optional<FileLock>> FileLocks::Test(const OpContext& ctx, InodeId ino, const LockCall& call) {
  MutexLock lock(mu_);
  ARCHIL_RETURN_IF_ERROR(Settled(ctx, ino, call.family));
  const FileLock wanted = LockOf(ino, call);
  if (!IsValid(wanted) || wanted.type == LockType::kUnlock) return Code::kInvalid;
  if (mode_ == Mode::kLocal) return table_.Test(wanted);
  if (!ctx.may_block) return Code::kWouldBlock;
  for (;;) {
    Result<std::optional<FileLock>> found = Code::kUnavailable;
    ++rpcs_;
    {
      const ReleaseLock unlocked(mu_);
      found = server_->Test(ctx.WithDeadline(scheduler_.clock().Boot() + kAttempt), wanted);
    }
    // A number of another machine's process means nothing here.
    if (found.ok() && *found && (*found)->owner.session != session_) (*found)->pid = 0;
    if (found.ok()) return found;
    if (ctx.cancelled()) return Code::kInterrupted;
    if (broken_ || !MayAskAgain(found.code()) || scheduler_.clock().Boot() >= ctx.deadline) return Code::kIo;
    changed_.WaitUntil(mu_, std::min(ctx.deadline, scheduler_.clock().Boot() + kPause));
  }
}

Status FileLocks::Close(const OpContext& ctx, InodeId ino, uint64_t owner) {
  MutexLock lock(mu_);
  const Place place{ino, LockFamily::kRange, owner};
  if (!handles_of_.contains(place)) return Ok();
  if (mode_ != Mode::kLocal && !ctx.may_block) return Code::kWouldBlock;
  ForgetHandles(place);
  const FileLock all{ino, LockFamily::kRange, {session_, owner}, LockType::kUnlock, 0, kLockEnd, 0};
  if (mode_ == Mode::kLocal) {
    std::vector<WaiterId> granted;
    table_.Release(ino, LockFamily::kRange, all.owner, &granted);
    Tell(granted);
    return Ok();
  }
  if (mode_ == Mode::kMoving) {
    Keep(all);
    const uint64_t id = next_id_++;
    calls_.insert(id);
    UnlockInBackground({id, std::nullopt, all});
    return Settled(ctx, ino, LockFamily::kRange);
  }
  const Result<LockOutcome> outcome = SetRemote(ctx, {all, std::nullopt, false}, false);
  return outcome.ok() ? StatusOf(*outcome) : Status(outcome.error());
}

void FileLocks::Release(InodeId ino, HandleId handle) {
  MutexLock lock(mu_);
  const auto found = through_.find(handle);
  if (found == through_.end()) return;
  const std::set<Place> places = std::move(found->second);
  through_.erase(found);
  for (const Place& place : places) {
    const auto handles = handles_of_.find(place);
    if (handles == handles_of_.end()) continue;
    handles->second.erase(handle);
    if (!handles->second.empty()) continue;
    handles_of_.erase(handles);
    const auto& [unused, family, owner] = place;
    const FileLock all{ino, family, {session_, owner}, LockType::kUnlock, 0, kLockEnd, 0};
    if (mode_ == Mode::kLocal) {
      std::vector<WaiterId> granted;
      table_.Release(ino, family, all.owner, &granted);
      Tell(granted);
      continue;
    }
    Keep(all);
    const uint64_t id = next_id_++;
    calls_.insert(id);
    UnlockInBackground({id, std::nullopt, all});
  }
}

std::set<HandleId> FileLocks::Lose(InodeId ino) {
  MutexLock lock(mu_);
  std::set<HandleId> handles;
  std::vector<Place> places;
  for (auto it = handles_of_.lower_bound({ino, LockFamily::kRange, 0}); it != handles_of_.end() && std::get<0>(it->first) == ino; ++it) {
    places.push_back(it->first);
    handles.insert(it->second.begin(), it->second.end());
  }
  for (const Place& place : places) {
    const auto& [unused, family, owner] = place;
    const LockOwner who{session_, owner};
    Keep({ino, family, who, LockType::kUnlock, 0, kLockEnd, 0});
    std::vector<WaiterId> granted;
    if (table_.Release(ino, family, who, &granted)) Tell(granted);
    ForgetHandles(place);
  }
  return handles;
}

bool FileLocks::HasRanges(InodeId ino) {
  MutexLock lock(mu_);
  const auto it = handles_of_.lower_bound({ino, LockFamily::kRange, 0});
  return it != handles_of_.end() && std::get<0>(it->first) == ino && std::get<1>(it->first) == LockFamily::kRange;
}

void FileLocks::Keep(const FileLock& lock) {
  LockTable& mine = held_[lock.owner.id];  // of one owner, so nothing in it is in the way
  std::vector<WaiterId> none;
  (void)mine.Set({lock, std::nullopt, false}, &none);
  if (mine.lock_count() == 0) held_.erase(lock.owner.id);
}

bool FileLocks::Owns(const Place& place) {
  const auto& [ino, family, owner] = place;
  if (mode_ == Mode::kLocal) return table_.Holds(ino, family, {session_, owner});
  const auto it = held_.find(owner);
  return it != held_.end() && it->second.Holds(ino, family, {session_, owner});
}

void FileLocks::ForgetHandles(const Place& place) {
  const auto it = handles_of_.find(place);
  if (it == handles_of_.end()) return;
  for (const HandleId handle : it->second) {
    const auto through = through_.find(handle);
    if (through == through_.end()) continue;
    through->second.erase(place);
    if (through->second.empty()) through_.erase(through);
  }
  handles_of_.erase(it);
}

FileLocks::Moving FileLocks::Surrender() {
  MutexLock lock(mu_);
  if (mode_ == Mode::kRemote) return {};
  mode_ = Mode::kMoving;
  Moving moving{table_.Locks(), table_.Waiters()};
  // Asked for again with the same answer: what came in between waits.
  held_.clear();
  for (const FileLock& held : moving.locks) Keep(held);
  return moving;
}

void FileLocks::Moved() {
  MutexLock lock(mu_);
  if (mode_ != Mode::kMoving) return;
  mode_ = Mode::kRemote;
  std::vector<WaiterId> none;
  table_.ReleaseSession(session_, &none);
  changed_.SignalAll();
}

bool FileLocks::local() {
  MutexLock lock(mu_);
  return mode_ == Mode::kLocal;
}

uint64_t FileLocks::FinishedCalls() {
  MutexLock lock(mu_);
  return Finished();
}

std::vector<FileLock> FileLocks::Held() {
  MutexLock lock(mu_);
  std::vector<FileLock> all;
  if (mode_ != Mode::kRemote) return all;
  for (const auto& [owner, table] : held_) {
    for (const FileLock& held : table.Locks()) all.push_back(held);
  }
  return all;
}

void FileLocks::Break() {
  MutexLock lock(mu_);
  broken_ = true;
  stop_.Cancel();
  changed_.SignalAll();
}

void FileLocks::Wake() {
  MutexLock lock(mu_);
  changed_.SignalAll();
}

void FileLocks::Stop() {
  std::unique_ptr<Thread> unlocker;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    stop_.Cancel();
    unlocker = std::move(unlocker_);
    changed_.SignalAll();
  }
  if (unlocker != nullptr) unlocker->Join();
}

std::map<std::string, uint64_t> FileLocks::Metrics() {
  MutexLock lock(mu_);
  size_t held = table_.lock_count();
  if (mode_ != Mode::kLocal) {
    held = 0;
    for (const auto& [owner, table] : held_) held += table.lock_count();
  }
  return {{"locks_held", held},
          {"locks_local", mode_ == Mode::kLocal},
          {"lock_waits", waits_},
          {"lock_waits_interrupted", interrupted_},
          {"rpc_lock", rpcs_}};
}

}  // namespace archil
