// link: a further name for an inode that is not a directory.
#include "server/meta/ops/inode_rules.h"

namespace archil {

Status Apply(OpEnv& env, const LinkOp& op) {
  ARCHIL_RETURN_IF_ERROR(CheckOpName(op.name));
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.now));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, NeedInode(env, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * parent, NeedDirectory(env, op.parent));
  if (inode->attr.type == FileType::kDirectory) return Refuse("a directory has one name only");
  if (inode->attr.nlink == 0) return Refuse("the inode was removed");
  if (inode->attr.nlink >= kMaxLinks) return Refuse("too many links");
  ARCHIL_RETURN_IF_ERROR(NeedAbsent(env, op.parent, op.name));

  ++inode->attr.nlink;
  Touch(*inode, op.now);
  AddName(env, *parent, op.name, op.ino, inode->attr.type);
  TouchDirectory(*parent, op.now);
  return Ok();
}

}  // namespace archil
