#include "tests/sim/scheduler.h"

#include <execinfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/debugging/symbolize.h"
#include "common/base/check.h"

namespace archil::sim {
namespace {

constexpr absl::Duration kStep =
    absl::Microseconds(1);  // what a step takes, so that who only looks at the clock gets on
constexpr absl::Duration kSlowAtMost = absl::Milliseconds(20);
constexpr size_t kFreeStacks = 64;

}  // namespace

struct SimScheduler::Task {
  uint64_t id = 0;
  std::string name;
  uint64_t weight = 1;  // of the choice
  std::function<void()> body;
  std::unique_ptr<Fiber> fiber;
  const char* why = nullptr;  // it waits; null: it can go on
  const void* on = nullptr;
  absl::Duration since;
  std::multimap<absl::Duration, Task*>::iterator sleep;
  bool sleeps = false;
  bool late = false;  // woken by its deadline
  bool done = false;
  std::vector<Task*> joiners;
  bool kept = true;  // somebody has its Thread
};

class SimScheduler::SimThread final : public Thread {
 public:
  SimThread(SimScheduler& scheduler, Task& task) : scheduler_(scheduler), task_(task) {}
  ~SimThread() override {
    task_.kept = false;
    scheduler_.ended_ = true;
  }
  void Join() override {
    while (!task_.done) {
      task_.joiners.push_back(scheduler_.running_);
      scheduler_.Block("join", &task_);
    }
  }

