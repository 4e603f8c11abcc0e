#include "tests/support/ref_fs.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace archil::test {

using Kind = RefEvent::Kind;

void RefFs::Do(RefEvent event) {
  event.tick = ++ticks_;
  visible_.Apply(event);
  history_.events.push_back(std::move(event));
}

Result<Attr> RefFs::Counted(InodeId ino) {
  references_[ino]++;
  return visible_.At(ino).Shown();
}

void RefFs::MaybeDrop(InodeId ino) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr || n->attr.nlink != 0 || references_.contains(ino) || open_.contains(ino)) return;
  visible_.inodes.erase(ino);
}

Status RefFs::CheckDir(InodeId dir, std::string_view name) const {
  const RefInode* d = visible_.Find(dir);
  if (d == nullptr) return Code::kStale;
  if (!d->is_dir()) return Code::kNotDirectory;
  if (d->attr.nlink == 0) return Code::kNotFound;
  if (name.size() > kMaxName) return Code::kNameTooLong;
  return Ok();
}

Status RefFs::CheckAbsent(InodeId dir, std::string_view name) const {
  ARCHIL_RETURN_IF_ERROR(CheckDir(dir, name));
  if (visible_.Child(dir, name)) return Code::kExists;
  return Ok();
}

Result<Attr> RefFs::Lookup(InodeId parent, std::string_view name) {
  ARCHIL_RETURN_IF_ERROR(CheckDir(parent, name));
  const InodeId ino = visible_.Child(parent, name);
  if (!ino) return Code::kNotFound;
  return Counted(ino);
}

void RefFs::Forget(InodeId ino) {
  auto it = references_.find(ino);
  ARCHIL_CHECK(it != references_.end());
  if (--it->second == 0) references_.erase(it);
  MaybeDrop(ino);
}

Result<Attr> RefFs::GetAttr(InodeId ino) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  return n->Shown();
}

Result<Attr> RefFs::SetAttr(InodeId ino, const AttrChange& change) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  if ((change.fields & AttrChange::kSize) != 0) {
    if (n->is_dir()) return Code::kIsDirectory;
    if (n->attr.type != FileType::kRegular) return Code::kInvalid;
  }
  Do({.kind = Kind::kSetAttr, .ino = ino, .change = change});
  return n->Shown();
}

Result<std::string> RefFs::Readlink(InodeId ino) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  if (n->attr.type != FileType::kSymlink) return Code::kInvalid;
  return n->target;
}

Result<Attr> RefFs::Add(Who who, InodeId parent, std::string_view name, FileType type, uint32_t mode, uint64_t rdev,
                        std::string_view target) {
  ARCHIL_RETURN_IF_ERROR(CheckAbsent(parent, name));
  RefEvent e{.kind = Kind::kCreate,
             .ino = InodeId{next_ino_++},
             .parent = parent,
             .name = std::string(name),
             .data = std::string(target)};
  e.attr.type = type;
  e.attr.mode = mode & 07777;
  e.attr.uid = who.uid;
  e.attr.gid = who.gid;
  e.attr.rdev = rdev;
  const InodeId ino = e.ino;
  Do(std::move(e));
  return Counted(ino);
}

Result<Attr> RefFs::Mkdir(Who who, InodeId parent, std::string_view name, uint32_t mode) {
  return Add(who, parent, name, FileType::kDirectory, mode, 0, {});
}

Result<Attr> RefFs::Mknod(Who who, InodeId parent, std::string_view name, FileType type, uint32_t mode, uint64_t rdev) {
  return Add(who, parent, name, type, mode, rdev, {});
}

Result<Attr> RefFs::Symlink(Who who, InodeId parent, std::string_view name, std::string_view target) {
  if (target.size() > kMaxSymlink) return Code::kNameTooLong;
  return Add(who, parent, name, FileType::kSymlink, 0777, 0, target);
}

Result<Attr> RefFs::Link(InodeId ino, InodeId parent, std::string_view name) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  ARCHIL_RETURN_IF_ERROR(CheckAbsent(parent, name));
  if (n->is_dir()) return Code::kPermission;
  if (n->attr.nlink == 0) return Code::kNotFound;
  if (n->attr.nlink >= kMaxLinks) return Code::kTooManyLinks;
  Do({.kind = Kind::kLink, .ino = ino, .parent = parent, .name = std::string(name)});
  return Counted(ino);
}

Result<OpenedFile> RefFs::Create(Who who, InodeId parent, std::string_view name, uint32_t mode, int flags) {
  ARCHIL_ASSIGN_OR_RETURN(Attr attr, Add(who, parent, name, FileType::kRegular, mode, 0, {}));
  const uint64_t handle = next_handle_++;
  handles_[handle] = attr.ino;
  open_[attr.ino]++;
  return OpenedFile{attr, handle};
}

