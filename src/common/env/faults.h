// Named fault points, compiled into the shipped binary and inert unless armed.
//
// Armed by a spec "POINT=ACTION[@N][,…]": at the N-th hit (default 1) of POINT, ACTION is done:
//   error  the point returns kIo      kill  the process kills itself with SIGKILL
// The environment variable ARCHIL_FAULTS arms the process-wide set. Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "common/base/result.h"
#include "common/env/sched.h"

namespace archil {

class Faults {
 public:
  // kInvalid names the bad part of the spec.
  Status Arm(std::string_view spec);
  // Ok unless armed for this hit.
  Status Hit(std::string_view point) {
    if (!armed_.load(std::memory_order_relaxed)) return Ok();
    return HitSlow(point);
  }
  // How many armed actions have been done.
  uint64_t fired() const { return fired_.load(); }

 private:
  enum class Action : uint8_t { kError, kKill };
  struct Rule {
    Action action;
    uint64_t countdown;
  };
  Status HitSlow(std::string_view point);

  std::atomic<bool> armed_{false};
  std::atomic<uint64_t> fired_{0};
  // Held over nothing that blocks, so a simulated scheduler need not know of it.
  Mutex mu_{RealScheduler()};
  std::map<std::string, Rule, std::less<>> rules_ ABSL_GUARDED_BY(mu_);
};

// The process-wide set, armed from ARCHIL_FAULTS at first use.
Faults& ProcessFaults();

}  // namespace archil
