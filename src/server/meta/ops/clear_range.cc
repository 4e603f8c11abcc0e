// clear-range: fallocate's holes, zeros and reservations.
#include <algorithm>

#include "server/meta/ops/extents.h"
#include "server/meta/ops/inode_rules.h"

namespace archil {
namespace {

Status Zero(OpEnv& env, const ClearRangeOp& op) {
  ChunkEditor editor(env.txn, op.ino);
  const uint64_t end = op.offset + op.length;
  for (uint64_t at = op.offset; at < end;) {
    const uint64_t chunk = at / kChunkSize;
    const uint64_t base = chunk * kChunkSize;
    const uint64_t to = std::min(end, base + kChunkSize);
    const auto first = static_cast<uint32_t>(at - base);
    const auto last = static_cast<uint32_t>(to - base);
    ARCHIL_RETURN_IF_ERROR(editor.Open(chunk));
    if (op.kind == ClearRangeOp::Kind::kZero) CutExtents(editor.extents(), first, last);
    FillHoles(editor.extents(), first, last);
    at = to;
  }
  ARCHIL_RETURN_IF_ERROR(editor.Close());
  return editor.Account();
}

}  // namespace

Status Apply(OpEnv& env, const ClearRangeOp& op) {
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.now));
  if (op.kind > ClearRangeOp::Kind::kAllocate) return Refuse("unknown kind");
  if (op.length == 0 || op.offset > kMaxFileSize || op.length > kMaxFileSize - op.offset) return Refuse("range over the limit");
  if (op.kind != ClearRangeOp::Kind::kPunch && op.length > kMaxZeroSpan) return Refuse("a range of zeros over the limit of one op");
  if (op.size > kMaxFileSize) return Refuse("size over the limit");
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, NeedInode(env, op.ino));
  if (inode->attr.type != FileType::kRegular) return Refuse("only a regular file has data");
  if (op.size < inode->attr.size) return Refuse("a cleared range does not shrink the file");

  if (op.kind == ClearRangeOp::Kind::kPunch) {
    ARCHIL_RETURN_IF_ERROR(PunchExtents(env.txn, op.ino, op.offset, op.length));
  } else {
    ARCHIL_RETURN_IF_ERROR(Zero(env, op));
  }
  inode->attr.size = op.size;
  inode->attr.mtime = op.now;
  Touch(*inode, op.now);
  return Ok();
}

}  // namespace archil
