// Many mounts of one disk under the simulator: whatever order things happen in and whatever fails, some order explains what the
// applications were told. docs/testing.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/sim/world.h"
#include "tests/support/model_run.h"

namespace archil::sim {
namespace {

TEST(Sim, SomeOrderExplainsEverything) {
  SimTotals totals;
  int failed = 0;
  for (const uint64_t seed : test::Seeds(100)) {
    const SimResult result = RunSim(SetupOf(seed), totals);
    if (!result.failure) continue;
    ADD_FAILURE() << *result.failure;
    if (++failed == 3) break;
  }
  std::printf("%s\n", fmt::format("{} runs, {} events ({} unknown), {} from kernels, {} sessions lost, {} server crashes, {} calls lost, {} cut off, {} twice, {} recalls, "
                                  "{} looks at rights, {} without verdict, {} switches",
                                  totals.runs, totals.events, totals.unknown, totals.from_memory, totals.losses, totals.crashes, totals.lost_calls, totals.cuts, totals.copies,
                                  totals.recalls, totals.watched, totals.no_verdict, totals.switches).c_str());
  if (totals.runs < 50 || failed > 0) return;
  EXPECT_GT(totals.from_memory, totals.runs);
  EXPECT_GT(totals.losses, totals.runs / 10);
  EXPECT_GT(totals.crashes, totals.runs / 5);
  EXPECT_GT(totals.recalls, totals.runs * 10);
  EXPECT_GT(totals.watched, totals.runs * 100);
  EXPECT_LT(totals.no_verdict, totals.runs / 10);
}

}  // namespace
}  // namespace archil::sim
