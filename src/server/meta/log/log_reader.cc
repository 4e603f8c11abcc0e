#include "server/meta/log/log_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace archil {
namespace {

Result<std::string> ReadSegment(const OpContext& ctx, DataServerSet& data, DiskId disk, const LogSegment& segment, uint64_t length) {
  std::string out;
  DataService* server = data.ById(segment.servers[0]);
  if (server == nullptr) return Error(Code::kUnavailable, fmt::format("data server {} with the log is not known", segment.servers[0]));
  while (out.size() < length) {
    const uint64_t n = std::min<uint64_t>(length - out.size(), kMaxAppend);
    auto piece = server->Read(ctx, {disk, segment.segment}, out.size(), n);
    if (!piece.ok()) {
      // A missing or unreadable segment of the log is damage unless the server only cannot be asked now.
      const Band band = piece.error().band();
      const Code code = band == Band::kNotApplied || band == Band::kUnknown ? Code::kUnavailable : Code::kCorrupt;
      return Error(code, fmt::format("log segment {:x} at {}: {}", segment.segment.value, out.size(), piece.error().ToString()));
    }
    out.append(piece->view());
  }
  return out;
}

Error Damage(const LogSegment& s, size_t at, std::string_view what) {
  return Error(Code::kCorrupt, fmt::format("log segment {:x} is damaged at byte {}: {}", s.segment.value, at, what));
}

// The records of one segment; returns how many bytes of it are whole records.
Result<uint64_t> ReadRecords(const LogSegment& segment, std::string_view bytes, Lsn after, LogEnd& end,
                             const std::function<Status(LogFrame&&)>& fn) {
  size_t at = 0;
  while (at < bytes.size()) {
    auto frame = DecodeLogFrame(bytes.substr(at));
    if (!frame.ok()) {
      if (frame.code() == Code::kNotSupported) return frame.error();
      if (segment.closed) return Damage(segment, at, "not a good record in a closed segment");
      if (HasLogFrame(bytes.substr(at + 1))) return Damage(segment, at, "a bad record before a good one");
      end.torn = bytes.size() - at;
      break;
    }
    const Lsn expected{end.last.value + 1};
    if (frame->lsn != expected) return Damage(segment, at, fmt::format("record {} where {} belongs", frame->lsn.value, expected.value));
    end.last = frame->lsn;
    at += frame->size;
    if (frame->lsn > after) {
      ++end.records;
      ARCHIL_RETURN_IF_ERROR(fn(std::move(*frame)));
    }
  }
  return at;
}

}  // namespace

Result<LogEnd> ReadLog(const OpContext& ctx, DataServerSet& data, DiskId disk, const Manifest& manifest, uint64_t open_length, Lsn after,
                       const std::function<Status(LogFrame&&)>& fn) {
  LogEnd end;
  const auto& segments = manifest.segments;
  if (segments.empty()) return end;
  if (segments[0].first != Lsn{1}) return Error(Code::kCorrupt, "the log does not begin with its first record");
  for (size_t i = 0; i < segments.size(); ++i) {
    const LogSegment& segment = segments[i];
    const bool newest = i + 1 == segments.size();
    if (!newest && segments[i + 1].first.value <= after.value + 1) {
      end.last = Lsn{segments[i + 1].first.value - 1};  // all of it is in the state already
      continue;
    }
    if (segment.first.value != end.last.value + 1) return Damage(segment, 0, "records are missing before it");
    const uint64_t length = segment.closed ? segment.end : open_length;
    ARCHIL_ASSIGN_OR_RETURN(const std::string bytes, ReadSegment(ctx, data, disk, segment, length));
    ARCHIL_ASSIGN_OR_RETURN(const uint64_t good, ReadRecords(segment, bytes, after, end, fn));
    if (!segment.closed) end.open_end = good;
  }
  return end;
}

}  // namespace archil
