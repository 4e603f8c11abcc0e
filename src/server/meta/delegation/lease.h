// Lease arithmetic (LSE-1), pure: the server counts from its receipt of a message, on a clock that runs during suspend.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "common/env/clock.h"

namespace archil {

struct Lease {
  BootTime heard;  // receipt of the newest message
  absl::Duration length;
  BootTime steady_since = heard;  // since when it was never silent for longer than the lease

  void Renew(BootTime received) {
    if (Expired(received)) steady_since = received;
    heard = std::max(heard, received);
  }
  bool Expired(BootTime now) const { return now - heard >= length; }
  absl::Duration Silence(BootTime now) const { return std::max(now - heard, absl::ZeroDuration()); }
};

// What a session gets of what it asked for (zero: the default).
inline absl::Duration GrantedLease(absl::Duration wanted, absl::Duration fallback, absl::Duration min, absl::Duration max) {
  if (wanted <= absl::ZeroDuration()) wanted = fallback;
  return std::clamp(wanted, min, std::max(min, max));
}

}  // namespace archil
