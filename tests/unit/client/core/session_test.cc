// Leases (LSE-1), resume, fencing, ranges and segments of Session, against a scripted server and a virtual clock.
#include "client/session/session.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/virtual_scheduler.h"

namespace archil {
namespace {

constexpr absl::Duration kLease = absl::Seconds(15);

// Answers sessions' calls as the test says; everything about files is refused.
class ScriptedMeta final : public MetaService {
 public:
  explicit ScriptedMeta(VirtualScheduler& scheduler) : scheduler_(scheduler) {}

  void Answer(Code code, absl::Duration delay = absl::ZeroDuration()) {
    std::lock_guard<std::mutex> lock(mu_);
    code_ = code;
    delay_ = delay;
  }
  // Waits until the session has renewed (or tried to) `n` times in all.
  void AwaitRenewals(int n) {
    std::unique_lock<std::mutex> lock(mu_);
    cv_.wait(lock, [&] { return renewals_ >= n; });
  }
  int renewals() {
    std::lock_guard<std::mutex> lock(mu_);
    return renewals_;
  }
  std::vector<SegmentId> released;

  Result<OpenSessionReply> OpenSession(const OpContext&, const OpenSessionRequest& request) override {
    OpenSessionReply reply;
    reply.session = SessionId{7};
    reply.lease = kLease;
    reply.inodes = {InodeId{100}, 3};
    reply.server_time = scheduler_.clock().Wall() + absl::Seconds(5);
    return reply;
  }
  Result<RenewReply> Renew(const OpContext&, SessionId, SessionKey, uint64_t) override {
    absl::Duration delay;
    Code code;
    {
      std::lock_guard<std::mutex> lock(mu_);
      delay = delay_;
      code = code_;
    }
    if (delay > absl::ZeroDuration()) scheduler_.Advance(delay);
    std::lock_guard<std::mutex> lock(mu_);
    ++renewals_;
    cv_.notify_all();
    if (code != Code::kOk) return Error(code, "scripted");
    RenewReply reply;
    reply.lease = kLease;
    return reply;
  }
  Status CloseSession(const OpContext&, SessionId, SessionKey) override { return Ok(); }
  Result<ApplyOpReply> ApplyOp(const OpContext&, const ApplyOpRequest&) override { return Code::kNotImplemented; }
  Result<ReadOnceReply> ReadOnce(const OpContext&, const ReadOnceRequest&) override { return Code::kNotImplemented; }
  Result<InodeRange> AllocateInodes(const OpContext&, SessionId, SessionKey) override {
    return InodeRange{InodeId{1000}, 100000};
  }
  Result<std::vector<SegmentGrant>> AllocateSegments(const OpContext&, SessionId, SessionKey, uint32_t count) override {
    std::vector<SegmentGrant> grants;
    for (uint32_t i = 0; i < count; ++i) grants.push_back({SegmentId{++segments_}, 1, {}});
    return grants;
  }
  Status ReleaseSegments(const OpContext&, SessionId, SessionKey, const std::vector<SegmentId>& segments) override {
    released.insert(released.end(), segments.begin(), segments.end());
    return Ok();
  }

  Result<DiskInfo> CreateDisk(const OpContext&, const std::string&, uint64_t) override { return Code::kNotSupported; }
  Result<std::vector<DiskInfo>> ListDisks(const OpContext&) override { return Code::kNotSupported; }
  Result<DiskInfo> ShowDisk(const OpContext&, const std::string&) override { return Code::kNotSupported; }
  Status DeleteDisk(const OpContext&, const std::string&, bool) override { return Code::kNotSupported; }
  Result<AcquireReply> Acquire(const OpContext&, const AcquireRequest&) override { return Code::kNotSupported; }
  // There is never anything to tell.
  Result<PollReply> Poll(const OpContext& ctx, SessionId, SessionKey, uint64_t) override {
    while (!ctx.cancelled()) std::this_thread::yield();
    return PollReply{};
  }
  Status AnswerRecall(const OpContext&, SessionId, SessionKey, const RecallAnswer&) override { return Code::kNotSupported; }
  Status GiveBack(const OpContext&, SessionId, SessionKey, const std::vector<InodeId>&, const std::vector<InodeId>&) override {
    return Code::kNotSupported;
  }
  Result<ReclaimReply> Reclaim(const OpContext&, const ReclaimRequest&) override { return Code::kNotSupported; }
  Result<uint64_t> Checkout(const OpContext&, const CheckoutRequest&) override { return Code::kNotSupported; }
  Result<Credit> ReserveSpace(const OpContext&, const ReserveSpaceRequest&) override { return Code::kNotSupported; }
  Status Settle(const OpContext&, const SettleRequest&) override { return Code::kNotSupported; }
  Result<LockOutcome> SetLock(const OpContext&, const SetLockRequest&) override { return Code::kNotSupported; }
  Result<bool> CancelLock(const OpContext&, SessionId, SessionKey, uint64_t) override { return Code::kNotSupported; }
  Result<std::optional<FileLock>> TestLock(const OpContext&, SessionId, SessionKey, const FileLock&) override {
    return Code::kNotSupported;
  }
  Result<std::vector<RightInfo>> ListRights(const OpContext&, const std::string&, uint32_t) override { return Code::kNotSupported; }
  Status Revoke(const OpContext&, const std::string&, SessionId, InodeId) override { return Code::kNotSupported; }
  Result<CommitReply> Commit(const OpContext&, const CommitRequest&) override { return Code::kNotSupported; }
  Result<InodeInfo> GetInode(const OpContext&, SessionId, InodeId) override { return Code::kNotSupported; }
  Result<InodeInfo> Lookup(const OpContext&, SessionId, InodeId, const std::string&) override { return Code::kNotSupported; }
  Result<DirPage> ReadDir(const OpContext&, SessionId, InodeId, const std::string&, uint32_t) override {
    return Code::kNotSupported;
  }
  Result<std::vector<ChunkExtents>> GetExtents(const OpContext&, SessionId, InodeId, uint64_t, uint32_t) override {
    return Code::kNotSupported;
  }
  Result<std::map<std::string, std::string>> GetXattrs(const OpContext&, SessionId, InodeId) override {
    return Code::kNotSupported;
  }
  Result<std::vector<DataServerInfo>> LocateSegment(const OpContext&, SessionId, SegmentId) override {
    return Code::kNotSupported;
  }
  Result<FsStats> StatFs(const OpContext&, SessionId) override { return Code::kNotSupported; }

