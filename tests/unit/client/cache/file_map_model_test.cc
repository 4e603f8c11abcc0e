// FileMap against the naive model: every short sequence of a small alphabet, and long random ones.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "common/env/random.h"
#include "tests/unit/client/cache/file_map_model.h"

namespace archil {
namespace {

using Step = std::function<void(FileMapModel&)>;

// Two chunks with one byte on each side of a boundary: cells 0 | 1 (long) | 2 || 3 | 4 (long) | 5.
const std::vector<Step>& Alphabet() {
  static const std::vector<Step> steps = {
      [](FileMapModel& m) { m.Write(2, 3); },
      [](FileMapModel& m) { m.Write(2, 4); },
      [](FileMapModel& m) { m.Write(3, 4); },
      [](FileMapModel& m) { m.Truncate(2); },
      [](FileMapModel& m) { m.Truncate(3); },
      [](FileMapModel& m) { m.Clear(2, 4, ClearKind::kPunch); },
      [](FileMapModel& m) { m.Clear(2, 3, ClearKind::kZero); },
      [](FileMapModel& m) { m.Clear(2, 4, ClearKind::kAllocate); },
      [](FileMapModel& m) { m.Fetch(0); },
      [](FileMapModel& m) { m.Load(0); },
      [](FileMapModel& m) { m.Take(kMaxAppend); },
      [](FileMapModel& m) { m.TakeInline(1); },
      [](FileMapModel& m) { m.Place(ExtentKind::kSegment, true); },
      [](FileMapModel& m) { m.Place(ExtentKind::kInline, false); },
      [](FileMapModel& m) { m.Untake(true); },
      [](FileMapModel& m) { m.Commit(); },
      [](FileMapModel& m) { m.DropClean(); },
      [](FileMapModel& m) { m.KeepBuffers(); },
  };
  return steps;
}

// How each sequence begins: steps of the alphabet.
const std::vector<std::vector<size_t>>& Beginnings() {
  static const std::vector<std::vector<size_t>> beginnings = {
      {8, 0}, {1, 10, 2}, {1, 10, 13}, {4, 1, 10, 12},
  };
  return beginnings;
}

class EverySequence : public testing::TestWithParam<bool> {};

TEST_P(EverySequence, OfFourStepsAfterABeginningAgrees) {
  const auto& steps = Alphabet();
  const size_t n = steps.size();
  uint64_t took = 0, placed = 0, filled = 0, dropped = 0;
  for (const std::vector<size_t>& beginning : Beginnings()) {
    for (size_t code = 0; code < n * n * n * n; ++code) {
      FileMapModel model(GetParam(), 2, 1, code);
      for (const size_t step : beginning) steps[step](model);
      for (size_t rest = code, i = 0; i < 4; ++i, rest /= n) {
        steps[rest % n](model);
        model.Check();
      }
      ASSERT_EQ(model.failure(), "") << "code " << code;
      took += model.took();
      placed += model.placed();
      filled += model.filled_around();
      dropped += model.dropped();
    }
  }
  EXPECT_GT(took, 50000u);
  EXPECT_GT(placed, 50000u);
  EXPECT_GT(dropped, 10000u);
  EXPECT_GT(filled, GetParam() ? 0u : 10000u);
}

INSTANTIATE_TEST_SUITE_P(FileMap, EverySequence, testing::Bool(),
                         [](const auto& info) { return info.param ? "BornHere" : "AtTheServer"; });

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
