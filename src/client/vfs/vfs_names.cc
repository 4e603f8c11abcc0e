// Names: lookup, listing, and every change of the tree.

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "client/vfs/vfs.h"
#include "common/posix/attributes.h"
#include "common/posix/entries.h"
#include "common/posix/rename.h"

namespace archil {
Status Vfs::OpenRoot(const OpContext& ctx) {
  MutexLock lock(wb_.state_.mu);
  for (;;) {
    ARCHIL_ENSURE(EnsureDir(ctx, kRootInode));
    break;
  }
  InodeId at = kRootInode;
  std::string_view rest = config_.subdir;
  while (!rest.empty()) {
    const size_t slash = rest.find('/');
    const std::string name(rest.substr(0, slash));
    rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
    if (name.empty()) continue;
    for (;;) {
      ARCHIL_ENSURE(EnsureDir(ctx, at));
      Inode& dir = *wb_.state_.Find(at);
      ARCHIL_ENSURE(EnsureName(ctx, dir, name));
      DirItemRef item;
      if (dir.dir->Find(name, &item) != DirIndex::Answer::kPresent) {
        return Error(Code::kNotFound, "no directory '" + name + "' on the way to '" + config_.subdir + "'");
      }
      if (item.type != FileType::kDirectory) {
        return Error(Code::kNotDirectory, "'" + name + "' on the way to '" + config_.subdir + "' is not a directory");
      }
      ARCHIL_ENSURE(EnsureDir(ctx, item.ino));
      at = item.ino;
      break;
    }
  }
  root_ = at;
  used_at_server_ = session_.opened().disk.used_bytes;
  ++wb_.state_.Find(root_)->lookups;  // the kernel never forgets the root
  return Ok();
}

Result<Entry> Vfs::Lookup(const OpContext& ctx, InodeId parent, std::string_view name) {
  if (name.size() > kMaxName) return Code::kNameTooLong;
  MutexLock lock(wb_.state_.mu);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    ARCHIL_ENSURE(EnsureDir(ctx, parent));
    Inode& dir = *wb_.state_.Find(parent);
    ARCHIL_ENSURE(EnsureName(ctx, dir, name));
    DirItemRef item;
    if (dir.dir->Find(name, &item) != DirIndex::Answer::kPresent) return Code::kNotFound;
    ARCHIL_ENSURE(EnsureInode(ctx, item.ino));
    Inode& inode = *wb_.state_.Find(item.ino);
    ++inode.lookups;
    return EntryOf(inode);
  }
}

void Vfs::Forget(InodeId ino, uint64_t count) {
  MutexLock lock(wb_.state_.mu);
  Inode* inode = wb_.state_.Find(ino);
  if (inode == nullptr || ino == root_) return;
  inode->lookups -= std::min(inode->lookups, count);
  if (inode->lookups > 0) return;
  const bool shrinking = env_.scheduler.clock().Boot() < shrink_until_;
  if ((inode->attr.nlink == 0 || shrinking) && wb_.state_.Droppable(*inode)) {
    wb_.state_.Drop(ino);
    return;
  }
  wb_.state_.droppable.push_back(ino);
  Trim();
}

// The next items after `cookie`, at most kReaddirItems; with `plus` each carries an entry and has one reference counted.
Status Vfs::CopyListing(const OpContext& ctx, InodeId ino, uint64_t cookie, bool plus, std::vector<ListedItem>* out) {
  MutexLock lock(wb_.state_.mu);
  for (;;) {
    out->clear();
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    ARCHIL_ENSURE(EnsureDir(ctx, ino));
    Inode& dir = *wb_.state_.Find(ino);
    if (dir.attr.nlink == 0) return Ok();  // removed: nothing, not even dots
    ARCHIL_ENSURE(EnsureComplete(ctx, dir));
    const InodeId up = ino == root_ || !dir.parent ? ino : dir.parent;
    if (cookie < 1) out->push_back({".", 1, ino, FileType::kDirectory, std::nullopt});
    if (cookie < 2) out->push_back({"..", 2, up, FileType::kDirectory, std::nullopt});
    bool again = false;
    for (auto next = dir.dir->Next(std::max<uint64_t>(cookie, 2)); next && out->size() < kReaddirItems && !again;
         next = dir.dir->Next(next->cookie)) {
      out->push_back({std::string(next->name), next->cookie, next->ino, next->type, std::nullopt});
      if (!plus) continue;
      ARCHIL_ASSIGN_OR_RETURN(const bool there, EnsureInode(ctx, next->ino));
      again = !there;
      if (again) break;  // the lock was given up: `next` means nothing any more
      out->back().entry = EntryOf(*wb_.state_.Find(next->ino));
    }
    if (again) continue;
    for (ListedItem& item : *out) {
      if (item.entry) ++wb_.state_.Find(item.ino)->lookups;
    }
    return Ok();
  }
}

