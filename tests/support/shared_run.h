// SharedRun: several mounts of one disk in memory beside one reference. Each step runs on one of the mounts, chosen at random;
// it must see all that the others did before it (COH-1), so every answer must be the reference's.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/core/mount.h"
#include "tests/support/cluster_run.h"
#include "tests/support/fs_api_adapter.h"
#include "tests/support/mem_cluster.h"
#include "tests/support/model_run.h"

namespace archil::test {

class SharedRun {
 public:
  SharedRun(const ClusterSetup& setup, int mounts);
  ~SharedRun();

  // What is wrong, or nullopt. Open first; nothing after a failure.
  std::optional<std::string> Open();
  std::optional<std::string> Step(const ModelOp& op);
  // Every mount shows the same tree; so does a new one when all others have gone.
  std::optional<std::string> Finish();

  ModelRun& model() { return *model_; }
  uint64_t Metric(const std::string& name) const;  // summed over the mounts, also those that have ended

 private:
  struct Place {
    std::unique_ptr<Mount> mount;
    std::unique_ptr<FsApiAdapter> adapter;
    std::unique_ptr<InodeRunner> runner;
    std::map<std::string, uint64_t> ended;  // metrics of mounts that have gone
  };
  // Runs a step on the mount where its handles are open, or on any.
  class Real : public FsRunner {
   public:
    explicit Real(SharedRun& run) : run_(run) {}
    Outcome Run(const ModelOp& op) override;
    Result<Tree> Dump() override;
    void CloseSlots() override;

   private:
    SharedRun& run_;
  };
  static constexpr int kNobody = -1;

  std::optional<std::string> MountAt(int place);
  std::optional<std::string> Remount(int place);
  void End(Place& place);
  // The mount that a step must run on; kNobody: any. Nullopt: its handles are open on different mounts.
  std::optional<int> PlaceOf(const ModelOp& op) const;
  void CloseSlotsOf(int place);

  ClusterSetup setup_;
  uint64_t steps_ = 0;
  std::unique_ptr<Random> random_;
  std::unique_ptr<Random> mount_random_;
  MemCluster cluster_;
  std::vector<Place> places_;
  std::array<int, kSlots> owner_;  // of open handles
  Real real_;
  std::unique_ptr<ModelRun> model_;
};

// As RunGenerated of cluster_run.h.
struct SharedTotals {
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  uint64_t recalls = 0;
  uint64_t acquires = 0;
  uint64_t server_ops = 0;  // operations applied at the server, as the mounts count them
};
std::optional<std::string> RunShared(const ClusterSetup& setup, int mounts, const GenProfile& profile, int steps,
                                     SharedTotals& totals);

}  // namespace archil::test
