#include "tests/support/sample_records.h"

namespace archil {
namespace {

template <class T>
Sample Of(std::string name, const T& record, Result<T> (*decode)(std::string_view)) {
  return {std::move(name), Encode(record), [decode](std::string_view bytes) -> Result<std::string> {
            ARCHIL_ASSIGN_OR_RETURN(const T back, decode(bytes));
            return Encode(back);
          }};
}

InodeRecord SampleInode() {
  InodeRecord r;
  r.attr.ino = InodeId{70000};
  r.attr.type = FileType::kSymlink;
  r.attr.mode = 0777;
  r.attr.uid = 1000;
  r.attr.gid = 100;
  r.attr.nlink = 3;
  r.attr.size = 6;
  r.attr.allocated = 1 << 20;
  r.attr.rdev = 0x801;
  r.attr.atime = {-5, 999'999'999};
  r.attr.mtime = {1'800'000'000, 1};
  r.attr.ctime = {1'800'000'001, 2};
  r.attr.btime = {1'800'000'002, 3};
  r.attr.change = 17;
  r.target = "target";
  r.xattrs = {{"user.a", "1"}, {"user.b", std::string("\0\xff", 2)}};
  r.large_xattrs = 2;
  return r;
}

ChunkRecord SampleChunk() {
  return {{{.begin = 0, .end = 100, .kind = ExtentKind::kSegment, .segment = SegmentId{300}, .segment_offset = 4096},
           {.begin = 100, .end = 200, .kind = ExtentKind::kInline, .bytes_offset = 1'048'676, .bytes_serial = 9, .skip = 50},
           {.begin = 300, .end = static_cast<uint32_t>(kChunkSize), .kind = ExtentKind::kZero}}};
}

}  // namespace

std::vector<Sample> SampleRecords() {
  SessionRecord session;
  session.id = SessionId{(5ULL << 32) | 7};
  session.key = {0x0123456789abcdef, 0xfedcba9876543210};
  session.branch = BranchId{1};
  session.mode = SessionMode::kReadOnly;
  session.state = SessionRecord::State::kFenced;
  session.client_name = "host";
  session.opened = {1'800'000'000, 5};
  session.lease_ms = 15000;
  session.applied = Seq{1'000'000};
  session.end_reason = "why";
  UsedRecord used;
  used.set(0);
  used.set(511);
  std::vector<Sample> out = {
      Of("inode", SampleInode(), &DecodeInode),
      Of("dentry", DentryRecord{InodeId{70001}, FileType::kDirectory}, &DecodeDentry),
      Of("chunk", SampleChunk(), &DecodeChunk),
      Of("orphan", OrphanRecord{{SessionId{1}, SessionId{300}}}, &DecodeOrphan),
      Of("counters", CountersRecord{123456789, 42}, &DecodeCounters),
      Of("disk", DiskRecord{DiskId{5}, "name", {1, 2}, 1000, 3, 400, 5, 6}, &DecodeDisk),
      Of("branch", BranchRecord{BranchId{2}, "dev", Epoch{4}, Epoch{1}, BranchId{1}, Epoch{3}}, &DecodeBranch),
      Of("session", session, &DecodeSession),
      Of("segment", SegmentRecord{SegmentId{8}, SessionId{9}, SegmentRecord::State::kCondemned, 2, {1, 70}}, &DecodeSegment),
      Of("range", RangeRecord{SessionId{9}}, &DecodeRange),
      Of("used", used, &DecodeUsed),
      Of("taken", TakenMark{true, true}, &DecodeTaken),
  };
  out.push_back({"blob", EncodeBlob("bytes"), [](std::string_view bytes) -> Result<std::string> {
                   ARCHIL_ASSIGN_OR_RETURN(const std::string back, DecodeBlob(bytes));
                   return EncodeBlob(back);
                 }});
  out.push_back({"applied", EncodeApplied(Lsn{12345}), [](std::string_view bytes) -> Result<std::string> {
                   ARCHIL_ASSIGN_OR_RETURN(const Lsn back, DecodeApplied(bytes));
                   return EncodeApplied(back);
                 }});
  return out;
}

std::vector<Sample> SampleRecordsV2() {
  SessionRecord session{SessionId{9}, {1, 2}, BranchId{1}};
  session.client_name = "host";
  session.sharing = Sharing::kExclusive;
  return {Of("session", session, &DecodeSession)};
}

std::vector<Sample> SampleRecordsServerOps() {
  return {
      Of("server_result", ServerResultRecord{SampleInode(), InodeId{70001}}, &DecodeServerResult),
      Of("server_result_bare", ServerResultRecord{std::nullopt, InodeId{0}}, &DecodeServerResult),
      {"finished", EncodeFinished(300),
       [](std::string_view bytes) -> Result<std::string> {
         ARCHIL_ASSIGN_OR_RETURN(const uint64_t back, DecodeFinished(bytes));
         return EncodeFinished(back);
       }},
  };
}

namespace {

std::vector<Sample> LogSamples(const std::vector<std::pair<std::string, LogRecord>>& records) {
  std::vector<Sample> out;
  uint64_t lsn = 0;
  for (const auto& [name, record] : records) {
    out.push_back({name, EncodeLogRecord(Lsn{++lsn}, record), [](std::string_view bytes) -> Result<std::string> {
                     ARCHIL_ASSIGN_OR_RETURN(const LogFrame frame, DecodeLogFrame(bytes));
                     if (frame.size != bytes.size()) return Code::kCorrupt;
                     return EncodeLogRecord(frame.lsn, frame.record);
                   }});
  }
  return out;
}

}  // namespace

std::vector<Sample> SampleLogRecords() {
  const SessionId session{(5ULL << 32) | 7};
  return LogSamples({
      {"disk_created", DiskCreatedRecord{DiskId{5}, "name", {1'800'000'000, 1}, 1 << 30}},
      {"session_opened", SessionOpenedRecord{session, {1, 2}, BranchId{1}, SessionMode::kReadWrite, "host", {1'800'000'000, 2}, 15000, Sharing::kShared}},
      {"session_ended", SessionEndedRecord{session, true, "why"}},
      {"commit", CommitRecord{session, Seq{1}, Seq{300}, "ops", {}}},
      {"range_granted", RangeGrantedRecord{session, 3}},
      {"segments_granted", SegmentsGrantedRecord{session, {{SegmentId{8}, 1, {1, 2}}, {SegmentId{9}, 1, {2}}}}},
      {"segments_released", SegmentsReleasedRecord{session, {SegmentId{8}, SegmentId{9}}}},
      {"segments_condemned", SegmentsCondemnedRecord{{SegmentId{8}}}},
      {"segments_deleted", SegmentsDeletedRecord{{SegmentId{8}}}},
  });
}

std::vector<Sample> SampleLogRecordsV2() {
  const SessionId session{(5ULL << 32) | 7};
  const SessionId other{(5ULL << 32) | 8};
  SessionOpenedRecord opened{session, {1, 2}, BranchId{1}, SessionMode::kReadWrite, "host", {1'800'000'000, 2}, 15000, Sharing::kExclusive};
  return LogSamples({
      {"session_opened", opened},
      {"commit", CommitRecord{session, Seq{1}, Seq{300}, "ops", {{InodeId{70001}, {other}}, {InodeId{70002}, {SessionId{1}, other}}}}},
  });
}

std::vector<Sample> SampleLogRecordsV3() {
  const SessionId session{(5ULL << 32) | 7};
  return LogSamples({
      {"taken", TakenRecord{session, {{InodeId{70001}, true, false}, {InodeId{70002}, false, true}, {InodeId{70003}, true, true}}}},
      {"settled", SettledRecord{session, {InodeId{70001}, InodeId{70003}}, Seq{301}}},
      {"server_op",
       ServerOpRecord{
           session, 300, 299, "ops", {{InodeId{70001}, {SessionId{1}, session}}}, InodeId{70002}, InodeId{70001}}},
      {"server_op_bare", ServerOpRecord{session, 1, 0, "", {}, InodeId{0}, InodeId{0}}},
  });
}

std::vector<Sample> SampleRecordsV3() {
  SessionRecord session{SessionId{9}, {1, 2}, BranchId{1}};
  session.client_name = "host";
  session.credit = 70000;
  session.space_request = 300;
  SessionRecord exclusive = session;
  exclusive.sharing = Sharing::kExclusive;
  exclusive.credit = 0;
  return {Of("session", session, &DecodeSession), Of("session_exclusive", exclusive, &DecodeSession)};
}

std::vector<Sample> SampleLogRecordsV4() {
  return LogSamples({{"space_reserved", SpaceReservedRecord{SessionId{(5ULL << 32) | 7}, 300, 70000}}});
}

}  // namespace archil
