#include "common/format/records.h"

#include <utility>

#include "common/base/bytes.h"
#include "common/base/checksum.h"

namespace archil {
namespace {

constexpr uint8_t kVersion = 1;
constexpr char kTombstone[1] = {0};

ByteWriter Begin(uint8_t version = kVersion) {
  ByteWriter w;
  w.U8(version);
  return w;
}

std::string Finish(ByteWriter& w) {
  w.U32(static_cast<uint32_t>(Checksum(w.str())));
  return w.Take();
}

Error Damaged(std::string_view what) { return Error(Code::kCorrupt, std::string(what) + " record is damaged"); }

// The body of a value whose version and checksum are good.
Result<std::string_view> BodyOf(std::string_view value, std::string_view what, uint8_t newest = kVersion) {
  if (value.size() < 5) return Damaged(what);
  const std::string_view covered = value.substr(0, value.size() - 4);
  ByteReader tail(value.substr(value.size() - 4));
  if (tail.U32() != static_cast<uint32_t>(Checksum(covered))) return Damaged(what);
  const auto version = static_cast<uint8_t>(covered[0]);
  if (version > newest) return Error(Code::kNotSupported, std::string(what) + " record of a newer version");
  if (version < kVersion) return Damaged(what);
  return covered.substr(1);
}

void Put(ByteWriter& w, Timestamp t) {
  w.I64(t.sec);
  w.U32(t.nsec);
}

Timestamp GetTime(ByteReader& r) {
  Timestamp t;
  t.sec = r.I64();
  t.nsec = r.U32();
  return t;
}

bool Valid(Timestamp t) { return t.nsec < 1'000'000'000; }

uint32_t Var32(ByteReader& r, bool& bad) {
  const uint64_t v = r.Varint();
  if (v > UINT32_MAX) bad = true;
  return static_cast<uint32_t>(v);
}

}  // namespace

std::string_view TombstoneValue() { return {kTombstone, 1}; }
bool IsTombstone(std::string_view value) { return value.size() == 1 && value[0] == 0; }

std::string Encode(const InodeRecord& rec) {
  const Attr& a = rec.attr;
  ByteWriter w = Begin();
  w.Varint(a.ino.value);
  w.U8(static_cast<uint8_t>(a.type));
  w.Varint(a.mode);
  w.Varint(a.uid);
  w.Varint(a.gid);
  w.Varint(a.nlink);
  w.Varint(a.size);
  w.Varint(a.allocated);
  w.Varint(a.rdev);
  Put(w, a.atime);
  Put(w, a.mtime);
  Put(w, a.ctime);
  Put(w, a.btime);
  w.Varint(a.change);
  w.LengthPrefixed(rec.target);
  w.Varint(rec.large_xattrs);
  w.Varint(rec.xattrs.size());
  for (const auto& [name, value] : rec.xattrs) {
    w.LengthPrefixed(name);
    w.LengthPrefixed(value);
  }
  return Finish(w);
}

Result<InodeRecord> DecodeInode(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "inode"));
  ByteReader r(body);
  InodeRecord rec;
  Attr& a = rec.attr;
  bool bad = false;
  a.ino = InodeId{r.Varint()};
  a.type = static_cast<FileType>(r.U8());
  a.mode = Var32(r, bad);
  a.uid = Var32(r, bad);
  a.gid = Var32(r, bad);
  a.nlink = Var32(r, bad);
  a.size = r.Varint();
  a.allocated = r.Varint();
  a.rdev = r.Varint();
  a.atime = GetTime(r);
  a.mtime = GetTime(r);
  a.ctime = GetTime(r);
  a.btime = GetTime(r);
  a.change = r.Varint();
  rec.target = std::string(r.LengthPrefixed());
  rec.large_xattrs = r.Varint();
  const uint64_t xattrs = r.Varint();
  for (uint64_t i = 0; i < xattrs && !r.failed(); ++i) {
    std::string name(r.LengthPrefixed());
    rec.xattrs[std::move(name)] = std::string(r.LengthPrefixed());
  }
  if (bad || !r.done() || !IsValid(a.type) || !Valid(a.atime) || !Valid(a.mtime) || !Valid(a.ctime) || !Valid(a.btime)) {
    return Damaged("inode");
  }
  return rec;
}

