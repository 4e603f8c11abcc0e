#include "server/meta/service/meta_rpc.h"

#include <fmt/format.h>

#include <algorithm>

#include "archil/v1/control.grpc.pb.h"
#include "archil/v1/meta.grpc.pb.h"
#include "common/rpc/convert.h"
#include "common/rpc/handler.h"
#include "common/rpc/limits.h"
#include "common/rpc/status.h"
#include "server/meta/service/served_streams.h"

namespace archil {
namespace {

using Call = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

// Runs `body`, a Status(const OpContext&), where it may block, and answers with what it returns. Request and reply
// stay until the answer.
template <class Body>
Reactor* Run(MetaServer& server, Call* call, Body body) {
  Reactor* reactor = call->DefaultReactor();
  server.RunBlocking([reactor, ctx = ContextOf(*call), body = std::move(body)] {
    Status status = CheckDeadline(ctx);
    if (status.ok()) status = body(ctx);
    reactor->Finish(ToGrpc(status));
  });
  return reactor;
}

class ControlHandlers final : public v1::Control::CallbackService {
 public:
  explicit ControlHandlers(MetaServer& server) : server_(server) {}

  Reactor* CreateDisk(Call* call, const v1::CreateDiskRequest* request, v1::DiskReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_RETURN_IF_ERROR(CheckText("name of the disk", request->name()));
      ARCHIL_ASSIGN_OR_RETURN(auto disk, server_.CreateDisk(ctx, request->name(), request->quota_bytes()));
      ToProto(disk, reply->mutable_disk());
      return Ok();
    });
  }

  Reactor* ListDisks(Call* call, const v1::ListDisksRequest*, v1::ListDisksReply* reply) override {
    return Run(server_, call, [this, reply](const OpContext& ctx) -> Status {
      ARCHIL_ASSIGN_OR_RETURN(auto disks, server_.ListDisks(ctx));
      for (const DiskInfo& disk : disks) ToProto(disk, reply->add_disks());
      return CheckReplySize(*reply);
    });
  }

  Reactor* ShowDisk(Call* call, const v1::ShowDiskRequest* request, v1::DiskReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_RETURN_IF_ERROR(CheckText("name of the disk", request->name()));
      ARCHIL_ASSIGN_OR_RETURN(auto disk, server_.ShowDisk(ctx, request->name()));
      ToProto(disk, reply->mutable_disk());
      return Ok();
    });
  }

  Reactor* DeleteDisk(Call* call, const v1::DeleteDiskRequest* request, v1::DeleteDiskReply*) override {
    return Run(server_, call, [this, request](const OpContext& ctx) -> Status {
      ARCHIL_RETURN_IF_ERROR(CheckText("name of the disk", request->name()));
      return server_.DeleteDisk(ctx, request->name(), request->force());
    });
  }

 private:
  MetaServer& server_;
};

// Answers a call that waits for something to happen; whose caller has left is given up. Owns itself: gone after OnDone.
class Waiting final : public Reactor {
 public:
  const std::shared_ptr<WaitTicket>& ticket() const { return ticket_; }
  Reactor* Answer(const Status& status) {
    Finish(ToGrpc(status));
    return this;
  }
  void OnCancel() override { ticket_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<WaitTicket> ticket_ = std::make_shared<WaitTicket>(RealScheduler());  // owners: this and the server's wait
};

using CommitMessages = OwnedMessages<v1::CommitRequest, v1::CommitReply>;

class MetaHandlers final : public v1::Meta::CallbackService {
 public:
  MetaHandlers(MetaServer& server, ServedStreams& streams) : server_(server), streams_(streams) { SetMessageAllocatorFor_Commit(&commit_messages_); }

