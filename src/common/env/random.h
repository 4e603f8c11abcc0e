// Random numbers. Thread safe. Seeded ones repeat; the real one is seeded by the kernel.
#pragma once

#include <cstdint>
#include <memory>

namespace archil {

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t Next() = 0;
  // Uniform in [0, bound); bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
};

// From getrandom(2); fit for secrets.
Random& RealRandom();
// SplitMix64 from the seed; equal on every platform.
std::unique_ptr<Random> SeededRandom(uint64_t seed);

}  // namespace archil
