// Credits of sessions on a disk with a quota (docs/quota.md). The book decides on the strand, each decision is a log record.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/meta/apply.h"
#include "server/meta/disk.h"
#include "server/meta/store/records.h"

namespace archil {

Result<uint64_t> Disk::UsedBytes(DiskCore& core) {
  const Records main(*core.kv, BranchChain{{{kMainBranch, Epoch{UINT64_MAX}}}, false});
  ARCHIL_ASSIGN_OR_RETURN(const CountersRecord counters, main.GetCounters());
  return counters.bytes;
}

Credit Disk::CreditOf(const DiskCore& core, const SessionRecord& session) {
  if (core.disk.quota_bytes == 0) return {};
  return {core.applied, session.applied, session.credit};
}

Status Disk::SetCredit(DiskCore& core, SessionId session, uint64_t request, uint64_t credit) {
  ARCHIL_RETURN_IF_ERROR(Change(core, SpaceReservedRecord{session, request, credit}));
  SessionRecord& rec = core.sessions[session];
  rec.credit = credit;
  rec.space_request = request;
  core.space.Set(session, credit);
  ++host_.metrics.space_reservations;
  return Ok();
}

void Disk::ReserveSpace(ReserveSpaceRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket, Done<Credit> done) {
  const uint64_t wait = next_wait_.fetch_add(1);
  Run<Credit>(Kind::kChange, std::move(done), [this, wait, request, deadline, received = host_.Now()](DiskCore& core, Done<Credit> done) {
    if (host_.draining.load()) return done(Error(Code::kUnavailable, "the server is stopping"));
    const auto begin = [&]() -> Result<std::optional<Credit>> {
      ARCHIL_ASSIGN_OR_RETURN(const SessionRecord* rec, LiveSession(core, request.session, &request.key, received, Claim::kUnsettled));
      if (core.disk.quota_bytes == 0) return Error(Code::kInvalid, "the disk has no quota: there is nothing to reserve");
      if (request.least > request.wanted) return Error(Code::kInvalid, "at least more than wanted");
      if (rec->mode == SessionMode::kReadOnly) return Error(Code::kReadOnly, "the session is read-only");
      if (request.message != 0) core.space.Returned(request.session, request.message);
      if (request.id <= rec->space_request) return std::optional<Credit>(CreditOf(core, *rec));
      for (const uint64_t older : core.space.Overtaken(request.session, request.id)) {
        if (auto waited = core.space_waits.extract(older)) Reply(core, Kind::kRead, waited.mapped(), Result<Credit>(CreditOf(core, *rec)));
      }
      if (request.wanted > rec->credit) return std::optional<Credit>();
      ARCHIL_RETURN_IF_ERROR(SetCredit(core, request.session, request.id, request.wanted));
      return std::optional<Credit>(CreditOf(core, *rec));
    };
    auto known = begin();
    if (!known.ok()) {
      Reply(core, Kind::kChange, done, Result<Credit>(known.error()));
    } else if (*known) {
      Reply(core, Kind::kChange, done, Result<Credit>(**known));
    } else {
      core.space.Add({wait, request.session, request.id, request.least, request.wanted, deadline, {}});
      core.space_waits[wait] = done;
    }
    if (!core.space_waits.empty()) Settle(core);
    MaybeFlush(core);
  });
  OnCancel(ticket, wait);
}

// Of those that wait, in order of arrival.
void Disk::LookAtSpace(DiskCore& core, BootTime now, DelegationEffects& out) {
  if (!core.space.Waiting()) return;
  if (core.flushing) {
    // The state may not change now.
    PostOnStrand(Kind::kChange, [self = shared_from_this()](DiskCore* core) {
      if (core != nullptr) self->Settle(*core);
    });
    return;
  }
  const auto used = UsedBytes(core);
  if (!used.ok()) return StepDownSoon(used.error());
  const auto live = [&] {
    std::vector<SessionId> sessions;
    for (const Holder& holder : core.table.Holders()) {
      if (holder.mode == SessionMode::kReadWrite && !holder.lease.Expired(now)) sessions.push_back(holder.session);
    }
    return sessions;
  };
  SpaceEffects effects;
  core.space.Look(core.disk.quota_bytes, *used, now, live, effects);
  for (const SpaceEffects::Grant& grant : effects.grants) {
    auto waited = core.space_waits.extract(grant.wait);
    if (const Status s = SetCredit(core, grant.session, grant.request, grant.credit); !s.ok()) return;  // the disk steps down
    if (waited) Reply(core, Kind::kChange, waited.mapped(), Result<Credit>(CreditOf(core, core.sessions[grant.session])));
  }
  for (const SpaceEffects::Failed& failed : effects.failed) {
    if (failed.error.code() == Code::kNoSpace) ++host_.metrics.space_refused;
    if (auto waited = core.space_waits.extract(failed.wait)) Reply(core, Kind::kRead, waited.mapped(), Result<Credit>(failed.error));
  }
  for (const SessionId session : effects.ask) {
    SessionMessage message;
    message.kind = SessionMessage::Kind::kReturnSpace;
    core.space.Asked(session, core.table.Tell(session, message, out));
    ++host_.metrics.space_asked;
  }
}

BootTime Disk::NextSpaceLook(const DiskCore& core, BootTime now) {
  BootTime next = core.space.NextDeadline();
  if (next == BootTime::Infinite()) return next;
  // Nobody is waited for any more whose lease runs out.
  for (const Holder& holder : core.table.Holders()) {
    if (!holder.lease.Expired(now)) next = std::min(next, holder.lease.heard + holder.lease.length);
  }
  return next;
}

void Disk::EndSpace(DiskCore& core, SessionId session, const Error& error) {
  for (const uint64_t wait : core.space.Overtaken(session, UINT64_MAX)) {
    if (auto waited = core.space_waits.extract(wait)) Reply(core, Kind::kRead, waited.mapped(), Result<Credit>(error));
  }
  core.space.Gone(session);
}

void Disk::CancelSpaceWait(DiskCore& core, uint64_t wait, const Error& error) {
  core.space.Cancel(wait);
  if (auto waited = core.space_waits.extract(wait)) waited.mapped()(error);
}

void Disk::FailSpaceWaits(DiskCore& core, const Error& error) {
  for (auto& [wait, done] : std::exchange(core.space_waits, {})) {
    core.space.Cancel(wait);
    done(error);
  }
}

// CRED-1 holds after what the transaction adds beyond the session's credit.
Result<bool> Disk::MayOverdraw(DiskCore& core, Txn& txn, SessionId session) {
  ARCHIL_ASSIGN_OR_RETURN(const CountersRecord* counters, txn.MutableCounters());
  return counters->bytes + (core.space.total() - core.space.CreditOf(session)) <= core.disk.quota_bytes;
}

}  // namespace archil
