// A few threads for calls that block. Thread safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/env/sched.h"

namespace archil {

class Workers {
 public:
  // Starts `threads` threads. At most `queue_limit` calls wait.
  Workers(Scheduler& scheduler, std::string name, int threads, size_t queue_limit);
  ~Workers();  // runs what was accepted, then joins

  // `work` runs once on one of the threads. kTryAgain when the queue is full: it does not run.
  Status Run(std::function<void()> work);

 private:
  void Loop();

  const size_t queue_limit_;
  Mutex mu_;
  CondVar cv_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace archil
