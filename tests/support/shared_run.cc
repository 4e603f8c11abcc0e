#include "tests/support/shared_run.h"

#include <fmt/format.h>

#include <utility>

namespace archil::test {

SharedRun::SharedRun(const ClusterSetup& setup, int mounts)
    : setup_(setup),
      random_(SeededRandom(setup.seed * 41 + 3)),
      mount_random_(SeededRandom(setup.seed * 43 + 5)),
      cluster_(setup.cluster),
      places_(mounts),
      real_(*this) {
  setup_.mount.disk = "model";
  setup_.mount.op_deadline = absl::Seconds(20);
  setup_.mount.fsync_deadline = absl::Seconds(20);
  owner_.fill(kNobody);
  // Nobody tells a server that a directory is open: what others changed in one before they removed it cannot be seen any more.
  AgreementRules rules;
  rules.removed_directories = false;
  model_ = std::make_unique<ModelRun>(real_, rules);
}

SharedRun::~SharedRun() {
  for (Place& place : places_) {
    if (place.mount != nullptr) place.mount->Abandon();
  }
  for (Place& place : places_) End(place);
}

void SharedRun::End(Place& place) {
  if (place.mount == nullptr) return;
  for (const auto& [name, value] : place.mount->fs().Metrics()) place.ended[name] += value;
  place.runner.reset();
  place.adapter.reset();
  place.mount.reset();
}

uint64_t SharedRun::Metric(const std::string& name) const {
  uint64_t sum = 0;
  for (const Place& place : places_) {
    if (const auto it = place.ended.find(name); it != place.ended.end()) sum += it->second;
    if (place.mount != nullptr) sum += place.mount->fs().Metrics()[name];
  }
  return sum;
}

std::optional<std::string> SharedRun::MountAt(int index) {
  Place& place = places_[index];
  MountConfig config = setup_.mount;
  config.client_name = fmt::format("mount {}", index);
  // A new mount is told at once when a server does not answer; it is not what is tested here.
  cluster_.SetLossRate(0);
  auto mount = Mount::Open({RealScheduler(), *mount_random_, cluster_.meta(), cluster_.data()}, config);
  cluster_.SetLossRate(setup_.loss_rate);
  if (!mount.ok()) return "mount: " + mount.error().ToString();
  place.mount = std::move(*mount);
  place.adapter = std::make_unique<FsApiAdapter>(place.mount->fs(), random_->Next());
  place.runner = std::make_unique<InodeRunner>(*place.adapter);
  return std::nullopt;
}

std::optional<std::string> SharedRun::Open() {
  if (const Status started = cluster_.Start(); !started.ok()) return "start: " + started.error().ToString();
  const auto disk = cluster_.meta().CreateDisk({}, "model", 0);
  if (!disk.ok()) return "create disk: " + disk.error().ToString();
  return MountAt(0);
}

void SharedRun::CloseSlotsOf(int index) {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (owner_[slot] != index) continue;
    ModelOp close;
    close.kind = OpKind::kClose;
    close.slot = slot;
    (void)model_->ref_runner().Run(close);
    (void)places_[index].runner->Run(close);
    owner_[slot] = kNobody;
  }
}

std::optional<std::string> SharedRun::Remount(int index) {
  CloseSlotsOf(index);
  Place& place = places_[index];
  if (place.mount != nullptr) {
    if (const auto closed = place.mount->Close({}); !closed.ok()) return "close: " + closed.error().ToString();
    End(place);
  }
  return MountAt(index);
}

std::optional<int> SharedRun::PlaceOf(const ModelOp& op) const {
  int where = kNobody;
  const auto add = [&](int slot) {
    if (slot < 0 || slot >= kSlots || owner_[slot] == kNobody) return true;
    if (where != kNobody && where != owner_[slot]) return false;
    where = owner_[slot];
    return true;
  };
  if (!add(op.at) || !add(op.at2)) return std::nullopt;
  if (op.kind == OpKind::kClose && !add(op.slot)) return std::nullopt;
  return where;
}

