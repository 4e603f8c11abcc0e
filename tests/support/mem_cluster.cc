#include "tests/support/mem_cluster.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/check.h"

namespace archil::test {

// What of a key-value store survives: the content at the last Flush, or at a crash perhaps all of it.
struct MemCluster::KvDisk {
  explicit KvDisk(Scheduler& scheduler) : mu(scheduler) {}
  Mutex mu;
  std::map<std::string, std::string> durable;
  KvStore* open = nullptr;

  static std::map<std::string, std::string> ContentOf(KvView& view) {
    std::map<std::string, std::string> out;
    const Status status = view.Scan("", "", [&](std::string_view key, std::string_view value) {
      out.emplace(key, value);
      return true;
    });
    ARCHIL_CHECK(status.ok());
    return out;
  }
};

class MemCluster::CrashKv : public KvStore {
 public:
  explicit CrashKv(std::shared_ptr<KvDisk> disk) : disk_(std::move(disk)), kv_(NewMemKvStore()) {
    KvBatch batch;
    MutexLock lock(disk_->mu);
    for (const auto& [key, value] : disk_->durable) batch.entries.push_back({key, value});
    ARCHIL_CHECK(kv_->Write(batch).ok());
    disk_->open = kv_.get();
  }
  ~CrashKv() override {
    MutexLock lock(disk_->mu);
    if (disk_->open == kv_.get()) disk_->open = nullptr;
  }

  Result<std::optional<std::string>> Get(std::string_view key) override { return kv_->Get(key); }
  Status Scan(std::string_view begin, std::string_view end,
              const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return kv_->Scan(begin, end, fn);
  }
  Status Write(const KvBatch& batch) override { return kv_->Write(batch); }
  std::unique_ptr<KvView> Snapshot() override { return kv_->Snapshot(); }
  Status Flush() override {
    ARCHIL_RETURN_IF_ERROR(kv_->Flush());
    auto content = KvDisk::ContentOf(*kv_);
    MutexLock lock(disk_->mu);
    // A store that its machine has given up changes nothing any more.
    if (disk_->open == kv_.get()) disk_->durable = std::move(content);
    return Ok();
  }
  uint64_t UnflushedBytes() override { return kv_->UnflushedBytes(); }

 private:
  std::shared_ptr<KvDisk> disk_;  // owners: the machine and the store open on it
  std::unique_ptr<KvStore> kv_;
};

// A connection to one data server. Its server may be replaced, or it is cut for good.
class MemCluster::DataLink : public DataService {
 public:
  DataLink(Scheduler& scheduler, MemCluster* lossy) : lossy_(lossy), mu_(scheduler) {}  // null: loses nothing

  void Set(std::shared_ptr<DataServer> server) {
    MutexLock lock(mu_);
    server_ = std::move(server);
    ++life_;
  }

  Status Append(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset, const Buffer& bytes,
                uint64_t checksum) override {
    return Forward(true, [&](DataService& s) { return s.Append(ctx, key, token, offset, bytes, checksum); });
  }
  Result<Buffer> Read(const OpContext& ctx, SegmentKey key, uint64_t offset, uint64_t length) override {
    return Forward(false, [&](DataService& s) { return s.Read(ctx, key, offset, length); });
  }
  Result<SegmentInfo> Fence(const OpContext& ctx, SegmentKey key, uint64_t token) override {
    return Forward(true, [&](DataService& s) { return s.Fence(ctx, key, token); });
  }
  Result<SegmentInfo> Seal(const OpContext& ctx, SegmentKey key, uint64_t token) override {
    return Forward(true, [&](DataService& s) { return s.Seal(ctx, key, token); });
  }
  Result<SegmentInfo> Stat(const OpContext& ctx, SegmentKey key) override {
    return Forward(false, [&](DataService& s) { return s.Stat(ctx, key); });
  }
  Status Delete(const OpContext& ctx, SegmentKey key) override {
    return Forward(true, [&](DataService& s) { return s.Delete(ctx, key); });
  }
  Result<std::vector<SegmentInfo>> List(const OpContext& ctx, DiskId disk) override {
    return Forward(false, [&](DataService& s) { return s.List(ctx, disk); });
  }