 private:
  SimScheduler& scheduler_;
  Task& task_;
};

SimScheduler::SimScheduler(uint64_t seed, const SimLimits& limits)
    : limits_(limits),
      choices_(SeededRandom(seed * 101 + 13)),
      random_(SeededRandom(seed * 103 + 17)),
      show_(std::getenv("ARCHIL_SIM_TRACE") != nullptr) {
  // Each seed has a temper of its own: some switch at every chance, some hardly ever, in some the processor is slow.
  constexpr uint64_t kPreempt[] = {4, 16, 48, 128};
  constexpr uint64_t kSlow[] = {0, 16, 128, 512};
  preempt_ = kPreempt[Draw(4)];
  slow_ = kSlow[Draw(4)];
}

SimScheduler::~SimScheduler() {
  // Of a run that was left, the stacks stay: what stands on them may be referred to by what was not freed.
  for (auto& task : tasks_) {
    if (task->fiber != nullptr) (void)task->fiber.release();
  }
}

void SimScheduler::Mix(uint64_t value) { trace_ = (trace_ ^ value) * 1099511628211ULL; }

void SimScheduler::Note(std::string_view text) {
  for (const char c : text) Mix(static_cast<unsigned char>(c));
  if (show_)
    std::fprintf(stderr, "%s\n",
                 fmt::format("[{:.6f} {} {}] {}", absl::ToDoubleSeconds(now_ - absl::Hours(1)),
                             running_ == nullptr ? 0 : running_->id, running_ == nullptr ? "" : running_->name, text)
                     .c_str());
}

absl::Time SimScheduler::Wall() { return absl::FromUnixSeconds(1'700'000'000) + now_; }

std::unique_ptr<Thread> SimScheduler::Spawn(std::string name, std::function<void()> body) {
  auto& task = *tasks_.emplace_back(std::make_unique<Task>());
  task.id = next_id_++;
  task.name = std::move(name);
  task.weight = 1ULL << Draw(5);
  task.body = std::move(body);
  std::unique_ptr<FiberStack> stack;
  if (stacks_.empty()) {
    stack = std::make_unique<FiberStack>();
  } else {
    stack = std::move(stacks_.back());
    stacks_.pop_back();
  }
  task.fiber = std::make_unique<Fiber>(std::move(stack), [this, &task] {
    task.body();
    task.body = nullptr;
    Finished();
  });
  ready_.push_back(&task);
  Mix(task.id);
  auto thread = std::make_unique<SimThread>(*this, task);
  if (running_ != nullptr) MayYield();
  return thread;
}

void SimScheduler::Finished() {
  Task& task = *running_;
  task.done = ended_ = true;
  for (Task* joiner : task.joiners) Wake(*joiner);
  task.joiners.clear();
  task.fiber->SwitchTo(outside_, Fiber::Leave::kForGood);
  ARCHIL_CHECK(false);
}

void SimScheduler::Sweep() {
  for (auto it = tasks_.begin(); it != tasks_.end();) {
    Task& task = **it;
    if (task.done && task.fiber != nullptr) {
      if (stacks_.size() < kFreeStacks) stacks_.push_back(task.fiber->TakeStack());
      task.fiber.reset();
    }
    it = task.done && !task.kept ? tasks_.erase(it) : it + 1;
  }
}

std::optional<std::string> SimScheduler::Run(std::function<void()> body) {
  ARCHIL_CHECK(running_ == nullptr && !over_);
  auto first = Spawn("main", std::move(body));
  for (;;) {
    if (std::exchange(ended_, false)) Sweep();
    if (tasks_.size() == 1 && tasks_.front()->done) return std::nullopt;
    running_ = Choose();
    if (running_ == nullptr && !over_) Finish("nobody can go on");
    if (over_) break;
    outside_.SwitchTo(*running_->fiber);
    running_ = nullptr;
    if (over_) break;
  }
  return *result_ + (stuck_ || std::getenv("ARCHIL_SIM_STACKS") != nullptr ? Everybody() : std::string());
}

void SimScheduler::Finish(std::optional<std::string> result) {
  over_ = true;
  stuck_ = running_ == nullptr;
  result_ = std::move(result);
}

void SimScheduler::Fail(std::string what) {
  Finish(fmt::format("{} (at {:.6f} s, thread {} {}, {} switches)", what, absl::ToDoubleSeconds(now_ - absl::Hours(1)),
                     running_->id, running_->name, switches_));
  running_->fiber->SwitchTo(outside_);
  std::abort();
}

// --- who goes on

// The earliest deadline comes. False if there is none.
bool SimScheduler::Advance() {
  if (sleepers_.empty()) return false;
  now_ = std::max(now_, sleepers_.begin()->first);
  while (!sleepers_.empty() && sleepers_.begin()->first <= now_) {
    Task& task = *sleepers_.begin()->second;
    task.late = true;
    Wake(task);
  }
  return true;
}

SimScheduler::Task* SimScheduler::Choose() {
  now_ += kStep;
  ++switches_;
  if (switches_ > limits_.steps) {
    Finish(
        fmt::format("no end after {} switches and {:.3f} s", switches_, absl::ToDoubleSeconds(now_ - absl::Hours(1))));
    return nullptr;
  }
  while (!sleepers_.empty() && sleepers_.begin()->first <= now_) (void)Advance();
  if (slow_ > 0 && !sleepers_.empty() && sleepers_.begin()->first - now_ < kSlowAtMost && Draw(65536) < slow_)
    (void)Advance();
  if (ready_.empty() && !Advance()) return nullptr;
  if (now_ > absl::Hours(1) + limits_.time) {
    Finish(fmt::format("no end after {:.3f} s", absl::ToDoubleSeconds(now_ - absl::Hours(1))));
    return nullptr;
  }
  uint64_t sum = 0;
  for (const Task* task : ready_) sum += task->weight;
  uint64_t drawn = Draw(sum);
  size_t at = 0;
  while (drawn >= ready_[at]->weight) drawn -= ready_[at++]->weight;
  Task* task = ready_[at];
  ready_.erase(ready_.begin() + static_cast<ptrdiff_t>(at));
  Mix(task->id);
  return task;
}

void SimScheduler::Switch() {
  running_->fiber->SwitchTo(outside_);
  // Only to tell where it stands.
  while (dumping_) {
    void* frames[24];
    const int depth = backtrace(frames, 24);
    for (int i = 3; i < depth; ++i) {
      char name[256];
      if (absl::Symbolize(static_cast<char*>(frames[i]) - 1, name, sizeof(name)))
        *result_ += fmt::format("      {}\n", name);
    }
    running_->fiber->SwitchTo(outside_);
  }
}

void SimScheduler::MayYield() {
  if (alone_ > 0 || Draw(256) >= preempt_) return;
  Yield();
}

void SimScheduler::Yield() {
  ready_.push_back(running_);
  Switch();
}

void SimScheduler::Block(const char* why, const void* on) {
  Task& task = *running_;
  task.why = why;
  task.on = on;
  task.since = now_;
  Switch();
}

void SimScheduler::Wake(Task& task) {
  if (task.why == nullptr) return;
  task.why = nullptr;
  if (task.sleeps) {
    sleepers_.erase(task.sleep);
    task.sleeps = false;
  }
  ready_.push_back(&task);
}

void SimScheduler::Sleep(absl::Duration time) {
  Task& task = *running_;
  task.sleep = sleepers_.emplace(now_ + time, &task);
  task.sleeps = true;
  Block("sleep", nullptr);
}

// --- the seam

void SimScheduler::TakeLock(Mutex& mu) {
  for (;;) {
    Held& lock = locks_[&mu];
    if (lock.owner == nullptr) {
      lock.owner = running_;
      return;
    }
    if (lock.owner == running_) Fail("a thread takes a lock that it holds");
    lock.waiters.push_back(running_);
    Block("lock", &mu);
  }
}

void SimScheduler::GiveLock(Mutex& mu) {
  const auto it = locks_.find(&mu);
  ARCHIL_CHECK(it != locks_.end() && it->second.owner == running_);
  Held& lock = it->second;
  lock.owner = nullptr;
  if (lock.waiters.empty()) {
    locks_.erase(it);
    return;
  }
  const size_t at = Draw(lock.waiters.size());
  Task* next = lock.waiters[at];
  lock.waiters.erase(lock.waiters.begin() + static_cast<ptrdiff_t>(at));
  Wake(*next);
}

void SimScheduler::Lock(Mutex& mu) {
  MayYield();
  TakeLock(mu);
}

void SimScheduler::Unlock(Mutex& mu) {
  GiveLock(mu);
  MayYield();
}

bool SimScheduler::Wait(CondVar& cv, Mutex& mu, BootTime deadline) {
  Task& task = *running_;
  if (deadline.since_boot <= now_) {
    GiveLock(mu);
    Yield();
    TakeLock(mu);
    return true;
  }
  waiters_[&cv].push_back(&task);
  task.late = false;
  if (deadline != BootTime::Infinite()) {
    task.sleep = sleepers_.emplace(deadline.since_boot, &task);
    task.sleeps = true;
  }
  GiveLock(mu);
  Block("wait", &cv);
  if (task.late) {
    const auto it = waiters_.find(&cv);
    if (it != waiters_.end()) {
      std::erase(it->second, &task);
      if (it->second.empty()) waiters_.erase(it);
    }
  }
  const bool late = task.late;
  TakeLock(mu);
  return late;
}

void SimScheduler::Signal(CondVar& cv, bool all) {
  const auto it = waiters_.find(&cv);
  if (it != waiters_.end()) {
    // Whoever has been woken by its deadline and has not run yet stands in the list still.
    std::vector<Task*>& waiting = it->second;
    std::erase_if(waiting, [](const Task* task) { return task->why == nullptr; });
    if (all) {
      for (Task* task : waiting) Wake(*task);
      waiting.clear();
    } else if (!waiting.empty()) {
      const size_t at = Draw(waiting.size());
      Wake(*waiting[at]);
      waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(at));
    }
    if (waiting.empty()) waiters_.erase(it);
  }
  MayYield();
}

// --- for people

std::string SimScheduler::Everybody() {
  auto kept = std::exchange(result_, std::string());
  std::map<const void*, size_t> numbers;  // addresses say nothing
  std::string out;
  for (const auto& task : tasks_) {
    if (task->done) continue;
    out += fmt::format("\n    {} {}: ", task->id, task->name);
    if (task->why == nullptr) {
      out += "can go on";
    } else {
      out += fmt::format("{} {} for {:.6f} s", task->why,
                         task->on == nullptr ? 0 : numbers.emplace(task->on, numbers.size()).first->second,
                         absl::ToDoubleSeconds(now_ - task->since));
      if (const auto lock = locks_.find(static_cast<const Mutex*>(task->on));
          lock != locks_.end() && lock->second.owner != nullptr) {
        out += fmt::format(" held by {} {}", lock->second.owner->id, lock->second.owner->name);
      }
      // It tells itself where it stands.
      if (std::getenv("ARCHIL_SIM_STACKS") != nullptr && task->fiber != nullptr) {
        result_->clear();
        dumping_ = true;
        running_ = task.get();
        outside_.SwitchTo(*task->fiber);
        running_ = nullptr;
        dumping_ = false;
        out += "\n" + *result_;
      }
    }
  }
  result_ = std::move(kept);
  return out;
}

}  // namespace archil::sim
