// Rights of sessions on inodes: the vocabulary of delegations (docs/delegation.md), shared by client and server. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace archil {

enum class Right : uint8_t { kNone = 0, kRead = 1, kWrite = 2 };

// DLG-1: may two sessions hold these at the same time?
inline constexpr bool Conflict(Right a, Right b) {
  return (a == Right::kWrite && b != Right::kNone) || (b == Right::kWrite && a != Right::kNone);
}
// The most that another session may keep beside `wanted`.
inline constexpr Right StaysBeside(Right wanted) {
  return wanted == Right::kWrite ? Right::kNone : wanted == Right::kRead ? Right::kRead : Right::kWrite;
}
inline constexpr Right Stronger(Right a, Right b) { return std::max(a, b); }
inline constexpr Right Weaker(Right a, Right b) { return std::min(a, b); }
inline constexpr const char* RightName(Right right) {
  return right == Right::kWrite ? "write" : right == Right::kRead ? "read" : "none";
}

}  // namespace archil
