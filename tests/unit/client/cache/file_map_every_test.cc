// FileMap against the naive model: every short sequence of a small alphabet, after some beginnings.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

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
  EXPECT_GE(filled, GetParam() ? 0u : 10000u);
}

INSTANTIATE_TEST_SUITE_P(FileMap, EverySequence, testing::Bool(),
                         [](const auto& info) { return info.param ? "BornHere" : "AtTheServer"; });

}  // namespace
}  // namespace archil
