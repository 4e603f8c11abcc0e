// What a rename may do: rename(2), renameat2(2), in the order in which Linux finds the errors (fs/namei.c). Pure.
#pragma once

#include <cstdint>

#include "common/api/ops.h"
#include "common/api/types.h"
#include "common/base/result.h"

namespace archil {

struct RenameFacts {
  RenameOp::Mode mode = RenameOp::Mode::kPlain;
  InodeId source;
  FileType source_type = FileType::kRegular;
  InodeId target;  // what the new name shows; 0: nothing
  FileType target_type = FileType::kRegular;
  bool target_empty = true;  // a directory without names
  bool same_parent = false;
  bool source_above_new_parent = false;  // the source is the new parent, or an ancestor of it
  bool target_above_old_parent = false;  // the target is the old parent, or an ancestor of it
};

enum class RenameAction : uint8_t {
  kNothing,   // both names show one inode: success, and nothing changes
  kMove,      // the new name is free
  kReplace,   // the target loses the new name
  kExchange,
};

struct RenameDecision {
  Code code = Code::kOk;
  RenameAction action = RenameAction::kNothing;  // when code is kOk
  // What is added to the link counts of the parents. With one parent both are for it: add them up.
  int32_t old_parent_nlink = 0;
  int32_t new_parent_nlink = 0;
};

RenameDecision DecideRename(const RenameFacts& facts);

}  // namespace archil
