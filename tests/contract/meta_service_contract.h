// What holds for every MetaService: the server in the same process, and the stub that speaks to one over gRPC.
// Instantiate with factories:
//
//   INSTANTIATE_TEST_SUITE_P(Name, MetaServiceContract, ::testing::Values(MetaServiceFactory{"name", make}));
// and the same for MetaDelegationContract (meta_delegation_contract.h).
//
// In a program of its own file; this header defines the tests. The server behind it has at least one data server.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/api/meta_service.h"
#include "tests/support/meta_world.h"

namespace archil {

// Keeps a service and what it stands on.
class MetaServiceFixture {
 public:
  virtual ~MetaServiceFixture() = default;
  virtual MetaService& service() = 0;
};

struct MetaServiceFactory {
  std::string name;
  std::function<std::unique_ptr<MetaServiceFixture>()> make;
};

inline std::ostream& operator<<(std::ostream& out, const MetaServiceFactory& f) { return out << f.name; }

class MetaServiceContract : public ::testing::TestWithParam<MetaServiceFactory> {
 protected:
  using Session = test::TestSession;

  void SetUp() override {
    fixture_ = GetParam().make();
    ASSERT_TRUE(service().CreateDisk(ctx_, "disk", 0).ok());
  }
  MetaService& service() { return fixture_->service(); }
  Session Open(SessionKey key = {1, 2}, const std::string& name = "test client", SessionMode mode = SessionMode::kReadWrite) {
    auto s = Session::Open(service(), "disk", key, name, mode);
    EXPECT_TRUE(s.ok()) << (s.ok() ? "" : s.error().ToString());
    return s.ok() ? *s : Session(service(), {}, key);
  }
  template <class T>
  static std::string Why(const Result<T>& r) {
    return r.ok() ? "ok" : r.error().ToString();
  }

  OpContext ctx_;
  std::unique_ptr<MetaServiceFixture> fixture_;
};

TEST_P(MetaServiceContract, DisksAreCreatedListedShownAndDeleted) {
  ASSERT_TRUE(service().CreateDisk(ctx_, "second", 1 << 20).ok());
  EXPECT_EQ(service().CreateDisk(ctx_, "second", 0).code(), Code::kExists);
  for (const std::string& bad : std::vector<std::string>{"", "Upper", "-x", ".x", "a/b", std::string(64, 'a')}) {
    EXPECT_EQ(service().CreateDisk(ctx_, bad, 0).code(), Code::kInvalid) << bad;
  }
  auto disks = service().ListDisks(ctx_);
  ASSERT_TRUE(disks.ok());
  ASSERT_EQ(disks->size(), 2u);
  EXPECT_EQ((*disks)[1].name, "second");
  EXPECT_NE((*disks)[0].id, (*disks)[1].id);
  auto shown = service().ShowDisk(ctx_, "second");
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ(shown->quota_bytes, 1u << 20);
  EXPECT_EQ(shown->used_inodes, 1u);
  EXPECT_TRUE(shown->clients.empty());
  ASSERT_TRUE(service().DeleteDisk(ctx_, "second", false).ok());
  EXPECT_EQ(service().ShowDisk(ctx_, "second").code(), Code::kNoSuchDisk);
  EXPECT_EQ(service().DeleteDisk(ctx_, "second", false).code(), Code::kNoSuchDisk);
  auto again = service().CreateDisk(ctx_, "second", 0);
  ASSERT_TRUE(again.ok());
  EXPECT_NE(again->id, shown->id);
}

TEST_P(MetaServiceContract, AMountedDiskIsDeletedByForceOnly) {
  Session s = Open();
  EXPECT_EQ(service().DeleteDisk(ctx_, "disk", false).code(), Code::kHeldElsewhere);
  ASSERT_TRUE(s.Commit({s.File(kRootInode, "still-there")}).ok());
  ASSERT_TRUE(service().DeleteDisk(ctx_, "disk", true).ok());
  EXPECT_EQ(s.Stat(kRootInode).code(), Code::kFenced);
  EXPECT_EQ(s.Commit({s.File(kRootInode, "x")}).code(), Code::kFenced);
}

TEST_P(MetaServiceContract, TheRootOfANewDisk) {
  Session s = Open();
  auto root = s.Stat(kRootInode);
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->attr.type, FileType::kDirectory);
  EXPECT_EQ(root->attr.nlink, 2u);
  EXPECT_EQ(root->attr.size, 0u);
  EXPECT_EQ(root->attr.mode, 0755u);
  EXPECT_EQ(root->parent, InodeId{0});
  EXPECT_EQ(s.Lookup(kRootInode, "nothing").code(), Code::kNotFound);
}