std::string Encode(const DentryRecord& rec) {
  ByteWriter w = Begin();
  w.Varint(rec.ino.value);
  w.U8(static_cast<uint8_t>(rec.type));
  return Finish(w);
}

Result<DentryRecord> DecodeDentry(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "dentry"));
  ByteReader r(body);
  DentryRecord rec;
  rec.ino = InodeId{r.Varint()};
  rec.type = static_cast<FileType>(r.U8());
  if (!r.done() || !IsValid(rec.type) || !rec.ino) return Damaged("dentry");
  return rec;
}

std::string Encode(const ChunkRecord& rec) {
  ByteWriter w = Begin();
  w.Varint(rec.extents.size());
  for (const StoredExtent& e : rec.extents) {
    w.Varint(e.begin);
    w.Varint(e.end - e.begin);
    w.U8(static_cast<uint8_t>(e.kind));
    if (e.kind == ExtentKind::kSegment) {
      w.Varint(e.segment.value);
      w.Varint(e.segment_offset);
    } else if (e.kind == ExtentKind::kInline) {
      w.Varint(e.bytes_offset);
      w.Varint(e.bytes_serial);
      w.Varint(e.skip);
    }
  }
  return Finish(w);
}

Result<ChunkRecord> DecodeChunk(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "chunk"));
  ByteReader r(body);
  ChunkRecord rec;
  const uint64_t count = r.Varint();
  uint64_t last_end = 0;
  bool bad = count == 0;
  for (uint64_t i = 0; i < count && !r.failed() && !bad; ++i) {
    StoredExtent e;
    const uint64_t begin = r.Varint();
    const uint64_t length = r.Varint();
    e.kind = static_cast<ExtentKind>(r.U8());
    if (begin < last_end || begin >= kChunkSize || length == 0 || length > kChunkSize - begin) bad = true;
    e.begin = static_cast<uint32_t>(begin);
    e.end = static_cast<uint32_t>(begin + length);
    last_end = begin + length;
    switch (e.kind) {
      case ExtentKind::kSegment:
        e.segment = SegmentId{r.Varint()};
        e.segment_offset = r.Varint();
        break;
      case ExtentKind::kInline:
        e.bytes_offset = r.Varint();
        e.bytes_serial = r.Varint();
        e.skip = Var32(r, bad);
        break;
      case ExtentKind::kZero: break;
      default: bad = true;
    }
    rec.extents.push_back(e);
  }
  if (bad || !r.done()) return Damaged("chunk");
  return rec;
}

std::string EncodeBlob(std::string_view bytes) {
  ByteWriter w = Begin();
  w.Bytes(bytes);
  return Finish(w);
}

Result<std::string> DecodeBlob(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "blob"));
  return std::string(body);
}

std::string Encode(const OrphanRecord& rec) {
  ByteWriter w = Begin();
  w.Varint(rec.sessions.size());
  for (SessionId s : rec.sessions) w.Varint(s.value);
  return Finish(w);
}

Result<OrphanRecord> DecodeOrphan(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "orphan"));
  ByteReader r(body);
  OrphanRecord rec;
  const uint64_t count = r.Varint();
  for (uint64_t i = 0; i < count && !r.failed(); ++i) rec.sessions.push_back(SessionId{r.Varint()});
  if (!r.done()) return Damaged("orphan");
  return rec;
}

std::string Encode(const CountersRecord& rec) {
  ByteWriter w = Begin();
  w.Varint(rec.bytes);
  w.Varint(rec.inodes);
  return Finish(w);
}

Result<CountersRecord> DecodeCounters(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "counters"));
  ByteReader r(body);
  CountersRecord rec;
  rec.bytes = r.Varint();
  rec.inodes = r.Varint();
  if (!r.done()) return Damaged("counters");
  return rec;
}

