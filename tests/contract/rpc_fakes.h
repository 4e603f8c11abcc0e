// Servers for tests of the RPC layer: they answer what the test says and remember what they were asked.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/env/sched.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "server/data/data_server.h"
#include "server/data/service/data_rpc.h"
#include "server/meta/meta_server.h"
#include "server/meta/service/meta_rpc.h"

namespace archil {

// A door that calls wait at. Thread safe.
class Gate {
 public:
  void WaitOpen() {
    {
      MutexLock lock(mu_);
      ++arrived_;
      cv_.SignalAll();
    }
    open_.Wait();
  }
  void Open() { open_.Notify(); }
  void WaitArrived(int n) {
    MutexLock lock(mu_);
    while (arrived_ < n) cv_.Wait(mu_);
  }

 private:
  Mutex mu_{RealScheduler()};
  CondVar cv_{RealScheduler()};
  int arrived_ ABSL_GUARDED_BY(mu_) = 0;
  Notification open_{RealScheduler()};
};

// Every call first asks `before` (if set), with the name of the call. Answers are the members; set them before serving.
class FakeMetaServer : public MetaServer {
 public:
  std::function<Status(const OpContext&, const std::string& call)> before;
  DiskInfo disk;
  std::vector<DiskInfo> disks;
  OpenSessionReply open_reply;
  RenewReply renew_reply;
  AcquireReply acquire_reply;
  PollReply poll_reply;
  ReclaimReply reclaim_reply;
  std::vector<RightInfo> rights;
  CommitReply commit_reply;
  ReserveSpaceRequest reserved;
  CheckoutRequest checked_out;
  uint64_t checkout_number = 0;
  Credit credit;
  InodeRange range;
  std::vector<SegmentGrant> grants;
  InodeInfo inode;
  DirPage page;
  std::vector<ChunkExtents> chunks;
  std::map<std::string, std::string> xattrs;
  std::vector<DataServerInfo> servers;
  FsStats stats;
  LockOutcome lock_outcome = LockOutcome::kDone;
  bool lock_granted = false;
  std::optional<FileLock> lock_found;
  // What came last.
  OpenSessionRequest opened;
  AcquireRequest acquired;
  RecallAnswer answered;
  std::vector<InodeId> given_back;
  std::vector<InodeId> told_open;
  ReclaimRequest reclaimed;
  SettleRequest settled;
  ApplyOpRequest applied_op;
  ApplyOpReply apply_op_reply;
  ReadOnceRequest read_once;
  ReadOnceReply read_once_reply;
  SetLockRequest set_lock;
  FileLock tested;
  CommitRequest committed;
  std::vector<SegmentId> released;
  std::string name;
  SessionId session;
  SessionKey key;
  uint64_t number = 0;
  int calls = 0;
  std::atomic<bool> hold_polls{false};  // Poll answers only when its caller has left
  std::atomic<int> polls_held{0};

