// SimScheduler: runs the threads of the product one at a time. At every point where a thread may block (lock, unlock,
// wait, signal, start, end) a seeded choice says who goes on; the clock is virtual and jumps to the next deadline when
// nobody can go on. The same seed gives the same run, in every process.
//
// Threads are fibers of the one thread that calls Run. A run that is found wrong is left where it stands: its threads
// never go on, what they own is not freed. Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/env/random.h"
#include "common/env/sched.h"
#include "tests/sim/fiber.h"

namespace archil::sim {

struct SimLimits {
  uint64_t steps = 30'000'000;            // switches between threads
  absl::Duration time = absl::Hours(12);  // virtual
};

class SimScheduler final : public Scheduler, private SchedulerHooks, private Clock {
 public:
  explicit SimScheduler(uint64_t seed, const SimLimits& limits = {});
  ~SimScheduler() override;

  Clock& clock() override { return *this; }
  std::unique_ptr<Thread> Spawn(std::string name, std::function<void()> body) override;
  SchedulerHooks* hooks() override { return this; }

  // Runs `body` as the first thread. Nullopt when it has returned and so have all others; else what is wrong: what Fail
  // was told, or that nobody can go on (then with who waits for what).
  std::optional<std::string> Run(std::function<void()> body);

  // --- for threads of the simulation
  // Ends the run; does not return.
  [[noreturn]] void Fail(std::string what);
  void Sleep(absl::Duration time);
  // Lets others go on, as a blocking point does.
  void Yield();
  // Enters the trace: goes into its hash, and is shown where ARCHIL_SIM_TRACE is set.
  void Note(std::string_view text);
  // While one exists no choice is made: the thread goes on until it must wait. Undisturbed tells whether it had to.
  class Alone {
   public:
    explicit Alone(SimScheduler& scheduler) : scheduler_(scheduler), switches_(scheduler.switches_) {
      ++scheduler_.alone_;
    }
    ~Alone() { --scheduler_.alone_; }
    bool Undisturbed() const { return switches_ == scheduler_.switches_; }

   private:
    SimScheduler& scheduler_;
    const uint64_t switches_;
  };
  // What the run decides, beside who goes on.
  Random& random() { return *random_; }
  absl::Duration now() const { return now_; }

  uint64_t trace() const { return trace_; }
  uint64_t switches() const { return switches_; }

 private:
  class SimThread;
  struct Task;
  struct Held {
    Task* owner = nullptr;
    std::vector<Task*> waiters;
  };

  absl::Time Wall() override;
  BootTime Boot() override { return {now_}; }
  void Lock(Mutex& mu) override;
  void Unlock(Mutex& mu) override;
  bool Wait(CondVar& cv, Mutex& mu, BootTime deadline) override;
  void Signal(CondVar& cv, bool all) override;

  void TakeLock(Mutex& mu);
  void GiveLock(Mutex& mu);
  void MayYield();
  // The running task stops being runnable (unless it was made so again) until somebody wakes it.
  void Block(const char* why, const void* on);
  void Wake(Task& task);
  void Switch();
  Task* Choose();
  bool Advance();
  void Finish(std::optional<std::string> result);
  void Finished();
  void Sweep();  // what has ended goes
  // Who waits for what; with ARCHIL_SIM_STACKS set also where it stands. From outside.
  std::string Everybody();
  void Mix(uint64_t value);
  uint64_t Draw(uint64_t bound) { return choices_->Below(bound); }

  const SimLimits limits_;
  std::unique_ptr<Random> choices_;
  std::unique_ptr<Random> random_;
  const bool show_;
  uint64_t preempt_;  // of 256 chances to switch, so many are taken
  uint64_t slow_;     // of 65536 choices, so many let time pass first although somebody could go on
  absl::Duration now_ = absl::Hours(1);
  uint64_t switches_ = 0;
  uint64_t trace_ = 14695981039346656037ULL;
  int alone_ = 0;

  Fiber outside_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Task*> ready_;
  std::vector<std::unique_ptr<FiberStack>> stacks_;  // free ones
  Task* running_ = nullptr;
  uint64_t next_id_ = 0;
  std::multimap<absl::Duration, Task*> sleepers_;
  // By address, which is never visible.
  std::unordered_map<const Mutex*, Held> locks_;
  std::unordered_map<const CondVar*, std::vector<Task*>> waiters_;
  bool over_ = false;
  bool stuck_ = false;  // over because nobody could go on, or nothing came to an end
  bool ended_ = false;  // some task, or its Thread
  bool dumping_ = false;
  std::optional<std::string> result_;
};

}  // namespace archil::sim
