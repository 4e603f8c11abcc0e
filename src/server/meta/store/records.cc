#include "server/meta/store/records.h"

#include <utility>

namespace archil {
namespace {

constexpr size_t kMaxChain = 64;

Result<std::optional<std::string>> Live(Result<std::optional<std::string>> raw) {
  if (raw.ok() && *raw && IsTombstone(**raw)) return std::optional<std::string>();
  return raw;
}

}  // namespace

Result<BranchChain> LoadBranchChain(KvView& view, BranchId branch) {
  BranchChain chain;
  BranchId next = branch;
  Epoch bound{UINT64_MAX};
  while (next) {
    if (chain.levels.size() >= kMaxChain) return Error(Code::kCorrupt, "chain of parent branches does not end");
    ARCHIL_ASSIGN_OR_RETURN(auto raw, GetDiskWide(view, BranchKey(next)));
    if (!raw) return Error(Code::kNotFound, "no such branch");
    ARCHIL_ASSIGN_OR_RETURN(const BranchRecord rec, DecodeBranch(*raw));
    const Epoch epoch = std::min(bound, rec.epoch);
    if (chain.levels.empty()) chain.single_epoch = !rec.parent && rec.epoch == rec.first_epoch;
    chain.levels.push_back({next, epoch});
    next = rec.parent;
    bound = rec.parent_epoch;
  }
  if (chain.levels.empty()) return Error(Code::kNotFound, "no such branch");
  return chain;
}

Result<std::optional<std::string>> GetDiskWide(KvView& view, std::string_view logical) {
  return view.Get(DiskWideKey(logical));
}

Status ScanDiskWide(KvView& view, std::string_view prefix, const RecordFn& fn) {
  const std::string begin = DiskWideKey(prefix);
  return view.Scan(begin, PrefixEnd(begin), [&](std::string_view key, std::string_view value) { return fn(key.substr(8), value); });
}

// The newest version at or below `epoch` in one branch, tombstones included.
Result<std::optional<std::string>> Records::GetFrom(size_t level, Epoch epoch, std::string_view logical) const {
  const BranchId branch = chain_.levels[level].branch;
  const std::string begin = VersionedKey(branch, logical, epoch);
  const std::string end = PrefixEnd(BranchedKey(branch, logical));
  std::optional<std::string> found;
  ARCHIL_RETURN_IF_ERROR(view_.Scan(begin, end, [&](std::string_view key, std::string_view value) {
    if (key.size() == begin.size()) found = std::string(value);
    return false;
  }));
  return found;
}

Result<std::optional<std::string>> Records::Get(std::string_view logical) const {
  if (chain_.single_epoch) return Live(view_.Get(VersionedKey(chain_.branch(), logical, chain_.epoch())));
  for (size_t level = 0; level < chain_.levels.size(); ++level) {
    ARCHIL_ASSIGN_OR_RETURN(auto found, GetFrom(level, chain_.levels[level].epoch, logical));
    if (found) return Live(std::move(found));
  }
  return std::optional<std::string>();
}

Result<bool> Records::OlderVersionShows(std::string_view logical) const {
  if (chain_.single_epoch) return false;
  for (size_t level = 0; level < chain_.levels.size(); ++level) {
    Epoch epoch = chain_.levels[level].epoch;
    if (level == 0) {
      if (epoch.value == 0) continue;
      epoch = Epoch{epoch.value - 1};
    }
    ARCHIL_ASSIGN_OR_RETURN(auto found, GetFrom(level, epoch, logical));
    if (found) return !IsTombstone(*found);
  }
  return false;
}

Status Records::ScanSingle(std::string_view prefix, std::string_view after, const RecordFn& fn) const {
  std::string begin = BranchedKey(chain_.branch(), after.empty() ? prefix : after);
  const std::string end = PrefixEnd(BranchedKey(chain_.branch(), prefix));
  return view_.Scan(begin, end, [&](std::string_view key, std::string_view value) {
    BranchId branch;
    std::string_view logical;
    Epoch epoch;
    if (!SplitVersioned(key, branch, logical, epoch)) return true;
    if (!after.empty() && logical <= after) return true;
    if (epoch > chain_.epoch() || IsTombstone(value)) return true;
    return fn(logical, value);
  });
}

Status Records::Scan(std::string_view prefix, std::string_view after, const RecordFn& fn) const {
  if (chain_.single_epoch) return ScanSingle(prefix, after, fn);
  // Newest version of each key, nearer levels first; tombstones take part in hiding.
  absl::btree_map<std::string, std::string> merged;
  for (const auto& level : chain_.levels) {
    const std::string begin = BranchedKey(level.branch, after.empty() ? prefix : after);
    const std::string end = PrefixEnd(BranchedKey(level.branch, prefix));
    ARCHIL_RETURN_IF_ERROR(view_.Scan(begin, end, [&](std::string_view key, std::string_view value) {
      BranchId branch;
      std::string_view logical;
      Epoch epoch;
      if (!SplitVersioned(key, branch, logical, epoch)) return true;
      if (epoch > level.epoch || (!after.empty() && logical <= after)) return true;
      merged.emplace(std::string(logical), std::string(value));  // keeps what a nearer level or newer epoch said
      return true;
    }));
  }
  for (const auto& [logical, value] : merged) {
    if (!IsTombstone(value) && !fn(logical, value)) break;
  }
  return Ok();
}

Result<std::optional<InodeRecord>> Records::GetInode(InodeId ino) const {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, Get(InodeKey(ino)));
  if (!raw) return std::optional<InodeRecord>();
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord rec, DecodeInode(*raw));
  return std::optional<InodeRecord>(std::move(rec));
}

