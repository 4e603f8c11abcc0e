#include "common/obs/rate_limit.h"

#include <algorithm>

#include "common/base/check.h"

namespace archil {

SiteLimit::SiteLimit(uint32_t burst, absl::Duration refill) : burst_(burst), refill_(refill), mu_(RealScheduler()) {
  ARCHIL_CHECK(refill > absl::ZeroDuration());
}

SiteLimit::Answer SiteLimit::Ask(Site site, BootTime now) {
  if (burst_ == 0) return {.allowed = true};
  MutexLock lock(mu_);
  auto [it, fresh] = buckets_.try_emplace(site, Bucket{.tokens = burst_, .refilled = now});
  Bucket& bucket = it->second;
  absl::Duration rest;
  const int64_t earned = absl::IDivDuration(now - bucket.refilled, refill_, &rest);
  if (earned > 0) {
    bucket.tokens = static_cast<uint32_t>(std::min<int64_t>(burst_, bucket.tokens + std::min<int64_t>(earned, burst_)));
    bucket.refilled = now - rest;
  }
  if (bucket.tokens == 0) {
    ++bucket.suppressed;
    return {};
  }
  --bucket.tokens;
  return {.allowed = true, .suppressed = std::exchange(bucket.suppressed, 0)};
}

}  // namespace archil
