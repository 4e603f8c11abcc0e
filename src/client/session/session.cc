#include "client/session/session.h"

#include <algorithm>
#include <utility>

#include "common/env/planted.h"
#include "common/obs/log.h"

namespace archil {
namespace {

constexpr uint64_t kLowInodes = 16384;   // fetch another range below this
constexpr uint32_t kSegmentsPerCall = 2;
constexpr absl::Duration kClockNoise = absl::Milliseconds(1);
constexpr int kMessageThreads = 4;
constexpr absl::Duration kPoll = absl::Seconds(20);        // of one call that waits for messages
constexpr absl::Duration kPollPause = absl::Milliseconds(50);  // after one that failed

}  // namespace

std::string_view StateName(Session::State state) {
  switch (state) {
    case Session::State::kActive: return "active";
    case Session::State::kReconnecting: return "reconnecting";
    case Session::State::kWaiting: return "waiting";
    case Session::State::kFenced: return "fenced";
    case Session::State::kClosed: return "closed";
  }
  return "unknown";
}

Session::Session(const MountEnv& env, const MountConfig& config)
    : env_(env), config_(config), key_(config.key), mu_(env.scheduler), wake_(env.scheduler) {
  if (key_ == SessionKey{}) key_ = SessionKey{env.random.Next(), env.random.Next()};
}

Session::~Session() { Stop(); }

Status Session::Open(const OpContext& ctx) {
  OpenSessionRequest request;
  request.disk = config_.disk;
  request.branch = config_.branch;
  request.client_name = config_.client_name;
  request.mode = config_.read_only ? SessionMode::kReadOnly : SessionMode::kReadWrite;
  request.key = key_;
  request.lease = config_.lease;
  request.predecessor = config_.predecessor;
  request.predecessor_key = config_.predecessor_key;
  request.sharing = config_.sharing;
  request.force = config_.force;
  request.conditional = config_.conditional;
  const BootTime sent = env_.scheduler.clock().Boot();
  const absl::Time sent_wall = env_.scheduler.clock().Wall();
  ARCHIL_ASSIGN_OR_RETURN(reply_, env_.meta.OpenSession(ctx, request));
  const absl::Duration took = env_.scheduler.clock().Wall() - sent_wall;
  // The server read its clock somewhere on the way: what lies within that is no difference between the clocks.
  const absl::Duration offset = reply_.server_time - (sent_wall + took / 2);
  const bool same = absl::AbsDuration(offset) <= took / 2 + kClockNoise;
  MutexLock lock(mu_);
  lease_ = reply_.lease;
  lease_end_ns_.store(absl::ToInt64Nanoseconds((sent + lease_).since_boot));
  if (reply_.inodes.count > 0) ranges_.push_back(reply_.inodes);
  clock_offset_ns_.store(same ? 0 : absl::ToInt64Nanoseconds(offset));
  return Ok();
}

void Session::Start(Events events) {
  events_ = std::move(events);
  threads_.push_back(env_.scheduler.Spawn("archil-lease", [this] { HeartbeatLoop(); }));
  threads_.push_back(env_.scheduler.Spawn("archil-poll", [this] { PollLoop(); }));
  for (int i = 0; i < kMessageThreads; ++i) {
    threads_.push_back(env_.scheduler.Spawn("archil-recall", [this] { MessageLoop(); }));
  }
}

void Session::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    stop_.Cancel();
    wake_.SignalAll();
  }
  for (auto& thread : threads_) thread->Join();
  threads_.clear();
}

Status Session::Close(const OpContext& ctx) {
  if (state() == State::kFenced) return Ok();
  SendReleases(ctx);
  const Status closed = env_.meta.CloseSession(ctx, reply_.session, key_);
  MutexLock lock(mu_);
  if (state_ != State::kFenced) state_ = State::kClosed;
  lease_end_ns_.store(0);
  return closed;
}

bool Session::Usable() const {
  return absl::ToInt64Nanoseconds(env_.scheduler.clock().Boot().since_boot) <
         lease_end_ns_.load(std::memory_order_acquire);
}

BootTime Session::LeaseEnd() const { return BootTime{absl::Nanoseconds(lease_end_ns_.load(std::memory_order_acquire))}; }

Session::State Session::state() const {
  MutexLock lock(mu_);
  return state_;
}

std::string Session::detail() const {
  MutexLock lock(mu_);
  return detail_;
}

Error Session::Note(const Error& error) {
  if (error.code() == Code::kFenced) SetState(State::kFenced, std::string(error.message()));
  return error;
}

Result<InodeId> Session::NextInode() {
  MutexLock lock(mu_);
  while (!ranges_.empty() && ranges_.front().count == 0) ranges_.pop_front();
  if (ranges_.empty()) return Code::kTryAgain;
  InodeRange& range = ranges_.front();
  const InodeId ino = range.first;
  range.first = InodeId{range.first.value + 1};
  if (Planted(Plant::kReuseInode) && ino.value % 3 == 0) range.first = ino;
  --range.count;
  if (ranges_.size() == 1 && range.count < kLowInodes && !want_inodes_) {
    want_inodes_ = true;
    wake_.SignalAll();
  }
  return ino;
}

