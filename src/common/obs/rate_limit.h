// SiteLimit: a token bucket per call site, so that one place cannot fill the log. Thread safe.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/env/clock.h"
#include "common/env/sched.h"

namespace archil {

class SiteLimit {
 public:
  // Identity of the file name's address suffices: a header's site may then have one bucket per program unit.
  struct Site {
    const char* file;
    uint32_t line;
    friend bool operator==(const Site&, const Site&) = default;
    template <class H>
    friend H AbslHashValue(H h, const Site& site) {
      return H::combine(std::move(h), site.file, site.line);
    }
  };
  struct Answer {
    bool allowed = false;
    uint64_t suppressed = 0;  // refused at this site since the last time it was allowed
  };

  // `burst` 0: everything is allowed.
  SiteLimit(uint32_t burst, absl::Duration refill);
  Answer Ask(Site site, BootTime now);

 private:
  struct Bucket {
    uint32_t tokens;
    BootTime refilled;  // when the tokens were last counted
    uint64_t suppressed = 0;
  };

  const uint32_t burst_;
  const absl::Duration refill_;
  Mutex mu_;
  absl::flat_hash_map<Site, Bucket> buckets_ ABSL_GUARDED_BY(mu_);  // as many as there are call sites
};

}  // namespace archil
