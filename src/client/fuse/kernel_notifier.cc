#include "client/fuse/kernel_notifier.h"

#include <utility>

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
    Lane* self = lane.get();
    lane->thread = scheduler_.Spawn("fuse-inval", [this, self] { Run(*self); });
  }
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
    if (lane->thread != nullptr) lane->thread->Join();
    lane->thread.reset();
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
  }
}

void KernelNotifier::Done(const Item& item) {
  if (item.left == nullptr || item.left->fetch_sub(1) != 1) return;
  MutexLock lock(done_mu_);
  done_.SignalAll();
}

void KernelNotifier::Push(Item item) {
  Lane& lane = *lanes_[item.ino.value % lanes_.size()];
  MutexLock lock(lane.mu);
  while (lane.queue.size() >= kQueueLimit && !lane.stopping) lane.changed.Wait(lane.mu);
  if (lane.stopping) {
    Done(item);
    return;
  }
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
    Done(item);
  }
}

}  // namespace archil
