// ThreadPool runs closures on a few threads; Strand runs closures one at a time, in order, on a pool, heartbeats first.
// Thread safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/env/sched.h"

namespace archil {

class ThreadPool {
 public:
  ThreadPool(Scheduler& scheduler, std::string name, int threads);
  ~ThreadPool();  // as Stop
  // False, and `fn` is dropped, after Stop.
  bool Post(std::function<void()> fn);
  // Runs what was posted, then joins. Idempotent.
  void Stop();

 private:
  void Loop();

  Mutex mu_;
  CondVar cv_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<Thread>> threads_;
};

// Owners: whoever posts, and the pool while something is queued.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  Strand(Scheduler& scheduler, ThreadPool& pool) : pool_(pool), mu_(scheduler) {}
  // False after the pool was stopped: `fn` may never run. kFirst: before what was posted without, at the latest after kRound of that.
  enum class Order : uint8_t { kInTurn, kFirst };
  bool Post(std::function<void()> fn, Order order = Order::kInTurn);

 private:
  static constexpr size_t kRound = 256;

  void Drain();

  ThreadPool& pool_;
  Mutex mu_;
  std::deque<std::function<void()>> first_ ABSL_GUARDED_BY(mu_);
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool active_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace archil
