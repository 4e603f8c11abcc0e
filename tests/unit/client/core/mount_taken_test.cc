// FENCE-1: a mount that was silent for longer than its lease, and what others took from it meanwhile. docs/delegation.md.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "client/recovery/lost_log.h"
#include "common/env/random.h"
#include "tests/support/cut_link.h"
#include "tests/support/mem_cluster.h"
#include "tests/support/scratch_dir.h"

namespace archil::test {
namespace {

namespace stdfs = std::filesystem;

constexpr absl::Duration kLease = absl::Milliseconds(400);

class MountTaken : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cluster_.Start().ok());
    ASSERT_TRUE(cluster_.meta().CreateDisk({}, "disk", 0).ok());
  }
  void TearDown() override {
    a_.reset();
    b_.reset();
  }

  std::unique_ptr<Mount> Open(const std::string& name, MetaService& meta) {
    MountConfig config;
    config.disk = "disk";
    config.client_name = name;
    config.lease = kLease;
    config.recovery_dir = dir_.path();
    // Only what is asked for is flushed.
    config.flush_after = absl::Hours(1);
    config.flush_ops = 1'000'000;
    config.flush_bytes = 1ULL << 40;
    config.op_deadline = absl::Seconds(20);
    auto mount = Mount::Open({RealScheduler(), *random_, meta, cluster_.data()}, config);
    EXPECT_TRUE(mount.ok()) << (mount.ok() ? "" : mount.error().ToString());
    return mount.ok() ? std::move(*mount) : nullptr;
  }
  void OpenBoth() {
    a_ = Open("a", link_);
    b_ = Open("b", cluster_.meta());
    ASSERT_NE(a_, nullptr);
    ASSERT_NE(b_, nullptr);
  }
  static InodeId Mkdir(Mount& m, InodeId parent, const std::string& name) {
    const auto made = m.fs().Mkdir({}, parent, name, 0755);
    EXPECT_TRUE(made.ok()) << name;
    return made.ok() ? made->attr.ino : InodeId{};
  }
  struct File {
    InodeId ino;
    HandleId handle = 0;
  };
  static File Put(Mount& m, InodeId parent, const std::string& name, const std::string& content) {
    const auto made = m.fs().Create({}, parent, name, 0644, O_RDWR);
    EXPECT_TRUE(made.ok()) << name << (made.ok() ? "" : made.error().ToString());
    if (!made.ok()) return {};
    EXPECT_TRUE(m.fs().Write({}, made->entry.attr.ino, 0, content, false, false).ok());
    return {made->entry.attr.ino, made->open.handle};
  }
  // "-" if there is no such name.
  static std::string Content(Mount& m, InodeId parent, const std::string& name) {
    const auto entry = m.fs().Lookup({}, parent, name);
    if (entry.code() == Code::kNotFound) return "-";
    EXPECT_TRUE(entry.ok()) << name << " " << (entry.ok() ? "" : entry.error().ToString());
    if (!entry.ok()) return "?";
    const auto read = m.fs().Read({}, entry->attr.ino, 0, 1 << 20);
    EXPECT_TRUE(read.ok()) << name;
    if (!read.ok()) return "?";
    std::string all;
    for (const Buffer& piece : read->pieces) all.append(piece.view());
    return all;
  }
  void WaitUntil(const std::function<bool()>& done) {
    const BootTime end = RealScheduler().clock().Boot() + absl::Seconds(20);
    Notification never(RealScheduler());
    while (!done() && RealScheduler().clock().Boot() < end) never.WaitUntil(RealScheduler().clock().Boot() + absl::Milliseconds(5));
    EXPECT_TRUE(done());
  }
  void CutForLongerThanALease() {
    link_.Cut();
    WaitUntil([&] { return a_->fs().GetStatus().state == "waiting"; });
  }
  void Heal() {
    link_.Heal();
    WaitUntil([&] { return a_->fs().GetStatus().state == "active"; });
  }
  std::vector<LostLog> Saved() {
    std::vector<LostLog> out;
    for (const auto& entry : stdfs::directory_iterator(dir_.path())) {
      auto log = LoadLostLog(entry.path());
      EXPECT_TRUE(log.ok()) << entry.path();
      if (log.ok()) out.push_back(std::move(*log));
    }
    return out;
  }

  ScratchDir dir_;
  MemCluster cluster_{{}};
  CutLink link_{cluster_.meta()};
  std::unique_ptr<Random> random_ = SeededRandom(1);
  std::unique_ptr<Mount> a_, b_;
};

