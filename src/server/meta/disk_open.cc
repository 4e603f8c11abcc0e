// Opening a disk: see docs/failure-model.md ("The metadata log") for each crash point and why it is safe.
//
//   state ─ new epoch in the manifest ─ fence ─ replay ─ close the old segment and open a new one ─ serve
#include <fmt/format.h>

#include "server/meta/apply.h"
#include "server/meta/listing.h"
#include "server/meta/disk_core.h"
#include "server/meta/log/log_reader.h"

namespace archil {
namespace {

constexpr absl::Duration kOpenDeadline = absl::Minutes(5);

Result<Lsn> AppliedOf(KvView& kv) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, GetDiskWide(kv, AppliedKey()));
  if (!raw) return Lsn{0};
  return DecodeApplied(*raw);
}

Status ApplyToState(KvStore& kv, Lsn lsn, const LogRecord& record) {
  Txn txn(kv);
  ARCHIL_RETURN_IF_ERROR(ApplyRecord(txn, record));
  txn.PutDisk(AppliedKey(), EncodeApplied(lsn));
  ARCHIL_ASSIGN_OR_RETURN(const KvBatch batch, txn.Finish());
  return kv.Write(batch);
}

Result<std::unique_ptr<KvStore>> OpenState(const DiskHost& host, DiskId id) {
  const std::string dir = JoinPath(DiskDir(host.config, id), "state");
  ARCHIL_RETURN_IF_ERROR(host.env.files.MakeDirs(dir));
  return host.env.open_kv(dir);
}

// From here on no older leader extends the log.
Result<uint64_t> FenceLog(const DiskHost& host, const OpContext& ctx, DiskId id, const Manifest& m) {
  if (m.segments.empty() || m.segments.back().closed) return uint64_t{0};
  const LogSegment& open = m.segments.back();
  DataService* server = host.env.data.ById(open.servers[0]);
  if (server == nullptr) return Error(Code::kUnavailable, fmt::format("data server {} with the log is not known", open.servers[0]));
  auto info = server->Fence(ctx, {id, open.segment}, m.epoch);
  if (!info.ok()) {
    if (info.error().band() == Band::kVerdict) return info.error();
    return Error(Code::kUnavailable, fmt::format("fencing the log: {}", info.error().ToString()));
  }
  return info->length;
}

// The old open segment ends where its last whole record ends; an empty one is dropped.
Status StartSegment(const DiskHost& host, const LogEnd& end, ManifestStore& store, Manifest& m) {
  Manifest next = m;
  uint32_t last_server = 0;
  if (!next.segments.empty()) {
    LogSegment& old = next.segments.back();
    last_server = old.servers[0];
    if (!old.closed) {
      old.closed = true;
      old.end = end.open_end;
      if (old.end == 0) next.segments.pop_back();
    }
  }
  // Stays where it was: moving is for servers that fail.
  uint32_t server = last_server;
  if (last_server == 0 || host.env.data.ById(last_server) == nullptr) {
    ARCHIL_ASSIGN_OR_RETURN(server, PickLogServer(host.env.data, next.next_segment, 0));
  }
  next.segments.push_back({SegmentId{kLogSegmentBit | next.next_segment++}, Lsn{end.last.value + 1}, false, 0, {server}});
  ARCHIL_RETURN_IF_ERROR(store.Store(next));
  m = std::move(next);
  return Ok();
}

Status LoadSessions(const DiskHost& host, DiskCore& core) {
  Status bad = Ok();
  const BootTime now = host.Now();
  ARCHIL_RETURN_IF_ERROR(ScanDiskWide(*core.kv, SessionPrefix(), [&](std::string_view, std::string_view value) {
    auto rec = DecodeSession(value);
    if (!rec.ok()) {
      bad = rec.error();
      return false;
    }
    if (rec->state == SessionRecord::State::kLive) {
      // Known sessions have a fresh lease: nobody can have renewed while there was no server.
      // What they hold is not in the log: they are to say it.
      const Lease lease{now, absl::Milliseconds(static_cast<int64_t>(rec->lease_ms))};
      core.table.Add({rec->id, rec->branch, rec->mode, rec->sharing, rec->client_name, lease}, FirstNumber(core.epoch), DelegationTable::Birth::kUnclaimed);
      core.space.Set(rec->id, rec->credit);
    }
    core.sessions[rec->id] = std::move(*rec);
    return true;
  }));
  ARCHIL_RETURN_IF_ERROR(bad);
  StateTree tree(*core.kv);
  ARCHIL_RETURN_IF_ERROR(ScanDiskWide(*core.kv, TakenPrefix(), [&](std::string_view key, std::string_view value) {
    const auto mark = DecodeTaken(value);
    if (!mark.ok()) {
      bad = mark.error();
      return false;
    }
    core.table.Take(SessionId{FirstIdOfKey(key)}, {TakenOfKey(key), mark->right, mark->locks}, tree);
    return true;
  }));
  ARCHIL_RETURN_IF_ERROR(bad);
  return tree.status();
}

