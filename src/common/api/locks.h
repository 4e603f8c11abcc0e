// File locks in words: who asks for what of which file, and what comes of it. What conflicts with what: common/posix/lock_table.h.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "common/base/ids.h"

namespace archil {

// Two families that do not see each other: kRange (fcntl: classic POSIX and OFD locks differ in their owners only) and
// kWhole (flock).
enum class LockFamily : uint8_t { kRange = 0, kWhole = 1 };
enum class LockType : uint8_t { kUnlock = 0, kRead = 1, kWrite = 2 };
inline constexpr uint64_t kLockEnd = (1ULL << 63) - 1;  // OFFSET_MAX: the last byte that a lock may cover

// Unique among all sessions: `id` is what the kernel of that session calls the owner (a process, or an open file).
struct LockOwner {
  SessionId session;
  uint64_t id = 0;
  friend auto operator<=>(const LockOwner&, const LockOwner&) = default;
};

struct FileLock {
  InodeId ino;
  LockFamily family = LockFamily::kRange;
  LockOwner owner;
  LockType type = LockType::kUnlock;
  uint64_t first = 0;
  uint64_t last = kLockEnd;  // inclusive
  int32_t pid = 0;           // of who asked, in its own machine: for GETLK, and to know that two owners are one process
  friend bool operator==(const FileLock&, const FileLock&) = default;
};

// Ranges in order and within kLockEnd; whole-file locks cover everything.
inline bool IsValid(const FileLock& lock) {
  if (lock.first > lock.last || lock.last > kLockEnd || lock.type > LockType::kWrite) return false;
  if (lock.family == LockFamily::kWhole) return lock.first == 0 && lock.last == kLockEnd;
  return lock.family == LockFamily::kRange;
}

// Names one wait; made by its session and never used again.
struct WaiterId {
  SessionId session;
  uint64_t id = 0;
  friend auto operator<=>(const WaiterId&, const WaiterId&) = default;
};

struct LockRequest {
  FileLock lock;
  std::optional<uint64_t> waiter;  // may wait, under this id
  // Classic POSIX locks only: a wait in a circle of owners that all wait so is refused.
  bool detect_deadlock = false;
  friend bool operator==(const LockRequest&, const LockRequest&) = default;
};

enum class LockOutcome : uint8_t {
  kDone = 0,      // granted, or unlocked
  kConflict = 1,  // somebody else holds it, or stands before
  kWaiting = 2,   // queued; a later call reports the grant
  kDeadlock = 3,
  kFull = 4,      // a limit was reached
};

}  // namespace archil
