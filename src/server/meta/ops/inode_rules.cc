#include "server/meta/ops/inode_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/meta/ops/extents.h"

namespace archil {

Status CheckOpName(std::string_view name) {
  if (!IsValidName(name)) return Refuse(fmt::format("a name of {} bytes is not valid", name.size()));
  return Ok();
}

Status CheckTime(Timestamp t) {
  if (t.nsec >= 1'000'000'000) return Refuse("a time has more than 999,999,999 ns");
  return Ok();
}

Result<InodeRecord*> NeedInode(OpEnv& env, InodeId ino) {
  if (env.rights != nullptr && !env.rights->MayWrite(ino)) {
    return Refuse(fmt::format("the session holds no WRITE on inode {} (DLG-2)", ino.value));
  }
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * inode, env.txn.MutableInode(ino));
  if (inode == nullptr) return Refuse(fmt::format("inode {} does not exist", ino.value));
  return inode;
}

Result<InodeRecord*> NeedDirectory(OpEnv& env, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(InodeRecord * dir, NeedInode(env, ino));
  if (dir->attr.type != FileType::kDirectory) return Refuse(fmt::format("inode {} is not a directory", ino.value));
  if (dir->attr.nlink == 0) return Refuse(fmt::format("directory {} was removed", ino.value));
  return dir;
}

Result<DentryRecord> NeedDentry(OpEnv& env, InodeId parent, std::string_view name, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, env.txn.Get(DentryKey(parent, name)));
  if (!raw) return Refuse(fmt::format("directory {} has no such name", parent.value));
  ARCHIL_ASSIGN_OR_RETURN(const DentryRecord dentry, DecodeDentry(*raw));
  if (dentry.ino != ino) {
    return Refuse(fmt::format("a name in directory {} shows inode {}, not {}", parent.value, dentry.ino.value, ino.value));
  }
  return dentry;
}

Status NeedAbsent(OpEnv& env, InodeId parent, std::string_view name) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, env.txn.Get(DentryKey(parent, name)));
  if (raw) return Refuse(fmt::format("the name already exists in directory {}", parent.value));
  return Ok();
}

void Touch(InodeRecord& inode, Timestamp now) {
  inode.attr.ctime = std::max(now, inode.attr.ctime);
  ++inode.attr.change;
}

void TouchDirectory(InodeRecord& dir, Timestamp now) {
  Touch(dir, now);
  dir.attr.mtime = dir.attr.ctime;
}

void AddName(OpEnv& env, InodeRecord& dir, std::string_view name, InodeId ino, FileType type) {
  const InodeId parent = dir.attr.ino;
  env.txn.Put(DentryKey(parent, name), Encode(DentryRecord{ino, type}));
  env.txn.Put(ParentKey(ino, parent, name), EncodeBlob(""));
  ++dir.attr.size;
  if (type == FileType::kDirectory) ++dir.attr.nlink;
}

void RemoveName(OpEnv& env, InodeRecord& dir, std::string_view name, InodeId ino, FileType type) {
  const InodeId parent = dir.attr.ino;
  env.txn.Delete(DentryKey(parent, name));
  env.txn.Delete(ParentKey(ino, parent, name));
  if (dir.attr.size > 0) --dir.attr.size;
  if (type == FileType::kDirectory && dir.attr.nlink > 2) --dir.attr.nlink;
}

Status DropLink(OpEnv& env, InodeRecord& inode, Timestamp now, StillOpen still_open) {
  const InodeId ino = inode.attr.ino;
  // A directory has one name; its own "." and the ".." below it are not links that could keep it.
  inode.attr.nlink = inode.attr.type == FileType::kDirectory ? 0 : inode.attr.nlink - std::min(inode.attr.nlink, 1u);
  Touch(inode, now);
  if (inode.attr.nlink > 0) return Ok();
  OrphanRecord orphan;
  if (env.opens != nullptr) orphan.sessions = env.opens->OpenElsewhere(ino);
  if (still_open == StillOpen::kYes) orphan.sessions.push_back(env.session);
  if (orphan.sessions.empty()) return RemoveInode(env, ino);
  env.txn.Put(OrphanKey(ino), Encode(orphan));
  return Ok();
}

namespace {

Status RemoveInodeRecords(Txn& txn, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, txn.FindInode(ino));
  if (inode == nullptr) return Ok();
  if (inode->attr.type == FileType::kRegular) ARCHIL_RETURN_IF_ERROR(RemoveExtentsFrom(txn, ino, 0));
  if (inode->large_xattrs > 0) {
    ARCHIL_ASSIGN_OR_RETURN(auto xattrs, txn.List(XattrPrefix(ino)));
    for (auto& [key, value] : xattrs) txn.Delete(std::move(key));
  }
  txn.DeleteInode(ino);
  ARCHIL_ASSIGN_OR_RETURN(CountersRecord * counters, txn.MutableCounters());
  if (counters->inodes > 0) --counters->inodes;
  return Ok();
}

}  // namespace

Status RemoveInode(OpEnv& env, InodeId ino) { return RemoveInodeRecords(env.txn, ino); }

Status DropOrphanReference(Txn& txn, SessionId session, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(auto raw, txn.Get(OrphanKey(ino)));
  if (!raw) return Ok();
  ARCHIL_ASSIGN_OR_RETURN(OrphanRecord orphan, DecodeOrphan(*raw));
  const auto it = std::find(orphan.sessions.begin(), orphan.sessions.end(), session);
  if (it == orphan.sessions.end()) return Ok();
  orphan.sessions.erase(it);
  if (!orphan.sessions.empty()) {
    txn.Put(OrphanKey(ino), Encode(orphan));
    return Ok();
  }
  txn.Delete(OrphanKey(ino));
  return RemoveInodeRecords(txn, ino);
}

}  // namespace archil
