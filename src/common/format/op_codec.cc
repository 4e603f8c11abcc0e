#include "common/format/op_codec.h"

#include <bit>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace archil {
namespace {

constexpr uint8_t kVersion = 1;
// The shortest op: kind, body length, one byte of body. The shortest extent: kind, offset, length.
constexpr size_t kMinOpBytes = 3;
constexpr size_t kMinExtentBytes = 3;
constexpr uint32_t kModeMask = 07777;
constexpr uint32_t kAllFields = SetAttrOp::kMode | SetAttrOp::kUid | SetAttrOp::kGid | SetAttrOp::kSize |
                                SetAttrOp::kAtime | SetAttrOp::kMtime;

uint64_t ZigZag(int64_t v) { return (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63); }
int64_t UnZigZag(uint64_t v) { return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1); }

size_t VarintBytes(uint64_t v) { return (static_cast<size_t>(std::bit_width(v | 1)) + 6) / 7; }

// OpWriter, OpSizer and OpReader have the same face, so that the layout of each body is written down once, in Body().
class OpWriter {
 public:
  template <class T>
  using Field = const T;

  explicit OpWriter(ByteWriter& out) : out_(out) {}

  void U64(const uint64_t& v) { out_.Varint(v); }
  void U32(const uint32_t& v, uint32_t = 0) { out_.Varint(v); }
  void Bool(const bool& v) { out_.U8(v ? 1 : 0); }
  template <class Tag>
  void Id(const StrongId<Tag>& id) {
    out_.Varint(id.value);
  }
  template <class E>
  void Enum(const E& v, E, E) {
    out_.U8(static_cast<uint8_t>(v));
  }
  void String(const std::string& v, size_t) { out_.LengthPrefixed(v); }
  void Time(const Timestamp& t) {
    out_.Varint(ZigZag(t.sec));
    out_.Varint(t.nsec);
  }
  void Extents(const std::vector<Extent>& extents);

 private:
  ByteWriter& out_;
};

// Counts what OpWriter would write.
class OpSizer {
 public:
  template <class T>
  using Field = const T;

  void U64(const uint64_t& v) { size_ += VarintBytes(v); }
  void U32(const uint32_t& v, uint32_t = 0) { size_ += VarintBytes(v); }
  void Bool(const bool&) { size_++; }
  template <class Tag>
  void Id(const StrongId<Tag>& id) {
    size_ += VarintBytes(id.value);
  }
  template <class E>
  void Enum(const E&, E, E) {
    size_++;
  }
  void String(const std::string& v, size_t) { size_ += VarintBytes(v.size()) + v.size(); }
  void Time(const Timestamp& t) { size_ += VarintBytes(ZigZag(t.sec)) + VarintBytes(t.nsec); }
  void Extents(const std::vector<Extent>& extents);

  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

class OpReader {
 public:
  template <class T>
  using Field = T;

  explicit OpReader(std::string_view body) : in_(body) {}

  void U64(uint64_t& v) { v = in_.Varint(); }
  void U32(uint32_t& v, uint32_t max = std::numeric_limits<uint32_t>::max()) {
    const uint64_t wide = in_.Varint();
    Require(wide <= max);
    v = static_cast<uint32_t>(wide);
  }
  void Bool(bool& v) {
    const uint8_t b = in_.U8();
    Require(b <= 1);
    v = b == 1;
  }
  template <class Tag>
  void Id(StrongId<Tag>& id) {
    id.value = in_.Varint();
  }
  template <class E>
  void Enum(E& v, E first, E last) {
    const uint8_t b = in_.U8();
    Require(b >= static_cast<uint8_t>(first) && b <= static_cast<uint8_t>(last));
    v = static_cast<E>(b);
  }
  void String(std::string& v, size_t limit) {
    const std::string_view bytes = in_.LengthPrefixed();
    Require(bytes.size() <= limit);
    if (ok_) v.assign(bytes);
  }
  void Time(Timestamp& t) {
    t.sec = UnZigZag(in_.Varint());
    U32(t.nsec, 999'999'999);
  }
  void Extents(std::vector<Extent>& extents);

  // Everything was well-formed and the whole body was read.
  bool done() const { return ok_ && in_.done(); }

 private:
  void Require(bool condition) { ok_ = ok_ && condition && !in_.failed(); }

