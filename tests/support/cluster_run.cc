#include "tests/support/cluster_run.h"

#include <fmt/format.h>

#include <utility>

#include "tests/support/crash_check.h"

namespace archil::test {

ClusterRun::ClusterRun(const ClusterSetup& setup)
    : setup_(setup),
      random_(SeededRandom(setup.seed * 31 + 7)),
      mount_random_(SeededRandom(setup.seed * 37 + 11)),
      cluster_(setup.cluster) {
  setup_.mount.disk = "model";
  setup_.mount.op_deadline = absl::Seconds(20);
  setup_.mount.fsync_deadline = absl::Seconds(20);
  model_ = std::make_unique<ModelRun>(real_, AgreementRules{});
}

ClusterRun::~ClusterRun() {
  real_.runner.reset();
  adapter_.reset();
  if (mount_ != nullptr) mount_->Abandon();
  mount_.reset();
}

std::optional<std::string> ClusterRun::Open() {
  const Status started = cluster_.Start();
  if (!started.ok()) return "start: " + started.error().ToString();
  const auto disk = cluster_.meta().CreateDisk({}, "model", 0);
  if (!disk.ok()) return "create disk: " + disk.error().ToString();
  cluster_.SetLossRate(setup_.loss_rate);
  return MountAgain();
}

std::optional<std::string> ClusterRun::MountAgain() {
  MountConfig config = setup_.mount;
  config.predecessor = last_session_;
  config.predecessor_key = last_key_;
  // A new mount is told at once when a server does not answer; it is not what is tested here.
  cluster_.SetLossRate(0);
  auto mount = Mount::Open({RealScheduler(), *mount_random_, cluster_.meta(), cluster_.data()}, config);
  cluster_.SetLossRate(setup_.loss_rate);
  if (!mount.ok()) return "mount: " + mount.error().ToString();
  mount_ = std::move(*mount);
  last_session_ = mount_->session();
  last_key_ = mount_->session_key();
  adapter_ = std::make_unique<FsApiAdapter>(mount_->fs(), random_->Next());
  real_.runner = std::make_unique<InodeRunner>(*adapter_);
  return std::nullopt;
}

std::optional<std::string> ClusterRun::Remount() {
  model_->ref_runner().CloseSlots();
  real_.CloseSlots();
  const auto closed = mount_->Close({});
  if (!closed.ok()) return "close: " + closed.error().ToString();
  mount_.reset();
  (void)model_->ref().Sync().ok();
  model_->ref().DropHandles();
  ++remounts_;
  last_session_ = SessionId{};  // ended in order: nothing to take over
  if (auto failure = MountAgain()) return failure;
  if (auto failure = model_->CompareTrees()) return "after a remount: " + *failure;
  return std::nullopt;
}

void ClusterRun::LoseClient() {
  ++crashes_;
  mount_->Abandon();
  real_.runner.reset();
  adapter_.reset();
  mount_.reset();
}

void ClusterRun::LoseServers() {
  const auto loss = random_->Below(2) == 0 ? MemCluster::Loss::kPower : MemCluster::Loss::kProcess;
  const uint64_t which = random_->Below(3);
  if (which == 0) {
    cluster_.CrashMeta(loss);
  } else if (which == 1) {
    cluster_.CrashData(random_->Below(setup_.cluster.data_servers), loss);
  } else {
    cluster_.CrashAll(loss);
  }
}

std::optional<std::string> ClusterRun::Explain() {
  const auto found = real_.Dump();
  if (!found.ok()) return "after a crash, cannot read the tree: " + found.error().ToString();
  std::string why;
  auto explained = ExplainCrash(model_->ref().history(), *found, model_->agreement(), &why);
  if (!explained) return "after a crash: " + why;
  lost_events_ += model_->ref().history().events.size() - explained->cut;
  model_->ref().Adopt(std::move(explained->state));
  model_->ref_runner().Reset(model_->ref());
  if (auto failure = model_->CompareTrees()) return "after a crash, read again: " + *failure;
  return std::nullopt;
}

std::optional<std::string> ClusterRun::CrashClient() {
  LoseClient();
  if (auto failure = MountAgain()) return failure;
  return Explain();
}

std::optional<std::string> ClusterRun::CrashServers() {
  ++crashes_;
  LoseServers();
  const Status started = cluster_.Start();
  if (!started.ok()) return "start after a crash: " + started.error().ToString();
  return std::nullopt;
}

std::optional<std::string> ClusterRun::CrashBoth() {
  const bool client_first = random_->Below(2) == 0;
  if (client_first) LoseClient();
  LoseServers();
  if (!client_first) LoseClient();
  const Status started = cluster_.Start();
  if (!started.ok()) return "start after a crash: " + started.error().ToString();
  if (auto failure = MountAgain()) return failure;
  return Explain();
}

std::optional<std::string> ClusterRun::Step(const ModelOp& op) {
  switch (op.kind) {
    case OpKind::kRemount: return Remount();
    case OpKind::kCrashClient: return CrashClient();
    case OpKind::kCrashServer: return CrashServers();
    case OpKind::kCrashBoth: return CrashBoth();
    case OpKind::kRestartServer: {
      cluster_.Stop();
      const Status started = cluster_.Start();
      if (!started.ok()) return "restart: " + started.error().ToString();
      return std::nullopt;
    }
    default: return model_->Step(op);
  }
}

std::optional<std::string> ClusterRun::Finish() {
  if (auto failure = model_->CompareTrees()) return failure;
  return Remount();
}

std::optional<std::string> RunSteps(const ClusterSetup& setup, const std::vector<ModelOp>& ops) {
  ClusterRun run(setup);
  if (auto failure = run.Open()) return failure;
  for (const ModelOp& op : ops) {
    if (auto failure = run.Step(op)) return failure;
  }
  return run.Finish();
}

std::optional<std::string> RunGenerated(const ClusterSetup& setup, const GenProfile& profile, int steps,
                                        ClusterTotals& totals) {
  std::vector<ModelOp> ops;
  std::optional<std::string> failure;
  {
    ClusterRun run(setup);
    OpGen gen(setup.seed, profile);
    failure = run.Open();
    for (int i = 0; i < steps && !failure; ++i) {
      ops.push_back(gen.Next(run.model().ref().visible()));
      failure = run.Step(ops.back());
    }
    if (!failure) failure = run.Finish();
    totals.succeeded += run.model().succeeded();
    totals.failed += run.model().failed();
    totals.remounts += run.remounts();
    totals.crashes += run.crashes();
    totals.lost_events += run.lost_events();
    totals.lost_calls += run.cluster().lost_calls();
  }
  if (!failure) return std::nullopt;
  return FailureReport(setup.seed, *failure, ops, [&](const std::vector<ModelOp>& some) { return RunSteps(setup, some); });
}

}  // namespace archil::test
