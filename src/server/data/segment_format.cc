#include "server/data/segment_format.h"

#include <fmt/format.h>

#include "common/base/bytes.h"
#include "common/base/checksum.h"

namespace archil {
namespace {

constexpr uint64_t kHeaderMagic = 0x0a31474553435241;   // "ARCSEG1\n"
constexpr uint64_t kTrailerMagic = 0x0a31444e45435241;  // "ARCEND1\n"
constexpr uint64_t kStateMagic = 0x0a31415453435241;    // "ARCSTA1\n"
constexpr uint32_t kVersion = 1;
constexpr size_t kStateRecordSize = 64;

constexpr uint8_t kFlagEndsAppend = 1;

// The checksum of a structure that belongs to this segment and to no other.
uint64_t KeyedChecksum(std::string_view bytes, SegmentKey key) {
  ByteWriter w;
  w.U64(key.disk.value);
  w.U64(key.segment.value);
  w.U64(Checksum(bytes));
  return Checksum(w.str());
}

void Seal(ByteWriter& w, SegmentKey key) { w.U64(KeyedChecksum(w.str(), key)); }

// `bytes` without its checksum, if that holds.
Result<std::string_view> Unseal(std::string_view bytes, SegmentKey key, const char* what) {
  if (bytes.size() < sizeof(uint64_t)) return Error(Code::kCorrupt, fmt::format("{} is cut short", what));
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  if (ByteReader(bytes.substr(body.size())).U64() != KeyedChecksum(body, key)) {
    return Error(Code::kCorrupt, fmt::format("{} of segment {} fails its checksum", what, SegmentName(key)));
  }
  return body;
}

Status CheckVersion(uint32_t version, const char* what) {
  if (version == kVersion) return Ok();
  return Error(Code::kNotSupported, fmt::format("{} has version {}; this program knows {}", what, version, kVersion));
}

Error Corrupt(const char* what) { return Error(Code::kCorrupt, what); }

}  // namespace

std::string EncodeSegmentHeader(SegmentKey key) {
  ByteWriter w;
  w.U64(kHeaderMagic);
  w.U32(kVersion);
  w.U32(0);
  w.U64(key.disk.value);
  w.U64(key.segment.value);
  while (w.size() < kSegmentHeaderSize - sizeof(uint64_t)) w.U64(0);
  Seal(w, key);
  return w.Take();
}

Status DecodeSegmentHeader(std::string_view bytes, SegmentKey key) {
  if (bytes.size() < kSegmentHeaderSize) return Corrupt("segment header is cut short");
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, Unseal(bytes.substr(0, kSegmentHeaderSize), key, "header"));
  ByteReader r(body);
  if (r.U64() != kHeaderMagic) return Corrupt("not a segment file");
  ARCHIL_RETURN_IF_ERROR(CheckVersion(r.U32(), "segment header"));
  r.U32();
  if (r.U64() != key.disk.value || r.U64() != key.segment.value) return Corrupt("header of another segment");
  return Ok();
}

void EncodeFrameHeader(const FrameHeader& header, SegmentKey key, std::string* out) {
  ByteWriter w;
  w.U32(kFrameMagic);
  w.U8(static_cast<uint8_t>(header.kind));
  w.U8(header.ends_append ? kFlagEndsAppend : 0);
  w.U16(0);
  w.U32(header.length);
  w.U32(0);
  w.U64(header.offset);
  w.U64(header.token);
  w.U64(header.synced);
  w.U64(header.checksum);
  Seal(w, key);
  out->append(w.str());
}

Result<FrameHeader> DecodeFrameHeader(std::string_view bytes, SegmentKey key) {
  if (bytes.size() < kFrameHeaderSize) return Corrupt("frame header is cut short");
  if (ByteReader(bytes).U32() != kFrameMagic) return Corrupt("no frame here");
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, Unseal(bytes.substr(0, kFrameHeaderSize), key, "frame header"));
  ByteReader r(body);
  r.U32();
  const uint8_t kind = r.U8();
  const uint8_t flags = r.U8();
  r.U16();
  FrameHeader h;
  h.kind = static_cast<FrameKind>(kind);
  h.ends_append = (flags & kFlagEndsAppend) != 0;
  h.length = r.U32();
  r.U32();
  h.offset = r.U64();
  h.token = r.U64();
  h.synced = r.U64();
  h.checksum = r.U64();
  const bool data = h.kind == FrameKind::kData && h.length > 0 && h.length <= kMaxFramePayload;
  const bool fence = h.kind == FrameKind::kFence && h.length == 0 && h.ends_append;
  if (!data && !fence) return Corrupt("frame header makes no sense");
  if (h.offset > kMaxSegmentFile || h.synced > kMaxSegmentFile) return Corrupt("frame header is out of range");
  return h;
}

