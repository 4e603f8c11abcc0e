// Several mounts of one disk in memory beside one reference: whatever mount a step runs on, it sees what all others did before
// (COH-1). docs/delegation.md.
#include <gtest/gtest.h>

#include "tests/support/shared_run.h"

namespace archil::test {
namespace {

struct Variant {
  const char* name;
  int mounts = 2;
  ClusterSetup setup;
  GenProfile profile;
};

Variant Two() {
  Variant v{"Two", 2, {}, {}};
  v.profile.remount = 5;
  return v;
}

Variant Four() {
  Variant v{"Four", 4, {}, {}};
  v.profile.remount = 8;
  v.setup.mount.flush_after = absl::Milliseconds(5);
  return v;
}

// Memory holds next to nothing.
Variant Tiny() {
  Variant v{"Tiny", 3, {}, {}};
  v.setup.mount.inode_limit = 3;
  v.setup.mount.cache_bytes = 0;
  v.setup.mount.dirty_limit_bytes = 64 << 10;
  v.profile.remount = 5;
  v.profile.drop_caches = 60;
  return v;
}

// Nothing is flushed but for a recall.
Variant Lazy() {
  Variant v{"Lazy", 2, {}, {}};
  v.setup.mount.flush_after = absl::Hours(1);
  v.setup.mount.flush_ops = 1'000'000;
  v.setup.mount.flush_bytes = 1ULL << 40;
  v.profile.remount = 3;
  return v;
}

Variant Restarts() {
  Variant v{"Restarts", 2, {}, {}};
  v.setup.mount.lease = absl::Seconds(2);
  v.profile.remount = 3;
  v.profile.restart_server = 3;
  v.profile.crash_server = 3;
  return v;
}

// Nothing is kept anywhere.
Variant Conditional() {
  Variant v{"Conditional", 2, {}, {}};
  v.setup.mount.conditional = true;
  v.profile.remount = 3;
  return v;
}

// Every collision makes a directory contended.
Variant Contended() {
  Variant v{"Contended", 3, {}, {}};
  v.setup.cluster.meta.contended_after = 1;
  v.setup.mount.flush_after = absl::Milliseconds(20);
  v.profile.remount = 3;
  return v;
}

Variant ContendedRestarts() {
  Variant v{"ContendedRestarts", 2, {}, {}};
  v.setup.cluster.meta.contended_after = 1;
  v.setup.mount.lease = absl::Seconds(2);
  v.profile.restart_server = 3;
  v.profile.crash_server = 3;
  return v;
}

Variant ConditionalRestarts() {
  Variant v = ContendedRestarts();
  v.name = "ConditionalRestarts";
  v.setup.mount.conditional = true;
  return v;
}

// One of two hundred messages is lost.
Variant ContendedLosses() {
  Variant v{"ContendedLosses", 2, {}, {}};
  v.setup.cluster.meta.contended_after = 1;
  v.setup.loss_rate = 500;
  return v;
}

Variant ConditionalLosses() {
  Variant v = ContendedLosses();
  v.name = "ConditionalLosses";
  v.setup.mount.conditional = true;
  return v;
}

class Shared : public ::testing::TestWithParam<Variant (*)()> {};

TEST_P(Shared, EveryMountSeesWhatTheOthersDid) {
  SharedTotals totals;
  bool at_server = false;
  for (const uint64_t seed : Seeds(3)) {
    Variant v = GetParam()();
    v.setup.seed = v.setup.cluster.seed = seed;
    at_server = v.setup.mount.conditional || v.setup.cluster.meta.contended_after == 1;
    const auto failure = RunShared(v.setup, v.mounts, v.profile, 500, totals);
    ASSERT_FALSE(failure.has_value()) << v.name << " " << *failure;
  }
  EXPECT_GT(totals.succeeded, totals.failed);
  EXPECT_GT(totals.failed, 0u);
  EXPECT_GT(totals.acquires, 50u);
  EXPECT_GT(totals.recalls, 50u);
  if (at_server) {
    EXPECT_GT(totals.server_ops, 50u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Shared,
                         ::testing::Values(&Two, &Four, &Tiny, &Lazy, &Restarts, &Conditional, &Contended,
                                           &ContendedRestarts, &ConditionalRestarts, &ContendedLosses,
                                           &ConditionalLosses),
                         [](const auto& info) { return info.param().name; });

}  // namespace
}  // namespace archil::test
