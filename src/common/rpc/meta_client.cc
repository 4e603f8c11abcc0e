// MetaService over gRPC: each call is one unary call of archil.v1.Control or archil.v1.Meta, but for Renew, Poll and AnswerRecall,
// which go over the session's stream. Only GetExtents may take several, where its answer is too large for one message.
#include <fmt/format.h>

#include "archil/v1/control.grpc.pb.h"
#include "archil/v1/meta.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/client.h"
#include "common/rpc/convert.h"
#include "common/rpc/limits.h"
#include "common/rpc/session_stream.h"

namespace archil {
namespace {

using v1::Control;
using v1::Meta;

// An answer that does not decode is damage, whatever FromProto called it.
template <class T>
Result<T> Decoded(Result<T> result) {
  if (result.ok()) return result;
  return Error(Code::kCorrupt, fmt::format("bad answer of the metadata server: {}", result.error().message()));
}

class MetaClient final : public MetaService {
 public:
  MetaClient(const std::string& address, const RpcOptions& options)
      : channel_(address, options, std::make_shared<CancelWatcher>()), control_(channel_.channel()), meta_(channel_.channel()), streams_(channel_, meta_) {}

  Result<DiskInfo> CreateDisk(const OpContext& ctx, const std::string& name, uint64_t quota_bytes) override {
    v1::CreateDiskRequest request;
    request.set_name(name);
    request.set_quota_bytes(quota_bytes);
    v1::DiskReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, control_, &Control::Stub::CreateDisk, request, &reply));
    return Decoded(FromProto(reply.disk()));
  }

