// ModelRun: one random run of a file system beside the reference, step by step; and what a failing run needs to be
// told: its seed, its steps, fewer of them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/agreement.h"
#include "tests/support/fs_runner.h"
#include "tests/support/ref_fs.h"

namespace archil::test {

class ModelRun {
 public:
  ModelRun(FsRunner& real, const AgreementRules& rules) : real_(real), ref_runner_(ref_), agreement_(rules) {}

  // Runs the step on both sides; what differs, or nullopt. Only kinds of the file system, and kCompare.
  std::optional<std::string> Step(const ModelOp& op);
  std::optional<std::string> CompareTrees();

  RefFs& ref() { return ref_; }
  InodeRunner& ref_runner() { return ref_runner_; }
  Agreement& agreement() { return agreement_; }
  uint64_t succeeded() const { return succeeded_; }
  uint64_t failed() const { return failed_; }  // with the same error on both sides

 private:
  RefFs ref_;
  FsRunner& real_;
  InodeRunner ref_runner_;
  Agreement agreement_;
  uint64_t succeeded_ = 0;
  uint64_t failed_ = 0;
};

// Fewer steps that still fail: drops ever smaller pieces while `fails` says so, at most `tries` times.
std::vector<ModelOp> Shrink(std::vector<ModelOp> ops, const std::function<bool(const std::vector<ModelOp>&)>& fails,
                            int tries);

// A failure of a run with what is needed to repeat it: `rerun` runs steps anew and says what is wrong. Steps are shrunk, at most
// ARCHIL_MODEL_SHRINK tries; a failure that depends on the moment may not come again, then all are shown.
std::string FailureReport(uint64_t seed, const std::string& failure, const std::vector<ModelOp>& ops,
                          const std::function<std::optional<std::string>(const std::vector<ModelOp>&)>& rerun);

// Seeds of a test: `count` from 1 on; ARCHIL_MODEL_SEEDS=N gives N, ARCHIL_MODEL_SEED=S only S, ARCHIL_MODEL_FIRST=S
// the first.
std::vector<uint64_t> Seeds(uint64_t count);

}  // namespace archil::test
