// WaitTicket: how the caller of a call that waits gives it up. Thread safe. Owners: the caller, and the server while it waits.
#pragma once

#include <functional>
#include <utility>

#include "common/env/sched.h"

namespace archil {

class WaitTicket {
 public:
  explicit WaitTicket(Scheduler& scheduler) : mu_(scheduler) {}

  // The call is answered soon, kInterrupted if nothing else came first.
  void Cancel() {
    std::function<void()> fn;
    {
      MutexLock lock(mu_);
      cancelled_ = true;
      fn = std::exchange(fn_, nullptr);
    }
    if (fn) fn();
  }
  // Runs `fn` when cancelled: in Cancel, or now. For the server; once.
  void WhenCancelled(std::function<void()> fn) {
    {
      MutexLock lock(mu_);
      if (!cancelled_) {
        fn_ = std::move(fn);
        return;
      }
    }
    fn();
  }

 private:
  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> fn_ ABSL_GUARDED_BY(mu_);
};

}  // namespace archil
