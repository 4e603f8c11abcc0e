#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/check.h"
#include "common/base/errno.h"
#include "tests/support/fs_runner.h"

namespace archil::test {

std::string ToString(const Outcome& o) {
  std::string out = fmt::format("err={}", o.err);
  for (const Attr& a : o.attrs) {
    out +=
        fmt::format(" [ino={} type={} mode={:o} uid={} gid={} nlink={} size={} rdev={} mtime={}.{:09} ctime={}.{:09}]",
                    a.ino.value, static_cast<int>(a.type), a.mode, a.uid, a.gid, a.nlink, a.size, a.rdev, a.mtime.sec,
                    a.mtime.nsec, a.ctime.sec, a.ctime.nsec);
  }
  for (const ListedName& n : o.names) out += fmt::format(" {}:{}:{}", n.name, n.ino.value, static_cast<int>(n.type));
  if (!o.text.empty()) {
    out += fmt::format(" text[{}]=", o.text.size());
    for (size_t i = 0; i < std::min<size_t>(o.text.size(), 24); ++i) out += fmt::format("{:02x}", uint8_t(o.text[i]));
  }
  if (o.number != 0) out += fmt::format(" number={}", o.number);
  return out;
}

bool InodeRunner::Slot::writable() const { return (flags & O_ACCMODE) != O_RDONLY; }
bool InodeRunner::Slot::readable() const { return (flags & O_ACCMODE) != O_WRONLY; }

void InodeRunner::Reset(InodeFs& fs) {
  fs_ = &fs;
  for (Slot& slot : slots_) slot = Slot{};
  references_.clear();
}

Result<InodeId> InodeRunner::Start(int at) {
  if (at < 0) return fs_->Root();
  if (at >= kSlots || !slots_[at].used) return Code::kBadHandle;
  return slots_[at].ino;
}

Result<Attr> InodeRunner::Ref(Result<Attr> attr) {
  if (attr.ok()) references_.push_back(attr->ino);
  return attr;
}

Result<InodeRunner::Name> InodeRunner::ResolveName(int at, const std::string& path) {
  ARCHIL_ASSIGN_OR_RETURN(InodeId dir, Start(at));
  if (path.empty()) return Code::kInvalid;
  std::string_view rest = path;
  for (;;) {
    // A look-up in something that is no directory is refused by the kernel itself.
    ARCHIL_ASSIGN_OR_RETURN(const Attr attr, fs_->GetAttr(dir));
    if (attr.type != FileType::kDirectory) return Code::kNotDirectory;
    const size_t slash = rest.find('/');
    if (slash == std::string_view::npos) return Name{dir, std::string(rest)};
    ARCHIL_ASSIGN_OR_RETURN(const Attr child, Ref(fs_->Lookup(dir, rest.substr(0, slash))));
    dir = child.ino;
    rest.remove_prefix(slash + 1);
  }
}

Result<Attr> InodeRunner::Resolve(int at, const std::string& path) {
  if (path.empty()) {
    ARCHIL_ASSIGN_OR_RETURN(const InodeId ino, Start(at));
    return fs_->GetAttr(ino);
  }
  ARCHIL_ASSIGN_OR_RETURN(const Name name, ResolveName(at, path));
  return Ref(fs_->Lookup(name.parent, name.name));
}

Result<InodeRunner::Slot*> InodeRunner::FileSlot(int at) {
  if (at < 0 || at >= kSlots || !slots_[at].used) return Code::kBadHandle;
  if (slots_[at].directory) return Code::kIsDirectory;
  return &slots_[at];
}

void InodeRunner::Close(Slot& slot) {
  if (!slot.used) return;
  if (!slot.directory) fs_->Release(slot.ino, slot.handle);
  fs_->Forget(slot.ino);
  slot = Slot{};
}

void InodeRunner::Fill(int slot, Slot with) {
  ARCHIL_CHECK(slot >= 0 && slot < kSlots);
  Close(slots_[slot]);
  slots_[slot] = with;
  slots_[slot].used = true;
}

void InodeRunner::CloseSlots() {
  for (Slot& slot : slots_) Close(slot);
}

Outcome InodeRunner::Run(const ModelOp& op) {
  Result<Outcome> result = Dispatch(op);
  for (const InodeId ino : references_) fs_->Forget(ino);
  references_.clear();
  if (result.ok()) return std::move(result).value();
  return Outcome{.err = ErrnoOf(result.code())};
}

Result<Outcome> InodeRunner::Dispatch(const ModelOp& op) {
  switch (op.kind) {
    case OpKind::kMkdir:
    case OpKind::kMknod:
    case OpKind::kSymlink: return RunMake(op);
    case OpKind::kLink: return RunLink(op);
    case OpKind::kCreate: return RunCreate(op);
    case OpKind::kOpen: return RunOpen(op);
    case OpKind::kClose: {
      if (op.slot < 0 || op.slot >= kSlots || !slots_[op.slot].used) return Code::kBadHandle;
      Close(slots_[op.slot]);
      return Outcome{};
    }
    case OpKind::kUnlink:
    case OpKind::kRmdir: return RunRemove(op);
    case OpKind::kRename: return RunRename(op);
    case OpKind::kChmod:
    case OpKind::kChown:
    case OpKind::kTruncate:
    case OpKind::kUtimens: return RunSetAttr(op);
    case OpKind::kWrite:
    case OpKind::kRead:
    case OpKind::kFallocate:
    case OpKind::kSeek: return RunData(op);
    case OpKind::kSetXattr:
    case OpKind::kGetXattr:
    case OpKind::kListXattrs:
    case OpKind::kRemoveXattr: return RunXattr(op);
    case OpKind::kReaddir:
    case OpKind::kStat:
    case OpKind::kReadlink: return RunRead(op);
    case OpKind::kFsync:
    case OpKind::kFsyncDir:
    case OpKind::kSync:
    case OpKind::kDropCaches: return RunSync(op);
    default: return Code::kNotImplemented;
  }
}

Result<Outcome> InodeRunner::RunMake(const ModelOp& op) {
  ARCHIL_ASSIGN_OR_RETURN(const Name n, ResolveName(op.at, op.path));
  const Who who{op.uid, op.gid};
  Result<Attr> made = Code::kInternal;
  if (op.kind == OpKind::kMkdir) {
    made = Ref(fs_->Mkdir(who, n.parent, n.name, op.mode));
  } else if (op.kind == OpKind::kMknod) {
    made = Ref(fs_->Mknod(who, n.parent, n.name, static_cast<FileType>(op.sub), op.mode, op.rdev));
  } else {
    made = Ref(fs_->Symlink(who, n.parent, n.name, op.path2));
  }
  if (!made.ok()) return made.error();
  return Outcome{.attrs = {*made}};
}

Result<Outcome> InodeRunner::RunLink(const ModelOp& op) {
  ARCHIL_ASSIGN_OR_RETURN(const Attr source, Resolve(op.at, op.path));
  ARCHIL_ASSIGN_OR_RETURN(const Name n, ResolveName(op.at2, op.path2));
  ARCHIL_ASSIGN_OR_RETURN(const Attr linked, Ref(fs_->Link(source.ino, n.parent, n.name)));
  return Outcome{.attrs = {linked}};
}

Result<Outcome> InodeRunner::RunCreate(const ModelOp& op) {
  if (op.slot < 0 || op.slot >= kSlots) return Code::kBadHandle;
  ARCHIL_ASSIGN_OR_RETURN(const Name n, ResolveName(op.at, op.path));
  if ((op.flags & O_EXCL) == 0) {
    const Result<Attr> there = Ref(fs_->Lookup(n.parent, n.name));
    if (there.ok()) {
      if (there->type == FileType::kDirectory) return Code::kIsDirectory;
      return RunOpenInode(op, *there);
    }
    if (there.code() != Code::kNotFound) return there.error();
  }
  ARCHIL_ASSIGN_OR_RETURN(const OpenedFile made, fs_->Create({op.uid, op.gid}, n.parent, n.name, op.mode, op.flags));
  Fill(op.slot, {.ino = made.attr.ino, .handle = made.handle, .flags = op.flags});
  return Outcome{.attrs = {made.attr}};
}

Result<Outcome> InodeRunner::RunOpen(const ModelOp& op) {
  if (op.slot < 0 || op.slot >= kSlots) return Code::kBadHandle;
  if (op.path.empty()) return Code::kInvalid;
  ARCHIL_ASSIGN_OR_RETURN(const Attr attr, Resolve(op.at, op.path));
  return RunOpenInode(op, attr);
}

Result<Outcome> InodeRunner::RunOpenInode(const ModelOp& op, const Attr& attr) {
  Slot slot{.ino = attr.ino, .flags = op.flags};
  if (attr.type == FileType::kDirectory) {
    if ((op.flags & O_ACCMODE) != O_RDONLY) return Code::kIsDirectory;
    slot.directory = true;
  } else if (attr.type == FileType::kSymlink) {
    return Code::kLoop;
  } else if (attr.type != FileType::kRegular) {
    return Code::kNoSuchAddress;  // what is behind it is the kernel's
  } else {
    ARCHIL_ASSIGN_OR_RETURN(slot.handle, fs_->Open(attr.ino, op.flags));
  }
  // The reference that the walk took becomes the slot's own.
  auto it = std::find(references_.rbegin(), references_.rend(), attr.ino);
  ARCHIL_CHECK(it != references_.rend());
  references_.erase(std::next(it).base());
  Fill(op.slot, slot);
  return Outcome{};
}

Result<Outcome> InodeRunner::RunRemove(const ModelOp& op) {
  ARCHIL_ASSIGN_OR_RETURN(const Name n, ResolveName(op.at, op.path));
  // As in the kernel, the victim has been looked up: it is known while it dies.
  (void)Ref(fs_->Lookup(n.parent, n.name)).ok();
  const Status status = op.kind == OpKind::kUnlink ? fs_->Unlink(n.parent, n.name) : fs_->Rmdir(n.parent, n.name);
  if (!status.ok()) return status.error();
  return Outcome{};
}

Result<Outcome> InodeRunner::RunRename(const ModelOp& op) {
  ARCHIL_ASSIGN_OR_RETURN(const Name from, ResolveName(op.at, op.path));
  ARCHIL_ASSIGN_OR_RETURN(const Name to, ResolveName(op.at2, op.path2));
  // The kernel looks both names up first, and so finds the errors of the old one first.
  if (to.name.size() > kMaxName) {
    ARCHIL_ASSIGN_OR_RETURN(const Attr moved, Ref(fs_->Lookup(from.parent, from.name)));
    (void)moved;
  }
  ARCHIL_RETURN_IF_ERROR(fs_->Rename(from.parent, from.name, to.parent, to.name, static_cast<RenameKind>(op.sub)));
  return Outcome{};
}

Result<Outcome> InodeRunner::RunSetAttr(const ModelOp& op) {
  ARCHIL_ASSIGN_OR_RETURN(const Attr attr, Resolve(op.at, op.path));
  AttrChange change;
  switch (op.kind) {
    case OpKind::kChmod:
      if (attr.type == FileType::kSymlink) return Code::kNotSupported;
      change.fields = AttrChange::kMode;
      change.mode = op.mode;
      break;
    case OpKind::kChown:
      change.fields = AttrChange::kUid | AttrChange::kGid;
      if (attr.type != FileType::kDirectory) change.fields |= AttrChange::kKillSetId;
      change.uid = op.uid;
      change.gid = op.gid;
      break;
    case OpKind::kTruncate:
      if (attr.type == FileType::kDirectory) return Code::kIsDirectory;
      if (attr.type != FileType::kRegular) return Code::kInvalid;
      if (op.path.empty() && !slots_[op.at].writable()) return Code::kInvalid;
      change.fields = AttrChange::kSize;
      if (op.kill_set_id) change.fields |= AttrChange::kKillSetId;
      change.size = op.length;
      break;
    default:
      change.fields = op.sub;
      change.atime = op.atime;
      change.mtime = op.mtime;
      break;
  }
  ARCHIL_ASSIGN_OR_RETURN(const Attr after, fs_->SetAttr(attr.ino, change));
  return Outcome{.attrs = {after}};
}

Result<Outcome> InodeRunner::RunData(const ModelOp& op) {
  ARCHIL_ASSIGN_OR_RETURN(Slot * slot, FileSlot(op.at));
  Outcome out;
  if (op.kind == OpKind::kWrite) {
    if (!slot->writable()) return Code::kBadHandle;
    if (op.length == 0) return out;
    const std::string data = FillBytes(op.fill, op.length);
    const bool append = (slot->flags & O_APPEND) != 0;
    ARCHIL_ASSIGN_OR_RETURN(out.number, fs_->Write(slot->ino, op.offset, data, append, op.kill_set_id));
  } else if (op.kind == OpKind::kRead) {
    if (!slot->readable()) return Code::kBadHandle;
    ARCHIL_ASSIGN_OR_RETURN(out.text, fs_->Read(slot->ino, op.offset, op.length));
  } else if (op.kind == OpKind::kFallocate) {
    if (op.length == 0) return Code::kInvalid;
    if (!slot->writable()) return Code::kBadHandle;
    ARCHIL_RETURN_IF_ERROR(fs_->Fallocate(slot->ino, static_cast<AllocKind>(op.sub), op.offset, op.length));
  } else {
    ARCHIL_ASSIGN_OR_RETURN(out.number, fs_->Seek(slot->ino, op.offset, static_cast<SeekKind>(op.sub)));
  }
  return out;
}

Result<Outcome> InodeRunner::RunXattr(const ModelOp& op) {
  ARCHIL_ASSIGN_OR_RETURN(const Attr attr, Resolve(op.at, op.path));
  // "user." names are for files and directories only; the kernel sees to it.
  const bool plain = attr.type == FileType::kRegular || attr.type == FileType::kDirectory;
  Outcome out;
  if (op.kind == OpKind::kSetXattr) {
    if (!plain) return Code::kPermission;
    const std::string value = FillBytes(op.fill, op.length);
    ARCHIL_RETURN_IF_ERROR(fs_->SetXattr(attr.ino, op.name, value, static_cast<XattrKind>(op.sub)));
  } else if (op.kind == OpKind::kGetXattr) {
    if (!plain) return Code::kNoData;
    ARCHIL_ASSIGN_OR_RETURN(out.text, fs_->GetXattr(attr.ino, op.name));
  } else if (op.kind == OpKind::kListXattrs) {
    ARCHIL_ASSIGN_OR_RETURN(std::vector<std::string> names, fs_->ListXattrs(attr.ino));
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) out.text += name + "\n";
  } else {
    if (!plain) return Code::kPermission;
    ARCHIL_RETURN_IF_ERROR(fs_->RemoveXattr(attr.ino, op.name));
  }
  return out;
}

