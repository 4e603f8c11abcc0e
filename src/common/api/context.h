// OpContext: what goes first into every call. A child may shorten a deadline, never extend it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "common/env/clock.h"

namespace archil {

// Who asks, as the kernel tells.
struct Caller {
  uint32_t uid = 0;
  uint32_t gid = 0;
  int32_t pid = 0;
};

// Set once, from any thread; waits that carry it end with kInterrupted soon after (waiters are woken by
// whoever cancels, see FsApi::WakeWaiters).
class CancelFlag {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_release); }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> cancelled_{false};
};

struct OpContext {
  BootTime deadline = BootTime::Infinite();
  Caller caller;
  // False: a call that would have to wait for the server returns kWouldBlock at once, with no effect;
  // the caller repeats it where waiting is allowed.
  bool may_block = true;
  const CancelFlag* cancel = nullptr;  // null: cannot be cancelled
  uint64_t handle = 0;  // of the open file that the call comes through, as FsApi::Open gave it; 0: none

  bool cancelled() const { return cancel != nullptr && cancel->cancelled(); }
  OpContext WithDeadline(BootTime d) const {
    OpContext c = *this;
    if (d < c.deadline) c.deadline = d;
    return c;
  }
};

}  // namespace archil
