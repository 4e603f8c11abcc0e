#include "client/recovery/lost_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/checksum.h"

namespace archil {
namespace {

constexpr uint64_t kMagic = 0x0a54534f4c435241;  // "ARCLOST\n"
constexpr size_t kWindowBytes = 1 << 20;

uint32_t HeaderCheck(std::string_view before) { return static_cast<uint32_t>(Checksum(before)); }

uint64_t RecordCheck(uint64_t number, uint32_t length, uint8_t kind, std::string_view body) {
  ByteWriter w;
  w.U64(number);
  w.U32(length);
  w.U8(kind);
  w.U64(Checksum(body));
  return Checksum(w.str());
}

}  // namespace

std::string LostHeader(uint32_t version) {
  ByteWriter w;
  w.U64(kMagic);
  w.U32(version);
  w.U32(HeaderCheck(w.str()));
  return w.Take();
}

void AppendLostRecord(uint64_t number, LostRecord kind, std::string_view body, std::string& out) {
  const auto length = static_cast<uint32_t>(body.size());
  ByteWriter w;
  w.U32(length);
  w.U8(static_cast<uint8_t>(kind));
  w.U64(RecordCheck(number, length, static_cast<uint8_t>(kind), body));
  out += w.str();
  out += body;
}

Status LostLogWriter::Append(LostRecord kind, std::string_view body) {
  AppendLostRecord(number_++, kind, body, buffer_);
  return buffer_.size() < kWindowBytes ? Ok() : Flush();
}

Status LostLogWriter::Flush() {
  ARCHIL_RETURN_IF_ERROR(file_.Write(written_, buffer_));
  written_ += buffer_.size();
  buffer_.clear();
  return Ok();
}

Result<std::string_view> LostLogReader::Peek(size_t length) {
  if (window_.size() - pos_ < length) {
    window_at_ += pos_;
    pos_ = 0;
    window_.clear();
    ARCHIL_ASSIGN_OR_RETURN(window_, file_.Read(window_at_, std::max(length, kWindowBytes)));
  }
  return std::string_view(window_).substr(pos_, length);
}

Status LostLogReader::ReadHeader() {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view bytes, Peek(kLostHeaderBytes));
  ByteReader in(bytes);
  const uint64_t magic = in.U64();
  const uint32_t version = in.U32();
  const uint32_t check = in.U32();
  if (in.failed() || magic != kMagic) return Error(Code::kCorrupt, "this is no file of lost operations");
  if (check != HeaderCheck(bytes.substr(0, 12)) || version == 0) {
    return Error(Code::kCorrupt, "its first 16 bytes are damaged");
  }
  if (version > kLostLogVersion) {
    return Error(Code::kNotSupported,
                 fmt::format("version {} of the file is newer than this program's, {}", version, kLostLogVersion));
  }
  pos_ += kLostHeaderBytes;
  return Ok();
}

Error LostLogReader::Bad(std::string_view what) const {
  return Error(Code::kCorrupt, fmt::format("record {} at byte {} {}", record_number_, record_at_, what));
}

Result<LostLogReader::Record> LostLogReader::Next() {
  record_number_ = number_;
  record_at_ = window_at_ + pos_;
  const Result<std::string_view> frame = Peek(kLostFrameBytes);
  if (!frame.ok()) return Bad(fmt::format("cannot be read: {}", frame.error().message()));
  ByteReader in(*frame);
  const uint32_t length = in.U32();
  const uint8_t kind = in.U8();
  const uint64_t check = in.U64();
  if (in.failed()) return Bad("is not there: the file ends");
  if (length > kMaxLostBody) return Bad("is damaged");
  const Result<std::string_view> all = Peek(kLostFrameBytes + length);
  if (!all.ok()) return Bad(fmt::format("cannot be read: {}", all.error().message()));
  if (all->size() != kLostFrameBytes + length) return Bad("is cut: the file ends");
  const std::string_view body = all->substr(kLostFrameBytes);
  if (check != RecordCheck(number_, length, kind, body)) return Bad("is damaged");
  pos_ += all->size();
  number_++;
  return Record{static_cast<LostRecord>(kind), body};
}

Result<bool> LostLogReader::AtEnd() {
  ARCHIL_ASSIGN_OR_RETURN(const std::string_view more, Peek(1));
  return more.empty();
}

}  // namespace archil
