// Timestamp: what a file system stores. Seconds may be negative (before 1970); 0 <= nsec < 1e9.
#pragma once

#include <compare>
#include <cstdint>

#include "absl/time/time.h"

namespace archil {

struct Timestamp {
  int64_t sec = 0;
  uint32_t nsec = 0;

  friend constexpr auto operator<=>(const Timestamp&, const Timestamp&) = default;
};

constexpr Timestamp AddNanosecond(Timestamp t) {
  return t.nsec == 999'999'999 ? Timestamp{t.sec + 1, 0} : Timestamp{t.sec, t.nsec + 1};
}

inline Timestamp ToTimestamp(absl::Time t) {
  const timespec ts = absl::ToTimespec(t);
  return {ts.tv_sec, static_cast<uint32_t>(ts.tv_nsec)};
}

inline absl::Time FromTimestamp(Timestamp t) {
  return absl::FromUnixSeconds(t.sec) + absl::Nanoseconds(t.nsec);
}

}  // namespace archil
