// LockTable: who holds and who waits for file locks, as fcntl(2) and flock(2) have them on Linux. Pure: no clock, no
// thread, nothing blocks; a call returns what it decided and which waiters it let through. Not thread safe.
//
// Who asks later does not overtake a waiter that it conflicts with (fair), except where waiting behind it would
// close a circle: an owner for whom that waiter waits, directly or not, is let through. So fairness alone never blocks for good.
// A conversion of a range lock is atomic; one of a whole-file lock that has to wait, or fails, loses the old lock first.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "common/api/locks.h"
#include "common/base/ids.h"

namespace archil {

struct LockLimits {
  size_t locks_per_session = 65536;  // pieces of ranges; each wait may add two when it is granted
  size_t waiters_per_session = 4096;
};

class LockTable {
 public:
  explicit LockTable(LockLimits limits = {}) : limits_(limits) {}

  // Precondition: IsValid. `granted` (here and below): waiters let through, in order, are appended. A wait under an id
  // that waits already keeps its place.
  LockOutcome Set(const LockRequest& request, std::vector<WaiterId>* granted);
  // A lock of another owner that `lock` conflicts with: the one that begins first.
  std::optional<FileLock> Test(const FileLock& lock) const;
  // False if it does not wait (any more).
  bool Cancel(WaiterId waiter, std::vector<WaiterId>* granted);
  bool IsWaiting(WaiterId waiter) const { return waiters_.contains(waiter); }

  // What an owner holds of a file; its waits go on. False if it held nothing.
  bool Release(InodeId ino, LockFamily family, LockOwner owner, std::vector<WaiterId>* granted);
  // Everything of a session, its waits too.
  void ReleaseSession(SessionId session, std::vector<WaiterId>* granted);
  // What it holds of an inode; its waits go on.
  void ReleaseInode(SessionId session, InodeId ino, std::vector<WaiterId>* granted);
  // Everything on an inode; waits on it are forgotten and reported as `lost`.
  void DropInode(InodeId ino, std::vector<WaiterId>* lost);

  // A lock that was held before (a reclaim, a move): nobody is overtaken by it. kConflict if others hold it now.
  LockOutcome Restore(const FileLock& lock);

  // Sessions other than the asking one that hold what `lock` conflicts with.
  std::set<SessionId> SessionsAgainst(const FileLock& lock) const;
  // Inodes of which it holds what somebody of another session waits for, in order.
  std::vector<InodeId> BlockedBy(SessionId session) const;
  bool Holds(InodeId ino, LockFamily family, LockOwner owner) const;
  // In the order of inode, family, owner, range.
  std::vector<FileLock> Locks() const;
  // In order of arrival.
  std::vector<LockRequest> Waiters() const;
  size_t lock_count() const { return lock_count_; }
  size_t waiter_count() const { return waiters_.size(); }

 private:
  using FileKey = std::pair<InodeId, LockFamily>;
  struct Piece {
    uint64_t last = 0;
    LockType type = LockType::kRead;
    int32_t pid = 0;
  };
  using Pieces = std::map<uint64_t, Piece>;  // by first byte; disjoint; neighbours of one type are one
  struct Waiter {
    LockRequest request;
    uint64_t arrival = 0;
  };
  struct File {
    std::map<LockOwner, Pieces> held;  // none empty
    std::list<Waiter> queue;           // in order of arrival
  };
  // One who asks: an owner, or a process of a session (a process may be several owners).
  using Actor = std::tuple<SessionId, bool /* process */, uint64_t>;
  using Queue = std::list<Waiter>;
  using Visited = std::set<const Waiter*>;

  static bool SameActor(const FileLock& a, const FileLock& b);
  static bool Clash(const FileLock& a, const FileLock& b);
  static std::vector<Actor> ActorsOf(const FileLock& lock);
  // Calls fn(lock) for what others hold and `lock` conflicts with, until it returns true; true then.
  template <class Fn>
  bool AnyHolder(const FileLock& lock, const Fn& fn) const;
  template <class Fn>
  bool AnyWaiterOf(const FileLock& lock, const Fn& fn) const;

  bool Blocked(const File& file, const FileLock& lock, Queue::const_iterator end) const;
  bool WaitsFor(const Waiter& start, const FileLock& target, bool everybody, Visited* visited) const;
  bool ClosesCircle(const LockRequest& request) const;
  bool HasRoom(const FileLock& lock) const;
  // True if something that was held is held no more, or more weakly: waiters may be let through.
  bool Put(const FileLock& lock);
  void Wake(FileKey key, std::vector<WaiterId>* granted);
  LockOutcome Enqueue(FileKey key, const LockRequest& request, std::vector<WaiterId>* granted);
  void Forget(Queue& queue, Queue::iterator waiter);
  void DropIfEmpty(FileKey key);
  void Count(SessionId session, size_t before, size_t after);

  const LockLimits limits_;
  std::map<FileKey, File> files_;
  std::map<WaiterId, std::pair<FileKey, Queue::iterator>> waiters_;
  std::multimap<Actor, const Waiter*> asking_;
  std::set<std::pair<LockOwner, FileKey>> holdings_;
  std::map<SessionId, size_t> pieces_of_;
  std::map<SessionId, size_t> waiters_of_;
  size_t lock_count_ = 0;
  uint64_t next_arrival_ = 1;
};

}  // namespace archil