 private:
  template <class F>
  auto Forward(bool changes, F call) -> decltype(call(std::declval<DataService&>())) {
    const auto [server, life] = Get();
    if (server == nullptr || (lossy_ != nullptr && lossy_->Lose())) return Code::kUnavailable;
    auto result = call(*server);
    if (Get().second == life && !(lossy_ != nullptr && lossy_->Lose())) return result;
    return changes ? Code::kUnknown : Code::kUnavailable;
  }
  std::pair<std::shared_ptr<DataServer>, uint64_t> Get() {
    MutexLock lock(mu_);
    return {server_, life_};
  }

  MemCluster* const lossy_;
  Mutex mu_;
  std::shared_ptr<DataServer> server_ ABSL_GUARDED_BY(mu_);  // owners: the machine and calls that run
  uint64_t life_ ABSL_GUARDED_BY(mu_) = 0;
};

class MemCluster::MetaLink : public MetaService {
 public:
  explicit MetaLink(MemCluster* lossy) : lossy_(lossy), mu_(*lossy->options_.scheduler) {}

  void Set(std::shared_ptr<MetaServer> server) {
    MutexLock lock(mu_);
    server_ = std::move(server);
    ++life_;
  }

  Result<DiskInfo> CreateDisk(const OpContext& ctx, const std::string& name, uint64_t quota_bytes) override {
    return Forward(kSafe, [&](MetaService& s) { return s.CreateDisk(ctx, name, quota_bytes); });
  }
  Result<std::vector<DiskInfo>> ListDisks(const OpContext& ctx) override {
    return Forward(kSafe, [&](MetaService& s) { return s.ListDisks(ctx); });
  }
  Result<DiskInfo> ShowDisk(const OpContext& ctx, const std::string& name) override {
    return Forward(kSafe, [&](MetaService& s) { return s.ShowDisk(ctx, name); });
  }
  Status DeleteDisk(const OpContext& ctx, const std::string& name, bool force) override {
    return Forward(kSafe, [&](MetaService& s) { return s.DeleteDisk(ctx, name, force); });
  }
  Result<OpenSessionReply> OpenSession(const OpContext& ctx, const OpenSessionRequest& request) override {
    return Forward(kSafe, [&](MetaService& s) { return s.OpenSession(ctx, request); });
  }
  Result<RenewReply> Renew(const OpContext& ctx, SessionId session, SessionKey key, uint64_t progress) override {
    return Forward(kRead, [&](MetaService& s) { return s.Renew(ctx, session, key, progress); });
  }
  Status CloseSession(const OpContext& ctx, SessionId session, SessionKey key) override {
    return Forward(kSafe, [&](MetaService& s) { return s.CloseSession(ctx, session, key); });
  }
  Result<AcquireReply> Acquire(const OpContext& ctx, const AcquireRequest& request) override {
    return Forward(kChange, [&](MetaService& s) { return s.Acquire(ctx, request); });
  }
  Result<PollReply> Poll(const OpContext& ctx, SessionId session, SessionKey key, uint64_t after) override {
    return Forward(kRead, [&](MetaService& s) { return s.Poll(ctx, session, key, after); });
  }
  Status AnswerRecall(const OpContext& ctx, SessionId session, SessionKey key, const RecallAnswer& answer) override {
    return Forward(kChange, [&](MetaService& s) { return s.AnswerRecall(ctx, session, key, answer); });
  }
  Status GiveBack(const OpContext& ctx, SessionId session, SessionKey key, const std::vector<InodeId>& inodes,
                  const std::vector<InodeId>& opens) override {
    return Forward(kChange, [&](MetaService& s) { return s.GiveBack(ctx, session, key, inodes, opens); });
  }
  Result<ReclaimReply> Reclaim(const OpContext& ctx, const ReclaimRequest& request) override {
    return Forward(kChange, [&](MetaService& s) { return s.Reclaim(ctx, request); });
  }
  Result<uint64_t> Checkout(const OpContext& ctx, const CheckoutRequest& request) override {
    return Forward(kChange, [&](MetaService& s) { return s.Checkout(ctx, request); });
  }
  Result<Credit> ReserveSpace(const OpContext& ctx, const ReserveSpaceRequest& request) override {
    return Forward(kChange, [&](MetaService& s) { return s.ReserveSpace(ctx, request); });
  }
  Status Settle(const OpContext& ctx, const SettleRequest& request) override {
    return Forward(kChange, [&](MetaService& s) { return s.Settle(ctx, request); });
  }
  Result<LockOutcome> SetLock(const OpContext& ctx, const SetLockRequest& request) override {
    return Forward(kChange, [&](MetaService& s) { return s.SetLock(ctx, request); });
  }
  Result<bool> CancelLock(const OpContext& ctx, SessionId session, SessionKey key, uint64_t id) override {
    return Forward(kChange, [&](MetaService& s) { return s.CancelLock(ctx, session, key, id); });
  }
  Result<std::optional<FileLock>> TestLock(const OpContext& ctx, SessionId session, SessionKey key, const FileLock& lock) override {
    return Forward(kSafe, [&](MetaService& s) { return s.TestLock(ctx, session, key, lock); });
  }
  Result<std::vector<RightInfo>> ListRights(const OpContext& ctx, const std::string& disk, uint32_t limit) override {
    return Forward(kSafe, [&](MetaService& s) { return s.ListRights(ctx, disk, limit); });
  }
  Status Revoke(const OpContext& ctx, const std::string& disk, SessionId session, InodeId ino) override {
    return Forward(kSafe, [&](MetaService& s) { return s.Revoke(ctx, disk, session, ino); });
  }
  Result<CommitReply> Commit(const OpContext& ctx, const CommitRequest& request) override {
    return Forward(kChange, [&](MetaService& s) { return s.Commit(ctx, request); });
  }
  Result<ApplyOpReply> ApplyOp(const OpContext& ctx, const ApplyOpRequest& request) override {
    return Forward(kChange, [&](MetaService& s) { return s.ApplyOp(ctx, request); });
  }
  Result<ReadOnceReply> ReadOnce(const OpContext& ctx, const ReadOnceRequest& request) override {
    return Forward(kRead, [&](MetaService& s) { return s.ReadOnce(ctx, request); });
  }
  Result<InodeRange> AllocateInodes(const OpContext& ctx, SessionId session, SessionKey key) override {
    return Forward(kChange, [&](MetaService& s) { return s.AllocateInodes(ctx, session, key); });
  }
  Result<std::vector<SegmentGrant>> AllocateSegments(const OpContext& ctx, SessionId session, SessionKey key,
                                                     uint32_t count) override {
    return Forward(kChange, [&](MetaService& s) { return s.AllocateSegments(ctx, session, key, count); });
  }
  Status ReleaseSegments(const OpContext& ctx, SessionId session, SessionKey key,
                         const std::vector<SegmentId>& segments) override {
    return Forward(kChange, [&](MetaService& s) { return s.ReleaseSegments(ctx, session, key, segments); });
  }
  Result<InodeInfo> GetInode(const OpContext& ctx, SessionId session, InodeId ino) override {
    return Forward(kRead, [&](MetaService& s) { return s.GetInode(ctx, session, ino); });
  }
  Result<InodeInfo> Lookup(const OpContext& ctx, SessionId session, InodeId parent, const std::string& name) override {
    return Forward(kRead, [&](MetaService& s) { return s.Lookup(ctx, session, parent, name); });
  }
  Result<DirPage> ReadDir(const OpContext& ctx, SessionId session, InodeId ino, const std::string& after,
                          uint32_t limit) override {
    return Forward(kRead, [&](MetaService& s) { return s.ReadDir(ctx, session, ino, after, limit); });
  }
  Result<std::vector<ChunkExtents>> GetExtents(const OpContext& ctx, SessionId session, InodeId ino,
                                               uint64_t first_chunk, uint32_t count) override {
    return Forward(kRead, [&](MetaService& s) { return s.GetExtents(ctx, session, ino, first_chunk, count); });
  }
  Result<std::map<std::string, std::string>> GetXattrs(const OpContext& ctx, SessionId session, InodeId ino) override {
    return Forward(kRead, [&](MetaService& s) { return s.GetXattrs(ctx, session, ino); });
  }
  Result<std::vector<DataServerInfo>> LocateSegment(const OpContext& ctx, SessionId session,
                                                    SegmentId segment) override {
    return Forward(kRead, [&](MetaService& s) { return s.LocateSegment(ctx, session, segment); });
  }
  Result<FsStats> StatFs(const OpContext& ctx, SessionId session) override {
    return Forward(kRead, [&](MetaService& s) { return s.StatFs(ctx, session); });
  }

