#include "server/meta/apply.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/format/op_codec.h"
#include "server/meta/ops/inode_rules.h"

namespace archil {
namespace {

Result<DiskRecord> LoadDisk(Txn& txn) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, txn.GetDisk(DiskKey()));
  if (!raw) return Error(Code::kCorrupt, "the disk's own record is missing");
  return DecodeDisk(*raw);
}

Result<SessionRecord> LoadLiveSession(Txn& txn, SessionId id) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, txn.GetDisk(SessionTableKey(id)));
  if (!raw) return Refuse(fmt::format("session {} does not exist", id.value));
  ARCHIL_ASSIGN_OR_RETURN(SessionRecord rec, DecodeSession(*raw));
  if (rec.state != SessionRecord::State::kLive) return Refuse(fmt::format("session {} has ended", id.value));
  return rec;
}

Status Apply(Txn& txn, const DiskCreatedRecord& r) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, txn.GetDisk(DiskKey()));
  if (raw) return Refuse("the disk was created before");
  DiskRecord disk;
  disk.id = r.disk;
  disk.name = r.name;
  disk.created = r.created;
  disk.quota_bytes = r.quota_bytes;
  txn.PutDisk(DiskKey(), Encode(disk));
  const BranchRecord main{kMainBranch, "main", Epoch{1}, Epoch{1}, BranchId{0}, Epoch{0}};
  txn.PutDisk(BranchKey(main.id), Encode(main));
  ARCHIL_RETURN_IF_ERROR(txn.UseNewBranch(main));
  Attr& root = txn.CreateInode(kRootInode).attr;
  root.type = FileType::kDirectory;
  root.mode = 0755;
  root.nlink = 2;
  root.atime = root.mtime = root.ctime = root.btime = r.created;
  root.change = 1;
  ARCHIL_ASSIGN_OR_RETURN(CountersRecord * counters, txn.MutableCounters());
  counters->inodes = 1;
  return Ok();
}

Status Apply(Txn& txn, const SessionOpenedRecord& r) {
  ARCHIL_ASSIGN_OR_RETURN(DiskRecord disk, LoadDisk(txn));
  if (r.session.value < disk.next_session) return Refuse("a session's number was used before");
  disk.next_session = r.session.value + 1;
  SessionRecord session;
  session.id = r.session;
  session.key = r.key;
  session.branch = r.branch;
  session.mode = r.mode;
  session.client_name = r.client_name;
  session.opened = r.opened;
  session.lease_ms = r.lease_ms;
  session.sharing = r.sharing;
  txn.PutDisk(DiskKey(), Encode(disk));
  txn.PutDisk(SessionTableKey(r.session), Encode(session));
  return Ok();
}

Status ForgetOldSessions(Txn& txn) {
  ARCHIL_ASSIGN_OR_RETURN(auto sessions, txn.ListDisk(SessionPrefix()));
  std::vector<std::string> ended;
  for (const auto& [key, value] : sessions) {
    ARCHIL_ASSIGN_OR_RETURN(const SessionRecord rec, DecodeSession(value));
    if (rec.state != SessionRecord::State::kLive) ended.push_back(key);
  }
  for (size_t i = 0; i + kEndedSessionsKept < ended.size(); ++i) txn.DeleteDisk(ended[i]);
  return Ok();
}

// Its unused inode numbers are lost on purpose: numbers are never given twice.
Status DropRanges(Txn& txn, SessionId session) {
  ARCHIL_ASSIGN_OR_RETURN(auto ranges, txn.ListDisk(RangePrefix()));
  ARCHIL_ASSIGN_OR_RETURN(auto used, txn.ListDisk(TablePrefix(Table::kUsed)));
  for (const auto& [key, value] : ranges) {
    ARCHIL_ASSIGN_OR_RETURN(const RangeRecord rec, DecodeRange(value));
    if (rec.session != session) continue;
    const uint64_t block = FirstIdOfKey(key);
    for (const auto& [used_key, bits] : used) {
      if (FirstIdOfKey(used_key) / (kInodeRange / kInodesPerUsed) == block) txn.DeleteDisk(used_key);
    }
    txn.DeleteDisk(key);
  }
  return Ok();
}

