// What a recall does to the kernel's caches, told by a kernel side that waits as the real one does.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "common/env/random.h"
#include "tests/support/mem_cluster.h"

namespace archil::test {
namespace {

// DropNow of pages returns only when the core says that a request of the kernel's waits for it: as if a write held the pages' locks.
class LockedPages : public KernelCache {
 public:
  void InvalidateInode(InodeId ino, uint64_t, uint64_t length) override {
    std::lock_guard<std::mutex> lock(mu_);
    if (length > 0) dropped_.push_back(ino);
  }
  void InvalidateEntry(InodeId, const std::string&) override {}
  void DropNow(Names, const std::vector<Drop>& inodes, const std::function<bool()>& blocked) override {
    bool pages = false;
    for (const Drop& drop : inodes) pages = pages || (drop.ino == locked && drop.pages);
    if (!pages) return;
    waits = true;
    while (!blocked()) std::this_thread::yield();
  }
  bool Dropped(InodeId ino) {
    std::lock_guard<std::mutex> lock(mu_);
    return std::find(dropped_.begin(), dropped_.end(), ino) != dropped_.end();
  }

  InodeId locked;
  std::atomic<bool> waits{false};

 private:
  std::mutex mu_;
  std::vector<InodeId> dropped_;
};

class MountRecall : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cluster_.Start().ok());
    ASSERT_TRUE(cluster_.meta().CreateDisk({}, "disk", 0).ok());
  }
  std::unique_ptr<Mount> Open(const std::string& name) {
    MountConfig config;
    config.disk = "disk";
    config.client_name = name;
    auto mount = Mount::Open({RealScheduler(), *random_, cluster_.meta(), cluster_.data()}, config);
    EXPECT_TRUE(mount.ok());
    return std::move(*mount);
  }

  MemCluster cluster_{{}};
  std::unique_ptr<Random> random_ = SeededRandom(1);
};

// REC-1: a change waits for its right with the kernel's pages locked, and the inode is recalled from READ. The recall does not wait for
// the pages; they go when the change is answered, whatever kind of change it was.
TEST_F(MountRecall, PagesThatAreLockedGoWhenTheChangeIsAnswered) {
  LockedPages kernel;
  auto a = Open("a");
  auto b = Open("b");
  a->SetKernelCache(&kernel);
  const auto made = b->fs().Create({}, b->fs().Root(), "f", 0644, O_RDWR);
  ASSERT_TRUE(made.ok());
  const InodeId ino = made->entry.attr.ino;
  kernel.locked = ino;
  ASSERT_TRUE(a->fs().Lookup({}, a->fs().Root(), "f").ok());
  ASSERT_TRUE(a->fs().Read({}, ino, 0, 4096).ok());

  std::thread writer([&] { EXPECT_TRUE(b->fs().Write({}, ino, 0, "from b", false, false).ok()); });
  while (!kernel.waits) std::this_thread::yield();
  SetAttrRequest chmod;
  chmod.fields = SetAttrRequest::kMode;
  chmod.mode = 0600;
  EXPECT_TRUE(a->fs().SetAttr({}, ino, chmod).ok());
  writer.join();
  EXPECT_TRUE(kernel.Dropped(ino));
  const auto seen = b->fs().GetAttr({}, ino);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->attr.mode, 0600u);
  EXPECT_EQ(seen->attr.size, 6u);
}

// A write that waits for its right does not keep what others on its mount have read of the file: only the page that it is about to
// complete is locked, and nobody can read that.
TEST_F(MountRecall, WhatWasReadIsDroppedThoughAWriteWaits) {
  struct Kernel : KernelCache {
    void InvalidateInode(InodeId, uint64_t, uint64_t) override {}
    void InvalidateEntry(InodeId, const std::string&) override {}
    void DropNow(Names, const std::vector<Drop>& inodes, const std::function<bool()>&) override {
      for (const Drop& drop : inodes) pages += drop.pages;
    }
    std::atomic<int> pages{0};
  } kernel;
  auto a = Open("a"), b = Open("b");
  const auto made = b->fs().Create({}, b->fs().Root(), "f", 0644, O_RDWR);
  ASSERT_TRUE(made.ok());
  const InodeId ino = made->entry.attr.ino;
  ASSERT_TRUE(b->fs().Write({}, ino, 0, "some", false, false).ok());
  ASSERT_TRUE(a->fs().Lookup({}, a->fs().Root(), "f").ok());
  a->SetKernelCache(&kernel);
  for (int i = 1; i <= 200; ++i) {
    ASSERT_TRUE(a->fs().Read({}, ino, 0, 4096).ok());
    std::thread other([&] { EXPECT_TRUE(b->fs().Write({}, ino, 0, "b", false, false).ok()); });
    EXPECT_TRUE(a->fs().Write({}, ino, 0, "a", false, false).ok());
    other.join();
    ASSERT_EQ(kernel.pages, i) << "what was read; less than a page that is written leaves none";
  }
}

