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
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client/delegation/rights.h"
#include "client/oplog/op_log.h"
#include "client/oplog/promises.h"
#include "client/vfs/inode.h"
#include "common/env/planted.h"
#include "common/env/release_lock.h"
#include "common/env/sched.h"

namespace archil {

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
  Rights rights ABSL_GUARDED_BY(mu);
  Promises promises ABSL_GUARDED_BY(mu);  // space
  Timestamp last_time ABSL_GUARDED_BY(mu);
  // Inodes that the kernel forgot and that may be dropped, oldest first; checked again before they are.
  std::deque<InodeId> droppable ABSL_GUARDED_BY(mu);

  // Rights that operations asked for and have not used yet, with how many: a recall lets them be used once.
  absl::flat_hash_map<InodeId, uint32_t> claims ABSL_GUARDED_BY(mu);

  // The mount can do nothing more (fenced, closed, a log that the server refuses); why.
  bool broken ABSL_GUARDED_BY(mu) = false;
  std::string broken_reason ABSL_GUARDED_BY(mu);

  // Null if it is not in memory.
  Inode* Find(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const auto it = inodes.find(ino);
    return it == inodes.end() ? nullptr : it->second.get();
  }

  // As Find; what is not in memory enters, with nothing known of it yet.
  Inode& InMemory(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    auto& slot = inodes[ino];
    if (slot == nullptr) {
      slot = std::make_unique<Inode>();
      slot->attr.ino = ino;
      slot->valid = false;
      droppable.push_back(ino);
    }
    return *slot;
  }

  // Nothing of ours hangs on it and the server has all of it.
  bool Droppable(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return inode.lookups == 0 && inode.opens == 0 && inode.pins == 0 && inode.last_op <= log.durable() &&
           !inode.in_dirty_list && !(inode.map && inode.map->has_memory()) && inode.ino() != kRootInode &&
           !claims.contains(inode.ino()) && inode.covered == 0 && inode.covered_last <= log.durable();
  }

  // --- What the mount may do with an inode in memory.
  bool MayRead(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return inode.valid && (inode.gone || rights.MayRead(inode.ino(), inode.home));
  }
  bool MayChange(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return inode.valid && (inode.gone || (!inode.sealed && rights.MayChange(inode.ino(), inode.home)));
  }
  // It holds what `right` asks for, whether or not it is just being given up.
  bool Holds(const Inode& inode, Right right) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return inode.valid && (inode.gone || rights.RightOf(inode.ino(), inode.home) >= right);
  }
  bool ReadsWait(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return inode.sealed || rights.ReadsWait(inode.ino(), inode.home);
  }
  // The kernel is handed bytes of it that it may keep: a recall drops them again.
  void HandedOut(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    inode.in_kernel = true;
    if (!MayCache(inode)) inode.recached = true;
  }
  bool MayCache(const Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return inode.valid && rights.MayCache(inode.ino(), inode.home);
  }
  // From now on `home` covers it; 0: nothing does.
  void SetHome(Inode& inode, InodeId home) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (inode.home == home) return;
    if (Inode* old = Find(inode.home)) --old->covered;
    inode.home = home;
    if (Inode* now = Find(home)) ++now->covered;
  }

  // --- Replies that are on their way while an inode leaves memory and comes back must not bring old state: a load has
  // a stamp, an inode that was changed here and dropped is remembered until every older load has ended.
  uint64_t BeginLoad() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    loads_.insert(++stamp_);
    return stamp_;
  }
  void EndLoad(uint64_t stamp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    loads_.erase(stamp);
    if (loads_.empty()) not_fresh_.clear();
  }
  // What a load that began at `stamp` says of `ino` may be believed.
  bool Fresh(InodeId ino, uint64_t stamp) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (Planted(Plant::kStaleReply)) return true;
    if (stamp <= all_not_fresh_) return false;
    const auto it = not_fresh_.find(ino);
    return it == not_fresh_.end() || it->second < stamp;
  }
  // Loads that have begun are not to be believed about it, or about anything.
  void NotFresh(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (!loads_.empty()) not_fresh_[ino] = ++stamp_;
  }
  void NothingFresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { all_not_fresh_ = stamp_; }

  // Its dirty bytes are not needed any more.
  void EndPromise(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { promises.NotDirty(std::exchange(inode.promised, 0)); }

  // Precondition: Droppable.
  void Drop(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const auto it = inodes.find(ino);
    Inode& inode = *it->second;
    if (inode.last_op && !Planted(Plant::kTombstoneForgotten)) NotFresh(ino);
    SetHome(inode, InodeId{});
    EndPromise(inode);
    if (inode.attr.nlink == 0) rights.Erase(ino);
    inodes.erase(it);
  }

 private:
  uint64_t stamp_ ABSL_GUARDED_BY(mu) = 0;
  std::set<uint64_t> loads_ ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<InodeId, uint64_t> not_fresh_ ABSL_GUARDED_BY(mu);
  uint64_t all_not_fresh_ ABSL_GUARDED_BY(mu) = 0;
};

// A pin and a load stamp for the time without the lock.
class LoadScope {
 public:
  LoadScope(MountState& state, Inode* pinned) ABSL_NO_THREAD_SAFETY_ANALYSIS
      : mount_(state), pinned_(pinned), stamp_(state.BeginLoad()) {
    if (pinned_ != nullptr) ++pinned_->pins;
  }
  ~LoadScope() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (pinned_ != nullptr) --pinned_->pins;
    mount_.EndLoad(stamp_);
  }
  uint64_t stamp() const { return stamp_; }

 private:
  MountState& mount_;
  Inode* pinned_;
  uint64_t stamp_;
};

// What one operation asked the server for: it keeps these rights until it ends, or needs more (then it lets go first:
// nobody waits for a right with another one in hand).
// All calls with the mount's lock held; it is reached by another name where they are made, so the analysis cannot check that.
class Claim {
 public:
  explicit Claim(MountState& state) : mount_(state) {}
  ~Claim() ABSL_NO_THREAD_SAFETY_ANALYSIS { Release(); }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  void Add(InodeId ino) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    ++mount_.claims[ino];
    held_.push_back(ino);
  }
  void Release() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (held_.empty()) return;
    for (const InodeId ino : held_) {
      const auto it = mount_.claims.find(ino);
      if (--it->second == 0) mount_.claims.erase(it);
    }
    held_.clear();
    mount_.changed.SignalAll();
  }

 private:
  MountState& mount_;
  std::vector<InodeId> held_;
};

}  // namespace archil
