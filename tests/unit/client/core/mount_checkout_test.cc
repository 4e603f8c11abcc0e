// Checkouts (docs/delegation.md), by whole mounts: others read what the holder has acknowledged, change nothing, and do not slow it down.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/env/random.h"
#include "tests/support/mem_cluster.h"

namespace archil::test {
namespace {

using testing::HasSubstr;

class MountCheckout : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cluster_.Start().ok());
    ASSERT_TRUE(cluster_.meta().CreateDisk({}, "disk", 0).ok());
    a_ = Open("a");
    root_ = a_->fs().Root();
    dir_ = a_->fs().Mkdir({}, root_, "tree", 0755)->attr.ino;
    sub_ = a_->fs().Mkdir({}, dir_, "sub", 0755)->attr.ino;
    const auto made = a_->fs().Create({}, sub_, "f", 0644, O_RDWR);
    file_ = made->entry.attr.ino;
    Put(*a_, "first");
    ASSERT_TRUE(a_->fs().Sync({}).ok());
    b_ = Open("b");
  }
  std::unique_ptr<Mount> Open(const std::string& name, bool conditional = false) {
    MountConfig config;
    config.disk = "disk";
    config.client_name = name;
    config.conditional = conditional;
    config.lease = absl::Seconds(2);
    auto mount = Mount::Open({RealScheduler(), *random_, cluster_.meta(), cluster_.data()}, config);
    EXPECT_TRUE(mount.ok());
    return std::move(*mount);
  }
  void Put(Mount& mount, const std::string& text) { EXPECT_TRUE(mount.fs().Write({}, file_, 0, text, false, false).ok()); }
  static Result<std::string> Text(Mount& mount, InodeId ino, HandleId handle) {
    OpContext ctx;
    ctx.handle = handle;
    const auto read = mount.fs().Read(ctx, ino, 0, 4096);
    if (!read.ok()) return read.error();
    std::string out;
    for (const Buffer& piece : read->pieces) out += piece.view();
    return out;
  }
  // As a program would: names first.
  Result<OpenReply> OpenByName(Mount& mount, int flags) {
    for (const auto& [dir, name] : {std::pair(root_, "tree"), std::pair(dir_, "sub"), std::pair(sub_, "f")}) {
      const auto entry = mount.fs().Lookup({}, dir, name);
      if (!entry.ok()) return entry.error();
    }
    return mount.fs().Open({}, file_, flags);
  }
  void ExpectHeld(const Status& status, const std::string& who) {
    EXPECT_EQ(status.code(), Code::kHeldElsewhere);
    EXPECT_THAT(status.ok() ? std::string() : std::string(status.error().message()), HasSubstr("checked out by " + who));
  }

  MemCluster cluster_{{}};
  std::unique_ptr<Random> random_ = SeededRandom(1);
  std::unique_ptr<Mount> a_, b_;
  InodeId root_, dir_, sub_, file_;
};

TEST_F(MountCheckout, OthersReadThroughTheHolderWhichKeepsItsRights) {
  ASSERT_TRUE(a_->fs().Checkout({}, dir_, false).ok());
  Put(*a_, "second");
  const auto open = OpenByName(*b_, O_RDONLY);
  ASSERT_TRUE(open.ok()) << open.error().ToString();
  EXPECT_TRUE(open->direct_io) << "the kernel keeps nothing of it";
  EXPECT_EQ(*Text(*b_, file_, open->handle), "second");
  const uint64_t asked = a_->fs().Metrics()["rpc_acquire"];
  for (int i = 0; i < 20; ++i) {
    const std::string text = "version " + std::to_string(i + 10);
    Put(*a_, text);
    EXPECT_EQ(*Text(*b_, file_, open->handle), text);
    EXPECT_EQ(b_->fs().GetAttr({}, file_)->attr.size, text.size());
  }
  EXPECT_EQ(a_->fs().Metrics()["rpc_acquire"], asked) << "the holder never asked for what it holds";
  // Names as well, present and absent, and extended attributes.
  EXPECT_EQ(b_->fs().Lookup({}, sub_, "g").code(), Code::kNotFound);
  ASSERT_TRUE(a_->fs().Symlink({}, sub_, "g", "target").ok());
  const auto link = b_->fs().Lookup({}, sub_, "g");
  ASSERT_TRUE(link.ok());
  EXPECT_EQ(link->entry_ttl, absl::ZeroDuration());
  EXPECT_EQ(*b_->fs().Readlink({}, link->attr.ino), "target");
  ASSERT_TRUE(a_->fs().SetXattr({}, file_, "user.x", "1", XattrMode::kEither).ok());
  EXPECT_EQ(*b_->fs().GetXattr({}, file_, "user.x"), "1");
  EXPECT_EQ(b_->fs().ListXattrs({}, file_)->size(), 1u);
  // A listing is kept by the kernel, so it needs a right: it takes the directory's WRITE from the holder, which gets it again.
  std::vector<std::string> names;
  ASSERT_TRUE(b_->fs().Readdir({}, sub_, 0, false, [&](const DirItem& item) { return names.emplace_back(item.name), true; }).ok());
  EXPECT_EQ(names.size(), 4u);
  ASSERT_TRUE(a_->fs().Unlink({}, sub_, "g").ok());
  EXPECT_EQ(b_->fs().Lookup({}, sub_, "g").code(), Code::kNotFound);
}

