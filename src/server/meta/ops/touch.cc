// touch: times of a directory whose entries changed by ops that were absorbed.
#include "server/meta/ops/inode_rules.h"

namespace archil {

Status Apply(OpEnv& env, const TouchOp& op) {
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.mtime));
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.ctime));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, NeedInode(env, op.ino));
  inode->attr.mtime = op.mtime;
  Touch(*inode, op.ctime);
  return Ok();
}

}  // namespace archil