Result<std::optional<DentryRecord>> Records::GetDentry(InodeId parent, std::string_view name) const {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, Get(DentryKey(parent, name)));
  if (!raw) return std::optional<DentryRecord>();
  ARCHIL_ASSIGN_OR_RETURN(const DentryRecord rec, DecodeDentry(*raw));
  return std::optional<DentryRecord>(rec);
}

Result<std::optional<ChunkRecord>> Records::GetChunk(InodeId ino, uint64_t chunk) const {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, Get(ChunkKey(ino, chunk)));
  if (!raw) return std::optional<ChunkRecord>();
  ARCHIL_ASSIGN_OR_RETURN(ChunkRecord rec, DecodeChunk(*raw));
  return std::optional<ChunkRecord>(std::move(rec));
}

Result<std::vector<Extent>> Records::GetExtents(InodeId ino, uint64_t chunk) const {
  std::vector<Extent> out;
  ARCHIL_ASSIGN_OR_RETURN(auto rec, GetChunk(ino, chunk));
  if (!rec) return out;
  out.reserve(rec->extents.size());
  for (const StoredExtent& s : rec->extents) {
    Extent e;
    e.offset = chunk * kChunkSize + s.begin;
    e.length = s.end - s.begin;
    e.kind = s.kind;
    e.segment = s.segment;
    e.segment_offset = s.segment_offset;
    if (s.kind == ExtentKind::kInline) {
      ARCHIL_ASSIGN_OR_RETURN(auto raw, Get(BytesKey(ino, s.bytes_offset, s.bytes_serial)));
      if (!raw) return Error(Code::kCorrupt, "inline bytes of an extent are missing");
      ARCHIL_ASSIGN_OR_RETURN(std::string bytes, DecodeBlob(*raw));
      if (s.skip > bytes.size() || e.length > bytes.size() - s.skip) {
        return Error(Code::kCorrupt, "inline bytes of an extent are too short");
      }
      e.data = Buffer(std::move(bytes)).Slice(s.skip, e.length);
    }
    out.push_back(std::move(e));
  }
  return out;
}

Result<std::map<std::string, std::string>> Records::GetXattrs(InodeId ino) const {
  ARCHIL_ASSIGN_OR_RETURN(auto inode, GetInode(ino));
  if (!inode) return Error(Code::kNotFound);
  std::map<std::string, std::string> out = std::move(inode->xattrs);
  if (inode->large_xattrs == 0) return out;
  Status bad = Ok();
  ARCHIL_RETURN_IF_ERROR(Scan(XattrPrefix(ino), "", [&](std::string_view logical, std::string_view value) {
    auto blob = DecodeBlob(value);
    if (!blob.ok()) {
      bad = blob.error();
      return false;
    }
    out[std::string(NameOfXattr(logical))] = std::move(*blob);
    return true;
  }));
  ARCHIL_RETURN_IF_ERROR(bad);
  return out;
}

