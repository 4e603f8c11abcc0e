// Strong identifiers. Each names one kind of thing, so that an inode number cannot be passed for a
// segment number. All are trivially copyable values; 0 is "none" for every kind.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <utility>

namespace archil {

template <class Tag>
struct StrongId {
  uint64_t value = 0;

  constexpr StrongId() = default;
  constexpr explicit StrongId(uint64_t v) : value(v) {}
  constexpr explicit operator bool() const { return value != 0; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

  template <class H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value);
  }
};

using InodeId = StrongId<struct InodeTag>;      // unique in a disk, never reused
using BranchId = StrongId<struct BranchTag>;    // unique in a disk, never reused
using DiskId = StrongId<struct DiskTag>;        // unique in a fleet, never reused
using SegmentId = StrongId<struct SegmentTag>;  // unique in a disk, never reused
using SessionId = StrongId<struct SessionTag>;  // unique in a disk, never reused
using Epoch = StrongId<struct EpochTag>;        // counter of a branch, first is 1
using Lsn = StrongId<struct LsnTag>;            // position in a disk's log, first record is 1
using Seq = StrongId<struct SeqTag>;            // position in a session's op log, first op is 1

inline constexpr InodeId kRootInode{1};

}  // namespace archil

template <class Tag>
struct std::hash<archil::StrongId<Tag>> {
  size_t operator()(archil::StrongId<Tag> id) const noexcept {
    return std::hash<uint64_t>{}(id.value);
  }
};
