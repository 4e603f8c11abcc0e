#include "tests/sim/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "common/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
inline void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
inline void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif

namespace archil::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStack = 1 << 20;
#else
constexpr size_t kStack = 256 << 10;
#endif
constexpr size_t kGuard = 4096;

}  // namespace

FiberStack::FiberStack() {
  void* map = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  ARCHIL_CHECK(map != MAP_FAILED);
  ARCHIL_CHECK(mprotect(map, kGuard, PROT_NONE) == 0);
  begin_ = static_cast<char*>(map) + kGuard;
}

FiberStack::~FiberStack() { munmap(begin_ - kGuard, kGuard + kStack); }

size_t FiberStack::size() { return kStack; }

Fiber::Fiber() = default;

Fiber::Fiber(std::unique_ptr<FiberStack> stack, std::function<void()> body)
    : stack_(std::move(stack)), body_(std::move(body)) {
  ARCHIL_CHECK(getcontext(&context_) == 0);
  context_.uc_stack.ss_sp = stack_->begin();
  context_.uc_stack.ss_size = FiberStack::size();
  context_.uc_link = nullptr;
  bottom_ = stack_->begin();
  bytes_ = FiberStack::size();
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::Enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

void Fiber::Enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>((static_cast<uintptr_t>(high) << 32) | low);
  self->Arrived(nullptr);
  self->body_();
  ARCHIL_CHECK(false);
}

void Fiber::Arrived(void* fake_stack) {
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
  // Where the first one's stack lies is learned when it is left.
  if (from_ != nullptr && from_->bottom_ == nullptr) {
    from_->bottom_ = bottom;
    from_->bytes_ = bytes;
  }
}

void Fiber::SwitchTo(Fiber& to, Leave leave) {
  to.from_ = this;
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(leave == Leave::kForGood ? nullptr : &fake_stack, to.bottom_, to.bytes_);
  ARCHIL_CHECK(swapcontext(&context_, &to.context_) == 0);
  Arrived(fake_stack);
}

}  // namespace archil::sim
