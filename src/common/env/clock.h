// Clocks. Wall is for times that users see; Boot is for leases and deadlines: it runs during suspend
// (CLOCK_BOOTTIME) and never jumps. Thread safe.
#pragma once

#include "absl/time/time.h"

namespace archil {

// A moment on the boot clock. Only differences between moments of one process mean anything.
struct BootTime {
  absl::Duration since_boot;

  friend bool operator==(BootTime a, BootTime b) { return a.since_boot == b.since_boot; }
  friend bool operator<(BootTime a, BootTime b) { return a.since_boot < b.since_boot; }
  friend bool operator<=(BootTime a, BootTime b) { return a.since_boot <= b.since_boot; }
  friend bool operator>(BootTime a, BootTime b) { return b < a; }
  friend bool operator>=(BootTime a, BootTime b) { return b <= a; }
  friend BootTime operator+(BootTime t, absl::Duration d) { return {t.since_boot + d}; }
  friend BootTime operator-(BootTime t, absl::Duration d) { return {t.since_boot - d}; }
  friend absl::Duration operator-(BootTime a, BootTime b) { return a.since_boot - b.since_boot; }
  static BootTime Infinite() { return {absl::InfiniteDuration()}; }
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Wall() = 0;
  virtual BootTime Boot() = 0;
};

// The machine's clocks. Lives as long as the process.
Clock& RealClock();

}  // namespace archil
