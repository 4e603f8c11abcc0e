// The client core on a fleet in memory: what single calls promise, one by one. Random sequences are in tests/model.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <set>

#include "client/core/mount.h"
#include "tests/support/mem_cluster.h"

namespace archil {
namespace {

class MountTest : public ::testing::Test {
 protected:
  MountTest() : cluster_(test::MemClusterOptions{}), random_(SeededRandom(3)) {}
  void SetUp() override {
    ASSERT_TRUE(cluster_.Start().ok());
    ASSERT_TRUE(cluster_.meta().CreateDisk(OpContext{}, "d", 0).ok());
    Open();
  }
  void TearDown() override {
    if (mount_) mount_->Abandon();
    mount_.reset();
    cluster_.Stop();
  }

  void Open() {
    MountConfig config;
    config.disk = "d";
    config.client_name = "test";
    config.flush_after = flush_after_;
    config.cache_bytes = 4 << 20;
    config.predecessor = last_;
    config.predecessor_key = last_key_;
    config.references_are_opens = config.kernel_writeback = exclusive_;
    if (exclusive_) config.sharing = Sharing::kExclusive;
    auto mount = Mount::Open(MountEnv{RealScheduler(), *random_, cluster_.meta(), cluster_.data()}, config);
    ASSERT_TRUE(mount.ok()) << mount.error().ToString();
    mount_ = std::move(*mount);
    last_ = mount_->session();
    last_key_ = mount_->session_key();
  }
  // A clean unmount and a mount with nothing cached.
  void Remount() {
    const auto closed = mount_->Close(OpContext{});
    ASSERT_TRUE(closed.ok()) << closed.error().ToString();
    mount_.reset();
    Open();
  }
  // The client dies with what it had not flushed.
  void Crash() {
    mount_->Abandon();
    mount_.reset();
    Open();
  }
  FsApi& fs() { return mount_->fs(); }

  CreateReply CreateFile(InodeId dir, const std::string& name, std::string_view data) {
    auto made = fs().Create(OpContext{}, dir, name, 0644, O_RDWR);
    EXPECT_TRUE(made.ok()) << made.error().ToString();
    if (!data.empty()) Write(made->entry.attr.ino, 0, data);
    return *made;
  }
  void Write(InodeId ino, uint64_t offset, std::string_view data) {
    const auto written = fs().Write(OpContext{}, ino, offset, data, false, false);
    ASSERT_TRUE(written.ok()) << written.error().ToString();
    EXPECT_EQ(*written, data.size());
  }
  std::string Read(InodeId ino, uint64_t offset = 0, size_t length = 1 << 20) {
    const auto reply = fs().Read(OpContext{}, ino, offset, length);
    if (!reply.ok()) return "error " + reply.error().ToString();
    std::string out;
    for (const Buffer& piece : reply->pieces) out.append(piece.view());
    return out;
  }
  Result<Entry> Find(const std::string& name, InodeId dir = kRootInode) { return fs().Lookup(OpContext{}, dir, name); }
  std::string ReadByName(const std::string& name) {
    const auto found = Find(name);
    return found.ok() ? Read(found->attr.ino) : "absent";
  }
  uint64_t Metric(const std::string& name) { return fs().Metrics()[name]; }

