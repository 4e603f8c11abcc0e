// set-attr: chmod, chown, truncate, utimes.
#include "server/meta/ops/extents.h"
#include "server/meta/ops/inode_rules.h"

namespace archil {
namespace {

constexpr uint32_t kAllFields = SetAttrOp::kMode | SetAttrOp::kUid | SetAttrOp::kGid | SetAttrOp::kSize | SetAttrOp::kAtime | SetAttrOp::kMtime;

Status Validate(const SetAttrOp& op) {
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.now));
  if ((op.fields & ~kAllFields) != 0) return Refuse("unknown fields");
  if ((op.fields & SetAttrOp::kMode) != 0 && (op.mode & ~07777u) != 0) return Refuse("mode has bits other than permissions");
  if ((op.fields & SetAttrOp::kSize) != 0 && op.size > kMaxFileSize) return Refuse("size over the limit");
  if ((op.fields & SetAttrOp::kAtime) != 0) ARCHIL_RETURN_IF_ERROR(CheckTime(op.atime));
  if ((op.fields & SetAttrOp::kMtime) != 0) ARCHIL_RETURN_IF_ERROR(CheckTime(op.mtime));
  return Ok();
}

}  // namespace

Status Apply(OpEnv& env, const SetAttrOp& op) {
  ARCHIL_RETURN_IF_ERROR(Validate(op));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, NeedInode(env, op.ino));
  Attr& attr = inode->attr;
  if ((op.fields & SetAttrOp::kSize) != 0) {
    if (attr.type != FileType::kRegular) return Refuse("only a regular file can be truncated");
    if (op.size <= attr.size) ARCHIL_RETURN_IF_ERROR(RemoveExtentsFrom(env.txn, op.ino, op.size));
    attr.size = op.size;
  }
  if ((op.fields & SetAttrOp::kMode) != 0) attr.mode = op.mode;
  if ((op.fields & SetAttrOp::kUid) != 0) attr.uid = op.uid;
  if ((op.fields & SetAttrOp::kGid) != 0) attr.gid = op.gid;
  if ((op.fields & SetAttrOp::kAtime) != 0) attr.atime = op.atime;
  if ((op.fields & SetAttrOp::kMtime) != 0) attr.mtime = op.mtime;
  Touch(*inode, op.now);
  return Ok();
}

}  // namespace archil
