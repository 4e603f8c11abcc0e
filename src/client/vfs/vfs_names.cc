// Names: lookup, listing, and every change of the tree.

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "client/vfs/vfs.h"
#include "common/env/planted.h"
#include "common/posix/attributes.h"
#include "common/posix/entries.h"
#include "common/posix/rename.h"

namespace archil {
namespace {

constexpr size_t kLookedUp = 64;

}  // namespace

Status Vfs::OpenRoot(const OpContext& ctx) {
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_ENSURE(EnsureDir(ctx, claim, kRootInode, Right::kRead));
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
      ARCHIL_ENSURE(EnsureDir(ctx, claim, at, Right::kRead));
      Inode& dir = *wb_.state_.Find(at);
      ARCHIL_ENSURE(EnsureName(ctx, dir, name));
      DirItemRef item;
      if (dir.dir->Find(name, &item) != DirIndex::Answer::kPresent) {
        return Error(Code::kNotFound, "no directory '" + name + "' on the way to '" + config_.subdir + "'");
      }
      if (item.type != FileType::kDirectory) {
        return Error(Code::kNotDirectory, "'" + name + "' on the way to '" + config_.subdir + "' is not a directory");
      }
      ARCHIL_ENSURE(EnsureDir(ctx, claim, item.ino, Right::kRead));
      at = item.ino;
      break;
    }
  }
  root_ = at;
  if (session_.opened().disk.quota_bytes > 0) wb_.state_.promises.Count();
  ++wb_.state_.Find(root_)->lookups;  // the kernel never forgets the root
  return Ok();
}

Result<Entry> Vfs::Lookup(const OpContext& ctx, InodeId parent, std::string_view name) {
  if (name.size() > kMaxName) return Code::kNameTooLong;
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    if (AtServer(parent, Right::kRead)) return LookupAtServer(ctx, claim, parent, name);
    ARCHIL_ENSURE(Need(ctx, claim, {{parent, Right::kRead}}, Otherwise::kAtServer));
    Inode& dir = *wb_.state_.Find(parent);
    if (!dir.is_dir()) return Code::kNotDirectory;
    ARCHIL_ENSURE(EnsureName(ctx, dir, name));
    DirItemRef item;
    if (dir.dir->Find(name, &item) != DirIndex::Answer::kPresent) return Code::kNotFound;
    // A contended directory in one that is not: its name is held here, its attributes are not.
    if (AtServer(item.ino, Right::kRead)) {
      ARCHIL_ASSIGN_OR_RETURN(Entry entry, LookupAtServer(ctx, claim, parent, name));
      const Inode* above = wb_.state_.Find(parent);
      const bool held = above != nullptr && above->is_dir() && wb_.state_.MayRead(*above) &&
                        above->dir->Find(name, &item) == DirIndex::Answer::kPresent;
      if (held && item.ino == entry.attr.ino) entry.entry_ttl = EntryOf(*wb_.state_.Find(item.ino), *above).entry_ttl;
      return entry;
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{parent, Right::kRead}, {item.ino, Right::kRead}}, Otherwise::kAtServer));
    Inode& inode = *wb_.state_.Find(item.ino);
    ++inode.lookups;
    if (inode.is_file() && !wb_.state_.rights.alone()) {
      looked_up_.emplace_back(item.ino, env_.scheduler.clock().Boot());
      if (looked_up_.size() > kLookedUp) looked_up_.pop_front();
    }
    return EntryOf(inode, dir);
  }
}

void Vfs::Forget(InodeId ino, uint64_t count) {
  MutexLock lock(wb_.state_.mu);
  Inode* inode = wb_.state_.Find(ino);
  if (inode == nullptr || ino == root_) return;
  inode->lookups -= std::min(inode->lookups, count);
  if (inode->lookups > 0) return;
  if (config_.references_are_opens && !InUse(*inode)) LastUse(*inode);
  const bool shrinking = env_.scheduler.clock().Boot() < shrink_until_;
  if ((inode->attr.nlink == 0 || shrinking) && wb_.state_.Droppable(*inode)) {
    const InodeId home = inode->home;
    wb_.state_.Drop(ino);
    Inode* dir = shrinking ? wb_.state_.Find(home) : nullptr;  // it may have waited for the last that it covers
    if (dir != nullptr && home != root_ && wb_.state_.Droppable(*dir)) wb_.state_.Drop(home);
    return;
  }
  wb_.state_.droppable.push_back(ino);
  Trim();
}

