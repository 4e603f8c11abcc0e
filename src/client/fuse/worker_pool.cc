#include "client/fuse/worker_pool.h"

#include <utility>

namespace archil {

WorkerPool::WorkerPool(Scheduler& scheduler, size_t max_threads, absl::Duration idle_end)
    : scheduler_(scheduler), max_threads_(max_threads), idle_end_(idle_end), mu_(scheduler), changed_(scheduler) {}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Submit(std::function<void()> job) {
  MutexLock lock(mu_);
  if (stopping_) return;
  queue_.push_back(std::move(job));
  if (idle_ >= queue_.size()) {
    changed_.Signal();
    return;
  }
  Reap();
  if (workers_.size() >= max_threads_) return;
  auto worker = std::make_unique<Worker>();
  Worker* self = worker.get();
  workers_.push_back(std::move(worker));
  self->thread = scheduler_.Spawn("fuse-worker", [this, self] { Run(self); });
}

void WorkerPool::Run(Worker* self) {
  for (;;) {
    std::function<void()> job;
    {
      MutexLock lock(mu_);
      const BootTime idle_since = scheduler_.clock().Boot();
      bool timed_out = false;
      ++idle_;
      while (queue_.empty() && !stopping_ && !timed_out) timed_out = changed_.WaitUntil(mu_, idle_since + idle_end_);
      --idle_;
      if (stopping_ || queue_.empty()) {
        self->ended = true;
        return;
      }
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    job();
  }
}

// Threads that have ended set `ended` as their last step under the lock, so joining them waits for nothing.
void WorkerPool::Reap() {
  std::erase_if(workers_, [](const std::unique_ptr<Worker>& w) {
    if (!w->ended) return false;
    w->thread->Join();
    return true;
  });
}

void WorkerPool::Stop() {
  std::vector<std::unique_ptr<Worker>> workers;
  std::deque<std::function<void()>> dropped;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    dropped.swap(queue_);
    workers.swap(workers_);
    changed_.SignalAll();
  }
  for (auto& worker : workers) worker->thread->Join();
}

size_t WorkerPool::threads() {
  MutexLock lock(mu_);
  Reap();
  return workers_.size();
}

}  // namespace archil