TEST_F(MountCheckout, ChangesByOthersAreRefusedUntilItIsCheckedIn) {
  ASSERT_TRUE(a_->fs().Checkout({}, dir_, false).ok());
  auto c = Open("c", true);
  for (Mount* other : {b_.get(), c.get()}) {
    FsApi& fs = other->fs();
    ASSERT_TRUE(OpenByName(*other, O_RDWR).ok());
    const auto status = [](const auto& result) { return result.ok() ? Ok() : Status(result.error()); };
    ExpectHeld(status(fs.Write({}, file_, 0, "x", false, false)), "a");
    ExpectHeld(status(fs.Mkdir({}, sub_, "new", 0755)), "a");
    ExpectHeld(fs.Unlink({}, sub_, "f"), "a");
    ExpectHeld(fs.Rmdir({}, dir_, "sub"), "a");
    ExpectHeld(fs.Rename({}, sub_, "f", root_, "out", RenameMode::kPlain), "a");
    ExpectHeld(status(fs.Link({}, file_, root_, "second")), "a");
    SetAttrRequest chmod;
    chmod.fields = SetAttrRequest::kMode;
    chmod.mode = 0600;
    ExpectHeld(status(fs.SetAttr({}, file_, chmod)), "a");
    ExpectHeld(fs.SetXattr({}, file_, "user.x", "1", XattrMode::kEither), "a");
    ExpectHeld(status(fs.Open({}, file_, O_RDWR | O_TRUNC)), "a");
    EXPECT_TRUE(fs.Mkdir({}, root_, other == c.get() ? "c" : "b", 0755).ok()) << "beside it all is as ever";
  }
  ExpectHeld(b_->fs().Checkout({}, root_, false), "a");
  ExpectHeld(b_->fs().Checkout({}, sub_, false), "a");
  EXPECT_EQ(b_->fs().Checkin({}, dir_).code(), Code::kNotFound);
  ASSERT_TRUE(a_->fs().Checkin({}, dir_).ok());
  EXPECT_EQ(a_->fs().Checkin({}, dir_).code(), Code::kNotFound);
  Put(*b_, "mine now");
  EXPECT_EQ(*Text(*a_, file_, 0), "mine now");
}

TEST_F(MountCheckout, WhatOthersHoldIsTakenBackFirst) {
  const auto open = OpenByName(*b_, O_RDWR);
  ASSERT_TRUE(open.ok());
  EXPECT_FALSE(open->direct_io);
  Put(*b_, "third");
  ASSERT_TRUE(a_->fs().Checkout({}, dir_, false).ok());
  EXPECT_EQ(*Text(*a_, file_, 0), "third") << "nothing that was acknowledged is lost";
  EXPECT_EQ(b_->fs().Write({}, file_, 0, "x", false, false).code(), Code::kHeldElsewhere);
  // Its kernel keeps pages of what it reads through this handle: it holds READ for that, and both see the truth.
  for (const char* text : {"one", "two", "six"}) {
    Put(*a_, text);
    EXPECT_EQ(Text(*b_, file_, open->handle)->substr(0, 3), text);
  }
}

TEST_F(MountCheckout, ByForceAndAgain) {
  ASSERT_TRUE(a_->fs().Checkout({}, sub_, false).ok());
  ASSERT_TRUE(a_->fs().Checkout({}, sub_, false).ok()) << "once more";
  ASSERT_TRUE(a_->fs().Checkout({}, dir_, false).ok()) << "above one's own";
  Put(*a_, "third");
  ASSERT_TRUE(b_->fs().Checkout({}, dir_, true).ok());
  EXPECT_EQ(*Text(*b_, file_, 0), "third");
  Put(*b_, "by force");
  ExpectHeld(a_->fs().Unlink({}, sub_, "f"), "b");
  EXPECT_EQ(a_->fs().Checkin({}, dir_).code(), Code::kNotFound);
}

TEST_F(MountCheckout, AFileThatIsOpenElsewhereLivesOnWhenTheHolderRemovesIt) {
  ASSERT_TRUE(a_->fs().Checkout({}, dir_, false).ok());
  Put(*a_, "to be removed");
  const auto open = OpenByName(*b_, O_RDONLY);
  ASSERT_TRUE(open.ok());
  ASSERT_TRUE(a_->fs().Unlink({}, sub_, "f").ok());
  ASSERT_TRUE(a_->fs().Sync({}).ok());
  EXPECT_EQ(*Text(*b_, file_, open->handle), "to be removed");
  b_->fs().Release(file_, open->handle);
  ASSERT_TRUE(b_->fs().Sync({}).ok());
}

TEST_F(MountCheckout, ItOutlivesTheServerAndEndsWithItsHolder) {
  ASSERT_TRUE(a_->fs().Checkout({}, dir_, false).ok());
  ASSERT_TRUE(OpenByName(*b_, O_RDONLY).ok());
  cluster_.CrashMeta(MemCluster::Loss::kProcess);
  ASSERT_TRUE(cluster_.Start().ok());
  EXPECT_EQ(b_->fs().Write({}, file_, 0, "x", false, false).code(), Code::kHeldElsewhere);
  a_->Abandon();
  // The lease runs out; nobody has to do anything.
  const BootTime end = RealScheduler().clock().Boot() + absl::Seconds(20);
  Code code = Code::kHeldElsewhere;
  while (code == Code::kHeldElsewhere && RealScheduler().clock().Boot() < end) code = b_->fs().Write({}, file_, 0, "x", false, false).code();
  EXPECT_EQ(code, Code::kOk);
}

TEST_F(MountCheckout, BadCallsSayWhy) {
  EXPECT_EQ(a_->fs().Checkout({}, file_, false).code(), Code::kNotDirectory);
  EXPECT_EQ(Open("c", true)->fs().Checkout({}, dir_, false).code(), Code::kNotSupported);
}

}  // namespace
}  // namespace archil::test
