// What reads and grants answer with: inodes and listings of a branch as the state has them. Not thread safe; nothing is changed.
#pragma once

#include <string>

#include "common/api/meta_service.h"
#include "server/meta/delegation/delegation_table.h"
#include "server/meta/store/records.h"

namespace archil {

inline constexpr uint32_t kMaxDirPage = 4096;

// `parent` counts for a directory only; 0: not known.
InodeInfo InfoOf(const InodeRecord& record, InodeId parent);
// kNotFound. `parent` of a directory, 0: to be looked up.
Result<InodeInfo> InfoOf(const Records& records, InodeId ino, InodeId parent);
// As InfoOf; kNotDirectory.
Result<InodeInfo> DirectoryInfo(const Records& records, InodeId ino);
// At most `limit` entries after the name. `position` is not set.
Result<DirPage> ListDirectory(const Records& records, InodeId ino, const std::string& after, uint32_t limit);

// The tree that the delegation table asks, over a state. An error makes the inode look absent and stays in `status`: then nothing that the
// table decided may be answered.
class StateTree final : public Tree {
 public:
  explicit StateTree(KvView& view) : view_(view) {}
  Kind KindOf(BranchId branch, InodeId ino) override;
  InodeId HomeOf(BranchId branch, InodeId ino) override;
  InodeId ChildOf(BranchId branch, InodeId dir, const std::string& name) override;
  InodeId ParentOf(BranchId branch, InodeId dir) override;
  bool Reaches(BranchId branch, InodeId ino, SessionId session) override;
  const Status& status() const { return status_; }

 private:
  const Records* RecordsOf(BranchId branch);

  KvView& view_;
  std::map<BranchId, Records> records_;
  Status status_;
};

}  // namespace archil
