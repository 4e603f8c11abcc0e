// Facts about an op that the log and the planner ask for, without knowing its kind.
#pragma once

#include "common/api/ops.h"

namespace archil {

// The inode that an op is about. A rename and a removal are about the inode that they move or remove.
InodeId OwnerOf(const Op& op);

// The directories whose entries an op changes; 0 where it has none or only one. `to` is set for a rename only.
struct EntryDirs {
  InodeId from;
  InodeId to;
};
EntryDirs EntryDirsOf(const Op& op);

// Calls for every inode that an op names, directories too; 0 and repeats may be among them.
template <class Fn>
void ForInodes(const Op& op, const Fn& fn) {
  const EntryDirs dirs = EntryDirsOf(op);
  fn(dirs.from);
  fn(dirs.to);
  fn(OwnerOf(op));
  if (const auto* rename = std::get_if<RenameOp>(&op)) fn(rename->victim);
}

}  // namespace archil