Result<Outcome> InodeRunner::RunRead(const ModelOp& op) {
  ARCHIL_ASSIGN_OR_RETURN(const Attr attr, Resolve(op.at, op.path));
  Outcome out;
  if (op.kind == OpKind::kStat) {
    out.attrs.push_back(attr);
  } else if (op.kind == OpKind::kReadlink) {
    if (attr.type != FileType::kSymlink) return Code::kInvalid;
    ARCHIL_ASSIGN_OR_RETURN(out.text, fs_->Readlink(attr.ino));
  } else {
    if (attr.type != FileType::kDirectory) return Code::kNotDirectory;
    if (attr.nlink == 0) return Code::kNotFound;  // the kernel lists no removed directory
    ARCHIL_ASSIGN_OR_RETURN(out.names, fs_->Readdir(attr.ino));
    std::sort(out.names.begin(), out.names.end());
  }
  return out;
}

Result<Outcome> InodeRunner::RunSync(const ModelOp& op) {
  if (op.kind == OpKind::kFsync) {
    ARCHIL_ASSIGN_OR_RETURN(Slot * slot, FileSlot(op.at));
    ARCHIL_RETURN_IF_ERROR(fs_->Fsync(slot->ino, slot->handle, op.sub != 0));
  } else if (op.kind == OpKind::kFsyncDir) {
    ARCHIL_ASSIGN_OR_RETURN(const Attr attr, Resolve(op.at, op.path));
    if (attr.type != FileType::kDirectory) return Code::kNotDirectory;
    ARCHIL_RETURN_IF_ERROR(fs_->FsyncDir(attr.ino));
  } else if (op.kind == OpKind::kSync) {
    ARCHIL_RETURN_IF_ERROR(fs_->Sync());
  } else {
    fs_->DropCaches();
  }
  return Outcome{};
}

