#include "server/data/service/workers.h"

#include <fmt/format.h>

#include <utility>

namespace archil {

Workers::Workers(Scheduler& scheduler, std::string name, int threads, size_t queue_limit)
    : queue_limit_(queue_limit), mu_(scheduler), cv_(scheduler) {
  for (int i = 0; i < threads; ++i) {
    threads_.push_back(scheduler.Spawn(fmt::format("{}-{}", name, i), [this] { Loop(); }));
  }
}

Workers::~Workers() {
  {
    MutexLock lock(mu_);
    stop_ = true;
    cv_.SignalAll();
  }
  for (auto& thread : threads_) thread->Join();
}

Status Workers::Run(std::function<void()> work) {
  MutexLock lock(mu_);
  if (queue_.size() >= queue_limit_) return Error(Code::kTryAgain, "the server has too many requests waiting");
  queue_.push_back(std::move(work));
  cv_.Signal();
  return Ok();
}

void Workers::Loop() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stop_) cv_.Wait(mu_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace archil
