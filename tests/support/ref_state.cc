#include "tests/support/ref_state.h"

#include <sys/stat.h>

#include <algorithm>

#include "common/base/check.h"

namespace archil::test {

std::string RefContent::PageCopy(uint64_t page) const {
  auto it = pages_.find(page);
  return it == pages_.end() ? std::string(kPage, '\0') : *it->second;
}

std::string RefContent::Read(uint64_t offset, uint64_t length) const {
  if (offset >= size_) return {};
  length = std::min(length, size_ - offset);
  std::string out(length, '\0');
  for (auto it = pages_.lower_bound(offset / kPage); it != pages_.end(); ++it) {
    const uint64_t start = it->first * kPage;
    if (start >= offset + length) break;
    const uint64_t from = std::max(start, offset);
    const uint64_t to = std::min(start + kPage, offset + length);
    out.replace(from - offset, to - from, *it->second, from - start, to - from);
  }
  return out;
}

void RefContent::Write(uint64_t offset, std::string_view data) {
  size_ = std::max<uint64_t>(size_, offset + data.size());
  while (!data.empty()) {
    const uint64_t page = offset / kPage;
    const uint64_t in = offset % kPage;
    const size_t n = std::min<uint64_t>(kPage - in, data.size());
    std::string bytes = PageCopy(page);
    bytes.replace(in, n, data.data(), n);
    pages_[page] = std::make_shared<const std::string>(std::move(bytes));
    offset += n;
    data.remove_prefix(n);
  }
}

void RefContent::Resize(uint64_t size) {
  if (size < size_) {
    Zero(size, size_ - size);
    pages_.erase(pages_.lower_bound((size + kPage - 1) / kPage), pages_.end());
  }
  size_ = size;
}

void RefContent::Zero(uint64_t offset, uint64_t length) {
  const uint64_t end = length > size_ - std::min(offset, size_) ? size_ : offset + length;
  if (offset >= end) return;
  for (auto it = pages_.lower_bound(offset / kPage); it != pages_.end() && it->first * kPage < end;) {
    const uint64_t start = it->first * kPage;
    const uint64_t from = std::max(start, offset) - start;
    const uint64_t to = std::min(start + kPage, end) - start;
    if (from == 0 && to == kPage) {
      it = pages_.erase(it);
      continue;
    }
    std::string bytes = *it->second;
    bytes.replace(from, to - from, to - from, '\0');
    it->second = std::make_shared<const std::string>(std::move(bytes));
    ++it;
  }
}

uint8_t RefContent::At(uint64_t offset) const {
  auto it = pages_.find(offset / kPage);
  return it == pages_.end() ? 0 : static_cast<uint8_t>((*it->second)[offset % kPage]);
}

uint64_t RefContent::NextNonZero(uint64_t offset) const {
  for (auto it = pages_.lower_bound(offset / kPage); it != pages_.end(); ++it) {
    const uint64_t start = it->first * kPage;
    const size_t at = it->second->find_first_not_of('\0', offset > start ? offset - start : 0);
    if (at != std::string::npos) return start + at;
  }
  return size_;
}

Attr RefInode::Shown() const {
  Attr a = attr;
  if (a.type == FileType::kRegular) a.size = content.size();
  if (a.type == FileType::kDirectory) a.size = names.size();
  if (a.type == FileType::kSymlink) a.size = target.size();
  return a;
}

uint32_t WithoutSetId(uint32_t mode) {
  mode &= ~static_cast<uint32_t>(S_ISUID);
  if ((mode & S_IXGRP) != 0) mode &= ~static_cast<uint32_t>(S_ISGID);
  return mode;
}

RefState::RefState() {
  RefInode root;
  root.attr.ino = kRootInode;
  root.attr.type = FileType::kDirectory;
  root.attr.mode = 0755;
  root.attr.nlink = 2;
  root.attr.atime = root.attr.mtime = root.attr.ctime = root.attr.btime = kUnknownTime;
  root.parent = kRootInode;
  inodes[kRootInode] = std::move(root);
}

const RefInode* RefState::Find(InodeId ino) const {
  auto it = inodes.find(ino);
  return it == inodes.end() ? nullptr : &it->second;
}

InodeId RefState::Child(InodeId dir, std::string_view name) const {
  const RefInode& d = At(dir);
  auto it = d.names.find(std::string(name));
  return it == d.names.end() ? InodeId{} : it->second;
}

bool RefState::IsBelow(InodeId dir, InodeId ancestor) const {
  while (dir != ancestor) {
    if (dir == kRootInode) return false;
    dir = At(dir).parent;
  }
  return true;
}

void RefState::TouchDir(InodeId dir, Timestamp now) {
  RefInode& d = At(dir);
  d.attr.mtime = d.attr.ctime = now;
}

void RefState::DropName(RefInode& inode, bool all_links, Timestamp now) {
  inode.attr.nlink = all_links ? 0 : inode.attr.nlink - 1;
  // Whether a removed directory's ctime moves is nobody's promise.
  inode.attr.ctime = all_links ? kUnknownTime : now;
}

void RefState::ApplyCreate(const RefEvent& e) {
  const Timestamp now = Tick(e.tick);
  RefInode& parent = At(e.parent);
  RefInode n;
  n.attr = e.attr;
  n.attr.ino = e.ino;
  n.attr.nlink = 1;
  n.attr.atime = n.attr.mtime = n.attr.ctime = n.attr.btime = now;
  n.target = e.data;
  if ((parent.attr.mode & S_ISGID) != 0) {
    n.attr.gid = parent.attr.gid;
    if (n.is_dir()) n.attr.mode |= S_ISGID;
  }
  if (n.is_dir()) {
    n.attr.nlink = 2;
    n.parent = e.parent;
    parent.attr.nlink++;
  }
  parent.names[e.name] = e.ino;
  inodes[e.ino] = std::move(n);
  TouchDir(e.parent, now);
}

void RefState::ApplyRemove(const RefEvent& e) {
  const Timestamp now = Tick(e.tick);
  RefInode& gone = At(e.ino);
  At(e.parent).names.erase(e.name);
  if (gone.is_dir()) At(e.parent).attr.nlink--;
  DropName(gone, gone.is_dir(), now);
  TouchDir(e.parent, now);
}

void RefState::ApplyRename(const RefEvent& e) {
  const Timestamp now = Tick(e.tick);
  RefInode& moved = At(e.ino);
  At(e.parent).names.erase(e.name);
  if (e.victim) {
    RefInode& victim = At(e.victim);
    if (victim.is_dir()) At(e.new_parent).attr.nlink--;
    DropName(victim, victim.is_dir(), now);
  }
  At(e.new_parent).names[e.new_name] = e.ino;
  if (moved.is_dir()) {
    At(e.parent).attr.nlink--;
    At(e.new_parent).attr.nlink++;
    moved.parent = e.new_parent;
  }
  moved.attr.ctime = now;
  TouchDir(e.parent, now);
  TouchDir(e.new_parent, now);
}

void RefState::ApplyExchange(const RefEvent& e) {
  const Timestamp now = Tick(e.tick);
  RefInode& a = At(e.ino);
  RefInode& b = At(e.victim);
  At(e.parent).names[e.name] = e.victim;
  At(e.new_parent).names[e.new_name] = e.ino;
  if (a.is_dir()) {
    At(e.parent).attr.nlink--;
    At(e.new_parent).attr.nlink++;
    a.parent = e.new_parent;
  }
  if (b.is_dir()) {
    At(e.new_parent).attr.nlink--;
    At(e.parent).attr.nlink++;
    b.parent = e.parent;
  }
  a.attr.ctime = b.attr.ctime = now;
  TouchDir(e.parent, now);
  TouchDir(e.new_parent, now);
}

void RefState::ApplySetAttr(const RefEvent& e) {
  const Timestamp now = Tick(e.tick);
  const AttrChange& c = e.change;
  RefInode& n = At(e.ino);
  if ((c.fields & AttrChange::kMode) != 0) n.attr.mode = c.mode & 07777;
  if ((c.fields & AttrChange::kUid) != 0) n.attr.uid = c.uid;
  if ((c.fields & AttrChange::kGid) != 0) n.attr.gid = c.gid;
  if ((c.fields & AttrChange::kKillSetId) != 0 && !n.is_dir()) n.attr.mode = WithoutSetId(n.attr.mode);
  if ((c.fields & AttrChange::kSize) != 0) {
    // truncate(2) leaves mtime alone when the size stays, ftruncate(2) moves it.
    n.attr.mtime = c.size == n.content.size() ? kUnknownTime : now;
    n.content.Resize(c.size);
  }
  if ((c.fields & AttrChange::kAtime) != 0) n.attr.atime = c.atime;
  if ((c.fields & AttrChange::kMtime) != 0) n.attr.mtime = c.mtime;
  if ((c.fields & AttrChange::kAtimeNow) != 0) n.attr.atime = now;
  if ((c.fields & AttrChange::kMtimeNow) != 0) n.attr.mtime = now;
  n.attr.ctime = now;
}

void RefState::ApplyAllocate(const RefEvent& e) {
  RefInode& n = At(e.ino);
  const uint64_t end = e.offset + e.length;
  const bool grows = e.alloc == AllocKind::kAllocate || e.alloc == AllocKind::kZeroRange;
  const bool zeros = e.alloc != AllocKind::kAllocate && e.alloc != AllocKind::kAllocateKeepSize;
  if (zeros) n.content.Zero(e.offset, e.length);
  if (grows && end > n.content.size()) n.content.Resize(end);
  n.attr.mtime = n.attr.ctime = e.empty ? kUnknownTime : Tick(e.tick);
}

void RefState::Apply(const RefEvent& e) {
  const Timestamp now = Tick(e.tick);
  switch (e.kind) {
    case RefEvent::Kind::kCreate: return ApplyCreate(e);
    case RefEvent::Kind::kRemove: return ApplyRemove(e);
    case RefEvent::Kind::kRename: return ApplyRename(e);
    case RefEvent::Kind::kExchange: return ApplyExchange(e);
    case RefEvent::Kind::kSetAttr: return ApplySetAttr(e);
    case RefEvent::Kind::kAllocate: return ApplyAllocate(e);
    case RefEvent::Kind::kLink: {
      RefInode& n = At(e.ino);
      n.attr.nlink++;
      n.attr.ctime = now;
      At(e.parent).names[e.name] = e.ino;
      return TouchDir(e.parent, now);
    }
    case RefEvent::Kind::kSetXattr:
      At(e.ino).xattrs[e.name] = e.data;
      At(e.ino).attr.ctime = now;
      return;
    case RefEvent::Kind::kRemoveXattr:
      At(e.ino).xattrs.erase(e.name);
      At(e.ino).attr.ctime = now;
      return;
    case RefEvent::Kind::kWrite: {
      RefInode& n = At(e.ino);
      n.content.Write(e.offset, e.data);
      if (e.kill_set_id) n.attr.mode = WithoutSetId(n.attr.mode);
      n.attr.mtime = n.attr.ctime = now;
      return;
    }
  }
}

}  // namespace archil::test
