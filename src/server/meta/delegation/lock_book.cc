#include "server/meta/delegation/lock_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace archil {
namespace {

constexpr size_t kMaxCalls = 16384;  // of a session that are remembered

Status Check(SessionId session, const LockRequest& request) {
  if (!IsValid(request.lock)) return Error(Code::kInvalid, "no lock has such a range, type or family");
  if (request.lock.owner.session != session) return Error(Code::kInvalid, "the owner of the lock is not of this session");
  if (request.lock.type == LockType::kUnlock && request.waiter) return Error(Code::kInvalid, "an unlock does not wait");
  return Ok();
}

}  // namespace

Result<LockOutcome> LockBook::Set(BranchId branch, const SetLockRequest& request) {
  ARCHIL_RETURN_IF_ERROR(Check(request.session, request.request));
  if (request.request.waiter && *request.request.waiter != request.id) return Error(Code::kInvalid, "a wait has the id of its call");
  Finished(request.session, request.finished);
  Calls& calls = calls_[request.session];
  if (request.id < calls.finished) return Error(Code::kInvalid, fmt::format("call {} is over", request.id));
  if (calls.given_up.contains(request.id)) return Error(Code::kInterrupted, "the call was given up");
  if (const auto known = calls.outcomes.find(request.id); known != calls.outcomes.end()) return known->second;
  if (calls.outcomes.size() + calls.given_up.size() >= kMaxCalls) return Error(Code::kTryAgain, "too many calls for locks");
  std::vector<WaiterId> granted;
  const LockOutcome outcome = TableOf(branch).Set(request.request, &granted);
  calls.outcomes[request.id] = outcome;
  Note(granted);
  DropIfEmpty(branch);
  return outcome;
}

void LockBook::Finished(SessionId session, uint64_t below) {
  Calls& calls = calls_[session];
  calls.finished = std::max(calls.finished, below);
  calls.outcomes.erase(calls.outcomes.begin(), calls.outcomes.lower_bound(calls.finished));
  calls.given_up.erase(calls.given_up.begin(), calls.given_up.lower_bound(calls.finished));
}

Result<bool> LockBook::Cancel(BranchId branch, SessionId session, uint64_t id) {
  Calls& calls = calls_[session];
  if (id < calls.finished) return Error(Code::kInvalid, fmt::format("call {} is over", id));
  const auto known = calls.outcomes.find(id);
  if (known != calls.outcomes.end() && known->second != LockOutcome::kWaiting) return known->second == LockOutcome::kDone;
  if (calls.given_up.size() >= kMaxCalls) return Error(Code::kTryAgain, "too many calls for locks");
  if (known != calls.outcomes.end()) calls.outcomes.erase(known);
  calls.given_up.insert(id);
  std::vector<WaiterId> granted;
  TableOf(branch).Cancel({session, id}, &granted);
  Note(granted);
  DropIfEmpty(branch);
  return false;
}

std::optional<FileLock> LockBook::Test(BranchId branch, const FileLock& lock) const {
  const auto table = tables_.find(branch);
  return table == tables_.end() ? std::nullopt : table->second.Test(lock);
}

std::set<SessionId> LockBook::SessionsAgainst(BranchId branch, const FileLock& lock) const {
  const auto table = tables_.find(branch);
  return table == tables_.end() ? std::set<SessionId>() : table->second.SessionsAgainst(lock);
}

std::vector<InodeId> LockBook::BlockedBy(BranchId branch, SessionId session) const {
  const auto table = tables_.find(branch);
  return table == tables_.end() ? std::vector<InodeId>() : table->second.BlockedBy(session);
}

void LockBook::TakeFrom(BranchId branch, SessionId session, InodeId ino) {
  const auto table = tables_.find(branch);
  if (table == tables_.end()) return;
  std::vector<WaiterId> granted;
  table->second.ReleaseInode(session, ino, &granted);
  Note(granted);
  DropIfEmpty(branch);
}

Status LockBook::Adopt(BranchId branch, SessionId session, const std::vector<FileLock>& locks, const std::vector<LockRequest>& waiters) {
  for (const FileLock& lock : locks) {
    ARCHIL_RETURN_IF_ERROR(Check(session, {lock, std::nullopt, false}));
    if (lock.type == LockType::kUnlock) return Error(Code::kInvalid, "an unlock is no lock");
  }
  for (const LockRequest& waiter : waiters) {
    ARCHIL_RETURN_IF_ERROR(Check(session, waiter));
    if (!waiter.waiter) return Error(Code::kInvalid, "a wait without an id");
  }
  if (locks.empty() && waiters.empty()) return Ok();
  LockTable& table = TableOf(branch);
  for (const FileLock& lock : locks) {
    if (table.Test(lock)) return Error(Code::kFenced, fmt::format("another session holds a lock on {} that it claims", lock.ino.value));
  }
  Calls& calls = calls_[session];
  if (waiters.size() + calls.outcomes.size() > kMaxCalls) return Error(Code::kInvalid, "too many waits");
  for (const FileLock& lock : locks) {
    if (table.Restore(lock) == LockOutcome::kFull) return Error(Code::kInvalid, "too many locks");
  }
  for (const LockRequest& waiter : waiters) {
    if (calls.given_up.contains(*waiter.waiter) || calls.outcomes.contains(*waiter.waiter)) continue;
    std::vector<WaiterId> granted;
    const LockOutcome outcome = table.Set(waiter, &granted);
    calls.outcomes[*waiter.waiter] = outcome;
    Note(granted);
  }
  return Ok();
}

void LockBook::EndSession(BranchId branch, SessionId session) {
  calls_.erase(session);
  const auto table = tables_.find(branch);
  if (table == tables_.end()) return;
  std::vector<WaiterId> granted;
  table->second.ReleaseSession(session, &granted);
  Note(granted);
  DropIfEmpty(branch);
}

void LockBook::Note(const std::vector<WaiterId>& granted) {
  for (const WaiterId& waiter : granted) {
    calls_[waiter.session].outcomes[waiter.id] = LockOutcome::kDone;
    ended_.push_back(waiter);
  }
}

void LockBook::DropIfEmpty(BranchId branch) {
  const auto table = tables_.find(branch);
  if (table != tables_.end() && table->second.lock_count() + table->second.waiter_count() == 0) tables_.erase(table);
}

std::vector<WaiterId> LockBook::TakeEnded() { return std::exchange(ended_, {}); }

bool LockBook::empty() const { return tables_.empty(); }

size_t LockBook::lock_count() const {
  size_t count = 0;
  for (const auto& [branch, table] : tables_) count += table.lock_count();
  return count;
}

}  // namespace archil