Status RefFs::Unlink(InodeId parent, std::string_view name) {
  ARCHIL_RETURN_IF_ERROR(CheckDir(parent, name));
  const InodeId ino = visible_.Child(parent, name);
  if (!ino) return Code::kNotFound;
  if (visible_.At(ino).is_dir()) return Code::kIsDirectory;
  Do({.kind = Kind::kRemove, .ino = ino, .parent = parent, .name = std::string(name)});
  MaybeDrop(ino);
  return Ok();
}

Status RefFs::Rmdir(InodeId parent, std::string_view name) {
  ARCHIL_RETURN_IF_ERROR(CheckDir(parent, name));
  const InodeId ino = visible_.Child(parent, name);
  if (!ino) return Code::kNotFound;
  if (!visible_.At(ino).is_dir()) return Code::kNotDirectory;
  if (!visible_.At(ino).names.empty()) return Code::kNotEmpty;
  Do({.kind = Kind::kRemove, .ino = ino, .parent = parent, .name = std::string(name)});
  MaybeDrop(ino);
  return Ok();
}

// The order of the checks is that of Linux (do_renameat2, vfs_rename).
Status RefFs::CheckRename(InodeId moved, InodeId victim, InodeId parent, InodeId new_parent, RenameKind kind) const {
  const bool exchange = kind == RenameKind::kExchange;
  const RefInode& m = visible_.At(moved);
  if (m.is_dir() && visible_.IsBelow(new_parent, moved)) return Code::kInvalid;
  if (!victim) return Ok();
  const RefInode& v = visible_.At(victim);
  if (v.is_dir() && visible_.IsBelow(parent, victim)) return exchange ? Code::kInvalid : Code::kNotEmpty;
  if (moved == victim || exchange) return Ok();
  if (m.is_dir() && !v.is_dir()) return Code::kNotDirectory;
  if (!m.is_dir() && v.is_dir()) return Code::kIsDirectory;
  if (v.is_dir() && !v.names.empty()) return Code::kNotEmpty;
  return Ok();
}

Status RefFs::Rename(InodeId parent, std::string_view name, InodeId new_parent, std::string_view new_name,
                     RenameKind kind) {
  ARCHIL_RETURN_IF_ERROR(CheckDir(parent, name));
  const InodeId moved = visible_.Child(parent, name);
  if (!moved) return Code::kNotFound;
  ARCHIL_RETURN_IF_ERROR(CheckDir(new_parent, new_name));
  const InodeId victim = visible_.Child(new_parent, new_name);
  if (kind == RenameKind::kNoReplace && victim) return Code::kExists;
  if (kind == RenameKind::kExchange && !victim) return Code::kNotFound;
  ARCHIL_RETURN_IF_ERROR(CheckRename(moved, victim, parent, new_parent, kind));
  if (moved == victim) return Ok();  // links of one inode: nothing to do, POSIX rename()
  Do({.kind = kind == RenameKind::kExchange ? Kind::kExchange : Kind::kRename,
      .ino = moved,
      .parent = parent,
      .name = std::string(name),
      .new_parent = new_parent,
      .new_name = std::string(new_name),
      .victim = victim});
  if (victim) MaybeDrop(victim);
  return Ok();
}

Result<const RefInode*> RefFs::Regular(InodeId ino) const {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  if (n->is_dir()) return Code::kIsDirectory;
  if (n->attr.type != FileType::kRegular) return Code::kInvalid;
  return n;
}

Result<uint64_t> RefFs::Open(InodeId ino, int flags) {
  ARCHIL_ASSIGN_OR_RETURN(const RefInode* n, Regular(ino));
  if ((flags & O_TRUNC) != 0) {
    // The times move also if the file is empty already, open(2): "> stamp" is how make is told.
    Do({.kind = Kind::kSetAttr, .ino = ino, .change = {.fields = AttrChange::kSize | AttrChange::kMtimeNow}});
  }
  const uint64_t handle = next_handle_++;
  handles_[handle] = ino;
  open_[ino]++;
  return handle;
}

Result<std::string> RefFs::Read(InodeId ino, uint64_t offset, size_t length) {
  ARCHIL_ASSIGN_OR_RETURN(const RefInode* n, Regular(ino));
  return n->content.Read(offset, length);
}

Result<uint64_t> RefFs::Write(InodeId ino, uint64_t offset, std::string_view data, bool append, bool kill_set_id) {
  ARCHIL_ASSIGN_OR_RETURN(const RefInode* n, Regular(ino));
  if (append) offset = n->content.size();
  if (offset > kMaxFileSize || data.size() > kMaxFileSize - offset) return Code::kFileTooBig;
  Do({.kind = Kind::kWrite, .ino = ino, .data = std::string(data), .offset = offset, .kill_set_id = kill_set_id});
  return data.size();
}