  Reactor* OpenSession(Call* call, const v1::OpenSessionRequest* request, v1::OpenSessionReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_ASSIGN_OR_RETURN(auto in, FromProto(*request));
      ARCHIL_ASSIGN_OR_RETURN(auto out, server_.OpenSession(ctx, in));
      ToProto(out, reply);
      return Ok();
    });
  }

  ServedStreams::Reactor* Session(Call*) override { return streams_.Open(); }

  Reactor* CloseSession(Call* call, const v1::CloseSessionRequest* request, v1::CloseSessionReply*) override {
    return Run(server_, call, [this, request](const OpContext& ctx) -> Status {
      if (!request->has_key()) return Missing("key");
      return server_.CloseSession(ctx, SessionId(request->session()), FromProto(request->key()));
    });
  }

  Reactor* Acquire(Call* call, const v1::AcquireRequest* request, v1::AcquireReply* reply) override {
    auto* reactor = new Waiting;
    auto in = FromProto(*request);
    if (!in.ok()) return reactor->Answer(in.error());
    server_.AcquireAsync(ContextOf(*call), std::move(in).value(), reactor->ticket(), [reactor, reply](Result<AcquireReply> result) {
      if (!result.ok()) return (void)reactor->Answer(result.error());
      ToProto(*result, reply);
      reactor->Answer(CheckReplySize(*reply));
    });
    return reactor;
  }

  Reactor* Revoke(Call* call, const v1::RevokeRequest* request, v1::RevokeReply*) override {
    auto* reactor = new Waiting;
    if (const Status s = CheckText("name of the disk", request->disk()); !s.ok()) return reactor->Answer(s);
    server_.RevokeAsync(ContextOf(*call), request->disk(), SessionId(request->session()), InodeId(request->ino()), reactor->ticket(),
                        [reactor](Status s) { reactor->Answer(s); });
    return reactor;
  }

  Reactor* Checkout(Call* call, const v1::CheckoutRequest* request, v1::CheckoutReply* reply) override {
    auto* reactor = new Waiting;
    if (!request->has_key()) return reactor->Answer(Missing("key"));
    server_.CheckoutAsync(ContextOf(*call),
                          {SessionId(request->session()), FromProto(request->key()), request->id(), InodeId(request->ino()), request->in(), request->force()},
                          reactor->ticket(), [reactor, reply](Result<uint64_t> number) {
                            if (!number.ok()) return (void)reactor->Answer(number.error());
                            reply->set_number(*number);
                            reactor->Answer(Ok());
                          });
    return reactor;
  }

  Reactor* SetLock(Call* call, const v1::SetLockRequest* request, v1::SetLockReply* reply) override {
    auto* reactor = new Waiting;
    auto in = FromProto(*request);
    if (!in.ok()) return reactor->Answer(in.error());
    server_.SetLockAsync(ContextOf(*call), std::move(in).value(), reactor->ticket(), [reactor, reply](Result<LockOutcome> result) {
      if (!result.ok()) return (void)reactor->Answer(result.error());
      reply->set_outcome(static_cast<uint32_t>(*result));
      reactor->Answer(Ok());
    });
    return reactor;
  }

  Reactor* CancelLock(Call* call, const v1::CancelLockRequest* request, v1::CancelLockReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      if (!request->has_key()) return Missing("key");
      ARCHIL_ASSIGN_OR_RETURN(const bool granted, server_.CancelLock(ctx, SessionId(request->session()), FromProto(request->key()), request->id()));
      reply->set_granted(granted);
      return Ok();
    });
  }

  Reactor* TestLock(Call* call, const v1::TestLockRequest* request, v1::TestLockReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      if (!request->has_key()) return Missing("key");
      if (!request->has_lock()) return Missing("lock");
      ARCHIL_ASSIGN_OR_RETURN(const FileLock lock, FromProto(request->lock()));
      ARCHIL_ASSIGN_OR_RETURN(const auto found, server_.TestLock(ctx, SessionId(request->session()), FromProto(request->key()), lock));
      if (found) ToProto(*found, reply->mutable_found());
      return Ok();
    });
  }

  Reactor* AnswerRecall(Call* call, const v1::AnswerRecallRequest* request, v1::AnswerRecallReply*) override {
    return Run(server_, call, [this, request](const OpContext& ctx) -> Status {
      if (!request->has_key()) return Missing("key");
      ARCHIL_ASSIGN_OR_RETURN(const RecallAnswer answer, FromProto(*request));
      return server_.AnswerRecall(ctx, SessionId(request->session()), FromProto(request->key()), answer);
    });
  }

  Reactor* GiveBack(Call* call, const v1::GiveBackRequest* request, v1::GiveBackReply*) override {
    return Run(server_, call, [this, request](const OpContext& ctx) -> Status {
      if (!request->has_key()) return Missing("key");
      ARCHIL_ASSIGN_OR_RETURN(const auto inodes, InodesFromProto("inodes", request->inodes()));
      ARCHIL_ASSIGN_OR_RETURN(const auto opens, InodesFromProto("open inodes", request->opens()));
      return server_.GiveBack(ctx, SessionId(request->session()), FromProto(request->key()), inodes, opens);
    });
  }

  Reactor* Reclaim(Call* call, const v1::ReclaimRequest* request, v1::ReclaimReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_ASSIGN_OR_RETURN(const ReclaimRequest in, FromProto(*request));
      ARCHIL_ASSIGN_OR_RETURN(const ReclaimReply out, server_.Reclaim(ctx, in));
      reply->set_number(out.number);
      return Ok();
    });
  }

  Reactor* Settle(Call* call, const v1::SettleRequest* request, v1::SettleReply*) override {
    return Run(server_, call, [this, request](const OpContext& ctx) -> Status {
      ARCHIL_ASSIGN_OR_RETURN(const SettleRequest in, FromProto(*request));
      return server_.Settle(ctx, in);
    });
  }

  Reactor* ListRights(Call* call, const v1::ListRightsRequest* request, v1::ListRightsReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_RETURN_IF_ERROR(CheckText("name of the disk", request->disk()));
      ARCHIL_ASSIGN_OR_RETURN(const auto rights, server_.ListRights(ctx, request->disk(), request->limit()));
      for (const RightInfo& info : rights) ToProto(info, reply->add_rights());
      return CheckReplySize(*reply);
    });
  }

  Reactor* Commit(Call* call, const v1::CommitRequest*, v1::CommitReply* reply) override {
    Reactor* reactor = call->DefaultReactor();
    auto in = FromProto(std::move(CommitMessages::RequestOf(*call)));
    if (!in.ok()) {
      reactor->Finish(ToGrpc(in.error()));
      return reactor;
    }
    server_.CommitAsync(ContextOf(*call), std::move(in).value(), [reactor, reply](Result<CommitReply> result) {
      if (!result.ok()) {
        reactor->Finish(ToGrpc(result.error()));
        return;
      }
      reply->set_applied(result->applied.value);
      reply->set_position(result->position.value);
      if (result->credit.position.value != 0) ToProto(result->credit, reply->mutable_credit());
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  Reactor* ReserveSpace(Call* call, const v1::ReserveSpaceRequest* request, v1::ReserveSpaceReply* reply) override {
    auto* reactor = new Waiting;
    auto in = FromProto(*request);
    if (!in.ok()) return reactor->Answer(in.error());
    server_.ReserveSpaceAsync(ContextOf(*call), *in, reactor->ticket(), [reactor, reply](Result<Credit> result) {
      if (!result.ok()) return (void)reactor->Answer(result.error());
      ToProto(*result, reply->mutable_credit());
      reactor->Answer(Ok());
    });
    return reactor;
  }

  Reactor* ApplyOp(Call* call, const v1::ApplyOpRequest* request, v1::ApplyOpReply* reply) override {
    auto* reactor = new Waiting;
    auto in = FromProto(*request);
    if (!in.ok()) return reactor->Answer(in.error());
    server_.ApplyOpAsync(ContextOf(*call), std::move(in).value(), reactor->ticket(),
                         [reactor, reply](Result<ApplyOpReply> result) {
                           if (!result.ok()) return (void)reactor->Answer(result.error());
                           ToProto(*result, reply);
                           reactor->Answer(Ok());
                         });
    return reactor;
  }

  Reactor* ReadOnce(Call* call, const v1::ReadOnceRequest* request, v1::ReadOnceReply* reply) override {
    auto* reactor = new Waiting;
    auto in = FromProto(*request);
    if (!in.ok()) return reactor->Answer(in.error());
    server_.ReadOnceAsync(ContextOf(*call), std::move(in).value(), reactor->ticket(),
                          [reactor, reply](Result<ReadOnceReply> result) {
                            if (!result.ok()) return (void)reactor->Answer(result.error());
                            ToProto(*result, reply);
                            reactor->Answer(CheckReplySize(*reply));
                          });
    return reactor;
  }

  Reactor* AllocateInodes(Call* call, const v1::AllocateInodesRequest* request, v1::AllocateInodesReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      if (!request->has_key()) return Missing("key");
      ARCHIL_ASSIGN_OR_RETURN(auto range, server_.AllocateInodes(ctx, SessionId(request->session()), FromProto(request->key())));
      ToProto(range, reply->mutable_inodes());
      return Ok();
    });
  }

  Reactor* AllocateSegments(Call* call, const v1::AllocateSegmentsRequest* request, v1::AllocateSegmentsReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      if (!request->has_key()) return Missing("key");
      ARCHIL_ASSIGN_OR_RETURN(auto grants, server_.AllocateSegments(ctx, SessionId(request->session()),
                                                                    FromProto(request->key()), request->count()));
      for (const SegmentGrant& grant : grants) ToProto(grant, reply->add_segments());
      return Ok();
    });
  }

  Reactor* ReleaseSegments(Call* call, const v1::ReleaseSegmentsRequest* request, v1::ReleaseSegmentsReply*) override {
    return Run(server_, call, [this, request](const OpContext& ctx) -> Status {
      if (!request->has_key()) return Missing("key");
      if (static_cast<size_t>(request->segments_size()) > kMaxReleasedSegments) {
        return Error(Code::kInvalid, fmt::format("{} segments, limit {}", request->segments_size(), kMaxReleasedSegments));
      }
      std::vector<SegmentId> segments;
      segments.reserve(request->segments_size());
      for (uint64_t s : request->segments()) segments.emplace_back(s);
      return server_.ReleaseSegments(ctx, SessionId(request->session()), FromProto(request->key()), segments);
    });
  }

  Reactor* GetInode(Call* call, const v1::GetInodeRequest* request, v1::InodeReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_ASSIGN_OR_RETURN(auto inode, server_.GetInode(ctx, SessionId(request->session()), InodeId(request->ino())));
      ToProto(inode, reply->mutable_inode());
      return Ok();
    });
  }

  Reactor* Lookup(Call* call, const v1::LookupRequest* request, v1::InodeReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      if (request->name().size() > kMaxName) return Code::kNameTooLong;
      ARCHIL_ASSIGN_OR_RETURN(auto inode, server_.Lookup(ctx, SessionId(request->session()), InodeId(request->parent()),
                                                         request->name()));
      ToProto(inode, reply->mutable_inode());
      return Ok();
    });
  }

  Reactor* ReadDir(Call* call, const v1::ReadDirRequest* request, v1::ReadDirReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      if (request->after().size() > kMaxName) return Code::kNameTooLong;
      ARCHIL_ASSIGN_OR_RETURN(auto page, server_.ReadDir(ctx, SessionId(request->session()), InodeId(request->ino()),
                                                         request->after(), request->limit()));
      ToProto(page, reply);
      return Ok();
    });
  }

  Reactor* GetExtents(Call* call, const v1::GetExtentsRequest* request, v1::GetExtentsReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      const uint64_t first = request->first_chunk();
      if (first > kMaxFileSize / kChunkSize) return Error(Code::kInvalid, fmt::format("chunk {} of a file", first));
      ARCHIL_ASSIGN_OR_RETURN(auto chunks, server_.GetExtents(ctx, SessionId(request->session()), InodeId(request->ino()),
                                                              first, request->count()));
      reply->set_next_chunk(first + request->count());
      size_t bytes = 0;
      for (const ChunkExtents& chunk : chunks) {
        if (bytes > kReplyCutBytes) {
          reply->set_next_chunk(chunk.chunk);
          break;
        }
        ToProto(chunk, reply->add_chunks());
        bytes += reply->chunks().rbegin()->ByteSizeLong();
      }
      return CheckReplySize(*reply);
    });
  }

  Reactor* GetXattrs(Call* call, const v1::GetXattrsRequest* request, v1::GetXattrsReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_ASSIGN_OR_RETURN(auto xattrs, server_.GetXattrs(ctx, SessionId(request->session()), InodeId(request->ino())));
      for (const auto& [name, value] : xattrs) {
        v1::Xattr* x = reply->add_xattrs();
        x->set_name(name);
        x->set_value(value);
      }
      return CheckReplySize(*reply);
    });
  }

  Reactor* LocateSegment(Call* call, const v1::LocateSegmentRequest* request, v1::LocateSegmentReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_ASSIGN_OR_RETURN(auto servers, server_.LocateSegment(ctx, SessionId(request->session()),
                                                                  SegmentId(request->segment())));
      for (const DataServerInfo& server : servers) ToProto(server, reply->add_servers());
      return Ok();
    });
  }

  Reactor* StatFs(Call* call, const v1::StatFsRequest* request, v1::StatFsReply* reply) override {
    return Run(server_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_ASSIGN_OR_RETURN(auto stats, server_.StatFs(ctx, SessionId(request->session())));
      ToProto(stats, reply);
      return Ok();
    });
  }

 private:
  MetaServer& server_;
  ServedStreams& streams_;
  CommitMessages commit_messages_;
};

class MetaRpcService final : public RpcService {
 public:
  explicit MetaRpcService(MetaServer& server) : server_(server), streams_(server), control_(server), meta_(server, streams_) {}
  std::vector<grpc::Service*> GrpcServices() override { return {&control_, &meta_}; }
  void EndWaits() override {
    server_.EndWaits();
    streams_.End();
  }

 private:
  MetaServer& server_;
  ServedStreams streams_;
  ControlHandlers control_;
  MetaHandlers meta_;
};

}  // namespace

std::unique_ptr<RpcService> NewMetaRpcService(MetaServer& server) { return std::make_unique<MetaRpcService>(server); }

}  // namespace archil
