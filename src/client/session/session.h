// Session: this mount's relation with the metadata server: lease, heartbeats, what the server asks for (recalls), ranges of
// inode numbers, segments to write to. Thread safe; its lock is a leaf (nothing else is taken under it), callbacks run without it.
//
// LSE-1: the lease is counted from the sending of the newest answered renewal, on the boot clock, so the
// client always stops before the server gives its rights to somebody else.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/core/mount.h"
#include "common/api/meta_service.h"
#include "common/env/sched.h"

namespace archil {

class Session {
 public:
  enum class State : uint8_t {
    kActive,        // renewed lately
    kReconnecting,  // the last renewal failed, the lease is still good
    kWaiting,       // the lease has run out; nothing is answered until it is renewed (and what was taken meanwhile is settled)
    kFenced,        // the server ended it; for good
    kClosed,
  };

  Session(const MountEnv& env, const MountConfig& config);
  ~Session();

  // Opens at the server. Called once, before everything else.
  Status Open(const OpContext& ctx);
  // Called on threads of the session, without locks.
  struct Events {
    std::function<void(State)> on_change;                         // after each change of state
    std::function<void(const SessionMessage&)> on_message;        // may take long; several at a time
    std::function<ReclaimRequest()> held;                         // after a restart of the server: what to reclaim
    std::function<void(uint64_t)> on_reclaimed;
    std::function<void()> on_beat;                                // before each heartbeat
    std::function<void(const OpContext&)> after_beat;             // after each that was answered; may take the rest of its time
    std::function<uint64_t()> progress;                           // grows while recalls are worked on
    // FENCE-1: others took what they wanted while this session was silent. What of its log touches that is cut off. kTryAgain: after
    // another heartbeat.
    std::function<Status(const RenewReply&)> on_taken;
    // What is left of the log is committed, and memory forgets what is not true any more: fills in what Settle is to say.
    std::function<Status(const OpContext&, SettleRequest&)> before_settle;
  };
  void Start(Events events);
  // Ends all threads; the caller sees to it that on_message returns. No RPC but those under way. Idempotent.
  void Stop();
  // Tells the server, again until it has heard; returns early when the session ends.
  void Answer(const RecallAnswer& answer);
  // Tells the server; after Stop.
  Status Close(const OpContext& ctx);

  // The lease is good now. Cheap, no lock.
  bool Usable() const;
  State state() const;
  std::string detail() const;
  // What an answer told: kFenced ends the session, anything else changes nothing. Returns its argument.
  Error Note(const Error& error);

  // The next number of the session's range; kTryAgain if there is none (then RefillInodes).
  Result<InodeId> NextInode();
  Status RefillInodes(const OpContext& ctx);
  // A segment to write to, of which this session is the only writer.
  Result<SegmentGrant> TakeSegment(const OpContext& ctx);
  // No more appends to it; told to the server with the next heartbeat or at Close.
  void ReleaseSegment(SegmentId segment);

  SessionId id() const { return reply_.session; }
  SessionKey key() const { return key_; }
  const OpenSessionReply& opened() const { return reply_; }
  absl::Duration lease() const;
  absl::Duration lease_left() const;
  // Wall clock corrected by the server's.
  Timestamp Now() const;
  uint64_t renewals() const { return renewals_.load(); }

 private:
  void HeartbeatLoop();
  void PollLoop();
  void MessageLoop();
  bool Reclaim(const OpContext& ctx);
  void Settle(const OpContext& ctx, const RenewReply& reply);
  bool Over() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Beat(bool want_inodes);
  void Renewed(BootTime sent, const RenewReply& reply);
  void SetState(State state, std::string detail);
  void SendReleases(const OpContext& ctx);
  void CheckLease();
  BootTime LeaseEnd() const;

  MountEnv env_;
  MountConfig config_;
  SessionKey key_;
  OpenSessionReply reply_;
  Events events_;
  CancelFlag stop_;  // ends RPCs that wait

  std::atomic<int64_t> lease_end_ns_{0};  // boot clock
  std::atomic<int64_t> clock_offset_ns_{0};
  std::atomic<uint64_t> renewals_{0};

  mutable Mutex mu_;
  CondVar wake_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kActive;
  std::string detail_ ABSL_GUARDED_BY(mu_);
  absl::Duration lease_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool want_inodes_ ABSL_GUARDED_BY(mu_) = false;
  bool beat_now_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<InodeRange> ranges_ ABSL_GUARDED_BY(mu_);
  std::deque<SegmentGrant> segments_ ABSL_GUARDED_BY(mu_);
  std::vector<SegmentId> releases_ ABSL_GUARDED_BY(mu_);
  std::deque<SessionMessage> messages_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Thread>> threads_;
};

std::string_view StateName(Session::State state);

}  // namespace archil
