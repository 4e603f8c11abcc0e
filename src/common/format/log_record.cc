#include "common/format/log_record.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/checksum.h"

namespace archil {
namespace {

constexpr uint32_t kMagic = 0x474c5241;  // "ARLG"
constexpr uint8_t kVersion = 4;
constexpr size_t kChecksumAt = 4 + 1 + 8 + 4;

enum Kind : uint8_t {
  kDiskCreated = 1,
  kSessionOpened = 2,
  kSessionEnded = 3,
  kCommit = 4,
  kRangeGranted = 5,
  kSegmentsGranted = 6,
  kSegmentsReleased = 7,
  kSegmentsCondemned = 8,
  kSegmentsDeleted = 9,
  kTaken = 10,
  kSettled = 11,
  kSpaceReserved = 12,
  kServerOp = 40,
};

enum TakenBit : uint8_t { kTakenRight = 1, kTakenLocks = 2 };

void PutTime(ByteWriter& w, Timestamp t) {
  w.I64(t.sec);
  w.U32(t.nsec);
}

void PutSegments(ByteWriter& w, const std::vector<SegmentId>& segments) {
  w.Varint(segments.size());
  for (SegmentId s : segments) w.Varint(s.value);
}

void PutInodes(ByteWriter& w, const std::vector<InodeId>& inodes) {
  w.Varint(inodes.size());
  for (InodeId ino : inodes) w.Varint(ino.value);
}

void PutOpens(ByteWriter& w, const std::vector<CommitRecord::Open>& opens) {
  w.Varint(opens.size());
  for (const auto& o : opens) {
    w.Varint(o.ino.value);
    w.Varint(o.sessions.size());
    for (SessionId s : o.sessions) w.Varint(s.value);
  }
}

// The lowest version that can say it.
uint8_t VersionOf(const LogRecord& record) {
  if (std::holds_alternative<SpaceReservedRecord>(record)) return 4;
  if (std::holds_alternative<TakenRecord>(record) || std::holds_alternative<SettledRecord>(record) ||
      std::holds_alternative<ServerOpRecord>(record)) {
    return 3;
  }
  const auto* commit = std::get_if<CommitRecord>(&record);
  const auto* opened = std::get_if<SessionOpenedRecord>(&record);
  const bool newer = (commit != nullptr && !commit->opens.empty()) || (opened != nullptr && opened->sharing != Sharing::kShared);
  return newer ? 2 : 1;
}

struct Encoder {
  ByteWriter& w;

