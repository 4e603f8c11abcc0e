// Rights of sessions: requests that wait, messages, what sessions say about what they hold (docs/delegation.md). The table decides, on
// the strand; what is granted is read and answered in the same step, when the log is durable up to it (LOG-1, FEN-1).
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "common/env/planted.h"
#include "server/meta/disk.h"

namespace archil {
namespace {

constexpr size_t kMessagesPerPoll = 4096;
constexpr size_t kAppliesAtOnce = 64;  // operations in one turn of the strand
constexpr uint32_t kMaxRightsListed = 1'000'000;
// Of the listings in one answer, about; it must pass as one message.
constexpr size_t kMaxListingBytes = 24 << 20;
constexpr size_t kEntryBytes = 192;
// Moments that are due already and wait for something else do not spin.
constexpr absl::Duration kShortestWake = absl::Milliseconds(5);

size_t BytesOf(const DirPage& page) {
  size_t sum = kEntryBytes;
  for (const DirEntry& e : page.entries) sum += kEntryBytes + e.name.size() + e.inode.target.size();
  return sum;
}

Error Stopping() { return Error(Code::kUnavailable, "the server is stopping"); }

}  // namespace

// --- waiting

void Disk::Acquire(AcquireRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<AcquireReply> done) {
  const uint64_t wait = next_wait_.fetch_add(1);
  Run<AcquireReply>(Kind::kRead, std::move(done),
                    [this, wait, deadline, request = std::move(request), received = host_.Now()](DiskCore& core, Done<AcquireReply> done) {
                      if (host_.draining.load()) return done(Stopping());
                      const auto begin = [&]() -> Status {
                        ARCHIL_RETURN_IF_ERROR(LiveSession(core, request.session, &request.key, received));
                        if (request.prefetch > kMaxPrefetch) return Error(Code::kInvalid, "too much prefetch");
                        return core.table.Acquire(wait, request.session, request.wants, deadline,
                                                  {request.or_at_server, request.brief, request.must_hold});
                      };
                      if (const Status s = begin(); !s.ok()) return Reply(core, Kind::kRead, done, Result<AcquireReply>(s.error()));
                      ++host_.metrics.acquires;
                      core.acquires[wait] = {request, done};
                      Settle(core);
                      if (core.acquires.contains(wait)) ++host_.metrics.acquire_waits;
                    });
  OnCancel(ticket, wait);
}

void Disk::Poll(SessionId session, SessionKey key, uint64_t after, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket,
                Done<PollReply> done) {
  const uint64_t wait = next_wait_.fetch_add(1);
  Run<PollReply>(Kind::kRead, std::move(done),
                 [this, wait, session, key, after, deadline, received = host_.Now()](DiskCore& core, Done<PollReply> done) {
                   if (host_.draining.load()) return done(Stopping());
                   auto rec = LiveSession(core, session, &key, received, Claim::kNot);
                   if (!rec.ok()) return Reply(core, Kind::kRead, done, Result<PollReply>(rec.error()));
                   PollReply reply;
                   reply.reclaim = core.table.Unclaimed(session);
                   reply.messages = core.table.Poll(session, after, kMessagesPerPoll);
                   if (reply.reclaim || !reply.messages.empty()) return Reply(core, Kind::kRead, done, Result<PollReply>(std::move(reply)));
                   // One at a time: the older one's caller has left, or asks again.
                   if (const auto older = core.polls.find(session); older != core.polls.end()) {
                     core.poll_ends.erase({older->second.deadline, session});
                     older->second.done(PollReply{});
                   }
                   core.polls[session] = {wait, after, deadline, done};
                   core.poll_ends.emplace(deadline, session);
                   WakeForWaits(core);
                 });
  OnCancel(ticket, wait);
}

void Disk::Revoke(SessionId session, InodeId ino, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<bool> done) {
  const uint64_t wait = next_wait_.fetch_add(1);
  const Kind kind = ino ? Kind::kRead : Kind::kChange;
  Run<bool>(kind, std::move(done), [this, wait, session, ino, deadline, kind](DiskCore& core, Done<bool> done) {
    if (host_.draining.load()) return done(Stopping());
    if (core.deleted) return done(Error(Code::kNoSuchDisk, "the disk was deleted"));
    if (core.table.Find(session) == nullptr) {
      return Reply(core, kind, done, Result<bool>(Error(Code::kNotFound, fmt::format("there is no session {:x}", session.value))));
    }
    if (!ino) {
      const Status s = EndSession(core, session, true, "it was revoked");
      return Reply(core, kind, done, s.ok() ? Result<bool>(true) : Result<bool>(s.error()));
    }
    core.table.Revoke(wait, session, ino, deadline);
    core.revokes[wait] = done;
    Settle(core);
  });
  OnCancel(ticket, wait);
}

void Disk::Checkout(CheckoutRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<uint64_t> done) {
  const uint64_t wait = next_wait_.fetch_add(1);
  Run<uint64_t>(Kind::kRead, std::move(done), [this, wait, request, deadline, received = host_.Now()](DiskCore& core, Done<uint64_t> done) {
    if (host_.draining.load()) return done(Stopping());
    DelegationEffects effects;
    const auto begin = [&]() -> Status {
      ARCHIL_RETURN_IF_ERROR(LiveSession(core, request.session, &request.key, received));
      StateTree tree(*core.kv);
      const Status s = core.table.Checkout(wait, request, deadline, tree, host_.Now(), effects);
      return TreeIsGood(tree) ? s : Status(Error(Code::kUnavailable, "the state cannot be read"));
    };
    const Status begun = begin();
    if (!begun.ok()) {
      core.table.Cancel(wait);
      return Reply(core, Kind::kRead, done, Result<uint64_t>(begun.error()));
    }
    core.revokes[wait] = [number = core.table.CheckoutNumber(request.session, request.ino), done](const Result<bool>& r) {
      done(r.ok() ? Result<uint64_t>(number) : Result<uint64_t>(r.error()));
    };
    Do(core, effects);
    Settle(core);
  });
  OnCancel(ticket, wait);
}

void Disk::OnCancel(const std::shared_ptr<WaitTicket>& ticket, uint64_t wait) {
  if (ticket == nullptr) return;
  ticket->WhenCancelled([weak = weak_from_this(), wait] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->strand_->Post([self, wait] {
      if (self->core_ != nullptr) self->CancelWait(*self->core_, wait);
    });
  });
}