 private:
  // kSafe calls are made by people, who look at the answer; they lose nothing at random.
  enum Kind { kSafe, kRead, kChange };

  template <class F>
  auto Forward(Kind kind, F call) -> decltype(call(std::declval<MetaService&>())) {
    const auto [server, life] = Get();
    if (server == nullptr || (kind != kSafe && lossy_->Lose())) return Code::kUnavailable;
    auto result = call(*server);
    if (Get().second == life && !(kind != kSafe && lossy_->Lose())) return result;
    return kind == kRead ? Code::kUnavailable : Code::kUnknown;
  }
  std::pair<std::shared_ptr<MetaServer>, uint64_t> Get() {
    MutexLock lock(mu_);
    return {server_, life_};
  }

  MemCluster* const lossy_;
  Mutex mu_;
  std::shared_ptr<MetaServer> server_ ABSL_GUARDED_BY(mu_);  // owners: the cluster and calls that run
  uint64_t life_ ABSL_GUARDED_BY(mu_) = 0;
};

struct MemCluster::Machine {
  explicit Machine(MemCluster* cluster) : client_link(*cluster->options_.scheduler, cluster) {}
  MemFiles files;
  std::unique_ptr<ObjectStore> objects;
  std::shared_ptr<DataServer> server;  // null while down
  DataLink client_link;
};

class MemCluster::Pool : public DataServicePool {
 public:
  explicit Pool(MemCluster& cluster) : cluster_(cluster) {}
  DataService& For(const DataServerInfo& server) override {
    ARCHIL_CHECK(server.id >= 1 && server.id <= cluster_.machines_.size());
    return cluster_.machines_[server.id - 1]->client_link;
  }

