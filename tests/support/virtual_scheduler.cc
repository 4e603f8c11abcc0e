#include "tests/support/virtual_scheduler.h"

#include <iterator>

namespace archil {

void VirtualScheduler::Advance(absl::Duration by) {
  std::unique_lock<std::mutex> lock(mu_);
  now_ += by;
  changed_.notify_all();
}

void VirtualScheduler::AdvanceAsleep(int sleepers, absl::Duration by) {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock, [&] { return std::distance(sleepers_.upper_bound(now_), sleepers_.end()) >= sleepers; });
  now_ += by;
  changed_.notify_all();
}

BootTime VirtualScheduler::now() {
  std::unique_lock<std::mutex> lock(mu_);
  return BootTime{now_};
}

absl::Time VirtualScheduler::Wall() {
  std::unique_lock<std::mutex> lock(mu_);
  return absl::FromUnixSeconds(1'700'000'000) + now_;
}

void VirtualScheduler::LockHeld(std::unique_lock<std::mutex>& lock, Mutex& mu) {
  changed_.wait(lock, [&] { return !held_[&mu]; });
  held_[&mu] = true;
}

void VirtualScheduler::Lock(Mutex& mu) {
  std::unique_lock<std::mutex> lock(mu_);
  LockHeld(lock, mu);
}

void VirtualScheduler::Unlock(Mutex& mu) {
  std::unique_lock<std::mutex> lock(mu_);
  held_.erase(&mu);
  changed_.notify_all();
}

bool VirtualScheduler::Wait(CondVar& cv, Mutex& mu, BootTime deadline) {
  std::unique_lock<std::mutex> lock(mu_);
  const uint64_t seen = signals_[&cv];
  held_.erase(&mu);
  const bool sleeps = deadline.since_boot != absl::InfiniteDuration();
  const auto sleeper = sleeps ? sleepers_.insert(deadline.since_boot) : sleepers_.end();
  changed_.notify_all();
  changed_.wait(lock, [&] { return signals_[&cv] != seen || BootTime{now_} >= deadline; });
  if (sleeps) sleepers_.erase(sleeper);
  const bool timed_out = signals_[&cv] == seen;
  LockHeld(lock, mu);
  return timed_out;
}

void VirtualScheduler::Signal(CondVar& cv, bool) {
  std::unique_lock<std::mutex> lock(mu_);
  ++signals_[&cv];
  changed_.notify_all();
}

}  // namespace archil