TEST_F(MountTaken, WhatNobodyWantedIsNotLost) {
  OpenBoth();
  const InodeId dir = Mkdir(*a_, kRootInode, "dir");
  ASSERT_TRUE(b_->fs().Lookup({}, kRootInode, "dir").ok());
  const File file = Put(*a_, dir, "f", "kept");
  CutForLongerThanALease();
  EXPECT_EQ(Content(*b_, kRootInode, "other"), "-");
  Heal();
  EXPECT_TRUE(a_->fs().Fsync({}, file.ino, file.handle, false).ok());
  EXPECT_EQ(a_->fs().GetStatus().lost_ops, 0u);
  EXPECT_EQ(Content(*b_, dir, "f"), "kept");
  EXPECT_TRUE(Saved().empty());
}

TEST_F(MountTaken, TheLogIsKeptUpToTheFirstOpThatTouchesWhatWasTaken) {
  OpenBoth();
  const InodeId one = Mkdir(*a_, kRootInode, "one");
  const InodeId two = Mkdir(*a_, kRootInode, "two");
  const File old = Put(*a_, two, "old", "old");
  ASSERT_TRUE(b_->fs().Lookup({}, kRootInode, "two").ok());
  ASSERT_EQ(Content(*b_, two, "old"), "old");  // the directory is READ at both
  const File before = Put(*a_, one, "before", "kept");
  const File lost = Put(*a_, two, "lost", "lost content");
  ASSERT_TRUE(a_->fs().Write({}, old.ino, 0, "new", false, false).ok());
  const File after = Put(*a_, one, "after", "later");
  EXPECT_GE(a_->fs().GetStatus().log_ops, 3u);
  CutForLongerThanALease();
  // One lease at most, and nothing of it is seen.
  EXPECT_EQ(Content(*b_, two, "lost"), "-");
  EXPECT_EQ(Content(*b_, two, "old"), "old");
  Put(*b_, two, "of b", "b");
  Heal();
  for (Mount* m : {a_.get(), b_.get()}) {
    EXPECT_EQ(Content(*m, one, "before"), "kept");
    EXPECT_EQ(Content(*m, one, "after"), "-");
    EXPECT_EQ(Content(*m, two, "lost"), "-");
    EXPECT_EQ(Content(*m, two, "old"), "old");
    EXPECT_EQ(Content(*m, two, "of b"), "b");
  }
  EXPECT_TRUE(a_->fs().Fsync({}, before.ino, before.handle, false).ok());
  for (const File& f : {lost, old, after}) {
    EXPECT_EQ(a_->fs().Fsync({}, f.ino, f.handle, false).code(), Code::kIo);
    EXPECT_NE(a_->fs().Fsync({}, f.ino, f.handle, false).code(), Code::kIo) << "once";
  }
  EXPECT_EQ(a_->fs().FsyncDir({}, two).code(), Code::kIo);
  EXPECT_TRUE(a_->fs().FsyncDir({}, two).ok());
  // It goes on as if nothing had been.
  Put(*a_, two, "lost", "again");
  EXPECT_EQ(Content(*b_, two, "lost"), "again");

  const std::vector<LostLog> saved = Saved();
  ASSERT_EQ(saved.size(), 1u);
  const LostLog& log = saved[0];
  EXPECT_EQ(log.disk, "disk");
  EXPECT_EQ(a_->fs().GetStatus().lost_ops, log.ops.size());
  ASSERT_TRUE(std::holds_alternative<CreateOp>(log.ops[0]));
  EXPECT_EQ(std::get<CreateOp>(log.ops[0]).name, "lost");
  ASSERT_TRUE(log.names.contains(two));
  EXPECT_EQ(log.names.at(two).name, "two");
  ASSERT_TRUE(log.names.contains(old.ino));
  EXPECT_EQ(log.names.at(old.ino).name, "old");
  std::map<InodeId, std::string> bytes;
  for (const Op& op : log.ops) {
    if (const auto* set = std::get_if<SetExtentsOp>(&op)) {
      for (const Extent& e : set->extents) bytes[set->ino] += e.data.view();
    }
  }
  EXPECT_EQ(bytes[lost.ino], "lost content");
  EXPECT_EQ(bytes[old.ino], "new");
  EXPECT_EQ(bytes[after.ino], "later");
}