Result<CountersRecord> Records::GetCounters() const {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, Get(CountersKey()));
  if (!raw) return CountersRecord{};
  return DecodeCounters(*raw);
}

Result<InodeId> Records::ParentOfDirectory(InodeId ino) const {
  InodeId parent;
  ARCHIL_RETURN_IF_ERROR(Scan(ParentPrefix(ino), "", [&](std::string_view logical, std::string_view) {
    parent = ParentOfKey(logical);
    return false;
  }));
  return parent;
}

Result<InodeId> Records::HomeOf(InodeId ino) const {
  ARCHIL_ASSIGN_OR_RETURN(const auto inode, GetInode(ino));
  if (!inode || inode->attr.type == FileType::kDirectory || inode->attr.nlink != 1) return InodeId{0};
  return ParentOfDirectory(ino);
}

Status Txn::UseBranch(BranchId branch) {
  if (records_ != nullptr) return Error(Code::kInternal, "a transaction is about one branch");
  ARCHIL_ASSIGN_OR_RETURN(BranchChain chain, LoadBranchChain(base_, branch));
  records_ = std::make_unique<Records>(base_, std::move(chain));
  return Ok();
}

Status Txn::UseNewBranch(const BranchRecord& branch) {
  if (records_ != nullptr || branch.parent) return Error(Code::kInternal, "a new branch without a parent, once per transaction");
  records_ = std::make_unique<Records>(base_, BranchChain{{{branch.id, branch.epoch}}, true});
  return Ok();
}

// Records keyed first by an inode that this transaction made cannot be in the base (numbers are never reused).
bool Txn::BornHere(std::string_view logical) const {
  if (born_.empty() || logical.empty() || static_cast<uint8_t>(logical[0]) > static_cast<uint8_t>(Table::kOrphan)) return false;
  return born_.contains(InodeId{FirstIdOfKey(logical)});
}

Result<std::optional<std::string>> Txn::Get(std::string_view logical) {
  std::string key(logical);
  if (const auto it = versioned_.find(key); it != versioned_.end()) return it->second.value;
  if (BornHere(logical)) return std::optional<std::string>();
  return records_->Get(logical);
}

void Txn::Put(std::string logical, std::string value) { versioned_[std::move(logical)] = {std::move(value), true}; }

void Txn::Delete(std::string logical) {
  if (BornHere(logical)) {
    versioned_.erase(logical);
    return;
  }
  versioned_[std::move(logical)] = {std::nullopt, true};
}

Result<std::vector<std::pair<std::string, std::string>>> Txn::List(std::string_view prefix) {
  std::vector<std::pair<std::string, std::string>> out;
  auto it = versioned_.lower_bound(std::string(prefix));
  const auto in_prefix = [&] { return it != versioned_.end() && std::string_view(it->first).substr(0, prefix.size()) == prefix; };
  const auto take_overlay = [&] {
    if (it->second.value) out.emplace_back(it->first, *it->second.value);
    ++it;
  };
  if (!BornHere(prefix)) {
    ARCHIL_RETURN_IF_ERROR(records_->Scan(prefix, "", [&](std::string_view logical, std::string_view value) {
      while (in_prefix() && std::string_view(it->first) < logical) take_overlay();
      if (in_prefix() && std::string_view(it->first) == logical) {
        take_overlay();
      } else {
        out.emplace_back(std::string(logical), std::string(value));
      }
      return true;
    }));
  }
  while (in_prefix()) take_overlay();
  return out;
}

Result<Txn::InodeSlot*> Txn::LoadInode(InodeId ino) {
  auto& slot = inodes_[ino];
  if (slot == nullptr) {
    auto loaded = std::make_unique<InodeSlot>();
    auto rec = records_->GetInode(ino);
    if (!rec.ok()) {
      inodes_.erase(ino);
      return rec.error();
    }
    if (*rec) {
      loaded->exists = true;
      loaded->record = std::move(**rec);
    }
    slot = std::move(loaded);
  }
  return slot.get();
}

Result<const InodeRecord*> Txn::FindInode(InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(InodeSlot * slot, LoadInode(ino));
  return slot->exists ? const_cast<const InodeRecord*>(&slot->record) : nullptr;
}