// The next items after `cookie`, at most kReaddirItems; with `plus` each carries an entry and has one reference counted.
Status Vfs::CopyListing(const OpContext& ctx, InodeId ino, uint64_t cookie, bool plus, std::vector<ListedItem>* out) {
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    out->clear();
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    ARCHIL_ENSURE(EnsureDir(ctx, claim, ino, Right::kRead));
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
      if (wb_.state_.rights.alone()) {
        ARCHIL_ASSIGN_OR_RETURN(const bool there, EnsureInode(ctx, claim, next->ino));
        again = !there;
        if (again) break;  // the lock was given up: `next` means nothing any more
      }
      // What others hold is not taken from them for a listing: the kernel asks for it when it is wanted.
      const Inode* child = wb_.state_.Find(next->ino);
      if (child != nullptr && wb_.state_.MayRead(*child) && !wb_.state_.ReadsWait(*child)) out->back().entry = EntryOf(*child, dir);
    }
    if (again) continue;
    wb_.state_.HandedOut(dir);
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

bool Vfs::OnlyOurs(const Inode& inode) { return wb_.state_.rights.alone() || inode.only_ours; }

void Vfs::Uncover(Inode& inode) {
  if (inode.is_dir()) return;
  wb_.state_.SetHome(inode, InodeId{});
  wb_.state_.rights.Born(inode.ino(), env_.scheduler.clock().Boot());
}

void Vfs::BeforeLastName(Inode& inode) {
  if (!OnlyOurs(inode)) wb_.Take(inode);
}

void Vfs::LostLastName(Inode& inode, bool still_open) {
  Uncover(inode);
  if (still_open) {
    inode.orphan = true;
    inode.orphaned_by = inode.last_op;
    return;
  }
  if (inode.map && OnlyOurs(inode)) wb_.Discard(inode);
  if (inode.lookups == 0) wb_.state_.droppable.push_back(inode.ino());
}

Result<bool> Vfs::FindName(const OpContext& ctx, InodeId parent, std::string_view name, Inode** dir, InodeId* child) {
  *child = InodeId{};
  *dir = wb_.state_.Find(parent);
  if (!(*dir)->is_dir()) return Code::kNotDirectory;
  if ((*dir)->attr.nlink == 0) return Code::kNotFound;  // a removed directory
  ARCHIL_ASSIGN_OR_RETURN(const bool there, EnsureName(ctx, **dir, name));
  if (!there) return false;
  DirItemRef item;
  if ((*dir)->dir->Find(name, &item) == DirIndex::Answer::kPresent) *child = item.ino;
  return true;
}

Result<Entry> Vfs::MakeNode(const OpContext& ctx, InodeId parent, std::string_view name, NewNode node, Inode** made) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(name)));
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    InodeId ino;
    if (AtServer(parent, Right::kWrite)) {
      if (!ctx.may_block) return Code::kWouldBlock;
      ARCHIL_ENSURE(EnsureInodeNumber(ctx, &ino));
      return MakeAtServer(ctx, claim, ino, parent, name, std::move(node), made);
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{parent, Right::kWrite}}, Otherwise::kAtServer));
    Inode* dir = nullptr;
    InodeId child;
    ARCHIL_ENSURE(FindName(ctx, parent, name, &dir, &child));
    if (child) return Code::kExists;
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
    inode->only_ours = true;
    if (node.type == FileType::kDirectory) {
      wb_.state_.rights.Born(ino, env_.scheduler.clock().Boot());
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
    if (!raw->is_dir()) wb_.state_.SetHome(*raw, parent);
    wb_.Log(std::move(op), {raw, dir});
    if (made != nullptr) *made = raw;
    return EntryOf(*raw, *dir);
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
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    if (AtServer(parent, Right::kWrite)) return LinkAtServer(ctx, claim, ino, parent, name);
    ARCHIL_ENSURE(Need(ctx, claim, {{parent, Right::kWrite}, {ino, Right::kWrite}}, Otherwise::kAtServer));
    Inode* dir = nullptr;
    InodeId child;
    ARCHIL_ENSURE(FindName(ctx, parent, name, &dir, &child));
    Inode& inode = *wb_.state_.Find(ino);
    if (child) return Code::kExists;
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
    Uncover(inode);
    ++inode.lookups;
    return EntryOf(inode, *dir);
  }
}

