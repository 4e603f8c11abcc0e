// FileLocks: the file locks of one mount (LOCK-1). Thread safe; its lock is a leaf.
//
// Life: local from the start (the session is alone, or there is no server), until Surrender and Moved; remote from then on. Calls that
// come while the locks are on their way wait. A wait goes on over the move with its place in the order.
//
// What ends a lock beside an unlock: close(2) of any descriptor of the file ends the fcntl locks of the owner that closes it
// (Close); the end of an open file ends what was taken through it (Release): flock, OFD, and the fcntl locks of owners that
// the kernel sends no close for.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/core/fs_api.h"
#include "common/api/context.h"
#include "common/base/result.h"
#include "common/env/sched.h"
#include "common/posix/lock_table.h"

namespace archil {

// The metadata server, as locks see it. Thread safe. Errors: kUnavailable and kUnknown may be asked again under the
// same id; kFenced and everything else is final.
class LockServer {
 public:
  virtual ~LockServer() = default;
  // Waits if request.waiter says so (its id is `id`); never answers kWaiting. Ids below `finished` do not come again.
  virtual Result<LockOutcome> Set(const OpContext& ctx, uint64_t id, uint64_t finished, const LockRequest& request) = 0;
  // True: it was granted before. False: it never will be.
  virtual Result<bool> Cancel(const OpContext& ctx, uint64_t id) = 0;
  virtual Result<std::optional<FileLock>> Test(const OpContext& ctx, const FileLock& lock) = 0;
};

class FileLocks {
 public:
  struct Moving {
    std::vector<FileLock> locks;
    std::vector<LockRequest> waiters;  // in order of arrival
  };

  // `server` may be null if Surrender is never called.
  FileLocks(Scheduler& scheduler, LockServer* server);
  ~FileLocks();  // Stop

  // Once, before any other call.
  void SetSession(SessionId session, bool local);

  // As FsApi::SetLock, TestLock.
  Status Set(const OpContext& ctx, InodeId ino, HandleId handle, const LockCall& call);
  Result<std::optional<FileLock>> Test(const OpContext& ctx, InodeId ino, const LockCall& call);
  // The owner's fcntl locks on the inode end, whatever becomes of the wait for it.
  Status Close(const OpContext& ctx, InodeId ino, uint64_t owner);
  // Everything that was taken through the open file, and through none other that is open. Never waits.
  void Release(InodeId ino, HandleId handle);

  // Others took what this mount held of the inode: it is forgotten. The open files that locks were taken through.
  std::set<HandleId> Lose(InodeId ino);

  // Are there fcntl locks of this mount on it?
  bool HasRanges(InodeId ino);
  // Others have come: everything, to be handed to the server; calls wait until Moved says that it has it.
  Moving Surrender();
  void Moved();
  bool local();
  // What the server must be told after it was restarted; empty while local.
  std::vector<FileLock> Held();
  // Calls with ids below it do not come (again).
  uint64_t FinishedCalls();
  // The mount is over: waits end with kIo.
  void Break();
  // Looks whether contexts of waits were cancelled.
  void Wake();
  // Ends the thread that unlocks in the background. Idempotent.
  void Stop();

  std::map<std::string, uint64_t> Metrics();

 private:
  enum class Mode : uint8_t { kLocal, kMoving, kRemote };
  using Place = std::tuple<InodeId, LockFamily, uint64_t /* owner */>;
  // Work of the thread in the background: an unlock, or first a wait to be given up, and its lock if it was granted.
  struct Unlock {
    uint64_t id = 0;
    std::optional<uint64_t> give_up;
    FileLock lock;
  };

  FileLock LockOf(InodeId ino, const LockCall& call) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Result<LockOutcome> SetLocal(const OpContext& ctx, LockRequest request, bool wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Result<LockOutcome> WaitLocal(const OpContext& ctx, LockRequest request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Result<LockOutcome> SetRemote(const OpContext& ctx, LockRequest request, bool wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `id` is one of calls_, and is taken out when the call is over.
  Result<LockOutcome> Ask(const OpContext& ctx, uint64_t id, const LockRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Result<LockOutcome> GiveUp(uint64_t id, const LockRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until the locks are here or there, and what is being unlocked of the file, by whomever, is: a lock that was given up
  // before this call is free.
  Status Settled(const OpContext& ctx, InodeId ino, LockFamily family) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Keep(const FileLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Owns(const Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetHandles(const Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UnlockInBackground(Unlock unlock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ids below it are never sent again.
  uint64_t Finished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return calls_.empty() ? next_id_ : *calls_.begin(); }
  void Tell(const std::vector<WaiterId>& granted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Result<LockOutcome> Send(const OpContext& ctx, uint64_t id, const LockRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool RunUnlock(const Unlock& unlock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UnlockLoop();

  Scheduler& scheduler_;
  LockServer* const server_;
  CancelFlag stop_;  // ends what the background asks
  Mutex mu_;
  CondVar changed_;
  Mode mode_ ABSL_GUARDED_BY(mu_) = Mode::kLocal;
  SessionId session_ ABSL_GUARDED_BY(mu_);
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  LockTable table_ ABSL_GUARDED_BY(mu_);  // while local
  // While remote: what is held, by owner. May show a lock too many, when two threads of one process lock and unlock the same
  // bytes at the same time, never one too few.
  std::map<uint64_t, LockTable> held_ ABSL_GUARDED_BY(mu_);
  std::map<HandleId, std::set<Place>> through_ ABSL_GUARDED_BY(mu_);
  std::map<Place, std::set<HandleId>> handles_of_ ABSL_GUARDED_BY(mu_);
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::set<uint64_t> calls_ ABSL_GUARDED_BY(mu_);  // ids that may be sent (again)
  std::set<uint64_t> granted_ ABSL_GUARDED_BY(mu_);  // local waits that were let through and do not know yet
  std::deque<Unlock> unlocks_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<InodeId, LockFamily>, size_t> unlocking_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Thread> unlocker_ ABSL_GUARDED_BY(mu_);
  uint64_t waits_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t rpcs_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t interrupted_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace archil
