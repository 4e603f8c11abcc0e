#include "client/fuse/kernel_notifier.h"

#include <iterator>
#include <utility>

#include "common/env/release_lock.h"

namespace archil {
namespace {

constexpr absl::Duration kBlockedCheck = absl::Milliseconds(5);

}  // namespace

KernelNotifier::KernelNotifier(Scheduler& scheduler, std::function<void(const Item&)> deliver)
    : scheduler_(scheduler), deliver_(std::move(deliver)), done_mu_(scheduler), done_(scheduler) {
  for (size_t i = 0; i < kThreads; ++i) lanes_.push_back(std::make_unique<Lane>(scheduler));
}

KernelNotifier::~KernelNotifier() { Stop(); }

void KernelNotifier::Start() {
  for (auto& lane : lanes_) {
    MutexLock lock(lane->mu);
    SpawnWorker(*lane);
  }
}

void KernelNotifier::SpawnWorker(Lane& lane) {
  Lane::Worker& worker = lane.workers.emplace_back();
  worker.thread = scheduler_.Spawn("fuse-inval", [this, &lane, &worker] { Run(lane, worker); });
}

// Its thread waits in the kernel, and somebody for what stands behind: who holds the kernel up may wait for just that.
void KernelNotifier::Relieve(Lane& lane) {
  MutexLock lock(lane.mu);
  if (lane.stopping || lane.queue.empty() || lane.workers.empty() || !lane.workers.back().delivers) return;
  lane.workers.back().relieved = true;
  for (auto it = lane.workers.begin(); it != lane.workers.end();) {
    if (it->ended) it->thread->Join();
    it = it->ended ? lane.workers.erase(it) : std::next(it);
  }
  SpawnWorker(lane);
}

void KernelNotifier::Close() {
  for (auto& lane : lanes_) {
    MutexLock lock(lane->mu);
    lane->stopping = true;
    for (const Item& item : lane->queue) Done(item);
    lane->queue.clear();
    lane->changed.SignalAll();
  }
}

void KernelNotifier::Stop() {
  Close();
  for (auto& lane : lanes_) {
    std::list<Lane::Worker> workers;
    {
      MutexLock lock(lane->mu);
      workers.splice(workers.end(), lane->workers);
    }
    for (Lane::Worker& worker : workers) worker.thread->Join();
  }
}

void KernelNotifier::InvalidateInode(InodeId ino, uint64_t offset, uint64_t length) {
  Push({ino, offset, length, {}, false, nullptr});
}

void KernelNotifier::InvalidateEntry(InodeId parent, const std::string& name) {
  Push({parent, 0, 0, name, false, nullptr});
}

void KernelNotifier::DropNow(Names names, const std::vector<Drop>& inodes, const std::function<bool()>& blocked) {
  // Names first: what is looked up again afterwards is answered with nothing to keep.
  if (names == Names::kForget) deliver_({InodeId{}, 0, 0, {}, true, nullptr});
  const auto left = std::make_shared<std::atomic<size_t>>(inodes.size());
  for (const Drop& drop : inodes) Push({drop.ino, 0, drop.pages ? UINT64_MAX : 0, {}, false, left});
  for (;;) {
    {
      MutexLock lock(done_mu_);
      const BootTime until = scheduler_.clock().Boot() + kBlockedCheck;
      while (left->load() > 0 && !done_.WaitUntil(done_mu_, until)) {
      }
    }
    if (left->load() == 0 || blocked()) return;
    for (const Drop& drop : inodes) Relieve(LaneOf(drop.ino));
  }
}

void KernelNotifier::Done(const Item& item) {
  if (item.left == nullptr || item.left->fetch_sub(1) != 1) return;
  MutexLock lock(done_mu_);
  done_.SignalAll();
}

void KernelNotifier::Push(Item item) {
  Lane& lane = LaneOf(item.ino);
  MutexLock lock(lane.mu);
  while (lane.queue.size() >= kQueueLimit && !lane.stopping) lane.changed.Wait(lane.mu);
  if (lane.stopping) {
    Done(item);
    return;
  }
  lane.queue.push_back(std::move(item));
  lane.changed.SignalAll();
}

void KernelNotifier::Run(Lane& lane, Lane::Worker& self) {
  MutexLock lock(lane.mu);
  for (;;) {
    while (lane.queue.empty() && !lane.stopping) lane.changed.Wait(lane.mu);
    if (lane.stopping) return;
    const Item item = std::move(lane.queue.front());
    lane.queue.pop_front();
    lane.changed.SignalAll();
    self.delivers = true;
    {
      ReleaseLock unlocked(lane.mu);
      deliver_(item);
      delivered_.fetch_add(1, std::memory_order_relaxed);
      Done(item);
    }
    self.delivers = false;
    if (self.relieved) {
      self.ended = true;
      return;
    }
  }
}

}  // namespace archil