Status OrphanSegments(Txn& txn, SessionId session) {
  ARCHIL_ASSIGN_OR_RETURN(auto segments, txn.ListDisk(SegmentPrefix()));
  for (const auto& [key, value] : segments) {
    ARCHIL_ASSIGN_OR_RETURN(SegmentRecord rec, DecodeSegment(value));
    if (rec.session != session) continue;
    if (rec.state != SegmentRecord::State::kWritable && rec.state != SegmentRecord::State::kReleased) continue;
    rec.state = SegmentRecord::State::kOrphaned;
    ++rec.token;
    txn.PutDisk(key, Encode(rec));
  }
  return Ok();
}

Status DropServerOps(Txn& txn, SessionId session, uint64_t below) {
  ARCHIL_ASSIGN_OR_RETURN(auto results, txn.ListDisk(ServerOpPrefix(session)));
  const std::string first_kept = ServerOpKey(session, below);
  for (auto& [key, value] : results) {
    if (key < first_kept) txn.DeleteDisk(std::move(key));
  }
  return Ok();
}

Status Apply(Txn& txn, const SessionEndedRecord& r) {
  ARCHIL_ASSIGN_OR_RETURN(SessionRecord session, LoadLiveSession(txn, r.session));
  ARCHIL_RETURN_IF_ERROR(txn.UseBranch(session.branch));
  ARCHIL_ASSIGN_OR_RETURN(auto orphans, txn.List(OrphanPrefix()));
  for (const auto& [key, value] : orphans) {
    ARCHIL_ASSIGN_OR_RETURN(const OrphanRecord rec, DecodeOrphan(value));
    if (std::find(rec.sessions.begin(), rec.sessions.end(), r.session) == rec.sessions.end()) continue;
    ARCHIL_RETURN_IF_ERROR(DropOrphanReference(txn, r.session, InodeId{FirstIdOfKey(key)}));
  }
  ARCHIL_ASSIGN_OR_RETURN(auto taken, txn.ListDisk(TakenPrefix(r.session)));
  for (auto& [key, value] : taken) txn.DeleteDisk(std::move(key));
  ARCHIL_RETURN_IF_ERROR(DropRanges(txn, r.session));
  ARCHIL_RETURN_IF_ERROR(OrphanSegments(txn, r.session));
  ARCHIL_RETURN_IF_ERROR(DropServerOps(txn, r.session, UINT64_MAX));
  session.state = r.fenced ? SessionRecord::State::kFenced : SessionRecord::State::kClosed;
  session.end_reason = r.reason;
  session.credit = 0;
  txn.PutDisk(SessionTableKey(r.session), Encode(session));
  return ForgetOldSessions(txn);
}

class RecordedOpens final : public OpenQuery {
 public:
  explicit RecordedOpens(const std::vector<CommitRecord::Open>& opens) : opens_(opens) {}
  std::vector<SessionId> OpenElsewhere(InodeId ino) override {
    for (const auto& o : opens_) {
      if (o.ino == ino) return o.sessions;
    }
    return {};
  }

 private:
  const std::vector<CommitRecord::Open>& opens_;
};

Status Apply(Txn& txn, const CommitRecord& r) {
  ARCHIL_ASSIGN_OR_RETURN(const std::vector<Op> ops, DecodeOps(r.ops));
  RecordedOpens opens(r.opens);
  return ApplyCommit(txn, r.session, r.first, r.last, ops, nullptr, &opens, nullptr);
}

Status Apply(Txn& txn, const ServerOpRecord& r) {
  ARCHIL_ASSIGN_OR_RETURN(const std::vector<Op> ops, DecodeOps(r.ops));
  ARCHIL_ASSIGN_OR_RETURN(const SessionRecord session, LoadLiveSession(txn, r.session));
  ARCHIL_RETURN_IF_ERROR(txn.UseBranch(session.branch));
  RecordedOpens opens(r.opens);
  ARCHIL_RETURN_IF_ERROR(ApplyServerOp(txn, r, ops, &opens));
  return Ok();
}

