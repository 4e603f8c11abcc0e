// What the ops share: rules about inodes, names and links. Same error rules as op_env.h.
#pragma once

#include <string>
#include <string_view>

#include "server/meta/ops/op_env.h"

namespace archil {

Status CheckOpName(std::string_view name);
Status CheckTime(Timestamp t);

// The inode, which must exist, for changing; the session must hold WRITE on it.
Result<InodeRecord*> NeedInode(OpEnv& env, InodeId ino);
// As NeedInode; a directory that has a name (or is the root).
Result<InodeRecord*> NeedDirectory(OpEnv& env, InodeId ino);
// The name must show `ino`, which is not 0; its type.
Result<DentryRecord> NeedDentry(OpEnv& env, InodeId parent, std::string_view name, InodeId ino);
// The name must be absent.
Status NeedAbsent(OpEnv& env, InodeId parent, std::string_view name);

// Metadata changed: ctime never goes back, the change counter grows.
void Touch(InodeRecord& inode, Timestamp now);
// Entries of a directory changed: mtime as well.
void TouchDirectory(InodeRecord& dir, Timestamp now);

// Name and reverse record; the directory's size, and nlink for a directory. No times.
void AddName(OpEnv& env, InodeRecord& dir, std::string_view name, InodeId ino, FileType type);
void RemoveName(OpEnv& env, InodeRecord& dir, std::string_view name, InodeId ino, FileType type);

enum class StillOpen : uint8_t { kNo, kYes };
// One link less; without links the inode goes, or becomes an orphan of the sessions that have it open.
Status DropLink(OpEnv& env, InodeRecord& inode, Timestamp now, StillOpen still_open);
// The inode and everything that hangs on it are gone. `inode` is invalid afterwards.
Status RemoveInode(OpEnv& env, InodeId ino);
// The session no longer has the orphan open; without sessions it is removed. Nothing happens to what is no orphan of the session.
Status DropOrphanReference(Txn& txn, SessionId session, InodeId ino);

}  // namespace archil