  Result<DiskInfo> CreateDisk(const OpContext& ctx, const std::string& n, uint64_t quota) override {
    name = n, number = quota;
    return Answer(ctx, "CreateDisk", disk);
  }
  Result<std::vector<DiskInfo>> ListDisks(const OpContext& ctx) override { return Answer(ctx, "ListDisks", disks); }
  Result<DiskInfo> ShowDisk(const OpContext& ctx, const std::string& n) override {
    name = n;
    return Answer(ctx, "ShowDisk", disk);
  }
  Status DeleteDisk(const OpContext& ctx, const std::string& n, bool force) override {
    name = n, number = force;
    return Before(ctx, "DeleteDisk");
  }
  Result<OpenSessionReply> OpenSession(const OpContext& ctx, const OpenSessionRequest& request) override {
    opened = request;
    return Answer(ctx, "OpenSession", open_reply);
  }
  Result<RenewReply> Renew(const OpContext& ctx, SessionId s, SessionKey k, uint64_t progress) override {
    session = s, key = k, number = progress;
    return Answer(ctx, "Renew", renew_reply);
  }
  Status CloseSession(const OpContext& ctx, SessionId s, SessionKey k) override {
    session = s, key = k;
    return Before(ctx, "CloseSession");
  }
  Result<AcquireReply> Acquire(const OpContext& ctx, const AcquireRequest& request) override {
    acquired = request;
    return Answer(ctx, "Acquire", acquire_reply);
  }
  Result<PollReply> Poll(const OpContext& ctx, SessionId s, SessionKey k, uint64_t after) override {
    session = s, key = k, number = after;
    return Answer(ctx, "Poll", poll_reply);
  }
  Status AnswerRecall(const OpContext& ctx, SessionId s, SessionKey k, const RecallAnswer& a) override {
    session = s, key = k, answered = a;
    return Before(ctx, "AnswerRecall");
  }
  Status GiveBack(const OpContext& ctx, SessionId s, SessionKey k, const std::vector<InodeId>& inodes,
                  const std::vector<InodeId>& opens) override {
    session = s, key = k, given_back = inodes, told_open = opens;
    return Before(ctx, "GiveBack");
  }
  Result<ReclaimReply> Reclaim(const OpContext& ctx, const ReclaimRequest& request) override {
    reclaimed = request;
    return Answer(ctx, "Reclaim", reclaim_reply);
  }
  Status Settle(const OpContext& ctx, const SettleRequest& request) override {
    settled = request;
    return Before(ctx, "Settle");
  }
  Result<ApplyOpReply> ApplyOp(const OpContext& ctx, const ApplyOpRequest& request) override {
    applied_op = request;
    return Answer(ctx, "ApplyOp", apply_op_reply);
  }
  Result<ReadOnceReply> ReadOnce(const OpContext& ctx, const ReadOnceRequest& request) override {
    read_once = request;
    return Answer(ctx, "ReadOnce", read_once_reply);
  }
  Result<LockOutcome> SetLock(const OpContext& ctx, const SetLockRequest& request) override {
    set_lock = request;
    return Answer(ctx, "SetLock", lock_outcome);
  }
  Result<bool> CancelLock(const OpContext& ctx, SessionId s, SessionKey k, uint64_t id) override {
    session = s, key = k, number = id;
    return Answer(ctx, "CancelLock", lock_granted);
  }
  Result<std::optional<FileLock>> TestLock(const OpContext& ctx, SessionId s, SessionKey k, const FileLock& lock) override {
    session = s, key = k, tested = lock;
    return Answer(ctx, "TestLock", lock_found);
  }
  Result<std::vector<RightInfo>> ListRights(const OpContext& ctx, const std::string& d, uint32_t limit) override {
    name = d, number = limit;
    return Answer(ctx, "ListRights", rights);
  }
  Status Revoke(const OpContext& ctx, const std::string& d, SessionId s, InodeId ino) override {
    name = d, session = s, number = ino.value;
    return Before(ctx, "Revoke");
  }
  Result<CommitReply> Commit(const OpContext& ctx, const CommitRequest& request) override {
    committed = request;
    return Answer(ctx, "Commit", commit_reply);
  }
  Result<uint64_t> Checkout(const OpContext& ctx, const CheckoutRequest& request) override {
    checked_out = request;
    return Answer(ctx, "Checkout", checkout_number);
  }
  void CheckoutAsync(const OpContext& ctx, const CheckoutRequest& request, std::shared_ptr<WaitTicket>,
                     std::function<void(Result<uint64_t>)> done) override {
    done(Checkout(ctx, request));
  }
  Result<Credit> ReserveSpace(const OpContext& ctx, const ReserveSpaceRequest& request) override {
    reserved = request;
    return Answer(ctx, "ReserveSpace", credit);
  }
  void ReserveSpaceAsync(const OpContext& ctx, const ReserveSpaceRequest& request, std::shared_ptr<WaitTicket>,
                         std::function<void(Result<Credit>)> done) override {
    done(ReserveSpace(ctx, request));
  }
  Result<InodeRange> AllocateInodes(const OpContext& ctx, SessionId s, SessionKey k) override {
    session = s, key = k;
    return Answer(ctx, "AllocateInodes", range);
  }
  Result<std::vector<SegmentGrant>> AllocateSegments(const OpContext& ctx, SessionId s, SessionKey k, uint32_t count) override {
    session = s, key = k, number = count;
    return Answer(ctx, "AllocateSegments", grants);
  }
  Status ReleaseSegments(const OpContext& ctx, SessionId s, SessionKey k, const std::vector<SegmentId>& segments) override {
    session = s, key = k, released = segments;
    return Before(ctx, "ReleaseSegments");
  }
  Result<InodeInfo> GetInode(const OpContext& ctx, SessionId s, InodeId ino) override {
    session = s, number = ino.value;
    return Answer(ctx, "GetInode", inode);
  }
  Result<InodeInfo> Lookup(const OpContext& ctx, SessionId s, InodeId parent, const std::string& n) override {
    session = s, number = parent.value, name = n;
    return Answer(ctx, "Lookup", inode);
  }
  Result<DirPage> ReadDir(const OpContext& ctx, SessionId s, InodeId, const std::string& after, uint32_t limit) override {
    session = s, name = after, number = limit;
    return Answer(ctx, "ReadDir", page);
  }
  Result<std::vector<ChunkExtents>> GetExtents(const OpContext& ctx, SessionId, InodeId, uint64_t first, uint32_t count) override {
    std::vector<ChunkExtents> out;
    for (const ChunkExtents& c : chunks) {
      if (c.chunk >= first && c.chunk - first < count) out.push_back(c);
    }
    return Answer(ctx, "GetExtents", std::move(out));
  }
  Result<std::map<std::string, std::string>> GetXattrs(const OpContext& ctx, SessionId, InodeId) override {
    return Answer(ctx, "GetXattrs", xattrs);
  }
  Result<std::vector<DataServerInfo>> LocateSegment(const OpContext& ctx, SessionId, SegmentId segment) override {
    number = segment.value;
    return Answer(ctx, "LocateSegment", servers);
  }
  Result<FsStats> StatFs(const OpContext& ctx, SessionId) override { return Answer(ctx, "StatFs", stats); }

