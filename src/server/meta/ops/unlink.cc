// unlink: removes a name of a non-directory.
#include "server/meta/ops/inode_rules.h"

namespace archil {

Status Apply(OpEnv& env, const UnlinkOp& op) {
  ARCHIL_RETURN_IF_ERROR(CheckOpName(op.name));
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.now));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * parent, NeedDirectory(env, op.parent));
  ARCHIL_ASSIGN_OR_RETURN(const DentryRecord dentry, NeedDentry(env, op.parent, op.name, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, NeedInode(env, op.ino));
  if (dentry.type == FileType::kDirectory) return Refuse("unlink of a directory");

  RemoveName(env, *parent, op.name, op.ino, dentry.type);
  TouchDirectory(*parent, op.now);
  return DropLink(env, *inode, op.now, op.still_open ? StillOpen::kYes : StillOpen::kNo);
}

}  // namespace archil
