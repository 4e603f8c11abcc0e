// Crashes of the client, of servers, of both, at any moment: what a new mount shows must be what the reference allows
// (tests/support/crash_check.h): everything synced, a prefix of the rest, no file ahead of its data.
#include <gtest/gtest.h>

#include "tests/support/cluster_run.h"

namespace archil::test {
namespace {

struct Variant {
  const char* name;
  ClusterSetup setup;
  GenProfile profile;
};

GenProfile Crashing() {
  GenProfile profile;
  profile.crash_client = 12;
  profile.crash_both = 6;
  profile.crash_server = 2;
  profile.sync = 2;
  profile.fsync = 30;
  profile.compare = 2;
  profile.remount = 1;
  return profile;
}

Variant Plain() {
  Variant v{"Plain", {}, Crashing()};
  v.setup.mount.flush_after = absl::Milliseconds(3);
  v.setup.mount.flush_ops = 40;
  return v;
}

Variant Tiny() {
  Variant v{"Tiny", {}, Crashing()};
  v.setup.mount.dirty_limit_bytes = 64 << 10;
  v.setup.mount.cache_bytes = 256 << 10;
  v.setup.mount.flush_ops = 3;
  v.setup.mount.inode_limit = 16;
  v.setup.mount.flush_after = absl::Milliseconds(1);
  return v;
}

Variant Lazy() {
  Variant v{"Lazy", {}, Crashing()};
  v.setup.mount.flush_after = absl::Hours(1);
  v.setup.mount.flush_ops = 1'000'000;
  v.setup.mount.flush_bytes = 1ULL << 40;
  return v;
}

Variant Servers() {
  Variant v{"Servers", {}, Crashing()};
  v.setup.cluster.data_servers = 2;
  v.setup.cluster.meta.log_segment_bytes = 64 << 10;
  v.setup.cluster.meta.flush_bytes = 32 << 10;
  v.setup.mount.flush_after = absl::Milliseconds(2);
  v.setup.mount.flush_ops = 10;
  v.profile.crash_both = 12;
  v.profile.crash_server = 12;
  v.profile.crash_client = 4;
  return v;
}

Variant Exclusive() {
  Variant v = Plain();
  v.name = "Exclusive";
  v.setup.mount.sharing = Sharing::kExclusive;
  v.setup.mount.references_are_opens = true;
  return v;
}

class ModelCrash : public ::testing::TestWithParam<Variant (*)()> {};

TEST_P(ModelCrash, LeavesWhatIsAllowed) {
  ClusterTotals totals;
  for (const uint64_t seed : Seeds(3)) {
    Variant v = GetParam()();
    v.setup.seed = v.setup.cluster.seed = seed;
    const auto failure = RunGenerated(v.setup, v.profile, 600, totals);
    ASSERT_FALSE(failure.has_value()) << v.name << " " << *failure;
  }
  EXPECT_GT(totals.crashes, 4 * Seeds(3).size());
  EXPECT_GT(totals.succeeded, 200 * Seeds(3).size());
  // Without a loss nothing has been tested.
  EXPECT_GT(totals.lost_events, Seeds(3).size());
}

INSTANTIATE_TEST_SUITE_P(All, ModelCrash, ::testing::Values(&Plain, &Tiny, &Lazy, &Servers, &Exclusive),
                         [](const auto& info) { return std::string(info.param().name); });

}  // namespace
}  // namespace archil::test