Status Vfs::Unlink(const OpContext& ctx, InodeId parent, std::string_view name) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(name)));
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    if (AtServer(parent, Right::kWrite)) {
      auto reply = Apply(ctx, claim, parent, UnlinkOp{parent, std::string(name), InodeId{}, false, NextTime()}, 0);
      return reply.ok() ? Ok() : Status(reply.error());
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{parent, Right::kWrite}}, Otherwise::kAtServer));
    Inode* dir = nullptr;
    InodeId child;
    ARCHIL_ENSURE(FindName(ctx, parent, name, &dir, &child));
    if (!child) return Code::kNotFound;
    ARCHIL_ENSURE(Need(ctx, claim, {{parent, Right::kWrite}, {child, Right::kWrite}}));
    Inode* inode = wb_.state_.Find(child);
    ARCHIL_RETURN_IF_ERROR(Status(CheckUnlink(inode->attr.type)));
    if (inode->attr.nlink == 1) BeforeLastName(*inode);
    const Timestamp now = NextTime();
    --inode->attr.nlink;
    inode->attr.ctime = now;
    ++inode->attr.change;
    dir->dir->Remove(name);
    --dir->attr.size;
    TouchDir(*dir, now);
    const bool last = inode->attr.nlink == 0;
    const bool still_open = last && InUse(*inode);
    wb_.Log(UnlinkOp{parent, std::string(name), inode->ino(), still_open, now}, {inode, dir});
    if (last) {
      LostLastName(*inode, still_open);
    } else {
      Uncover(*inode);
    }
    return Ok();
  }
}

Status Vfs::Rmdir(const OpContext& ctx, InodeId parent, std::string_view name) {
  if (name == ".") return Code::kInvalid;
  if (name == "..") return Code::kNotEmpty;
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(name)));
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    if (AtServer(parent, Right::kWrite)) {
      auto reply = Apply(ctx, claim, parent, RmdirOp{parent, std::string(name), InodeId{}, false, NextTime()}, 0);
      return reply.ok() ? Ok() : Status(reply.error());
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{parent, Right::kWrite}}, Otherwise::kAtServer));
    Inode* dir = nullptr;
    InodeId child;
    ARCHIL_ENSURE(FindName(ctx, parent, name, &dir, &child));
    if (!child) return Code::kNotFound;
    ARCHIL_ENSURE(Need(ctx, claim, {{parent, Right::kWrite}, {child, Right::kWrite}}));
    Inode* inode = wb_.state_.Find(child);
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
  Claim claim(wb_.state_);
  std::vector<Want> wants;
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    if (AtServer(parent, Right::kWrite) || AtServer(new_parent, Right::kWrite)) {
      return RenameAtServer(ctx, claim, parent, name, new_parent, new_name, OpMode(mode));
    }
    wants = {{parent, Right::kWrite}};
    if (new_parent != parent) wants.push_back({new_parent, Right::kWrite});
    ARCHIL_ENSURE(Need(ctx, claim, wants, Otherwise::kAtServer));
    Inode *from_dir = nullptr, *to_dir = nullptr;
    InodeId source, target;
    ARCHIL_ENSURE(FindName(ctx, parent, name, &from_dir, &source));
    ARCHIL_ENSURE(FindName(ctx, new_parent, new_name, &to_dir, &target));
    if (!source) return Code::kNotFound;
    for (const InodeId child : {source, target}) {
      const auto wanted = [child](const Want& want) { return want.ino == child; };
      if (child && std::none_of(wants.begin(), wants.end(), wanted)) wants.push_back({child, Right::kWrite});
    }
    ARCHIL_ENSURE(Need(ctx, claim, wants));
    Inode* moved = wb_.state_.Find(source);
    Inode* victim = target ? wb_.state_.Find(target) : nullptr;
    if (new_parent != parent && (moved->is_dir() || (victim != nullptr && victim->is_dir()))) {
      AddAncestors(*to_dir, wants);
      AddAncestors(*from_dir, wants);
      ARCHIL_ENSURE(Need(ctx, claim, wants));
    }
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
  if (victim != nullptr && !exchange && victim->attr.nlink == 1) BeforeLastName(*victim);
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
      op.victim_still_open = last && InUse(*victim);
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
  if (moved.home && crosses && !Planted(Plant::kMovedKeepsHome)) wb_.state_.SetHome(moved, to_dir.ino());
  if (victim == nullptr) return;
  if (exchange) {
    if (victim->home && crosses) wb_.state_.SetHome(*victim, from_dir.ino());
  } else if (last) {
    LostLastName(*victim, still_open);
  } else {
    Uncover(*victim);
  }
}

void Vfs::AddAncestors(const Inode& dir, std::vector<Want>& wants) {
  for (InodeId up = dir.parent; up;) {
    const auto wanted = [up](const Want& want) { return want.ino == up; };
    if (std::none_of(wants.begin(), wants.end(), wanted)) wants.push_back({up, Right::kRead});
    const Inode* above = wb_.state_.Find(up);
    if (above == nullptr || !above->valid) return;  // asked for, then looked at again
    up = above->parent;
  }
}

}  // namespace archil
