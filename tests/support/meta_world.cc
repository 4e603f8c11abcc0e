#include "tests/support/meta_world.h"

#include <algorithm>

#include "common/base/check.h"

namespace archil::test {

// A map in memory whose Flush copies it to the disk.
class StateDisks::Store final : public KvStore {
 public:
  Store(StateDisks& disks, std::string dir) : disks_(disks), dir_(std::move(dir)), kv_(NewMemKvStore()) {}
  Result<std::optional<std::string>> Get(std::string_view key) override { return kv_->Get(key); }
  Status Scan(std::string_view begin, std::string_view end, const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return kv_->Scan(begin, end, fn);
  }
  Status Write(const KvBatch& batch) override { return kv_->Write(batch); }
  std::unique_ptr<KvView> Snapshot() override { return kv_->Snapshot(); }
  uint64_t UnflushedBytes() override { return kv_->UnflushedBytes(); }
  Status Flush() override {
    if (disks_.flushes.fetch_add(1) >= disks_.cut_at_ || disks_.cut_) return Error(Code::kIo, "cut");
    Content content;
    ARCHIL_RETURN_IF_ERROR(kv_->Scan("", "", [&](std::string_view key, std::string_view value) {
      content[std::string(key)] = std::string(value);
      return true;
    }));
    absl::MutexLock lock(&disks_.mu_);
    disks_.disks_[dir_] = std::move(content);
    return kv_->Flush();
  }

 private:
  StateDisks& disks_;
  const std::string dir_;
  const std::unique_ptr<KvStore> kv_;
};

Result<std::unique_ptr<KvStore>> StateDisks::Open(const std::string& dir) {
  auto store = std::make_unique<Store>(*this, dir);
  KvBatch batch;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [key, value] : disks_[dir]) batch.entries.push_back({key, value});
  }
  ARCHIL_RETURN_IF_ERROR(store->Write(batch));
  return std::unique_ptr<KvStore>(std::move(store));
}

void StateDisks::Forget() {
  absl::MutexLock lock(&mu_);
  disks_.clear();
}

MetaWorld::MetaWorld(uint32_t data_servers, Scheduler& scheduler) : data(data_servers), scheduler_(scheduler) {
  config.dir = "/meta";
  config.default_lease = absl::Minutes(1);
}

MetaWorld::~MetaWorld() { Stop(); }

Status MetaWorld::Start() {
  const auto open_state = [this](const std::string& dir) -> Result<std::unique_ptr<KvStore>> {
    ARCHIL_ASSIGN_OR_RETURN(auto state, states.Open(dir));
    return wrap_state ? wrap_state(std::move(state)) : std::move(state);
  };
  MetaServerEnv env{scheduler_, *random, files, faults, data, open_state};
  ARCHIL_ASSIGN_OR_RETURN(server_, MetaServer::Open(env, config));
  return Ok();
}

void MetaWorld::Stop() {
  if (server_ != nullptr) server_->Stop();
  server_.reset();
}

void MetaWorld::Kill() {
  states.Cut(true);
  files.FailAfter(0);
  for (size_t i = 0; i < data.All().size(); ++i) data.at(i).SetDown(true);
  Stop();
  for (size_t i = 0; i < data.All().size(); ++i) data.at(i).SetDown(false);
  files.KillProcess();
  states.Cut(false);
  states.CutAfter(UINT64_MAX / 2);
}

Result<TestSession> TestSession::Open(MetaService& meta, const std::string& disk, SessionKey key, const std::string& name, SessionMode mode,
                                      absl::Duration lease) {
  OpenSessionRequest request;
  request.disk = disk;
  request.key = key;
  request.client_name = name;
  request.mode = mode;
  request.lease = lease;
  ARCHIL_ASSIGN_OR_RETURN(auto reply, meta.OpenSession({}, request));
  return TestSession(meta, std::move(reply), key);
}

Result<AcquireReply> TestSession::Acquire(std::vector<Want> wants, uint32_t prefetch, absl::Duration wait) {
  AcquireRequest request;
  request.session = id();
  request.key = key_;
  request.wants = std::move(wants);
  request.prefetch = prefetch;
  OpContext waiting;
  waiting.deadline = RealScheduler().clock().Boot() + wait;
  return meta_->Acquire(waiting, request);
}

Result<PollReply> TestSession::Poll(uint64_t after, absl::Duration wait) {
  OpContext waiting;
  waiting.deadline = RealScheduler().clock().Boot() + wait;
  return meta_->Poll(waiting, id(), key_, after);
}