  Result<std::vector<DiskInfo>> ListDisks(const OpContext& ctx) override {
    v1::ListDisksReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, control_, &Control::Stub::ListDisks, v1::ListDisksRequest(), &reply));
    std::vector<DiskInfo> disks;
    for (const v1::Disk& d : reply.disks()) {
      ARCHIL_ASSIGN_OR_RETURN(auto disk, Decoded(FromProto(d)));
      disks.push_back(std::move(disk));
    }
    return disks;
  }

  Result<DiskInfo> ShowDisk(const OpContext& ctx, const std::string& name) override {
    v1::ShowDiskRequest request;
    request.set_name(name);
    v1::DiskReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, control_, &Control::Stub::ShowDisk, request, &reply));
    return Decoded(FromProto(reply.disk()));
  }

  Status DeleteDisk(const OpContext& ctx, const std::string& name, bool force) override {
    v1::DeleteDiskRequest request;
    request.set_name(name);
    request.set_force(force);
    v1::DeleteDiskReply reply;
    return channel_.Call(ctx, CallKind::kChange, control_, &Control::Stub::DeleteDisk, request, &reply);
  }

  Result<OpenSessionReply> OpenSession(const OpContext& ctx, const OpenSessionRequest& in) override {
    v1::OpenSessionRequest request;
    ToProto(in, &request);
    v1::OpenSessionReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::OpenSession, request, &reply));
    return Decoded(FromProto(reply));
  }

  Result<RenewReply> Renew(const OpContext& ctx, SessionId session, SessionKey key, uint64_t progress) override {
    v1::SessionUp up;
    *up.mutable_renew() = Of<v1::RenewRequest>(session, key);
    up.mutable_renew()->set_progress(progress);
    v1::SessionDown down;
    ARCHIL_RETURN_IF_ERROR(OnStream(ctx, CallKind::kRead, session, std::move(up), v1::SessionDown::kRenew, &down));
    return Decoded(FromProto(down.renew()));
  }

  Status CloseSession(const OpContext& ctx, SessionId session, SessionKey key) override {
    const auto request = Of<v1::CloseSessionRequest>(session, key);
    v1::CloseSessionReply reply;
    const Status closed = channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::CloseSession, request, &reply);
    if (closed.ok() || closed.code() == Code::kFenced) streams_.End(session);
    return closed;
  }

  Result<AcquireReply> Acquire(const OpContext& ctx, const AcquireRequest& in) override {
    if (in.wants.size() > kMaxWants) return Error(Code::kInvalid, fmt::format("{} wants, limit {}", in.wants.size(), kMaxWants));
    v1::AcquireRequest request;
    ToProto(in, &request);
    v1::AcquireReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::Acquire, request, &reply));
    return Decoded(FromProto(std::move(reply)));
  }

  Result<PollReply> Poll(const OpContext& ctx, SessionId session, SessionKey key, uint64_t after) override {
    v1::SessionUp up;
    *up.mutable_poll() = Of<v1::PollRequest>(session, key);
    up.mutable_poll()->set_after(after);
    v1::SessionDown down;
    ARCHIL_RETURN_IF_ERROR(OnStream(ctx, CallKind::kRead, session, std::move(up), v1::SessionDown::kPoll, &down));
    return Decoded(FromProto(down.poll()));
  }

  Status AnswerRecall(const OpContext& ctx, SessionId session, SessionKey key, const RecallAnswer& answer) override {
    ARCHIL_RETURN_IF_ERROR(CheckRights("rights kept", answer.keeps.size()));
    ARCHIL_RETURN_IF_ERROR(CheckRights("open inodes", answer.opens.size()));
    v1::SessionUp up;
    auto& request = *up.mutable_answer_recall();
    request = Of<v1::AnswerRecallRequest>(session, key);
    ToProto(answer, &request);
    // A renewal would have to wait for a large one: thousands of rights and locks, of a session that was alone.
    if (request.ByteSizeLong() + kStreamHeader <= kMaxStreamMessage) {
      v1::SessionDown down;
      return OnStream(ctx, CallKind::kChange, session, std::move(up), v1::SessionDown::kAnswerRecall, &down);
    }
    v1::AnswerRecallReply reply;
    return channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::AnswerRecall, request, &reply);
  }

  Status GiveBack(const OpContext& ctx, SessionId session, SessionKey key, const std::vector<InodeId>& inodes,
                  const std::vector<InodeId>& opens) override {
    ARCHIL_RETURN_IF_ERROR(CheckRights("inodes", inodes.size()));
    ARCHIL_RETURN_IF_ERROR(CheckRights("open inodes", opens.size()));
    auto request = Of<v1::GiveBackRequest>(session, key);
    for (InodeId ino : inodes) request.add_inodes(ino.value);
    for (InodeId ino : opens) request.add_opens(ino.value);
    v1::GiveBackReply reply;
    return channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::GiveBack, request, &reply);
  }

  Result<ReclaimReply> Reclaim(const OpContext& ctx, const ReclaimRequest& in) override {
    ARCHIL_RETURN_IF_ERROR(CheckRights("rights", in.rights.size()));
    ARCHIL_RETURN_IF_ERROR(CheckRights("open inodes", in.opens.size()));
    v1::ReclaimRequest request;
    ToProto(in, &request);
    v1::ReclaimReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::Reclaim, request, &reply));
    return ReclaimReply{reply.number()};
  }

  Status Settle(const OpContext& ctx, const SettleRequest& in) override {
    ARCHIL_RETURN_IF_ERROR(CheckRights("taken inodes", in.taken.size()));
    v1::SettleRequest request;
    ToProto(in, &request);
    v1::SettleReply reply;
    return channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::Settle, request, &reply);
  }

  Result<uint64_t> Checkout(const OpContext& ctx, const CheckoutRequest& in) override {
    auto request = Of<v1::CheckoutRequest>(in.session, in.key);
    request.set_id(in.id);
    request.set_ino(in.ino.value);
    request.set_in(in.in);
    request.set_force(in.force);
    v1::CheckoutReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::Checkout, request, &reply));
    return reply.number();
  }

  Result<LockOutcome> SetLock(const OpContext& ctx, const SetLockRequest& in) override {
    v1::SetLockRequest request;
    ToProto(in, &request);
    v1::SetLockReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::SetLock, request, &reply));
    return Decoded(OutcomeFromProto(reply.outcome()));
  }

  Result<bool> CancelLock(const OpContext& ctx, SessionId session, SessionKey key, uint64_t id) override {
    auto request = Of<v1::CancelLockRequest>(session, key);
    request.set_id(id);
    v1::CancelLockReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::CancelLock, request, &reply));
    return reply.granted();
  }

  Result<std::optional<FileLock>> TestLock(const OpContext& ctx, SessionId session, SessionKey key, const FileLock& lock) override {
    auto request = Of<v1::TestLockRequest>(session, key);
    ToProto(lock, request.mutable_lock());
    v1::TestLockReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::TestLock, request, &reply));
    if (!reply.has_found()) return std::optional<FileLock>();
    ARCHIL_ASSIGN_OR_RETURN(const FileLock found, Decoded(FromProto(reply.found())));
    return std::optional<FileLock>(found);
  }

  Result<std::vector<RightInfo>> ListRights(const OpContext& ctx, const std::string& disk, uint32_t limit) override {
    v1::ListRightsRequest request;
    request.set_disk(disk);
    request.set_limit(limit);
    v1::ListRightsReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::ListRights, request, &reply));
    std::vector<RightInfo> rights;
    rights.reserve(reply.rights_size());
    for (const v1::RightInfo& r : reply.rights()) {
      ARCHIL_ASSIGN_OR_RETURN(const RightInfo info, Decoded(FromProto(r)));
      rights.push_back(info);
    }
    return rights;
  }

  Status Revoke(const OpContext& ctx, const std::string& disk, SessionId session, InodeId ino) override {
    v1::RevokeRequest request;
    request.set_disk(disk);
    request.set_session(session.value);
    request.set_ino(ino.value);
    v1::RevokeReply reply;
    return channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::Revoke, request, &reply);
  }

  Result<CommitReply> Commit(const OpContext& ctx, const CommitRequest& in) override {
    // Over these limits gRPC might refuse the message, which tells the caller less.
    if (in.count > kMaxOpsPerCommit || in.ops.size() > kMaxCommitBytes) {
      return Error(Code::kInvalid, fmt::format("commit of {} ops and {} bytes, limits {} and {}", in.count, in.ops.size(),
                                               kMaxOpsPerCommit, kMaxCommitBytes));
    }
    v1::CommitRequest request;
    ToProto(in, &request);
    v1::CommitReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::Commit, request, &reply));
    return CommitReply{Seq(reply.applied()), Lsn(reply.position()), FromProto(reply.credit())};
  }

  Result<Credit> ReserveSpace(const OpContext& ctx, const ReserveSpaceRequest& in) override {
    v1::ReserveSpaceRequest request;
    ToProto(in, &request);
    v1::ReserveSpaceReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::ReserveSpace, request, &reply));
    return FromProto(reply.credit());
  }

  Result<ApplyOpReply> ApplyOp(const OpContext& ctx, const ApplyOpRequest& in) override {
    v1::ApplyOpRequest request;
    ToProto(in, &request);
    v1::ApplyOpReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::ApplyOp, request, &reply));
    return Decoded(FromProto(std::move(reply)));
  }

  Result<ReadOnceReply> ReadOnce(const OpContext& ctx, const ReadOnceRequest& in) override {
    v1::ReadOnceRequest request;
    ToProto(in, &request);
    v1::ReadOnceReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::ReadOnce, request, &reply));
    return Decoded(FromProto(std::move(reply)));
  }

  Result<InodeRange> AllocateInodes(const OpContext& ctx, SessionId session, SessionKey key) override {
    const auto request = Of<v1::AllocateInodesRequest>(session, key);
    v1::AllocateInodesReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::AllocateInodes, request, &reply));
    return FromProto(reply.inodes());
  }

  Result<std::vector<SegmentGrant>> AllocateSegments(const OpContext& ctx, SessionId session, SessionKey key,
                                                     uint32_t count) override {
    auto request = Of<v1::AllocateSegmentsRequest>(session, key);
    request.set_count(count);
    v1::AllocateSegmentsReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::AllocateSegments, request, &reply));
    std::vector<SegmentGrant> grants;
    for (const v1::SegmentGrant& g : reply.segments()) {
      ARCHIL_ASSIGN_OR_RETURN(auto grant, Decoded(FromProto(g)));
      grants.push_back(std::move(grant));
    }
    return grants;
  }

  Status ReleaseSegments(const OpContext& ctx, SessionId session, SessionKey key,
                         const std::vector<SegmentId>& segments) override {
    auto request = Of<v1::ReleaseSegmentsRequest>(session, key);
    for (SegmentId s : segments) request.add_segments(s.value);
    v1::ReleaseSegmentsReply reply;
    return channel_.Call(ctx, CallKind::kChange, meta_, &Meta::Stub::ReleaseSegments, request, &reply);
  }

  Result<InodeInfo> GetInode(const OpContext& ctx, SessionId session, InodeId ino) override {
    const auto request = At<v1::GetInodeRequest>(session, ino);
    v1::InodeReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::GetInode, request, &reply));
    return Decoded(FromProto(std::move(*reply.mutable_inode())));
  }

  Result<InodeInfo> Lookup(const OpContext& ctx, SessionId session, InodeId parent, const std::string& name) override {
    v1::LookupRequest request;
    request.set_session(session.value);
    request.set_parent(parent.value);
    request.set_name(name);
    v1::InodeReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::Lookup, request, &reply));
    return Decoded(FromProto(std::move(*reply.mutable_inode())));
  }

  Result<DirPage> ReadDir(const OpContext& ctx, SessionId session, InodeId ino, const std::string& after,
                          uint32_t limit) override {
    auto request = At<v1::ReadDirRequest>(session, ino);
    request.set_after(after);
    request.set_limit(limit);
    v1::ReadDirReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::ReadDir, request, &reply));
    return Decoded(FromProto(std::move(reply)));
  }

  Result<std::vector<ChunkExtents>> GetExtents(const OpContext& ctx, SessionId session, InodeId ino, uint64_t first_chunk,
                                               uint32_t count) override {
    std::vector<ChunkExtents> chunks;
    uint64_t next = first_chunk;
    const uint64_t end = first_chunk + count < first_chunk ? UINT64_MAX : first_chunk + count;
    do {
      auto request = At<v1::GetExtentsRequest>(session, ino);
      request.set_first_chunk(next);
      request.set_count(static_cast<uint32_t>(end - next));
      v1::GetExtentsReply reply;
      ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::GetExtents, request, &reply));
      for (v1::ChunkExtents& c : *reply.mutable_chunks()) {
        ARCHIL_ASSIGN_OR_RETURN(auto chunk, Decoded(FromProto(std::move(c))));
        chunks.push_back(std::move(chunk));
      }
      if (reply.next_chunk() < end && reply.next_chunk() <= next) {
        return Error(Code::kCorrupt, "bad answer of the metadata server: extents make no progress");
      }
      next = reply.next_chunk();
    } while (next < end);
    return chunks;
  }

  Result<std::map<std::string, std::string>> GetXattrs(const OpContext& ctx, SessionId session, InodeId ino) override {
    const auto request = At<v1::GetXattrsRequest>(session, ino);
    v1::GetXattrsReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::GetXattrs, request, &reply));
    std::map<std::string, std::string> xattrs;
    for (v1::Xattr& x : *reply.mutable_xattrs()) {
      xattrs.insert_or_assign(std::move(*x.mutable_name()), std::move(*x.mutable_value()));
    }
    return xattrs;
  }

  Result<std::vector<DataServerInfo>> LocateSegment(const OpContext& ctx, SessionId session, SegmentId segment) override {
    v1::LocateSegmentRequest request;
    request.set_session(session.value);
    request.set_segment(segment.value);
    v1::LocateSegmentReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::LocateSegment, request, &reply));
    return Decoded(ServersFromProto(reply.servers()));
  }

  Result<FsStats> StatFs(const OpContext& ctx, SessionId session) override {
    v1::StatFsRequest request;
    request.set_session(session.value);
    v1::StatFsReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, meta_, &Meta::Stub::StatFs, request, &reply));
    return FromProto(reply);
  }

 private:
  // Around the call in a SessionUp, at most.
  static constexpr size_t kStreamHeader = 64;

  Status OnStream(const OpContext& ctx, CallKind kind, SessionId session, v1::SessionUp up, v1::SessionDown::AnswerCase expected,
                  v1::SessionDown* down) {
    const Status answered = streams_.Call(ctx, kind, session, std::move(up), down);
    if (answered.code() == Code::kFenced) streams_.End(session);
    if (!answered.ok() || down->answer_case() == expected) return answered;
    return Error(Code::kCorrupt, "bad answer of the metadata server: it is one to another call");
  }

  template <class Request>
  static Request Of(SessionId session, SessionKey key) {
    Request request;
    request.set_session(session.value);
    ToProto(key, request.mutable_key());
    return request;
  }
  template <class Request>
  static Request At(SessionId session, InodeId ino) {
    Request request;
    request.set_session(session.value);
    request.set_ino(ino.value);
    return request;
  }

  RpcChannel channel_;
  Control::Stub control_;
  Meta::Stub meta_;
  SessionStreams streams_;  // goes before the channel
};

}  // namespace

std::unique_ptr<MetaService> NewMetaClient(const std::string& address, const RpcOptions& options) {
  return std::make_unique<MetaClient>(address, options);
}

}  // namespace archil
