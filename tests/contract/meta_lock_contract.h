// File locks of MetaService (LOCK-1), with two sessions. Included and instantiated as meta_service_contract.h is.
#pragma once

#include <gmock/gmock.h>

#include <atomic>

#include "tests/contract/meta_service_contract.h"

namespace archil {

class MetaLockContract : public MetaServiceContract {
 protected:
  static constexpr InodeId kFile{77};

  struct Client {
    SessionId session;
    SessionKey key;
    uint64_t next = 1;
  };

  // Two sessions; the first was alone with `kept`, and has handed it over.
  void Begin(const std::vector<FileLock>& kept = {}, const std::vector<LockRequest>& waiters = {}) {
    a_ = OpenClient({1, 1}, "a");
    b_ = OpenClient({2, 2}, "b");
    EXPECT_EQ(Set(b_, LockType::kWrite, absl::Seconds(1)).code(), Code::kUnavailable) << "nobody knows what the first one holds";
    auto thread = RealScheduler().Spawn("acquire", [&] {
      AcquireRequest request;
      request.session = b_.session;
      request.key = b_.key;
      request.wants = {{kRootInode, Right::kRead, false}};
      EXPECT_TRUE(service().Acquire(In(absl::Seconds(30)), request).ok());
    });
    const auto polled = service().Poll(In(absl::Seconds(30)), a_.session, a_.key, 0);
    ASSERT_TRUE(polled.ok() && !polled->messages.empty()) << Why(polled);
    EXPECT_EQ(polled->messages[0].kind, SessionMessage::Kind::kRecallAlone);
    RecallAnswer answer;
    answer.message = polled->messages[0].number;
    for (FileLock lock : kept) {
      lock.owner.session = a_.session;
      answer.locks.push_back(lock);
    }
    for (LockRequest waiter : waiters) {
      waiter.lock.owner.session = a_.session;
      answer.waiters.push_back(waiter);
      a_.next = std::max(a_.next, *waiter.waiter + 1);
    }
    ASSERT_TRUE(service().AnswerRecall(In(absl::Seconds(30)), a_.session, a_.key, answer).ok());
    thread->Join();
  }
  Client OpenClient(SessionKey key, const std::string& name) {
    OpenSessionRequest request;
    request.disk = "disk";
    request.key = key;
    request.client_name = name;
    request.lease = absl::Seconds(60);
    const auto reply = service().OpenSession(ctx_, request);
    EXPECT_TRUE(reply.ok()) << Why(reply);
    return {reply.ok() ? reply->session : SessionId{}, key};
  }
  static OpContext In(absl::Duration time) {
    OpContext ctx;
    ctx.deadline = RealClock().Boot() + time;
    return ctx;
  }
  static FileLock Lock(const Client& client, LockType type, uint64_t owner = 5) {
    return {kFile, LockFamily::kRange, {client.session, owner}, type, 10, 19, 4321};
  }
  Result<LockOutcome> Send(const Client& client, uint64_t id, LockType type, bool wait, absl::Duration time, uint64_t finished = 0) {
    SetLockRequest request;
    request.session = client.session;
    request.key = client.key;
    request.id = id;
    request.finished = finished;
    request.request.lock = Lock(client, type);
    if (wait) request.request.waiter = id;
    return service().SetLock(In(time), request);
  }
  Result<LockOutcome> Set(Client& client, LockType type, absl::Duration time = absl::Seconds(30)) {
    return Send(client, client.next++, type, false, time);
  }

  Client a_, b_;
};

TEST_P(MetaLockContract, HoldBetweenSessionsAndTestTellsWhich) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  EXPECT_EQ(*Set(a_, LockType::kWrite), LockOutcome::kDone);
  EXPECT_EQ(*Set(b_, LockType::kRead), LockOutcome::kConflict);
  const auto found = service().TestLock(In(absl::Seconds(30)), b_.session, b_.key, Lock(b_, LockType::kRead));
  ASSERT_TRUE(found.ok()) << Why(found);
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ(**found, Lock(a_, LockType::kWrite));
  EXPECT_EQ(*Set(a_, LockType::kUnlock), LockOutcome::kDone);
  const auto none = service().TestLock(In(absl::Seconds(30)), b_.session, b_.key, Lock(b_, LockType::kRead));
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  EXPECT_EQ(*Set(b_, LockType::kWrite), LockOutcome::kDone);
}