std::string EncodeIndex(const std::vector<FrameRef>& frames, SegmentKey key) {
  ByteWriter w;
  w.U32(kIndexMagic);
  w.U32(kVersion);
  w.U32(static_cast<uint32_t>(frames.size()));
  w.U32(0);
  for (const FrameRef& f : frames) {
    w.U32(f.offset);
    w.U32(f.position);
    w.U32(f.length);
  }
  Seal(w, key);
  return w.Take();
}

Result<std::vector<FrameRef>> DecodeIndex(std::string_view bytes, SegmentKey key, uint64_t file_size,
                                          uint64_t length) {
  if (bytes.size() < kIndexHeaderSize + kIndexFooterSize) return Corrupt("index is cut short");
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, Unseal(bytes, key, "index"));
  ByteReader r(body);
  if (r.U32() != kIndexMagic) return Corrupt("no index here");
  ARCHIL_RETURN_IF_ERROR(CheckVersion(r.U32(), "index"));
  const uint32_t count = r.U32();
  r.U32();
  if (body.size() != kIndexHeaderSize + uint64_t{count} * kIndexEntrySize) return Corrupt("index has a wrong size");
  std::vector<FrameRef> frames(count);
  uint64_t offset = 0;
  uint64_t position = kSegmentHeaderSize;
  for (FrameRef& f : frames) {
    f = {r.U32(), r.U32(), r.U32()};
    if (f.offset < offset || f.position < position || f.length == 0 || f.length > kMaxFramePayload) {
      return Corrupt("index is not in order");
    }
    offset = uint64_t{f.offset} + f.length;
    position = uint64_t{f.position} + kFrameHeaderSize + f.length;
  }
  if (offset > length || position > file_size) return Corrupt("index points outside");
  return frames;
}

std::string EncodeTrailer(const SegmentTrailer& trailer, SegmentKey key) {
  ByteWriter w;
  w.U64(kTrailerMagic);
  w.U32(kVersion);
  w.U32(trailer.frames);
  w.U64(trailer.index_position);
  w.U64(trailer.index_size);
  w.U64(trailer.length);
  w.U64(trailer.token);
  w.U64(0);
  Seal(w, key);
  return w.Take();
}

Result<SegmentTrailer> DecodeTrailer(std::string_view bytes, SegmentKey key, uint64_t file_size) {
  if (bytes.size() != kSegmentTrailerSize) return Corrupt("trailer is cut short");
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, Unseal(bytes, key, "trailer"));
  ByteReader r(body);
  if (r.U64() != kTrailerMagic) return Corrupt("no trailer here");
  ARCHIL_RETURN_IF_ERROR(CheckVersion(r.U32(), "trailer"));
  SegmentTrailer t;
  t.frames = r.U32();
  t.index_position = r.U64();
  t.index_size = r.U64();
  t.length = r.U64();
  t.token = r.U64();
  if (file_size > kMaxSegmentFile || t.index_position < kSegmentHeaderSize || t.index_position > file_size ||
      t.index_size > file_size || t.index_position + t.index_size + kSegmentTrailerSize != file_size ||
      t.length > t.index_position) {
    return Corrupt("trailer does not fit the file");
  }
  return t;
}

std::string EncodeSegmentEnd(const std::vector<FrameRef>& frames, uint64_t position, uint64_t length, uint64_t token,
                             SegmentKey key) {
  std::string out = EncodeIndex(frames, key);
  return out + EncodeTrailer({position, out.size(), length, token, static_cast<uint32_t>(frames.size())}, key);
}

std::string EncodeStateRecord(const StateRecord& record, SegmentKey key) {
  ByteWriter w;
  w.U64(kStateMagic);
  w.U32(kVersion);
  w.U8(static_cast<uint8_t>(record.kind));
  w.U8(0);
  w.U16(0);
  w.U64(record.length);
  w.U64(record.token);
  w.U64(record.object_size);
  while (w.size() < kStateRecordSize - sizeof(uint64_t)) w.U64(0);
  Seal(w, key);
  return w.Take();
}

Result<StateRecord> DecodeStateRecord(std::string_view bytes, SegmentKey key) {
  if (bytes.size() != kStateRecordSize) return Corrupt("state record has a wrong size");
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view body, Unseal(bytes, key, "state record"));
  ByteReader r(body);
  if (r.U64() != kStateMagic) return Corrupt("not a state record");
  ARCHIL_RETURN_IF_ERROR(CheckVersion(r.U32(), "state record"));
  StateRecord record;
  record.kind = static_cast<StateRecord::Kind>(r.U8());
  r.U8();
  r.U16();
  record.length = r.U64();
  record.token = r.U64();
  record.object_size = r.U64();
  if (record.kind != StateRecord::Kind::kUploaded && record.kind != StateRecord::Kind::kBroken) {
    return Corrupt("state record of an unknown kind");
  }
  if (record.length > kMaxSegmentFile || record.object_size > kMaxSegmentFile) {
    return Corrupt("state record is out of range");
  }
  return record;
}

std::string SegmentName(SegmentKey key) {
  return fmt::format("{:016x}/{:016x}", key.disk.value, key.segment.value);
}

}  // namespace archil
