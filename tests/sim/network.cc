#include "tests/sim/network.h"

#include <fmt/format.h>

#include <map>

#include "tests/sim/flight.h"

namespace archil::sim {

// [=] copies what the parameters refer to: the call may run when they are gone.
#define ARCHIL_SIM_FLY(kind, call)                                                                         \
  using R = decltype(server_.call);                                                                        \
  const OpContext& outer = ctx;                                                                            \
  return std::make_shared<Flight<R>>(network_, end_, __func__, kind,                                       \
                                     [=, &server = server_](const OpContext& ctx) { return server.call; }) \
      ->Run(outer)

constexpr const char* kKinds[] = {"?", "recall", "recall of all", "return of space", "flush", "end of the checkout"};

class ClientLinks::Meta final : public MetaService {
 public:
  Meta(Network& network, std::shared_ptr<ClientEnd> end, MetaService& server)
      : network_(network), end_(std::move(end)), server_(server) {}

  Result<DiskInfo> CreateDisk(const OpContext& ctx, const std::string& name, uint64_t quota_bytes) override {
    return server_.CreateDisk(ctx, name, quota_bytes);
  }
  Result<std::vector<DiskInfo>> ListDisks(const OpContext& ctx) override { return server_.ListDisks(ctx); }
  Result<DiskInfo> ShowDisk(const OpContext& ctx, const std::string& name) override {
    return server_.ShowDisk(ctx, name);
  }
  Status DeleteDisk(const OpContext& ctx, const std::string& name, bool force) override {
    return server_.DeleteDisk(ctx, name, force);
  }
  Result<std::vector<RightInfo>> ListRights(const OpContext& ctx, const std::string& disk, uint32_t limit) override {
    return server_.ListRights(ctx, disk, limit);
  }
  Status Revoke(const OpContext& ctx, const std::string& disk, SessionId session, InodeId ino) override {
    return server_.Revoke(ctx, disk, session, ino);
  }

