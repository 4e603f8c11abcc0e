// Disks with a quota (docs/quota.md), by whole mounts: what is acknowledged is kept, the quota is never exceeded, and nobody gets ENOSPC
// while there is room.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/env/random.h"
#include "tests/support/mem_cluster.h"

namespace archil::test {
namespace {

constexpr uint64_t kQuota = 8 << 20;
constexpr size_t kBlock = 64 << 10;

class MountQuota : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cluster_.Start().ok());
    ASSERT_TRUE(cluster_.meta().CreateDisk({}, "disk", kQuota).ok());
  }
  std::unique_ptr<Mount> Open(const std::string& name, bool conditional = false) {
    MountConfig config;
    config.disk = "disk";
    config.client_name = name;
    config.conditional = conditional;
    auto mount = Mount::Open({RealScheduler(), *random_, cluster_.meta(), cluster_.data()}, config);
    EXPECT_TRUE(mount.ok());
    return std::move(*mount);
  }
  struct File {
    InodeId ino;
    uint64_t handle;
  };
  File Make(Mount& mount, const std::string& name) {
    const auto made = mount.fs().Create({}, mount.fs().Root(), name, 0644, O_RDWR);
    EXPECT_TRUE(made.ok());
    return {made->entry.attr.ino, made->open.handle};
  }
  // Until ENOSPC; bytes written.
  uint64_t Fill(Mount& mount, InodeId ino, char c) {
    uint64_t written = 0;
    const std::string block(kBlock, c);
    for (;;) {
      const auto wrote = mount.fs().Write({}, ino, written, block, false, false);
      if (wrote.code() == Code::kNoSpace) return written;
      EXPECT_TRUE(wrote.ok()) << wrote.error().ToString();
      if (!wrote.ok()) return written;
      written += *wrote;
    }
  }
  uint64_t Used() { return cluster_.meta().ShowDisk({}, "disk")->used_bytes; }
  void ExpectContent(Mount& mount, const std::string& name, uint64_t size, char c) {
    const auto found = mount.fs().Lookup({}, mount.fs().Root(), name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->attr.size, size);
    for (uint64_t at = 0; at < size; at += kBlock) {
      const auto read = mount.fs().Read({}, found->attr.ino, at, kBlock);
      ASSERT_TRUE(read.ok());
      std::string bytes;
      for (const Buffer& part : read->pieces) bytes += part.view();
      ASSERT_EQ(bytes, std::string(std::min<uint64_t>(kBlock, size - at), c)) << name << " at " << at;
    }
  }

  MemCluster cluster_{{}};
  std::unique_ptr<Random> random_ = SeededRandom(1);
};

TEST_F(MountQuota, TheLastByteIsUsedAndNoneMore) {
  auto mount = Open("a");
  const File f = Make(*mount, "f");
  EXPECT_EQ(Fill(*mount, f.ino, 'a'), kQuota);
  EXPECT_TRUE(mount->fs().Sync({}).ok());
  EXPECT_EQ(Used(), kQuota);
  // What is there may be overwritten, names made and removed.
  EXPECT_TRUE(mount->fs().Write({}, f.ino, 0, std::string(kBlock, 'b'), false, false).ok());
  EXPECT_TRUE(mount->fs().Mkdir({}, mount->fs().Root(), "d", 0755).ok());
  const File g = Make(*mount, "g");
  EXPECT_EQ(mount->fs().Write({}, g.ino, 0, "x", false, false).code(), Code::kNoSpace);
  EXPECT_EQ(mount->fs().Fallocate({}, g.ino, FallocateMode::kAllocate, 0, 4096).code(), Code::kNoSpace);
  // What is freed is there for the next write at once.
  ASSERT_TRUE(mount->fs().Fallocate({}, f.ino, FallocateMode::kPunchHole, 0, kBlock).ok());
  EXPECT_TRUE(mount->fs().Write({}, g.ino, 0, std::string(kBlock, 'g'), false, false).ok());
  EXPECT_EQ(mount->fs().Write({}, g.ino, kBlock, "x", false, false).code(), Code::kNoSpace);
  EXPECT_TRUE(mount->Close({}).ok());
  EXPECT_EQ(Used(), kQuota);
}

// The map of the file is not in memory: it has to be loaded to see that nothing is added.
TEST_F(MountQuota, OverwritingAFullDiskFromAnotherMount) {
  auto a = Open("a");
  EXPECT_EQ(Fill(*a, Make(*a, "f").ino, 'a'), kQuota);
  auto b = Open("b");
  const auto found = b->fs().Lookup({}, b->fs().Root(), "f");
  ASSERT_TRUE(found.ok());
  const auto wrote = b->fs().Write({}, found->attr.ino, 3 * kBlock, std::string(kBlock, 'b'), false, false);
  EXPECT_TRUE(wrote.ok()) << wrote.error().ToString();
  EXPECT_EQ(b->fs().Write({}, found->attr.ino, kQuota, "x", false, false).code(), Code::kNoSpace);
  EXPECT_TRUE(b->fs().Sync({}).ok());
  EXPECT_EQ(Used(), kQuota);
}

