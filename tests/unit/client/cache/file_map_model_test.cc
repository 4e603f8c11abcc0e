// FileMap against the naive model: long random sequences.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/env/random.h"
#include "tests/unit/client/cache/file_map_model.h"

namespace archil {
namespace {

void RandomStep(FileMapModel& model, Random& random) {
  const size_t cells = model.cells();
  const size_t first = random.Below(cells);
  const size_t most = random.Below(8) == 0 ? cells : 10;
  const size_t last = std::min<size_t>(cells, first + 1 + random.Below(most));
  const uint64_t chunk = random.Below(model.chunks());
  const uint64_t max_range = random.Below(4) == 0 ? kMaxAppend : 1 + random.Below(4) * 7;
  switch (random.Below(24)) {
    case 0: case 1: case 2: case 3: case 4: case 5: return model.Write(first, std::min(last, first + 8));
    case 6: return model.Write(first, last);
    case 7: return random.Below(3) == 0 ? model.Truncate(first) : model.Check();
    case 8: return model.Clear(first, last, ClearKind::kPunch);
    case 9: return model.Clear(first, last, ClearKind::kZero);
    case 10: return model.Clear(first, last, ClearKind::kAllocate);
    case 11: case 12: return model.Fetch(chunk);
    case 13: case 14: return model.Load(chunk);
    case 15: case 16: return model.Take(max_range);
    case 17: return model.TakeInline(max_range);
    case 18: case 19: return model.Place(ExtentKind::kSegment, random.Below(2) == 0);
    case 20: return model.Place(ExtentKind::kInline, random.Below(2) == 0);
    case 21: return random.Below(2) == 0 ? model.Untake(random.Below(2) == 0) : model.KeepBuffers();
    case 22: return model.Commit();
    case 23: return model.DropClean();
  }
}

void RunSeed(uint64_t seed, int steps) {
  auto random = SeededRandom(seed);
  FileMapModel model(seed % 3 == 0, 1 + random->Below(3), 4 + random->Below(12), seed);
  for (int i = 0; i < steps && model.failure().empty(); ++i) {
    RandomStep(model, *random);
    model.Check();
  }
  ASSERT_EQ(model.failure(), "") << "seed " << seed;
  model.Finish();
  ASSERT_EQ(model.failure(), "") << "seed " << seed << ", at the end";
}

TEST(FileMapRandom, AgreesWithModel) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    RunSeed(seed, 60);
    if (HasFatalFailure()) return;
  }
}

TEST(FileMapRandom, AgreesWithModelOnLongRuns) {
  for (uint64_t seed = 1000; seed < 1006; ++seed) {
    RunSeed(seed, 600);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace archil
