// The oracle itself, by hand: semantics, and what it allows a crash to leave.
#include "tests/support/ref_fs.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/support/crash_check.h"
#include "tests/support/fs_runner.h"
#include "tests/support/model_op.h"
#include "tests/support/op_gen.h"

namespace archil::test {
namespace {

class RefFsTest : public ::testing::Test {
 protected:
  // Runs steps given as text; the last outcome.
  Outcome Do(std::string_view text) {
    const auto ops = ParseModelOps(text);
    EXPECT_TRUE(ops.has_value()) << text;
    Outcome last;
    for (const ModelOp& op : ops.value_or(std::vector<ModelOp>{})) last = runner_.Run(op);
    return last;
  }
  Attr Stat(const std::string& path) {
    const Outcome out = runner_.Run({.kind = OpKind::kStat, .path = path});
    EXPECT_EQ(out.err, 0) << path;
    return out.attrs.empty() ? Attr{} : out.attrs[0];
  }
  Tree Dump() {
    auto tree = runner_.Dump();
    EXPECT_TRUE(tree.ok());
    return *tree;
  }
  // The tree of another reference that ran `text`.
  static Tree TreeOf(std::string_view text) {
    RefFs fs;
    InodeRunner runner(fs);
    const auto ops = ParseModelOps(text);
    for (const ModelOp& op : ops.value()) EXPECT_EQ(runner.Run(op).err, 0) << ToString(op);
    return *runner.Dump();
  }
  // May a crash leave what `text` makes?
  bool MayLeave(std::string_view text) { return MayLeave(TreeOf(text)); }
  bool MayLeave(const Tree& tree) {
    // Two references give out numbers and times by their own history: compare neither.
    AgreementRules rules;
    rules.inodes = false;
    Tree plain = tree;
    for (auto& [path, node] : plain) node.attr.atime = node.attr.mtime = node.attr.ctime = Timestamp{};
    RefHistory history = fs_.history();
    Agreement agreement(rules);
    why_.clear();
    return ExplainCrash(history, plain, agreement, &why_).has_value();
  }

