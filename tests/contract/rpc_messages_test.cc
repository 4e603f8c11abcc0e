// What travels: every field of every call there and back, large answers, and messages that no client of ours would send.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "archil/v1/control.grpc.pb.h"
#include "archil/v1/data.grpc.pb.h"
#include "archil/v1/meta.grpc.pb.h"
#include "common/base/checksum.h"
#include "common/rpc/limits.h"
#include "common/rpc/status.h"
#include "tests/contract/rpc_fakes.h"

namespace archil {
namespace {

using testing::HasSubstr;

const OpContext kCtx;
const std::string kOddName("n\xff\x80\n", 4);

DiskInfo SomeDisk() {
  DiskInfo disk{DiskId(7), "disk", {-5, 999'999'999}, 1, 2, 3, {}};
  disk.clients.push_back({SessionId(8), kOddName, absl::Seconds(9) + absl::Nanoseconds(1), true});
  return disk;
}

void ExpectEqual(const DiskInfo& a, const DiskInfo& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.created, b.created);
  EXPECT_EQ(a.used_bytes, b.used_bytes);
  EXPECT_EQ(a.used_inodes, b.used_inodes);
  EXPECT_EQ(a.quota_bytes, b.quota_bytes);
  ASSERT_EQ(a.clients.size(), b.clients.size());
  for (size_t i = 0; i < a.clients.size(); ++i) {
    EXPECT_EQ(a.clients[i].session, b.clients[i].session);
    EXPECT_EQ(a.clients[i].name, b.clients[i].name);
    EXPECT_EQ(a.clients[i].age, b.clients[i].age);
    EXPECT_EQ(a.clients[i].silent, b.clients[i].silent);
  }
}

InodeInfo SomeInode(FileType type) {
  InodeInfo inode;
  inode.attr = {InodeId(1ULL << 63), type, 07777, UINT32_MAX, 2, 3, 4, 5, 6, {-1, 1}, {2, 2}, {3, 3}, {4, 4}, 7};
  inode.target = kOddName;
  inode.has_xattrs = true;
  inode.parent = InodeId(11);
  return inode;
}

void ExpectEqual(const InodeInfo& a, const InodeInfo& b) {
  EXPECT_EQ(a.attr, b.attr);
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.has_xattrs, b.has_xattrs);
  EXPECT_EQ(a.parent, b.parent);
}

void ExpectEqual(const std::vector<DataServerInfo>& a, const std::vector<DataServerInfo>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].id, b[i].id);
    EXPECT_EQ(a[i].address, b[i].address);
  }
}

const std::vector<DataServerInfo> kServers = {{1, "a:1"}, {UINT32_MAX, "[::1]:2"}};

class RpcMessages : public testing::Test {
 protected:
  FakeServers servers_;
  FakeMetaServer& meta_ = servers_.meta;
  FakeDataServer& data_ = servers_.data;
  std::unique_ptr<MetaService> client_ = NewMetaClient(servers_.address());
  std::unique_ptr<DataService> data_client_ = NewDataClient(servers_.address());
};

TEST_F(RpcMessages, Control) {
  meta_.disk = SomeDisk();
  meta_.disks = {SomeDisk(), DiskInfo()};
  const auto created = client_->CreateDisk(kCtx, "name", 1ULL << 40);
  ASSERT_TRUE(created.ok());
  ExpectEqual(*created, meta_.disk);
  EXPECT_EQ(meta_.name, "name");
  EXPECT_EQ(meta_.number, 1ULL << 40);
  const auto shown = client_->ShowDisk(kCtx, kOddName);
  ASSERT_TRUE(shown.ok());
  ExpectEqual(*shown, meta_.disk);
  EXPECT_EQ(meta_.name, kOddName);
  const auto listed = client_->ListDisks(kCtx);
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->size(), 2u);
  ExpectEqual((*listed)[0], meta_.disks[0]);
  ExpectEqual((*listed)[1], meta_.disks[1]);
  EXPECT_TRUE(client_->DeleteDisk(kCtx, "gone", true).ok());
  EXPECT_EQ(meta_.name, "gone");
  EXPECT_EQ(meta_.number, 1u);
}