Outcome SharedRun::Real::Run(const ModelOp& op) {
  int where = *run_.PlaceOf(op);
  if (where == kNobody) {
    do {
      where = static_cast<int>(run_.random_->Below(run_.places_.size()));
    } while (run_.places_[where].mount == nullptr);
  }
  const Outcome outcome = run_.places_[where].runner->Run(op);
  if (outcome.err != 0) return outcome;
  if (op.kind == OpKind::kClose) run_.owner_[op.slot] = kNobody;
  if (op.kind != OpKind::kOpen && op.kind != OpKind::kCreate) return outcome;
  // The handle that stood in the slot before may be open elsewhere.
  int& owner = run_.owner_[op.slot];
  if (owner != kNobody && owner != where) {
    ModelOp close;
    close.kind = OpKind::kClose;
    close.slot = op.slot;
    (void)run_.places_[owner].runner->Run(close);
  }
  owner = where;
  return outcome;
}

Result<Tree> SharedRun::Real::Dump() {
  int where = 0;
  do {
    where = static_cast<int>(run_.random_->Below(run_.places_.size()));
  } while (run_.places_[where].mount == nullptr);
  return run_.places_[where].runner->Dump();
}

void SharedRun::Real::CloseSlots() {
  for (size_t i = 0; i < run_.places_.size(); ++i) run_.CloseSlotsOf(static_cast<int>(i));
}

std::optional<std::string> SharedRun::Step(const ModelOp& op) {
  // The first is alone for a while; the others come when there is something to share.
  if (++steps_ % 40 == 0) {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].mount != nullptr) continue;
      if (auto failure = MountAt(static_cast<int>(i))) return failure;
      break;
    }
  }
  if (op.kind == OpKind::kRemount) return Remount(static_cast<int>(random_->Below(places_.size())));
  if (op.kind == OpKind::kRestartServer) {
    cluster_.Stop();
    if (const Status started = cluster_.Start(); !started.ok()) return "restart: " + started.error().ToString();
    return std::nullopt;
  }
  if (op.kind == OpKind::kCrashServer) {
    cluster_.CrashMeta(MemCluster::Loss::kProcess);
    if (const Status started = cluster_.Start(); !started.ok()) return "start: " + started.error().ToString();
    return std::nullopt;
  }
  if (!PlaceOf(op)) return std::nullopt;  // no kernel would be asked that
  return model_->Step(op);
}

std::optional<std::string> SharedRun::Finish() {
  setup_.loss_rate = 0;
  cluster_.SetLossRate(0);
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].mount == nullptr) continue;
    const auto expected = model_->ref_runner().Dump();
    const auto got = places_[i].runner->Dump();
    if (!got.ok()) return fmt::format("at the end mount {} cannot read the tree: {}", i, got.error().ToString());
    if (auto difference = model_->agreement().Compare(*expected, *got)) {
      return fmt::format("at the end mount {} differs: {}", i, *difference);
    }
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    CloseSlotsOf(static_cast<int>(i));
    if (places_[i].mount == nullptr) continue;
    if (const auto closed = places_[i].mount->Close({}); !closed.ok()) return "close: " + closed.error().ToString();
    End(places_[i]);
  }
  if (auto failure = MountAt(0)) return failure;
  if (auto failure = model_->CompareTrees()) return "on a new mount: " + *failure;
  return std::nullopt;
}

namespace {

std::optional<std::string> RunSharedSteps(const ClusterSetup& setup, int mounts, const std::vector<ModelOp>& ops) {
  SharedRun run(setup, mounts);
  if (auto failure = run.Open()) return failure;
  for (const ModelOp& op : ops) {
    if (auto failure = run.Step(op)) return failure;
  }
  return run.Finish();
}

}  // namespace

std::optional<std::string> RunShared(const ClusterSetup& setup, int mounts, const GenProfile& profile, int steps,
                                     SharedTotals& totals) {
  std::vector<ModelOp> ops;
  std::optional<std::string> failure;
  {
    SharedRun run(setup, mounts);
    OpGen gen(setup.seed, profile);
    failure = run.Open();
    for (int i = 0; i < steps && !failure; ++i) {
      ops.push_back(gen.Next(run.model().ref().visible()));
      failure = run.Step(ops.back());
    }
    if (!failure) failure = run.Finish();
    totals.succeeded += run.model().succeeded();
    totals.failed += run.model().failed();
    totals.recalls += run.Metric("recalls");
    totals.acquires += run.Metric("rpc_acquire");
    totals.server_ops += run.Metric("rpc_apply_op");
  }
  if (!failure) return std::nullopt;
  return FailureReport(setup.seed, *failure, ops, [&](const std::vector<ModelOp>& some) { return RunSharedSteps(setup, mounts, some); });
}

}  // namespace archil::test