void Disk::CancelWait(DiskCore& core, uint64_t wait) {
  const Error error(Code::kInterrupted, "the caller gave up");
  core.table.Cancel(wait);
  if (auto acquire = core.acquires.extract(wait)) acquire.mapped().done(error);
  (void)FailServerWait(core, wait, error);
  if (auto revoke = core.revokes.extract(wait)) revoke.mapped()(error);
  for (auto it = core.polls.begin(); it != core.polls.end(); ++it) {
    if (it->second.id != wait) continue;
    it->second.done(error);
    core.polls.erase(it);
    break;
  }
  CancelLockWait(core, wait, error);
  CancelSpaceWait(core, wait, error);
  Settle(core);  // others stood behind it
}

void Disk::EndWaits() {
  strand_->Post([self = shared_from_this()] {
    if (self->core_ != nullptr) self->FailWaits(*self->core_, Stopping());
  });
}

void Disk::FailWaits(DiskCore& core, const Error& error) {
  host_.metrics.rights_held -= std::exchange(core.records_shown, 0);
  for (auto& [wait, acquire] : std::exchange(core.acquires, {})) {
    core.table.Cancel(wait);
    acquire.done(error);
  }
  FailServerWaits(core, error);
  for (auto& [wait, done] : std::exchange(core.revokes, {})) {
    core.table.Cancel(wait);
    done(error);
  }
  for (auto& [session, poll] : std::exchange(core.polls, {})) poll.done(error);
  core.poll_ends.clear();
  FailLockWaits(core, error);
  FailSpaceWaits(core, error);
}

