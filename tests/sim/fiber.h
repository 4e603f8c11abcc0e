// Fiber: a thread of control with a stack of its own that runs only while somebody switches to it. All fibers of a
// simulation share one thread of the machine, so that nothing but the simulator decides who goes on. Not thread safe.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace archil::sim {

// A stack with a page below it that may not be touched.
class FiberStack {
 public:
  FiberStack();
  ~FiberStack();
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;
  char* begin() const { return begin_; }
  static size_t size();

 private:
  char* begin_;
};

class Fiber {
 public:
  // The thread of the machine itself, as it stands when it first switches away.
  Fiber();
  // Runs `body` when it is first switched to; `body` must not return but switch away for good.
  Fiber(std::unique_ptr<FiberStack> stack, std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `this`, which is running, for `to`. Returns when somebody switches back; never if `last`.
  enum class Leave : uint8_t { kForNow, kForGood };
  void SwitchTo(Fiber& to, Leave leave = Leave::kForNow);
  std::unique_ptr<FiberStack> TakeStack() { return std::move(stack_); }

 private:
  static void Enter(unsigned high, unsigned low);
  void Arrived(void* fake_stack);

  ucontext_t context_{};
  std::unique_ptr<FiberStack> stack_;
  std::function<void()> body_;
  // For AddressSanitizer, which has to know where the stack is.
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  Fiber* from_ = nullptr;
};

}  // namespace archil::sim
