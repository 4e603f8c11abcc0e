// What is told of a LostLog: a line for each kind of op with the paths of that moment, and who lost what.
#include "client/recovery/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/recovery/path_names.h"
#include "tests/support/sample_lost_log.h"

namespace archil {
namespace {

using ::testing::ElementsAre;

constexpr InodeId kTop{1};

std::vector<std::string> Texts(const LostLog& log) {
  std::vector<std::string> texts;
  for (const OpLine& line : Describe(log).lines) texts.push_back(line.Text());
  return texts;
}

LostLog Empty() {
  LostLog log;
  log.root = kTop;
  return log;
}

Extent Inline(uint64_t offset, std::string bytes) {
  Extent e{.offset = offset, .length = bytes.size(), .kind = ExtentKind::kInline};
  e.data = Buffer(std::move(bytes));
  return e;
}

TEST(Describe, EachKindOfOp) {
  EXPECT_THAT(
      Texts(SampleLostLog()),
      ElementsAre(
          "create /README.md (mode 0644, owner 1000:100)", "symlink /link to ../target",
          "mknod /null (character device, mode 0666, owner 0:0)", "link /README.md -> /dir/second name",
          "unlink /README.md", "rmdir /empty", "rename /from -> /dir/to (replaces it)", "exchange /from <-> /dir/to",
          "set /dir/second name mode 0755 uid 1 gid 2 size 1048576 atime 1969-12-31T23:59:59.000000005Z "
          "mtime 1969-12-31T23:59:58.000000006Z",
          "set /dir/second name mtime 1970-01-01T00:00:03.000000004Z",
          "write /dir/second name 69643 bytes in 2 ranges from 0 to 1114112, of which could not be read any more: "
          "4096 bytes at 0",
          "zero /dir/second name 200 bytes at 100", "setxattr /dir/second name user.key (6 bytes)",
          "removexattr /dir/second name user.key", "release /dir/second name",
          "touch / mtime 1970-01-01T00:00:10.000000011Z"));
}

TEST(Describe, PathsFollowRenamesOfDirectories) {
  LostLog log = Empty();
  log.names = {{InodeId{5}, {kTop, "a"}}, {InodeId{6}, {InodeId{5}, "b"}}};
  log.ops = {
      SetExtentsOp{.ino = InodeId{6}, .extents = {Inline(0, "12"), Inline(2, "34")}},
      RenameOp{kTop, "a", kTop, "c", InodeId{5}, InodeId{}},
      SetExtentsOp{.ino = InodeId{6}, .extents = {Inline(8, "12")}},
      UnlinkOp{InodeId{5}, "b", InodeId{6}, true},
      SetExtentsOp{.ino = InodeId{6}, .extents = {Inline(0, "12")}},
      SetAttrOp{.ino = InodeId{77}, .fields = SetAttrOp::kMode, .mode = 04711},
      CreateOp{.parent = InodeId{88}, .name = "x", .ino = InodeId{9}, .type = FileType::kDirectory, .mode = 0700}};
  EXPECT_THAT(Texts(log), ElementsAre("write /a/b 4 bytes at 0", "rename /a -> /c", "write /c/b 2 bytes at 8",
                                      "unlink /c/b", "write inode 6 (was /c/b) 2 bytes at 0", "set inode 77 mode 4711",
                                      "mkdir (inode 88)/x (mode 0700, owner 0:0)"));
}

TEST(Describe, WhoLostWhat) {
  LostLog log = Empty();
  log.names = {{InodeId{5}, {kTop, "dir"}}, {InodeId{6}, {InodeId{5}, "base"}}};
  log.ops = {CreateOp{.parent = InodeId{5}, .name = "new", .ino = InodeId{20}},
             SetExtentsOp{.ino = InodeId{20}, .extents = {Inline(0, "12345")}},
             CreateOp{.parent = InodeId{5}, .name = "tmp", .ino = InodeId{21}},
             SetExtentsOp{.ino = InodeId{21}, .extents = {Inline(0, "12345")}},
             UnlinkOp{InodeId{5}, "tmp", InodeId{21}},
             SetExtentsOp{.ino = InodeId{6},
                          .extents = {Inline(0, "123"), {.offset = 3, .length = 7, .segment = SegmentId{1}}}},
             RenameOp{InodeId{5}, "base", kTop, "moved", InodeId{6}, InodeId{}}};
  const Listing listing = Describe(log);
  EXPECT_EQ(listing.bytes, 20u);
  EXPECT_EQ(listing.unreadable, 7u);
  ASSERT_EQ(listing.losses.size(), 4u);
  EXPECT_EQ(listing.losses[0].path, "/");
  EXPECT_TRUE(listing.losses[0].directory);
  EXPECT_EQ(listing.losses[1].path, "/dir");
  EXPECT_EQ(listing.losses[1].ops, 4u);
  EXPECT_EQ(listing.losses[2].path, "/dir/base");  // where the disk has it
  EXPECT_FALSE(listing.losses[2].created);
  EXPECT_EQ(listing.losses[2].bytes, 10u);
  EXPECT_EQ(listing.losses[2].unreadable, 7u);
  EXPECT_EQ(listing.losses[3].path, "/dir/new");
  EXPECT_TRUE(listing.losses[3].created);
}

// Names of a damaged file may go round in a circle.
TEST(Describe, CirclesEnd) {
  LostLog log = Empty();
  log.names = {{InodeId{5}, {InodeId{6}, "a"}}, {InodeId{6}, {InodeId{5}, "b"}}, {InodeId{7}, {InodeId{7}, "c"}}};
  log.ops = {TouchOp{InodeId{5}}, TouchOp{InodeId{7}}};
  EXPECT_EQ(Describe(log).lines[0].path, "(inode 6)/a");
  EXPECT_EQ(Describe(log).lines[1].path, "(inode 7)/c");
}

TEST(Printable, NothingThatATerminalActsOn) {
  EXPECT_EQ(Printable("plain name.txt"), "plain name.txt");
  EXPECT_EQ(Printable("\x1b[31m\n\\"), "\\x1b[31m\\x0a\\x5c");
  EXPECT_EQ(Printable("grün €"), "grün €");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");           // a control character in two bytes
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");           // no UTF-8
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
}

}  // namespace
}  // namespace archil
