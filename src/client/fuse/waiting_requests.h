// Requests that wait in a worker, by the kernel's number, so that an interrupt finds them.
//
// Interrupts are routine (timers, Go programs), so a request is cancelled only when its thread has SIGKILL pending;
// an interrupted one that was not is looked at again by Recheck, because the kernel tells only once. A wait for a lock is
// cancelled by any interrupt: alarm(2) is how programs limit it. Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "common/api/context.h"
#include "common/env/sched.h"

namespace archil {

// What cancels a request.
enum class Interrupts : uint8_t { kDeadly, kAny };

struct WaitingRequest {
  uint64_t unique = 0;
  uint32_t pid = 0;  // thread id
  Interrupts interrupts = Interrupts::kDeadly;
  CancelFlag cancel;
  std::atomic<bool> taken{false};    // by the worker that runs it, or by whoever answers it instead
  std::function<void()> answer_interrupted;  // replies EINTR; called at most once, by whoever took it

  bool Take() { return !taken.exchange(true); }
};

class WaitingRequests {
 public:
  // `doomed` tells whether a thread is about to be killed; `wake` is called after requests were cancelled.
  WaitingRequests(Scheduler& scheduler, std::function<bool(uint32_t pid)> doomed, std::function<void()> wake);

  void Add(std::shared_ptr<WaitingRequest> request);
  void Remove(uint64_t unique);
  // The kernel interrupts it. An unknown number was answered already.
  void Interrupt(uint64_t unique);
  void Recheck();
  // Cancels all of them, killed or not.
  void CancelAll();

  bool HasInterrupted() const { return interrupted_count_.load(std::memory_order_relaxed) != 0; }
  uint64_t cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  size_t size();

 private:
  struct Slot {
    std::shared_ptr<WaitingRequest> request;  // owners: this table and the job in the pool
    bool interrupted = false;
  };
  void Cancel(const std::shared_ptr<WaitingRequest>& request);

  const std::function<bool(uint32_t)> doomed_;
  const std::function<void()> wake_;
  Mutex mu_;
  absl::flat_hash_map<uint64_t, Slot> slots_ ABSL_GUARDED_BY(mu_);
  std::atomic<size_t> interrupted_count_{0};
  std::atomic<uint64_t> cancelled_{0};
};

// True if the thread is inside fcntl(F_SETLKW). The kernel sends OFD locks as the same request, and only those of a process may be
// refused as a deadlock. False if it cannot be told.
bool IsInClassicLockWait(uint32_t tid);

// True if the thread has SIGKILL pending (default actions of fatal signals included), or is gone.
bool HasSigkillPending(uint32_t tid);

}  // namespace archil
