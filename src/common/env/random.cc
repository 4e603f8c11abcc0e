#include "common/env/random.h"

#include <sys/random.h>

#include <atomic>

#include "common/base/check.h"

namespace archil {
namespace {

class KernelRandom final : public Random {
 public:
  uint64_t Next() override {
    uint64_t v = 0;
    ARCHIL_CHECK(getrandom(&v, sizeof(v), 0) == sizeof(v));
    return v;
  }
};

class SplitMix final : public Random {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t Next() override {
    uint64_t z = state_.fetch_add(0x9e3779b97f4a7c15ULL, std::memory_order_relaxed) + 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  std::atomic<uint64_t> state_;
};

}  // namespace

Random& RealRandom() {
  static KernelRandom random;
  return random;
}

std::unique_ptr<Random> SeededRandom(uint64_t seed) { return std::make_unique<SplitMix>(seed); }

}  // namespace archil
