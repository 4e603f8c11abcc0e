// Records: reads of a branch's state through its chain of parents; Txn: changes on top of them, held in memory
// until the whole of a log record has been applied, then written as one batch.
//
// Versions: a lookup takes the newest version at or below the wanted epoch in the branch itself, then in its parent at or
// below the epoch it was made from, and so on. A tombstone ends the search. Not thread safe; the view must outlive them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/format/records.h"
#include "server/meta/store/keys.h"
#include "server/meta/store/kv_store.h"

namespace archil {

// A branch and what it stands on, newest first.
struct BranchChain {
  struct Level {
    BranchId branch;
    Epoch epoch;  // newest one that is looked at
  };
  std::vector<Level> levels;
  // No older version of anything can exist: one point read is the whole truth.
  bool single_epoch = false;

  BranchId branch() const { return levels[0].branch; }
  Epoch epoch() const { return levels[0].epoch; }
};
// kNotFound for an unknown branch; kCorrupt for a chain that does not end.
Result<BranchChain> LoadBranchChain(KvView& view, BranchId branch);

// Calls with (logical key, value); false ends the scan.
using RecordFn = std::function<bool(std::string_view logical, std::string_view value)>;

class Records {
 public:
  Records(KvView& view, BranchChain chain) : view_(view), chain_(std::move(chain)) {}

  // nullopt: absent or deleted.
  Result<std::optional<std::string>> Get(std::string_view logical) const;
  // Records whose logical key starts with `prefix` and is greater than `after` (empty: from the start), in key order.
  Status Scan(std::string_view prefix, std::string_view after, const RecordFn& fn) const;
  // What Get would answer if there were no version of the current epoch.
  Result<bool> OlderVersionShows(std::string_view logical) const;

  Result<std::optional<InodeRecord>> GetInode(InodeId ino) const;
  Result<std::optional<DentryRecord>> GetDentry(InodeId parent, std::string_view name) const;
  Result<std::optional<ChunkRecord>> GetChunk(InodeId ino, uint64_t chunk) const;
  // Extents as the client sees them: file offsets, inline bytes filled in.
  Result<std::vector<Extent>> GetExtents(InodeId ino, uint64_t chunk) const;
  // All extended attributes, small and large.
  Result<std::map<std::string, std::string>> GetXattrs(InodeId ino) const;
  Result<CountersRecord> GetCounters() const;
  // The directory that holds directory `ino`; 0 for the root and what has no name.
  Result<InodeId> ParentOfDirectory(InodeId ino) const;
  // The directory of a non-directory with exactly one name; else 0.
  Result<InodeId> HomeOf(InodeId ino) const;

  const BranchChain& chain() const { return chain_; }
  KvView& view() const { return view_; }

 private:
  Result<std::optional<std::string>> GetFrom(size_t level, Epoch epoch, std::string_view logical) const;
  Status ScanSingle(std::string_view prefix, std::string_view after, const RecordFn& fn) const;

  KvView& view_;
  BranchChain chain_;
};

// Reads of disk-wide records.
Result<std::optional<std::string>> GetDiskWide(KvView& view, std::string_view logical);
Status ScanDiskWide(KvView& view, std::string_view prefix, const RecordFn& fn);

class Txn {
 public:
  explicit Txn(KvView& base) : base_(base) {}
  Txn(const Txn&) = delete;
  Txn& operator=(const Txn&) = delete;

  // Which branch the versioned calls below are about. Once per Txn.
  Status UseBranch(BranchId branch);
  // As UseBranch for a branch whose record is made by this very transaction.
  Status UseNewBranch(const BranchRecord& branch);
  const BranchChain& chain() const { return records_->chain(); }

  // --- versioned records by logical key
  Result<std::optional<std::string>> Get(std::string_view logical);
  void Put(std::string logical, std::string value);
  void Delete(std::string logical);
  // Everything with the prefix, changes included.
  Result<std::vector<std::pair<std::string, std::string>>> List(std::string_view prefix);

  // --- inodes, kept decoded. Pointers stay good as long as the Txn. Null: absent.
  Result<const InodeRecord*> FindInode(InodeId ino);
  Result<InodeRecord*> MutableInode(InodeId ino);
  // A number that was never used: nothing about it can be in the base.
  InodeRecord& CreateInode(InodeId ino);
  void DeleteInode(InodeId ino);
  // Made by this transaction.
  bool Born(InodeId ino) const { return born_.contains(ino); }
  // The directory of a non-directory with exactly one name; else 0.
  Result<InodeId> HomeOf(InodeId ino);
  Result<CountersRecord*> MutableCounters();

  // --- disk-wide records
  Result<std::optional<std::string>> GetDisk(std::string_view logical);
  void PutDisk(std::string logical, std::string value);
  void DeleteDisk(std::string logical);
  Result<std::vector<std::pair<std::string, std::string>>> ListDisk(std::string_view prefix);

  // Everything changed, as one batch.
  Result<KvBatch> Finish();

 private:
  struct Slot {
    std::optional<std::string> value;  // absent: deleted
    bool dirty = false;
  };
  using Overlay = absl::btree_map<std::string, Slot>;
  struct InodeSlot {
    bool exists = false;
    bool dirty = false;
    InodeRecord record;
  };

  Result<InodeSlot*> LoadInode(InodeId ino);
  bool BornHere(std::string_view logical) const;
  Status FinishVersioned(const std::string& logical, std::optional<std::string> value, KvBatch& batch) const;

  KvView& base_;
  std::unique_ptr<Records> records_;
  Overlay versioned_;
  Overlay disk_;
  absl::flat_hash_map<InodeId, std::unique_ptr<InodeSlot>> inodes_;
  absl::flat_hash_set<InodeId> born_;
  std::optional<CountersRecord> counters_;
};

}  // namespace archil