  void operator()(const DiskCreatedRecord& r) {
    w.U8(kDiskCreated);
    w.Varint(r.disk.value);
    w.LengthPrefixed(r.name);
    PutTime(w, r.created);
    w.Varint(r.quota_bytes);
  }
  void operator()(const SessionOpenedRecord& r) {
    w.U8(kSessionOpened);
    w.Varint(r.session.value);
    w.U64(r.key.hi);
    w.U64(r.key.lo);
    w.Varint(r.branch.value);
    w.U8(static_cast<uint8_t>(r.mode));
    w.LengthPrefixed(r.client_name);
    PutTime(w, r.opened);
    w.Varint(r.lease_ms);
    if (r.sharing != Sharing::kShared) w.U8(static_cast<uint8_t>(r.sharing));
  }
  void operator()(const SessionEndedRecord& r) {
    w.U8(kSessionEnded);
    w.Varint(r.session.value);
    w.U8(r.fenced ? 1 : 0);
    w.LengthPrefixed(r.reason);
  }
  void operator()(const CommitRecord& r) {
    w.U8(kCommit);
    w.Varint(r.session.value);
    w.Varint(r.first.value);
    w.Varint(r.last.value);
    w.LengthPrefixed(r.ops);
    if (!r.opens.empty()) PutOpens(w, r.opens);
  }
  void operator()(const RangeGrantedRecord& r) {
    w.U8(kRangeGranted);
    w.Varint(r.session.value);
    w.Varint(r.block);
  }
  void operator()(const SegmentsGrantedRecord& r) {
    w.U8(kSegmentsGranted);
    w.Varint(r.session.value);
    w.Varint(r.grants.size());
    for (const auto& g : r.grants) {
      w.Varint(g.segment.value);
      w.Varint(g.token);
      w.Varint(g.servers.size());
      for (uint32_t s : g.servers) w.Varint(s);
    }
  }
  void operator()(const SegmentsReleasedRecord& r) {
    w.U8(kSegmentsReleased);
    w.Varint(r.session.value);
    PutSegments(w, r.segments);
  }
  void operator()(const SegmentsCondemnedRecord& r) {
    w.U8(kSegmentsCondemned);
    PutSegments(w, r.segments);
  }
  void operator()(const SegmentsDeletedRecord& r) {
    w.U8(kSegmentsDeleted);
    PutSegments(w, r.segments);
  }
  void operator()(const TakenRecord& r) {
    w.U8(kTaken);
    w.Varint(r.session.value);
    w.Varint(r.taken.size());
    for (const Taken& t : r.taken) {
      w.Varint(t.ino.value);
      w.U8(static_cast<uint8_t>((t.right ? kTakenRight : 0) | (t.locks ? kTakenLocks : 0)));
    }
  }
  void operator()(const SettledRecord& r) {
    w.U8(kSettled);
    w.Varint(r.session.value);
    PutInodes(w, r.taken);
    w.Varint(r.last.value);
  }
  void operator()(const ServerOpRecord& r) {
    w.U8(kServerOp);
    w.Varint(r.session.value);
    w.Varint(r.id);
    w.Varint(r.finished);
    w.LengthPrefixed(r.ops);
    PutOpens(w, r.opens);
    w.Varint(r.shown.value);
    w.Varint(r.removed.value);
  }
  void operator()(const SpaceReservedRecord& r) {
    w.U8(kSpaceReserved);
    w.Varint(r.session.value);
    w.Varint(r.request);
    w.Varint(r.credit);
  }
};

std::vector<SegmentId> GetSegments(ByteReader& r) {
  std::vector<SegmentId> out;
  const uint64_t count = r.Varint();
  for (uint64_t i = 0; i < count && !r.failed(); ++i) out.push_back(SegmentId{r.Varint()});
  return out;
}

Timestamp GetTime(ByteReader& r, bool& bad) {
  Timestamp t;
  t.sec = r.I64();
  t.nsec = r.U32();
  if (t.nsec >= 1'000'000'000) bad = true;
  return t;
}

SegmentsGrantedRecord GetGrants(ByteReader& r, bool& bad) {
  SegmentsGrantedRecord rec;
  rec.session = SessionId{r.Varint()};
  const uint64_t count = r.Varint();
  for (uint64_t i = 0; i < count && !r.failed(); ++i) {
    SegmentsGrantedRecord::Grant g;
    g.segment = SegmentId{r.Varint()};
    g.token = r.Varint();
    const uint64_t servers = r.Varint();
    for (uint64_t j = 0; j < servers && !r.failed(); ++j) {
      const uint64_t id = r.Varint();
      if (id > UINT32_MAX) bad = true;
      g.servers.push_back(static_cast<uint32_t>(id));
    }
    rec.grants.push_back(std::move(g));
  }
  return rec;
}

std::vector<CommitRecord::Open> GetOpens(ByteReader& r) {
  std::vector<CommitRecord::Open> out;
  const uint64_t count = r.Varint();
  for (uint64_t i = 0; i < count && !r.failed(); ++i) {
    CommitRecord::Open o;
    o.ino = InodeId{r.Varint()};
    const uint64_t sessions = r.Varint();
    for (uint64_t j = 0; j < sessions && !r.failed(); ++j) o.sessions.push_back(SessionId{r.Varint()});
    out.push_back(std::move(o));
  }
  return out;
}

std::vector<InodeId> GetInodes(ByteReader& r) {
  std::vector<InodeId> out;
  const uint64_t count = r.Varint();
  for (uint64_t i = 0; i < count && !r.failed(); ++i) out.push_back(InodeId{r.Varint()});
  return out;
}

TakenRecord GetTaken(ByteReader& r, bool& bad) {
  TakenRecord rec;
  rec.session = SessionId{r.Varint()};
  const uint64_t count = r.Varint();
  for (uint64_t i = 0; i < count && !r.failed(); ++i) {
    const InodeId ino{r.Varint()};
    const uint8_t bits = r.U8();
    if (bits == 0 || bits > (kTakenRight | kTakenLocks)) bad = true;
    rec.taken.push_back({ino, (bits & kTakenRight) != 0, (bits & kTakenLocks) != 0});
  }
  return rec;
}

ServerOpRecord GetServerOp(ByteReader& r, bool& bad) {
  ServerOpRecord rec;
  rec.session = SessionId{r.Varint()};
  rec.id = r.Varint();
  rec.finished = r.Varint();
  rec.ops = std::string(r.LengthPrefixed());
  rec.opens = GetOpens(r);
  rec.shown = InodeId{r.Varint()};
  rec.removed = InodeId{r.Varint()};
  if (rec.id == 0) bad = true;
  return rec;
}

Result<LogRecord> DecodeBody(uint8_t version, std::string_view body) {
  ByteReader r(body);
  bool bad = false;
  LogRecord out;
  switch (r.U8()) {
    case kDiskCreated: {
      DiskCreatedRecord rec;
      rec.disk = DiskId{r.Varint()};
      rec.name = std::string(r.LengthPrefixed());
      rec.created = GetTime(r, bad);
      rec.quota_bytes = r.Varint();
      out = std::move(rec);
      break;
    }
    case kSessionOpened: {
      SessionOpenedRecord rec;
      rec.session = SessionId{r.Varint()};
      rec.key.hi = r.U64();
      rec.key.lo = r.U64();
      rec.branch = BranchId{r.Varint()};
      const uint8_t mode = r.U8();
      if (mode > 1) bad = true;
      rec.mode = static_cast<SessionMode>(mode);
      rec.client_name = std::string(r.LengthPrefixed());
      rec.opened = GetTime(r, bad);
      rec.lease_ms = r.Varint();
      if (version >= 2) {
        if (r.U8() != static_cast<uint8_t>(Sharing::kExclusive)) bad = true;
        rec.sharing = Sharing::kExclusive;
      }
      out = std::move(rec);
      break;
    }
    case kSessionEnded: {
      SessionEndedRecord rec;
      rec.session = SessionId{r.Varint()};
      const uint8_t fenced = r.U8();
      if (fenced > 1) bad = true;
      rec.fenced = fenced == 1;
      rec.reason = std::string(r.LengthPrefixed());
      out = std::move(rec);
      break;
    }
    case kCommit: {
      CommitRecord rec;
      rec.session = SessionId{r.Varint()};
      rec.first = Seq{r.Varint()};
      rec.last = Seq{r.Varint()};
      rec.ops = std::string(r.LengthPrefixed());
      if (version >= 2) {
        rec.opens = GetOpens(r);
        if (rec.opens.empty()) bad = true;
      }
      out = std::move(rec);
      break;
    }
    case kRangeGranted: {
      RangeGrantedRecord rec;
      rec.session = SessionId{r.Varint()};
      rec.block = r.Varint();
      out = rec;
      break;
    }
    case kSegmentsGranted: out = GetGrants(r, bad); break;
    case kSegmentsReleased: {
      SegmentsReleasedRecord rec;
      rec.session = SessionId{r.Varint()};
      rec.segments = GetSegments(r);
      out = std::move(rec);
      break;
    }
    case kSegmentsCondemned: out = SegmentsCondemnedRecord{GetSegments(r)}; break;
    case kServerOp: out = GetServerOp(r, bad); break;
    case kSegmentsDeleted: out = SegmentsDeletedRecord{GetSegments(r)}; break;
    case kTaken: out = GetTaken(r, bad); break;
    case kSettled: {
      SettledRecord rec;
      rec.session = SessionId{r.Varint()};
      rec.taken = GetInodes(r);
      rec.last = Seq{r.Varint()};
      out = std::move(rec);
      break;
    }
    case kSpaceReserved: {
      SpaceReservedRecord rec;
      rec.session = SessionId{r.Varint()};
      rec.request = r.Varint();
      rec.credit = r.Varint();
      out = rec;
      break;
    }
    default: return Error(Code::kCorrupt, "log record of an unknown kind");
  }
  if (bad || !r.done() || VersionOf(out) != version) return Error(Code::kCorrupt, "log record does not decode");
  return out;
}

uint64_t FrameChecksum(std::string_view head, std::string_view body) {
  // One pass over a copy of the small head and the body's own sum, so that the body is not copied.
  ByteWriter w;
  w.Bytes(head);
  w.U64(Checksum(body));
  return Checksum(w.str());
}

struct Header {
  uint8_t version = 0;
  Lsn lsn;
  std::string_view body;
};

// Version-independent part: framing and checksum.
Result<Header> DecodeHeader(std::string_view bytes) {
  ByteReader r(bytes);
  Header h;
  if (bytes.size() < kLogFrameHeader) {
    // Too short to be judged, unless it already contradicts the magic.
    uint32_t magic = kMagic;
    if (std::memcmp(bytes.data(), &magic, std::min<size_t>(bytes.size(), 4)) != 0) return Code::kCorrupt;
    return Code::kNoData;
  }
  const uint32_t magic = r.U32();
  h.version = r.U8();
  h.lsn = Lsn{r.U64()};
  const uint32_t length = r.U32();
  const uint64_t checksum = r.U64();
  if (magic != kMagic || length == 0 || length > kMaxLogBody) return Code::kCorrupt;
  if (length > bytes.size() - kLogFrameHeader) return Code::kNoData;
  h.body = bytes.substr(kLogFrameHeader, length);
  if (FrameChecksum(bytes.substr(0, kChecksumAt), h.body) != checksum) return Code::kCorrupt;
  return h;
}

}  // namespace

size_t OpensSize(const std::vector<CommitRecord::Open>& opens) {
  if (opens.empty()) return 0;
  ByteWriter w;
  PutOpens(w, opens);
  return w.str().size();
}

std::string EncodeLogRecord(Lsn lsn, const LogRecord& record) {
  ByteWriter w;
  w.U32(kMagic);
  w.U8(VersionOf(record));
  w.U64(lsn.value);
  w.U32(0);
  w.U64(0);
  std::visit(Encoder{w}, record);
  std::string& out = w.str();
  const auto length = static_cast<uint32_t>(out.size() - kLogFrameHeader);
  std::memcpy(out.data() + 13, &length, sizeof(length));
  const std::string_view all(out);
  const uint64_t sum = FrameChecksum(all.substr(0, kChecksumAt), all.substr(kLogFrameHeader));
  std::memcpy(out.data() + kChecksumAt, &sum, sizeof(sum));
  return w.Take();
}

Result<LogFrame> DecodeLogFrame(std::string_view bytes) {
  ARCHIL_ASSIGN_OR_RETURN(const Header h, DecodeHeader(bytes));
  if (h.version > kVersion) return Error(Code::kNotSupported, "log record of a newer version");
  if (h.version == 0) return Code::kCorrupt;
  ARCHIL_ASSIGN_OR_RETURN(LogRecord record, DecodeBody(h.version, h.body));
  return LogFrame{h.lsn, std::move(record), kLogFrameHeader + h.body.size()};
}

bool HasLogFrame(std::string_view bytes) {
  const uint32_t magic = kMagic;
  const std::string_view needle(reinterpret_cast<const char*>(&magic), sizeof(magic));
  for (size_t at = bytes.find(needle); at != std::string_view::npos; at = bytes.find(needle, at + 1)) {
    if (DecodeHeader(bytes.substr(at)).ok()) return true;
  }
  return false;
}

}  // namespace archil
