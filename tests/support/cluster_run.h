// ClusterRun: one random run of the client core on a cluster in memory beside the reference, with orderly
// remounts, crashes of the client and of the servers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/core/mount.h"
#include "tests/support/fs_api_adapter.h"
#include "tests/support/mem_cluster.h"
#include "tests/support/model_run.h"
#include "tests/support/op_gen.h"

namespace archil::test {

// What a run is: everything but the steps, so that it can be run again.
struct ClusterSetup {
  uint64_t seed = 1;
  MountConfig mount;  // disk and deadlines are filled in
  MemClusterOptions cluster;
  uint32_t loss_rate = 0;  // of 100,000 calls, see MemCluster
};

class ClusterRun {
 public:
  explicit ClusterRun(const ClusterSetup& setup);
  ~ClusterRun();

  // What is wrong, or nullopt. Open first; nothing after a failure.
  std::optional<std::string> Open();
  std::optional<std::string> Step(const ModelOp& op);
  // Compares, closes in order, mounts again with an empty cache, compares again.
  std::optional<std::string> Finish();

  ModelRun& model() { return *model_; }
  MemCluster& cluster() { return cluster_; }
  uint64_t remounts() const { return remounts_; }
  uint64_t crashes() const { return crashes_; }
  uint64_t lost_events() const { return lost_events_; }

 private:
  // The runner of the mount of the moment.
  class Real : public FsRunner {
   public:
    std::unique_ptr<InodeRunner> runner;
    Outcome Run(const ModelOp& op) override { return runner->Run(op); }
    Result<Tree> Dump() override { return runner->Dump(); }
    void CloseSlots() override { runner->CloseSlots(); }
  };

  std::optional<std::string> MountAgain();
  std::optional<std::string> Remount();
  std::optional<std::string> CrashClient();
  std::optional<std::string> CrashServers();
  std::optional<std::string> CrashBoth();
  std::optional<std::string> Explain();
  void LoseClient();
  void LoseServers();

  ClusterSetup setup_;
  std::unique_ptr<Random> random_;        // what the run decides
  std::unique_ptr<Random> mount_random_;  // the mount's own
  MemCluster cluster_;
  std::unique_ptr<Mount> mount_;
  std::unique_ptr<FsApiAdapter> adapter_;
  Real real_;
  std::unique_ptr<ModelRun> model_;
  SessionId last_session_;
  SessionKey last_key_;
  uint64_t remounts_ = 0;
  uint64_t crashes_ = 0;
  uint64_t lost_events_ = 0;
};

// Runs `steps` generated ones. What is wrong, with the seed, a shrunk case and what that gives.
struct ClusterTotals {
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  uint64_t remounts = 0;
  uint64_t crashes = 0;
  uint64_t lost_events = 0;
  uint64_t lost_calls = 0;
};
std::optional<std::string> RunGenerated(const ClusterSetup& setup, const GenProfile& profile, int steps,
                                        ClusterTotals& totals);
// Runs the steps of a pasted case.
std::optional<std::string> RunSteps(const ClusterSetup& setup, const std::vector<ModelOp>& ops);

}  // namespace archil::test