Result<Tree> InodeRunner::Dump() {
  Tree tree;
  ARCHIL_ASSIGN_OR_RETURN(const Attr root, fs_->GetAttr(fs_->Root()));
  ARCHIL_RETURN_IF_ERROR(DumpInode("", root, tree));
  return tree;
}

Status InodeRunner::DumpInode(const std::string& path, const Attr& attr, Tree& out) {
  const auto failed = [&](std::string_view what, const Error& error) {
    return Error(error.code(), fmt::format("{} of '{}': {}", what, path, error.ToString()));
  };
  TreeNode& node = out[path];
  node.attr = attr;
  if (attr.type == FileType::kSymlink) {
    auto target = fs_->Readlink(attr.ino);
    if (!target.ok()) return failed("readlink", target.error());
    node.target = *target;
    return Ok();
  }
  auto xattrs = fs_->ListXattrs(attr.ino);
  if (!xattrs.ok()) return failed("listxattr", xattrs.error());
  for (const std::string& name : *xattrs) {
    auto value = fs_->GetXattr(attr.ino, name);
    if (!value.ok()) return failed("getxattr", value.error());
    node.xattrs[name] = *value;
  }
  if (attr.type == FileType::kRegular) {
    auto content = fs_->Read(attr.ino, 0, attr.size + 1);
    if (!content.ok()) return failed("read", content.error());
    node.content = std::move(*content);
    return Ok();
  }
  if (attr.type != FileType::kDirectory) return Ok();
  auto names = fs_->Readdir(attr.ino);
  if (!names.ok()) return failed("readdir", names.error());
  for (const ListedName& item : *names) {
    auto child = fs_->Lookup(attr.ino, item.name);
    if (!child.ok()) return failed("lookup of listed " + item.name, child.error());
    const Status status = child->ino == item.ino && child->type == item.type
                              ? DumpInode(path.empty() ? item.name : path + "/" + item.name, *child, out)
                              : Status(failed("listing and lookup differ on " + item.name, Error(Code::kInternal)));
    fs_->Forget(child->ino);
    ARCHIL_RETURN_IF_ERROR(status);
  }
  return Ok();
}

}  // namespace archil::test