  void CommitAsync(const OpContext& ctx, CommitRequest request, std::function<void(Result<CommitReply>)> done) override {
    Spawn([this, ctx, request = std::move(request), done = std::move(done)] { done(Commit(ctx, request)); });
  }
  void RenewAsync(const OpContext& ctx, SessionId s, SessionKey k, uint64_t progress,
                  std::function<void(Result<RenewReply>)> done) override {
    Spawn([this, ctx, s, k, progress, done = std::move(done)] { done(Renew(ctx, s, k, progress)); });
  }
  void AnswerRecallAsync(const OpContext& ctx, SessionId s, SessionKey k, RecallAnswer a, std::function<void(Status)> done) override {
    Spawn([this, ctx, s, k, a = std::move(a), done = std::move(done)] { done(AnswerRecall(ctx, s, k, a)); });
  }
  void AcquireAsync(const OpContext& ctx, AcquireRequest request, std::shared_ptr<WaitTicket>,
                    std::function<void(Result<AcquireReply>)> done) override {
    Spawn([this, ctx, request = std::move(request), done = std::move(done)] { done(Acquire(ctx, request)); });
  }
  void ApplyOpAsync(const OpContext& ctx, ApplyOpRequest request, std::shared_ptr<WaitTicket>,
                    std::function<void(Result<ApplyOpReply>)> done) override {
    done(ApplyOp(ctx, request));
  }
  void ReadOnceAsync(const OpContext& ctx, ReadOnceRequest request, std::shared_ptr<WaitTicket>,
                     std::function<void(Result<ReadOnceReply>)> done) override {
    done(ReadOnce(ctx, request));
  }
  void SetLockAsync(const OpContext& ctx, SetLockRequest request, std::shared_ptr<WaitTicket>,
                    std::function<void(Result<LockOutcome>)> done) override {
    Spawn([this, ctx, request = std::move(request), done = std::move(done)] { done(SetLock(ctx, request)); });
  }
  void PollAsync(const OpContext& ctx, SessionId s, SessionKey k, uint64_t after, std::shared_ptr<WaitTicket> ticket,
                 std::function<void(Result<PollReply>)> done) override {
    if (hold_polls) {
      ++polls_held;
      return ticket->WhenCancelled([done = std::move(done)] { done(Error(Code::kInterrupted)); });
    }
    Spawn([this, ctx, s, k, after, done = std::move(done)] { done(Poll(ctx, s, k, after)); });
  }
  void RevokeAsync(const OpContext& ctx, const std::string& d, SessionId s, InodeId ino, std::shared_ptr<WaitTicket>,
                   std::function<void(Status)> done) override {
    Spawn([this, ctx, d, s, ino, done = std::move(done)] { done(Revoke(ctx, d, s, ino)); });
  }
  void EndWaits() override {}
  void RunBlocking(std::function<void()> call) override { Spawn(std::move(call)); }
  void Stop() override {
    std::vector<std::unique_ptr<Thread>> threads;
    {
      MutexLock lock(mu_);
      threads.swap(threads_);
    }
    for (auto& t : threads) t->Join();
  }
  std::map<std::string, uint64_t> Metrics() override { return {}; }
  Result<uint64_t> CollectGarbage(const OpContext&) override { return uint64_t{0}; }
  ~FakeMetaServer() override { Stop(); }

