#include "server/meta/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace archil {

ThreadPool::ThreadPool(Scheduler& scheduler, std::string name, int threads) : mu_(scheduler), cv_(scheduler) {
  for (int i = 0; i < threads; ++i) threads_.push_back(scheduler.Spawn(fmt::format("{}-{}", name, i), [this] { Loop(); }));
}

ThreadPool::~ThreadPool() { Stop(); }

bool ThreadPool::Post(std::function<void()> fn) {
  MutexLock lock(mu_);
  if (stopping_) return false;
  queue_.push_back(std::move(fn));
  cv_.Signal();
  return true;
}

void ThreadPool::Stop() {
  std::vector<std::unique_ptr<Thread>> threads;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    threads = std::move(threads_);
    threads_.clear();
    cv_.SignalAll();
  }
  for (auto& t : threads) t->Join();
}

void ThreadPool::Loop() {
  for (;;) {
    std::function<void()> fn;
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stopping_) cv_.Wait(mu_);
      if (queue_.empty()) return;
      fn = std::move(queue_.front());
      queue_.pop_front();
    }
    fn();
  }
}

bool Strand::Post(std::function<void()> fn, Order order) {
  {
    MutexLock lock(mu_);
    (order == Order::kFirst ? first_ : queue_).push_back(std::move(fn));
    if (active_) return true;
    active_ = true;
  }
  const auto self = shared_from_this();
  if (pool_.Post([self] { self->Drain(); })) return true;
  // What cannot run any more must not keep alive whom it would have run for, since that may own this strand.
  std::deque<std::function<void()>> first, queue;
  MutexLock lock(mu_);
  first.swap(first_);
  queue.swap(queue_);
  active_ = false;
  return false;
}

// Takes many at once: neighbours in the queue then share one append of the log. Gives the thread back after a round, so
// that a busy strand does not starve the others.
void Strand::Drain() {
  std::deque<std::function<void()>> round;
  {
    MutexLock lock(mu_);
    round.swap(first_);
    const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), kRound));
    std::move(queue_.begin(), end, std::back_inserter(round));
    queue_.erase(queue_.begin(), end);
  }
  for (auto& fn : round) fn();
  {
    MutexLock lock(mu_);
    if (first_.empty() && queue_.empty()) {
      active_ = false;
      return;
    }
  }
  if (!pool_.Post([self = shared_from_this()] { self->Drain(); })) Drain();
}

}  // namespace archil
