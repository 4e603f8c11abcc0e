// VirtualScheduler: real threads under a clock that only the test moves. Waits with a deadline end when Advance passes it, so
// tests of leases and timers need no sleeps and no luck. Not a simulator: threads run freely between blocking points.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "common/env/sched.h"

namespace archil {

class VirtualScheduler final : public Scheduler, private SchedulerHooks, private Clock {
 public:
  Clock& clock() override { return *this; }
  std::unique_ptr<Thread> Spawn(std::string name, std::function<void()> body) override {
    return RealScheduler().Spawn(std::move(name), std::move(body));
  }
  SchedulerHooks* hooks() override { return this; }

  // Moves the clock and wakes whoever waits for a moment up to then.
  void Advance(absl::Duration by);
  // As Advance, but first waits until `sleepers` threads wait for a moment that has not come yet.
  void AdvanceAsleep(int sleepers, absl::Duration by);
  BootTime now();

 private:
  absl::Time Wall() override;
  BootTime Boot() override { return now(); }
  void Lock(Mutex& mu) override;
  void Unlock(Mutex& mu) override;
  bool Wait(CondVar& cv, Mutex& mu, BootTime deadline) override;
  void Signal(CondVar& cv, bool all) override;
  void LockHeld(std::unique_lock<std::mutex>& lock, Mutex& mu);

  std::mutex mu_;
  std::condition_variable changed_;
  absl::Duration now_ = absl::Hours(1);
  std::multiset<absl::Duration> sleepers_;  // what they wait for
  std::map<Mutex*, bool> held_;
  std::map<CondVar*, uint64_t> signals_;
};

}  // namespace archil