TEST_P(MetaServiceContract, AnExclusiveSessionIsAloneAndSaysSo) {
  OpenSessionRequest request;
  request.disk = "disk";
  request.client_name = "host-a pid 7 on /mnt";
  request.key = {1, 2};
  request.sharing = Sharing::kExclusive;
  const auto first = service().OpenSession(ctx_, request);
  ASSERT_TRUE(first.ok()) << Why(first);
  EXPECT_TRUE(first->alone);
  request.key = {3, 4};
  request.client_name = "host-b";
  for (const Sharing sharing : {Sharing::kShared, Sharing::kExclusive}) {
    request.sharing = sharing;
    const auto second = service().OpenSession(ctx_, request);
    ASSERT_EQ(second.code(), Code::kHeldElsewhere);
    EXPECT_NE(second.error().message().find("host-a pid 7 on /mnt"), std::string_view::npos);
  }
  request.mode = SessionMode::kReadOnly;
  EXPECT_EQ(service().OpenSession(ctx_, request).code(), Code::kHeldElsewhere);
  request.disk = "no-such";
  EXPECT_EQ(service().OpenSession(ctx_, request).code(), Code::kNoSuchDisk);
  ASSERT_TRUE(service().CloseSession(ctx_, first->session, {1, 2}).ok());
  EXPECT_TRUE(service().CloseSession(ctx_, first->session, {1, 2}).ok());  // a repeat
  // One who wants it exclusively is refused for any other, and may end them.
  Session shared = Open({5, 6}, "shared");
  request.disk = "disk";
  request.mode = SessionMode::kReadWrite;
  request.sharing = Sharing::kExclusive;
  EXPECT_EQ(service().OpenSession(ctx_, request).code(), Code::kHeldElsewhere);
  request.force = true;
  ASSERT_TRUE(service().OpenSession(ctx_, request).ok());
  const auto gone = shared.Stat(kRootInode);
  ASSERT_EQ(gone.code(), Code::kFenced);
  EXPECT_NE(gone.error().message().find("host-b"), std::string_view::npos) << Why(gone);
}

TEST_P(MetaServiceContract, SessionsShareADisk) {
  Session a = Open({1, 1}, "a");
  Session b = Open({2, 2}, "b", SessionMode::kReadOnly);
  Session c = Open({3, 3}, "c");
  EXPECT_TRUE(a.reply().alone);
  EXPECT_FALSE(b.reply().alone);
  EXPECT_FALSE(c.reply().alone);
  EXPECT_TRUE(b.Stat(kRootInode).ok());
  EXPECT_EQ(service().ShowDisk(ctx_, "disk")->clients.size(), 3u);
  EXPECT_EQ(service().AllocateInodes(ctx_, b.id(), b.key()).code(), Code::kReadOnly);
  EXPECT_EQ(b.Commit({TouchOp{kRootInode, {1, 0}, {1, 0}}}).code(), Code::kInvalid);
  EXPECT_EQ(c.Commit({TouchOp{kRootInode, {1, 0}, {1, 0}}}).code(), Code::kInvalid) << "it holds nothing (DLG-2)";
  EXPECT_TRUE(a.Commit({TouchOp{kRootInode, {1, 0}, {1, 0}}}).ok());
}

TEST_P(MetaServiceContract, AnOpenWhoseAnswerWasLostIsRepeated) {
  Session a = Open({5, 6});
  Session b = Open({5, 6});
  EXPECT_EQ(a.id(), b.id());
  EXPECT_NE(a.reply().inodes.first, b.reply().inodes.first);
}

TEST_P(MetaServiceContract, APredecessorIsEndedByItsKey) {
  Session a = Open({1, 1}, "old");
  OpenSessionRequest request;
  request.disk = "disk";
  request.client_name = "new";
  request.key = {2, 2};
  request.sharing = Sharing::kExclusive;
  request.predecessor = a.id();
  request.predecessor_key = {9, 9};
  EXPECT_EQ(service().OpenSession(ctx_, request).code(), Code::kHeldElsewhere);
  request.predecessor_key = {1, 1};
  ASSERT_TRUE(service().OpenSession(ctx_, request).ok());
  const auto late = a.Commit({a.File(kRootInode, "late")});
  ASSERT_EQ(late.code(), Code::kFenced);
  EXPECT_NE(late.error().message().find("new"), std::string_view::npos);
  EXPECT_EQ(service().Renew(ctx_, a.id(), a.key(), 0).code(), Code::kFenced);
}

