// The client core in memory, with its servers, beside the reference: every step must give the same answer, every
// listing of the whole tree the same tree, also after an orderly remount with an empty cache.
#include <gtest/gtest.h>

#include "tests/support/cluster_run.h"

namespace archil::test {
namespace {

struct Variant {
  const char* name;
  ClusterSetup setup;
  GenProfile profile;
};

GenProfile Calm() {
  GenProfile profile;
  profile.remount = 3;
  return profile;
}

Variant Plain() { return {"Plain", {}, Calm()}; }

// Everything is full all the time.
Variant Tiny() {
  Variant v{"Tiny", {}, Calm()};
  v.setup.mount.dirty_limit_bytes = 64 << 10;
  v.setup.mount.cache_bytes = 256 << 10;
  v.setup.mount.flush_ops = 3;
  v.setup.mount.inode_limit = 16;
  v.setup.mount.flush_after = absl::Milliseconds(1);
  v.profile.drop_caches = 20;
  return v;
}

Variant Eager() {
  Variant v{"Eager", {}, Calm()};
  v.setup.mount.flush_after = absl::ZeroDuration();
  v.setup.mount.flush_ops = 1;
  v.setup.mount.flush_bytes = 1;
  return v;
}

// Nothing leaves before somebody asks: long logs, much absorbed.
Variant Lazy() {
  Variant v{"Lazy", {}, Calm()};
  v.setup.mount.flush_after = absl::Hours(1);
  v.setup.mount.flush_ops = 1'000'000;
  v.setup.mount.flush_bytes = 1ULL << 40;
  v.profile.remount = 2;
  v.profile.sync = 2;
  v.profile.fsync = 8;
  return v;
}

// Inodes are forgotten and read again at every step.
Variant Forgetful() {
  Variant v{"Forgetful", {}, Calm()};
  v.setup.mount.inode_limit = 1;
  v.setup.mount.cache_bytes = 0;
  v.setup.mount.flush_after = absl::Milliseconds(2);
  v.profile.drop_caches = 120;
  v.profile.sync = 30;
  return v;
}

Variant Lossy() {
  Variant v{"Lossy", {}, Calm()};
  v.setup.loss_rate = 3000;
  v.setup.cluster.data_servers = 2;
  v.setup.mount.flush_after = absl::Milliseconds(3);
  v.setup.mount.flush_ops = 20;
  return v;
}

Variant Restarts() {
  Variant v{"Restarts", {}, Calm()};
  v.setup.cluster.data_servers = 2;
  v.setup.cluster.meta.log_segment_bytes = 64 << 10;
  v.setup.cluster.meta.flush_bytes = 32 << 10;
  v.setup.mount.flush_after = absl::Milliseconds(5);
  v.profile.restart_server = 4;
  v.profile.crash_server = 4;
  return v;
}

// The kernel's side says neither open nor close: what has references is in use.
Variant Exclusive() {
  Variant v = Lazy();
  v.name = "Exclusive";
  v.setup.mount.sharing = Sharing::kExclusive;
  v.setup.mount.references_are_opens = true;
  v.setup.mount.flush_after = absl::Milliseconds(5);
  return v;
}

class Model : public ::testing::TestWithParam<Variant (*)()> {
 protected:
  void Run(uint64_t seeds, int steps) {
    ClusterTotals totals;
    for (const uint64_t seed : Seeds(seeds)) {
      Variant v = GetParam()();
      v.setup.seed = v.setup.cluster.seed = seed;
      const auto failure = RunGenerated(v.setup, v.profile, steps, totals);
      ASSERT_FALSE(failure.has_value()) << v.name << " " << *failure;
    }
    // The run must have been one.
    EXPECT_GT(totals.succeeded, totals.failed);
    EXPECT_GT(totals.failed, 0u);
    EXPECT_GT(totals.remounts, 0u);
    if (GetParam() == &Lossy) {
      EXPECT_GT(totals.lost_calls, 0u);
    }
    if (GetParam() == &Restarts) {
      EXPECT_GT(totals.crashes, 0u);
    }
  }
};

TEST_P(Model, AgreesWithTheReference) { Run(2, 800); }

INSTANTIATE_TEST_SUITE_P(All, Model, ::testing::Values(&Plain, &Tiny, &Eager, &Lazy, &Forgetful, &Lossy, &Restarts, &Exclusive),
                         [](const auto& info) { return std::string(info.param().name); });

}  // namespace
}  // namespace archil::test
