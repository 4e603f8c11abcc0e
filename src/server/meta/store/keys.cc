#include "server/meta/store/keys.h"

namespace archil {
namespace {

void PutBig(std::string& out, uint64_t v) {
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(v >> shift));
}

uint64_t GetBig(std::string_view in) {
  uint64_t v = 0;
  for (size_t i = 0; i < 8 && i < in.size(); ++i) v = v << 8 | static_cast<uint8_t>(in[i]);
  return v;
}

std::string Key(Table table) { return std::string(1, static_cast<char>(table)); }

std::string Key(Table table, uint64_t a) {
  std::string out;
  out.reserve(9);
  out.push_back(static_cast<char>(table));
  PutBig(out, a);
  return out;
}

std::string Key(Table table, uint64_t a, uint64_t b) {
  std::string out = Key(table, a);
  PutBig(out, b);
  return out;
}

std::string_view NameAt(std::string_view logical, size_t at) {
  if (logical.size() <= at) return {};
  return logical.substr(at, logical.size() - at - 1);  // without the zero byte
}

}  // namespace

std::string InodeKey(InodeId ino) { return Key(Table::kInode, ino.value); }
std::string DentryPrefix(InodeId parent) { return Key(Table::kDentry, parent.value); }
std::string DentryKey(InodeId parent, std::string_view name) {
  std::string out = DentryPrefix(parent);
  out.append(name);
  out.push_back('\0');
  return out;
}
std::string ChunkPrefix(InodeId ino) { return Key(Table::kChunk, ino.value); }
std::string ChunkKey(InodeId ino, uint64_t chunk) { return Key(Table::kChunk, ino.value, chunk); }
std::string BytesKey(InodeId ino, uint64_t offset, uint64_t serial) {
  std::string out = Key(Table::kBytes, ino.value, offset);
  PutBig(out, serial);
  return out;
}
std::string XattrPrefix(InodeId ino) { return Key(Table::kXattr, ino.value); }
std::string XattrKey(InodeId ino, std::string_view name) {
  std::string out = XattrPrefix(ino);
  out.append(name);
  out.push_back('\0');
  return out;
}
std::string ParentPrefix(InodeId ino) { return Key(Table::kParent, ino.value); }
std::string ParentKey(InodeId ino, InodeId parent, std::string_view name) {
  std::string out = Key(Table::kParent, ino.value, parent.value);
  out.append(name);
  out.push_back('\0');
  return out;
}
std::string OrphanPrefix() { return Key(Table::kOrphan); }
std::string OrphanKey(InodeId ino) { return Key(Table::kOrphan, ino.value); }
std::string CountersKey() { return Key(Table::kCounters); }
std::string DiskKey() { return Key(Table::kDisk); }
std::string BranchPrefix() { return Key(Table::kBranch); }
std::string BranchKey(BranchId id) { return Key(Table::kBranch, id.value); }
std::string SessionPrefix() { return Key(Table::kSession); }
std::string SessionTableKey(SessionId id) { return Key(Table::kSession, id.value); }
std::string SegmentPrefix() { return Key(Table::kSegment); }
std::string SegmentTableKey(SegmentId id) { return Key(Table::kSegment, id.value); }
std::string RangePrefix() { return Key(Table::kRange); }
std::string RangeKey(uint64_t block) { return Key(Table::kRange, block); }
std::string UsedKey(uint64_t index) { return Key(Table::kUsed, index); }
std::string TakenPrefix() { return Key(Table::kTaken); }
std::string TakenPrefix(SessionId session) { return Key(Table::kTaken, session.value); }
std::string TakenKey(SessionId session, InodeId ino) { return Key(Table::kTaken, session.value, ino.value); }
std::string AppliedKey() { return Key(Table::kApplied); }
std::string ServerOpKey(SessionId session, uint64_t id) { return Key(Table::kServerOp, session.value, id); }
std::string ServerOpPrefix(SessionId session) { return Key(Table::kServerOp, session.value); }
std::string TablePrefix(Table table) { return Key(table); }

std::string_view NameOfDentry(std::string_view logical) { return NameAt(logical, 9); }
std::string_view NameOfXattr(std::string_view logical) { return NameAt(logical, 9); }
uint64_t FirstIdOfKey(std::string_view logical) { return logical.size() < 9 ? 0 : GetBig(logical.substr(1)); }
uint64_t ChunkOfKey(std::string_view logical) { return logical.size() < 17 ? 0 : GetBig(logical.substr(9)); }
InodeId ParentOfKey(std::string_view logical) { return InodeId{ChunkOfKey(logical)}; }
InodeId TakenOfKey(std::string_view logical) { return InodeId{ChunkOfKey(logical)}; }

std::string BranchedKey(BranchId branch, std::string_view logical) {
  std::string out;
  out.reserve(16 + logical.size());
  PutBig(out, branch.value);
  out.append(logical);
  return out;
}

std::string VersionedKey(BranchId branch, std::string_view logical, Epoch epoch) {
  std::string out = BranchedKey(branch, logical);
  PutBig(out, ~epoch.value);
  return out;
}

std::string DiskWideKey(std::string_view logical) { return BranchedKey(BranchId{0}, logical); }

bool SplitVersioned(std::string_view key, BranchId& branch, std::string_view& logical, Epoch& epoch) {
  if (key.size() < 8 + 1 + kEpochSuffix) return false;
  branch = BranchId{GetBig(key)};
  logical = key.substr(8, key.size() - 8 - kEpochSuffix);
  epoch = Epoch{~GetBig(key.substr(key.size() - kEpochSuffix))};
  return true;
}

std::string PrefixEnd(std::string_view prefix) {
  std::string out(prefix);
  while (!out.empty()) {
    if (static_cast<uint8_t>(out.back()) != 0xff) {
      out.back() = static_cast<char>(static_cast<uint8_t>(out.back()) + 1);
      return out;
    }
    out.pop_back();
  }
  return out;
}

}  // namespace archil
