#include "client/fuse/kernel_notifier.h"

#include <utility>

namespace archil {

KernelNotifier::KernelNotifier(Scheduler& scheduler, std::function<void(const Item&)> deliver)
    : scheduler_(scheduler), deliver_(std::move(deliver)) {
  for (size_t i = 0; i < kThreads; ++i) lanes_.push_back(std::make_unique<Lane>(scheduler));
}

KernelNotifier::~KernelNotifier() { Stop(); }

void KernelNotifier::Start() {
  for (auto& lane : lanes_) {
    Lane* self = lane.get();
    lane->thread = scheduler_.Spawn("fuse-inval", [this, self] { Run(*self); });
  }
}

void KernelNotifier::Close() {
  for (auto& lane : lanes_) {
    MutexLock lock(lane->mu);
    lane->stopping = true;
    lane->queue.clear();
    lane->changed.SignalAll();
  }
}

void KernelNotifier::Stop() {
  Close();
  for (auto& lane : lanes_) {
    if (lane->thread != nullptr) lane->thread->Join();
    lane->thread.reset();
  }
}

void KernelNotifier::InvalidateInode(InodeId ino, uint64_t offset, uint64_t length) { Push({ino, offset, length, {}}); }

void KernelNotifier::InvalidateEntry(InodeId parent, const std::string& name) { Push({parent, 0, 0, name}); }

void KernelNotifier::Push(Item item) {
  Lane& lane = *lanes_[item.ino.value % lanes_.size()];
  MutexLock lock(lane.mu);
  while (lane.queue.size() >= kQueueLimit && !lane.stopping) lane.changed.Wait(lane.mu);
  if (lane.stopping) return;
  lane.queue.push_back(std::move(item));
  lane.changed.SignalAll();
}

void KernelNotifier::Run(Lane& lane) {
  for (;;) {
    Item item;
    {
      MutexLock lock(lane.mu);
      while (lane.queue.empty() && !lane.stopping) lane.changed.Wait(lane.mu);
      if (lane.stopping) return;
      item = std::move(lane.queue.front());
      lane.queue.pop_front();
      lane.changed.SignalAll();
    }
    deliver_(item);
    delivered_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace archil