Status LoadDiskRecord(DiskCore& core) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, GetDiskWide(*core.kv, DiskKey()));
  if (!raw) return Error(Code::kCorrupt, "the disk's own record is missing");
  ARCHIL_ASSIGN_OR_RETURN(core.disk, DecodeDisk(*raw));
  return Ok();
}

struct Replayed {
  LogEnd end;
  uint64_t bytes = 0;
};

Result<Replayed> Replay(const DiskHost& host, const OpContext& ctx, DiskId id, const Manifest& m, uint64_t open_length, KvStore& kv, Lsn applied) {
  Replayed out;
  ARCHIL_ASSIGN_OR_RETURN(out.end, ReadLog(ctx, host.env.data, id, m, open_length, applied, [&](LogFrame&& frame) -> Status {
                            out.bytes += frame.size;
                            const Status s = ApplyToState(kv, frame.lsn, frame.record);
                            if (s.ok()) return Ok();
                            // What is in the log was allowed when it was written.
                            const Code code = s.code() == Code::kIo ? Code::kIo : Code::kCorrupt;
                            return Error(code, fmt::format("record {} of the log cannot be applied: {}", frame.lsn.value, s.error().ToString()));
                          }));
  host.metrics.replayed_records += out.end.records;
  host.metrics.torn_bytes_cut += out.end.torn;
  return out;
}

}  // namespace

std::string DiskDir(const MetaServerConfig& config, DiskId id) {
  return JoinPath(JoinPath(config.dir, "disks"), fmt::format("{:016x}", id.value));
}

Result<std::unique_ptr<DiskCore>> OpenDiskCore(const DiskHost& host, DiskId id, const std::optional<DiskCreatedRecord>& create,
                                               LogWriter::Hooks hooks) {
  OpContext ctx;
  ctx.deadline = host.Now() + kOpenDeadline;
  auto core = std::make_unique<DiskCore>(host.config);
  ARCHIL_ASSIGN_OR_RETURN(core->kv, OpenState(host, id));
  ARCHIL_ASSIGN_OR_RETURN(Lsn applied, AppliedOf(*core->kv));

  ManifestStore store(host.coord, id);
  ARCHIL_ASSIGN_OR_RETURN(Manifest manifest, store.Load());
  ++manifest.epoch;
  ARCHIL_RETURN_IF_ERROR(host.env.faults.Hit("meta.open.epoch"));
  ARCHIL_RETURN_IF_ERROR(store.Store(manifest));
  ARCHIL_ASSIGN_OR_RETURN(const uint64_t open_length, FenceLog(host, ctx, id, manifest));
  ARCHIL_RETURN_IF_ERROR(host.env.faults.Hit("meta.open.fenced"));

  ARCHIL_ASSIGN_OR_RETURN(Replayed replayed, Replay(host, ctx, id, manifest, open_length, *core->kv, applied));
  if (applied > replayed.end.last) {
    // The state is ahead of the log. That must not happen (it is flushed behind the log only), and what it holds was never
    // answered: throw it away, the log has everything.
    core->kv.reset();
    ARCHIL_RETURN_IF_ERROR(host.env.files.RemoveTree(JoinPath(DiskDir(host.config, id), "state")));
    ARCHIL_ASSIGN_OR_RETURN(core->kv, OpenState(host, id));
    applied = Lsn{0};
    ARCHIL_ASSIGN_OR_RETURN(replayed, Replay(host, ctx, id, manifest, open_length, *core->kv, applied));
  }
  ARCHIL_RETURN_IF_ERROR(host.env.faults.Hit("meta.open.replayed"));
  ARCHIL_RETURN_IF_ERROR(StartSegment(host, replayed.end, store, manifest));
  core->epoch = manifest.epoch;
  core->applied = replayed.end.last;
  core->flushed = applied;
  core->unflushed_log_bytes = replayed.bytes;
  core->last_flush = host.Now();
  core->log = std::make_unique<LogWriter>(LogWriterEnv{host.env.scheduler, host.log_pool, host.env.data, host.env.faults}, id, std::move(store),
                                          std::move(manifest), core->applied, host.config.log_segment_bytes, std::move(hooks));
  if (core->applied.value == 0) {
    if (!create) return Error(Code::kCorrupt, "the log of the disk is empty");
    core->applied = Lsn{1};
    ARCHIL_RETURN_IF_ERROR(ApplyToState(*core->kv, core->applied, *create));
    Notification logged(host.env.scheduler);
    Status outcome = Ok();
    core->log->Submit(core->applied, EncodeLogRecord(core->applied, *create), [&](Status s) {
      outcome = s;
      logged.Notify();
    });
    logged.Wait();
    ARCHIL_RETURN_IF_ERROR(outcome);
  }
  ARCHIL_RETURN_IF_ERROR(LoadDiskRecord(*core));
  ARCHIL_RETURN_IF_ERROR(LoadSessions(host, *core));
  return core;
}

}  // namespace archil