// A look at the server keeps the file that it shows, as if it were open: a close that the server had yet to hear would end that.
TEST_F(MountRecall, WhatIsLookedUpAtTheServerHasNoCloseOnItsWay) {
  MountConfig config;
  config.disk = "disk";
  config.conditional = true;
  config.flush_after = absl::Hours(1);
  auto opened = Mount::Open({RealScheduler(), *random_, cluster_.meta(), cluster_.data()}, config);
  ASSERT_TRUE(opened.ok());
  FsApi& fs = (*opened)->fs();
  const auto made = fs.Create({}, kRootInode, "f", 0644, O_RDWR);
  ASSERT_TRUE(made.ok());
  fs.Release(made->entry.attr.ino, made->open.handle);
  ASSERT_GT(fs.GetStatus().log_ops, 0u) << "the close";
  ASSERT_TRUE(fs.Lookup({}, kRootInode, "f").ok());
  EXPECT_EQ(fs.GetStatus().log_ops, 0u);
}

// The server is asked for a directory and a file in it at once, so both are recalled; whoever gave up the directory first and asked for
// it again must not wait with the file.
TEST_F(MountRecall, TwoThatMakeAndRemoveFilesInOneDirectoryNeverWaitInACircle) {
  auto a = Open("a"), b = Open("b");
  OpContext ctx;
  const auto dir = a->fs().Mkdir(ctx, kRootInode, "dir", 0755);
  ASSERT_TRUE(dir.ok());
  const InodeId parent = dir->attr.ino;
  ASSERT_TRUE(b->fs().Lookup(ctx, kRootInode, "dir").ok());
  std::atomic<int64_t> slowest_ms{0};
  std::atomic<int> failed{0};
  const auto work = [&](FsApi& fs, const std::string& name) {
    for (int i = 0; i < 1000; ++i) {
      const absl::Time began = absl::Now();
      (void)fs.Lookup(ctx, parent, name);
      const auto made = fs.Create(ctx, parent, name, 0644, O_WRONLY | O_CREAT | O_EXCL);
      if (made.ok()) fs.Release(made->entry.attr.ino, made->open.handle);
      const auto found = fs.Lookup(ctx, parent, name);
      failed += !made.ok() + !found.ok() + !fs.Unlink(ctx, parent, name).ok();
      if (made.ok() && found.ok()) fs.Forget(made->entry.attr.ino, 2);
      slowest_ms = std::max<int64_t>(slowest_ms, absl::ToInt64Milliseconds(absl::Now() - began));
    }
  };
  std::thread other([&] { work(b->fs(), "of-b"); });
  work(a->fs(), "of-a");
  other.join();
  EXPECT_EQ(failed, 0);
  EXPECT_LT(slowest_ms, 4000) << "somebody was waited for until a deadline";
}

// A walk over more directories than a mount may hold: the server asks for the oldest back, and everything stays as it is.
TEST(MountMany, AWalkOverMoreDirectoriesThanAMountMayHold) {
  constexpr uint64_t kMany = 300;
  MemClusterOptions options;
  options.meta.rights_kept = 20;
  MemCluster cluster(options);
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.meta().CreateDisk({}, "disk", 0).ok());
  const std::unique_ptr<Random> random = SeededRandom(1);
  MountConfig config;
  config.disk = "disk";
  const auto open = [&] {
    auto mount = Mount::Open({RealScheduler(), *random, cluster.meta(), cluster.data()}, config);
    EXPECT_TRUE(mount.ok());
    return std::move(*mount);
  };
  auto a = open();
  auto b = open();
  const InodeId root = a->fs().Root();
  for (uint64_t i = 0; i < kMany; ++i) {
    const auto dir = a->fs().Mkdir({}, root, "d" + std::to_string(i), 0755);
    ASSERT_TRUE(dir.ok());
    ASSERT_TRUE(a->fs().Symlink({}, dir->attr.ino, "l", std::to_string(i)).ok());
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (uint64_t i = 0; i < kMany; ++i) {
      const auto dir = b->fs().Lookup({}, root, "d" + std::to_string(i));
      ASSERT_TRUE(dir.ok()) << i;
      const auto link = b->fs().Lookup({}, dir->attr.ino, "l");
      ASSERT_TRUE(link.ok()) << i;
      EXPECT_EQ(*b->fs().Readlink({}, link->attr.ino), std::to_string(i));
    }
  }
  const BootTime end = RealScheduler().clock().Boot() + absl::Seconds(20);
  const auto held = [&] { return cluster.meta_server()->Metrics()["meta_rights_held"]; };
  while (held() > 40 && RealScheduler().clock().Boot() < end) std::this_thread::yield();
  EXPECT_LE(held(), 40u);
}

}  // namespace
}  // namespace archil::test
