// set-extents: where the data of ranges of a file is now.
#include <fmt/format.h>

#include <algorithm>

#include "server/meta/ops/extents.h"
#include "server/meta/ops/inode_rules.h"

namespace archil {
namespace {

// The bytes must be where the session itself could have written them (a client is not trusted, DLG-2).
Status CheckSegment(OpEnv& env, const Extent& e) {
  if (e.segment_offset > kMaxSegment || e.length > kMaxSegment - e.segment_offset) return Refuse("an extent lies outside its segment");
  ARCHIL_ASSIGN_OR_RETURN(auto raw, env.txn.GetDisk(SegmentTableKey(e.segment)));
  if (!raw) return Refuse(fmt::format("segment {} does not exist", e.segment.value));
  ARCHIL_ASSIGN_OR_RETURN(const SegmentRecord segment, DecodeSegment(*raw));
  if (segment.session != env.session) return Refuse(fmt::format("segment {} is not of this session", e.segment.value));
  if (segment.state == SegmentRecord::State::kCondemned) return Refuse(fmt::format("segment {} was condemned", e.segment.value));
  return Ok();
}

Status Validate(OpEnv& env, const SetExtentsOp& op, uint64_t size) {
  uint64_t last_end = 0;
  for (const Extent& e : op.extents) {
    if (e.length == 0 || e.offset < last_end || e.offset > size || e.length > size - e.offset) {
      return Refuse("extents are empty, overlap, are not sorted or lie past the size");
    }
    last_end = e.end();
    switch (e.kind) {
      case ExtentKind::kSegment: ARCHIL_RETURN_IF_ERROR(CheckSegment(env, e)); break;
      case ExtentKind::kInline:
        if (e.length > kMaxInlineBytes || e.data.size() != e.length) return Refuse("inline bytes over the limit or of another length");
        break;
      case ExtentKind::kZero:
        if (e.length > kMaxZeroSpan) return Refuse("a range of zeros over the limit of one op");
        break;
      default: return Refuse("unknown kind of extent");
    }
  }
  return Ok();
}

// Every stored extent, and every record of bytes, belongs to one chunk.
Status PlaceExtent(OpEnv& env, ChunkEditor& editor, InodeId ino, const Extent& e, uint64_t serial) {
  for (uint64_t at = e.offset; at < e.end();) {
    const uint64_t chunk = at / kChunkSize;
    const uint64_t end = std::min(e.end(), (chunk + 1) * kChunkSize);
    StoredExtent s;
    s.begin = static_cast<uint32_t>(at - chunk * kChunkSize);
    s.end = static_cast<uint32_t>(end - chunk * kChunkSize);
    s.kind = e.kind;
    if (e.kind == ExtentKind::kSegment) {
      s.segment = e.segment;
      s.segment_offset = e.segment_offset + (at - e.offset);
    } else if (e.kind == ExtentKind::kInline) {
      s.bytes_offset = at;
      s.bytes_serial = serial;
      env.txn.Put(BytesKey(ino, at, serial), EncodeBlob(e.data.view().substr(at - e.offset, end - at)));
    }
    ARCHIL_RETURN_IF_ERROR(editor.Open(chunk));
    CutExtents(editor.extents(), s.begin, s.end);
    InsertExtent(editor.extents(), s);
    at = end;
  }
  return Ok();
}

}  // namespace

Status Apply(OpEnv& env, const SetExtentsOp& op) {
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.mtime));
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.ctime));
  if (op.size > kMaxFileSize) return Refuse("size over the limit");
  if ((op.clear_mode & ~07777u) != 0) return Refuse("mode has bits other than permissions");
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, NeedInode(env, op.ino));
  if (inode->attr.type != FileType::kRegular) return Refuse("only a regular file has data");
  const uint64_t size = std::max(inode->attr.size, op.size);
  ARCHIL_RETURN_IF_ERROR(Validate(env, op, size));

  inode->attr.size = size;
  inode->attr.mtime = op.mtime;
  inode->attr.mode &= ~op.clear_mode;
  Touch(*inode, op.ctime);
  ChunkEditor editor(env.txn, op.ino);
  for (const Extent& e : op.extents) ARCHIL_RETURN_IF_ERROR(PlaceExtent(env, editor, op.ino, e, inode->attr.change));
  ARCHIL_RETURN_IF_ERROR(editor.Close());
  return editor.Account();
}

}  // namespace archil