Result<InodeRecord*> Txn::MutableInode(InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(InodeSlot * slot, LoadInode(ino));
  if (!slot->exists) return static_cast<InodeRecord*>(nullptr);
  slot->dirty = true;
  return &slot->record;
}

InodeRecord& Txn::CreateInode(InodeId ino) {
  auto& slot = inodes_[ino];
  slot = std::make_unique<InodeSlot>();
  slot->exists = true;
  slot->dirty = true;
  slot->record.attr.ino = ino;
  born_.insert(ino);
  return slot->record;
}

void Txn::DeleteInode(InodeId ino) {
  auto& slot = inodes_[ino];
  if (slot == nullptr) slot = std::make_unique<InodeSlot>();
  slot->exists = false;
  slot->dirty = true;
}

Result<InodeId> Txn::HomeOf(InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, FindInode(ino));
  if (inode == nullptr || inode->attr.type == FileType::kDirectory || inode->attr.nlink != 1) return InodeId{0};
  ARCHIL_ASSIGN_OR_RETURN(const auto parents, List(ParentPrefix(ino)));
  return parents.empty() ? InodeId{0} : ParentOfKey(parents[0].first);
}

Result<CountersRecord*> Txn::MutableCounters() {
  if (!counters_) {
    ARCHIL_ASSIGN_OR_RETURN(counters_, records_->GetCounters());
  }
  return &*counters_;
}

Result<std::optional<std::string>> Txn::GetDisk(std::string_view logical) {
  std::string key(logical);
  if (const auto it = disk_.find(key); it != disk_.end()) return it->second.value;
  ARCHIL_ASSIGN_OR_RETURN(auto value, GetDiskWide(base_, logical));
  disk_[std::move(key)] = {value, false};
  return value;
}

void Txn::PutDisk(std::string logical, std::string value) { disk_[std::move(logical)] = {std::move(value), true}; }
void Txn::DeleteDisk(std::string logical) { disk_[std::move(logical)] = {std::nullopt, true}; }

Result<std::vector<std::pair<std::string, std::string>>> Txn::ListDisk(std::string_view prefix) {
  absl::btree_map<std::string, std::optional<std::string>> merged;
  ARCHIL_RETURN_IF_ERROR(ScanDiskWide(base_, prefix, [&](std::string_view logical, std::string_view value) {
    merged[std::string(logical)] = std::string(value);
    return true;
  }));
  for (auto it = disk_.lower_bound(std::string(prefix)); it != disk_.end(); ++it) {
    if (std::string_view(it->first).substr(0, prefix.size()) != prefix) break;
    merged[it->first] = it->second.value;
  }
  std::vector<std::pair<std::string, std::string>> out;
  for (auto& [key, value] : merged) {
    if (value) out.emplace_back(key, std::move(*value));
  }
  return out;
}

Status Txn::FinishVersioned(const std::string& logical, std::optional<std::string> value, KvBatch& batch) const {
  const BranchChain& chain = records_->chain();
  std::string key = VersionedKey(chain.branch(), logical, chain.epoch());
  if (!value) {
    if (BornHere(logical)) return Ok();
    ARCHIL_ASSIGN_OR_RETURN(const bool hides, records_->OlderVersionShows(logical));
    if (hides) value = std::string(TombstoneValue());
  }
  batch.entries.push_back({std::move(key), std::move(value)});
  return Ok();
}

Result<KvBatch> Txn::Finish() {
  KvBatch batch;
  batch.entries.reserve(versioned_.size() + disk_.size() + inodes_.size() + 2);
  for (auto& [logical, slot] : versioned_) {
    if (slot.dirty) ARCHIL_RETURN_IF_ERROR(FinishVersioned(logical, std::move(slot.value), batch));
  }
  for (const auto& [ino, slot] : inodes_) {
    if (!slot->dirty) continue;
    std::optional<std::string> value;
    if (slot->exists) value = Encode(slot->record);
    ARCHIL_RETURN_IF_ERROR(FinishVersioned(InodeKey(ino), std::move(value), batch));
  }
  if (counters_) ARCHIL_RETURN_IF_ERROR(FinishVersioned(CountersKey(), Encode(*counters_), batch));
  for (auto& [logical, slot] : disk_) {
    if (slot.dirty) batch.entries.push_back({DiskWideKey(logical), std::move(slot.value)});
  }
  return batch;
}

}  // namespace archil