Status Vfs::Readdir(const OpContext& ctx, InodeId ino, uint64_t cookie, bool plus,
                    const std::function<bool(const DirItem&)>& fn) {
  // A part of the listing is copied under the lock and handed out without it.
  std::vector<ListedItem> items;
  bool handed_out = false;
  for (;;) {
    const Status copied = CopyListing(ctx, ino, cookie, plus, &items);
    // A call that may not wait ends where it would have to: the caller goes on after the last cookie.
    if (copied.code() == Code::kWouldBlock && handed_out) return Ok();
    ARCHIL_RETURN_IF_ERROR(copied);
    size_t taken = 0;
    while (taken < items.size()) {
      const ListedItem& item = items[taken];
      if (!fn(DirItem{item.name, item.cookie, item.ino, item.type, item.entry ? &*item.entry : nullptr})) break;
      cookie = item.cookie;
      handed_out = true;
      ++taken;
    }
    for (size_t i = taken; i < items.size(); ++i) {
      if (items[i].entry) Forget(items[i].ino, 1);
    }
    if (taken < items.size() || items.empty()) return Ok();
  }
}

// --- changes

Timestamp Vfs::NextTime() {
  const Timestamp now = session_.Now();
  wb_.state_.last_time = now > wb_.state_.last_time ? now : AddNanosecond(wb_.state_.last_time);
  return wb_.state_.last_time;
}

void Vfs::TouchDir(Inode& dir, Timestamp now) {
  dir.attr.mtime = dir.attr.ctime = now;
  ++dir.attr.change;
}

void Vfs::LostLastName(Inode& inode, bool still_open) {
  if (still_open) {
    inode.orphan = true;
    return;
  }
  if (inode.map) wb_.Discard(inode);
  if (inode.lookups == 0) wb_.state_.droppable.push_back(inode.ino());
}

Result<bool> Vfs::FindForChange(const OpContext& ctx, InodeId parent, std::string_view name, Inode** dir,
                                DirItemRef* item, Inode** child) {
  *child = nullptr;
  ARCHIL_ASSIGN_OR_RETURN(bool there, EnsureDir(ctx, parent));
  if (!there) return false;
  *dir = wb_.state_.Find(parent);
  if ((*dir)->attr.nlink == 0) return Code::kNotFound;  // a removed directory
  ARCHIL_ASSIGN_OR_RETURN(there, EnsureName(ctx, **dir, name));
  if (!there) return false;
  if ((*dir)->dir->Find(name, item) != DirIndex::Answer::kPresent) return true;
  ARCHIL_ASSIGN_OR_RETURN(there, EnsureInode(ctx, item->ino));
  if (!there) return false;
  *child = wb_.state_.Find(item->ino);
  return true;
}

