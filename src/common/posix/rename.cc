#include "common/posix/rename.h"

#include "common/posix/entries.h"

namespace archil {
namespace {

Code Refusal(const RenameFacts& f) {
  const bool exchange = f.mode == RenameOp::Mode::kExchange;
  if (f.mode == RenameOp::Mode::kNoReplace && f.target) return Code::kExists;
  if (exchange && !f.target) return Code::kNotFound;
  if (f.source_above_new_parent) return Code::kInvalid;
  if (f.target && f.target_above_old_parent) return exchange ? Code::kInvalid : Code::kNotEmpty;
  if (!f.target || exchange || f.source == f.target) return Code::kOk;
  const bool source_dir = f.source_type == FileType::kDirectory;
  const bool target_dir = f.target_type == FileType::kDirectory;
  if (source_dir && !target_dir) return Code::kNotDirectory;
  if (!source_dir && target_dir) return Code::kIsDirectory;
  if (target_dir && !f.target_empty) return Code::kNotEmpty;
  return Code::kOk;
}

}  // namespace

RenameDecision DecideRename(const RenameFacts& f) {
  RenameDecision d;
  d.code = Refusal(f);
  if (d.code != Code::kOk) return d;
  if (f.source == f.target) return d;
  const int32_t source = ParentNlinkOf(f.source_type);
  const int32_t target = f.target ? ParentNlinkOf(f.target_type) : 0;
  if (!f.target) {
    d.action = RenameAction::kMove;
  } else {
    d.action = f.mode == RenameOp::Mode::kExchange ? RenameAction::kExchange : RenameAction::kReplace;
  }
  d.old_parent_nlink = -source + (d.action == RenameAction::kExchange ? target : 0);
  d.new_parent_nlink = source - target;
  return d;
}

}  // namespace archil