  test::MemCluster cluster_;
  std::unique_ptr<Random> random_;
  absl::Duration flush_after_ = absl::Hours(1);
  bool exclusive_ = false;  // for mounts opened from then on
  SessionId last_;
  SessionKey last_key_;
  std::unique_ptr<Mount> mount_;
};

TEST_F(MountTest, WhatWasWrittenIsReadAtOnceAndAfterARemount) {
  const auto made = CreateFile(kRootInode, "a", "hello");
  EXPECT_EQ(Read(made.entry.attr.ino), "hello");
  EXPECT_EQ(ReadByName("a"), "hello");
  const Attr before = fs().GetAttr(OpContext{}, made.entry.attr.ino)->attr;
  Remount();
  EXPECT_EQ(ReadByName("a"), "hello");
  const Attr after = Find("a")->attr;
  EXPECT_EQ(after.ino, before.ino);
  EXPECT_EQ(after.size, 5u);
  EXPECT_EQ(after.mtime, before.mtime);
  EXPECT_EQ(after.ctime, before.ctime);
  EXPECT_EQ(after.allocated, before.allocated);
}

TEST_F(MountTest, LargeFileThroughSegments) {
  std::string data(9 << 20, 'x');
  for (size_t i = 0; i < data.size(); i += 4096) data[i] = static_cast<char>('a' + i / 4096 % 26);
  const auto made = CreateFile(kRootInode, "big", "");
  for (size_t at = 0; at < data.size(); at += 1 << 20) Write(made.entry.attr.ino, at, std::string_view(data).substr(at, 1 << 20));
  Remount();
  const InodeId ino = Find("big")->attr.ino;
  for (size_t at = 0; at < data.size(); at += 1 << 20) ASSERT_EQ(Read(ino, at), data.substr(at, 1 << 20)) << at;
  EXPECT_GT(Metric("fetches"), 0u);
}

TEST_F(MountTest, FsyncSurvivesTheClient_DUR1) {
  const auto made = CreateFile(kRootInode, "synced", "kept");
  ASSERT_TRUE(fs().Fsync(OpContext{}, made.entry.attr.ino, 0, false).ok());
  CreateFile(kRootInode, "unsynced", "lost");
  Crash();
  EXPECT_EQ(ReadByName("synced"), "kept");
  EXPECT_EQ(ReadByName("unsynced"), "absent");
}

TEST_F(MountTest, SmallFsyncIsOneCommitAndASecondIsNothing) {
  const auto made = CreateFile(kRootInode, "db", "");
  ASSERT_TRUE(fs().Fsync(OpContext{}, made.entry.attr.ino, 0, false).ok());
  const uint64_t commits = Metric("rpc_commit"), appends = Metric("rpc_append");
  Write(made.entry.attr.ino, 0, std::string(4096, 'p'));
  ASSERT_TRUE(fs().Fsync(OpContext{}, made.entry.attr.ino, 0, false).ok());
  EXPECT_EQ(Metric("rpc_commit"), commits + 1);
  EXPECT_EQ(Metric("rpc_append"), appends);
  ASSERT_TRUE(fs().Fsync(OpContext{}, made.entry.attr.ino, 0, false).ok());
  EXPECT_EQ(Metric("rpc_commit"), commits + 1);
}

TEST_F(MountTest, RenameBringsTheDataWithIt_ORD2) {
  const auto old = CreateFile(kRootInode, "f", "old");
  ASSERT_TRUE(fs().Fsync(OpContext{}, old.entry.attr.ino, 0, false).ok());
  const auto made = CreateFile(kRootInode, "f.tmp", std::string(100'000, 'n'));
  ASSERT_TRUE(fs().Rename(OpContext{}, kRootInode, "f.tmp", kRootInode, "f", RenameMode::kPlain).ok());
  // Another file's fsync carries the prefix of the log with the rename, and so the bytes.
  const auto other = CreateFile(kRootInode, "other", "o");
  ASSERT_TRUE(fs().Fsync(OpContext{}, other.entry.attr.ino, 0, false).ok());
  Crash();
  EXPECT_EQ(ReadByName("f"), std::string(100'000, 'n'));
  EXPECT_EQ(Find("f")->attr.ino, made.entry.attr.ino);
}

TEST_F(MountTest, BornAndDeadBeforeAFlushSendsNothing) {
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "t" + std::to_string(i);
    const auto made = CreateFile(kRootInode, name, "data");
    fs().Release(made.entry.attr.ino, made.open.handle);
    ASSERT_TRUE(fs().Unlink(OpContext{}, kRootInode, name).ok());
  }
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  EXPECT_LE(Metric("ops_sent"), 1u) << "more than the directory's times";
  EXPECT_EQ(Metric("inodes_absorbed"), 1000u);
  EXPECT_EQ(Metric("rpc_append"), 0u);
  EXPECT_EQ(Metric("dirty_bytes"), 0u);
}

TEST_F(MountTest, UnlinkedButOpenStaysReadableAndGoesAtTheEnd) {
  const auto made = CreateFile(kRootInode, "u", "still here");
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  ASSERT_TRUE(fs().Unlink(OpContext{}, kRootInode, "u").ok());
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  fs().DropCaches();
  EXPECT_EQ(Read(made.entry.attr.ino), "still here");
  Write(made.entry.attr.ino, 5, " more");
  ASSERT_TRUE(fs().Fsync(OpContext{}, made.entry.attr.ino, 0, false).ok());
  EXPECT_EQ(Read(made.entry.attr.ino), "still more");
  const uint64_t inodes = fs().StatFs(OpContext{})->used_inodes;
  fs().Release(made.entry.attr.ino, made.open.handle);
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  EXPECT_EQ(fs().StatFs(OpContext{})->used_inodes, inodes - 1);
}

TEST_F(MountTest, WithoutOpensAFileLivesAsLongAsItsReferences) {
  exclusive_ = true;
  Remount();
  const auto made = fs().Mknod(OpContext{}, kRootInode, "u", FileType::kRegular, 0644, 0);
  ASSERT_TRUE(made.ok());
  const InodeId ino = made->attr.ino;
  Write(ino, 0, "still here");
  ASSERT_TRUE(Find("u").ok());  // a second reference
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  ASSERT_TRUE(fs().Unlink(OpContext{}, kRootInode, "u").ok());
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  Write(ino, 5, " more");
  ASSERT_TRUE(fs().Fsync(OpContext{}, ino, 0, false).ok());
  fs().Forget(ino, 1);
  fs().DropCaches();
  EXPECT_EQ(Read(ino), "still more");
  const uint64_t inodes = fs().StatFs(OpContext{})->used_inodes;
  fs().Forget(ino, 1);
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  EXPECT_EQ(fs().StatFs(OpContext{})->used_inodes, inodes - 1);

  // Forgotten before the server heard of it: one op, no orphan.
  ASSERT_TRUE(fs().Mknod(OpContext{}, kRootInode, "v", FileType::kRegular, 0644, 0).ok());
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  const uint64_t sent = Metric("ops_sent");
  const InodeId second = Find("v")->attr.ino;
  ASSERT_TRUE(fs().Unlink(OpContext{}, kRootInode, "v").ok());
  fs().Forget(second, 2);
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  EXPECT_EQ(Metric("ops_sent"), sent + 1);
  EXPECT_EQ(fs().StatFs(OpContext{})->used_inodes, inodes - 1);
}

TEST_F(MountTest, AKernelThatKeepsTimesHandsThemIn) {
  exclusive_ = true;
  Remount();
  const InodeId ino = fs().Mknod(OpContext{}, kRootInode, "t", FileType::kRegular, 0644, 0)->attr.ino;
  SetAttrRequest times;
  times.fields = SetAttrRequest::kMtime | SetAttrRequest::kCtime;
  times.mtime = {4'000'000'000, 1};
  times.ctime = {4'000'000'000, 2};
  ASSERT_TRUE(fs().SetAttr(OpContext{}, ino, times).ok());
  const auto same = [&](const Attr& attr) { return attr.mtime == times.mtime && attr.ctime == times.ctime; };
  Write(ino, 0, std::string(5000, 'x'));
  EXPECT_TRUE(same(fs().GetAttr(OpContext{}, ino)->attr)) << "a write moved them";
  ASSERT_TRUE(fs().Fallocate(OpContext{}, ino, FallocateMode::kPunchHole, 0, 4096).ok());
  EXPECT_EQ(fs().GetAttr(OpContext{}, ino)->attr.mtime, times.mtime);
  Remount();
  EXPECT_EQ(Find("t")->attr.mtime, times.mtime);
  EXPECT_EQ(Find("t")->attr.size, 5000u);
  // Never back.
  times.ctime = {1, 0};
  ASSERT_TRUE(fs().SetAttr(OpContext{}, ino, times).ok());
  EXPECT_GE(fs().GetAttr(OpContext{}, ino)->attr.ctime.sec, 4'000'000'000);
}

TEST_F(MountTest, ManyInlineFsyncsMoveToASegment) {
  const auto made = CreateFile(kRootInode, "wal", "");
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    const std::string page(4096, static_cast<char>('a' + i % 26));
    Write(made.entry.attr.ino, expected.size(), page);
    expected += page;
    ASSERT_TRUE(fs().Fsync(OpContext{}, made.entry.attr.ino, 0, true).ok());
  }
  const Attr before = fs().GetAttr(OpContext{}, made.entry.attr.ino)->attr;
  EXPECT_EQ(Metric("rpc_append"), 0u);
  CreateFile(kRootInode, "poke", "x");
  mount_->Close(OpContext{}).ok();
  mount_.reset();
  Open();
  EXPECT_EQ(ReadByName("wal"), expected);
  EXPECT_EQ(Find("wal")->attr.mtime, before.mtime);
}

TEST_F(MountTest, ListingSurvivesRemovals) {
  for (int i = 0; i < 1000; ++i) {
    const auto made = CreateFile(kRootInode, "n" + std::to_string(i), "");
    fs().Release(made.entry.attr.ino, made.open.handle);
  }
  Remount();
  std::set<std::string> seen;
  uint64_t cookie = 0;
  int removed = 0;
  for (;;) {
    std::vector<std::string> part;
    ASSERT_TRUE(fs().Readdir(OpContext{}, kRootInode, cookie, false, [&](const DirItem& item) {
                      if (part.size() == 50) return false;
                      part.emplace_back(item.name);
                      cookie = item.cookie;
                      return true;
                    }).ok());
    if (part.empty()) break;
    for (const std::string& name : part) {
      EXPECT_TRUE(seen.insert(name).second) << name << " listed twice";
      if (name[0] == 'n') {
        ASSERT_TRUE(fs().Unlink(OpContext{}, kRootInode, name).ok());
        ++removed;
      }
    }
  }
  EXPECT_EQ(removed, 1000);
  EXPECT_EQ(fs().GetAttr(OpContext{}, kRootInode)->attr.size, 0u);
}

TEST_F(MountTest, NoWaitingMeansNoWaiting) {
  CreateFile(kRootInode, "cold", std::string(200'000, 'c'));
  Remount();
  OpContext quick;
  quick.may_block = false;
  EXPECT_EQ(fs().Lookup(quick, kRootInode, "cold").code(), Code::kWouldBlock);
  const InodeId ino = Find("cold")->attr.ino;
  EXPECT_TRUE(fs().Lookup(quick, kRootInode, "cold").ok());
  EXPECT_EQ(fs().Read(quick, ino, 0, 4096).code(), Code::kWouldBlock);
  EXPECT_EQ(Read(ino, 0, 4096), std::string(4096, 'c'));
  EXPECT_TRUE(fs().Read(quick, ino, 0, 4096).ok());
  EXPECT_TRUE(fs().Write(quick, ino, 10, "abc", false, false).ok());
  EXPECT_EQ(fs().Fsync(quick, ino, 0, false).code(), Code::kWouldBlock);
}

TEST_F(MountTest, ServerRestartIsAPauseAndNoError) {
  const auto made = CreateFile(kRootInode, "r", "one");
  ASSERT_TRUE(fs().Sync(OpContext{}).ok());
  cluster_.CrashAll(test::MemCluster::Loss::kPower);
  Write(made.entry.attr.ino, 3, " two");
  ASSERT_TRUE(cluster_.Start().ok());
  const auto synced = fs().Sync(OpContext{});
  ASSERT_TRUE(synced.ok()) << synced.error().ToString();
  Crash();
  EXPECT_EQ(ReadByName("r"), "one two");
}

TEST_F(MountTest, ASecondMountIsRefusedAndTheFencedOneAnswersErrors) {
  MountConfig config;
  config.disk = "d";
  config.client_name = "second";
  const MountEnv env{RealScheduler(), *random_, cluster_.meta(), cluster_.data()};
  config.sharing = Sharing::kExclusive;
  const auto refused = Mount::Open(env, config);
  ASSERT_EQ(refused.code(), Code::kHeldElsewhere);
  EXPECT_NE(refused.error().message().find("test"), std::string_view::npos) << refused.error().message();
  // The right key ends the first one.
  const auto made = CreateFile(kRootInode, "x", "y");
  config.predecessor = last_;
  config.predecessor_key = last_key_;
  auto second = Mount::Open(env, config);
  ASSERT_TRUE(second.ok()) << second.error().ToString();
  EXPECT_EQ(fs().Fsync(OpContext{}, made.entry.attr.ino, 0, false).code(), Code::kIo);
  EXPECT_EQ(fs().Mkdir(OpContext{}, kRootInode, "z", 0755).code(), Code::kIo);
  EXPECT_EQ(fs().GetStatus().state, "fenced");
  EXPECT_TRUE((*second)->Close(OpContext{}).ok());
}

}  // namespace
}  // namespace archil