TEST_P(MetaServiceContract, CreatesAreSeenAsTheyWereSent) {
  Session s = Open();
  const CreateOp dir = s.File(kRootInode, "dir", FileType::kDirectory);
  const CreateOp file = s.File(dir.ino, "file");
  const CreateOp link = s.File(dir.ino, "symlink", FileType::kSymlink);
  ASSERT_TRUE(s.Commit({dir, file, link}).ok());
  auto root = s.Stat(kRootInode);
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->attr.size, 1u);
  EXPECT_EQ(root->attr.nlink, 3u);
  EXPECT_EQ(root->attr.mtime, dir.now);
  EXPECT_EQ(root->attr.ctime, dir.now);
  auto d = s.Lookup(kRootInode, "dir");
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->attr.ino, dir.ino);
  EXPECT_EQ(d->parent, kRootInode);
  EXPECT_EQ(d->attr.size, 2u);
  EXPECT_EQ(d->attr.mtime, link.now);
  auto f = s.Lookup(dir.ino, "file");
  ASSERT_TRUE(f.ok());
  EXPECT_EQ(f->attr.uid, 1000u);
  EXPECT_EQ(f->attr.mode, 0644u);
  EXPECT_EQ(f->attr.btime, file.now);
  EXPECT_EQ(f->attr.nlink, 1u);
  EXPECT_EQ(f->parent, InodeId{0});
  auto l = s.Lookup(dir.ino, "symlink");
  ASSERT_TRUE(l.ok());
  EXPECT_EQ(l->target, "target");
  EXPECT_EQ(l->attr.size, 6u);
  EXPECT_EQ(s.Lookup(file.ino, "x").code(), Code::kNotDirectory);
}

TEST_P(MetaServiceContract, DirectoriesAreListedInPagesInByteOrder) {
  Session s = Open();
  std::vector<Op> ops;
  std::vector<std::string> names;
  for (int i = 0; i < 250; ++i) {
    names.push_back("n" + std::to_string(i));
    ops.push_back(s.File(kRootInode, names.back()));
  }
  ops.push_back(s.File(kRootInode, "n1\x01"));
  ops.push_back(s.File(kRootInode, "n1\xff"));
  names.push_back("n1\x01");
  names.push_back("n1\xff");
  ASSERT_TRUE(s.Commit(ops).ok());
  std::sort(names.begin(), names.end());
  auto listed = s.Names(kRootInode);
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(*listed, names);
  auto page = service().ReadDir(ctx_, s.id(), kRootInode, "n1", 3);
  ASSERT_TRUE(page.ok());
  EXPECT_FALSE(page->complete);
  ASSERT_EQ(page->entries.size(), 3u);
  EXPECT_EQ(page->entries[0].name, "n1\x01");
  EXPECT_EQ(page->directory.attr.size, 252u);
}

TEST_P(MetaServiceContract, CommitsApplyExactlyOnce) {
  Session s = Open();
  const CommitRequest first = s.Request({s.File(kRootInode, "a")});
  auto reply = s.Send(first);
  ASSERT_TRUE(reply.ok()) << Why(reply);
  EXPECT_EQ(reply->applied, Seq{1});
  auto repeat = s.Send(first);
  ASSERT_TRUE(repeat.ok()) << Why(repeat);
  EXPECT_EQ(repeat->applied, Seq{1});
  EXPECT_EQ(s.Stat(kRootInode)->attr.size, 1u);
  s.Applied(Seq{1});
  CommitRequest gap = s.Request({s.File(kRootInode, "b")});
  gap.first = Seq{3};
  gap.last = Seq{3};
  EXPECT_EQ(s.Send(gap).code(), Code::kInvalid);
  CommitRequest absorbed = s.Request({});
  absorbed.first = Seq{2};
  absorbed.last = Seq{40};
  reply = s.Send(absorbed);
  ASSERT_TRUE(reply.ok()) << Why(reply);
  EXPECT_EQ(reply->applied, Seq{40});
  EXPECT_EQ(service().Renew(ctx_, s.id(), s.key(), 0)->applied, Seq{40});
}

