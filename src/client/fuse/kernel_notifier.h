// Tells the kernel what to drop from its caches. Calls are queued and made by threads of its own: an invalidation
// can wait for a request that the caller is about to answer, so it is never made by a handler or under a lock.
// One inode's (for names: one directory's) calls stay in order. When a queue is full the caller waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "client/core/fs_api.h"
#include "common/env/sched.h"

namespace archil {

class KernelNotifier final : public KernelCache {
 public:
  // One invalidation: of a name in `ino` if `name` is not empty, of the inode otherwise.
  struct Item {
    InodeId ino;
    uint64_t offset = 0;
    uint64_t length = 0;
    std::string name;
    bool all_names = false;  // every name of the mount is asked for again
    std::shared_ptr<std::atomic<size_t>> left;  // of a DropNow: counted down when it is done. Owners: the items and the call
  };
  // A delivery may be held up by a request of its inode. It holds up what stands behind it, but no DropNow: another thread takes
  // over from the one that is held up.
  static constexpr size_t kThreads = 8;
  static constexpr size_t kQueueLimit = 65536;

  KernelNotifier(Scheduler& scheduler, std::function<void(const Item&)> deliver);
  ~KernelNotifier() override;

  void Start();
  // Drops what is queued; later calls do nothing. Idempotent. Waits for a delivery under way.
  void Stop();
  // Like Stop without waiting: nothing more is sent to the kernel after it, except a delivery under way.
  void Close();

  void InvalidateInode(InodeId ino, uint64_t offset, uint64_t length) override;
  void InvalidateEntry(InodeId parent, const std::string& name) override;
  void DropNow(Names names, const std::vector<Drop>& inodes, const std::function<bool()>& blocked) override;

  uint64_t delivered() const { return delivered_.load(std::memory_order_relaxed); }

 private:
  struct Lane {
    explicit Lane(Scheduler& scheduler) : mu(scheduler), changed(scheduler) {}
    Mutex mu;
    CondVar changed;
    std::deque<Item> queue ABSL_GUARDED_BY(mu);
    bool stopping ABSL_GUARDED_BY(mu) = false;
    struct Worker {
      std::unique_ptr<Thread> thread;
      bool delivers = false;
      bool relieved = false;  // another goes on; it ends
      bool ended = false;
    };
    std::list<Worker> workers ABSL_GUARDED_BY(mu);
  };
  Lane& LaneOf(InodeId ino) { return *lanes_[ino.value % lanes_.size()]; }
  void SpawnWorker(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lane.mu);
  void Relieve(Lane& lane);
  void Push(Item item);
  void Done(const Item& item);
  void Run(Lane& lane, Lane::Worker& self);

  Scheduler& scheduler_;
  const std::function<void(const Item&)> deliver_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<uint64_t> delivered_{0};
  Mutex done_mu_;
  CondVar done_;  // a DropNow may be complete
};

}  // namespace archil
