// MountState: everything a mount keeps in memory about the tree, under one lock.
//
// Lock order: MountState::mu first; the locks of Session, BlockCache and SegmentReader are leaves. Nothing that
// waits for the server, the kernel or a disk is called with mu held: see ReleaseLock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client/oplog/op_log.h"
#include "client/vfs/inode.h"
#include "common/env/sched.h"

namespace archil {

// Gives a held lock up for a scope.
class ReleaseLock {
 public:
  explicit ReleaseLock(Mutex& mu) ABSL_NO_THREAD_SAFETY_ANALYSIS : mu_(mu) { mu_.Unlock(); }
  ~ReleaseLock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu_.Lock(); }
  ReleaseLock(const ReleaseLock&) = delete;
  ReleaseLock& operator=(const ReleaseLock&) = delete;

 private:
  Mutex& mu_;
};

class MountState {
 public:
  explicit MountState(Scheduler& scheduler) : mu(scheduler), changed(scheduler) {}

  Mutex mu;
  // Signalled when something that calls wait for has moved: durable position, dirty bytes, session, cancellation.
  CondVar changed;

  absl::flat_hash_map<InodeId, std::unique_ptr<Inode>> inodes ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<HandleId, Handle> handles ABSL_GUARDED_BY(mu);
  HandleId next_handle ABSL_GUARDED_BY(mu) = 1;
  OpLog log ABSL_GUARDED_BY(mu);
  Timestamp last_time ABSL_GUARDED_BY(mu);
  // Inodes that the kernel forgot and that may be dropped, oldest first; checked again before they are.
  std::deque<InodeId> droppable ABSL_GUARDED_BY(mu);

  // The mount can do nothing more (fenced, closed, a log that the server refuses); why.
  bool broken ABSL_GUARDED_BY(mu) = false;
  std::string broken_reason ABSL_GUARDED_BY(mu);

  // Null if it is not in memory.
  Inode* Find(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const auto it = inodes.find(ino);
    return it == inodes.end() ? nullptr : it->second.get();
  }

  // Nothing of ours hangs on it and the server has all of it.
  bool Droppable(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return inode.lookups == 0 && inode.opens == 0 && inode.pins == 0 && inode.last_op <= log.durable() &&
           !inode.in_dirty_list && !(inode.map && inode.map->has_memory()) && inode.ino() != kRootInode;
  }

  // --- Replies that are on their way while an inode leaves memory and comes back must not bring old state: a load has
  // a stamp, an inode that was changed here and dropped is remembered until every older load has ended.
  uint64_t BeginLoad() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    loads_.insert(++stamp_);
    return stamp_;
  }
  void EndLoad(uint64_t stamp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    loads_.erase(stamp);
    if (loads_.empty()) dropped_changed_.clear();
  }
  // What a load that began at `stamp` says of `ino` may be believed.
  bool Fresh(InodeId ino, uint64_t stamp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const auto it = dropped_changed_.find(ino);
    return it == dropped_changed_.end() || it->second < stamp;
  }
  // Precondition: Droppable.
  void Drop(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const auto it = inodes.find(ino);
    if (!loads_.empty() && it->second->last_op) dropped_changed_[ino] = ++stamp_;
    inodes.erase(it);
  }

 private:
  uint64_t stamp_ ABSL_GUARDED_BY(mu) = 0;
  std::set<uint64_t> loads_ ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<InodeId, uint64_t> dropped_changed_ ABSL_GUARDED_BY(mu);
};

}  // namespace archil