  Result<OpenSessionReply> OpenSession(const OpContext& ctx, const OpenSessionRequest& request) override {
    ARCHIL_SIM_FLY(CallKind::kChange, OpenSession(ctx, request));
  }
  Result<RenewReply> Renew(const OpContext& ctx, SessionId session, SessionKey key, uint64_t progress) override {
    ARCHIL_SIM_FLY(CallKind::kRead, Renew(ctx, session, key, progress));
  }
  Status CloseSession(const OpContext& ctx, SessionId session, SessionKey key) override {
    ARCHIL_SIM_FLY(CallKind::kChange, CloseSession(ctx, session, key));
  }
  Result<AcquireReply> Acquire(const OpContext& ctx, const AcquireRequest& request) override {
    Note(fmt::format("wants{}", Words(request.wants)));
    auto reply = FlyAcquire(ctx, request);
    Note(reply.ok() ? fmt::format("wanted{} and has{}{}", Words(request.wants), Words(reply->grants), Details(*reply))
                    : fmt::format("wanted{}: {}", Words(request.wants), CodeName(reply.code())));
    return reply;
  }
  Result<PollReply> Poll(const OpContext& ctx, SessionId session, SessionKey key, uint64_t after) override {
    auto reply = FlyPoll(ctx, session, key, after);
    if (!reply.ok()) return reply;
    for (const SessionMessage& m : reply->messages) {
      Note(fmt::format("is told {}: {} of {} (home {}, grant {}), {} stays", m.number, kKinds[static_cast<int>(m.kind)], m.ino.value, m.home.value,
                       m.grant, static_cast<int>(m.keep)));
    }
    return reply;
  }
  Status AnswerRecall(const OpContext& ctx, SessionId session, SessionKey key, const RecallAnswer& answer) override {
    Note(fmt::format("answers {}: {} kept, last op {}", answer.message, static_cast<int>(answer.kept),
                     answer.last.value));
    const Status told = FlyAnswer(ctx, session, key, answer);
    Note(fmt::format("has answered {}: {}", answer.message, CodeName(told.code())));
    return told;
  }
  Status GiveBack(const OpContext& ctx, SessionId session, SessionKey key, const std::vector<InodeId>& inodes,
                  const std::vector<InodeId>& opens) override {
    ARCHIL_SIM_FLY(CallKind::kChange, GiveBack(ctx, session, key, inodes, opens));
  }
  Result<ReclaimReply> Reclaim(const OpContext& ctx, const ReclaimRequest& request) override {
    Note(fmt::format("reclaims{}{}", request.alone ? " everything" : "", Words(request.rights)));
    auto reply = FlyReclaim(ctx, request);
    Note(fmt::format("has reclaimed: {}", CodeName(reply.code())));
    return reply;
  }
  Result<LockOutcome> SetLock(const OpContext& ctx, const SetLockRequest& request) override {
    ARCHIL_SIM_FLY(CallKind::kChange, SetLock(ctx, request));
  }
  Result<bool> CancelLock(const OpContext& ctx, SessionId session, SessionKey key, uint64_t id) override {
    ARCHIL_SIM_FLY(CallKind::kChange, CancelLock(ctx, session, key, id));
  }
  Result<std::optional<FileLock>> TestLock(const OpContext& ctx, SessionId session, SessionKey key,
                                           const FileLock& lock) override {
    ARCHIL_SIM_FLY(CallKind::kRead, TestLock(ctx, session, key, lock));
  }
  Result<CommitReply> Commit(const OpContext& ctx, const CommitRequest& request) override {
    ARCHIL_SIM_FLY(CallKind::kChange, Commit(ctx, request));
  }
  Result<uint64_t> Checkout(const OpContext& ctx, const CheckoutRequest& request) override {
    ARCHIL_SIM_FLY(CallKind::kChange, Checkout(ctx, request));
  }
  Result<Credit> ReserveSpace(const OpContext& ctx, const ReserveSpaceRequest& request) override {
    auto reply = FlyReserve(ctx, request);
    Note(fmt::format("reserves {} to {} ({}): {}", request.least, request.wanted, request.id,
                     reply.ok() ? fmt::format("{} after {}", reply->left, reply->applied.value) : CodeName(reply.code())));
    return reply;
  }
  Status Settle(const OpContext& ctx, const SettleRequest& request) override {
    ARCHIL_SIM_FLY(CallKind::kChange, Settle(ctx, request));
  }
  Result<ApplyOpReply> ApplyOp(const OpContext& ctx, const ApplyOpRequest& request) override {
    ARCHIL_SIM_FLY(CallKind::kChange, ApplyOp(ctx, request));
  }
  Result<ReadOnceReply> ReadOnce(const OpContext& ctx, const ReadOnceRequest& request) override {
    ARCHIL_SIM_FLY(CallKind::kRead, ReadOnce(ctx, request));
  }
  Result<InodeRange> AllocateInodes(const OpContext& ctx, SessionId session, SessionKey key) override {
    ARCHIL_SIM_FLY(CallKind::kChange, AllocateInodes(ctx, session, key));
  }
  Result<std::vector<SegmentGrant>> AllocateSegments(const OpContext& ctx, SessionId session, SessionKey key,
                                                     uint32_t count) override {
    ARCHIL_SIM_FLY(CallKind::kChange, AllocateSegments(ctx, session, key, count));
  }
  Status ReleaseSegments(const OpContext& ctx, SessionId session, SessionKey key,
                         const std::vector<SegmentId>& segments) override {
    ARCHIL_SIM_FLY(CallKind::kChange, ReleaseSegments(ctx, session, key, segments));
  }
  Result<InodeInfo> GetInode(const OpContext& ctx, SessionId session, InodeId ino) override {
    ARCHIL_SIM_FLY(CallKind::kRead, GetInode(ctx, session, ino));
  }
  Result<InodeInfo> Lookup(const OpContext& ctx, SessionId session, InodeId parent, const std::string& name) override {
    ARCHIL_SIM_FLY(CallKind::kRead, Lookup(ctx, session, parent, name));
  }
  Result<DirPage> ReadDir(const OpContext& ctx, SessionId session, InodeId ino, const std::string& after,
                          uint32_t limit) override {
    ARCHIL_SIM_FLY(CallKind::kRead, ReadDir(ctx, session, ino, after, limit));
  }
  Result<std::vector<ChunkExtents>> GetExtents(const OpContext& ctx, SessionId session, InodeId ino,
                                               uint64_t first_chunk, uint32_t count) override {
    ARCHIL_SIM_FLY(CallKind::kRead, GetExtents(ctx, session, ino, first_chunk, count));
  }
  Result<std::map<std::string, std::string>> GetXattrs(const OpContext& ctx, SessionId session, InodeId ino) override {
    ARCHIL_SIM_FLY(CallKind::kRead, GetXattrs(ctx, session, ino));
  }
  Result<std::vector<DataServerInfo>> LocateSegment(const OpContext& ctx, SessionId session,
                                                    SegmentId segment) override {
    ARCHIL_SIM_FLY(CallKind::kRead, LocateSegment(ctx, session, segment));
  }
  Result<FsStats> StatFs(const OpContext& ctx, SessionId session) override {
    ARCHIL_SIM_FLY(CallKind::kRead, StatFs(ctx, session));
  }