TEST_P(MetaLockContract, WhatOneKeptToItselfIsHandedOver) {
  FileLock held = Lock({}, LockType::kWrite);
  FileLock waits = Lock({}, LockType::kWrite, 6);
  ASSERT_NO_FATAL_FAILURE(Begin({held}, {{waits, 3, false}}));
  EXPECT_EQ(*Set(b_, LockType::kWrite), LockOutcome::kConflict);
  EXPECT_EQ(*Set(a_, LockType::kUnlock), LockOutcome::kDone);
  EXPECT_EQ(*Set(b_, LockType::kWrite), LockOutcome::kConflict) << "the one that waited has it now";
}

TEST_P(MetaLockContract, AWaitIsAnsweredWhenTheLockIsFree) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_EQ(*Set(a_, LockType::kWrite), LockOutcome::kDone);
  // In its time it is answered that it goes on waiting, and keeps its place.
  EXPECT_EQ(Send(b_, 100, LockType::kWrite, true, absl::Milliseconds(300)).code(), Code::kUnavailable);
  std::atomic<bool> served{false};
  auto thread = RealScheduler().Spawn("wait", [&] {
    const auto outcome = Send(b_, 100, LockType::kWrite, true, absl::Seconds(60));
    EXPECT_TRUE(outcome.ok() && *outcome == LockOutcome::kDone) << Why(outcome);
    served = true;
  });
  EXPECT_EQ(*Set(a_, LockType::kRead), LockOutcome::kDone) << "whoever is waited for may go on";
  EXPECT_FALSE(served);
  EXPECT_EQ(*Set(a_, LockType::kUnlock), LockOutcome::kDone);
  thread->Join();
  EXPECT_EQ(*Send(b_, 100, LockType::kWrite, true, absl::Seconds(30)), LockOutcome::kDone) << "a repeat";
  EXPECT_EQ(*service().CancelLock(In(absl::Seconds(30)), b_.session, b_.key, 100), true);
}

TEST_P(MetaLockContract, ARepeatHasNoEffect) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  EXPECT_EQ(*Send(a_, 50, LockType::kWrite, false, absl::Seconds(30)), LockOutcome::kDone);
  EXPECT_EQ(*Send(a_, 51, LockType::kUnlock, false, absl::Seconds(30)), LockOutcome::kDone);
  EXPECT_EQ(*Send(a_, 50, LockType::kWrite, false, absl::Seconds(30)), LockOutcome::kDone);
  EXPECT_EQ(*Set(b_, LockType::kWrite), LockOutcome::kDone) << "the late repeat took the lock";
  EXPECT_EQ(*Send(a_, 60, LockType::kWrite, false, absl::Seconds(30), 60), LockOutcome::kConflict);
  EXPECT_EQ(Send(a_, 50, LockType::kWrite, false, absl::Seconds(30)).code(), Code::kInvalid);
}

TEST_P(MetaLockContract, WhatIsGivenUpIsNeverGranted) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_EQ(*Set(a_, LockType::kWrite), LockOutcome::kDone);
  CancelFlag cancel;
  auto thread = RealScheduler().Spawn("wait", [&] {
    SetLockRequest request;
    request.session = b_.session;
    request.key = b_.key;
    request.id = 100;
    request.request = {Lock(b_, LockType::kWrite), 100, false};
    request.request.lock.last = 29;
    OpContext ctx = In(absl::Seconds(60));
    ctx.cancel = &cancel;
    EXPECT_EQ(service().SetLock(ctx, request).code(), Code::kInterrupted);
  });
  // Until it stands in the queue others get in at bytes that only it wants.
  for (bool queued = false; !queued;) {
    SetLockRequest probe;
    probe.session = a_.session;
    probe.key = a_.key;
    probe.request.lock = {kFile, LockFamily::kRange, {a_.session, 99}, LockType::kRead, 25, 25, 1};
    for (const LockType type : {LockType::kRead, LockType::kUnlock}) {
      probe.id = a_.next++;
      probe.request.lock.type = type;
      const auto outcome = service().SetLock(In(absl::Seconds(30)), probe);
      ASSERT_TRUE(outcome.ok()) << Why(outcome);
      queued = queued || *outcome == LockOutcome::kConflict;
    }
  }
  cancel.Cancel();
  thread->Join();
  const auto granted = service().CancelLock(In(absl::Seconds(30)), b_.session, b_.key, 100);
  ASSERT_TRUE(granted.ok()) << Why(granted);
  EXPECT_FALSE(*granted);
  EXPECT_EQ(*Set(a_, LockType::kUnlock), LockOutcome::kDone);
  EXPECT_EQ(*Set(a_, LockType::kWrite), LockOutcome::kDone);
}

