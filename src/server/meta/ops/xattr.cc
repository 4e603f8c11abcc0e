// set-xattr and remove-xattr. Small values live in the inode record, large ones in records of their own.
#include "server/meta/ops/inode_rules.h"

namespace archil {
namespace {

constexpr size_t kSmallValue = 256;    // bytes
constexpr size_t kSmallTotal = 1024;   // bytes of names and values in one inode record

Status Validate(std::string_view name, Timestamp now) {
  ARCHIL_RETURN_IF_ERROR(CheckTime(now));
  if (name.empty() || name.size() > kMaxXattrName || name.find('\0') != std::string_view::npos) return Refuse("bad attribute name");
  return Ok();
}

size_t SmallBytes(const InodeRecord& inode) {
  size_t sum = 0;
  for (const auto& [name, value] : inode.xattrs) sum += name.size() + value.size();
  return sum;
}

// Removes the attribute from wherever it is; true if it was there.
Result<bool> Drop(OpEnv& env, InodeRecord& inode, const std::string& name) {
  if (inode.xattrs.erase(name) > 0) return true;
  if (inode.large_xattrs == 0) return false;
  const std::string key = XattrKey(inode.attr.ino, name);
  ARCHIL_ASSIGN_OR_RETURN(auto raw, env.txn.Get(key));
  if (!raw) return false;
  env.txn.Delete(key);
  --inode.large_xattrs;
  return true;
}

// listxattr(2) must be able to answer in kMaxXattrList bytes.
Status CheckListSize(OpEnv& env, const InodeRecord& inode, const std::string& added) {
  size_t sum = added.size() + 1;
  for (const auto& [name, value] : inode.xattrs) sum += name.size() + 1;
  if (inode.large_xattrs > 0) {
    ARCHIL_ASSIGN_OR_RETURN(auto large, env.txn.List(XattrPrefix(inode.attr.ino)));
    for (const auto& [key, value] : large) sum += NameOfXattr(key).size() + 1;
  }
  if (sum > kMaxXattrList) return Refuse("too many attribute names");
  return Ok();
}

}  // namespace

Status Apply(OpEnv& env, const SetXattrOp& op) {
  ARCHIL_RETURN_IF_ERROR(Validate(op.name, op.now));
  if (op.value.size() > kMaxXattrValue) return Refuse("attribute value over the limit");
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, NeedInode(env, op.ino));
  ARCHIL_RETURN_IF_ERROR(Drop(env, *inode, op.name));
  ARCHIL_RETURN_IF_ERROR(CheckListSize(env, *inode, op.name));

  if (op.value.size() <= kSmallValue && SmallBytes(*inode) + op.name.size() + op.value.size() <= kSmallTotal) {
    inode->xattrs[op.name] = op.value;
  } else {
    env.txn.Put(XattrKey(op.ino, op.name), EncodeBlob(op.value));
    ++inode->large_xattrs;
  }
  Touch(*inode, op.now);
  return Ok();
}

Status Apply(OpEnv& env, const RemoveXattrOp& op) {
  ARCHIL_RETURN_IF_ERROR(Validate(op.name, op.now));
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, NeedInode(env, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(const bool dropped, Drop(env, *inode, op.name));
  if (!dropped) return Refuse("the inode has no such attribute");
  Touch(*inode, op.now);
  return Ok();
}

}  // namespace archil
