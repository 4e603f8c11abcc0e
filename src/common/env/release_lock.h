// Gives a held lock up for a scope.
#pragma once

#include "common/env/sched.h"

namespace archil {

class ReleaseLock {
 public:
  explicit ReleaseLock(Mutex& mu) ABSL_NO_THREAD_SAFETY_ANALYSIS : mu_(mu) { mu_.Unlock(); }
  ~ReleaseLock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu_.Lock(); }
  ReleaseLock(const ReleaseLock&) = delete;
  ReleaseLock& operator=(const ReleaseLock&) = delete;

 private:
  Mutex& mu_;
};

}  // namespace archil
