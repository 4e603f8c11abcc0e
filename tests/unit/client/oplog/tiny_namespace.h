// A namespace in maps: what a server's tree becomes by applying ops one by one. Written for the tests of the op log and
// independent of it; stricter than a server: an op that does not fit the state is refused.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/api/ops.h"

namespace archil {

struct TinyInode {
  FileType type = FileType::kRegular;
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t nlink = 0;
  uint64_t size = 0;
  Timestamp atime, mtime, ctime;
  std::string target;
  std::map<std::string, std::string> xattrs;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> extents;  // offset -> length, segment offset
  bool orphan = false;

  friend bool operator==(const TinyInode&, const TinyInode&) = default;
};

class TinyNamespace {
 public:
  using Name = std::pair<InodeId, std::string>;

  TinyNamespace();  // a root directory
  // False, with a reason in `why`, if the op does not fit.
  bool Apply(const Op& op);

  const TinyInode* Find(InodeId ino) const;
  // 0: no such name.
  InodeId Lookup(InodeId parent, const std::string& name) const;
  bool Empty(InodeId dir) const;
  // `dir` is `below` or an ancestor of it.
  bool IsAbove(InodeId dir, InodeId below) const;
  const std::map<InodeId, TinyInode>& inodes() const { return inodes_; }
  const std::map<Name, InodeId>& names() const { return names_; }
  std::string Dump() const;
  std::string why;

  friend bool operator==(const TinyNamespace& a, const TinyNamespace& b) {
    return a.inodes_ == b.inodes_ && a.names_ == b.names_;
  }

 private:
  bool Do(const CreateOp& op);
  bool Do(const LinkOp& op);
  bool Do(const UnlinkOp& op);
  bool Do(const RmdirOp& op);
  bool Do(const RenameOp& op);
  bool Do(const SetAttrOp& op);
  bool Do(const SetExtentsOp& op);
  bool Do(const ClearRangeOp& op);
  bool Do(const SetXattrOp& op);
  bool Do(const RemoveXattrOp& op);
  bool Do(const ReleaseOrphanOp& op);
  bool Do(const TouchOp& op);

  bool No(std::string reason);
  TinyInode* Mutable(InodeId ino);
  TinyInode* Dir(InodeId ino);  // a directory that has names
  void Touch(InodeId dir, Timestamp now);
  void Drop(InodeId parent, InodeId ino, bool still_open, Timestamp now);

  std::map<InodeId, TinyInode> inodes_;
  std::map<Name, InodeId> names_;
};

}  // namespace archil