Result<SessionMessage> TestSession::GiveUpNext(Right keep, std::vector<InodeId> opens, std::vector<HeldRight> keeps) {
  ARCHIL_ASSIGN_OR_RETURN(const PollReply polled, Poll(seen_));
  if (polled.messages.empty()) return Error(Code::kNotFound, "no message came");
  const SessionMessage m = polled.messages[0];
  seen_ = m.number;
  RecallAnswer answer;
  answer.message = m.number;
  answer.kept = Weaker(keep, m.keep);
  answer.last = applied_;
  answer.opens = std::move(opens);
  answer.keeps = std::move(keeps);
  ARCHIL_RETURN_IF_ERROR(Answer(answer));
  return m;
}

Status TestSession::Reclaim() {
  ReclaimRequest request;
  request.session = id();
  request.key = key_;
  request.alone = true;
  ARCHIL_RETURN_IF_ERROR(meta_->Reclaim(ctx, request));
  return Ok();
}

CommitRequest TestSession::Request(const std::vector<Op>& ops) const {
  CommitRequest r;
  r.session = id();
  r.key = key_;
  r.first = Seq{applied_.value + 1};
  r.count = ops.size();
  r.last = Seq{applied_.value + std::max<uint64_t>(ops.size(), 1)};
  r.ops = EncodeOps(ops);
  return r;
}

Result<CommitReply> TestSession::Send(const CommitRequest& request) { return meta_->Commit(ctx, request); }

Result<CommitReply> TestSession::Commit(const std::vector<Op>& ops) {
  const CommitRequest request = Request(ops);
  auto reply = Send(request);
  if (reply.ok()) applied_ = request.last;
  return reply;
}

CreateOp TestSession::File(InodeId parent, const std::string& name, FileType type) {
  CreateOp op;
  op.parent = parent;
  op.name = name;
  op.ino = NewIno();
  op.type = type;
  op.mode = 0644;
  op.uid = 1000;
  op.gid = 1000;
  if (type == FileType::kSymlink) op.target = "target";
  op.now = Now();
  return op;
}

SetExtentsOp TestSession::Inline(InodeId ino, uint64_t offset, const std::string& bytes, uint64_t size) {
  SetExtentsOp op;
  op.ino = ino;
  op.size = size;
  op.mtime = op.ctime = Now();
  Extent e;
  e.offset = offset;
  e.length = bytes.size();
  e.kind = ExtentKind::kInline;
  e.data = Buffer::Copy(bytes);
  op.extents.push_back(std::move(e));
  return op;
}

SetExtentsOp TestSession::InSegment(InodeId ino, uint64_t offset, uint64_t length, SegmentId segment, uint64_t at, uint64_t size) {
  SetExtentsOp op;
  op.ino = ino;
  op.size = size;
  op.mtime = op.ctime = Now();
  Extent e;
  e.offset = offset;
  e.length = length;
  e.segment = segment;
  e.segment_offset = at;
  op.extents.push_back(std::move(e));
  return op;
}

Result<std::string> TestSession::Content(InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(const InodeInfo info, Stat(ino));
  std::string out(info.attr.size, '\0');
  const auto chunks = static_cast<uint32_t>((info.attr.size + kChunkSize - 1) / kChunkSize);
  ARCHIL_ASSIGN_OR_RETURN(const auto all, meta_->GetExtents(ctx, id(), ino, 0, chunks));
  for (const ChunkExtents& c : all) {
    for (const Extent& e : c.extents) {
      if (e.offset >= out.size()) continue;
      const uint64_t n = std::min(e.length, out.size() - e.offset);
      if (e.kind == ExtentKind::kInline) out.replace(e.offset, n, e.data.view().substr(0, n));
      if (e.kind == ExtentKind::kSegment) out.replace(e.offset, n, std::string(n, 'S'));
    }
  }
  return out;
}

Result<std::vector<std::string>> TestSession::Names(InodeId dir) {
  std::vector<std::string> out;
  std::string after;
  for (;;) {
    ARCHIL_ASSIGN_OR_RETURN(const DirPage page, meta_->ReadDir(ctx, id(), dir, after, 100));
    for (const DirEntry& e : page.entries) out.push_back(e.name);
    if (page.complete || page.entries.empty()) return out;
    after = out.back();
  }
}

}  // namespace archil::test