 private:
  void Spawn(std::function<void()> body) {
    MutexLock lock(mu_);
    threads_.push_back(RealScheduler().Spawn("fake-meta", std::move(body)));
  }
  Status Before(const OpContext& ctx, const std::string& call) {
    ++calls;
    return before ? before(ctx, call) : Ok();
  }
  template <class T>
  Result<T> Answer(const OpContext& ctx, const std::string& call, T value) {
    ARCHIL_RETURN_IF_ERROR(Before(ctx, call));
    return value;
  }

  Mutex mu_{RealScheduler()};
  std::vector<std::unique_ptr<Thread>> threads_ ABSL_GUARDED_BY(mu_);
};

// One segment's worth of bytes for every key; appends are only remembered.
class FakeDataServer final : public DataServer {
 public:
  Status append_status;
  std::string content;     // what Read reads from
  size_t lost_at_end = 0;  // Read answers this many bytes too few
  std::vector<SegmentInfo> segments;
  // What came last.
  SegmentKey key;
  uint64_t token = 0, offset = 0, checksum = 0;
  std::string appended;
  int reads = 0;

  Status Append(const OpContext&, SegmentKey k, uint64_t t, uint64_t o, const Buffer& bytes, uint64_t sum) override {
    key = k, token = t, offset = o, checksum = sum, appended = bytes.view();
    return append_status;
  }
  void AppendAsync(const OpContext& ctx, SegmentKey k, uint64_t t, uint64_t o, const Buffer& bytes, uint64_t sum,
                   std::function<void(Status)> done) override {
    done(Append(ctx, k, t, o, bytes, sum));
  }
  Result<Buffer> Read(const OpContext&, SegmentKey k, uint64_t o, uint64_t length) override {
    key = k;
    ++reads;
    if (o > content.size() || length > content.size() - o) return Code::kInvalid;
    return Buffer::Copy(std::string_view(content).substr(o, length - lost_at_end));
  }
  Result<SegmentInfo> Fence(const OpContext&, SegmentKey k, uint64_t t) override { return Info(k, t, SegmentState::kOpen); }
  Result<SegmentInfo> Seal(const OpContext&, SegmentKey k, uint64_t t) override { return Info(k, t, SegmentState::kSealed); }
  Result<SegmentInfo> Stat(const OpContext&, SegmentKey k) override { return Info(k, 0, SegmentState::kUploaded); }
  Status Delete(const OpContext&, SegmentKey k) override {
    key = k;
    return Code::kIo;
  }
  Result<std::vector<SegmentInfo>> List(const OpContext&, DiskId) override { return segments; }
  Status DrainUploads(const OpContext&) override { return Ok(); }
  void Stop() override {}
  std::map<std::string, uint64_t> Metrics() override { return {}; }

 private:
  Result<SegmentInfo> Info(SegmentKey k, uint64_t t, SegmentState state) {
    return SegmentInfo{k, state, content.size(), t};
  }
};

// Both fakes behind one port of the loopback interface.
class FakeServers {
 public:
  // Port 0: a free one.
  explicit FakeServers(uint16_t port = 0)
      : meta_rpc_(NewMetaRpcService(meta)), data_rpc_(NewDataRpcService(RealScheduler(), data)) {
    auto reserved = ReservedPort::Bind({"127.0.0.1", port});
    ARCHIL_CHECK(reserved.ok());
    auto server = RpcServer::Start(std::move(reserved).value(), {meta_rpc_.get(), data_rpc_.get()});
    ARCHIL_CHECK(server.ok());
    server_ = std::move(server).value();
  }
  ~FakeServers() { StopRpc(); }

  void StopRpc() { server_->Stop(absl::ZeroDuration()); }
  std::string address() const { return server_->address().ToString(); }
  uint16_t port() const { return server_->address().port; }

  FakeMetaServer meta;
  FakeDataServer data;

 private:
  std::unique_ptr<RpcService> meta_rpc_;
  std::unique_ptr<RpcService> data_rpc_;
  std::unique_ptr<RpcServer> server_;
};

inline OpContext Within(absl::Duration d) {
  OpContext ctx;
  ctx.deadline = RealClock().Boot() + d;
  return ctx;
}

}  // namespace archil