TEST_F(RpcMessages, Sessions) {
  const absl::Time time = absl::FromUnixNanos(1'700'000'000'123'456'789);
  meta_.open_reply = {SessionId(1), SomeDisk(), BranchId(2), Epoch(3), absl::Milliseconds(15'001), {InodeId(4), 5}, kServers, time};
  for (SessionMode mode : {SessionMode::kReadWrite, SessionMode::kReadOnly}) {
    const OpenSessionRequest request{"disk", "branch", kOddName, mode, {1, UINT64_MAX}, absl::Seconds(3), SessionId(9), {5, 6}};
    const auto reply = client_->OpenSession(kCtx, request);
    ASSERT_TRUE(reply.ok()) << reply.error().ToString();
    EXPECT_EQ(meta_.opened.disk, request.disk);
    EXPECT_EQ(meta_.opened.branch, request.branch);
    EXPECT_EQ(meta_.opened.client_name, request.client_name);
    EXPECT_EQ(meta_.opened.mode, mode);
    EXPECT_EQ(meta_.opened.key, request.key);
    EXPECT_EQ(meta_.opened.lease, request.lease);
    EXPECT_EQ(meta_.opened.predecessor, request.predecessor);
    EXPECT_EQ(meta_.opened.predecessor_key, request.predecessor_key);
    EXPECT_EQ(reply->session, SessionId(1));
    ExpectEqual(reply->disk, meta_.open_reply.disk);
    EXPECT_EQ(reply->branch, BranchId(2));
    EXPECT_EQ(reply->epoch, Epoch(3));
    EXPECT_EQ(reply->lease, absl::Milliseconds(15'001));
    EXPECT_EQ(reply->inodes.first, InodeId(4));
    EXPECT_EQ(reply->inodes.count, 5u);
    ExpectEqual(reply->data_servers, kServers);
    EXPECT_EQ(reply->server_time, time);
  }
  meta_.renew_reply = {absl::Seconds(2), Seq(77), time, kServers};
  const auto renewed = client_->Renew(kCtx, SessionId(1), {8, 9}, 0);
  ASSERT_TRUE(renewed.ok());
  EXPECT_EQ(meta_.key, (SessionKey{8, 9}));
  EXPECT_EQ(renewed->lease, absl::Seconds(2));
  EXPECT_EQ(renewed->applied, Seq(77));
  EXPECT_EQ(renewed->server_time, time);
  ExpectEqual(renewed->data_servers, kServers);
  EXPECT_TRUE(client_->CloseSession(kCtx, SessionId(5), {1, 2}).ok());
  EXPECT_EQ(meta_.session, SessionId(5));
  EXPECT_EQ(meta_.key, (SessionKey{1, 2}));
}

TEST_F(RpcMessages, Changes) {
  meta_.commit_reply = {Seq(12), Lsn(13), {Lsn(13), Seq(12), 14}};
  const CommitRequest request{SessionId(1), {2, 3}, Seq(4), 5, Seq(12), std::string(kMaxCommitBytes, '\xfe')};
  const auto reply = client_->Commit(kCtx, request);
  ASSERT_TRUE(reply.ok()) << reply.error().ToString();
  EXPECT_EQ(reply->applied, Seq(12));
  EXPECT_EQ(reply->position, Lsn(13));
  EXPECT_EQ(reply->credit.position, Lsn(13));
  EXPECT_EQ(reply->credit.applied, Seq(12));
  EXPECT_EQ(reply->credit.left, 14u);
  EXPECT_EQ(meta_.committed.session, request.session);
  EXPECT_EQ(meta_.committed.key, request.key);
  EXPECT_EQ(meta_.committed.first, request.first);
  EXPECT_EQ(meta_.committed.count, request.count);
  EXPECT_EQ(meta_.committed.last, request.last);
  EXPECT_TRUE(meta_.committed.ops == request.ops);

  meta_.range = {InodeId(100), 65'536};
  const auto range = client_->AllocateInodes(kCtx, SessionId(6), {7, 8});
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->first, InodeId(100));
  EXPECT_EQ(range->count, 65'536u);
  EXPECT_EQ(meta_.session, SessionId(6));
  meta_.grants = {{SegmentId(1), 2, kServers}, {SegmentId(3), 4, {}}};
  const auto grants = client_->AllocateSegments(kCtx, SessionId(6), {7, 8}, 2);
  ASSERT_TRUE(grants.ok());
  EXPECT_EQ(meta_.number, 2u);
  ASSERT_EQ(grants->size(), 2u);
  EXPECT_EQ((*grants)[0].segment, SegmentId(1));
  EXPECT_EQ((*grants)[0].token, 2u);
  ExpectEqual((*grants)[0].replicas, kServers);
  EXPECT_TRUE((*grants)[1].replicas.empty());
  EXPECT_TRUE(client_->ReleaseSegments(kCtx, SessionId(6), {7, 8}, {SegmentId(1), SegmentId(3)}).ok());
  EXPECT_EQ(meta_.released, (std::vector<SegmentId>{SegmentId(1), SegmentId(3)}));
}

TEST_F(RpcMessages, Reads) {
  for (int type = 1; type <= 7; ++type) {
    meta_.inode = SomeInode(static_cast<FileType>(type));
    const auto inode = client_->GetInode(kCtx, SessionId(1), InodeId(2));
    ASSERT_TRUE(inode.ok());
    ExpectEqual(*inode, meta_.inode);
  }
  EXPECT_EQ(meta_.number, 2u);
  const auto found = client_->Lookup(kCtx, SessionId(1), InodeId(3), kOddName);
  ASSERT_TRUE(found.ok());
  ExpectEqual(*found, meta_.inode);
  EXPECT_EQ(meta_.number, 3u);
  EXPECT_EQ(meta_.name, kOddName);
  EXPECT_EQ(client_->Lookup(kCtx, SessionId(1), InodeId(3), std::string(256, 'n')).code(), Code::kNameTooLong);

  meta_.page = {SomeInode(FileType::kDirectory), {{kOddName, SomeInode(FileType::kSymlink)}}, true, Lsn(5)};
  const auto page = client_->ReadDir(kCtx, SessionId(1), InodeId(2), "after", 17);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(meta_.name, "after");
  EXPECT_EQ(meta_.number, 17u);
  ExpectEqual(page->directory, meta_.page.directory);
  ASSERT_EQ(page->entries.size(), 1u);
  EXPECT_EQ(page->entries[0].name, kOddName);
  ExpectEqual(page->entries[0].inode, meta_.page.entries[0].inode);
  EXPECT_TRUE(page->complete);
  EXPECT_EQ(page->position, Lsn(5));

  meta_.xattrs = {{"user.a", std::string(65'536, '\xff')}, {"user.b", ""}};
  const auto xattrs = client_->GetXattrs(kCtx, SessionId(1), InodeId(2));
  ASSERT_TRUE(xattrs.ok());
  EXPECT_EQ(*xattrs, meta_.xattrs);
  meta_.servers = kServers;
  const auto located = client_->LocateSegment(kCtx, SessionId(1), SegmentId(9));
  ASSERT_TRUE(located.ok());
  ExpectEqual(*located, kServers);
  EXPECT_EQ(meta_.number, 9u);
  meta_.stats = {1, 2, 3, 4, 5, 6};
  const auto stats = client_->StatFs(kCtx, SessionId(1));
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->total_bytes, 1u);
  EXPECT_EQ(stats->free_bytes, 2u);
  EXPECT_EQ(stats->used_bytes, 3u);
  EXPECT_EQ(stats->total_inodes, 4u);
  EXPECT_EQ(stats->free_inodes, 5u);
  EXPECT_EQ(stats->used_inodes, 6u);
}

TEST_F(RpcMessages, Extents) {
  Extent segment{0, 10, ExtentKind::kSegment, SegmentId(5), 6, {}};
  Extent inlined{kChunkSize, 3, ExtentKind::kInline, {}, 0, Buffer::Copy("abc")};
  Extent zero{kChunkSize + 8, 4, ExtentKind::kZero, {}, 0, {}};
  meta_.chunks = {{0, {segment}}, {1, {inlined, zero}}};
  const auto chunks = client_->GetExtents(kCtx, SessionId(1), InodeId(2), 0, 2);
  ASSERT_TRUE(chunks.ok()) << chunks.error().ToString();
  ASSERT_EQ(chunks->size(), 2u);
  EXPECT_EQ((*chunks)[0].extents[0].segment, SegmentId(5));
  EXPECT_EQ((*chunks)[0].extents[0].segment_offset, 6u);
  EXPECT_EQ((*chunks)[0].extents[0].end(), 10u);
  EXPECT_EQ((*chunks)[1].chunk, 1u);
  EXPECT_EQ((*chunks)[1].extents[0].data.view(), "abc");
  EXPECT_EQ((*chunks)[1].extents[0].kind, ExtentKind::kInline);
  EXPECT_EQ((*chunks)[1].extents[1].kind, ExtentKind::kZero);
  EXPECT_EQ((*chunks)[1].extents[1].offset, kChunkSize + 8);
}

TEST_F(RpcMessages, ExtentsOverTheSizeOfAMessageComeInPieces) {
  // 24 chunks of 1 MiB inline, with gaps between them.
  for (uint64_t i = 0; i < 24; ++i) {
    const Buffer data(std::string(kChunkSize, static_cast<char>(i)));
    meta_.chunks.push_back({2 * i, {{2 * i * kChunkSize, kChunkSize, ExtentKind::kInline, {}, 0, data}}});
  }
  const auto chunks = client_->GetExtents(kCtx, SessionId(1), InodeId(2), 1, 1000);
  ASSERT_TRUE(chunks.ok()) << chunks.error().ToString();
  ASSERT_EQ(chunks->size(), 23u);
  for (uint64_t i = 1; i < 24; ++i) {
    EXPECT_EQ((*chunks)[i - 1].chunk, 2 * i);
    EXPECT_EQ((*chunks)[i - 1].extents[0].data.view()[0], static_cast<char>(i));
  }
  EXPECT_GT(meta_.calls, 1);
}

TEST_F(RpcMessages, LongDirectoryPagesAreCut) {
  InodeInfo link = SomeInode(FileType::kSymlink);
  link.target = std::string(kMaxSymlink, 't');
  for (int i = 0; i < 4096; ++i) meta_.page.entries.push_back({std::to_string(10'000 + i), link});
  meta_.page.directory = SomeInode(FileType::kDirectory);
  meta_.page.complete = true;
  const auto page = client_->ReadDir(kCtx, SessionId(1), InodeId(2), "", 4096);
  ASSERT_TRUE(page.ok()) << page.error().ToString();
  EXPECT_FALSE(page->complete);
  EXPECT_GT(page->entries.size(), 500u);
  EXPECT_LT(page->entries.size(), 4096u);
}

TEST_F(RpcMessages, AnswersTooLargeAreAnErrorNotAHang) {
  for (int i = 0; i < 1100; ++i) meta_.xattrs["user." + std::to_string(i)] = std::string(kMaxXattrValue, 'v');
  EXPECT_EQ(client_->GetXattrs(kCtx, SessionId(1), InodeId(2)).code(), Code::kTooBig);
  EXPECT_EQ(client_->Commit(kCtx, {{}, {}, {}, 1, {}, std::string(kMaxCommitBytes + 1, 'x')}).code(), Code::kInvalid);
}

TEST_F(RpcMessages, Segments) {
  const SegmentKey key{DiskId(1), SegmentId(2)};
  const Buffer bytes(std::string(kMaxAppend, '\xab'));
  EXPECT_TRUE(data_client_->Append(kCtx, key, 3, 4, bytes, 5).ok());
  EXPECT_EQ(data_.key, key);
  EXPECT_EQ(data_.token, 3u);
  EXPECT_EQ(data_.offset, 4u);
  EXPECT_EQ(data_.checksum, 5u);
  EXPECT_TRUE(data_.appended == bytes.view());
  data_.append_status = Error(Code::kFenced, "token 3 is below 9");
  const Status refused = data_client_->Append(kCtx, key, 3, 4, Buffer::Copy("x"), 5);
  EXPECT_EQ(refused.code(), Code::kFenced);
  EXPECT_EQ(refused.error().message(), "token 3 is below 9");
  EXPECT_EQ(data_client_->Append(kCtx, key, 3, 4, Buffer(), 5).code(), Code::kInvalid);
  EXPECT_EQ(data_client_->Append(kCtx, key, 3, 4, Buffer(std::string(kMaxAppend + 1, 'x')), 5).code(), Code::kInvalid);

  data_.content = "0123456789";
  const auto fenced = data_client_->Fence(kCtx, key, 9);
  ASSERT_TRUE(fenced.ok());
  EXPECT_EQ(fenced->key, key);
  EXPECT_EQ(fenced->token, 9u);
  EXPECT_EQ(fenced->length, 10u);
  EXPECT_EQ(fenced->state, SegmentState::kOpen);
  EXPECT_EQ(data_client_->Seal(kCtx, key, 9)->state, SegmentState::kSealed);
  EXPECT_EQ(data_client_->Stat(kCtx, key)->state, SegmentState::kUploaded);
  EXPECT_EQ(data_client_->Delete(kCtx, {DiskId(8), SegmentId(9)}).code(), Code::kIo);
  EXPECT_EQ(data_.key, (SegmentKey{DiskId(8), SegmentId(9)}));
}

TEST_F(RpcMessages, ReadsOfAnyLength) {
  const SegmentKey key{DiskId(1), SegmentId(2)};
  data_.content.resize(kMaxReadBytes * 2 + 100);
  for (size_t i = 0; i < data_.content.size(); ++i) data_.content[i] = static_cast<char>(i * 31 >> 8);
  for (uint64_t length : {uint64_t{0}, uint64_t{1}, kMaxReadBytes, kMaxReadBytes + 1, kMaxReadBytes * 2 + 99}) {
    const auto bytes = data_client_->Read(kCtx, key, 1, length);
    ASSERT_TRUE(bytes.ok()) << bytes.error().ToString();
    EXPECT_TRUE(bytes->view() == std::string_view(data_.content).substr(1, length)) << length;
  }
  EXPECT_EQ(data_client_->Read(kCtx, key, 0, data_.content.size() + 1).code(), Code::kInvalid);
  EXPECT_EQ(data_client_->Read(kCtx, key, UINT64_MAX, UINT64_MAX).code(), Code::kInvalid);
  // A short answer never becomes file data.
  data_.lost_at_end = 1;
  EXPECT_EQ(data_client_->Read(kCtx, key, 0, 100).code(), Code::kCorrupt);
}

TEST_F(RpcMessages, LongListsComeInPieces) {
  for (uint64_t i = kSegmentsPerList + 5; i > 0; --i) data_.segments.push_back({{DiskId(1), SegmentId(i)}, SegmentState::kOpen, i, 1});
  const auto list = data_client_->List(kCtx, DiskId(1));
  ASSERT_TRUE(list.ok()) << list.error().ToString();
  ASSERT_EQ(list->size(), kSegmentsPerList + 5);
  for (size_t i = 0; i < list->size(); ++i) ASSERT_EQ((*list)[i].key.segment.value, i + 1);
}

// --- what no client of ours sends

class RpcHostile : public RpcMessages {
 protected:
  RpcHostile() {
    grpc::ChannelArguments args;
    args.SetMaxSendMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(servers_.address(), grpc::InsecureChannelCredentials(), args);
    meta_stub_ = v1::Meta::NewStub(channel_);
    data_stub_ = v1::Data::NewStub(channel_);
    meta_.before = [](const OpContext&, const std::string& call) { return Error(Code::kInternal, call + " got through"); };
  }
  ~RpcHostile() override {
    meta_.before = nullptr;
    EXPECT_TRUE(client_->StatFs(Within(absl::Seconds(10)), SessionId(1)).ok()) << "the server no longer serves";
  }

  template <class Stub, class Request, class Reply>
  Error Send(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*), const Request& request) {
    grpc::ClientContext call;
    Reply reply;
    const grpc::Status status = (stub.*method)(&call, request, &reply);
    if (status.ok()) return Code::kOk;
    return FromGrpc(status, CallKind::kRead, "server");
  }
  // Sends `bytes` as the message of `method`.
  grpc::Status SendRaw(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1), reply;
    grpc::Status status;
    auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
    call->StartCall();
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Meta::Stub> meta_stub_;
  std::unique_ptr<v1::Data::Stub> data_stub_;
};

TEST_F(RpcHostile, OpenSession) {
  v1::OpenSessionRequest good;
  good.set_disk("d");
  good.set_mode(v1::SESSION_MODE_READ_WRITE);
  good.mutable_key()->set_hi(1);
  const auto send = [&](auto change) {
    v1::OpenSessionRequest request = good;
    change(request);
    return Send(*meta_stub_, &v1::Meta::Stub::OpenSession, request);
  };
  EXPECT_EQ(send([](auto&) {}).code(), Code::kInternal);
  EXPECT_EQ(send([](auto& r) { r.set_mode(v1::SESSION_MODE_UNSPECIFIED); }).code(), Code::kInvalid);
  EXPECT_EQ(send([](auto& r) { r.set_mode(static_cast<v1::SessionMode>(99)); }).code(), Code::kInvalid);
  EXPECT_EQ(send([](auto& r) { r.clear_key(); }).code(), Code::kInvalid);
  EXPECT_EQ(send([](auto& r) { r.set_lease_ns(-1); }).code(), Code::kInvalid);
  EXPECT_EQ(send([](auto& r) { r.set_predecessor(1); }).code(), Code::kInvalid);
  EXPECT_EQ(send([](auto& r) { r.set_disk(std::string(1 << 20, 'd')); }).code(), Code::kInvalid);
  EXPECT_EQ(send([](auto& r) { r.set_client_name(std::string(2000, 'd')); }).code(), Code::kInvalid);
}

TEST_F(RpcHostile, Changes) {
  v1::CommitRequest commit;
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::Commit, commit).code(), Code::kInvalid);
  commit.mutable_key();
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::Commit, commit).code(), Code::kInternal);
  commit.set_count(kMaxOpsPerCommit + 1);
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::Commit, commit).code(), Code::kInvalid);
  commit.set_count(1);
  commit.set_ops(std::string(kMaxCommitBytes + 1, 'x'));
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::Commit, commit).code(), Code::kInvalid);
  commit.set_ops(std::string(kMaxMessageBytes + 1, 'x'));
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::Commit, commit).code(), Code::kTooBig);
  v1::ReleaseSegmentsRequest release;
  release.mutable_key();
  for (size_t i = 0; i <= kMaxReleasedSegments; ++i) release.add_segments(i);
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::ReleaseSegments, release).code(), Code::kInvalid);
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::CloseSession, v1::CloseSessionRequest()).code(), Code::kInvalid);
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::AllocateInodes, v1::AllocateInodesRequest()).code(), Code::kInvalid);
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::AllocateSegments, v1::AllocateSegmentsRequest()).code(), Code::kInvalid);
}