Status Session::RefillInodes(const OpContext& ctx) {
  auto range = env_.meta.AllocateInodes(ctx, reply_.session, key_);
  if (!range.ok()) return Note(range.error());
  MutexLock lock(mu_);
  ranges_.push_back(*range);
  return Ok();
}

Result<SegmentGrant> Session::TakeSegment(const OpContext& ctx) {
  {
    MutexLock lock(mu_);
    if (!segments_.empty()) {
      SegmentGrant grant = std::move(segments_.front());
      segments_.pop_front();
      return grant;
    }
  }
  auto grants = env_.meta.AllocateSegments(ctx, reply_.session, key_, kSegmentsPerCall);
  if (!grants.ok()) return Note(grants.error());
  if (grants->empty()) return Error(Code::kUnavailable, "the server granted no segment");
  MutexLock lock(mu_);
  SegmentGrant first = std::move(grants->front());
  for (size_t i = 1; i < grants->size(); ++i) segments_.push_back(std::move((*grants)[i]));
  return first;
}

void Session::ReleaseSegment(SegmentId segment) {
  MutexLock lock(mu_);
  releases_.push_back(segment);
}

absl::Duration Session::lease() const {
  MutexLock lock(mu_);
  return lease_;
}

absl::Duration Session::lease_left() const {
  const absl::Duration left =
      absl::Nanoseconds(lease_end_ns_.load()) - env_.scheduler.clock().Boot().since_boot;
  return std::max(left, absl::ZeroDuration());
}

Timestamp Session::Now() const {
  return ToTimestamp(env_.scheduler.clock().Wall() + absl::Nanoseconds(clock_offset_ns_.load()));
}

void Session::SetState(State state, std::string detail) {
  {
    MutexLock lock(mu_);
    if (state_ == state || state_ == State::kFenced || state_ == State::kClosed) return;
    state_ = state;
    detail_ = std::move(detail);
    if (state == State::kFenced) lease_end_ns_.store(0);
    wake_.SignalAll();
  }
  if (events_.on_change) events_.on_change(state);
}

void Session::Renewed(BootTime sent, const RenewReply& reply) {
  {
    MutexLock lock(mu_);
    if (state_ == State::kFenced || state_ == State::kClosed) return;
    lease_ = reply.lease;
    const BootTime from = Planted(Plant::kLeaseFromAnswer) ? env_.scheduler.clock().Boot() : sent;
    lease_end_ns_.store(absl::ToInt64Nanoseconds((from + lease_).since_boot));
  }
  renewals_.fetch_add(1);
  SetState(State::kActive, "");
}

void Session::CheckLease() {
  if (!Usable()) SetState(State::kWaiting, "the lease ran out and the server does not answer");
}

void Session::Beat(bool want_inodes) {
  CheckLease();
  if (events_.on_beat) events_.on_beat();
  OpContext ctx;
  const BootTime sent = env_.scheduler.clock().Boot();
  // A third of the lease: an answer that comes later is of no use any more, the next try is.
  ctx.deadline = sent + std::max(lease() / 3, absl::Milliseconds(100));
  // The lease's end is noticed when it comes: the kernel must not answer from what it keeps any longer (FENCE-1).
  if (Usable()) ctx.deadline = std::min(ctx.deadline, LeaseEnd());
  const auto reply = env_.meta.Renew(ctx, reply_.session, key_, events_.progress ? events_.progress() : 0);
  if (reply.ok() && !reply->taken.empty()) {
    Settle(ctx, *reply);
    return;
  }
  if (reply.ok()) {
    Renewed(sent, *reply);
    if (reply->reclaim) (void)Reclaim(ctx);
    SendReleases(ctx);
    if (events_.after_beat) events_.after_beat(ctx);
    if (want_inodes) (void)RefillInodes(ctx);  // a failure is met again by the next NextInode
    return;
  }
  (void)Note(reply.error());
  if (Planted(Plant::kHeartbeatRenews)) Renewed(sent, {.lease = lease()});
  if (Usable()) {
    SetState(State::kReconnecting, reply.error().ToString());
  } else {
    CheckLease();
  }
}

void Session::SendReleases(const OpContext& ctx) {
  std::vector<SegmentId> segments;
  {
    MutexLock lock(mu_);
    segments.swap(releases_);
  }
  if (segments.empty()) return;
  if (!env_.meta.ReleaseSegments(ctx, reply_.session, key_, segments).ok()) {
    MutexLock lock(mu_);
    releases_.insert(releases_.end(), segments.begin(), segments.end());
  }
}

