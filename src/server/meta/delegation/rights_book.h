// RightsBook: the records of rights on one branch. Pure data; the rules are the delegation table's (docs/delegation.md).
//
// A record on a directory covers the non-directories in it but its exceptions. Records of non-directories are found by their
// home, the directory of their one name, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/base/ids.h"
#include "common/delegation/right.h"

namespace archil {

struct RightRecord {
  SessionId session;
  Right right = Right::kNone;
  uint64_t number = 0;  // of the grant
  absl::flat_hash_set<InodeId> exceptions;

  bool Covers(InodeId child) const { return !exceptions.contains(child); }
};

class RightsBook {
 public:
  // A session with more records is crowded.
  explicit RightsBook(size_t crowd = SIZE_MAX) : crowd_(crowd) {}

  // Everybody's on this inode.
  const std::vector<RightRecord>& At(InodeId ino) const;
  // Null: none.
  const RightRecord* Find(InodeId ino, SessionId session) const;
  // The session's record on `home`, if there is one and it covers `ino`.
  const RightRecord* Cover(InodeId home, InodeId ino, SessionId session) const;

  // Sets or replaces, without exceptions. `home` of a non-directory.
  RightRecord& Put(InodeId ino, SessionId session, Right right, uint64_t number, InodeId home);
  // At most `right` stays of a record that is there, with its exceptions; a change or not, it has the number.
  void Weaken(InodeId ino, SessionId session, Right right, uint64_t number);
  void Erase(InodeId ino, SessionId session);
  // A non-directory has another home (0: none), as far as it has records.
  void SetHome(InodeId ino, InodeId home);
  void ForgetInode(InodeId ino);
  void ForgetSession(SessionId session);

  // Nothing without a record on the directory.
  void Except(InodeId dir, SessionId session, InodeId child);
  void ExceptOthers(InodeId dir, SessionId session, InodeId child);
  void ForgetException(InodeId dir, InodeId child);

  // Non-directories with records, whose home this is.
  void ForChildren(InodeId dir, const std::function<void(InodeId, const std::vector<RightRecord>&)>& fn) const;
  // In order of inodes.
  const absl::btree_set<InodeId>& Of(SessionId session) const;
  const absl::btree_set<SessionId>& crowded() const { return crowded_; }
  bool empty() const { return nodes_.empty(); }
  size_t size() const { return size_; }

 private:
  struct Node {
    std::vector<RightRecord> records;
    InodeId home;
  };
  void DropFromHome(InodeId ino, InodeId home);

  absl::flat_hash_map<InodeId, Node> nodes_;
  absl::flat_hash_map<InodeId, absl::flat_hash_set<InodeId>> children_;
  absl::flat_hash_map<SessionId, absl::btree_set<InodeId>> sessions_;
  size_t size_ = 0;
  size_t crowd_;
  absl::btree_set<SessionId> crowded_;
};

}  // namespace archil