Status Apply(Txn& txn, const RangeGrantedRecord& r) {
  ARCHIL_ASSIGN_OR_RETURN(DiskRecord disk, LoadDisk(txn));
  ARCHIL_RETURN_IF_ERROR(LoadLiveSession(txn, r.session));
  if (r.block < disk.next_inode_block) return Refuse("a block of inode numbers was granted before");
  disk.next_inode_block = r.block + 1;
  txn.PutDisk(DiskKey(), Encode(disk));
  txn.PutDisk(RangeKey(r.block), Encode(RangeRecord{r.session}));
  return Ok();
}

Status Apply(Txn& txn, const SegmentsGrantedRecord& r) {
  ARCHIL_ASSIGN_OR_RETURN(DiskRecord disk, LoadDisk(txn));
  ARCHIL_RETURN_IF_ERROR(LoadLiveSession(txn, r.session));
  for (const auto& g : r.grants) {
    if (g.segment.value < disk.next_segment) return Refuse("a segment's number was used before");
    disk.next_segment = g.segment.value + 1;
    txn.PutDisk(SegmentTableKey(g.segment), Encode(SegmentRecord{g.segment, r.session, SegmentRecord::State::kWritable, g.token, g.servers}));
  }
  txn.PutDisk(DiskKey(), Encode(disk));
  return Ok();
}

Result<SegmentRecord> LoadSegment(Txn& txn, SegmentId id) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, txn.GetDisk(SegmentTableKey(id)));
  if (!raw) return Refuse(fmt::format("segment {} does not exist", id.value));
  return DecodeSegment(*raw);
}

Status Apply(Txn& txn, const SegmentsReleasedRecord& r) {
  ARCHIL_RETURN_IF_ERROR(LoadLiveSession(txn, r.session));
  for (SegmentId id : r.segments) {
    ARCHIL_ASSIGN_OR_RETURN(SegmentRecord rec, LoadSegment(txn, id));
    if (rec.session != r.session) return Refuse(fmt::format("segment {} is not of this session", id.value));
    if (rec.state == SegmentRecord::State::kWritable) rec.state = SegmentRecord::State::kReleased;
    txn.PutDisk(SegmentTableKey(id), Encode(rec));
  }
  return Ok();
}

Status Apply(Txn& txn, const SegmentsCondemnedRecord& r) {
  for (SegmentId id : r.segments) {
    ARCHIL_ASSIGN_OR_RETURN(SegmentRecord rec, LoadSegment(txn, id));
    rec.state = SegmentRecord::State::kCondemned;
    txn.PutDisk(SegmentTableKey(id), Encode(rec));
  }
  return Ok();
}

Status Apply(Txn& txn, const SegmentsDeletedRecord& r) {
  for (SegmentId id : r.segments) {
    ARCHIL_ASSIGN_OR_RETURN(const SegmentRecord rec, LoadSegment(txn, id));
    if (rec.state != SegmentRecord::State::kCondemned) return Refuse("a segment was deleted that was not condemned");
    txn.DeleteDisk(SegmentTableKey(id));
  }
  return Ok();
}

Status Apply(Txn& txn, const TakenRecord& r) {
  ARCHIL_RETURN_IF_ERROR(LoadLiveSession(txn, r.session));
  for (const Taken& t : r.taken) {
    ARCHIL_ASSIGN_OR_RETURN(auto raw, txn.GetDisk(TakenKey(r.session, t.ino)));
    TakenMark mark;
    if (raw) {
      ARCHIL_ASSIGN_OR_RETURN(mark, DecodeTaken(*raw));
    }
    mark.right = mark.right || t.right;
    mark.locks = mark.locks || t.locks;
    txn.PutDisk(TakenKey(r.session, t.ino), Encode(mark));
  }
  return Ok();
}

Status Apply(Txn& txn, const SettledRecord& r) {
  ARCHIL_ASSIGN_OR_RETURN(SessionRecord session, LoadLiveSession(txn, r.session));
  for (InodeId ino : r.taken) txn.DeleteDisk(TakenKey(r.session, ino));
  session.applied = std::max(session.applied, r.last);
  txn.PutDisk(SessionTableKey(r.session), Encode(session));
  return Ok();
}