TEST_P(MetaServiceContract, ABadOpRefusesTheWholeCommit) {
  Session s = Open();
  UnlinkOp bad;
  bad.parent = kRootInode;
  bad.name = "nothing";
  bad.ino = InodeId{77};
  bad.now = s.Now();
  const auto reply = s.Commit({s.File(kRootInode, "good"), bad});
  ASSERT_EQ(reply.code(), Code::kInvalid);
  EXPECT_NE(reply.error().message().find("op 1 (unlink)"), std::string_view::npos) << reply.error().message();
  EXPECT_EQ(s.Lookup(kRootInode, "good").code(), Code::kNotFound);
  EXPECT_TRUE(s.Commit({s.File(kRootInode, "good")}).ok());
  CommitRequest torn = s.Request({s.File(kRootInode, "other")});
  torn.ops.pop_back();
  EXPECT_EQ(s.Send(torn).code(), Code::kInvalid);
  torn = s.Request({s.File(kRootInode, "other")});
  torn.count = 2;
  EXPECT_EQ(s.Send(torn).code(), Code::kInvalid);
}

TEST_P(MetaServiceContract, InlineDataIsReadBack) {
  Session s = Open();
  const CreateOp f = s.File(kRootInode, "f");
  ASSERT_TRUE(s.Commit({f, s.Inline(f.ino, 0, "hello world", 11)}).ok());
  EXPECT_EQ(*s.Content(f.ino), "hello world");
  ASSERT_TRUE(s.Commit({s.Inline(f.ino, 6, "archil", 12)}).ok());
  EXPECT_EQ(*s.Content(f.ino), "hello archil");
  auto info = s.Stat(f.ino);
  EXPECT_EQ(info->attr.size, 12u);
  EXPECT_EQ(info->attr.allocated, 12u);
  SetAttrOp cut;
  cut.ino = f.ino;
  cut.fields = SetAttrOp::kSize;
  cut.size = 3;
  cut.now = s.Now();
  SetAttrOp grow = cut;
  grow.size = 8;
  grow.now = s.Now();
  ASSERT_TRUE(s.Commit({cut, grow}).ok());
  EXPECT_EQ(*s.Content(f.ino), std::string("hel\0\0\0\0\0", 8));
  EXPECT_EQ(s.Stat(f.ino)->attr.allocated, 3u);
  EXPECT_EQ(service().StatFs(ctx_, s.id())->used_bytes, 3u);
}

TEST_P(MetaServiceContract, SegmentsAreGrantedLocatedAndNamed) {
  Session s = Open();
  auto grants = service().AllocateSegments(ctx_, s.id(), s.key(), 2);
  ASSERT_TRUE(grants.ok()) << Why(grants);
  ASSERT_EQ(grants->size(), 2u);
  EXPECT_NE((*grants)[0].segment, (*grants)[1].segment);
  ASSERT_FALSE((*grants)[0].replicas.empty());
  auto located = service().LocateSegment(ctx_, s.id(), (*grants)[0].segment);
  ASSERT_TRUE(located.ok());
  EXPECT_EQ((*located)[0].id, (*grants)[0].replicas[0].id);
  EXPECT_EQ(service().LocateSegment(ctx_, s.id(), SegmentId{12345}).code(), Code::kNotFound);

  const CreateOp f = s.File(kRootInode, "f");
  const uint64_t length = 3 * kChunkSize / 2;
  ASSERT_TRUE(s.Commit({f, s.InSegment(f.ino, 100, length, (*grants)[0].segment, 7, 100 + length)}).ok());
  auto chunks = service().GetExtents(ctx_, s.id(), f.ino, 0, 4);
  ASSERT_TRUE(chunks.ok());
  ASSERT_EQ(chunks->size(), 4u);
  ASSERT_EQ((*chunks)[0].extents.size(), 1u);
  EXPECT_EQ((*chunks)[0].extents[0].offset, 100u);
  EXPECT_EQ((*chunks)[0].extents[0].end(), kChunkSize);
  ASSERT_EQ((*chunks)[1].extents.size(), 1u);
  EXPECT_EQ((*chunks)[1].extents[0].segment_offset, 7 + kChunkSize - 100);
  EXPECT_EQ((*chunks)[1].extents[0].end(), 100 + length);
  EXPECT_TRUE((*chunks)[2].extents.empty());
  EXPECT_EQ(s.Commit({s.InSegment(f.ino, 0, 10, SegmentId{999}, 0, 10)}).code(), Code::kInvalid);
  EXPECT_TRUE(service().ReleaseSegments(ctx_, s.id(), s.key(), {(*grants)[0].segment, (*grants)[1].segment}).ok());
  EXPECT_TRUE(s.Commit({s.InSegment(f.ino, 0, 10, (*grants)[1].segment, 0, 10)}).ok());
  EXPECT_EQ(service().ReleaseSegments(ctx_, s.id(), s.key(), {SegmentId{999}}).code(), Code::kInvalid);
}

