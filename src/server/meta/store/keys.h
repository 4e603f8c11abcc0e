// Keys of the metadata state. Big-endian, so that byte order is numeric order.
//
//   versioned  = branch id (8) ‖ table (1) ‖ logical key ‖ ~epoch (8): a seek finds the newest version first
//   disk-wide  = 0 (8) ‖ table (1) ‖ logical key
// A name in a logical key ends with a zero byte, so that no name is a prefix of another one's key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/ids.h"

namespace archil {

// Values are durable: never reuse one.
enum class Table : uint8_t {
  kInode = 1,
  kDentry = 2,
  kChunk = 3,
  kBytes = 4,
  kXattr = 5,
  kParent = 6,
  kOrphan = 7,
  kCounters = 8,
  kDisk = 32,
  kBranch = 33,
  kSession = 34,
  kSegment = 35,
  kRange = 36,
  kUsed = 37,
  kApplied = 38,
  kTaken = 39,
  kServerOp = 40,
};

inline constexpr size_t kEpochSuffix = 8;

// Table byte and logical key: what names a record inside a branch (or, disk-wide, the disk).
std::string InodeKey(InodeId ino);
std::string DentryKey(InodeId parent, std::string_view name);
std::string DentryPrefix(InodeId parent);
std::string ChunkKey(InodeId ino, uint64_t chunk);
std::string ChunkPrefix(InodeId ino);
std::string BytesKey(InodeId ino, uint64_t offset, uint64_t serial);
std::string XattrKey(InodeId ino, std::string_view name);
std::string XattrPrefix(InodeId ino);
std::string ParentKey(InodeId ino, InodeId parent, std::string_view name);
std::string ParentPrefix(InodeId ino);
std::string OrphanKey(InodeId ino);
std::string OrphanPrefix();
std::string CountersKey();
std::string DiskKey();
std::string BranchKey(BranchId id);
std::string BranchPrefix();
std::string SessionTableKey(SessionId id);
std::string SessionPrefix();
std::string SegmentTableKey(SegmentId id);
std::string SegmentPrefix();
std::string RangeKey(uint64_t block);
std::string RangePrefix();
std::string UsedKey(uint64_t index);
std::string TakenKey(SessionId session, InodeId ino);
std::string TakenPrefix();
std::string TakenPrefix(SessionId session);
std::string AppliedKey();
std::string ServerOpKey(SessionId session, uint64_t id);  // id 0: which are finished
std::string ServerOpPrefix(SessionId session);
std::string TablePrefix(Table table);

// Logical keys taken apart; zero or empty if they are not of that form.
std::string_view NameOfDentry(std::string_view logical);
uint64_t ChunkOfKey(std::string_view logical);
uint64_t FirstIdOfKey(std::string_view logical);  // the first 8 bytes after the table
std::string_view NameOfXattr(std::string_view logical);
InodeId ParentOfKey(std::string_view logical);    // parent table
InodeId TakenOfKey(std::string_view logical);     // taken table

// The whole key of a version of `logical`.
std::string VersionedKey(BranchId branch, std::string_view logical, Epoch epoch);
std::string BranchedKey(BranchId branch, std::string_view logical);  // without the epoch: a prefix
std::string DiskWideKey(std::string_view logical);
// Parts of a versioned key: false if it is too short.
bool SplitVersioned(std::string_view key, BranchId& branch, std::string_view& logical, Epoch& epoch);
// The first key that does not start with `prefix`; empty if there is none.
std::string PrefixEnd(std::string_view prefix);

}  // namespace archil
