// rename: rename(2) with its two flags.
#include <fmt/format.h>

#include "server/meta/ops/inode_rules.h"

namespace archil {
namespace {

constexpr int kMaxDepth = 1 << 20;

// REN-1: `dir` must not come to lie below itself, so the new place's ancestors must not contain it.
Status CheckNoLoop(OpEnv& env, InodeId dir, InodeId new_parent) {
  InodeId at = new_parent;
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    if (at == dir) return Refuse("the directory would be moved below itself");
    if (at == kRootInode) return Ok();
    ARCHIL_ASSIGN_OR_RETURN(auto parents, env.txn.List(ParentPrefix(at)));
    if (parents.size() != 1) return Error(Code::kCorrupt, fmt::format("directory {} has {} parents", at.value, parents.size()));
    at = ParentOfKey(parents[0].first);
  }
  return Error(Code::kCorrupt, "the path to the root does not end");
}

struct Place {
  InodeRecord* dir;
  std::string_view name;
};

void TouchBoth(const Place& a, const Place& b, Timestamp now) {
  TouchDirectory(*a.dir, now);
  if (a.dir != b.dir) TouchDirectory(*b.dir, now);
}

Status Exchange(OpEnv& env, const RenameOp& op, const Place& from, const Place& to) {
  if (!op.victim) return Refuse("an exchange needs both names");
  ARCHIL_ASSIGN_OR_RETURN(const DentryRecord a, NeedDentry(env, op.parent, op.name, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(const DentryRecord b, NeedDentry(env, op.new_parent, op.new_name, op.victim));
  if (a.ino == b.ino) return Ok();  // two names of one inode: nothing changes
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * moved, NeedInode(env, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * other, NeedInode(env, op.victim));
  if (op.parent != op.new_parent) {
    if (a.type == FileType::kDirectory) ARCHIL_RETURN_IF_ERROR(CheckNoLoop(env, op.ino, op.new_parent));
    if (b.type == FileType::kDirectory) ARCHIL_RETURN_IF_ERROR(CheckNoLoop(env, op.victim, op.parent));
  }
  RemoveName(env, *from.dir, from.name, a.ino, a.type);
  RemoveName(env, *to.dir, to.name, b.ino, b.type);
  AddName(env, *from.dir, from.name, b.ino, b.type);
  AddName(env, *to.dir, to.name, a.ino, a.type);
  TouchBoth(from, to, op.now);
  Touch(*moved, op.now);
  Touch(*other, op.now);
  return Ok();
}

// What `new_name` shows goes; it must fit what takes its place.
Status ReplaceVictim(OpEnv& env, const RenameOp& op, FileType moved, const Place& to) {
  ARCHIL_ASSIGN_OR_RETURN(const DentryRecord b, NeedDentry(env, op.new_parent, op.new_name, op.victim));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * victim, NeedInode(env, op.victim));
  const bool victim_is_dir = b.type == FileType::kDirectory;
  if (victim_is_dir != (moved == FileType::kDirectory)) return Refuse("a directory and a non-directory cannot replace each other");
  if (victim_is_dir && victim->attr.size != 0) return Refuse("the replaced directory is not empty");
  RemoveName(env, *to.dir, to.name, b.ino, b.type);
  return DropLink(env, *victim, op.now, op.victim_still_open ? StillOpen::kYes : StillOpen::kNo);
}

}  // namespace

Status Apply(OpEnv& env, const RenameOp& op) {
  ARCHIL_RETURN_IF_ERROR(CheckOpName(op.name));
  ARCHIL_RETURN_IF_ERROR(CheckOpName(op.new_name));
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.now));
  if (op.mode > RenameOp::Mode::kExchange) return Refuse("unknown mode");
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * parent, NeedDirectory(env, op.parent));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * new_parent, NeedDirectory(env, op.new_parent));
  const Place from{parent, op.name};
  const Place to{new_parent, op.new_name};
  if (op.mode == RenameOp::Mode::kExchange) return Exchange(env, op, from, to);

  ARCHIL_ASSIGN_OR_RETURN(const DentryRecord moved, NeedDentry(env, op.parent, op.name, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, NeedInode(env, op.ino));
  if (!op.victim) {
    ARCHIL_RETURN_IF_ERROR(NeedAbsent(env, op.new_parent, op.new_name));
  } else if (op.mode == RenameOp::Mode::kNoReplace) {
    return Refuse("a name to replace, and the wish not to");
  } else if (op.victim == op.ino) {
    // POSIX rename: two names of one inode stay as they are.
    return NeedDentry(env, op.new_parent, op.new_name, op.victim).ok() ? Ok() : Status(Refuse("the new name does not show the victim"));
  }
  if (moved.type == FileType::kDirectory && op.parent != op.new_parent) {
    ARCHIL_RETURN_IF_ERROR(CheckNoLoop(env, op.ino, op.new_parent));
  }
  if (op.victim) ARCHIL_RETURN_IF_ERROR(ReplaceVictim(env, op, moved.type, to));
  RemoveName(env, *from.dir, from.name, op.ino, moved.type);
  AddName(env, *to.dir, to.name, op.ino, moved.type);
  TouchBoth(from, to, op.now);
  Touch(*inode, op.now);
  return Ok();
}

}  // namespace archil