TEST_P(MetaLockContract, ACircleIsRefusedToThoseWhoAsk) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  const auto send = [&](const Client& client, uint64_t id, uint64_t byte, bool wait, bool detect, absl::Duration time) {
    SetLockRequest request;
    request.session = client.session;
    request.key = client.key;
    request.id = id;
    request.request.lock = Lock(client, LockType::kWrite);
    request.request.lock.first = request.request.lock.last = byte;
    if (wait) request.request.waiter = id;
    request.request.detect_deadlock = detect;
    return service().SetLock(In(time), request);
  };
  ASSERT_EQ(*send(a_, 1, 1, false, false, absl::Seconds(30)), LockOutcome::kDone);
  ASSERT_EQ(*send(b_, 2, 2, false, false, absl::Seconds(30)), LockOutcome::kDone);
  // Told by the server shortly before the deadline, or by nobody.
  const auto late = testing::AnyOf(Code::kUnavailable, Code::kUnknown);
  EXPECT_THAT(send(a_, 3, 2, true, true, absl::Milliseconds(200)).code(), late);
  EXPECT_THAT(send(b_, 4, 1, true, false, absl::Milliseconds(200)).code(), late);
  EXPECT_EQ(*send(b_, 5, 1, true, true, absl::Seconds(30)), LockOutcome::kDeadlock);
}

TEST_P(MetaLockContract, TheEndOfASessionFreesItsLocks) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_EQ(*Set(a_, LockType::kWrite), LockOutcome::kDone);
  auto thread = RealScheduler().Spawn("wait", [&] {
    const auto outcome = Send(b_, 100, LockType::kWrite, true, absl::Seconds(60));
    EXPECT_TRUE(outcome.ok() && *outcome == LockOutcome::kDone) << Why(outcome);
  });
  ASSERT_TRUE(service().CloseSession(In(absl::Seconds(30)), a_.session, a_.key).ok());
  thread->Join();
  EXPECT_EQ(Set(a_, LockType::kWrite).code(), Code::kFenced);
}

TEST_P(MetaLockContract, NothingThatMakesNoSense) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  SetLockRequest request;
  request.session = a_.session;
  request.key = a_.key;
  request.id = 1;
  request.request.lock = Lock(b_, LockType::kWrite);
  EXPECT_EQ(service().SetLock(In(absl::Seconds(30)), request).code(), Code::kInvalid) << "another session's owner";
  request.request.lock = Lock(a_, LockType::kWrite);
  request.request.lock.last = 3;
  EXPECT_EQ(service().SetLock(In(absl::Seconds(30)), request).code(), Code::kInvalid) << "a range that ends before it begins";
  request.request.lock = Lock(a_, LockType::kWrite);
  request.key = b_.key;
  EXPECT_EQ(service().SetLock(In(absl::Seconds(30)), request).code(), Code::kPermission);
  EXPECT_EQ(service().CancelLock(In(absl::Seconds(30)), a_.session, b_.key, 1).code(), Code::kPermission);
  EXPECT_EQ(service().TestLock(In(absl::Seconds(30)), a_.session, b_.key, request.request.lock).code(), Code::kPermission);
}

}  // namespace archil