BootTime Disk::LookIfDue(BootTime now) {
  int64_t at = look_at_ns_.load();
  if (at == INT64_MAX || stopped_.load()) return BootTime::Infinite();
  if (at > absl::ToInt64Nanoseconds(now.since_boot)) return BootTime{absl::Nanoseconds(at)};
  // Another moment that was set meanwhile comes with its own wake.
  look_at_ns_.compare_exchange_strong(at, INT64_MAX);
  SettleSoon();
  return BootTime::Infinite();
}

void Disk::SettleSoon() {
  strand_->Post([self = shared_from_this()] {
    if (self->core_ != nullptr) self->Settle(*self->core_);
  });
}

void Disk::WakeForWaits(DiskCore& core) {
  BootTime next = core.table.NextLook();
  if (!core.poll_ends.empty()) next = std::min(next, core.poll_ends.begin()->first);
  next = std::min(next, NextLockLook(core));
  next = std::min(next, NextSpaceLook(core, host_.Now()));
  if (next == BootTime::Infinite()) return;
  next = std::max(next, host_.Now() + kShortestWake);
  look_at_ns_.store(absl::ToInt64Nanoseconds(next.since_boot));
  host_.wake(next);
}

// --- effects

bool Disk::TreeIsGood(const StateTree& tree) {
  if (tree.status().ok()) return true;
  StepDownSoon(tree.status().error());
  return false;
}

void Disk::StepDownSoon(const Error& cause) {
  strand_->Post([self = shared_from_this(), cause] { self->StepDown(cause); });
}

void Disk::Settle(DiskCore& core) {
  const BootTime now = host_.Now();
  DelegationEffects effects;
  for (size_t applied = 0;; ++applied) {
    // Thousands may wait for one directory: others have their turn in between.
    if (applied == kAppliesAtOnce) {
      SettleSoon();
      break;
    }
    StateTree tree(*core.kv);
    core.table.Look(tree, now, effects);
    if (!TreeIsGood(tree)) return;  // what waits is answered there
    if (effects.ready == 0 || core.flushing) break;
    // What it finds comes after everything that was decided before it.
    Do(core, effects);
    const uint64_t ready = effects.ready;
    effects = {};
    ApplyReady(core, ready);
  }
  if (effects.again) SettleSoon();
  LookAtLocks(core, now, effects);
  LookAtSpace(core, now, effects);
  Do(core, effects);
  AnswerPolls(core, now);
  // The state may not change while it is being flushed.
  if (core.flushing && (!effects.ends.empty() || !effects.takes.empty() || effects.ready != 0)) {
    PostOnStrand(Kind::kChange, [self = shared_from_this()](DiskCore* core) {
      if (core != nullptr) self->Settle(*core);
    });
  } else if (!TakeFromSilent(core, effects)) {
    return;
  }
  WakeForWaits(core);
}

bool Disk::TakeFromSilent(DiskCore& core, const DelegationEffects& effects) {
  size_t ended = 0;
  for (const auto& end : effects.ends) {
    if (core.table.Find(end.session) == nullptr) continue;
    // Thousands may have gone at once: others have their turn in between.
    if (++ended > kEndsAtOnce) {
      SettleSoon();
      break;
    }
    ++host_.metrics.silent_ended;
    if (!EndSession(core, end.session, true, end.reason).ok()) return false;  // the disk steps down
  }
  std::map<SessionId, std::vector<Taken>> takes;
  for (const auto& take : effects.takes) takes[take.session].push_back(take.taken);
  for (const auto& [session, taken] : takes) {
    if (core.table.Find(session) == nullptr) continue;
    if (!Take(core, session, taken).ok()) return false;
  }
  if (!takes.empty()) SettleSoon();
  return true;
}

Status Disk::Take(DiskCore& core, SessionId session, const std::vector<Taken>& taken) {
  if (!Planted(Plant::kFenceNotLogged)) ARCHIL_RETURN_IF_ERROR(Change(core, TakenRecord{session, taken}));
  StateTree tree(*core.kv);
  for (const Taken& t : taken) {
    core.table.Take(session, t, tree);
    if (t.locks) core.locks.TakeFrom(core.sessions[session].branch, session, t.ino);
    ++host_.metrics.silent_taken;
  }
  return TreeIsGood(tree) ? Ok() : Status(Error(Code::kUnavailable, "the state cannot be read"));
}

