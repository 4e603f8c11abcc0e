// Rights: what this session holds on which inodes, and what of it is being given up (docs/delegation.md).
// Pure: no locks, clocks or I/O; the caller serialises. INV: never more than the server records.
//
// A right on a directory covers its children; whether it covers a given one is known to the inode itself (its `home`), so calls
// about others than directories name both. Alone: the session holds WRITE on everything, without records.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/api/meta_service.h"
#include "common/base/ids.h"
#include "common/delegation/right.h"
#include "common/env/clock.h"

namespace archil {

class Rights {
 public:
  bool alone() const { return alone_; }
  void SetAlone(bool alone) { alone_ = alone; }

  // The record of an inode, kWrite if alone.
  Right Of(InodeId ino) const;
  // The number of the record's grant; 0 if there is none.
  uint64_t NumberOf(InodeId ino) const;
  // What a grant gave: strengthens, and takes the higher number. Ignored if it was given up since (see GaveUp).
  // False: ignored.
  bool Install(InodeId ino, Right right, uint64_t number, BootTime now);
  // A new directory, or an inode that no directory covers from now on, WRITE held: nothing to do while alone.
  void Born(InodeId ino, BootTime now);
  void Erase(InodeId ino) { records_.erase(ino); }

  // With `home`: the directory that covers the inode, or 0.
  Right RightOf(InodeId ino, InodeId home) const;
  bool MayRead(InodeId ino, InodeId home) const { return RightOf(ino, home) != Right::kNone; }
  // Not while a recall has come to where no change is acknowledged any more.
  bool MayChange(InodeId ino, InodeId home) const;
  // May somebody above us (the kernel) remember it? Not while it is being given up.
  bool MayCache(InodeId ino, InodeId home) const;

  // --- a recall of `ino`, which leaves `keep`
  void BeginRecall(InodeId ino, Right keep);
  // A directory: its own names and attributes change no more; what it covers goes on.
  void CloseNames(InodeId ino);
  // From here on no change is acknowledged, and nothing is read if nothing stays.
  void Close(InodeId ino);
  // A read would have to wait until the right is gone (and is asked for again).
  bool ReadsWait(InodeId ino, InodeId home) const;
  // The right is gone, or weakened. `message` is the recall's number. Grants of earlier numbers that arrive later are ignored
  // until ForgetGivenUp.
  void GaveUp(InodeId ino, Right keep, uint64_t message);
  // A recall of the inode that came after this grant was carried out (of the newest few thousand): the grant is no longer on its way.
  bool Ended(InodeId ino, uint64_t grant) const;
  // No grant is on its way any more.
  void ForgetGivenUp() { given_up_.clear(); }

  // Others have come: what is kept becomes records.
  void EndAlone(const std::vector<HeldRight>& keeps, uint64_t message, BootTime now);
  // After a restart of the server: everything that was reclaimed has this number.
  void Renumber(uint64_t number);
  std::vector<HeldRight> All() const;
  size_t size() const { return records_.size(); }
  BootTime SinceOf(InodeId ino) const;

 private:
  struct Record {
    Right right = Right::kNone;
    uint64_t number = 0;
    BootTime since;  // for people
  };
  struct Recall {
    Right keep = Right::kNone;
    bool names_closed = false;
    bool closed = false;
  };
  bool alone_ = false;
  absl::flat_hash_map<InodeId, Record> records_;
  absl::flat_hash_map<InodeId, Recall> recalls_;
  absl::flat_hash_map<InodeId, uint64_t> given_up_;
  absl::flat_hash_map<InodeId, uint64_t> ended_;           // message of the newest recall that was carried out
  std::deque<std::pair<InodeId, uint64_t>> ended_order_;   // oldest first
};

}  // namespace archil