  ByteReader in_;
  bool ok_ = true;
};

// An extent's offset is stored as the distance from the end of the one before: sorted and apart by construction.
void OpWriter::Extents(const std::vector<Extent>& extents) {
  out_.Varint(extents.size());
  uint64_t end = 0;
  for (const Extent& e : extents) {
    out_.U8(static_cast<uint8_t>(e.kind));
    out_.Varint(e.offset - end);
    out_.Varint(e.length);
    if (e.kind == ExtentKind::kSegment) {
      out_.Varint(e.segment.value);
      out_.Varint(e.segment_offset);
    } else if (e.kind == ExtentKind::kInline) {
      out_.Bytes(e.data.view());
    }
    end = e.end();
  }
}

void OpSizer::Extents(const std::vector<Extent>& extents) {
  size_ += VarintBytes(extents.size());
  uint64_t end = 0;
  for (const Extent& e : extents) {
    size_ += 1 + VarintBytes(e.offset - end) + VarintBytes(e.length);
    if (e.kind == ExtentKind::kSegment) size_ += VarintBytes(e.segment.value) + VarintBytes(e.segment_offset);
    if (e.kind == ExtentKind::kInline) size_ += e.data.size();
    end = e.end();
  }
}

void OpReader::Extents(std::vector<Extent>& extents) {
  const uint64_t count = in_.Varint();
  Require(count <= in_.rest().size() / kMinExtentBytes);
  if (!ok_) return;
  extents.reserve(count);
  uint64_t end = 0;
  size_t inline_bytes = 0;
  for (uint64_t i = 0; i < count && ok_; i++) {
    Extent e;
    Enum(e.kind, ExtentKind::kSegment, ExtentKind::kZero);
    const uint64_t gap = in_.Varint();
    e.length = in_.Varint();
    Require(gap <= kMaxFileSize - end && e.length > 0 && e.length <= kMaxFileSize - end - gap);
    if (!ok_) return;
    e.offset = end + gap;
    end = e.end();
    if (e.kind == ExtentKind::kSegment) {
      e.segment.value = in_.Varint();
      e.segment_offset = in_.Varint();
      Require(e.segment_offset <= kMaxFileSize - e.length);
    } else if (e.kind == ExtentKind::kInline) {
      Require(e.length <= kMaxInlineBytes - inline_bytes);
      if (!ok_) return;
      const std::string_view data = in_.Bytes(e.length);
      Require(data.size() == e.length);
      inline_bytes += data.size();
      e.data = Buffer::Copy(data);
    }
    extents.push_back(std::move(e));
  }
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<CreateOp>& op) {
  ar.Id(op.parent);
  ar.Id(op.ino);
  ar.Enum(op.type, FileType::kRegular, FileType::kBlockDevice);
  ar.U32(op.mode, kModeMask);
  ar.U32(op.uid);
  ar.U32(op.gid);
  ar.U64(op.rdev);
  ar.Time(op.now);
  ar.String(op.name, kMaxName);
  ar.String(op.target, kMaxSymlink);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<LinkOp>& op) {
  ar.Id(op.ino);
  ar.Id(op.parent);
  ar.Time(op.now);
  ar.String(op.name, kMaxName);
}

template <class Ar, class RemovalOp>
void RemovalBody(Ar& ar, RemovalOp& op) {
  ar.Id(op.parent);
  ar.Id(op.ino);
  ar.Bool(op.still_open);
  ar.Time(op.now);
  ar.String(op.name, kMaxName);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<UnlinkOp>& op) {
  RemovalBody(ar, op);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<RmdirOp>& op) {
  RemovalBody(ar, op);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<RenameOp>& op) {
  ar.Id(op.parent);
  ar.Id(op.new_parent);
  ar.Id(op.ino);
  ar.Id(op.victim);
  ar.Enum(op.mode, RenameOp::Mode::kPlain, RenameOp::Mode::kExchange);
  ar.Bool(op.victim_still_open);
  ar.Time(op.now);
  ar.String(op.name, kMaxName);
  ar.String(op.new_name, kMaxName);
}

// Only the fields that are set are stored.
template <class Ar>
void Body(Ar& ar, typename Ar::template Field<SetAttrOp>& op) {
  ar.Id(op.ino);
  ar.U32(op.fields, kAllFields);
  if (op.fields & SetAttrOp::kMode) ar.U32(op.mode, kModeMask);
  if (op.fields & SetAttrOp::kUid) ar.U32(op.uid);
  if (op.fields & SetAttrOp::kGid) ar.U32(op.gid);
  if (op.fields & SetAttrOp::kSize) ar.U64(op.size);
  if (op.fields & SetAttrOp::kAtime) ar.Time(op.atime);
  if (op.fields & SetAttrOp::kMtime) ar.Time(op.mtime);
  ar.Time(op.now);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<SetExtentsOp>& op) {
  ar.Id(op.ino);
  ar.U64(op.size);
  ar.Time(op.mtime);
  ar.Time(op.ctime);
  ar.U32(op.clear_mode, kModeMask);
  ar.Extents(op.extents);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<ClearRangeOp>& op) {
  ar.Id(op.ino);
  ar.Enum(op.kind, ClearRangeOp::Kind::kPunch, ClearRangeOp::Kind::kAllocate);
  ar.U64(op.offset);
  ar.U64(op.length);
  ar.U64(op.size);
  ar.Time(op.now);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<SetXattrOp>& op) {
  ar.Id(op.ino);
  ar.Time(op.now);
  ar.String(op.name, kMaxXattrName);
  ar.String(op.value, kMaxXattrValue);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<RemoveXattrOp>& op) {
  ar.Id(op.ino);
  ar.Time(op.now);
  ar.String(op.name, kMaxXattrName);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<ReleaseOrphanOp>& op) {
  ar.Id(op.ino);
}

template <class Ar>
void Body(Ar& ar, typename Ar::template Field<TouchOp>& op) {
  ar.Id(op.ino);
  ar.Time(op.mtime);
  ar.Time(op.ctime);
}

// The kind byte of an op is its place in the variant, from 1: new kinds are added at the end of it.
template <size_t kIndex = 0>
bool DecodeBody(uint8_t kind, std::string_view body, std::vector<Op>& out) {
  if constexpr (kIndex == std::variant_size_v<Op>) {
    return false;
  } else {
    if (kind != kIndex + 1) return DecodeBody<kIndex + 1>(kind, body, out);
    std::variant_alternative_t<kIndex, Op> op;
    OpReader reader(body);
    Body(reader, op);
    if (!reader.done()) return false;
    out.emplace_back(std::move(op));
    return true;
  }
}

size_t BodySize(const Op& op) {
  OpSizer sizer;
  std::visit([&sizer](const auto& alternative) { Body(sizer, alternative); }, op);
  return sizer.size();
}

}  // namespace

