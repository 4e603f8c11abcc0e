// Sessions of a disk: opening, renewing, ending, and what they are granted.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "server/meta/apply.h"
#include "server/meta/disk.h"

namespace archil {
namespace {

constexpr uint32_t kMaxSegmentsPerCall = 64;
// Sessions are found by their number alone, so it names the disk as well.
constexpr int kDiskShift = 32;

Result<BranchRecord> FindBranch(KvView& kv, const std::string& disk, const std::string& name) {
  std::optional<BranchRecord> found;
  Status bad = Ok();
  ARCHIL_RETURN_IF_ERROR(ScanDiskWide(kv, BranchPrefix(), [&](std::string_view, std::string_view value) {
    auto rec = DecodeBranch(value);
    if (!rec.ok()) {
      bad = rec.error();
      return false;
    }
    if (rec->name == name) found = std::move(*rec);
    return !found.has_value();
  }));
  ARCHIL_RETURN_IF_ERROR(bad);
  if (!found) return Error(Code::kNotFound, fmt::format("disk {} has no branch {}", disk, name));
  return *found;
}

bool IsSet(const SessionKey& key) { return key.hi != 0 || key.lo != 0; }

}  // namespace

Result<SessionRecord*> Disk::LiveSession(DiskCore& core, SessionId session, const SessionKey* key, BootTime received, Claim claim) {
  if (core.deleted) return Error(Code::kNoSuchDisk, "the disk was deleted");
  const auto it = core.sessions.find(session);
  if (it == core.sessions.end()) return Error(Code::kFenced, fmt::format("session {:x} is not known here: it ended long ago", session.value));
  SessionRecord& rec = it->second;
  if (key != nullptr && !(rec.key == *key)) return Error(Code::kPermission, "the key is not that of the session");
  if (rec.state != SessionRecord::State::kLive) {
    return Error(Code::kFenced, fmt::format("session {:x} has ended: {}", session.value, rec.end_reason));
  }
  if (claim != Claim::kNot && core.table.Unclaimed(session)) {
    return Error(Code::kUnavailable, "the server was restarted: the session has to reclaim what it holds first");
  }
  if (claim == Claim::kNeeded && core.table.Unsettled(session)) {
    return Error(Code::kUnavailable, "something was taken from the session while it was silent: it has to settle that first");
  }
  core.table.Renew(session, received);
  return &rec;
}

Status Disk::EndSession(DiskCore& core, SessionId session, bool fenced, std::string reason) {
  std::vector<SegmentRecord> to_seal;
  ARCHIL_RETURN_IF_ERROR(ScanDiskWide(*core.kv, SegmentPrefix(), [&](std::string_view, std::string_view value) {
    auto rec = DecodeSegment(value);
    if (rec.ok() && rec->session == session && rec->state == SegmentRecord::State::kWritable) {
      ++rec->token;
      to_seal.push_back(std::move(*rec));
    }
    return true;
  }));
  const std::shared_ptr<Disk> self = shared_from_this();
  ARCHIL_RETURN_IF_ERROR(Change(core, SessionEndedRecord{session, fenced, reason}, [self, to_seal] {
    self->SealInBackground(to_seal);
    self->ScheduleCollection();
  }));
  EndPoll(core, session, Error(Code::kFenced, fmt::format("session {:x} has ended: {}", session.value, reason)));
  DelegationEffects effects;
  core.table.Remove(session, fmt::format("session {:x} has ended: {}", session.value, reason), effects);
  Do(core, effects);
  SessionRecord& rec = core.sessions[session];
  EndLocks(core, session, rec.branch, Error(Code::kFenced, fmt::format("session {:x} has ended: {}", session.value, reason)));
  EndSpace(core, session, Error(Code::kFenced, fmt::format("session {:x} has ended: {}", session.value, reason)));
  rec.credit = 0;
  core.server_ops.erase(session);
  SettleSoon();
  rec.state = fenced ? SessionRecord::State::kFenced : SessionRecord::State::kClosed;
  rec.end_reason = std::move(reason);
  ++(fenced ? host_.metrics.sessions_fenced : host_.metrics.sessions_closed);
  // As the log record did: only the newest ended ones are remembered.
  size_t ended = 0;
  for (const auto& [id, s] : core.sessions) ended += s.state != SessionRecord::State::kLive;
  for (auto it = core.sessions.begin(); it != core.sessions.end() && ended > kEndedSessionsKept;) {
    if (it->second.state == SessionRecord::State::kLive) {
      ++it;
    } else {
      it = core.sessions.erase(it);
      --ended;
    }
  }
  return Ok();
}

// Refuses with who holds the disk, unless all in the way may be ended: by force, or because their lease has run out (FEN-1: their end
// is in the log before the new session is).
Status Disk::RefuseOrEnd(DiskCore& core, const std::vector<Holder>& in_the_way, const OpenSessionRequest& request) {
  const BootTime now = host_.Now();
  const std::string who = request.client_name.empty() ? "another client" : request.client_name;
  for (const Holder& holder : in_the_way) {
    if (request.force || holder.lease.Expired(now)) continue;
    const SessionRecord& rec = core.sessions[holder.session];
    const absl::Duration age = host_.env.scheduler.clock().Wall() - FromTimestamp(rec.opened);
    ++host_.metrics.sessions_refused;
    return Error(Code::kHeldElsewhere, HeldMessage(name_, rec.client_name, age, holder.lease.Silence(now), holder.lease.length));
  }
  for (const Holder& holder : in_the_way) {
    const std::string why = holder.lease.Expired(now) ? fmt::format("its lease had run out ({} s without a message) and {} wanted the disk",
                                                                    absl::ToInt64Seconds(holder.lease.Silence(now)), who)
                                                      : fmt::format("{} took the disk by force", who);
    ARCHIL_RETURN_IF_ERROR(EndSession(core, holder.session, true, why));
  }
  return Ok();
}

// Ends a predecessor proven dead, and what an exclusive session excludes.
Status Disk::MakeRoom(DiskCore& core, const OpenSessionRequest& request, BranchId branch) {
  if (request.predecessor) {
    const auto it = core.sessions.find(request.predecessor);
    if (it != core.sessions.end() && it->second.state == SessionRecord::State::kLive && it->second.key == request.predecessor_key) {
      ARCHIL_RETURN_IF_ERROR(EndSession(core, request.predecessor, true, fmt::format("ended by its successor {}", request.client_name)));
    }
  }
  const std::vector<Holder> others = core.table.OnBranch(branch);
  if (request.sharing == Sharing::kExclusive) return RefuseOrEnd(core, others, request);
  std::vector<Holder> exclusive;
  std::copy_if(others.begin(), others.end(), std::back_inserter(exclusive), [](const Holder& h) { return h.sharing == Sharing::kExclusive; });
  return RefuseOrEnd(core, exclusive, request);
}

Result<InodeRange> Disk::GrantRange(DiskCore& core, SessionId session) {
  const uint64_t block = core.disk.next_inode_block;
  ARCHIL_RETURN_IF_ERROR(Change(core, RangeGrantedRecord{session, block}));
  return InodeRange{InodeId{block * kInodeRange}, kInodeRange};
}

Result<OpenSessionReply> Disk::SessionReply(DiskCore& core, const SessionRecord& session, InodeRange range) {
  OpenSessionReply reply;
  reply.session = session.id;
  ARCHIL_ASSIGN_OR_RETURN(reply.disk, MakeInfo(core));
  ARCHIL_ASSIGN_OR_RETURN(const BranchChain chain, LoadBranchChain(*core.kv, session.branch));
  reply.branch = session.branch;
  reply.epoch = chain.epoch();
  reply.lease = absl::Milliseconds(static_cast<int64_t>(session.lease_ms));
  reply.inodes = range;
  reply.data_servers = host_.env.data.All();
  reply.server_time = host_.env.scheduler.clock().Wall();
  reply.number = core.table.AloneNumber(session.id);
  reply.alone = reply.number != 0;
  return reply;
}

void Disk::DoOpenSession(DiskCore& core, const OpenSessionRequest& request, BootTime received, const Done<OpenSessionReply>& done) {
  const auto open = [&]() -> Result<OpenSessionReply> {
    if (core.deleted) return Error(Code::kNoSuchDisk, "the disk was deleted");
    ARCHIL_ASSIGN_OR_RETURN(const BranchRecord branch, FindBranch(*core.kv, name_, request.branch));
    // The answer to the first try was lost: the secret key tells that it is the same client.
    for (auto& [id, rec] : core.sessions) {
      if (rec.state != SessionRecord::State::kLive || !IsSet(request.key) || !(rec.key == request.key)) continue;
      if (rec.applied.value != 0 || rec.client_name != request.client_name || rec.mode != request.mode || rec.branch != branch.id) continue;
      if (core.table.Unclaimed(id)) {
        // It was never answered, so it holds nothing.
        StateTree tree(*core.kv);
        DelegationEffects effects;
        ARCHIL_RETURN_IF_ERROR(core.table.Reclaim({id, rec.key, false, {}, {}}, tree, effects));
        if (!request.conditional) (void)core.table.MakeAlone(id);
      }
      core.table.Renew(id, received);
      InodeRange range;
      if (rec.mode == SessionMode::kReadWrite) {
        ARCHIL_ASSIGN_OR_RETURN(range, GrantRange(core, id));
      }
      return SessionReply(core, rec, range);
    }
    ARCHIL_RETURN_IF_ERROR(MakeRoom(core, request, branch.id));
    SessionRecord rec;
    rec.id = SessionId{std::max(core.disk.next_session, id_.value << kDiskShift | 1)};
    rec.key = request.key;
    rec.branch = branch.id;
    rec.mode = request.mode;
    rec.client_name = request.client_name.substr(0, 1024);
    rec.opened = ToTimestamp(host_.env.scheduler.clock().Wall());
    const absl::Duration lease = GrantedLease(request.lease, host_.config.default_lease, host_.config.min_lease, host_.config.max_lease);
    rec.lease_ms = static_cast<uint64_t>(absl::ToInt64Milliseconds(lease));
    rec.sharing = request.sharing;
    ARCHIL_RETURN_IF_ERROR(Change(
        core, SessionOpenedRecord{rec.id, rec.key, rec.branch, rec.mode, rec.client_name, rec.opened, rec.lease_ms, rec.sharing}));
    core.sessions[rec.id] = rec;
    core.table.Add({rec.id, rec.branch, rec.mode, rec.sharing, rec.client_name, Lease{received, lease}}, FirstNumber(core.epoch),
                   DelegationTable::Birth::kNew);
    if (!request.conditional) (void)core.table.MakeAlone(rec.id);
    ++host_.metrics.sessions_opened;
    InodeRange range;
    if (rec.mode == SessionMode::kReadWrite) {
      ARCHIL_ASSIGN_OR_RETURN(range, GrantRange(core, rec.id));
    }
    return SessionReply(core, rec, range);
  };
  Reply(core, Kind::kChange, done, open());
}

void Disk::OpenSession(OpenSessionRequest request, Done<OpenSessionReply> done) {
  Run<OpenSessionReply>(Kind::kChange, std::move(done), [this, request = std::move(request), received = host_.Now()](DiskCore& core, auto done) {
    DoOpenSession(core, request, received, done);
  });
}

void Disk::Renew(SessionId session, SessionKey key, uint64_t progress, Done<RenewReply> done) {
  // Nothing is logged, so a flush does not hold it up; and nobody loses its lease because the server has much to do.
  Run<RenewReply>(Kind::kHeartbeat, std::move(done), [this, session, key, progress, received = host_.Now()](DiskCore& core, auto done) {
    auto rec = LiveSession(core, session, &key, received, Claim::kNot);
    if (!rec.ok()) return Reply(core, Kind::kHeartbeat, done, Result<RenewReply>(rec.error()));
    ++host_.metrics.renewals;
    RenewReply reply;
    core.table.Progress(session, progress, received);
    core.table.Renew(session, received);
    reply.lease = core.table.LeaseLeft(session, received);
    reply.reclaim = core.table.Unclaimed(session);
    reply.taken = core.table.TakenOf(session);
    reply.applied = (*rec)->applied;
    reply.server_time = host_.env.scheduler.clock().Wall();
    reply.data_servers = host_.env.data.All();
    Reply(core, Kind::kHeartbeat, done, Result<RenewReply>(std::move(reply)));
  });
}

void Disk::CloseSession(SessionId session, SessionKey key, Done<bool> done) {
  Run<bool>(Kind::kChange, std::move(done), [this, session, key, received = host_.Now()](DiskCore& core, auto done) {
    const auto close = [&]() -> Result<bool> {
      // A repeat of a close that was answered, or not, is a success.
      const auto it = core.sessions.find(session);
      if (it != core.sessions.end() && it->second.state == SessionRecord::State::kClosed && it->second.key == key) return true;
      ARCHIL_RETURN_IF_ERROR(LiveSession(core, session, &key, received, Claim::kNot));
      ARCHIL_RETURN_IF_ERROR(EndSession(core, session, false, "it was closed"));
      return true;
    };
    Reply(core, Kind::kChange, done, close());
  });
}

void Disk::AllocateInodes(SessionId session, SessionKey key, Done<InodeRange> done) {
  Run<InodeRange>(Kind::kChange, std::move(done), [this, session, key, received = host_.Now()](DiskCore& core, auto done) {
    const auto allocate = [&]() -> Result<InodeRange> {
      ARCHIL_ASSIGN_OR_RETURN(SessionRecord * rec, LiveSession(core, session, &key, received));
      if (rec->mode == SessionMode::kReadOnly) return Error(Code::kReadOnly, "the session is read-only");
      return GrantRange(core, session);
    };
    Reply(core, Kind::kChange, done, allocate());
  });
}

void Disk::AllocateSegments(SessionId session, SessionKey key, uint32_t count, Done<std::vector<SegmentGrant>> done) {
  Run<std::vector<SegmentGrant>>(Kind::kChange, std::move(done), [this, session, key, count, received = host_.Now()](DiskCore& core, auto done) {
    const auto allocate = [&]() -> Result<std::vector<SegmentGrant>> {
      ARCHIL_ASSIGN_OR_RETURN(SessionRecord * rec, LiveSession(core, session, &key, received, Claim::kUnsettled));
      if (rec->mode == SessionMode::kReadOnly) return Error(Code::kReadOnly, "the session is read-only");
      if (count == 0 || count > kMaxSegmentsPerCall) return Error(Code::kInvalid, fmt::format("between 1 and {} segments per call", kMaxSegmentsPerCall));
      const std::vector<DataServerInfo> servers = host_.env.data.All();
      if (servers.empty()) return Error(Code::kUnavailable, "no data server is known: start one and name it to the metadata server");
      SegmentsGrantedRecord record{session, {}};
      std::vector<SegmentGrant> grants;
      for (uint32_t i = 0; i < count; ++i) {
        const uint64_t number = core.disk.next_segment + i;
        const DataServerInfo& server = servers[number % servers.size()];
        record.grants.push_back({SegmentId{number}, 1, {server.id}});
        grants.push_back({SegmentId{number}, 1, {server}});
      }
      ARCHIL_RETURN_IF_ERROR(Change(core, record));
      host_.metrics.segments_granted += count;
      return grants;
    };
    Reply(core, Kind::kChange, done, allocate());
  });
}

void Disk::ReleaseSegments(SessionId session, SessionKey key, std::vector<SegmentId> segments, Done<bool> done) {
  Run<bool>(Kind::kChange, std::move(done), [this, session, key, segments = std::move(segments), received = host_.Now()](DiskCore& core, auto done) {
    const auto release = [&]() -> Result<bool> {
      ARCHIL_RETURN_IF_ERROR(LiveSession(core, session, &key, received, Claim::kUnsettled));
      if (segments.size() > 65536) return Error(Code::kInvalid, "too many segments in one call");
      SegmentsReleasedRecord record{session, {}};
      std::vector<SegmentRecord> to_seal;
      for (SegmentId id : segments) {
        ARCHIL_ASSIGN_OR_RETURN(auto raw, GetDiskWide(*core.kv, SegmentTableKey(id)));
        if (!raw) return Error(Code::kInvalid, fmt::format("segment {} does not exist", id.value));
        ARCHIL_ASSIGN_OR_RETURN(SegmentRecord rec, DecodeSegment(*raw));
        if (rec.session != session) return Error(Code::kInvalid, fmt::format("segment {} is not of this session", id.value));
        if (rec.state != SegmentRecord::State::kWritable) continue;  // a repeat
        record.segments.push_back(id);
        to_seal.push_back(std::move(rec));
      }
      if (record.segments.empty()) return true;
      ARCHIL_RETURN_IF_ERROR(Change(core, record, [self = shared_from_this(), to_seal] { self->SealInBackground(to_seal); }));
      for (SegmentId id : record.segments) core.released_at[id] = host_.Now();
      return true;
    };
    Reply(core, Kind::kChange, done, release());
  });
}

Result<DiskInfo> Disk::MakeInfo(DiskCore& core) {
  DiskInfo info;
  info.id = id_;
  info.name = core.disk.name;
  info.created = core.disk.created;
  info.quota_bytes = core.disk.quota_bytes;
  const Records main(*core.kv, BranchChain{{{kMainBranch, Epoch{UINT64_MAX}}}, false});
  ARCHIL_ASSIGN_OR_RETURN(const CountersRecord counters, main.GetCounters());
  info.used_bytes = counters.bytes;
  info.used_inodes = counters.inodes;
  return info;
}

void Disk::Info(Done<DiskInfo> done) {
  Run<DiskInfo>(Kind::kRead, std::move(done), [this](DiskCore& core, auto done) {
    if (core.deleted) return done(Error(Code::kNoSuchDisk));
    auto info = MakeInfo(core);
    if (!info.ok()) return Reply(core, Kind::kRead, done, std::move(info));
    const BootTime now = host_.Now();
    for (const Holder& holder : core.table.Holders()) {
      const SessionRecord& rec = core.sessions[holder.session];
      info->clients.push_back({holder.session, rec.client_name, host_.env.scheduler.clock().Wall() - FromTimestamp(rec.opened), holder.lease.Expired(now)});
    }
    Reply(core, Kind::kRead, done, std::move(info));
  });
}

void Disk::PrepareDelete(bool force, Done<bool> done) {
  Run<bool>(Kind::kChange, std::move(done), [this, force](DiskCore& core, auto done) {
    const auto prepare = [&]() -> Result<bool> {
      const BootTime now = host_.Now();
      const std::vector<Holder> holders = core.table.Holders();
      for (const Holder& holder : holders) {
        if (force || holder.lease.Expired(now)) continue;
        const SessionRecord& rec = core.sessions[holder.session];
        const absl::Duration age = host_.env.scheduler.clock().Wall() - FromTimestamp(rec.opened);
        return Error(Code::kHeldElsewhere, HeldMessage(name_, rec.client_name, age, holder.lease.Silence(now), holder.lease.length));
      }
      for (const Holder& holder : holders) ARCHIL_RETURN_IF_ERROR(EndSession(core, holder.session, true, "the disk was deleted"));
      core.deleted = true;
      return true;
    };
    Reply(core, Kind::kChange, done, prepare());
  });
}

void Disk::CancelDelete() {
  RunOnStrand(Kind::kChange, [](DiskCore* core) {
    if (core != nullptr) core->deleted = false;
  });
}

}  // namespace archil
