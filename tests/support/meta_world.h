// MetaWorld: a metadata server on files, states and data servers in memory, that can be stopped, killed and opened again.
// What is flushed of a state survives a kill, the rest does not.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/env/faults.h"
#include "common/env/mem_files.h"
#include "common/env/random.h"
#include "common/format/op_codec.h"
#include "server/meta/meta_server.h"
#include "tests/support/mem_data_service.h"

namespace archil::test {

// What is on the disk of every state, by directory.
class StateDisks {
 public:
  Result<std::unique_ptr<KvStore>> Open(const std::string& dir);
  // Flushes fail from now on; nothing more reaches the disk.
  void Cut(bool cut) { cut_ = cut; }
  // As Cut after so many more flushes.
  void CutAfter(uint64_t flushes) { cut_at_ = this->flushes + flushes; }
  // All disks are lost.
  void Forget();
  std::atomic<uint64_t> flushes{0};  // that reached the disk or failed

 private:
  class Store;
  using Content = std::map<std::string, std::string>;
  absl::Mutex mu_;
  std::map<std::string, Content> disks_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> cut_{false};
  std::atomic<uint64_t> cut_at_{UINT64_MAX};
};

class MetaWorld {
 public:
  explicit MetaWorld(uint32_t data_servers = 1, Scheduler& scheduler = RealScheduler());
  ~MetaWorld();

  Status Start();
  void Stop();
  // As SIGKILL: nothing that is not durable survives.
  void Kill();
  MetaServer& meta() { return *server_; }
  uint64_t Metric(const std::string& name) { return server_->Metrics()[name]; }

  MetaServerConfig config;
  MemFiles files;
  MemDataServers data;
  StateDisks states;
  Faults faults;
  std::unique_ptr<Random> random = SeededRandom(7);
  // Put around each state that is opened, if set.
  std::function<std::unique_ptr<KvStore>(std::unique_ptr<KvStore>)> wrap_state;

 private:
  Scheduler& scheduler_;
  std::unique_ptr<MetaServer> server_;
};

// A client's side of one session, as tests need it: sequence numbers, inode numbers, commits of a few ops.
class TestSession {
 public:
  TestSession(MetaService& meta, OpenSessionReply reply, SessionKey key) : meta_(&meta), reply_(std::move(reply)), key_(key), next_ino_(reply_.inodes.first.value) {}
  // A session on `disk`, which must open.
  static Result<TestSession> Open(MetaService& meta, const std::string& disk, SessionKey key = {1, 2}, const std::string& name = "test client",
                                  SessionMode mode = SessionMode::kReadWrite, absl::Duration lease = absl::Minutes(1));

  SessionId id() const { return reply_.session; }
  SessionKey key() const { return key_; }
  const OpenSessionReply& reply() const { return reply_; }
  Seq applied() const { return applied_; }
  uint64_t seen() const { return seen_; }  // newest message that GiveUpNext took
  void Use(MetaService& meta) { meta_ = &meta; }
  // Rights; with a minute to wait.
  Result<AcquireReply> Acquire(std::vector<Want> wants, uint32_t prefetch = 0, absl::Duration wait = absl::Minutes(1));
  Result<PollReply> Poll(uint64_t after = 0, absl::Duration wait = absl::Minutes(1));
  Status Answer(const RecallAnswer& answer) { return meta_->AnswerRecall(ctx, id(), key_, answer); }
  // Takes the next message and gives up what it says, keeping at most `keep`. The message.
  Result<SessionMessage> GiveUpNext(Right keep = Right::kNone, std::vector<InodeId> opens = {}, std::vector<HeldRight> keeps = {});
  // After a restart of the server, or when it opened the disk again: claims everything.
  Status Reclaim();
  Status Back(MetaService& meta) {
    Use(meta);
    return Reclaim();
  }
  void UseRange(InodeRange range) { next_ino_ = range.first.value; }
  InodeId NewIno() { return InodeId{next_ino_++}; }
  Timestamp Now() { return {4'000'000'000, ++clock_}; }

  CommitRequest Request(const std::vector<Op>& ops) const;
  // Commits with the next numbers, which move on success only.
  Result<CommitReply> Commit(const std::vector<Op>& ops);
  Result<CommitReply> Send(const CommitRequest& request);
  void Applied(Seq seq) { applied_ = seq; }

  CreateOp File(InodeId parent, const std::string& name, FileType type = FileType::kRegular);
  SetExtentsOp Inline(InodeId ino, uint64_t offset, const std::string& bytes, uint64_t size);
  SetExtentsOp InSegment(InodeId ino, uint64_t offset, uint64_t length, SegmentId segment, uint64_t at, uint64_t size);

  Result<InodeInfo> Lookup(InodeId parent, const std::string& name) { return meta_->Lookup(ctx, id(), parent, name); }
  Result<InodeInfo> Stat(InodeId ino) { return meta_->GetInode(ctx, id(), ino); }
  // The whole content as far as it is inline; segment bytes read as "S".
  Result<std::string> Content(InodeId ino);
  Result<std::vector<std::string>> Names(InodeId dir);

  OpContext ctx;

 private:
  MetaService* meta_;
  OpenSessionReply reply_;
  SessionKey key_;
  uint64_t next_ino_;
  Seq applied_;
  uint32_t clock_ = 0;
  uint64_t seen_ = 0;  // newest message
};

}  // namespace archil::test
