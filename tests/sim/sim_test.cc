// Many mounts of one disk under the simulator: whatever order things happen in and whatever fails, some order explains
// what the applications were told. docs/testing.md.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

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
  std::printf("%s\n", fmt::format("{} runs, {} events ({} unknown), {} from kernels, {} sessions lost, {} server "
                                  "crashes, {} without space, {} refused, {} calls lost, {} cut off, {} twice, {} recalls, "
                                  "{} looks at rights, {} without verdict, {} switches",
                                  totals.runs, totals.events, totals.unknown, totals.from_memory, totals.losses,
                                  totals.crashes, totals.no_space, totals.refused, totals.lost_calls, totals.cuts, totals.copies, totals.recalls,
                                  totals.watched, totals.no_verdict, totals.switches)
                          .c_str());
  if (totals.runs < 50 || failed > 0) return;
  EXPECT_GT(totals.from_memory, totals.runs);
  EXPECT_GT(totals.losses, totals.runs / 10);
  EXPECT_GT(totals.crashes, totals.runs / 5);
  EXPECT_GT(totals.recalls, totals.runs * 10);
  EXPECT_GT(totals.no_space, totals.runs / 2);
  EXPECT_GT(totals.refused, totals.runs / 2);
  EXPECT_GT(totals.watched, totals.runs * 100);
  EXPECT_LT(totals.no_verdict, totals.runs / 10);
}

// One seed, run twice here and once more in a process of its own, where nothing stands at the same address.
std::string TraceOf(uint64_t seed) {
  SimTotals totals;
  return fmt::format("{:016x}", RunSim(SetupOf(seed), totals).trace);
}

TEST(Sim, OneSeedGivesOneTrace) {
  if (const char* seed = std::getenv("ARCHIL_SIM_PRINT_TRACE")) {
    std::printf("trace %s\n", TraceOf(std::strtoull(seed, nullptr, 10)).c_str());
    return;
  }
  for (const uint64_t seed : {4, 7, 11}) {
    const std::string trace = TraceOf(seed);
    EXPECT_EQ(TraceOf(seed), trace);
    const std::string command =
        fmt::format("ARCHIL_SIM_PRINT_TRACE={} '{}' --gtest_filter=Sim.OneSeedGivesOneTrace 2>&1", seed,
                    std::filesystem::read_symlink("/proc/self/exe").string());
    std::FILE* other = popen(command.c_str(), "r");
    ASSERT_NE(other, nullptr);
    std::string said(4096, '\0');
    said.resize(std::fread(said.data(), 1, said.size(), other));
    EXPECT_EQ(pclose(other), 0);
    EXPECT_THAT(said, ::testing::HasSubstr("trace " + trace)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace archil::sim
