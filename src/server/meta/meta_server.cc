// The server: which disks there are, and the blocking face of MetaService over their strands.
//
// A commit's way: decoded in the caller → strand: checked, applied to the state in memory, submitted to the log → log thread: one
// append for all that waits → answered.
#include "server/meta/meta_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/obs/log.h"
#include "server/meta/disk.h"

namespace archil {
namespace {

constexpr int kStrandThreads = 2;
constexpr int kLogThreads = 8;
constexpr int kBackgroundThreads = 4;
constexpr int kBlockingThreads = 16;
constexpr absl::Duration kTick = absl::Seconds(1);
constexpr absl::Duration kCancelPoll = absl::Milliseconds(20);  // cancelled contexts do not wake us
constexpr absl::Duration kLongestPoll = absl::Seconds(30);
// A call that waits is answered so much before its deadline, so that its caller hears the reason.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(200);
constexpr absl::Duration kDataCall = absl::Seconds(30);

constexpr char kNamePrefix[] = "disk/name/";
constexpr char kDeletedPrefix[] = "disk/deleted/";
constexpr char kNextIdKey[] = "disk/next-id";

bool IsDiskName(std::string_view name) {
  const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 63 || !alnum(name[0])) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return alnum(c) || c == '.' || c == '_' || c == '-'; });
}

std::string DeletedKey(DiskId id) { return fmt::format("{}{:016x}", kDeletedPrefix, id.value); }

Result<uint64_t> ParseNumber(std::string_view text, int base) {
  uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (ec != std::errc() || end != text.data() + text.size() || value == 0) return Error(Code::kCorrupt, "coordination holds a bad disk number");
  return value;
}

// What a caller waits for; shared with whoever answers, who may come after the caller has left.
template <class T>
struct Waiter {
  explicit Waiter(Scheduler& scheduler) : mu(scheduler), cv(scheduler) {}
  Mutex mu;
  CondVar cv;
  std::optional<Result<T>> result ABSL_GUARDED_BY(mu);
};

enum class Effect : uint8_t { kNone, kChange };

class MetaServerImpl final : public MetaServer {
 public:
  MetaServerImpl(const MetaServerEnv& env, const MetaServerConfig& config, std::unique_ptr<Coordination> coord)
      : coord_(std::move(coord)),
        strands_(env.scheduler, "meta-strand", kStrandThreads),
        log_pool_(env.scheduler, "meta-log", kLogThreads),
        background_(env.scheduler, "meta-back", kBackgroundThreads),
        blocking_(env.scheduler, "meta-call", kBlockingThreads),
        mu_(env.scheduler),
        tick_cv_(env.scheduler),
        host_{env, config, *coord_, strands_, log_pool_, background_, metrics_, draining_, [this](BootTime at) { WakeAt(at); }} {}
  ~MetaServerImpl() override { Stop(); }

  Status Start() {
    ARCHIL_RETURN_IF_ERROR(FinishDeletions());
    ARCHIL_ASSIGN_OR_RETURN(const auto names, coord_->List(kNamePrefix));
    for (const CoordEntry& entry : names) {
      ARCHIL_ASSIGN_OR_RETURN(const uint64_t id, ParseNumber(entry.value, 10));
      auto disk = std::make_shared<Disk>(host_, DiskId{id}, entry.key.substr(sizeof(kNamePrefix) - 1));
      if (const Status s = disk->Start(std::nullopt); !s.ok()) {
        LogError("meta.disk_not_open", {{"disk", disk->name()}, {"error", s.error().ToString()}});
      }
      MutexLock lock(mu_);
      by_name_[disk->name()] = disk;
      by_id_[disk->id()] = disk;
    }
    tick_ = host_.env.scheduler.Spawn("meta-tick", [this] { TickLoop(); });
    return Ok();
  }

