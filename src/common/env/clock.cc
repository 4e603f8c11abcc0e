#include "common/env/clock.h"

#include <time.h>

#include "absl/time/clock.h"

namespace archil {
namespace {

class SystemClock final : public Clock {
 public:
  absl::Time Wall() override {
    timespec ts{};
    clock_gettime(CLOCK_REALTIME, &ts);
    return absl::TimeFromTimespec(ts);
  }
  BootTime Boot() override {
    timespec ts{};
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return {absl::DurationFromTimespec(ts)};
  }
};

}  // namespace

Clock& RealClock() {
  static SystemClock clock;
  return clock;
}

}  // namespace archil