void Disk::Do(DiskCore& core, const DelegationEffects& effects) {
  host_.metrics.recalls += effects.recalls;
  for (const auto& granted : effects.granted) {
    if (auto acquire = core.acquires.extract(granted.id)) {
      const auto& wait = acquire.mapped();
      Reply(core, Kind::kRead, wait.done, GrantReply(core, wait.request, granted));
    } else if (AnswerServerWait(core, granted)) {
      continue;
    } else if (auto revoke = core.revokes.extract(granted.id)) {
      Reply(core, Kind::kRead, Done<bool>(revoke.mapped()), Result<bool>(true));
    }
  }
  for (const auto& failed : effects.failed) {
    if (failed.error.code() == Code::kUnavailable) ++host_.metrics.acquires_late;
    if (auto acquire = core.acquires.extract(failed.id)) {
      Reply(core, Kind::kRead, acquire.mapped().done, Result<AcquireReply>(failed.error));
    } else if (FailServerWait(core, failed.id, failed.error)) {
      continue;
    } else if (auto revoke = core.revokes.extract(failed.id)) {
      Reply(core, Kind::kRead, Done<bool>(revoke.mapped()), Result<bool>(failed.error));
    }
  }
  for (SessionId session : effects.told) {
    auto poll = core.polls.extract(session);
    if (!poll) continue;
    PollReply reply;
    reply.messages = core.table.Poll(session, poll.mapped().after, kMessagesPerPoll);
    Reply(core, Kind::kRead, poll.mapped().done, Result<PollReply>(std::move(reply)));
  }
  const uint64_t held = core.table.records();
  host_.metrics.rights_held += held - std::exchange(core.records_shown, held);
}

void Disk::AnswerPolls(DiskCore& core, BootTime now) {
  while (!core.poll_ends.empty() && core.poll_ends.begin()->first <= now) {
    const SessionId session = core.poll_ends.extract(core.poll_ends.begin()).value().second;
    const auto poll = core.polls.find(session);
    if (poll == core.polls.end() || now < poll->second.deadline) continue;
    Reply(core, Kind::kRead, poll->second.done, Result<PollReply>(PollReply{}));
    core.polls.erase(poll);
  }
}

void Disk::EndPoll(DiskCore& core, SessionId session, const Error& error) {
  if (auto poll = core.polls.extract(session)) Reply(core, Kind::kRead, poll.mapped().done, Result<PollReply>(error));
}

// --- what a grant brings

void Disk::MarkCovered(DiskCore& core, SessionId session, InodeId parent, InodeInfo& info) {
  info.covered = info.attr.type != FileType::kDirectory && info.attr.nlink == 1 && core.table.Covered(session, parent, info.attr.ino);
}

void Disk::MarkCovered(DiskCore& core, SessionId session, DirPage& page) {
  for (DirEntry& e : page.entries) MarkCovered(core, session, page.directory.attr.ino, e.inode);
}

Result<AcquireReply> Disk::GrantReply(DiskCore& core, const AcquireRequest& request, const DelegationEffects::Granted& granted) {
  const Holder* holder = core.table.Find(request.session);
  if (holder == nullptr) return Error(Code::kFenced, "the session has ended");
  ARCHIL_ASSIGN_OR_RETURN(BranchChain chain, LoadBranchChain(*core.kv, holder->branch));
  const Records records(*core.kv, std::move(chain));
  AcquireReply reply;
  reply.position = core.applied;
  reply.grants = granted.grants;
  reply.missing = granted.missing;
  reply.at_server = granted.at_server;
  reply.through = granted.through;
  if (!reply.at_server.empty()) ++host_.metrics.contended_answers;
  size_t bytes = 0;
  for (const Grant& g : granted.grants) {
    ARCHIL_ASSIGN_OR_RETURN(InodeInfo info, InfoOf(records, g.ino, InodeId{0}));
    const auto want = std::find_if(request.wants.begin(), request.wants.end(), [&](const Want& w) { return w.ino == g.ino; });
    const bool list = want != request.wants.end() && want->list && info.attr.type == FileType::kDirectory;
    reply.inodes.push_back(std::move(info));
    if (!list) continue;
    ARCHIL_ASSIGN_OR_RETURN(DirPage page, ListDirectory(records, g.ino, "", bytes < kMaxListingBytes ? kMaxDirPage : 1));
    page.position = core.applied;
    MarkCovered(core, request.session, page);
    bytes += BytesOf(page);
    reply.listings.push_back(std::move(page));
  }
  host_.metrics.rights_granted += granted.grants.size();
  ARCHIL_RETURN_IF_ERROR(BringAlong(core, request, records, bytes, reply));
  return reply;
}

