// create: a new inode under a new name.
#include <fmt/format.h>

#include "server/meta/ops/inode_rules.h"

namespace archil {
namespace {

// The number must be one of the session's own and never used before.
Status TakeNumber(OpEnv& env, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, env.txn.GetDisk(RangeKey(ino.value / kInodeRange)));
  if (!raw) return Refuse(fmt::format("inode number {} was never granted", ino.value));
  ARCHIL_ASSIGN_OR_RETURN(const RangeRecord range, DecodeRange(*raw));
  if (range.session != env.session) return Refuse(fmt::format("inode number {} was granted to another session", ino.value));
  const std::string key = UsedKey(ino.value / kInodesPerUsed);
  UsedRecord used;
  ARCHIL_ASSIGN_OR_RETURN(auto raw_used, env.txn.GetDisk(key));
  if (raw_used) {
    ARCHIL_ASSIGN_OR_RETURN(used, DecodeUsed(*raw_used));
  }
  const uint64_t bit = ino.value % kInodesPerUsed;
  if (used.test(bit)) return Refuse(fmt::format("inode number {} was already used", ino.value));
  used.set(bit);
  env.txn.PutDisk(key, Encode(used));
  return Ok();
}

Status Validate(const CreateOp& op) {
  ARCHIL_RETURN_IF_ERROR(CheckOpName(op.name));
  ARCHIL_RETURN_IF_ERROR(CheckTime(op.now));
  if (!IsValid(op.type)) return Refuse("unknown type of file");
  if ((op.mode & ~07777u) != 0) return Refuse("mode has bits other than permissions");
  const bool symlink = op.type == FileType::kSymlink;
  if (symlink ? op.target.empty() || op.target.size() > kMaxSymlink : !op.target.empty()) return Refuse("bad symlink target");
  if (op.target.find('\0') != std::string::npos) return Refuse("bad symlink target");
  return Ok();
}

}  // namespace

Status Apply(OpEnv& env, const CreateOp& op) {
  ARCHIL_RETURN_IF_ERROR(Validate(op));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * parent, NeedDirectory(env, op.parent));
  ARCHIL_RETURN_IF_ERROR(NeedAbsent(env, op.parent, op.name));
  ARCHIL_RETURN_IF_ERROR(TakeNumber(env, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(CountersRecord * counters, env.txn.MutableCounters());

  InodeRecord& inode = env.txn.CreateInode(op.ino);
  inode.attr.type = op.type;
  inode.attr.mode = op.mode;
  inode.attr.uid = op.uid;
  inode.attr.gid = op.gid;
  inode.attr.nlink = op.type == FileType::kDirectory ? 2 : 1;
  inode.attr.size = op.target.size();
  inode.attr.rdev = op.rdev;
  inode.attr.atime = inode.attr.mtime = inode.attr.ctime = inode.attr.btime = op.now;
  inode.attr.change = 1;
  inode.target = op.target;
  AddName(env, *parent, op.name, op.ino, op.type);
  TouchDirectory(*parent, op.now);
  ++counters->inodes;
  return Ok();
}

}  // namespace archil