 private:
  Result<AcquireReply> FlyAcquire(const OpContext& ctx, const AcquireRequest& request) {
    ARCHIL_SIM_FLY(CallKind::kChange, Acquire(ctx, request));
  }
  Result<PollReply> FlyPoll(const OpContext& ctx, SessionId session, SessionKey key, uint64_t after) {
    ARCHIL_SIM_FLY(CallKind::kRead, Poll(ctx, session, key, after));
  }
  Status FlyAnswer(const OpContext& ctx, SessionId session, SessionKey key, const RecallAnswer& answer) {
    ARCHIL_SIM_FLY(CallKind::kChange, AnswerRecall(ctx, session, key, answer));
  }
  Result<Credit> FlyReserve(const OpContext& ctx, const ReserveSpaceRequest& request) {
    ARCHIL_SIM_FLY(CallKind::kChange, ReserveSpace(ctx, request));
  }
  Result<ReclaimReply> FlyReclaim(const OpContext& ctx, const ReclaimRequest& request) {
    ARCHIL_SIM_FLY(CallKind::kChange, Reclaim(ctx, request));
  }

  template <class Rights>
  static std::string Words(const Rights& rights) {
    std::string out;
    for (const auto& right : rights) out += fmt::format(" {}:{}", right.ino.value, static_cast<int>(right.right));
    return out;
  }
  static std::string Details(const AcquireReply& reply) {
    std::string out;
    for (const Grant& grant : reply.grants) {
      out += fmt::format(" ({} by {}", grant.ino.value, grant.number);
      for (const InodeId ino : grant.uncovered) out += fmt::format(" without {}", ino.value);
      out += ")";
    }
    for (const DirPage& page : reply.listings) {
      out += fmt::format(" [{}:", page.directory.attr.ino.value);
      for (const DirEntry& e : page.entries)
        out += fmt::format(" {}={}{}", e.name, e.inode.attr.ino.value, e.inode.covered ? "+" : "");
      out += "]";
    }
    return out;
  }
  void Note(const std::string& what) { network_.scheduler().Note(end_->name + " " + what); }

  Network& network_;
  const std::shared_ptr<ClientEnd> end_;  // owners: the links and calls on their way
  MetaService& server_;
};

class ClientLinks::Data final : public DataService {
 public:
  Data(Network& network, std::shared_ptr<ClientEnd> end, DataService& server)
      : network_(network), end_(std::move(end)), server_(server) {}

  Status Append(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset, const Buffer& bytes,
                uint64_t checksum) override {
    ARCHIL_SIM_FLY(CallKind::kChange, Append(ctx, key, token, offset, bytes, checksum));
  }
  Result<Buffer> Read(const OpContext& ctx, SegmentKey key, uint64_t offset, uint64_t length) override {
    ARCHIL_SIM_FLY(CallKind::kRead, Read(ctx, key, offset, length));
  }
  Result<SegmentInfo> Fence(const OpContext& ctx, SegmentKey key, uint64_t token) override {
    ARCHIL_SIM_FLY(CallKind::kChange, Fence(ctx, key, token));
  }
  Result<SegmentInfo> Seal(const OpContext& ctx, SegmentKey key, uint64_t token) override {
    ARCHIL_SIM_FLY(CallKind::kChange, Seal(ctx, key, token));
  }
  Result<SegmentInfo> Stat(const OpContext& ctx, SegmentKey key) override {
    ARCHIL_SIM_FLY(CallKind::kRead, Stat(ctx, key));
  }
  Status Delete(const OpContext& ctx, SegmentKey key) override { ARCHIL_SIM_FLY(CallKind::kChange, Delete(ctx, key)); }
  Result<std::vector<SegmentInfo>> List(const OpContext& ctx, DiskId disk) override {
    ARCHIL_SIM_FLY(CallKind::kRead, List(ctx, disk));
  }

 private:
  Network& network_;
  const std::shared_ptr<ClientEnd> end_;
  DataService& server_;
};

class ClientLinks::Pool final : public DataServicePool {
 public:
  Pool(Network& network, std::shared_ptr<ClientEnd> end, DataServicePool& servers)
      : network_(network), end_(std::move(end)), servers_(servers) {}
  DataService& For(const DataServerInfo& server) override {
    auto& link = links_[server.id];
    if (link == nullptr) link = std::make_unique<Data>(network_, end_, servers_.For(server));
    return *link;
  }

 private:
  Network& network_;
  const std::shared_ptr<ClientEnd> end_;
  DataServicePool& servers_;
  std::map<uint32_t, std::unique_ptr<Data>> links_;  // one thread of the machine: no lock
};

#undef ARCHIL_SIM_FLY

ClientLinks::ClientLinks(Network& network, std::shared_ptr<ClientEnd> end, MetaService& meta, DataServicePool& data)
    : meta_(std::make_unique<Meta>(network, end, meta)), pool_(std::make_unique<Pool>(network, end, data)) {}

ClientLinks::~ClientLinks() = default;

MetaService& ClientLinks::meta() { return *meta_; }
DataServicePool& ClientLinks::data() { return *pool_; }

}  // namespace archil::sim