// Breadth first, only whole directories.
Status Disk::BringAlong(DiskCore& core, const AcquireRequest& request, const Records& records, size_t bytes, AcquireReply& reply) {
  uint64_t budget = request.prefetch;
  if (budget == 0 || reply.listings.empty()) return Ok();
  const uint64_t number = core.table.NewNumber(request.session);
  StateTree tree(*core.kv);
  for (size_t i = 0; i < reply.listings.size(); ++i) {
    if (!reply.listings[i].complete) continue;
    // By index: the vector grows.
    for (size_t j = 0; j < reply.listings[i].entries.size() && budget > 0 && bytes < kMaxListingBytes; ++j) {
      const Attr attr = reply.listings[i].entries[j].inode.attr;
      if (attr.type != FileType::kDirectory || attr.size > budget) continue;
      if (std::any_of(request.wants.begin(), request.wants.end(), [&](const Want& w) { return w.ino == attr.ino; })) continue;
      const auto grant = core.table.GrantAlong(request.session, attr.ino, number, tree);
      if (!grant) continue;
      ARCHIL_ASSIGN_OR_RETURN(DirPage page, ListDirectory(records, attr.ino, "", static_cast<uint32_t>(attr.size)));
      if (!page.complete) return Error(Code::kCorrupt, fmt::format("directory {} has more entries than it says", attr.ino.value));
      page.position = core.applied;
      MarkCovered(core, request.session, page);
      bytes += BytesOf(page);
      budget -= std::min<uint64_t>(budget, std::max<uint64_t>(attr.size, 1));
      reply.grants.push_back(*grant);
      reply.inodes.push_back(page.directory);
      reply.listings.push_back(std::move(page));
      ++host_.metrics.rights_granted;
    }
  }
  return tree.status();
}

// --- what sessions say

void Disk::AnswerRecall(SessionId session, SessionKey key, RecallAnswer answer, Done<bool> done) {
  auto shared = std::make_shared<const RecallAnswer>(std::move(answer));
  Run<bool>(Kind::kRead, std::move(done), [this, session, key, shared, received = host_.Now()](DiskCore& core, Done<bool> done) {
    const auto take = [&]() -> Result<bool> {
      ARCHIL_ASSIGN_OR_RETURN(const SessionRecord* rec, LiveSession(core, session, &key, received, Claim::kUnsettled));
      if (shared->last > rec->applied && !Planted(Plant::kAnswerUnchecked)) {
        return Error(Code::kInvalid, fmt::format("op {} of the answer is not applied, the newest is {}", shared->last.value, rec->applied.value));
      }
      StateTree tree(*core.kv);
      if (!shared->locks.empty() || !shared->waiters.empty()) {
        if (core.table.AloneNumber(session) == 0) return true;  // answered before
        const Status adopted = core.locks.Adopt(rec->branch, session, Untaken(core, session, shared->locks), shared->waiters);
        ARCHIL_RETURN_IF_ERROR(adopted);
      }
      ARCHIL_RETURN_IF_ERROR(core.table.Answer(session, *shared, tree, received));
      if (!TreeIsGood(tree)) return Error(Code::kUnavailable, "the state cannot be read");
      core.table.Renew(session, received);
      ++host_.metrics.recall_answers;
      return true;
    };
    Reply(core, Kind::kRead, done, take());
    Settle(core);
  });
}