void EncodeOp(const Op& op, ByteWriter& out) {
  out.U8(static_cast<uint8_t>(op.index() + 1));
  out.Varint(BodySize(op));
  OpWriter writer(out);
  std::visit([&writer](const auto& alternative) { Body(writer, alternative); }, op);
}

size_t EncodedSize(const Op& op) {
  const size_t body = BodySize(op);
  return 1 + VarintBytes(body) + body;
}

std::string EncodeOpsHeader(size_t count) {
  ByteWriter out;
  out.U8(kVersion);
  out.Varint(count);
  return out.Take();
}

std::string EncodeOps(std::span<const Op> ops) {
  ByteWriter out;
  out.Bytes(EncodeOpsHeader(ops.size()));
  for (const Op& op : ops) EncodeOp(op, out);
  return out.Take();
}

Result<std::vector<Op>> DecodeOps(std::string_view bytes) {
  if (bytes.size() > kMaxCommitBytes) return Error(Code::kCorrupt, "ops: batch over the limit of a commit");
  ByteReader in(bytes);
  const uint8_t version = in.U8();
  if (in.failed()) return Error(Code::kCorrupt, "ops: empty batch");
  if (version == 0) return Error(Code::kCorrupt, "ops: version 0");
  if (version > kVersion) {
    return Error(Code::kNotSupported, fmt::format("ops: version {} is newer than {}", version, kVersion));
  }
  const uint64_t count = in.Varint();
  if (in.failed() || count > kMaxOpsPerCommit || count > in.rest().size() / kMinOpBytes) {
    return Error(Code::kCorrupt, fmt::format("ops: count {} does not fit", count));
  }
  std::vector<Op> ops;
  ops.reserve(count);
  for (uint64_t i = 0; i < count; i++) {
    const uint8_t kind = in.U8();
    const std::string_view body = in.LengthPrefixed();
    if (in.failed() || !DecodeBody(kind, body, ops)) {
      return Error(Code::kCorrupt, fmt::format("ops: op {} of {} (kind {}) is malformed", i + 1, count, kind));
    }
  }
  if (!in.done()) return Error(Code::kCorrupt, "ops: bytes after the last op");
  return ops;
}

}  // namespace archil