// The credit of one is what the other needs; what one has removed is free for the other at once, though nothing is flushed.
TEST_F(MountQuota, SpaceGoesWhereItIsNeeded) {
  auto a = Open("a");
  auto b = Open("b");
  const File f = Make(*a, "f");
  ASSERT_TRUE(a->fs().Write({}, f.ino, 0, std::string(kBlock, 'a'), false, false).ok());
  const File g = Make(*b, "g");
  EXPECT_EQ(Fill(*b, g.ino, 'b'), kQuota - kBlock);
  ASSERT_TRUE(a->fs().Unlink({}, a->fs().Root(), "f").ok());
  a->fs().Release(f.ino, f.handle);
  const auto wrote = b->fs().Write({}, g.ino, kQuota - kBlock, std::string(kBlock, 'b'), false, false);
  EXPECT_TRUE(wrote.ok()) << wrote.error().ToString();
  EXPECT_TRUE(b->fs().Sync({}).ok());
  EXPECT_EQ(Used(), kQuota);
}

TEST_F(MountQuota, TwoThatFillItTogetherFillItWhollyAndLoseNothing) {
  auto a = Open("a");
  auto b = Open("b", true);
  const File f = Make(*a, "f");
  const File g = Make(*b, "g");
  uint64_t from_a = 0, from_b = 0;
  std::thread other([&] { from_b = Fill(*b, g.ino, 'b'); });
  from_a = Fill(*a, f.ino, 'a');
  other.join();
  EXPECT_EQ(from_a + from_b, kQuota);
  EXPECT_TRUE(a->fs().Sync({}).ok());
  EXPECT_TRUE(b->fs().Sync({}).ok());
  EXPECT_EQ(Used(), kQuota);
  EXPECT_TRUE(a->Close({}).ok());
  EXPECT_TRUE(b->Close({}).ok());
  auto c = Open("c");
  ExpectContent(*c, "f", from_a, 'a');
  ExpectContent(*c, "g", from_b, 'b');
}

// Through a restart of the server as well.
TEST_F(MountQuota, WhatWasAcknowledgedIsAppliedAfterARestartWithTheDiskFull) {
  auto a = Open("a");
  const File f = Make(*a, "f");
  ASSERT_TRUE(a->fs().Write({}, f.ino, 0, std::string(kBlock, 'a'), false, false).ok());
  cluster_.CrashMeta(MemCluster::Loss::kProcess);
  ASSERT_TRUE(cluster_.Start().ok());
  auto b = Open("b");
  const File g = Make(*b, "g");
  EXPECT_EQ(Fill(*b, g.ino, 'b'), kQuota - kBlock);
  EXPECT_TRUE(a->fs().Sync({}).ok());
  EXPECT_TRUE(b->fs().Sync({}).ok());
  EXPECT_EQ(Used(), kQuota);
}

// Nothing is held for long that is not needed.
TEST_F(MountQuota, AnIdleMountReturnsItsCredit) {
  MountConfig config;
  config.disk = "disk";
  config.lease = absl::Milliseconds(1000);
  ASSERT_TRUE(cluster_.meta().CreateDisk({}, "large", 1ULL << 40).ok());
  config.disk = "large";
  auto mount = Mount::Open({RealScheduler(), *random_, cluster_.meta(), cluster_.data()}, config);
  ASSERT_TRUE(mount.ok());
  const File f = Make(**mount, "f");
  ASSERT_TRUE((*mount)->fs().Write({}, f.ino, 0, "x", false, false).ok());
  EXPECT_EQ(cluster_.meta_server()->Metrics()["meta_space_reservations"], 1u);
  const BootTime end = RealScheduler().clock().Boot() + absl::Seconds(30);
  while (cluster_.meta_server()->Metrics()["meta_space_reservations"] < 2 && RealScheduler().clock().Boot() < end) std::this_thread::yield();
  EXPECT_EQ(cluster_.meta_server()->Metrics()["meta_space_reservations"], 2u);
  // And asks again when it needs some.
  EXPECT_TRUE((*mount)->fs().Write({}, f.ino, 1, "x", false, false).ok());
  EXPECT_EQ(cluster_.meta_server()->Metrics()["meta_space_reservations"], 3u);
}

}  // namespace
}  // namespace archil::test