void RefFs::MarkDurable(InodeId ino) {
  // Of an inode without a name nothing but the loss of the name can be seen after a crash.
  const bool nameless = visible_.At(ino).attr.nlink == 0;
  for (size_t i = history_.events.size(); i > 0; --i) {
    const RefEvent& e = history_.events[i - 1];
    if (!e.Touches(ino) || e.empty) continue;
    if (nameless && e.kind != Kind::kRemove && e.kind != Kind::kRename) continue;
    history_.durable = std::max(history_.durable, i);
    break;
  }
}

Status RefFs::Fsync(InodeId ino, uint64_t handle, bool data_only) {
  ARCHIL_ASSIGN_OR_RETURN(const RefInode* n, Regular(ino));
  (void)n;
  MarkDurable(ino);
  history_.data_durable[ino] = history_.events.size();
  return Ok();
}

Status RefFs::FsyncDir(InodeId ino) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  if (!n->is_dir()) return Code::kNotDirectory;
  MarkDurable(ino);
  return Ok();
}

void RefFs::Release(InodeId ino, uint64_t handle) {
  auto it = handles_.find(handle);
  ARCHIL_CHECK(it != handles_.end() && it->second == ino);
  handles_.erase(it);
  if (--open_[ino] == 0) open_.erase(ino);
  MaybeDrop(ino);
}

Status RefFs::Fallocate(InodeId ino, AllocKind kind, uint64_t offset, uint64_t length) {
  ARCHIL_ASSIGN_OR_RETURN(const RefInode* n, Regular(ino));
  if (length == 0) return Code::kInvalid;
  if (offset > kMaxFileSize || length > kMaxFileSize - offset) return Code::kFileTooBig;
  const uint64_t size = n->content.size();
  const bool changes = kind == AllocKind::kZeroRange || (kind == AllocKind::kAllocate && offset + length > size) ||
                       ((kind == AllocKind::kPunchHole || kind == AllocKind::kZeroRangeKeepSize) && offset < size);
  Do({.kind = Kind::kAllocate, .ino = ino, .alloc = kind, .offset = offset, .length = length, .empty = !changes});
  return Ok();
}

// Every byte that is not zero counts as data, everything else as a hole: the finest answer there is.
Result<uint64_t> RefFs::Seek(InodeId ino, uint64_t offset, SeekKind what) {
  ARCHIL_ASSIGN_OR_RETURN(const RefInode* n, Regular(ino));
  const uint64_t size = n->content.size();
  if (offset >= size) return Code::kNoSuchAddress;
  if (what == SeekKind::kData) {
    const uint64_t at = n->content.NextNonZero(offset);
    if (at >= size) return Code::kNoSuchAddress;
    return at;
  }
  while (offset < size && n->content.At(offset) != 0) ++offset;
  return offset;
}

Result<std::vector<ListedName>> RefFs::Readdir(InodeId ino) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  if (!n->is_dir()) return Code::kNotDirectory;
  if (n->attr.nlink == 0) return Code::kNotFound;
  std::vector<ListedName> out;
  for (const auto& [name, child] : n->names) out.push_back({name, child, visible_.At(child).attr.type});
  return out;
}

Result<std::string> RefFs::GetXattr(InodeId ino, std::string_view name) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  auto it = n->xattrs.find(std::string(name));
  if (it == n->xattrs.end()) return Code::kNoData;
  return it->second;
}

Result<std::vector<std::string>> RefFs::ListXattrs(InodeId ino) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  std::vector<std::string> out;
  for (const auto& [name, value] : n->xattrs) out.push_back(name);
  return out;
}

Status RefFs::SetXattr(InodeId ino, std::string_view name, std::string_view value, XattrKind kind) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  const bool present = n->xattrs.contains(std::string(name));
  if (kind == XattrKind::kCreate && present) return Code::kExists;
  if (kind == XattrKind::kReplace && !present) return Code::kNoData;
  Do({.kind = Kind::kSetXattr, .ino = ino, .name = std::string(name), .data = std::string(value)});
  return Ok();
}

Status RefFs::RemoveXattr(InodeId ino, std::string_view name) {
  const RefInode* n = visible_.Find(ino);
  if (n == nullptr) return Code::kStale;
  if (!n->xattrs.contains(std::string(name))) return Code::kNoData;
  Do({.kind = Kind::kRemoveXattr, .ino = ino, .name = std::string(name)});
  return Ok();
}

Status RefFs::Sync() {
  history_ = RefHistory{};
  history_.base = visible_;
  return Ok();
}

void RefFs::DropHandles() {
  references_.clear();
  handles_.clear();
  open_.clear();
  std::erase_if(visible_.inodes, [](const auto& item) { return item.second.attr.nlink == 0; });
}

void RefFs::Adopt(RefState state) {
  visible_ = std::move(state);
  DropHandles();
  history_ = RefHistory{};
  history_.base = visible_;
}

}  // namespace archil::test