TEST_F(MountTaken, OneThatWasAloneLosesOnlyWhatIsWanted) {
  a_ = Open("a", link_);
  const InodeId one = Mkdir(*a_, kRootInode, "one");
  const InodeId two = Mkdir(*a_, kRootInode, "two");
  ASSERT_TRUE(a_->fs().Sync({}).ok());
  Put(*a_, one, "kept", "kept");
  Put(*a_, two, "lost", "lost");
  CutForLongerThanALease();
  b_ = Open("b", cluster_.meta());
  ASSERT_NE(b_, nullptr);
  EXPECT_EQ(Content(*b_, two, "lost"), "-");
  EXPECT_FALSE(b_->fs().GetStatus().alone);
  Heal();
  EXPECT_EQ(Content(*b_, one, "kept"), "kept");
  EXPECT_EQ(Content(*a_, one, "kept"), "kept");
  EXPECT_EQ(Content(*a_, two, "lost"), "-");
  Put(*a_, two, "x", "x");
  EXPECT_EQ(Content(*b_, two, "x"), "x");
  EXPECT_EQ(Saved().size(), 1u);
}

// LOCK-1
TEST_F(MountTaken, AnOpenFileWhoseLockWasTakenIsNoUseUntilItIsClosed) {
  OpenBoth();
  const File file = Put(*a_, kRootInode, "f", "x");
  const auto other = a_->fs().Open({}, file.ino, O_RDWR);
  ASSERT_TRUE(other.ok());
  LockCall lock;
  lock.type = LockType::kWrite;
  lock.owner = 7;
  ASSERT_TRUE(a_->fs().SetLock({}, file.ino, file.handle, lock).ok());
  const auto there = b_->fs().Lookup({}, kRootInode, "f");
  ASSERT_TRUE(there.ok());
  const auto open = b_->fs().Open({}, file.ino, O_RDWR);
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(b_->fs().SetLock({}, file.ino, open->handle, lock).code(), Code::kTryAgain);
  CutForLongerThanALease();
  lock.wait = true;
  EXPECT_TRUE(b_->fs().SetLock({}, file.ino, open->handle, lock).ok());
  Heal();
  OpContext through;
  through.handle = file.handle;
  EXPECT_EQ(a_->fs().Write(through, file.ino, 0, "y", false, false).code(), Code::kIo);
  EXPECT_EQ(a_->fs().Read(through, file.ino, 0, 1).code(), Code::kIo);
  lock.wait = false;
  EXPECT_EQ(a_->fs().SetLock({}, file.ino, file.handle, lock).code(), Code::kIo);
  OpContext fine;
  fine.handle = other->handle;
  EXPECT_TRUE(a_->fs().Read(fine, file.ino, 0, 1).ok());
  EXPECT_EQ(a_->fs().SetLock({}, file.ino, other->handle, lock).code(), Code::kTryAgain) << "it is the other mount's";
  a_->fs().Release(file.ino, file.handle);
  EXPECT_EQ(a_->fs().GetStatus().lost_ops, 0u);
}

TEST_F(MountTaken, WhatIsTakenStaysSoWhenTheServerIsRestarted) {
  OpenBoth();
  const InodeId one = Mkdir(*a_, kRootInode, "one");
  const InodeId two = Mkdir(*a_, kRootInode, "two");
  ASSERT_TRUE(b_->fs().Lookup({}, kRootInode, "two").ok());
  Put(*a_, one, "kept", "kept");
  Put(*a_, two, "lost", "lost");
  CutForLongerThanALease();
  EXPECT_EQ(Content(*b_, two, "lost"), "-");
  cluster_.CrashMeta(MemCluster::Loss::kProcess);
  ASSERT_TRUE(cluster_.Start().ok());
  Heal();
  for (Mount* m : {b_.get(), a_.get()}) {
    EXPECT_EQ(Content(*m, one, "kept"), "kept");
    EXPECT_EQ(Content(*m, two, "lost"), "-");
  }
  Put(*a_, two, "x", "x");
  EXPECT_EQ(Content(*b_, two, "x"), "x");
}

TEST_F(MountTaken, ASessionThatIsEndedSavesItsWholeLog) {
  OpenBoth();
  const InodeId dir = Mkdir(*a_, kRootInode, "dir");
  Put(*a_, dir, "f", "all of it");
  ASSERT_TRUE(cluster_.meta().Revoke({}, "disk", a_->session(), InodeId{}).ok());
  WaitUntil([&] { return a_->fs().GetStatus().state == "fenced" && !a_->fs().GetStatus().lost_file.empty(); });
  const std::vector<LostLog> saved = Saved();
  ASSERT_EQ(saved.size(), 1u);
  ASSERT_GE(saved[0].ops.size(), 3u);
  EXPECT_EQ(saved[0].names.count(dir), 0u) << "it was made by these ops";
  EXPECT_EQ(Content(*b_, kRootInode, "dir"), "-");
}

}  // namespace
}  // namespace archil::test
