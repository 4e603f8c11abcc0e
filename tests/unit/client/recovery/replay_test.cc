// Replay of each kind of op where nothing is in the way, and of base files that are there or not.
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "tests/unit/client/recovery/replay_world.h"

namespace archil {
namespace {

using Strings = std::vector<std::string>;

bool IsRoot() { return geteuid() == 0; }

// ---- what is new

TEST_F(ReplayTest, NewTree) {
  Create(1, "dir", 10, FileType::kDirectory, 0550);  // not writable: its mode comes at the end
  Create(10, "file", 11, FileType::kRegular, 0440);
  Write(11, 0, "hello");
  Write(11, 5, " world");
  Create(10, "sub", 12, FileType::kDirectory, 0700);
  Create(12, "empty", 13);
  log_.ops.push_back(TouchOp{InodeId{12}, {1'300'000'000, 1}, {}});
  EXPECT_EQ(Run(), "ddddddd");
  EXPECT_EQ(Stat("dir/file").st_atim.tv_sec, 1'000'000'000);  // before it is read
  EXPECT_EQ(Get("dir/file"), "hello world");
  EXPECT_EQ(Stat("dir").st_mode, S_IFDIR | 0550u);
  EXPECT_EQ(Stat("dir/file").st_mode, S_IFREG | 0440u);
  EXPECT_EQ(Stat("dir/file").st_mtim.tv_sec, 1'100'000'000);
  EXPECT_EQ(Stat("dir/file").st_mtim.tv_nsec, 7);
  EXPECT_EQ(Stat("dir").st_mtim.tv_sec, 1'000'000'000);
  EXPECT_EQ(Stat("dir/sub").st_mtim.tv_sec, 1'300'000'000);
  EXPECT_EQ(Stat("dir/sub/empty").st_size, 0);
  chmod(At("dir").c_str(), 0700);
}

TEST_F(ReplayTest, LinksSymlinksAndNodes) {
  Create(1, "file", 10);
  Write(10, 0, "x");
  log_.ops.push_back(LinkOp{InodeId{10}, kTop, "second"});
  Create(1, "symlink", 11, FileType::kSymlink, 0777);
  std::get<CreateOp>(log_.ops.back()).target = "../outside";
  Create(1, "pipe", 12, FileType::kFifo, 0622);
  Create(1, "socket", 13, FileType::kSocket, 0600);
  EXPECT_EQ(Run(), "dddddd");
  EXPECT_EQ(Get("second"), "x");
  EXPECT_EQ(Stat("second").st_ino, Stat("file").st_ino);
  char target[64] = "";
  ASSERT_GT(readlink(At("symlink").c_str(), target, sizeof(target) - 1), 0);
  EXPECT_STREQ(target, "../outside");
  EXPECT_EQ(Stat("symlink").st_mtim.tv_sec, 1'000'000'000);
  EXPECT_EQ(Stat("pipe").st_mode, S_IFIFO | 0622u);
  EXPECT_EQ(Stat("socket").st_mode, S_IFSOCK | 0600u);
}

TEST_F(ReplayTest, Devices) {
  Create(1, "null", 10, FileType::kCharDevice, 0666);
  std::get<CreateOp>(log_.ops.back()).rdev = makedev(1, 3);
  const std::string outcome = Run();
  if (outcome == "d") {
    EXPECT_EQ(Stat("null").st_mode, S_IFCHR | 0666u);
    EXPECT_EQ(Stat("null").st_rdev, makedev(1, 3));
  } else {
    EXPECT_EQ(outcome, "s");
    EXPECT_NE(Detail(0).find("mknod"), std::string::npos);
  }
}

TEST_F(ReplayTest, Attributes) {
  Create(1, "file", 10);
  Write(10, 0, "0123456789");
  log_.ops.push_back(SetAttrOp{.ino = InodeId{10},
                               .fields = SetAttrOp::kMode | SetAttrOp::kSize | SetAttrOp::kAtime | SetAttrOp::kMtime,
                               .mode = 04755,
                               .size = 4,
                               .atime = {-5, 1},
                               .mtime = {77, 2}});
  log_.ops.push_back(SetXattrOp{InodeId{10}, "user.a", std::string("v\0w", 3)});
  log_.ops.push_back(SetXattrOp{InodeId{10}, "user.b", "gone"});
  log_.ops.push_back(RemoveXattrOp{InodeId{10}, "user.b"});
  log_.ops.push_back(RemoveXattrOp{InodeId{10}, "user.c"});
  const std::string outcomes = Run();
  if (outcomes.substr(3, 1) == "d") {  // else the file system has no xattrs
    EXPECT_EQ(outcomes, "dddddds");
    char value[16];
    ASSERT_EQ(getxattr(At("file").c_str(), "user.a", value, sizeof(value)), 3);
    EXPECT_EQ(std::string(value, 3), std::string("v\0w", 3));
    EXPECT_LT(getxattr(At("file").c_str(), "user.b", value, sizeof(value)), 0);
  }
  EXPECT_EQ(Stat("file").st_atim.tv_sec, -5);  // before it is read
  EXPECT_EQ(Get("file"), "0123");
  EXPECT_EQ(Stat("file").st_mode & 07777, 04755u);
  EXPECT_EQ(Stat("file").st_mtim.tv_sec, 77);
  EXPECT_EQ(Stat("file").st_mtim.tv_nsec, 2);
}

TEST_F(ReplayTest, OwnersAsFarAsAllowed) {
  Create(1, "file", 10, FileType::kRegular, 06755);
  std::get<CreateOp>(log_.ops.back()).uid = 12345;
  std::get<CreateOp>(log_.ops.back()).gid = 23456;
  log_.ops.push_back(SetAttrOp{.ino = InodeId{10}, .fields = SetAttrOp::kGid, .gid = 34567});
  EXPECT_EQ(Run(), "dd");
  if (IsRoot()) {
    EXPECT_EQ(Stat("file").st_uid, 12345u);
    EXPECT_EQ(Stat("file").st_gid, 34567u);
  } else {
    EXPECT_EQ(Detail(0), "its owner 12345:23456 may not be set");
  }
  EXPECT_EQ(Stat("file").st_mode & 07777, 06755u);
}

TEST_F(ReplayTest, TruncationsAndHoles) {
  Create(1, "file", 10);
  Write(10, 0, std::string(65536, 'a'));
  log_.ops.push_back(ClearRangeOp{InodeId{10}, ClearRangeOp::Kind::kPunch, 4096, 8192, 65536, {}});
  log_.ops.push_back(ClearRangeOp{InodeId{10}, ClearRangeOp::Kind::kZero, 20000, 10, 65536, {}});
  log_.ops.push_back(ClearRangeOp{InodeId{10}, ClearRangeOp::Kind::kAllocate, 60000, 10000, 70000, {}});
  log_.ops.push_back(
      ClearRangeOp{InodeId{10}, ClearRangeOp::Kind::kPunch, 1 << 20, 1 << 20, 70000, {1'400'000'000, 0}});
  WriteExtents(10,
               {{.offset = 30000, .length = 100, .kind = ExtentKind::kZero},
                {.offset = 80000, .length = 1000, .kind = ExtentKind::kZero}},
               90000);
  EXPECT_EQ(Run(), "ddddddd");
  std::string expected(65536, 'a');
  expected.replace(4096, 8192, 8192, '\0');
  expected.replace(20000, 10, 10, '\0');
  expected.replace(30000, 100, 100, '\0');
  expected.resize(90000);
  EXPECT_TRUE(Get("file") == expected);
}

TEST_F(ReplayTest, RenamesAndRemovals) {
  Create(1, "dir", 10, FileType::kDirectory, 0755);
  Create(10, "a", 11);
  Write(11, 0, "a");
  Rename(1, "dir", 1, "renamed", 10);
  Write(11, 1, "A");  // by inode, whatever the directory is called
  Create(10, "b", 12);
  Write(12, 0, "b");
  Rename(10, "b", 10, "a", 12, 11);  // over it
  Create(1, "c", 13);
  Write(13, 0, "c");
  Rename(10, "a", 1, "c", 12, 13, RenameOp::Mode::kExchange);
  Write(13, 1, "C");
  Create(1, "gone", 14);
  Unlink(1, "gone", 14);
  Write(14, 0, "still open");
  Create(1, "gone dir", 15, FileType::kDirectory);
  log_.ops.push_back(RmdirOp{kTop, "gone dir", InodeId{15}});
  log_.ops.push_back(ReleaseOrphanOp{InodeId{14}});
  EXPECT_EQ(Run(),
            "dddddddddddd"
            "ddn"
            "dd"
            "n");
  EXPECT_EQ(List(), (Strings{"c", "renamed"}));
  EXPECT_EQ(List("renamed"), (Strings{"a"}));
  EXPECT_EQ(Get("c"), "b");
  EXPECT_EQ(Get("renamed/a"), "cC");
  EXPECT_EQ(Stat("renamed").st_mtim.tv_sec, 1'200'000'000);
}

TEST_F(ReplayTest, ManyExtentsAndLargeOnes) {
  Create(1, "file", 10);
  std::string big(3 << 20, 'x');
  for (size_t i = 0; i < big.size(); i++) big[i] = static_cast<char>(i * 7 + (i >> 10));
  Write(10, 100, big);
  for (uint64_t i = 0; i < 50; i++) Write(10, (4 << 20) + i * 100, "y");
  Run();
  std::string expected = std::string(100, '\0') + big;
  expected.resize((4 << 20) + 49 * 100 + 1);
  for (uint64_t i = 0; i < 50; i++) expected[(4 << 20) + i * 100] = 'y';
  EXPECT_TRUE(Get("file") == expected);
}

// ---- base files

TEST_F(ReplayTest, BaseFileThatIsThereStaysAsItIs) {
  MakeDirAt("dir");
  Put("dir/file", "others wrote this");
  chmod(At("dir/file").c_str(), 0604);
  Base(5, 1, "dir");
  Base(6, 5, "file");
  Write(6, 3, "lost", 20);
  Write(6, 10, "more", 20);
  log_.ops.push_back(SetAttrOp{.ino = InodeId{6}, .fields = SetAttrOp::kMtime, .mtime = {5, 5}});
  EXPECT_EQ(Run(), "bbb");
  EXPECT_EQ(Get("dir/file"), "others wrote this");
  EXPECT_EQ(List("dir"), (Strings{"file", "file.recovered"}));
  std::string expected(20, '\0');
  expected.replace(3, 4, "lost");
  expected.replace(10, 4, "more");
  EXPECT_EQ(Get("dir/file.recovered"), expected);
  EXPECT_EQ(Stat("dir/file.recovered").st_mode & 07777, 0604u);
  EXPECT_EQ(Stat("dir/file.recovered").st_mtim.tv_sec, 5);
  EXPECT_EQ(Detail(0), "/dir/file existed before: only what was lost is in /dir/file.recovered, beside it");
  // Again: nothing that is there is touched.
  EXPECT_EQ(Run(), "bbb");
  EXPECT_EQ(List("dir"), (Strings{"file", "file.recovered", "file.recovered-2"}));
}

TEST_F(ReplayTest, BaseFileThatIsThereIsChangedIfWanted) {
  Put("file", "0123456789");
  chmod(At("file").c_str(), 0604);
  Base(6, 1, "file");
  Write(6, 3, "lost");
  EXPECT_EQ(Overwrite(), "d");
  EXPECT_EQ(Get("file"), "012lost789");
  EXPECT_EQ(Stat("file").st_mode & 07777, 0604u);
  EXPECT_EQ(Stat("file").st_mtim.tv_sec, 1'100'000'000);
  EXPECT_EQ(List(), (Strings{"file"}));
}

TEST_F(ReplayTest, BaseFileThatIsNotThereIsMadeSparse) {
  Base(5, 1, "dir");
  Base(6, 5, "sub");
  Base(7, 6, "file");
  Write(7, 1 << 20, "lost", 2 << 20);
  EXPECT_EQ(Run(), "d");
  EXPECT_EQ(Detail(0),
            "it was not there: /dir/sub/file was made, only what was lost is in it; directory /dir was missing and was "
            "made; directory "
            "/dir/sub was missing and was made");
  EXPECT_EQ(Stat("dir/sub/file").st_size, 2 << 20);
  EXPECT_LT(Stat("dir/sub/file").st_blocks, 1 << 10);
  EXPECT_EQ(Stat("dir/sub/file").st_mode & 07777, 0600u);
  EXPECT_EQ(Get("dir/sub/file").substr(1 << 20, 4), "lost");
}

TEST_F(ReplayTest, AttributesOfBaseFiles) {
  Put("file", "x");
  Base(6, 1, "file");
  Base(7, 1, "absent");
  log_.ops.push_back(SetAttrOp{.ino = InodeId{6}, .fields = SetAttrOp::kMode, .mode = 0600});
  log_.ops.push_back(SetAttrOp{.ino = InodeId{7}, .fields = SetAttrOp::kMode, .mode = 0600});
  log_.ops.push_back(SetXattrOp{InodeId{6}, "user.a", "v"});
  log_.ops.push_back(TouchOp{kTop, {1, 1}, {1, 1}});
  log_.ops.push_back(SetAttrOp{.ino = kTop, .fields = SetAttrOp::kMode, .mode = 0711});
  EXPECT_EQ(Run(), "sssns");
  EXPECT_EQ(Detail(0), "it existed before; --overwrite changes it");
  EXPECT_EQ(Detail(1), "it is not there");
  EXPECT_EQ(Overwrite().substr(0, 2), "ds");
  EXPECT_EQ(Stat("file").st_mode & 07777, 0600u);
  EXPECT_EQ(Stat(".").st_mode & 07777, 0711u);
  EXPECT_EQ(Stat(".").st_mtim.tv_sec, 1);
}

TEST_F(ReplayTest, RemovalsOfBaseFilesOnlyIfWanted) {
  Put("file", "x");
  MakeDirAt("dir");
  Base(6, 1, "file");
  Base(7, 1, "dir");
  Base(8, 1, "absent");
  Unlink(1, "file", 6);
  log_.ops.push_back(RmdirOp{kTop, "dir", InodeId{7}});
  Unlink(1, "absent", 8);
  EXPECT_EQ(Run(), "sss");
  EXPECT_EQ(Detail(0), "/file: it existed before and stays; --overwrite removes it");
  EXPECT_EQ(Detail(2), "/absent is not there");
  EXPECT_EQ(List(), (Strings{"dir", "file"}));
  EXPECT_EQ(Overwrite(), "dds");
  EXPECT_EQ(List(), Strings());
}

TEST_F(ReplayTest, RenamesOfBaseFiles) {
  Put("a", "base a");
  Base(6, 1, "a");
  Base(7, 1, "absent");
  Write(6, 0, "lost");
  Rename(1, "a", 1, "b", 6);
  Rename(1, "absent", 1, "c", 7);
  Write(7, 0, "lost too");
  EXPECT_EQ(Run(), "bbsd");
  EXPECT_EQ(List(), (Strings{"b", "b.recovered", "c"}));
  EXPECT_EQ(Get("b"), "base a");
  EXPECT_EQ(Get("b.recovered"), "lost");
  EXPECT_EQ(Get("c"), "lost too");
}

TEST_F(ReplayTest, LinksOfBaseFiles) {
  Put("a", "base a");
  Base(6, 1, "a");
  Base(7, 1, "absent");
  Base(8, 1, "absent and without bytes");
  log_.ops.push_back(LinkOp{InodeId{6}, kTop, "b"});
  log_.ops.push_back(LinkOp{InodeId{7}, kTop, "c"});
  Write(7, 0, "lost");
  log_.ops.push_back(LinkOp{InodeId{8}, kTop, "d"});
  EXPECT_EQ(Run(), "ddds");
  EXPECT_EQ(List(), (Strings{"a", "absent", "b", "c"}));
  EXPECT_EQ(Stat("a").st_ino, Stat("b").st_ino);
  EXPECT_EQ(Get("c"), "lost");
}

TEST_F(ReplayTest, InodesWithoutAKnownName) {
  Write(77, 0, "whose?");
  Create(88, "file", 10);
  Write(10, 0, "where?");
  EXPECT_EQ(Run(), "ddd");
  EXPECT_EQ(List(), (Strings{"inode-77.recovered", "inode-88.recovered"}));
  EXPECT_EQ(Get("inode-77.recovered"), "whose?");
  EXPECT_EQ(Get("inode-88.recovered/file"), "where?");
}

TEST_F(ReplayTest, BytesThatCouldNotBeReadAnyMore) {
  Create(1, "file", 10);
  Extent e{.offset = 0, .length = 3, .kind = ExtentKind::kInline};
  e.data = Buffer(std::string("abc"));
  WriteExtents(10, {e, {.offset = 3, .length = 5, .kind = ExtentKind::kSegment, .segment = SegmentId{1}}}, 8);
  EXPECT_EQ(Run(), "ds");
  EXPECT_EQ(Detail(1), "5 bytes at 3 could not be read any more when the file was saved");
  EXPECT_EQ(Get("file"), std::string("abc\0\0\0\0\0", 8));
}

}  // namespace
}  // namespace archil
