// Threads, mutexes and condition variables behind one seam, so that a simulator can run real threads
// one at a time with a seeded choice at every blocking point. In production they are absl's.
//
// Everything below FsApi and in the servers uses these and never std::thread, std::mutex or sleeps.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/env/clock.h"

// The distribution's absl is built without ThreadSanitizer, which therefore does not see what its locks order.
#if defined(__SANITIZE_THREAD__)
#define ARCHIL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ARCHIL_TSAN 1
#endif
#endif
#if defined(ARCHIL_TSAN)
#include <sanitizer/tsan_interface.h>
#else
inline void __tsan_acquire(void*) {}
inline void __tsan_release(void*) {}
#endif

namespace archil {

class Mutex;
class CondVar;

// A running thread; joined by Join, which must be called once before destruction.
class Thread {
 public:
  virtual ~Thread() = default;
  virtual void Join() = 0;
};

// What a simulated scheduler implements; calls come at every blocking point.
class SchedulerHooks {
 public:
  virtual ~SchedulerHooks() = default;
  virtual void Lock(Mutex& mu) = 0;
  virtual void Unlock(Mutex& mu) = 0;
  // Releases mu, waits for a signal or the deadline, takes mu again. True if the deadline passed first.
  virtual bool Wait(CondVar& cv, Mutex& mu, BootTime deadline) = 0;
  virtual void Signal(CondVar& cv, bool all) = 0;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual Clock& clock() = 0;
  // Starts a thread; the name (at most 15 bytes are shown) is for debuggers and traces.
  virtual std::unique_ptr<Thread> Spawn(std::string name, std::function<void()> body) = 0;
  // Null in production.
  virtual SchedulerHooks* hooks() { return nullptr; }
};

// The machine's own threads. Lives as long as the process.
Scheduler& RealScheduler();

class ABSL_LOCKABLE Mutex {
 public:
  explicit Mutex(Scheduler& scheduler) : hooks_(scheduler.hooks()) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (hooks_ == nullptr) {
      mu_.Lock();
      __tsan_acquire(&mu_);
    } else {
      hooks_->Lock(*this);
    }
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    if (hooks_ == nullptr) {
      __tsan_release(&mu_);
      mu_.Unlock();
    } else {
      hooks_->Unlock(*this);
    }
  }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {
    if (hooks_ == nullptr) mu_.AssertHeld();
  }

 private:
  friend class CondVar;
  absl::Mutex mu_;
  SchedulerHooks* hooks_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

class CondVar {
 public:
  explicit CondVar(Scheduler& scheduler) : scheduler_(scheduler), hooks_(scheduler.hooks()) {}
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // May wake without a signal: always wait in a loop over the condition.
  void Wait(Mutex& mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { WaitUntil(mu, BootTime::Infinite()); }
  // True if the deadline has passed.
  bool WaitUntil(Mutex& mu, BootTime deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (hooks_ != nullptr) return hooks_->Wait(*this, mu, deadline);
    __tsan_release(&mu.mu_);
    bool late = false;
    if (deadline == BootTime::Infinite()) {
      cv_.Wait(&mu.mu_);
    } else {
      late = cv_.WaitWithTimeout(&mu.mu_, deadline - scheduler_.clock().Boot());
    }
    __tsan_acquire(&mu.mu_);
    return late;
  }
  void Signal() {
    if (hooks_ == nullptr) {
      cv_.Signal();
    } else {
      hooks_->Signal(*this, false);
    }
  }
  void SignalAll() {
    if (hooks_ == nullptr) {
      cv_.SignalAll();
    } else {
      hooks_->Signal(*this, true);
    }
  }

 private:
  absl::CondVar cv_;
  Scheduler& scheduler_;
  SchedulerHooks* hooks_;
};

// A one-shot event. Thread safe.
class Notification {
 public:
  explicit Notification(Scheduler& scheduler) : mu_(scheduler), cv_(scheduler) {}
  void Notify() {
    MutexLock lock(mu_);
    done_ = true;
    cv_.SignalAll();
  }
  bool HasBeenNotified() {
    MutexLock lock(mu_);
    return done_;
  }
  void Wait() {
    MutexLock lock(mu_);
    while (!done_) cv_.Wait(mu_);
  }
  // True if notified, false if the deadline passed first.
  bool WaitUntil(BootTime deadline) {
    MutexLock lock(mu_);
    while (!done_) {
      if (cv_.WaitUntil(mu_, deadline)) return done_;
    }
    return true;
  }

 private:
  Mutex mu_;
  CondVar cv_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace archil