void Disk::GiveBack(SessionId session, SessionKey key, std::vector<InodeId> inodes, std::vector<InodeId> opens, Done<bool> done) {
  Run<bool>(Kind::kRead, std::move(done),
            [this, session, key, inodes = std::move(inodes), opens = std::move(opens), received = host_.Now()](DiskCore& core, Done<bool> done) {
              const auto take = [&]() -> Result<bool> {
                ARCHIL_RETURN_IF_ERROR(LiveSession(core, session, &key, received));
                StateTree tree(*core.kv);
                ARCHIL_RETURN_IF_ERROR(core.table.GiveBack(session, inodes, opens, tree));
                if (!TreeIsGood(tree)) return Error(Code::kUnavailable, "the state cannot be read");
                return true;
              };
              Reply(core, Kind::kRead, done, take());
              Settle(core);
            });
}

void Disk::Reclaim(ReclaimRequest request, Done<ReclaimReply> done) {
  auto shared = std::make_shared<const ReclaimRequest>(std::move(request));
  Run<ReclaimReply>(Kind::kChange, std::move(done), [this, shared, received = host_.Now()](DiskCore& core, Done<ReclaimReply> done) {
    const auto take = [&]() -> Result<ReclaimReply> {
      const SessionId session = shared->session;
      ARCHIL_ASSIGN_OR_RETURN(const SessionRecord* rec, LiveSession(core, session, &shared->key, received, Claim::kNot));
      StateTree tree(*core.kv);
      DelegationEffects effects;
      auto number = core.table.Reclaim(*shared, tree, effects);
      Do(core, effects);
      if (!TreeIsGood(tree)) return Error(Code::kUnavailable, "the state cannot be read");
      if (number.ok()) {
        if (const Status s = core.locks.Adopt(rec->branch, session, Untaken(core, session, shared->locks), {}); !s.ok()) number = s.error();
      }
      if (number.code() == Code::kFenced) {
        const std::string why(number.error().message());
        ARCHIL_RETURN_IF_ERROR(EndSession(core, session, true, why));
        return Error(Code::kFenced, fmt::format("session {:x} has ended: {}", session.value, why));
      }
      ARCHIL_RETURN_IF_ERROR(number);
      core.table.Renew(session, received);
      core.server_ops[session].Finished(shared->finished_ops);
      core.locks.Finished(session, shared->finished_locks);
      ++host_.metrics.reclaims;
      return ReclaimReply{*number};
    };
    Reply(core, Kind::kChange, done, take());
    Settle(core);
  });
}

void Disk::SettleTaken(SettleRequest request, Done<bool> done) {
  auto shared = std::make_shared<const SettleRequest>(std::move(request));
  Run<bool>(Kind::kChange, std::move(done), [this, shared, received = host_.Now()](DiskCore& core, Done<bool> done) {
    const auto settle = [&]() -> Result<bool> {
      const SessionId session = shared->session;
      ARCHIL_ASSIGN_OR_RETURN(SessionRecord * rec, LiveSession(core, session, &shared->key, received, Claim::kUnsettled));
      ARCHIL_RETURN_IF_ERROR(core.table.CheckSettle(session));
      SettledRecord record{session, {}, std::max(shared->last, rec->applied)};
      for (const Taken& t : core.table.TakenOf(session)) {
        if (std::find(shared->taken.begin(), shared->taken.end(), t.ino) != shared->taken.end()) record.taken.push_back(t.ino);
      }
      if (record.taken.empty()) return true;  // a repeat
      ARCHIL_RETURN_IF_ERROR(Change(core, record));
      rec->applied = record.last;
      core.table.Settle(session, record.taken);
      ++host_.metrics.settles;
      return true;
    };
    Reply(core, Kind::kChange, done, settle());
  });
}

void Disk::ListRights(uint32_t limit, Done<std::vector<RightInfo>> done) {
  if (limit == 0 || limit > kMaxRightsListed) limit = kMaxRightsListed;
  Run<std::vector<RightInfo>>(Kind::kRead, std::move(done), [limit](DiskCore& core, Done<std::vector<RightInfo>> done) {
    if (core.deleted) return done(Error(Code::kNoSuchDisk, "the disk was deleted"));
    Reply(core, Kind::kRead, done, Result<std::vector<RightInfo>>(core.table.List(limit)));
  });
}

}  // namespace archil