TEST_P(MetaServiceContract, InodeRangesAreTheSessionsOwnAndUsedOnce) {
  Session s = Open();
  auto more = service().AllocateInodes(ctx_, s.id(), s.key());
  ASSERT_TRUE(more.ok());
  EXPECT_GE(more->first.value, s.reply().inodes.first.value + s.reply().inodes.count);
  CreateOp f = s.File(kRootInode, "f");
  f.ino = InodeId{more->first.value + more->count - 1};
  ASSERT_TRUE(s.Commit({f}).ok());
  CreateOp again = s.File(kRootInode, "again");
  again.ino = f.ino;
  EXPECT_EQ(s.Commit({again}).code(), Code::kInvalid);
  UnlinkOp unlink{kRootInode, "f", f.ino, false, s.Now()};
  ASSERT_TRUE(s.Commit({unlink}).ok());
  EXPECT_EQ(s.Commit({again}).code(), Code::kInvalid);
  again.ino = InodeId{more->first.value + more->count};
  EXPECT_EQ(s.Commit({again}).code(), Code::kInvalid);
  again.ino = kRootInode;
  EXPECT_EQ(s.Commit({again}).code(), Code::kInvalid);
}

TEST_P(MetaServiceContract, XattrsSmallAndLarge) {
  Session s = Open();
  const CreateOp f = s.File(kRootInode, "f");
  const std::string large(60'000, 'x');
  ASSERT_TRUE(s.Commit({f, SetXattrOp{f.ino, "user.small", "v", s.Now()}, SetXattrOp{f.ino, "user.large", large, s.Now()}}).ok());
  auto all = service().GetXattrs(ctx_, s.id(), f.ino);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)["user.large"], large);
  EXPECT_TRUE(s.Stat(f.ino)->has_xattrs);
  ASSERT_TRUE(s.Commit({SetXattrOp{f.ino, "user.large", "now small", s.Now()}, RemoveXattrOp{f.ino, "user.small", s.Now()}}).ok());
  all = service().GetXattrs(ctx_, s.id(), f.ino);
  EXPECT_EQ(all->size(), 1u);
  EXPECT_EQ((*all)["user.large"], "now small");
  EXPECT_EQ(s.Commit({RemoveXattrOp{f.ino, "user.small", s.Now()}}).code(), Code::kInvalid);
}

TEST_P(MetaServiceContract, OrphansLiveUntilReleasedOrTheSessionEnds) {
  Session s = Open();
  const CreateOp a = s.File(kRootInode, "a");
  const CreateOp b = s.File(kRootInode, "b");
  ASSERT_TRUE(s.Commit({a, b, s.Inline(a.ino, 0, "aaa", 3), UnlinkOp{kRootInode, "a", a.ino, true, s.Now()}, UnlinkOp{kRootInode, "b", b.ino, true, s.Now()}}).ok());
  EXPECT_EQ(s.Lookup(kRootInode, "a").code(), Code::kNotFound);
  EXPECT_EQ(s.Stat(a.ino)->attr.nlink, 0u);
  EXPECT_EQ(*s.Content(a.ino), "aaa");
  ASSERT_TRUE(s.Commit({s.Inline(a.ino, 3, "bb", 5), ReleaseOrphanOp{b.ino}}).ok());
  EXPECT_EQ(*s.Content(a.ino), "aaabb");
  EXPECT_EQ(s.Stat(b.ino).code(), Code::kNotFound);
  EXPECT_TRUE(s.Commit({ReleaseOrphanOp{b.ino}}).ok()) << "it is gone, and nothing is left to do";
  EXPECT_EQ(service().ShowDisk(ctx_, "disk")->used_inodes, 2u);
  ASSERT_TRUE(service().CloseSession(ctx_, s.id(), s.key()).ok());
  EXPECT_EQ(service().ShowDisk(ctx_, "disk")->used_inodes, 1u);
  EXPECT_EQ(service().ShowDisk(ctx_, "disk")->used_bytes, 0u);
}

TEST_P(MetaServiceContract, AWrongKeyIsNoKey) {
  Session s = Open();
  EXPECT_FALSE(service().Renew(ctx_, s.id(), {7, 7}, 0).ok());
  EXPECT_FALSE(service().CloseSession(ctx_, s.id(), {7, 7}).ok());
  CommitRequest request = s.Request({s.File(kRootInode, "x")});
  request.key = {7, 7};
  EXPECT_FALSE(s.Send(request).ok());
  EXPECT_EQ(service().GetInode(ctx_, SessionId{s.id().value + 1000}, kRootInode).code(), Code::kFenced);
  EXPECT_EQ(service().GetInode(ctx_, SessionId{0}, kRootInode).code(), Code::kFenced);
}

}  // namespace archil