Result<Entry> Vfs::MakeNode(const OpContext& ctx, InodeId parent, std::string_view name, NewNode node, Inode** made) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(name)));
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    Inode* dir = nullptr;
    Inode* child = nullptr;
    DirItemRef item;
    ARCHIL_ENSURE(FindForChange(ctx, parent, name, &dir, &item, &child));
    if (child != nullptr) return Code::kExists;
    ARCHIL_RETURN_IF_ERROR(CheckSpace(ctx, 0, 1));
    InodeId ino;
    ARCHIL_ENSURE(EnsureInodeNumber(ctx, &ino));

    const NewInodeOwner owner = OwnerOfNewInode(dir->attr, node.type, node.mode, ctx.caller.gid);
    auto inode = std::make_unique<Inode>();
    const Timestamp now = NextTime();
    Attr& attr = inode->attr;
    attr.ino = ino;
    attr.type = node.type;
    attr.mode = owner.mode;
    attr.uid = ctx.caller.uid;
    attr.gid = owner.gid;
    attr.nlink = InitialNlink(node.type);
    attr.size = node.target.size();
    attr.rdev = node.rdev;
    attr.atime = attr.mtime = attr.ctime = attr.btime = now;
    attr.change = 1;
    inode->target = node.target;
    inode->xattrs.emplace();
    inode->lookups = 1;
    if (node.type == FileType::kDirectory) {
      inode->dir = std::make_unique<DirIndex>(true);
      inode->parent = parent;
      ++dir->attr.nlink;
    } else if (node.type == FileType::kRegular) {
      inode->map = std::make_unique<FileMap>(true);
      inode->mapped = true;
    }
    dir->dir->Insert(name, ino, node.type);
    ++dir->attr.size;
    TouchDir(*dir, now);
    CreateOp op;
    op.parent = parent;
    op.name = std::string(name);
    op.ino = ino;
    op.type = node.type;
    op.mode = attr.mode;
    op.uid = attr.uid;
    op.gid = attr.gid;
    op.rdev = node.rdev;
    op.target = std::move(node.target);
    op.now = now;
    Inode* raw = inode.get();
    wb_.state_.inodes.emplace(ino, std::move(inode));
    wb_.Log(std::move(op), {raw, dir});
    if (made != nullptr) *made = raw;
    return EntryOf(*raw);
  }
}

Result<Entry> Vfs::Mkdir(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode) {
  MutexLock lock(wb_.state_.mu);
  return MakeNode(ctx, parent, name, {FileType::kDirectory, mode & 07777, 0, {}}, nullptr);
}

Result<Entry> Vfs::Mknod(const OpContext& ctx, InodeId parent, std::string_view name, FileType type, uint32_t mode,
                         uint64_t rdev) {
  if (!IsValid(type) || type == FileType::kDirectory || type == FileType::kSymlink) return Code::kInvalid;
  const bool device = type == FileType::kCharDevice || type == FileType::kBlockDevice;
  MutexLock lock(wb_.state_.mu);
  return MakeNode(ctx, parent, name, {type, mode & 07777, device ? rdev : 0, {}}, nullptr);
}

Result<Entry> Vfs::Symlink(const OpContext& ctx, InodeId parent, std::string_view name, std::string_view target) {
  if (target.empty()) return Code::kNotFound;
  if (target.size() > kMaxSymlink) return Code::kNameTooLong;
  MutexLock lock(wb_.state_.mu);
  return MakeNode(ctx, parent, name, {FileType::kSymlink, 0777, 0, std::string(target)}, nullptr);
}

Result<CreateReply> Vfs::Create(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode, int flags) {
  MutexLock lock(wb_.state_.mu);
  Inode* made = nullptr;
  ARCHIL_ASSIGN_OR_RETURN(const Entry entry, MakeNode(ctx, parent, name, {FileType::kRegular, mode & 07777, 0, {}}, &made));
  return CreateReply{entry, NewHandle(*made, flags)};
}

Result<Entry> Vfs::Link(const OpContext& ctx, InodeId ino, InodeId parent, std::string_view name) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(name)));
  MutexLock lock(wb_.state_.mu);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    Inode* dir = nullptr;
    Inode* child = nullptr;
    DirItemRef item;
    ARCHIL_ENSURE(EnsureInode(ctx, ino));
    ARCHIL_ENSURE(FindForChange(ctx, parent, name, &dir, &item, &child));
    Inode& inode = *wb_.state_.Find(ino);
    if (child != nullptr) return Code::kExists;
    ARCHIL_RETURN_IF_ERROR(Status(CheckLink(inode.attr.type, inode.attr.nlink)));
    wb_.Take(inode);  // ORD-2: the data before the name that makes it reachable
    const Timestamp now = NextTime();
    ++inode.attr.nlink;
    inode.attr.ctime = now;
    ++inode.attr.change;
    dir->dir->Insert(name, ino, inode.attr.type);
    ++dir->attr.size;
    TouchDir(*dir, now);
    wb_.Log(LinkOp{ino, parent, std::string(name), now}, {&inode, dir});
    ++inode.lookups;
    return EntryOf(inode);
  }
}