  RefFs fs_;
  InodeRunner runner_{fs_};
  std::string why_;
};

TEST_F(RefFsTest, CountsLinksAndNames) {
  Do("mkdir path=d mode=755\nmkdir path=d/e mode=755\ncreate path=d/f slot=0 flags=202 mode=644\nlink path=d/f "
     "path2=g");
  EXPECT_EQ(Stat("d").nlink, 3u);
  EXPECT_EQ(Stat("d").size, 2u);
  EXPECT_EQ(Stat("").nlink, 3u);
  EXPECT_EQ(Stat("g").nlink, 2u);
  EXPECT_EQ(Stat("g").ino, Stat("d/f").ino);
  Do("rename path=d/e path2=e");
  EXPECT_EQ(Stat("d").nlink, 2u);
  EXPECT_EQ(Stat("").nlink, 4u);
}

TEST_F(RefFsTest, GivesTheErrorsOfLinux) {
  Do("mkdir path=d mode=755\nmkdir path=d/e mode=755\ncreate path=f slot=0 flags=202 mode=644\nsymlink path=s path2=d");
  EXPECT_EQ(Do("mkdir path=d mode=755").err, EEXIST);
  EXPECT_EQ(Do("mkdir path=f/x mode=755").err, ENOTDIR);
  EXPECT_EQ(Do("mkdir path=s/x mode=755").err, ENOTDIR);  // links are not followed here
  EXPECT_EQ(Do("mkdir path=no/x mode=755").err, ENOENT);
  EXPECT_EQ(Do("mkdir path=%*78256. mode=755").err, ENAMETOOLONG);
  EXPECT_EQ(Do("rmdir path=d").err, ENOTEMPTY);
  EXPECT_EQ(Do("rmdir path=f").err, ENOTDIR);
  EXPECT_EQ(Do("unlink path=d").err, EISDIR);
  EXPECT_EQ(Do("unlink path=no").err, ENOENT);
  EXPECT_EQ(Do("link path=d path2=x").err, EPERM);
  EXPECT_EQ(Do("link path=d path2=f").err, EEXIST);
  EXPECT_EQ(Do("rename path=d path2=d/e/x").err, EINVAL);
  EXPECT_EQ(Do("rename path=d/e path2=d").err, ENOTEMPTY);
  EXPECT_EQ(Do("rename path=d/e path2=d sub=2").err, EINVAL);
  EXPECT_EQ(Do("rename path=d path2=f").err, ENOTDIR);
  EXPECT_EQ(Do("rename path=f path2=d").err, EISDIR);
  EXPECT_EQ(Do("rename path=f path2=d sub=1").err, EEXIST);
  EXPECT_EQ(Do("rename path=f path2=no sub=2").err, ENOENT);
  EXPECT_EQ(Do("truncate path=d").err, EISDIR);
  EXPECT_EQ(Do("truncate path=s").err, EINVAL);
  EXPECT_EQ(Do("readlink path=f").err, EINVAL);
  EXPECT_EQ(Do("getxattr path=f name=user.a").err, ENODATA);
  EXPECT_EQ(Do("write at=3 len=1 fill=1").err, EBADF);
  EXPECT_EQ(Do("open path=s slot=1 flags=0").err, ELOOP);
  EXPECT_EQ(Do("open path=d slot=1 flags=1").err, EISDIR);
}

TEST_F(RefFsTest, UnlinkedFilesLiveWhileOpen) {
  Do("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=10 fill=7\nunlink path=f");
  EXPECT_EQ(Do("stat path=f").err, ENOENT);
  EXPECT_EQ(Do("read at=0 len=100").text, FillBytes(7, 10));
  EXPECT_EQ(Do("stat at=0").attrs.at(0).nlink, 0u);
  EXPECT_EQ(Do("link at=0 path2=g").err, ENOENT);
  Do("close slot=0");
  EXPECT_EQ(fs_.visible().inodes.size(), 1u);
}

TEST_F(RefFsTest, RemovedDirectoriesAnswerWhileOpen) {
  Do("mkdir path=d mode=755\nopen path=d slot=0\nrmdir path=d");
  EXPECT_EQ(Do("stat at=0").attrs.at(0).nlink, 0u);
  EXPECT_EQ(Do("mkdir at=0 path=x mode=755").err, ENOENT);
  EXPECT_EQ(Do("readdir at=0").err, ENOENT);
}

TEST_F(RefFsTest, TruncateDownThenUpShowsZeros) {
  Do("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=5000 fill=3\ntruncate path=f len=10\ntruncate path=f "
     "len=6000");
  const std::string bytes = Do("read at=0 len=10000").text;
  ASSERT_EQ(bytes.size(), 6000u);
  EXPECT_EQ(bytes.substr(0, 10), FillBytes(3, 10));
  EXPECT_EQ(bytes.find_first_not_of('\0', 10), std::string::npos);
}

TEST_F(RefFsTest, RenameOverTheOtherLinkChangesNothing) {
  Do("create path=f slot=0 flags=202 mode=644\nlink path=f path2=g");
  const Tree before = Dump();
  EXPECT_EQ(Do("rename path=f path2=g").err, 0);
  EXPECT_EQ(Stat("f").ctime, before.at("f").attr.ctime);
  EXPECT_EQ(Stat("g").nlink, 2u);
}

TEST_F(RefFsTest, SetIdBits) {
  Do("create path=f slot=0 flags=202 mode=6755\nwrite at=0 len=1 fill=1 kill=1");
  EXPECT_EQ(Stat("f").mode, 0755u);
  Do("create path=g slot=0 flags=202 mode=6644\nchown path=g uid=1 gid=1");
  EXPECT_EQ(Stat("g").mode, 02644u);
  Do("mkdir path=d mode=755\nchown path=d gid=9\nchmod path=d mode=2755\nmkdir path=d/e mode=755 gid=5");
  EXPECT_EQ(Stat("d/e").mode, 02755u);
  EXPECT_EQ(Stat("d/e").gid, 9u);
}

TEST_F(RefFsTest, StepsReadBackAsPrinted) {
  OpGen gen(5, {});
  for (int i = 0; i < 3000; ++i) {
    const ModelOp op = gen.Next(fs_.visible());
    if (op.kind < OpKind::kCompare) runner_.Run(op);
    const auto again = ParseModelOp(ToString(op));
    ASSERT_TRUE(again.has_value()) << ToString(op);
    ASSERT_EQ(*again, op) << ToString(op);
  }
}

TEST_F(RefFsTest, OneSeedGivesOneStream) {
  OpGen a(9, {});
  OpGen b(9, {});
  for (int i = 0; i < 500; ++i) ASSERT_EQ(a.Next(fs_.visible()), b.Next(fs_.visible()));
}

// --- crashes

TEST_F(RefFsTest, ACrashLeavesAPrefix) {
  Do("mkdir path=a mode=755\nmkdir path=b mode=755\nmkdir path=c mode=755");
  EXPECT_TRUE(MayLeave(""));
  EXPECT_TRUE(MayLeave("mkdir path=a mode=755"));
  EXPECT_TRUE(MayLeave("mkdir path=a mode=755\nmkdir path=b mode=755"));
  EXPECT_FALSE(MayLeave("mkdir path=b mode=755"));
  EXPECT_FALSE(MayLeave("mkdir path=a mode=755\nmkdir path=c mode=755"));
  EXPECT_FALSE(MayLeave("mkdir path=a mode=700"));
}

TEST_F(RefFsTest, WhatIsSyncedStays) {
  Do("mkdir path=a mode=755\nmkdir path=b mode=755\nfsyncdir path=a\nmkdir path=c mode=755");
  EXPECT_FALSE(MayLeave(""));
  EXPECT_TRUE(MayLeave("mkdir path=a mode=755"));
  Do("sync");
  EXPECT_FALSE(MayLeave("mkdir path=a mode=755\nmkdir path=b mode=755"));
  EXPECT_TRUE(MayLeave("mkdir path=a mode=755\nmkdir path=b mode=755\nmkdir path=c mode=755"));
}

TEST_F(RefFsTest, FsyncKeepsTheFileAndItsName) {
  Do("mkdir path=a mode=755\ncreate path=a/f slot=0 flags=202 mode=644\nwrite at=0 len=100 fill=1\nfsync at=0\n"
     "write at=0 off=50 len=100 fill=2");
  EXPECT_FALSE(MayLeave("mkdir path=a mode=755\ncreate path=a/f slot=0 flags=202 mode=644"));
  EXPECT_FALSE(MayLeave("mkdir path=a mode=755\ncreate path=a/f slot=0 flags=202 mode=644\nwrite at=0 len=99 fill=1"));
  EXPECT_TRUE(MayLeave("mkdir path=a mode=755\ncreate path=a/f slot=0 flags=202 mode=644\nwrite at=0 len=100 fill=1"));
  EXPECT_TRUE(
      MayLeave("mkdir path=a mode=755\ncreate path=a/f slot=0 flags=202 mode=644\nwrite at=0 len=100 fill=1\nwrite "
               "at=0 off=50 len=100 fill=2"));
}

TEST_F(RefFsTest, RenamedFilesHaveTheirData) {
  Do("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=10 fill=1\nclose slot=0\nsync\n"
     "create path=t slot=0 flags=202 mode=644\nwrite at=0 len=20 fill=2\nrename path=t path2=f");
  EXPECT_TRUE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=10 fill=1"));
  EXPECT_TRUE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=20 fill=2"));
  EXPECT_FALSE(MayLeave("create path=f slot=0 flags=202 mode=644"));
  EXPECT_FALSE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=19 fill=2"));
}

TEST_F(RefFsTest, RenamedDirectoriesHaveTheirData) {
  Do("mkdir path=d mode=755\ncreate path=d/f slot=0 flags=202 mode=644\nwrite at=0 len=10 fill=1\nrename path=d "
     "path2=e");
  EXPECT_TRUE(MayLeave("mkdir path=d mode=755\ncreate path=d/f slot=0 flags=202 mode=644"));
  EXPECT_FALSE(MayLeave("mkdir path=e mode=755\ncreate path=e/f slot=0 flags=202 mode=644"));
  EXPECT_TRUE(MayLeave("mkdir path=e mode=755\ncreate path=e/f slot=0 flags=202 mode=644\nwrite at=0 len=10 fill=1"));
}

TEST_F(RefFsTest, SizesAreNotAheadOfData) {
  Do("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=10 fill=1\nwrite at=0 off=10 len=10 fill=2");
  EXPECT_TRUE(MayLeave("create path=f slot=0 flags=202 mode=644"));
  EXPECT_TRUE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=10 fill=1"));
  EXPECT_TRUE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=7 fill=1"));
  EXPECT_FALSE(MayLeave("create path=f slot=0 flags=202 mode=644\ntruncate path=f len=20"));
  EXPECT_FALSE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 off=10 len=10 fill=2"));
  EXPECT_FALSE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=21 fill=1"));
}

TEST_F(RefFsTest, HolesMayShowZeros) {
  Do("create path=f slot=0 flags=202 mode=644\nwrite at=0 off=10 len=10 fill=2\nwrite at=0 len=10 fill=1");
  EXPECT_TRUE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 off=10 len=10 fill=2"));
}

TEST_F(RefFsTest, WritesAfterALostOperationAreLost) {
  Do("create path=f slot=0 flags=202 mode=644\nmkdir path=d mode=755\nwrite at=0 len=10 fill=1");
  EXPECT_TRUE(MayLeave("create path=f slot=0 flags=202 mode=644"));
  EXPECT_FALSE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=10 fill=1"));
  EXPECT_TRUE(MayLeave("create path=f slot=0 flags=202 mode=644\nmkdir path=d mode=755\nwrite at=0 len=10 fill=1"));
}

TEST_F(RefFsTest, OneContentOrTheOtherNeverAThird) {
  Do("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=100 fill=1\nsync\nwrite at=0 len=100 fill=2");
  EXPECT_TRUE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=100 fill=1\nwrite at=0 len=50 fill=2"));
  EXPECT_FALSE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=100 fill=3"));
  EXPECT_FALSE(MayLeave("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=100 fill=0"));
}

TEST_F(RefFsTest, AfterACrashLifeGoesOn) {
  Do("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=100 fill=1\nmkdir path=d mode=755\nunlink path=f");
  const Tree found = TreeOf("create path=f slot=0 flags=202 mode=644\nwrite at=0 len=60 fill=1");
  Tree plain = found;
  for (auto& [path, node] : plain) node.attr.atime = node.attr.mtime = node.attr.ctime = Timestamp{};
  const Agreement agreement({.inodes = false});
  auto explained = ExplainCrash(fs_.history(), plain, agreement, &why_);
  ASSERT_TRUE(explained.has_value()) << why_;
  fs_.Adopt(std::move(explained->state));
  runner_.Reset(fs_);
  EXPECT_EQ(Stat("f").size, 60u);
  EXPECT_EQ(Do("stat path=d").err, ENOENT);
  EXPECT_EQ(Do("open path=f slot=2 flags=2\nread at=2 len=1000").text, FillBytes(1, 60));
  EXPECT_TRUE(fs_.history().events.empty());
}

}  // namespace
}  // namespace archil::test
