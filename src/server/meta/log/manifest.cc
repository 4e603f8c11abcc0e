#include "server/meta/log/manifest.h"

#include <fmt/format.h>

#include "common/base/bytes.h"
#include "common/base/checksum.h"

namespace archil {
namespace {
constexpr uint8_t kVersion = 1;
}

std::string EncodeManifest(const Manifest& m) {
  ByteWriter w;
  w.U8(kVersion);
  w.Varint(m.epoch);
  w.Varint(m.next_segment);
  w.Varint(m.segments.size());
  for (const LogSegment& s : m.segments) {
    w.Varint(s.segment.value);
    w.Varint(s.first.value);
    w.U8(s.closed ? 1 : 0);
    w.Varint(s.end);
    w.Varint(s.servers.size());
    for (uint32_t id : s.servers) w.Varint(id);
  }
  w.U64(Checksum(w.str()));
  return w.Take();
}

Result<Manifest> DecodeManifest(std::string_view value) {
  const Error damaged(Code::kCorrupt, "manifest of the log is damaged");
  if (value.size() < 9) return damaged;
  const std::string_view covered = value.substr(0, value.size() - 8);
  ByteReader tail(value.substr(value.size() - 8));
  if (tail.U64() != Checksum(covered)) return damaged;
  ByteReader r(covered);
  const uint8_t version = r.U8();
  if (version > kVersion) return Error(Code::kNotSupported, "manifest of the log is of a newer version");
  if (version != kVersion) return damaged;
  Manifest m;
  m.epoch = r.Varint();
  m.next_segment = r.Varint();
  const uint64_t count = r.Varint();
  bool bad = false;
  for (uint64_t i = 0; i < count && !r.failed(); ++i) {
    LogSegment s;
    s.segment = SegmentId{r.Varint()};
    s.first = Lsn{r.Varint()};
    const uint8_t closed = r.U8();
    s.closed = closed == 1;
    s.end = r.Varint();
    const uint64_t servers = r.Varint();
    for (uint64_t j = 0; j < servers && !r.failed(); ++j) s.servers.push_back(static_cast<uint32_t>(r.Varint()));
    if (closed > 1 || s.servers.empty() || (!s.closed && i + 1 != count)) bad = true;
    m.segments.push_back(std::move(s));
  }
  if (bad || !r.done()) return damaged;
  return m;
}

ManifestStore::ManifestStore(Coordination& coord, DiskId disk) : coord_(coord), key_(KeyOf(disk)) {}

std::string ManifestStore::KeyOf(DiskId disk) { return fmt::format("disk/log/{:016x}", disk.value); }

Result<Manifest> ManifestStore::Load() {
  ARCHIL_ASSIGN_OR_RETURN(auto entry, coord_.Get(key_));
  version_ = entry ? entry->version : 0;
  if (!entry) return Manifest{};
  return DecodeManifest(entry->value);
}

Status ManifestStore::Store(const Manifest& m) {
  CoordTxn txn;
  txn.compares.push_back({key_, version_});
  std::string value = EncodeManifest(m);
  txn.puts.emplace_back(key_, value);
  const Status s = coord_.Commit(txn);
  if (s.code() == Code::kBusy) return Error(Code::kFenced, "another leader has changed the manifest of the log");
  if (!s.ok()) return Error(Code::kUnknown, fmt::format("manifest of the log: {}", s.error().ToString()));
  ARCHIL_ASSIGN_OR_RETURN(auto entry, coord_.Get(key_));
  if (!entry || entry->value != value) return Error(Code::kFenced, "another leader has changed the manifest of the log");
  version_ = entry->version;
  return Ok();
}

}  // namespace archil