std::string Encode(const DiskRecord& rec) {
  ByteWriter w = Begin();
  w.Varint(rec.id.value);
  w.LengthPrefixed(rec.name);
  Put(w, rec.created);
  w.Varint(rec.quota_bytes);
  w.Varint(rec.next_inode_block);
  w.Varint(rec.next_segment);
  w.Varint(rec.next_session);
  w.Varint(rec.next_branch);
  return Finish(w);
}

Result<DiskRecord> DecodeDisk(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "disk"));
  ByteReader r(body);
  DiskRecord rec;
  rec.id = DiskId{r.Varint()};
  rec.name = std::string(r.LengthPrefixed());
  rec.created = GetTime(r);
  rec.quota_bytes = r.Varint();
  rec.next_inode_block = r.Varint();
  rec.next_segment = r.Varint();
  rec.next_session = r.Varint();
  rec.next_branch = r.Varint();
  if (!r.done() || !Valid(rec.created)) return Damaged("disk");
  return rec;
}

std::string Encode(const BranchRecord& rec) {
  ByteWriter w = Begin();
  w.Varint(rec.id.value);
  w.LengthPrefixed(rec.name);
  w.Varint(rec.epoch.value);
  w.Varint(rec.first_epoch.value);
  w.Varint(rec.parent.value);
  w.Varint(rec.parent_epoch.value);
  return Finish(w);
}

Result<BranchRecord> DecodeBranch(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "branch"));
  ByteReader r(body);
  BranchRecord rec;
  rec.id = BranchId{r.Varint()};
  rec.name = std::string(r.LengthPrefixed());
  rec.epoch = Epoch{r.Varint()};
  rec.first_epoch = Epoch{r.Varint()};
  rec.parent = BranchId{r.Varint()};
  rec.parent_epoch = Epoch{r.Varint()};
  if (!r.done() || !rec.id || rec.epoch < rec.first_epoch) return Damaged("branch");
  return rec;
}

// Version 2 is written for exclusive sessions, version 3 for those that have reserved space.
std::string Encode(const SessionRecord& rec) {
  const bool exclusive = rec.sharing == Sharing::kExclusive;
  const bool reserved = rec.credit != 0 || rec.space_request != 0;
  ByteWriter w = Begin(reserved ? 3 : exclusive ? 2 : 1);
  w.Varint(rec.id.value);
  w.U64(rec.key.hi);
  w.U64(rec.key.lo);
  w.Varint(rec.branch.value);
  w.U8(static_cast<uint8_t>(rec.mode));
  w.U8(static_cast<uint8_t>(rec.state));
  w.LengthPrefixed(rec.client_name);
  Put(w, rec.opened);
  w.Varint(rec.lease_ms);
  w.Varint(rec.applied.value);
  w.LengthPrefixed(rec.end_reason);
  if (exclusive || reserved) w.U8(static_cast<uint8_t>(rec.sharing));
  if (reserved) {
    w.Varint(rec.credit);
    w.Varint(rec.space_request);
  }
  return Finish(w);
}

Result<SessionRecord> DecodeSession(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "session", 3));
  ByteReader r(body);
  const bool reserved = value[0] == 3;
  SessionRecord rec;
  rec.id = SessionId{r.Varint()};
  rec.key.hi = r.U64();
  rec.key.lo = r.U64();
  rec.branch = BranchId{r.Varint()};
  const uint8_t mode = r.U8();
  const uint8_t state = r.U8();
  rec.client_name = std::string(r.LengthPrefixed());
  rec.opened = GetTime(r);
  rec.lease_ms = r.Varint();
  rec.applied = Seq{r.Varint()};
  rec.end_reason = std::string(r.LengthPrefixed());
  const uint8_t sharing = value[0] == 1 ? uint8_t{0} : r.U8();
  if (value[0] == 2 && sharing != static_cast<uint8_t>(Sharing::kExclusive)) return Damaged("session");
  rec.sharing = static_cast<Sharing>(sharing);
  if (reserved) {
    rec.credit = r.Varint();
    rec.space_request = r.Varint();
    if (rec.credit == 0 && rec.space_request == 0) return Damaged("session");
  }
  if (!r.done() || sharing > 1 || mode > 1 || state < 1 || state > 3 || !Valid(rec.opened)) return Damaged("session");
  rec.mode = static_cast<SessionMode>(mode);
  rec.state = static_cast<SessionRecord::State>(state);
  return rec;
}