Status Vfs::Unlink(const OpContext& ctx, InodeId parent, std::string_view name) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(name)));
  MutexLock lock(wb_.state_.mu);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    Inode* dir = nullptr;
    Inode* inode = nullptr;
    DirItemRef item;
    ARCHIL_ENSURE(FindForChange(ctx, parent, name, &dir, &item, &inode));
    if (inode == nullptr) return Code::kNotFound;
    ARCHIL_RETURN_IF_ERROR(Status(CheckUnlink(inode->attr.type)));
    const Timestamp now = NextTime();
    --inode->attr.nlink;
    inode->attr.ctime = now;
    ++inode->attr.change;
    dir->dir->Remove(name);
    --dir->attr.size;
    TouchDir(*dir, now);
    const bool last = inode->attr.nlink == 0;
    const bool still_open = last && inode->opens > 0;
    wb_.Log(UnlinkOp{parent, std::string(name), inode->ino(), still_open, now}, {inode, dir});
    if (last) LostLastName(*inode, still_open);
    return Ok();
  }
}

Status Vfs::Rmdir(const OpContext& ctx, InodeId parent, std::string_view name) {
  if (name == ".") return Code::kInvalid;
  if (name == "..") return Code::kNotEmpty;
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(name)));
  MutexLock lock(wb_.state_.mu);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    Inode* dir = nullptr;
    Inode* inode = nullptr;
    DirItemRef item;
    ARCHIL_ENSURE(FindForChange(ctx, parent, name, &dir, &item, &inode));
    if (inode == nullptr) return Code::kNotFound;
    if (inode->ino() == root_) return Code::kBusy;
    ARCHIL_RETURN_IF_ERROR(Status(CheckRmdir(inode->ino(), inode->attr.type, inode->attr.size == 0)));
    const Timestamp now = NextTime();
    inode->attr.nlink = 0;
    inode->attr.ctime = now;
    inode->parent = InodeId{};
    ++inode->attr.change;
    dir->dir->Remove(name);
    --dir->attr.size;
    --dir->attr.nlink;
    TouchDir(*dir, now);
    wb_.Log(RmdirOp{parent, std::string(name), inode->ino(), false, now}, {inode, dir});
    LostLastName(*inode, false);
    return Ok();
  }
}

namespace {

RenameOp::Mode OpMode(RenameMode mode) {
  switch (mode) {
    case RenameMode::kPlain: return RenameOp::Mode::kPlain;
    case RenameMode::kNoReplace: return RenameOp::Mode::kNoReplace;
    case RenameMode::kExchange: return RenameOp::Mode::kExchange;
  }
  return RenameOp::Mode::kPlain;
}

}  // namespace

RenameDecision Vfs::CheckRename(const Inode& from_dir, const Inode& to_dir, const Inode& moved, const Inode* victim,
                                RenameMode mode) {
  RenameFacts facts;
  facts.mode = OpMode(mode);
  facts.source = moved.ino();
  facts.source_type = moved.attr.type;
  if (victim != nullptr) {
    facts.target = victim->ino();
    facts.target_type = victim->attr.type;
    facts.target_empty = victim->attr.size == 0;
  }
  facts.same_parent = &from_dir == &to_dir;
  for (const Inode* up = &to_dir; up != nullptr; up = wb_.state_.Find(up->parent)) {
    if (up == &moved) facts.source_above_new_parent = true;
  }
  for (const Inode* up = &from_dir; up != nullptr; up = wb_.state_.Find(up->parent)) {
    if (up == victim) facts.target_above_old_parent = true;
  }
  return DecideRename(facts);
}

