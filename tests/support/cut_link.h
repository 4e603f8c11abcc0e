// CutLink: one client's way to the metadata server, which a test cuts and heals. While it is cut every call fails with kUnavailable, and
// answers that were on their way are lost: kUnknown for a change, although it may have happened. Thread safe.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/api/meta_service.h"
#include "common/env/sched.h"

namespace archil::test {

class CutLink final : public MetaService {
 public:
  explicit CutLink(MetaService& to) : to_(to) {}
  void Cut() { cut_ = true; }
  void Heal() { cut_ = false; }

  Result<DiskInfo> CreateDisk(const OpContext& ctx, const std::string& name, uint64_t quota) override {
    return Change([&] { return to_.CreateDisk(ctx, name, quota); });
  }
  Result<std::vector<DiskInfo>> ListDisks(const OpContext& ctx) override {
    return Ask([&] { return to_.ListDisks(ctx); });
  }
  Result<DiskInfo> ShowDisk(const OpContext& ctx, const std::string& name) override {
    return Ask([&] { return to_.ShowDisk(ctx, name); });
  }
  Status DeleteDisk(const OpContext& ctx, const std::string& name, bool force) override {
    return Change([&] { return to_.DeleteDisk(ctx, name, force); });
  }
  Result<OpenSessionReply> OpenSession(const OpContext& ctx, const OpenSessionRequest& request) override {
    return Change([&] { return to_.OpenSession(ctx, request); });
  }
  Result<RenewReply> Renew(const OpContext& ctx, SessionId s, SessionKey k, uint64_t progress) override {
    return Ask([&] { return to_.Renew(ctx, s, k, progress); });
  }
  Status CloseSession(const OpContext& ctx, SessionId s, SessionKey k) override {
    return Change([&] { return to_.CloseSession(ctx, s, k); });
  }
  Result<AcquireReply> Acquire(const OpContext& ctx, const AcquireRequest& request) override {
    return Change([&] { return to_.Acquire(ctx, request); });
  }
  Result<PollReply> Poll(const OpContext& ctx, SessionId s, SessionKey k, uint64_t after) override {
    return Ask([&] { return to_.Poll(ctx.WithDeadline(RealScheduler().clock().Boot() + absl::Milliseconds(100)), s, k, after); });
  }
  Status AnswerRecall(const OpContext& ctx, SessionId s, SessionKey k, const RecallAnswer& answer) override {
    return Change([&] { return to_.AnswerRecall(ctx, s, k, answer); });
  }
  Status GiveBack(const OpContext& ctx, SessionId s, SessionKey k, const std::vector<InodeId>& inodes, const std::vector<InodeId>& opens) override {
    return Change([&] { return to_.GiveBack(ctx, s, k, inodes, opens); });
  }
  Result<ReclaimReply> Reclaim(const OpContext& ctx, const ReclaimRequest& request) override {
    return Change([&] { return to_.Reclaim(ctx, request); });
  }
  Result<uint64_t> Checkout(const OpContext& ctx, const CheckoutRequest& request) override {
    return Change([&] { return to_.Checkout(ctx, request); });
  }
  Result<Credit> ReserveSpace(const OpContext& ctx, const ReserveSpaceRequest& request) override {
    return Change([&] { return to_.ReserveSpace(ctx, request); });
  }
  Status Settle(const OpContext& ctx, const SettleRequest& request) override {
    return Change([&] { return to_.Settle(ctx, request); });
  }
  Result<ApplyOpReply> ApplyOp(const OpContext& ctx, const ApplyOpRequest& request) override {
    return Change([&] { return to_.ApplyOp(ctx, request); });
  }
  Result<ReadOnceReply> ReadOnce(const OpContext& ctx, const ReadOnceRequest& request) override {
    return Ask([&] { return to_.ReadOnce(ctx, request); });
  }
  Result<LockOutcome> SetLock(const OpContext& ctx, const SetLockRequest& request) override {
    return Change([&] { return to_.SetLock(ctx, request); });
  }
  Result<bool> CancelLock(const OpContext& ctx, SessionId s, SessionKey k, uint64_t id) override {
    return Change([&] { return to_.CancelLock(ctx, s, k, id); });
  }
  Result<std::optional<FileLock>> TestLock(const OpContext& ctx, SessionId s, SessionKey k, const FileLock& lock) override {
    return Ask([&] { return to_.TestLock(ctx, s, k, lock); });
  }
  Result<std::vector<RightInfo>> ListRights(const OpContext& ctx, const std::string& disk, uint32_t limit) override {
    return Ask([&] { return to_.ListRights(ctx, disk, limit); });
  }
  Status Revoke(const OpContext& ctx, const std::string& disk, SessionId s, InodeId ino) override {
    return Change([&] { return to_.Revoke(ctx, disk, s, ino); });
  }
  Result<CommitReply> Commit(const OpContext& ctx, const CommitRequest& request) override {
    return Change([&] { return to_.Commit(ctx, request); });
  }
  Result<InodeRange> AllocateInodes(const OpContext& ctx, SessionId s, SessionKey k) override {
    return Change([&] { return to_.AllocateInodes(ctx, s, k); });
  }
  Result<std::vector<SegmentGrant>> AllocateSegments(const OpContext& ctx, SessionId s, SessionKey k, uint32_t count) override {
    return Change([&] { return to_.AllocateSegments(ctx, s, k, count); });
  }
  Status ReleaseSegments(const OpContext& ctx, SessionId s, SessionKey k, const std::vector<SegmentId>& segments) override {
    return Change([&] { return to_.ReleaseSegments(ctx, s, k, segments); });
  }
  Result<InodeInfo> GetInode(const OpContext& ctx, SessionId s, InodeId ino) override {
    return Ask([&] { return to_.GetInode(ctx, s, ino); });
  }
  Result<InodeInfo> Lookup(const OpContext& ctx, SessionId s, InodeId parent, const std::string& name) override {
    return Ask([&] { return to_.Lookup(ctx, s, parent, name); });
  }
  Result<DirPage> ReadDir(const OpContext& ctx, SessionId s, InodeId ino, const std::string& after, uint32_t limit) override {
    return Ask([&] { return to_.ReadDir(ctx, s, ino, after, limit); });
  }
  Result<std::vector<ChunkExtents>> GetExtents(const OpContext& ctx, SessionId s, InodeId ino, uint64_t first, uint32_t count) override {
    return Ask([&] { return to_.GetExtents(ctx, s, ino, first, count); });
  }
  Result<std::map<std::string, std::string>> GetXattrs(const OpContext& ctx, SessionId s, InodeId ino) override {
    return Ask([&] { return to_.GetXattrs(ctx, s, ino); });
  }
  Result<std::vector<DataServerInfo>> LocateSegment(const OpContext& ctx, SessionId s, SegmentId segment) override {
    return Ask([&] { return to_.LocateSegment(ctx, s, segment); });
  }
  Result<FsStats> StatFs(const OpContext& ctx, SessionId s) override {
    return Ask([&] { return to_.StatFs(ctx, s); });
  }

 private:
  template <class Fn>
  auto Through(Code lost, const Fn& fn) -> decltype(fn()) {
    if (cut_) return Error(Code::kUnavailable, "the link is cut");
    auto answer = fn();
    if (cut_) return Error(lost, "the link was cut");
    return answer;
  }
  template <class Fn>
  auto Change(const Fn& fn) -> decltype(fn()) {
    return Through(Code::kUnknown, fn);
  }
  template <class Fn>
  auto Ask(const Fn& fn) -> decltype(fn()) {
    return Through(Code::kUnavailable, fn);
  }

  MetaService& to_;
  std::atomic<bool> cut_{false};
};

}  // namespace archil::test
