// LockBook: the file locks of one disk, and which calls for them were answered with what. Pure, as the other tables; the strand
// serialises. In memory only: after a restart sessions reclaim what they hold and ask again for what they wait for.
//
// A call is done once, however often it comes: its outcome is remembered until the session says that it will not come again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/api/meta_service.h"
#include "common/base/result.h"
#include "common/posix/lock_table.h"

namespace archil {

class LockBook {
 public:
  explicit LockBook(LockLimits limits = {}) : limits_(limits) {}

  // kWaiting: the answer comes by TakeEnded. kInvalid: no such lock, or the call is over; kInterrupted: it was given up;
  // kTryAgain: too many calls are remembered.
  Result<LockOutcome> Set(BranchId branch, const SetLockRequest& request);
  // The session's calls below do not come (again); a copy of one is refused.
  void Finished(SessionId session, uint64_t below);
  // True: granted before. False: it never will be; if it waits, that ends.
  Result<bool> Cancel(BranchId branch, SessionId session, uint64_t id);
  std::optional<FileLock> Test(BranchId branch, const FileLock& lock) const;

  // As of LockTable.
  std::set<SessionId> SessionsAgainst(BranchId branch, const FileLock& lock) const;
  // Inodes of which the session holds what somebody of another session waits for.
  std::vector<InodeId> BlockedBy(BranchId branch, SessionId session) const;
  // What the session holds of the inode ends; its waits go on.
  void TakeFrom(BranchId branch, SessionId session, InodeId ino);

  // What a session kept to itself while it was alone, or held before a restart. The locks it has already are held once. kFenced:
  // others hold what conflicts, and nothing was taken over.
  Status Adopt(BranchId branch, SessionId session, const std::vector<FileLock>& locks, const std::vector<LockRequest>& waiters);
  void EndSession(BranchId branch, SessionId session);

  // Waits that have ended since, in order; all of them were granted.
  std::vector<WaiterId> TakeEnded();
  bool empty() const;
  size_t lock_count() const;

 private:
  struct Calls {
    uint64_t finished = 0;
    std::map<uint64_t, LockOutcome> outcomes;  // from `finished` on; kWaiting: it waits, or waited and the answer is on its way
    std::set<uint64_t> given_up;
  };
  LockTable& TableOf(BranchId branch) { return tables_.try_emplace(branch, limits_).first->second; }
  void Note(const std::vector<WaiterId>& granted);
  void DropIfEmpty(BranchId branch);

  const LockLimits limits_;
  std::map<BranchId, LockTable> tables_;
  std::map<SessionId, Calls> calls_;
  std::vector<WaiterId> ended_;
};

}  // namespace archil