Status Apply(Txn& txn, const SpaceReservedRecord& r) {
  ARCHIL_ASSIGN_OR_RETURN(SessionRecord session, LoadLiveSession(txn, r.session));
  session.credit = r.credit;
  session.space_request = r.request;
  txn.PutDisk(SessionTableKey(r.session), Encode(session));
  return Ok();
}

}  // namespace

Status ApplyRecord(Txn& txn, const LogRecord& record) {
  return std::visit([&](const auto& r) { return Apply(txn, r); }, record);
}

Status ApplyCommit(Txn& txn, SessionId session, Seq first, Seq last, const std::vector<Op>& ops, RightsCheck* rights,
                   OpenQuery* opens, SpaceUse* use) {
  ARCHIL_ASSIGN_OR_RETURN(SessionRecord rec, LoadLiveSession(txn, session));
  // A read-only session has files open as well, and closes them.
  const bool closes =
      std::all_of(ops.begin(), ops.end(), [](const Op& op) { return std::holds_alternative<ReleaseOrphanOp>(op); });
  if (rec.mode != SessionMode::kReadWrite && !closes) return Refuse("the session is read-only");
  if (first.value != rec.applied.value + 1 || last < first) {
    return Refuse(fmt::format("ops {}..{} do not follow op {}, the newest applied", first.value, last.value, rec.applied.value));
  }
  ARCHIL_RETURN_IF_ERROR(txn.UseBranch(rec.branch));
  OpEnv env{txn, session, rights, opens};
  // Charged in the same way when it is replayed; where nothing was reserved nothing is counted.
  const bool charged = rec.credit != 0 || use != nullptr;
  uint64_t before = 0;
  if (charged) {
    ARCHIL_ASSIGN_OR_RETURN(const CountersRecord* counters, txn.MutableCounters());
    before = counters->bytes;
  }
  ARCHIL_RETURN_IF_ERROR(ApplyOps(env, ops));
  if (charged) {
    ARCHIL_ASSIGN_OR_RETURN(const CountersRecord* counters, txn.MutableCounters());
    const uint64_t added = counters->bytes > before ? counters->bytes - before : 0;
    if (use != nullptr) *use = {added, added - std::min(rec.credit, added)};
    rec.credit -= std::min(rec.credit, added);
  }
  rec.applied = last;
  txn.PutDisk(SessionTableKey(session), Encode(rec));
  return Ok();
}

namespace {

// One by one: a scan would meet what was deleted before, more each time.
Status FinishServerOps(Txn& txn, SessionId session, uint64_t finished) {
  const std::string mark = ServerOpKey(session, 0);
  uint64_t before = 1;
  ARCHIL_ASSIGN_OR_RETURN(const auto raw, txn.GetDisk(mark));
  if (raw) {
    ARCHIL_ASSIGN_OR_RETURN(before, DecodeFinished(*raw));
  }
  if (raw && finished <= before) return Ok();
  if (finished > before && finished - before > kMaxServerOps) {
    ARCHIL_RETURN_IF_ERROR(DropServerOps(txn, session, finished));
  } else {
    for (uint64_t id = std::max<uint64_t>(before, 1); id < finished; ++id) txn.DeleteDisk(ServerOpKey(session, id));
  }
  txn.PutDisk(mark, EncodeFinished(finished));
  return Ok();
}

}  // namespace

Result<ServerResultRecord> ApplyServerOp(Txn& txn, const ServerOpRecord& record, const std::vector<Op>& ops,
                                         OpenQuery* opens) {
  OpEnv env{txn, record.session, nullptr, opens};
  ARCHIL_RETURN_IF_ERROR(ApplyOps(env, ops));
  ServerResultRecord result;
  result.removed = record.removed;
  if (record.shown) {
    ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, txn.FindInode(record.shown));
    if (inode != nullptr) result.inode = *inode;
  }
  ARCHIL_RETURN_IF_ERROR(FinishServerOps(txn, record.session, record.finished));
  txn.PutDisk(ServerOpKey(record.session, record.id), Encode(result));
  return result;
}

}  // namespace archil