  Result<DiskInfo> CreateDisk(const OpContext& ctx, const std::string& name, uint64_t quota_bytes) override;
  Result<std::vector<DiskInfo>> ListDisks(const OpContext& ctx) override;
  Result<DiskInfo> ShowDisk(const OpContext& ctx, const std::string& name) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, ByName(name));
    return Call<DiskInfo>(ctx, Effect::kNone, [&](auto done) { disk->Info(done); });
  }
  Status DeleteDisk(const OpContext& ctx, const std::string& name, bool force) override;

  Result<OpenSessionReply> OpenSession(const OpContext& ctx, const OpenSessionRequest& request) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, ByName(request.disk));
    return Call<OpenSessionReply>(ctx, Effect::kChange, [&](auto done) { disk->OpenSession(request, done); });
  }
  Result<RenewReply> Renew(const OpContext& ctx, SessionId session, SessionKey key, uint64_t progress) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<RenewReply>(ctx, Effect::kNone, [&](auto done) { disk->Renew(session, key, progress, done); });
  }
  Status CloseSession(const OpContext& ctx, SessionId session, SessionKey key) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Simple(Call<bool>(ctx, Effect::kChange, [&](auto done) { disk->CloseSession(session, key, done); }));
  }
  Result<AcquireReply> Acquire(const OpContext& ctx, const AcquireRequest& request) override {
    return CallWaiting<AcquireReply>(ctx, Effect::kChange, [&](auto ticket, auto done) { AcquireAsync(ctx, request, ticket, done); });
  }
  Result<PollReply> Poll(const OpContext& ctx, SessionId session, SessionKey key, uint64_t after) override {
    return CallWaiting<PollReply>(ctx, Effect::kNone, [&](auto ticket, auto done) { PollAsync(ctx, session, key, after, ticket, done); });
  }
  Status Revoke(const OpContext& ctx, const std::string& disk, SessionId session, InodeId ino) override {
    return Simple(CallWaiting<bool>(ctx, Effect::kChange, [&](auto ticket, auto done) {
      RevokeAsync(ctx, disk, session, ino, ticket, [done](Status s) { done(s.ok() ? Result<bool>(true) : Result<bool>(s.error())); });
    }));
  }
  Status AnswerRecall(const OpContext& ctx, SessionId session, SessionKey key, const RecallAnswer& answer) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Simple(Call<bool>(ctx, Effect::kChange, [&](auto done) { disk->AnswerRecall(session, key, answer, done); }));
  }
  Status GiveBack(const OpContext& ctx, SessionId session, SessionKey key, const std::vector<InodeId>& inodes,
                  const std::vector<InodeId>& opens) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Simple(Call<bool>(ctx, Effect::kChange, [&](auto done) { disk->GiveBack(session, key, inodes, opens, done); }));
  }
  Result<ReclaimReply> Reclaim(const OpContext& ctx, const ReclaimRequest& request) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(request.session));
    return Call<ReclaimReply>(ctx, Effect::kChange, [&](auto done) { disk->Reclaim(request, done); });
  }
  Status Settle(const OpContext& ctx, const SettleRequest& request) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(request.session));
    return Simple(Call<bool>(ctx, Effect::kChange, [&](auto done) { disk->SettleTaken(request, done); }));
  }
  Result<std::vector<RightInfo>> ListRights(const OpContext& ctx, const std::string& name, uint32_t limit) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, ByName(name));
    return Call<std::vector<RightInfo>>(ctx, Effect::kNone, [&](auto done) { disk->ListRights(limit, done); });
  }
  Result<LockOutcome> SetLock(const OpContext& ctx, const SetLockRequest& request) override {
    return CallWaiting<LockOutcome>(ctx, Effect::kChange, [&](auto ticket, auto done) { SetLockAsync(ctx, request, ticket, done); });
  }
  Result<bool> CancelLock(const OpContext& ctx, SessionId session, SessionKey key, uint64_t id) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<bool>(ctx, Effect::kChange, [&](auto done) { disk->CancelLock(session, key, id, done); });
  }
  Result<std::optional<FileLock>> TestLock(const OpContext& ctx, SessionId session, SessionKey key, const FileLock& lock) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<std::optional<FileLock>>(ctx, Effect::kNone, [&](auto done) { disk->TestLock(session, key, lock, done); });
  }
  void SetLockAsync(const OpContext& ctx, SetLockRequest request, std::shared_ptr<WaitTicket> ticket,
                    std::function<void(Result<LockOutcome>)> done) override {
    auto disk = BySession(request.session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->SetLock(std::move(request), WaitUntil(ctx), ticket, std::move(done));
  }
  void AcquireAsync(const OpContext& ctx, AcquireRequest request, std::shared_ptr<WaitTicket> ticket,
                    std::function<void(Result<AcquireReply>)> done) override {
    auto disk = BySession(request.session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->Acquire(std::move(request), WaitUntil(ctx), ticket, std::move(done));
  }
  void PollAsync(const OpContext& ctx, SessionId session, SessionKey key, uint64_t after, std::shared_ptr<WaitTicket> ticket,
                 std::function<void(Result<PollReply>)> done) override {
    auto disk = BySession(session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->Poll(session, key, after, std::min(WaitUntil(ctx), host_.Now() + kLongestPoll), ticket, std::move(done));
  }
  void RevokeAsync(const OpContext& ctx, const std::string& name, SessionId session, InodeId ino, std::shared_ptr<WaitTicket> ticket,
                   std::function<void(Status)> done) override {
    auto disk = ByName(name);
    if (!disk.ok()) return done(disk.error());
    (*disk)->Revoke(session, ino, WaitUntil(ctx), ticket, [done](Result<bool> r) { done(Simple(r)); });
  }
  Result<ApplyOpReply> ApplyOp(const OpContext& ctx, const ApplyOpRequest& request) override {
    return CallWaiting<ApplyOpReply>(ctx, Effect::kChange,
                                     [&](auto ticket, auto done) { ApplyOpAsync(ctx, request, ticket, done); });
  }
  Result<uint64_t> Checkout(const OpContext& ctx, const CheckoutRequest& request) override {
    return CallWaiting<uint64_t>(ctx, Effect::kChange, [&](auto ticket, auto done) { CheckoutAsync(ctx, request, ticket, done); });
  }
  void CheckoutAsync(const OpContext& ctx, const CheckoutRequest& request, std::shared_ptr<WaitTicket> ticket,
                     std::function<void(Result<uint64_t>)> done) override {
    auto disk = BySession(request.session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->Checkout(request, WaitUntil(ctx), ticket, std::move(done));
  }
  Result<Credit> ReserveSpace(const OpContext& ctx, const ReserveSpaceRequest& request) override {
    return CallWaiting<Credit>(ctx, Effect::kChange, [&](auto ticket, auto done) { ReserveSpaceAsync(ctx, request, ticket, done); });
  }
  void ReserveSpaceAsync(const OpContext& ctx, const ReserveSpaceRequest& request, std::shared_ptr<WaitTicket> ticket,
                         std::function<void(Result<Credit>)> done) override {
    auto disk = BySession(request.session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->ReserveSpace(request, WaitUntil(ctx), ticket, std::move(done));
  }
  Result<ReadOnceReply> ReadOnce(const OpContext& ctx, const ReadOnceRequest& request) override {
    return CallWaiting<ReadOnceReply>(ctx, Effect::kNone,
                                      [&](auto ticket, auto done) { ReadOnceAsync(ctx, request, ticket, done); });
  }
  void ApplyOpAsync(const OpContext& ctx, ApplyOpRequest request, std::shared_ptr<WaitTicket> ticket,
                    std::function<void(Result<ApplyOpReply>)> done) override {
    auto disk = BySession(request.session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->ApplyOp(std::move(request), WaitUntil(ctx), ticket, std::move(done));
  }
  void ReadOnceAsync(const OpContext& ctx, ReadOnceRequest request, std::shared_ptr<WaitTicket> ticket,
                     std::function<void(Result<ReadOnceReply>)> done) override {
    auto disk = BySession(request.session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->ReadOnce(std::move(request), WaitUntil(ctx), ticket, std::move(done));
  }
  void EndWaits() override {
    draining_ = true;
    for (const auto& disk : Disks()) disk->EndWaits();
  }
  Result<CommitReply> Commit(const OpContext& ctx, const CommitRequest& request) override {
    return Call<CommitReply>(ctx, Effect::kChange, [&](auto done) { CommitAsync(ctx, request, done); });
  }
  Result<InodeRange> AllocateInodes(const OpContext& ctx, SessionId session, SessionKey key) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<InodeRange>(ctx, Effect::kChange, [&](auto done) { disk->AllocateInodes(session, key, done); });
  }
  Result<std::vector<SegmentGrant>> AllocateSegments(const OpContext& ctx, SessionId session, SessionKey key, uint32_t count) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<std::vector<SegmentGrant>>(ctx, Effect::kChange, [&](auto done) { disk->AllocateSegments(session, key, count, done); });
  }
  Status ReleaseSegments(const OpContext& ctx, SessionId session, SessionKey key, const std::vector<SegmentId>& segments) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Simple(Call<bool>(ctx, Effect::kChange, [&](auto done) { disk->ReleaseSegments(session, key, segments, done); }));
  }
  Result<InodeInfo> GetInode(const OpContext& ctx, SessionId session, InodeId ino) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<InodeInfo>(ctx, Effect::kNone, [&](auto done) { disk->GetInode(session, ino, done); });
  }
  Result<InodeInfo> Lookup(const OpContext& ctx, SessionId session, InodeId parent, const std::string& name) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<InodeInfo>(ctx, Effect::kNone, [&](auto done) { disk->Lookup(session, parent, name, done); });
  }
  Result<DirPage> ReadDir(const OpContext& ctx, SessionId session, InodeId ino, const std::string& after, uint32_t limit) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<DirPage>(ctx, Effect::kNone, [&](auto done) { disk->ReadDir(session, ino, after, limit, done); });
  }
  Result<std::vector<ChunkExtents>> GetExtents(const OpContext& ctx, SessionId session, InodeId ino, uint64_t first, uint32_t count) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<std::vector<ChunkExtents>>(ctx, Effect::kNone, [&](auto done) { disk->GetExtents(session, ino, first, count, done); });
  }
  Result<std::map<std::string, std::string>> GetXattrs(const OpContext& ctx, SessionId session, InodeId ino) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<std::map<std::string, std::string>>(ctx, Effect::kNone, [&](auto done) { disk->GetXattrs(session, ino, done); });
  }
  Result<std::vector<DataServerInfo>> LocateSegment(const OpContext& ctx, SessionId session, SegmentId segment) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<std::vector<DataServerInfo>>(ctx, Effect::kNone, [&](auto done) { disk->LocateSegment(session, segment, done); });
  }
  Result<FsStats> StatFs(const OpContext& ctx, SessionId session) override {
    ARCHIL_ASSIGN_OR_RETURN(auto disk, BySession(session));
    return Call<FsStats>(ctx, Effect::kNone, [&](auto done) { disk->StatFs(session, done); });
  }

  void CommitAsync(const OpContext& ctx, CommitRequest request, std::function<void(Result<CommitReply>)> done) override {
    auto disk = BySession(request.session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->Commit(std::move(request), std::move(done));
  }
  void RenewAsync(const OpContext&, SessionId session, SessionKey key, uint64_t progress,
                  std::function<void(Result<RenewReply>)> done) override {
    auto disk = BySession(session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->Renew(session, key, progress, std::move(done));
  }
  void AnswerRecallAsync(const OpContext&, SessionId session, SessionKey key, RecallAnswer answer,
                         std::function<void(Status)> done) override {
    auto disk = BySession(session);
    if (!disk.ok()) return done(disk.error());
    (*disk)->AnswerRecall(session, key, std::move(answer), [done = std::move(done)](Result<bool> r) { done(Simple(r)); });
  }
  void RunBlocking(std::function<void()> call) override {
    // After Stop every call answers at once, so the caller's thread will do.
    auto shared = std::make_shared<std::function<void()>>(std::move(call));
    if (!blocking_.Post([shared] { (*shared)(); })) (*shared)();
  }
  void Stop() override;
  std::map<std::string, uint64_t> Metrics() override;
  Result<uint64_t> CollectGarbage(const OpContext& ctx) override;

 private:
  template <class T>
  Result<T> Call(const OpContext& ctx, Effect effect, const std::function<void(Done<T>)>& start);
  // As Call; `start` gets a ticket that is cancelled if the caller leaves first.
  template <class T, class Start>
  Result<T> CallWaiting(const OpContext& ctx, Effect effect, const Start& start) {
    auto ticket = std::make_shared<WaitTicket>(host_.env.scheduler);
    auto result = Call<T>(ctx, effect, [&](Done<T> done) { start(ticket, done); });
    if (result.code() == Code::kInterrupted || result.code() == Code::kUnknown || result.code() == Code::kUnavailable) ticket->Cancel();
    return result;
  }
  BootTime WaitUntil(const OpContext& ctx) {
    const BootTime now = host_.Now();
    return ctx.deadline - std::min(kAnswerTime, std::max((ctx.deadline - now) / 5, absl::ZeroDuration()));
  }
  static Status Simple(const Result<bool>& r) { return r.ok() ? Ok() : Status(r.error()); }
  Result<std::shared_ptr<Disk>> ByName(const std::string& name);
  Result<std::shared_ptr<Disk>> BySession(SessionId session);
  std::vector<std::shared_ptr<Disk>> Disks();
  Result<DiskId> NewDiskId();
  Status RemoveDiskFiles(DiskId id);
  Status FinishDeletions();
  void WakeAt(BootTime at);
  void TickLoop();

  const std::unique_ptr<Coordination> coord_;
  MetaMetrics metrics_;
  ThreadPool strands_;
  ThreadPool log_pool_;
  ThreadPool background_;
  ThreadPool blocking_;
  std::atomic<bool> draining_{false};
  std::unique_ptr<Thread> tick_;

  Mutex mu_;
  CondVar tick_cv_;
  BootTime wake_ ABSL_GUARDED_BY(mu_) = BootTime::Infinite();  // the earliest time at which a disk has to look at what waits
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, std::shared_ptr<Disk>> by_name_ ABSL_GUARDED_BY(mu_);
  std::map<DiskId, std::shared_ptr<Disk>> by_id_ ABSL_GUARDED_BY(mu_);
  const DiskHost host_;
};

template <class T>
Result<T> MetaServerImpl::Call(const OpContext& ctx, Effect effect, const std::function<void(Done<T>)>& start) {
  Scheduler& scheduler = host_.env.scheduler;
  if (ctx.cancelled()) return Error(Code::kInterrupted);
  if (ctx.deadline <= scheduler.clock().Boot()) return Error(Code::kUnavailable, "the deadline had passed before the call");
  auto waiter = std::make_shared<Waiter<T>>(scheduler);
  start([waiter](Result<T> result) {
    MutexLock lock(waiter->mu);
    waiter->result = std::move(result);
    waiter->cv.SignalAll();
  });
  MutexLock lock(waiter->mu);
  while (!waiter->result) {
    if (ctx.cancelled()) return Error(Code::kInterrupted);
    BootTime until = ctx.deadline;
    if (ctx.cancel != nullptr) until = std::min(until, scheduler.clock().Boot() + kCancelPoll);
    waiter->cv.WaitUntil(waiter->mu, until);
    if (!waiter->result && scheduler.clock().Boot() >= ctx.deadline) {
      return Error(effect == Effect::kChange ? Code::kUnknown : Code::kUnavailable, "no answer from the metadata server in time");
    }
  }
  return std::move(*waiter->result);
}

Result<std::shared_ptr<Disk>> MetaServerImpl::ByName(const std::string& name) {
  MutexLock lock(mu_);
  if (stopping_) return Error(Code::kUnavailable, "the server is stopping");
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return Error(Code::kNoSuchDisk, fmt::format("there is no disk named {}", name.substr(0, 64)));
  return it->second;
}

Result<std::shared_ptr<Disk>> MetaServerImpl::BySession(SessionId session) {
  MutexLock lock(mu_);
  if (stopping_) return Error(Code::kUnavailable, "the server is stopping");
  const auto it = by_id_.find(DiskId{session.value >> 32});
  if (it == by_id_.end()) return Error(Code::kFenced, fmt::format("session {:x} is not known here, or its disk was deleted", session.value));
  return it->second;
}

std::vector<std::shared_ptr<Disk>> MetaServerImpl::Disks() {
  MutexLock lock(mu_);
  std::vector<std::shared_ptr<Disk>> out;
  for (const auto& [name, disk] : by_name_) out.push_back(disk);
  return out;
}

Result<DiskId> MetaServerImpl::NewDiskId() {
  for (;;) {
    ARCHIL_ASSIGN_OR_RETURN(auto entry, coord_->Get(kNextIdKey));
    uint64_t id = 1;
    if (entry) {
      ARCHIL_ASSIGN_OR_RETURN(id, ParseNumber(entry->value, 10));
    }
    CoordTxn txn;
    txn.compares.push_back({kNextIdKey, entry ? entry->version : 0});
    txn.puts.emplace_back(kNextIdKey, fmt::format("{}", id + 1));
    const Status s = coord_->Commit(txn);
    if (s.ok()) return DiskId{id};
    if (s.code() != Code::kBusy) return s.error();
  }
}

// The disk exists once its name does; whatever a crash leaves before that is removed at the next start.
Result<DiskInfo> MetaServerImpl::CreateDisk(const OpContext& ctx, const std::string& name, uint64_t quota_bytes) {
  if (!IsDiskName(name)) return Error(Code::kInvalid, "a disk's name is 1 to 63 of a-z 0-9 . _ - and starts with a letter or digit");
  if (const auto existing = ByName(name); existing.ok()) return Error(Code::kExists, fmt::format("disk {} exists already", name));
  ARCHIL_ASSIGN_OR_RETURN(const DiskId id, NewDiskId());
  CoordTxn intent;
  intent.puts.emplace_back(DeletedKey(id), name);
  ARCHIL_RETURN_IF_ERROR(coord_->Commit(intent));
  auto disk = std::make_shared<Disk>(host_, id, name);
  Status s = disk->Start(DiskCreatedRecord{id, name, ToTimestamp(host_.env.scheduler.clock().Wall()), quota_bytes});
  if (s.ok()) {
    CoordTxn born;
    born.compares.push_back({kNamePrefix + name, 0});
    born.puts.emplace_back(kNamePrefix + name, fmt::format("{}", id.value));
    born.deletes.push_back(DeletedKey(id));
    s = coord_->Commit(born);
    if (s.code() == Code::kBusy) s = Error(Code::kExists, fmt::format("disk {} exists already", name));
  }
  if (!s.ok()) {
    disk->Stop();
    if (BandOf(s.code()) != Band::kUnknown && BandOf(s.code()) != Band::kBroken) (void)RemoveDiskFiles(id);
    return s.error();
  }
  {
    MutexLock lock(mu_);
    by_name_[name] = disk;
    by_id_[id] = disk;
  }
  return Call<DiskInfo>(ctx, Effect::kChange, [&](auto done) { disk->Info(done); });
}

Result<std::vector<DiskInfo>> MetaServerImpl::ListDisks(const OpContext& ctx) {
  std::vector<DiskInfo> out;
  for (const auto& disk : Disks()) {
    auto info = Call<DiskInfo>(ctx, Effect::kNone, [&](auto done) { disk->Info(done); });
    if (info.ok()) {
      out.push_back(std::move(*info));
    } else if (info.code() != Code::kNoSuchDisk) {
      // It exists, even if nothing can be told about it now; `show` names the reason.
      DiskInfo bare;
      bare.id = disk->id();
      bare.name = disk->name();
      out.push_back(std::move(bare));
    }
  }
  return out;
}

// The name goes at once and for good; the rest is removed now or, if something cannot be reached, at a later start.
Status MetaServerImpl::DeleteDisk(const OpContext& ctx, const std::string& name, bool force) {
  ARCHIL_ASSIGN_OR_RETURN(auto disk, ByName(name));
  const auto prepared = Call<bool>(ctx, Effect::kChange, [&](auto done) { disk->PrepareDelete(force, done); });
  const bool unusable = prepared.code() == Code::kCorrupt;
  if (!prepared.ok() && !(force && unusable)) return prepared.error();
  CoordTxn txn;
  txn.deletes.push_back(kNamePrefix + name);
  txn.puts.emplace_back(DeletedKey(disk->id()), name);
  if (const Status s = coord_->Commit(txn); !s.ok()) {
    disk->CancelDelete();
    return s;
  }
  {
    MutexLock lock(mu_);
    by_name_.erase(name);
    by_id_.erase(disk->id());
  }
  disk->Stop();
  (void)RemoveDiskFiles(disk->id());
  return Ok();
}

Status MetaServerImpl::RemoveDiskFiles(DiskId id) {
  ARCHIL_RETURN_IF_ERROR(host_.env.files.RemoveTree(DiskDir(host_.config, id)));
  for (const DataServerInfo& server : host_.env.data.All()) {
    DataService* data = host_.env.data.ById(server.id);
    if (data == nullptr) return Error(Code::kUnavailable);
    OpContext ctx;
    ctx.deadline = host_.Now() + kDataCall;
    ARCHIL_ASSIGN_OR_RETURN(const auto segments, data->List(ctx, id));
    for (const SegmentInfo& s : segments) ARCHIL_RETURN_IF_ERROR(data->Delete(ctx, s.key));
  }
  CoordTxn txn;
  txn.deletes.push_back(ManifestStore::KeyOf(id));
  txn.deletes.push_back(DeletedKey(id));
  return coord_->Commit(txn);
}

Status MetaServerImpl::FinishDeletions() {
  ARCHIL_ASSIGN_OR_RETURN(const auto entries, coord_->List(kDeletedPrefix));
  for (const CoordEntry& entry : entries) {
    ARCHIL_ASSIGN_OR_RETURN(const uint64_t id, ParseNumber(std::string_view(entry.key).substr(sizeof(kDeletedPrefix) - 1), 16));
    if (const Status s = RemoveDiskFiles(DiskId{id}); !s.ok()) {
      LogWarning("meta.deleted_disk_kept", {{"disk", entry.value}, {"error", s.error().ToString()}});
    }
  }
  return Ok();
}

void MetaServerImpl::WakeAt(BootTime at) {
  MutexLock lock(mu_);
  if (at >= wake_) return;
  wake_ = at;
  tick_cv_.SignalAll();
}

void MetaServerImpl::TickLoop() {
  const absl::Duration period = std::clamp(host_.config.flush_interval / 2, absl::Milliseconds(10), kTick);
  BootTime next_tick = host_.Now() + period;
  for (;;) {
    {
      MutexLock lock(mu_);
      while (!stopping_ && host_.Now() < std::min(next_tick, wake_)) tick_cv_.WaitUntil(mu_, std::min(next_tick, wake_));
      if (stopping_) return;
      wake_ = BootTime::Infinite();
    }
    const BootTime now = host_.Now();
    const std::vector<std::shared_ptr<Disk>> disks = Disks();
    for (const auto& disk : disks) WakeAt(disk->LookIfDue(now));
    if (now < next_tick) continue;
    next_tick = now + period;
    for (const auto& disk : disks) disk->Tick();
  }
}

void MetaServerImpl::Stop() {
  std::vector<std::shared_ptr<Disk>> disks;
  {
    MutexLock lock(mu_);
    if (stopping_) return;
    stopping_ = true;
    tick_cv_.SignalAll();
    for (const auto& [name, disk] : by_name_) disks.push_back(disk);
  }
  if (tick_ != nullptr) tick_->Join();
  for (const auto& disk : disks) disk->Stop();
  blocking_.Stop();
  background_.Stop();
  log_pool_.Stop();
  strands_.Stop();
}

std::map<std::string, uint64_t> MetaServerImpl::Metrics() {
  std::map<std::string, uint64_t> out = metrics_.Snapshot();
  out["meta_disks"] = Disks().size();
  return out;
}

Result<uint64_t> MetaServerImpl::CollectGarbage(const OpContext& ctx) {
  uint64_t sum = 0;
  for (const auto& disk : Disks()) {
    ARCHIL_ASSIGN_OR_RETURN(const uint64_t n, Call<uint64_t>(ctx, Effect::kChange, [&](auto done) { disk->CollectGarbage(done); }));
    sum += n;
  }
  return sum;
}

}  // namespace

Result<std::unique_ptr<MetaServer>> MetaServer::Open(const MetaServerEnv& env, const MetaServerConfig& config) {
  ARCHIL_RETURN_IF_ERROR(env.files.MakeDirs(config.dir));
  ARCHIL_ASSIGN_OR_RETURN(auto coord, OpenLocalCoordination(env.scheduler, env.files, JoinPath(config.dir, "coordination")));
  auto server = std::make_unique<MetaServerImpl>(env, config, std::move(coord));
  ARCHIL_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<MetaServer>(std::move(server));
}

}  // namespace archil