 private:
  VirtualScheduler& scheduler_;
  std::mutex mu_;
  std::condition_variable cv_;
  Code code_ = Code::kOk;
  absl::Duration delay_;
  int renewals_ = 0;
  uint64_t segments_ = 0;
};

class NoData final : public DataServicePool {
 public:
  DataService& For(const DataServerInfo&) override { std::abort(); }
};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : meta_(scheduler_), session_(MountEnv{scheduler_, *random_, meta_, data_}, MountConfig{}) {}
  ~SessionTest() override { session_.Stop(); }

  void Start() {
    ASSERT_TRUE(session_.Open(OpContext{}).ok());
    Session::Events events;
    events.on_change = [this](Session::State state) {
      std::lock_guard<std::mutex> lock(mu_);
      states_.push_back(state);
      cv_.notify_all();
    };
    session_.Start(std::move(events));
  }
  void Await(Session::State state) {
    std::unique_lock<std::mutex> lock(mu_);
    cv_.wait(lock, [&] { return !states_.empty() && states_.back() == state; });
  }

  VirtualScheduler scheduler_;
  std::unique_ptr<Random> random_ = SeededRandom(1);
  ScriptedMeta meta_;
  NoData data_;
  Session session_;
  std::mutex mu_;
  std::condition_variable cv_;
  std::vector<Session::State> states_;
};

TEST_F(SessionTest, LeaseEndsWithoutAnswers_LSE1) {
  Start();
  EXPECT_TRUE(session_.Usable());
  meta_.Answer(Code::kUnavailable);
  scheduler_.AdvanceAsleep(1, kLease / 3);
  meta_.AwaitRenewals(1);
  Await(Session::State::kReconnecting);
  EXPECT_TRUE(session_.Usable()) << "the lease is still good";
  scheduler_.Advance(kLease * 2 / 3 - absl::Nanoseconds(1));
  EXPECT_TRUE(session_.Usable());
  scheduler_.Advance(absl::Nanoseconds(1));
  EXPECT_FALSE(session_.Usable()) << "usable at the very end of the lease";
  scheduler_.AdvanceAsleep(1, absl::Seconds(1));
  Await(Session::State::kWaiting);
}

TEST_F(SessionTest, LeaseIsCountedFromSending_LSE1) {
  Start();
  // The answer takes 4 s: the server counts from its receipt, the client must not count from the answer.
  meta_.Answer(Code::kOk, absl::Seconds(4));
  const BootTime before = scheduler_.now();
  scheduler_.AdvanceAsleep(1, kLease / 3);
  meta_.AwaitRenewals(1);
  meta_.Answer(Code::kUnavailable);
  while (session_.renewals() < 1) std::this_thread::yield();
  EXPECT_EQ(session_.lease_left(), before + kLease / 3 + kLease - scheduler_.now());
}

TEST_F(SessionTest, ComesBackAfterTheLeaseRanOut) {
  Start();
  meta_.Answer(Code::kUnavailable);
  scheduler_.AdvanceAsleep(1, kLease + absl::Seconds(1));
  Await(Session::State::kWaiting);
  EXPECT_FALSE(session_.Usable());
  meta_.Answer(Code::kOk);
  scheduler_.AdvanceAsleep(1, absl::Seconds(1));
  Await(Session::State::kActive);
  EXPECT_TRUE(session_.Usable());
}

TEST_F(SessionTest, FencedIsForGood) {
  Start();
  meta_.Answer(Code::kFenced);
  scheduler_.AdvanceAsleep(1, kLease / 3);
  Await(Session::State::kFenced);
  EXPECT_FALSE(session_.Usable());
  const int tries = meta_.renewals();
  meta_.Answer(Code::kOk);
  scheduler_.Advance(kLease);
  EXPECT_EQ(session_.state(), Session::State::kFenced);
  EXPECT_EQ(meta_.renewals(), tries) << "a fenced session asked again";
}

TEST_F(SessionTest, NumbersComeFromTheRangeAndRunOut) {
  Start();
  EXPECT_EQ(session_.NextInode().value(), InodeId{100});
  // Below the low mark another range is fetched by the heartbeat thread, without waiting for the next beat.
  while (true) {
    const auto next = session_.NextInode();
    if (next.ok() && *next == InodeId{1000}) break;
    if (!next.ok()) {
      EXPECT_EQ(next.code(), Code::kTryAgain);
      ASSERT_TRUE(session_.RefillInodes(OpContext{}).ok());
    }
  }
}

TEST_F(SessionTest, ReleasedSegmentsAreToldAtClose) {
  Start();
  const auto first = session_.TakeSegment(OpContext{});
  const auto second = session_.TakeSegment(OpContext{});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->segment, second->segment);
  session_.ReleaseSegment(first->segment);
  session_.Stop();
  EXPECT_TRUE(session_.Close(OpContext{}).ok());
  EXPECT_EQ(meta_.released, std::vector<SegmentId>{first->segment});
  EXPECT_FALSE(session_.Usable());
}

}  // namespace
}  // namespace archil
