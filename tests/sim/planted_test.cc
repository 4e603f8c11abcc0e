// The simulator finds bugs: each planted one within a bounded number of seeds. A child process runs the seeds of one
// bug, since what it breaks may also trip a check of the product, which ends the process; that counts as found.
#include "common/env/planted.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "tests/sim/world.h"

namespace archil::sim {
namespace {

struct Bug {
  const char* name;
  Plant plant;
  std::function<void(SimSetup&)> favour;  // what gives it a chance; empty: any run will do
  int seeds = 150;
};

void Quiet(SimSetup& s) {
  s.cut_short = s.cut_long = s.crash_client = s.crash_meta = s.stop_meta = s.crash_data = 0;
  s.quota = s.checkouts = 0;
}
void Restarts(SimSetup& s) {
  Quiet(s);
  s.crash_meta = 100;
  s.pause = absl::Milliseconds(200);
}
void PowerCuts(SimSetup& s) {
  Restarts(s);
  s.crash_data = 100;
}
void Silence(SimSetup& s) {
  Quiet(s);
  s.cut_long = 100;
  s.pause = absl::Milliseconds(200);
}
void SilenceAndRestarts(SimSetup& s) {
  Silence(s);
  s.crash_meta = 100;
  s.lease = absl::Milliseconds(500);
}
void ClientCrashes(SimSetup& s) {
  Quiet(s);
  s.crash_client = 100;
  s.flush_after = absl::Seconds(5);
}
void Lazy(SimSetup& s) {
  Quiet(s);
  s.flush_after = absl::Seconds(5);
}
void Lossy(SimSetup& s) {
  Quiet(s);
  s.network.lose_answer = 100;
  s.network.twice = 100;
}
void Slow(SimSetup& s) {
  Silence(s);
  s.network.slow = 300;
  s.lease = absl::Milliseconds(600);
  s.network.slowest = absl::Milliseconds(190);
}

void Full(SimSetup& s) {
  Quiet(s);
  s.quota = 20;
}

// Not among them: kStaleReply and kTombstoneForgotten, which no seed has found yet.
const Bug kBugs[] = {
    {"SkipRecall", Plant::kSkipRecall, Quiet},
    {"ForgetCoveredChild", Plant::kForgetCoveredChild, Quiet},
    {"CoverEverything", Plant::kCoverEverything, Quiet},
    {"AloneNotAsked", Plant::kAloneNotAsked, Quiet},
    {"GrantBeforeReclaim", Plant::kGrantBeforeReclaim, Restarts},
    {"FenceNotLogged", Plant::kFenceNotLogged, SilenceAndRestarts},
    {"AnswerBeforeLog", Plant::kAnswerBeforeLog, PowerCuts},
    {"CommitTwice", Plant::kCommitTwice, Lossy},
    {"ForgetOpen", Plant::kForgetOpen, Quiet},
    {"AnswerUnchecked", Plant::kAnswerUnchecked, Quiet},
    {"UncoveredOnce", Plant::kUncoveredOnce, Lossy, 400},
    {"CoveredBeforeReclaim", Plant::kCoveredBeforeReclaim, Restarts, 400},
    {"AnswerBeforeDrop", Plant::kAnswerBeforeDrop, Quiet},
    {"RecallOvertakesGrant", Plant::kRecallOvertakesGrant, Quiet},
    {"ReuseInode", Plant::kReuseInode, Quiet},
    {"HeartbeatRenews", Plant::kHeartbeatRenews, Silence},
    {"LeaseFromAnswer", Plant::kLeaseFromAnswer, Slow, 400},
    {"ExtentsLast", Plant::kExtentsLast, Lazy, 400},
    {"HalfOfPair", Plant::kHalfOfPair, Quiet},
    {"StillTrue", Plant::kStillTrue, Quiet},
    {"UncoveredIgnored", Plant::kUncoveredIgnored, Quiet, 400},
    {"MovedKeepsHome", Plant::kMovedKeepsHome, Quiet},
    {"WaitsForGrant", Plant::kWaitsForGrant, Lossy, 400},
    {"FsyncLies", Plant::kFsyncLies, ClientCrashes},
    {"CreditTwice", Plant::kCreditTwice, Full},
    {"PromiseForgotten", Plant::kPromiseForgotten, Full},
    {"ShortRead", Plant::kShortRead, Quiet, 400},
};

// In the child. 0: found.
int Hunt(const Bug& bug, const char* report) {
  planted_bug.store(bug.plant);
  SimTotals totals;
  std::FILE* out = std::fopen(report, "w");
  for (int seed = 1; seed <= bug.seeds; ++seed) {
    SimSetup setup = SetupOf(static_cast<uint64_t>(seed));
    if (bug.favour) bug.favour(setup);
    std::rewind(out);
    (void)!ftruncate(fileno(out), 0);
    std::fprintf(out, "seed %d", seed);
    std::fflush(out);
    const SimResult result = RunSim(setup, totals);
    if (!result.failure) continue;
    // A run that fails without the bug as well says nothing.
    planted_bug.store(Plant::kNone);
    const bool alone = !RunSim(setup, totals).failure.has_value();
    planted_bug.store(bug.plant);
    if (!alone) continue;
    std::fprintf(out, ": %s\n", result.failure->substr(0, result.failure->find('\n')).c_str());
    std::fclose(out);
    return 0;
  }
  std::fclose(out);
  return 1;
}

std::string Contents(const std::string& path) {
  std::string out(400, '\0');
  std::FILE* in = std::fopen(path.c_str(), "r");
  if (in == nullptr) return "";
  out.resize(std::fread(out.data(), 1, out.size(), in));
  std::fclose(in);
  return out;
}

class Planted : public ::testing::TestWithParam<Bug> {};

TEST_P(Planted, IsFound) {
  const Bug& bug = GetParam();
  const std::string report = fmt::format("{}sim_planted_{}_{}", ::testing::TempDir(), bug.name, getpid());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (std::getenv("ARCHIL_SIM_LOG") == nullptr && std::freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
    _exit(Hunt(bug, report.c_str()));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const std::string told = Contents(report);
  (void)std::remove(report.c_str());
  const bool tripped = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  std::printf("%s: %s%s\n", bug.name, told.c_str(), tripped ? ": a check of the product tripped" : "");
  EXPECT_TRUE(tripped || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
      << bug.name << " was not found in " << bug.seeds << " seeds";
}

INSTANTIATE_TEST_SUITE_P(All, Planted, ::testing::ValuesIn(kBugs), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace archil::sim
