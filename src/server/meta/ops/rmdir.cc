// rmdir: removes an empty directory.
#include "server/meta/ops/inode_rules.h"

namespace archil {

Status Apply(OpEnv& env, const RmdirOp& op) {
  ARCHIL_RETURN_IF_ERROR(CheckOpName(op.name));
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.now));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * parent, NeedDirectory(env, op.parent));
  ARCHIL_RETURN_IF_ERROR(NeedDentry(env, op.parent, op.name, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * dir, NeedDirectory(env, op.ino));
  if (dir->attr.size != 0) return Refuse("the directory is not empty");

  RemoveName(env, *parent, op.name, op.ino, FileType::kDirectory);
  TouchDirectory(*parent, op.now);
  return DropLink(env, *dir, op.now, op.still_open ? StillOpen::kYes : StillOpen::kNo);
}

}  // namespace archil
