#include "tests/unit/client/oplog/tiny_namespace.h"

#include <fmt/format.h>

namespace archil {

TinyNamespace::TinyNamespace() { inodes_[kRootInode] = {.type = FileType::kDirectory, .nlink = 2}; }

bool TinyNamespace::Apply(const Op& op) {
  return std::visit([this](const auto& o) { return Do(o); }, op);
}

const TinyInode* TinyNamespace::Find(InodeId ino) const {
  const auto it = inodes_.find(ino);
  return it == inodes_.end() ? nullptr : &it->second;
}

InodeId TinyNamespace::Lookup(InodeId parent, const std::string& name) const {
  const auto it = names_.find({parent, name});
  return it == names_.end() ? InodeId{} : it->second;
}

bool TinyNamespace::Empty(InodeId dir) const {
  const auto it = names_.lower_bound({dir, ""});
  return it == names_.end() || it->first.first != dir;
}

bool TinyNamespace::IsAbove(InodeId dir, InodeId below) const {
  while (below != dir) {
    bool found = false;
    for (const auto& [name, ino] : names_) {
      if (ino != below) continue;
      below = name.first;
      found = true;
      break;
    }
    if (!found) return false;
  }
  return true;
}

bool TinyNamespace::No(std::string reason) {
  why = std::move(reason);
  return false;
}

TinyInode* TinyNamespace::Mutable(InodeId ino) {
  const auto it = inodes_.find(ino);
  return it == inodes_.end() ? nullptr : &it->second;
}

TinyInode* TinyNamespace::Dir(InodeId ino) {
  TinyInode* dir = Mutable(ino);
  return dir != nullptr && dir->type == FileType::kDirectory && !dir->orphan ? dir : nullptr;
}

void TinyNamespace::Touch(InodeId dir, Timestamp now) {
  TinyInode* inode = Mutable(dir);
  inode->mtime = inode->ctime = now;
}

bool TinyNamespace::Do(const CreateOp& op) {
  TinyInode* dir = Dir(op.parent);
  if (dir == nullptr) return No("create: no parent");
  if (Lookup(op.parent, op.name)) return No("create: name taken");
  if (inodes_.contains(op.ino)) return No("create: inode exists");
  TinyInode inode{.type = op.type, .mode = op.mode, .uid = op.uid, .gid = op.gid, .target = op.target};
  inode.nlink = op.type == FileType::kDirectory ? 2 : 1;
  inode.atime = inode.mtime = inode.ctime = op.now;
  if (op.type == FileType::kDirectory) dir->nlink++;
  inodes_[op.ino] = inode;
  names_[{op.parent, op.name}] = op.ino;
  Touch(op.parent, op.now);
  return true;
}

bool TinyNamespace::Do(const LinkOp& op) {
  TinyInode* inode = Mutable(op.ino);
  if (Dir(op.parent) == nullptr) return No("link: no parent");
  if (inode == nullptr || inode->type == FileType::kDirectory || inode->nlink == 0) return No("link: no such file");
  if (Lookup(op.parent, op.name)) return No("link: name taken");
  inode->nlink++;
  inode->ctime = op.now;
  names_[{op.parent, op.name}] = op.ino;
  Touch(op.parent, op.now);
  return true;
}

// The name is gone already.
void TinyNamespace::Drop(InodeId parent, InodeId ino, bool still_open, Timestamp now) {
  TinyInode* inode = Mutable(ino);
  inode->ctime = now;
  if (inode->type == FileType::kDirectory) {
    Mutable(parent)->nlink--;
    inode->nlink = 0;
  } else {
    inode->nlink--;
  }
  if (inode->nlink > 0) return;
  if (still_open) {
    inode->orphan = true;
  } else {
    inodes_.erase(ino);
  }
}

bool TinyNamespace::Do(const UnlinkOp& op) {
  if (Dir(op.parent) == nullptr || Lookup(op.parent, op.name) != op.ino) return No("unlink: no such name");
  if (Find(op.ino)->type == FileType::kDirectory) return No("unlink: a directory");
  names_.erase({op.parent, op.name});
  Drop(op.parent, op.ino, op.still_open, op.now);
  Touch(op.parent, op.now);
  return true;
}

bool TinyNamespace::Do(const RmdirOp& op) {
  if (Dir(op.parent) == nullptr || Lookup(op.parent, op.name) != op.ino) return No("rmdir: no such name");
  if (Find(op.ino)->type != FileType::kDirectory) return No("rmdir: not a directory");
  if (!Empty(op.ino)) return No("rmdir: not empty");
  names_.erase({op.parent, op.name});
  Drop(op.parent, op.ino, op.still_open, op.now);
  Touch(op.parent, op.now);
  return true;
}

bool TinyNamespace::Do(const RenameOp& op) {
  if (Dir(op.parent) == nullptr || Dir(op.new_parent) == nullptr) return No("rename: no parent");
  if (!op.ino || Lookup(op.parent, op.name) != op.ino) return No("rename: no such name");
  if (Lookup(op.new_parent, op.new_name) != op.victim) return No("rename: another victim");
  if (op.ino == op.victim) return No("rename: onto itself");
  const bool is_dir = Find(op.ino)->type == FileType::kDirectory;
  if (is_dir && IsAbove(op.ino, op.new_parent)) return No("rename: into itself");
  const auto move_nlink = [&](InodeId ino, InodeId from, InodeId to) {
    if (Find(ino)->type != FileType::kDirectory) return;
    Mutable(from)->nlink--;
    Mutable(to)->nlink++;
  };
  if (op.mode == RenameOp::Mode::kExchange) {
    if (!op.victim) return No("exchange: nothing there");
    if (Find(op.victim)->type == FileType::kDirectory && IsAbove(op.victim, op.parent)) return No("exchange: loop");
    std::swap(names_[{op.parent, op.name}], names_[{op.new_parent, op.new_name}]);
    move_nlink(op.ino, op.parent, op.new_parent);
    move_nlink(op.victim, op.new_parent, op.parent);
    Mutable(op.victim)->ctime = op.now;
  } else {
    if (op.victim) {
      if (op.mode == RenameOp::Mode::kNoReplace) return No("rename: name taken");
      if ((Find(op.victim)->type == FileType::kDirectory) != is_dir) return No("rename: types differ");
      if (is_dir && !Empty(op.victim)) return No("rename: not empty");
      Drop(op.new_parent, op.victim, op.victim_still_open, op.now);
    }
    names_.erase({op.parent, op.name});
    names_[{op.new_parent, op.new_name}] = op.ino;
    move_nlink(op.ino, op.parent, op.new_parent);
  }
  Mutable(op.ino)->ctime = op.now;
  Touch(op.parent, op.now);
  Touch(op.new_parent, op.now);
  return true;
}

bool TinyNamespace::Do(const SetAttrOp& op) {
  TinyInode* inode = Mutable(op.ino);
  if (inode == nullptr) return No("setattr: no inode");
  if (op.fields & SetAttrOp::kMode) inode->mode = op.mode;
  if (op.fields & SetAttrOp::kUid) inode->uid = op.uid;
  if (op.fields & SetAttrOp::kGid) inode->gid = op.gid;
  if (op.fields & SetAttrOp::kAtime) inode->atime = op.atime;
  if (op.fields & SetAttrOp::kMtime) inode->mtime = op.mtime;
  if (op.fields & SetAttrOp::kSize) {
    if (inode->type != FileType::kRegular) return No("truncate: not a file");
    inode->size = op.size;
    inode->extents.erase(inode->extents.lower_bound(op.size), inode->extents.end());
  }
  inode->ctime = op.now;
  return true;
}

// Extents of the tests are blocks that are always written as a whole.
bool TinyNamespace::Do(const SetExtentsOp& op) {
  TinyInode* inode = Mutable(op.ino);
  if (inode == nullptr || inode->type != FileType::kRegular) return No("extents: no file");
  for (const Extent& e : op.extents) inode->extents[e.offset] = {e.length, e.segment_offset};
  inode->size = std::max(inode->size, op.size);
  inode->mtime = op.mtime;
  inode->ctime = op.ctime;
  inode->mode &= ~op.clear_mode;
  return true;
}

bool TinyNamespace::Do(const ClearRangeOp& op) {
  TinyInode* inode = Mutable(op.ino);
  if (inode == nullptr || inode->type != FileType::kRegular) return No("clear: no file");
  inode->extents.erase(inode->extents.lower_bound(op.offset), inode->extents.lower_bound(op.offset + op.length));
  inode->size = op.size;
  inode->mtime = inode->ctime = op.now;
  return true;
}

bool TinyNamespace::Do(const SetXattrOp& op) {
  TinyInode* inode = Mutable(op.ino);
  if (inode == nullptr) return No("setxattr: no inode");
  inode->xattrs[op.name] = op.value;
  inode->ctime = op.now;
  return true;
}

bool TinyNamespace::Do(const RemoveXattrOp& op) {
  TinyInode* inode = Mutable(op.ino);
  if (inode == nullptr || inode->xattrs.erase(op.name) == 0) return No("removexattr: none");
  inode->ctime = op.now;
  return true;
}

bool TinyNamespace::Do(const ReleaseOrphanOp& op) {
  const TinyInode* inode = Find(op.ino);
  if (inode == nullptr || !inode->orphan) return No("release: no orphan");
  inodes_.erase(op.ino);
  return true;
}

bool TinyNamespace::Do(const TouchOp& op) {
  TinyInode* inode = Mutable(op.ino);
  if (inode == nullptr || inode->type != FileType::kDirectory) return No("touch: no directory");
  inode->mtime = op.mtime;
  inode->ctime = op.ctime;
  return true;
}

std::string TinyNamespace::Dump() const {
  std::string out;
  for (const auto& [name, ino] : names_) out += fmt::format("  {}/{} -> {}\n", name.first.value, name.second, ino.value);
  for (const auto& [ino, i] : inodes_) {
    out += fmt::format("  #{} type {} mode {:o} nlink {} size {} atime {} mtime {} ctime {} xattrs {} extents {}{}\n", ino.value,
                       static_cast<int>(i.type), i.mode, i.nlink, i.size, i.atime.sec, i.mtime.sec, i.ctime.sec,
                       i.xattrs.size(), i.extents.size(), i.orphan ? " orphan" : "");
  }
  return out;
}

}  // namespace archil