TEST_F(RpcHostile, Reads) {
  v1::GetExtentsRequest extents;
  extents.set_first_chunk(UINT64_MAX);
  extents.set_count(UINT32_MAX);
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::GetExtents, extents).code(), Code::kInvalid);
  v1::ReadDirRequest list;
  list.set_after(std::string(256, 'n'));
  EXPECT_EQ(Send(*meta_stub_, &v1::Meta::Stub::ReadDir, list).code(), Code::kNameTooLong);
  v1::ReadRequest read;
  read.set_length(UINT64_MAX);
  EXPECT_EQ(Send(*data_stub_, &v1::Data::Stub::Read, read).code(), Code::kInvalid);
  EXPECT_EQ(Send(*data_stub_, &v1::Data::Stub::Append, v1::AppendRequest()).code(), Code::kInvalid);
}

TEST_F(RpcHostile, BytesThatAreNoMessage) {
  uint64_t seed = 20260101;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const auto random = SeededRandom(seed);
  int refused = 0;
  for (const char* method : {"/archil.v1.Meta/Commit", "/archil.v1.Meta/OpenSession", "/archil.v1.Control/CreateDisk",
                             "/archil.v1.Data/Append", "/archil.v1.Data/Read", "/archil.v1.Meta/ReleaseSegments"}) {
    for (int i = 0; i < 50; ++i) {
      std::string bytes(random->Below(200), '\0');
      for (char& c : bytes) c = static_cast<char>(random->Next());
      if (!SendRaw(method, bytes).ok()) ++refused;
    }
  }
  EXPECT_GT(refused, 200);
  EXPECT_EQ(SendRaw("/archil.v1.Meta/NoSuchCall", "").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(SendRaw("/other", "").error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace archil
