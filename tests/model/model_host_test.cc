// The reference against this machine's own file system, through system calls: keeps the reference honest.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/host_runner.h"
#include "tests/support/model_run.h"
#include "tests/support/op_gen.h"

namespace archil::test {
namespace {

AgreementRules HostRules() {
  AgreementRules rules;
  rules.inodes = false;  // ext4 gives numbers again at once
  rules.exact_times = false;
  rules.atime = false;
  rules.directory_sizes = false;
  return rules;
}

GenProfile HostProfile() {
  GenProfile profile;
  profile.callers = false;
  profile.kill_set_id = false;  // root keeps them
  profile.max_xattr = 300;      // of ext4, one block for all
  profile.fsync = 2;
  profile.sync = 0;
  return profile;
}

class HostModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, for devices and owners";
    std::string pattern = (std::filesystem::temp_directory_path() / "archil-host-model-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
  }
  void TearDown() override {
    if (!base_.empty()) std::filesystem::remove_all(base_);
  }

  std::string FreshDir() {
    const std::string dir = fmt::format("{}/{}", base_, count_++);
    std::filesystem::create_directory(dir);
    std::filesystem::permissions(dir, std::filesystem::perms(0755));
    return dir;
  }

  std::optional<std::string> RunSteps(const std::vector<ModelOp>& ops) {
    const std::string dir = FreshDir();
    HostRunner host(dir);
    ModelRun run(host, HostRules());
    std::optional<std::string> failure;
    for (const ModelOp& op : ops) {
      if ((failure = run.Step(op))) break;
    }
    host.CloseSlots();
    std::filesystem::remove_all(dir);
    return failure;
  }

  std::string base_;
  int count_ = 0;
};

TEST_F(HostModel, ReferenceAgreesWithTheHost) {
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  for (const uint64_t seed : Seeds(12)) {
    const std::string dir = FreshDir();
    HostRunner host(dir);
    ModelRun run(host, HostRules());
    OpGen gen(seed, HostProfile());
    std::vector<ModelOp> ops;
    std::optional<std::string> failure;
    for (int i = 0; i < 1000 && !failure; ++i) {
      ops.push_back(gen.Next(run.ref().visible()));
      // Costs milliseconds here and shows nothing.
      if (ops.back().kind == OpKind::kFsync || ops.back().kind == OpKind::kFsyncDir) continue;
      failure = run.Step(ops.back());
    }
    if (!failure) failure = run.CompareTrees();
    if (failure) {
      ops.push_back({.kind = OpKind::kCompare});
      const auto fewer = Shrink(
          ops, [&](const auto& some) { return RunSteps(some).has_value(); }, 600);
      FAIL() << "seed " << seed << ": " << *failure << "\nshrunk to " << fewer.size() << " steps:\n"
             << ToString(fewer) << "which gives: " << RunSteps(fewer).value_or("nothing");
    }
    host.CloseSlots();
    std::filesystem::remove_all(dir);
    succeeded += run.succeeded();
    failed += run.failed();
  }
  EXPECT_GT(succeeded, 10 * 600u);
  EXPECT_GT(failed, succeeded / 50);
}

}  // namespace
}  // namespace archil::test