 private:
  MemCluster& cluster_;
};

// The links of one life of the metadata server: cut with it, so that a dead process appends no more.
class MemCluster::ServerSet : public DataServerSet {
 public:
  explicit ServerSet(MemCluster& cluster) {
    for (auto& machine : cluster.machines_) {
      links_.push_back(std::make_unique<DataLink>(*cluster.options_.scheduler, nullptr));
      links_.back()->Set(machine->server);
    }
  }
  std::vector<DataServerInfo> All() override {
    std::vector<DataServerInfo> all;
    for (size_t i = 0; i < links_.size(); ++i) all.push_back({uint32_t(i + 1), fmt::format("memory:{}", i + 1)});
    return all;
  }
  DataService* ById(uint32_t id) override { return id >= 1 && id <= links_.size() ? links_[id - 1].get() : nullptr; }
  void Set(uint32_t index, std::shared_ptr<DataServer> server) { links_[index]->Set(std::move(server)); }

 private:
  std::vector<std::unique_ptr<DataLink>> links_;
};

MemCluster::MemCluster(const MemClusterOptions& options)
    : options_(options),
      random_(SeededRandom(options.seed * 77 + 5)),
      crash_random_(SeededRandom(options.seed * 79 + 3)),
      meta_files_(std::make_unique<MemFiles>()),
      kv_mu_(*options.scheduler),
      meta_link_(std::make_unique<MetaLink>(this)),
      pool_(std::make_unique<Pool>(*this)) {
  for (uint32_t i = 0; i < options_.data_servers; ++i) machines_.push_back(std::make_unique<Machine>(this));
  if (!options_.on_disk_step) return;
  const auto step = [this](MemFiles::Call call, const std::string&) { options_.on_disk_step(call); };
  meta_files_->OnStep(step);
  for (auto& machine : machines_) machine->files.OnStep(step);
}

MemCluster::~MemCluster() { Stop(); }

MetaService& MemCluster::meta() { return *meta_link_; }
DataServicePool& MemCluster::data() { return *pool_; }
MetaServer* MemCluster::meta_server() { return meta_server_.get(); }

bool MemCluster::Lose() {
  const uint32_t rate = loss_rate_.load();
  if (rate == 0 || random_->Below(100000) >= rate) return false;
  lost_calls_++;
  return true;
}

Status MemCluster::StartData(Machine& machine, uint32_t index) {
  ARCHIL_RETURN_IF_ERROR(machine.files.MakeDirs("/data"));
  ARCHIL_ASSIGN_OR_RETURN(machine.objects, OpenLocalObjectStore(machine.files, "/objects"));
  DataServerConfig config = options_.data;
  config.dir = "/data";
  ARCHIL_ASSIGN_OR_RETURN(auto server,
                          DataServer::Open({*options_.scheduler, machine.files, *machine.objects, faults_}, config));
  machine.server = std::move(server);
  machine.client_link.Set(machine.server);
  if (server_set_ != nullptr) server_set_->Set(index, machine.server);
  return Ok();
}

Status MemCluster::StartMeta() {
  ARCHIL_RETURN_IF_ERROR(meta_files_->MakeDirs("/meta"));
  server_set_ = std::make_shared<ServerSet>(*this);
  MetaServerConfig config = options_.meta;
  config.dir = "/meta";
  const auto open_kv = [this](const std::string& dir) -> Result<std::unique_ptr<KvStore>> {
    // The content goes with its directory: a file in it tells that it was removed meanwhile.
    const std::string marker = JoinPath(dir, "kv");
    ARCHIL_ASSIGN_OR_RETURN(const bool known, meta_files_->Exists(marker));
    MutexLock lock(kv_mu_);
    auto& disk = kv_disks_[dir];
    if (disk == nullptr || !known) disk = std::make_shared<KvDisk>(*options_.scheduler);
    if (!known) ARCHIL_RETURN_IF_ERROR(WriteFileAtomically(*meta_files_, marker, "kv"));
    return std::unique_ptr<KvStore>(std::make_unique<CrashKv>(disk));
  };
  ARCHIL_ASSIGN_OR_RETURN(
      auto server, MetaServer::Open({*options_.scheduler, *random_, *meta_files_, faults_, *server_set_, open_kv}, config));
  // Calls that wait at the server hold it for a moment longer than its Stop: it is gone when the last of them has returned.
  meta_gone_ = std::make_shared<Notification>(*options_.scheduler);
  meta_server_ = std::shared_ptr<MetaServer>(server.release(), [gone = meta_gone_](MetaServer* ended) {
    delete ended;
    gone->Notify();
  });
  meta_link_->Set(meta_server_);
  return Ok();
}

Status MemCluster::Start() {
  for (uint32_t i = 0; i < machines_.size(); ++i) {
    if (machines_[i]->server == nullptr) ARCHIL_RETURN_IF_ERROR(StartData(*machines_[i], i));
  }
  if (meta_server_ == nullptr) ARCHIL_RETURN_IF_ERROR(StartMeta());
  return Ok();
}

void MemCluster::Stop() {
  if (meta_server_ != nullptr) {
    meta_link_->Set(nullptr);
    meta_server_->Stop();
    meta_server_.reset();
    meta_gone_->Wait();
    server_set_.reset();
  }
  for (auto& machine : machines_) {
    if (machine->server == nullptr) continue;
    machine->client_link.Set(nullptr);
    machine->server->Stop();
    machine->server.reset();
  }
}

void MemCluster::CrashFiles(MemFiles& files, Loss loss) {
  // The kernel outlives a process and writes everything in the end; MemFiles keeps what a 1 decides.
  struct KeepAll : Random {
    uint64_t Next() override { return 1; }
  } keep_all;
  files.Crash(loss == Loss::kPower ? *crash_random_ : keep_all);
}

void MemCluster::CrashMeta(Loss loss) {
  if (meta_server_ == nullptr) return;
  ++crashes_;
  meta_link_->Set(nullptr);
  for (uint32_t i = 0; i < machines_.size(); ++i) server_set_->Set(i, nullptr);
  meta_files_->FailAfter(0);
  CrashKvs();
  meta_server_->Stop();
  meta_server_.reset();
  meta_gone_->Wait();
  server_set_.reset();
  CrashFiles(*meta_files_, loss);
}

void MemCluster::CrashKvs() {
  MutexLock lock(kv_mu_);
  for (auto& [dir, disk] : kv_disks_) {
    MutexLock disk_lock(disk->mu);
    // The engine may have written more than was flushed, always whole batches.
    if (disk->open != nullptr && crash_random_->Below(2) == 0) disk->durable = KvDisk::ContentOf(*disk->open);
    disk->open = nullptr;
  }
}

void MemCluster::CrashData(uint32_t index, Loss loss) {
  Machine& machine = *machines_[index];
  if (machine.server == nullptr) return;
  ++crashes_;
  machine.client_link.Set(nullptr);
  if (server_set_ != nullptr) server_set_->Set(index, nullptr);
  machine.files.FailAfter(0);
  machine.server->Stop();
  machine.server.reset();
  CrashFiles(machine.files, loss);
}

void MemCluster::CrashAll(Loss loss) {
  CrashMeta(loss);
  for (uint32_t i = 0; i < machines_.size(); ++i) CrashData(i, loss);
}

}  // namespace archil::test
