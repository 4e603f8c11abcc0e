// FENCE-1 at random: one mount is cut off for longer than its lease while it has changes that are not flushed, the other works on the
// same tree. When it is back both show the same tree, whatever was lost, and so does a new mount; and both go on working.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "common/env/random.h"
#include "tests/support/cut_link.h"
#include "tests/support/fs_api_adapter.h"
#include "tests/support/mem_cluster.h"
#include "tests/support/model_run.h"
#include "tests/support/op_gen.h"

namespace archil::test {
namespace {

constexpr absl::Duration kLease = absl::Milliseconds(300);

std::string DifferenceOf(const Tree& a, const Tree& b) {
  for (const auto& [path, node] : a) {
    const auto other = b.find(path);
    if (other == b.end()) return "only one has " + path;
    const Attr &x = node.attr, &y = other->second.attr;
    if (x.ino != y.ino || x.type != y.type || x.mode != y.mode || x.nlink != y.nlink || x.size != y.size || x.uid != y.uid) {
      return fmt::format("attributes of {} differ: inode {} and {}, size {} and {}, links {} and {}, mode {:o} and {:o}", path, x.ino.value,
                         y.ino.value, x.size, y.size, x.nlink, y.nlink, x.mode, y.mode);
    }
    if (!(x.mtime == y.mtime) || !(x.ctime == y.ctime)) return "times of " + path + " differ";
    if (node.content != other->second.content) return "content of " + path + " differs";
    if (node.target != other->second.target || node.xattrs != other->second.xattrs) return "target or xattrs of " + path + " differ";
  }
  return a.size() == b.size() ? "" : "one has more names";
}

class SilentRun {
 public:
  explicit SilentRun(uint64_t seed) : random_(SeededRandom(seed)), cluster_({.seed = seed}), gen_(seed, Profile()) {}

  std::string Run() {
    if (!cluster_.Start().ok() || !cluster_.meta().CreateDisk({}, "disk", 0).ok()) return "no server";
    if (std::string s = Open(a_, link_); !s.empty()) return s;
    // Sometimes the silent one was alone.
    const bool alone = random_->Below(3) == 0;
    if (!alone) {
      if (std::string s = Open(b_, cluster_.meta()); !s.empty()) return s;
    }
    for (int i = 0; i < 40; ++i) Step(alone || random_->Below(2) == 0 ? a_ : b_);
    for (int round = 0; round < 2; ++round) {
      if (std::string s = Cut(); !s.empty()) return fmt::format("round {}: {}", round, s);
    }
    lost = a_.mount->fs().GetStatus().lost_ops;
    for (Place* place : {&a_, &b_}) {
      if (const auto closed = place->mount->Close({}); !closed.ok()) return "close: " + closed.error().ToString();
    }
    Place cold;
    if (std::string s = Open(cold, cluster_.meta()); !s.empty()) return s;
    const auto tree = cold.runner->Dump();
    if (!tree.ok()) return "the new mount cannot be read: " + tree.error().ToString();
    if (std::string s = DifferenceOf(last_, *tree); !s.empty()) return "on the new mount: " + s;
    (void)cold.mount->Close({});
    return "";
  }
  uint64_t lost = 0;

 private:
  struct Place {
    std::unique_ptr<Mount> mount;
    std::unique_ptr<FsApiAdapter> adapter;
    std::unique_ptr<InodeRunner> runner;
  };
  static GenProfile Profile() {
    GenProfile profile;
    profile.max_file = 300 << 10;
    profile.drop_caches = 0;
    return profile;
  }

  std::string Open(Place& place, MetaService& meta) {
    MountConfig config;
    config.disk = "disk";
    config.lease = kLease;
    config.client_name = &place == &a_ ? "a" : "b";
    config.op_deadline = absl::Seconds(20);
    config.flush_after = random_->Below(2) == 0 ? absl::Hours(1) : absl::Milliseconds(20);
    config.flush_ops = 1'000'000;
    auto mount = Mount::Open({RealScheduler(), *random_, meta, cluster_.data()}, config);
    if (!mount.ok()) return "mount: " + mount.error().ToString();
    place.mount = std::move(*mount);
    place.adapter = std::make_unique<FsApiAdapter>(place.mount->fs(), random_->Next());
    place.runner = std::make_unique<InodeRunner>(*place.adapter);
    return "";
  }

  // The reference only makes the steps: what was lost it does not know.
  void Step(Place& place) {
    const ModelOp op = gen_.Next(ref_.visible());
    if (op.kind >= OpKind::kCompare) return;
    (void)ref_runner_.Run(op);
    (void)place.runner->Run(op);
  }

  bool AwaitState(const std::string& state) {
    Notification never(RealScheduler());
    for (int i = 0; i < 4000; ++i) {
      if (a_.mount->fs().GetStatus().state == state) return true;
      never.WaitUntil(RealScheduler().clock().Boot() + absl::Milliseconds(5));
    }
    return false;
  }

  std::string Cut() {
    const uint64_t before = 2 + random_->Below(20);
    for (uint64_t i = 0; i < before; ++i) Step(a_);
    link_.Cut();
    if (!AwaitState("waiting")) return "its lease does not end";
    if (b_.mount == nullptr) {
      if (std::string s = Open(b_, cluster_.meta()); !s.empty()) return s;
    }
    const uint64_t meanwhile = random_->Below(15);
    for (uint64_t i = 0; i < meanwhile; ++i) Step(b_);
    if (random_->Below(4) == 0) {
      cluster_.CrashMeta(MemCluster::Loss::kProcess);
      if (!cluster_.Start().ok()) return "the server does not start";
    }
    link_.Heal();
    if (!AwaitState("active")) return "it does not come back: " + a_.mount->fs().GetStatus().state_detail;
    for (int i = 0; i < 10; ++i) Step(random_->Below(2) == 0 ? a_ : b_);
    a_.runner->CloseSlots();
    b_.runner->CloseSlots();
    const auto a = a_.runner->Dump();
    const auto b = b_.runner->Dump();
    if (!a.ok()) return "the silent mount cannot be read: " + a.error().ToString();
    if (!b.ok()) return "the other mount cannot be read: " + b.error().ToString();
    last_ = *b;
    return DifferenceOf(*a, *b);
  }

  std::unique_ptr<Random> random_;
  MemCluster cluster_;
  CutLink link_{cluster_.meta()};
  OpGen gen_;
  RefFs ref_;
  InodeRunner ref_runner_{ref_};
  Place a_, b_;
  Tree last_;
};

TEST(Silent, BothShowTheSameTreeWhateverWasLost) {
  uint64_t lost = 0, runs = 0;
  for (const uint64_t seed : Seeds(8)) {
    SilentRun run(seed);
    const std::string failure = run.Run();
    ASSERT_EQ(failure, "") << "ARCHIL_MODEL_SEED=" << seed;
    lost += run.lost > 0 ? 1 : 0;
    ++runs;
  }
  if (runs >= 8) {
    EXPECT_GT(lost, runs / 4);
  }
}

}  // namespace
}  // namespace archil::test