Status Vfs::Rename(const OpContext& ctx, InodeId parent, std::string_view name, InodeId new_parent,
                   std::string_view new_name, RenameMode mode) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(name)));
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(new_name)));
  MutexLock lock(wb_.state_.mu);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    Inode *from_dir = nullptr, *to_dir = nullptr, *moved = nullptr, *victim = nullptr;
    DirItemRef item, target;
    ARCHIL_ENSURE(FindForChange(ctx, parent, name, &from_dir, &item, &moved));
    ARCHIL_ENSURE(FindForChange(ctx, new_parent, new_name, &to_dir, &target, &victim));
    if (moved == nullptr) return Code::kNotFound;
    ARCHIL_ENSURE(EnsureAncestors(ctx, *to_dir));
    ARCHIL_ENSURE(EnsureAncestors(ctx, *from_dir));
    const RenameDecision decision = CheckRename(*from_dir, *to_dir, *moved, victim, mode);
    if (decision.code != Code::kOk) return decision.code;
    if (decision.action == RenameAction::kNothing) return Ok();
    from_dir->attr.nlink += decision.old_parent_nlink;
    to_dir->attr.nlink += decision.new_parent_nlink;
    ApplyRename(*from_dir, name, *to_dir, new_name, *moved, victim, mode);
    return Ok();
  }
}

void Vfs::ApplyRename(Inode& from_dir, std::string_view name, Inode& to_dir, std::string_view new_name, Inode& moved,
                      Inode* victim, RenameMode mode) {
  const bool exchange = mode == RenameMode::kExchange;
  // ORD-2: a file's data before the name it gets; all data before a directory's.
  if (moved.is_dir() || (exchange && victim->is_dir())) {
    wb_.TakeAll();
  } else {
    wb_.Take(moved);
    if (exchange) wb_.Take(*victim);
  }
  const Timestamp now = NextTime();
  RenameOp op;
  op.parent = from_dir.ino();
  op.name = std::string(name);
  op.new_parent = to_dir.ino();
  op.new_name = std::string(new_name);
  op.ino = moved.ino();
  op.now = now;
  op.mode = OpMode(mode);
  moved.attr.ctime = now;
  ++moved.attr.change;
  const bool crosses = &from_dir != &to_dir;
  bool last = false;
  if (victim != nullptr) {
    op.victim = victim->ino();
    victim->attr.ctime = now;
    ++victim->attr.change;
  }
  if (exchange) {
    from_dir.dir->Replace(name, victim->ino(), victim->attr.type);
    to_dir.dir->Replace(new_name, moved.ino(), moved.attr.type);
    if (victim->is_dir()) victim->parent = from_dir.ino();
  } else {
    from_dir.dir->Remove(name);
    --from_dir.attr.size;
    if (victim != nullptr) {
      if (victim->is_dir()) {
        victim->attr.nlink = 0;
        victim->parent = InodeId{};
      } else {
        --victim->attr.nlink;
      }
      last = victim->attr.nlink == 0;
      op.victim_still_open = last && victim->opens > 0;
      to_dir.dir->Replace(new_name, moved.ino(), moved.attr.type);
    } else {
      to_dir.dir->Insert(new_name, moved.ino(), moved.attr.type);
      ++to_dir.attr.size;
    }
  }
  if (moved.is_dir()) moved.parent = to_dir.ino();
  TouchDir(from_dir, now);
  if (crosses) TouchDir(to_dir, now);
  const bool still_open = op.victim_still_open;
  wb_.Log(std::move(op), {&moved, victim, &from_dir, &to_dir});
  if (last) LostLastName(*victim, still_open);
}

// Every directory above is in memory, so that a loop can be seen.
Result<bool> Vfs::EnsureAncestors(const OpContext& ctx, Inode& dir) {
  for (InodeId up = dir.parent; up && up != kRootInode;) {
    ARCHIL_ASSIGN_OR_RETURN(const bool there, EnsureInode(ctx, up));
    if (!there) return false;
    up = wb_.state_.Find(up)->parent;
  }
  return true;
}

}  // namespace archil
