// Threads for requests that have to wait. Grows by one thread for each job that finds none idle, up to a limit; a
// thread idle for a while ends. Jobs start in the order of Submit. Thread safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "common/env/sched.h"

namespace archil {

class WorkerPool {
 public:
  WorkerPool(Scheduler& scheduler, size_t max_threads, absl::Duration idle_end);
  ~WorkerPool();  // Stop

  // After Stop the job is dropped unrun.
  void Submit(std::function<void()> job);
  // Waits for the running jobs, drops the waiting ones. Idempotent. The caller sees to it that running jobs end.
  void Stop();
  size_t threads();

 private:
  struct Worker {
    std::unique_ptr<Thread> thread;
    bool ended = false;
  };
  void Run(Worker* self);
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Scheduler& scheduler_;
  const size_t max_threads_;
  const absl::Duration idle_end_;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Worker>> workers_ ABSL_GUARDED_BY(mu_);
  size_t idle_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace archil