std::string Encode(const SegmentRecord& rec) {
  ByteWriter w = Begin();
  w.Varint(rec.id.value);
  w.Varint(rec.session.value);
  w.U8(static_cast<uint8_t>(rec.state));
  w.Varint(rec.token);
  w.Varint(rec.servers.size());
  for (uint32_t s : rec.servers) w.Varint(s);
  return Finish(w);
}

Result<SegmentRecord> DecodeSegment(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "segment"));
  ByteReader r(body);
  SegmentRecord rec;
  bool bad = false;
  rec.id = SegmentId{r.Varint()};
  rec.session = SessionId{r.Varint()};
  const uint8_t state = r.U8();
  rec.token = r.Varint();
  const uint64_t count = r.Varint();
  for (uint64_t i = 0; i < count && !r.failed(); ++i) rec.servers.push_back(Var32(r, bad));
  if (bad || !r.done() || state < 1 || state > 4) return Damaged("segment");
  rec.state = static_cast<SegmentRecord::State>(state);
  return rec;
}

std::string Encode(const TakenMark& rec) {
  ByteWriter w = Begin();
  w.U8(static_cast<uint8_t>((rec.right ? 1 : 0) | (rec.locks ? 2 : 0)));
  return Finish(w);
}

Result<TakenMark> DecodeTaken(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "taken"));
  ByteReader r(body);
  const uint8_t bits = r.U8();
  if (!r.done() || bits == 0 || bits > 3) return Damaged("taken");
  return TakenMark{(bits & 1) != 0, (bits & 2) != 0};
}

std::string Encode(const RangeRecord& rec) {
  ByteWriter w = Begin();
  w.Varint(rec.session.value);
  return Finish(w);
}

Result<RangeRecord> DecodeRange(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "range"));
  ByteReader r(body);
  RangeRecord rec{SessionId{r.Varint()}};
  if (!r.done()) return Damaged("range");
  return rec;
}

std::string Encode(const UsedRecord& rec) {
  ByteWriter w = Begin();
  w.Bytes(rec.bits);
  return Finish(w);
}

Result<UsedRecord> DecodeUsed(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "used"));
  if (body.size() != kInodesPerUsed / 8) return Damaged("used");
  return UsedRecord{std::string(body)};
}

std::string Encode(const ServerResultRecord& rec) {
  ByteWriter w = Begin();
  w.Varint(rec.removed.value);
  w.LengthPrefixed(rec.inode ? Encode(*rec.inode) : std::string());
  return Finish(w);
}

Result<ServerResultRecord> DecodeServerResult(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "server op"));
  ByteReader r(body);
  ServerResultRecord rec;
  rec.removed = InodeId{r.Varint()};
  const std::string_view inode = r.LengthPrefixed();
  if (!r.done()) return Damaged("server op");
  if (inode.empty()) return rec;
  ARCHIL_ASSIGN_OR_RETURN(rec.inode, DecodeInode(inode));
  return rec;
}

std::string EncodeFinished(uint64_t finished) {
  ByteWriter w = Begin();
  w.Varint(finished);
  return Finish(w);
}

Result<uint64_t> DecodeFinished(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "finished ops"));
  ByteReader r(body);
  const uint64_t finished = r.Varint();
  if (!r.done()) return Damaged("finished ops");
  return finished;
}

std::string EncodeApplied(Lsn lsn) {
  ByteWriter w = Begin();
  w.Varint(lsn.value);
  return Finish(w);
}

Result<Lsn> DecodeApplied(std::string_view value) {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, BodyOf(value, "applied"));
  ByteReader r(body);
  const Lsn lsn{r.Varint()};
  if (!r.done()) return Damaged("applied");
  return lsn;
}

}  // namespace archil