void Session::HeartbeatLoop() {
  for (;;) {
    bool want_inodes = false;
    {
      MutexLock lock(mu_);
      // Every third of a lease while all is well; quickly while the server does not answer.
      const absl::Duration pause = state_ == State::kActive
                                       ? std::max<absl::Duration>(lease_ / 3, absl::Milliseconds(20))
                                       : std::min<absl::Duration>(lease_ / 10, absl::Milliseconds(500));
      const BootTime next = Usable() ? std::min(env_.scheduler.clock().Boot() + pause, LeaseEnd()) : env_.scheduler.clock().Boot() + pause;
      while (!stopping_ && !want_inodes_ && !beat_now_ && env_.scheduler.clock().Boot() < next) wake_.WaitUntil(mu_, next);
      beat_now_ = false;
      if (stopping_ || state_ == State::kFenced || state_ == State::kClosed) return;
      want_inodes = std::exchange(want_inodes_, false);
    }
    Beat(want_inodes);
  }
}

// --- what the server asks for

bool Session::Over() { return stopping_ || state_ == State::kFenced || state_ == State::kClosed; }

void Session::PollLoop() {
  uint64_t after = reply_.number;
  for (;;) {
    {
      MutexLock lock(mu_);
      if (Over()) return;
    }
    OpContext ctx;
    ctx.cancel = &stop_;
    ctx.deadline = env_.scheduler.clock().Boot() + kPoll;
    const auto reply = env_.meta.Poll(ctx, reply_.session, key_, after);
    if (!reply.ok()) (void)Note(reply.error());
    MutexLock lock(mu_);
    if (Over()) return;
    if (!reply.ok() || reply->reclaim) {
      // The heartbeat finds out what is wrong, and reclaims; not only when its time has come.
      if (state_ == State::kActive) {
        beat_now_ = true;
        wake_.SignalAll();
      }
      const BootTime until = env_.scheduler.clock().Boot() + kPollPause;
      while (!Over() && !wake_.WaitUntil(mu_, until)) {
      }
      continue;
    }
    for (const SessionMessage& message : reply->messages) {
      if (message.number <= after) continue;  // it came twice
      after = message.number;
      messages_.push_back(message);
    }
    wake_.SignalAll();
  }
}

void Session::MessageLoop() {
  for (;;) {
    SessionMessage message;
    {
      MutexLock lock(mu_);
      while (!Over() && messages_.empty()) wake_.Wait(mu_);
      if (Over()) return;
      message = messages_.front();
      messages_.pop_front();
    }
    if (events_.on_message) events_.on_message(message);
  }
}

void Session::Answer(const RecallAnswer& answer) {
  for (absl::Duration pause = absl::Milliseconds(10);; pause = std::min<absl::Duration>(pause * 2, absl::Seconds(1))) {
    OpContext ctx;
    ctx.cancel = &stop_;
    ctx.deadline = env_.scheduler.clock().Boot() + absl::Seconds(5);
    const Status told = env_.meta.AnswerRecall(ctx, reply_.session, key_, answer);
    if (told.ok() || Note(told.error()).code() == Code::kFenced) return;
    if (told.error().band() == Band::kVerdict) {
      // Ours or the server's fault; whoever waits for it goes on when this session ends.
      LogError("session.answer_refused", {{"message", answer.message}, {"error", told.error().ToString()}});
      return;
    }
    MutexLock lock(mu_);
    const BootTime until = env_.scheduler.clock().Boot() + pause;
    while (!Over() && !wake_.WaitUntil(mu_, until)) {
    }
    if (Over()) return;
  }
}

bool Session::Reclaim(const OpContext& ctx) {
  if (!events_.held) return false;
  const auto reply = env_.meta.Reclaim(ctx, events_.held());
  if (reply.ok()) {
    events_.on_reclaimed(reply->number);
  } else {
    (void)Note(reply.error());  // the next heartbeat tries again
  }
  return reply.ok();
}

// Whatever does not succeed is tried again with the next heartbeat, which tells what is taken then.
void Session::Settle(const OpContext& ctx, const RenewReply& reply) {
  if (!events_.on_taken) return;
  lease_end_ns_.store(0);
  SetState(State::kWaiting, "others took what they wanted while this mount was silent: that is being settled");
  const Status cut = events_.on_taken(reply);
  SettleRequest request;
  request.session = reply_.session;
  request.key = key_;
  for (const Taken& taken : reply.taken) request.taken.push_back(taken.ino);
  if (cut.ok() && reply.reclaim && !Reclaim(ctx)) return;
  if (cut.ok() && events_.before_settle(ctx, request).ok()) {
    const Status settled = env_.meta.Settle(ctx, request);
    if (!settled.ok()) {
      (void)Note(settled.error());
      return;
    }
    MutexLock lock(mu_);
    beat_now_ = true;  // the lease begins
  } else if (cut.code() == Code::kTryAgain) {
    MutexLock lock(mu_);
    beat_now_ = true;
  }
}

}  // namespace archil
