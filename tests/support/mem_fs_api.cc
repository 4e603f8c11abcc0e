#include "tests/support/mem_fs_api.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace archil {
namespace {

constexpr uint64_t kMaxBytes = 1ULL << 30;  // of one file
constexpr absl::Duration kTtl = absl::Hours(1);

}  // namespace

struct MemFsApi::Node {
  Attr attr;
  std::string data;    // content, or the target of a symlink
  InodeId parent;      // directories
  // Directories: names in the order of their cookies, which are never given again.
  std::map<uint64_t, std::pair<std::string, uint64_t>> by_cookie;
  absl::flat_hash_map<std::string, std::pair<uint64_t, uint64_t>> by_name;  // cookie, inode
  uint64_t next_cookie = 3;                                                 // 1 and 2 are "." and ".."
  std::map<std::string, std::string> xattrs;
  uint64_t references = 0;
  uint64_t opens = 0;
};

MemFsApi::MemFsApi(Scheduler& scheduler)
    : scheduler_(scheduler), locks_(scheduler, nullptr), mu_(scheduler), changed_(scheduler) {
  locks_.SetSession(SessionId{1}, true);
  MutexLock lock(mu_);
  auto root = std::make_unique<Node>();
  root->attr.ino = root->parent = kRootInode;
  root->attr.type = FileType::kDirectory;
  root->attr.mode = 0755;
  root->attr.nlink = 2;
  root->attr.atime = root->attr.mtime = root->attr.ctime = root->attr.btime = ToTimestamp(scheduler.clock().Wall());
  nodes_[kRootInode.value] = std::move(root);
}

MemFsApi::~MemFsApi() = default;

void MemFsApi::HoldName(std::string name) {
  MutexLock lock(mu_);
  held_name_ = std::move(name);
}

void MemFsApi::AwaitHeld(size_t count) {
  MutexLock lock(mu_);
  while (held_ < count) changed_.Wait(mu_);
}

size_t MemFsApi::nodes() {
  MutexLock lock(mu_);
  return nodes_.size();
}

uint64_t MemFsApi::references() {
  MutexLock lock(mu_);
  uint64_t sum = 0;
  for (const auto& [ino, node] : nodes_) sum += ino == kRootInode.value ? 0 : node->references;
  return sum;
}

size_t MemFsApi::open_handles() {
  MutexLock lock(mu_);
  return open_;
}

void MemFsApi::WakeWaiters() {
  locks_.Wake();
  MutexLock lock(mu_);
  changed_.SignalAll();
}

// ---- the tree

MemFsApi::Node* MemFsApi::Find(InodeId ino) {
  auto it = nodes_.find(ino.value);
  return it == nodes_.end() ? nullptr : it->second.get();
}

Result<MemFsApi::Node*> MemFsApi::FindDirectory(InodeId ino) {
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  if (node->attr.type != FileType::kDirectory) return Code::kNotDirectory;
  return node;
}

Result<MemFsApi::Node*> MemFsApi::Child(Node& dir, std::string_view name) {
  if (name.size() > kMaxName) return Code::kNameTooLong;
  auto it = dir.by_name.find(absl::string_view(name.data(), name.size()));
  if (it == dir.by_name.end()) return Code::kNotFound;
  return Find(InodeId(it->second.second));
}

void MemFsApi::Touch(Node& node, bool data) {
  Timestamp now = ToTimestamp(scheduler_.clock().Wall());
  if (now <= node.attr.ctime) now = AddNanosecond(node.attr.ctime);
  node.attr.ctime = now;
  if (data) node.attr.mtime = now;
  ++node.attr.change;
}

void MemFsApi::AddName(Node& dir, std::string_view name, Node& child) {
  const uint64_t cookie = dir.next_cookie++;
  dir.by_cookie[cookie] = {std::string(name), child.attr.ino.value};
  dir.by_name[std::string(name)] = {cookie, child.attr.ino.value};
  dir.attr.size = dir.by_name.size();
  if (child.attr.type == FileType::kDirectory) {
    child.parent = dir.attr.ino;
    ++dir.attr.nlink;
  }
  Touch(dir, true);
}

void MemFsApi::RemoveName(Node& dir, std::string_view name, Node& child) {
  auto it = dir.by_name.find(absl::string_view(name.data(), name.size()));
  dir.by_cookie.erase(it->second.first);
  dir.by_name.erase(it);
  dir.attr.size = dir.by_name.size();
  if (child.attr.type == FileType::kDirectory) --dir.attr.nlink;
  Touch(dir, true);
}

Result<MemFsApi::Node*> MemFsApi::NewChild(const OpContext& ctx, InodeId parent, std::string_view name, FileType type,
                                           uint32_t mode) {
  ARCHIL_ASSIGN_OR_RETURN(Node* dir, FindDirectory(parent));
  if (dir->attr.nlink == 0) return Code::kNotFound;
  if (name.size() > kMaxName) return Code::kNameTooLong;
  if (Child(*dir, name).ok()) return Code::kExists;
  auto node = std::make_unique<Node>();
  node->attr.ino = InodeId(next_ino_++);
  node->attr.type = type;
  node->attr.mode = mode & 07777;
  node->attr.uid = ctx.caller.uid;
  node->attr.gid = dir->attr.mode & S_ISGID ? dir->attr.gid : ctx.caller.gid;
  if ((dir->attr.mode & S_ISGID) && type == FileType::kDirectory) node->attr.mode |= S_ISGID;
  node->attr.nlink = type == FileType::kDirectory ? 2 : 1;
  Touch(*node, true);
  node->attr.atime = node->attr.btime = node->attr.mtime;
  Node* raw = node.get();
  nodes_[raw->attr.ino.value] = std::move(node);
  AddName(*dir, name, *raw);
  return raw;
}

void MemFsApi::DropIfDead(Node& node) {
  if (node.attr.nlink == 0 && node.references == 0 && node.opens == 0) nodes_.erase(node.attr.ino.value);
}

Entry MemFsApi::EntryOf(Node& node) {
  ++node.references;
  return {node.attr, kTtl, kTtl};
}

Result<Entry> MemFsApi::Lookup(const OpContext& ctx, InodeId parent, std::string_view name) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  if (!held_name_.empty() && name == held_name_) {
    if (!ctx.may_block) return Code::kWouldBlock;
    ++held_;
    changed_.SignalAll();
    while (!ctx.cancelled()) changed_.Wait(mu_);
    --held_;
    return Code::kInterrupted;
  }
  ARCHIL_ASSIGN_OR_RETURN(Node* dir, FindDirectory(parent));
  ARCHIL_ASSIGN_OR_RETURN(Node* child, Child(*dir, name));
  return EntryOf(*child);
}

absl::Duration MemFsApi::NegativeTtl(InodeId parent) { return kTtl; }

void MemFsApi::Forget(InodeId ino, uint64_t count) {
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return;
  node->references -= std::min(count, node->references);
  DropIfDead(*node);
}

Result<Entry> MemFsApi::Mkdir(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode) {
  return Mknod(ctx, parent, name, FileType::kDirectory, mode, 0);
}

Result<Entry> MemFsApi::Mknod(const OpContext& ctx, InodeId parent, std::string_view name, FileType type, uint32_t mode,
                              uint64_t rdev) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(Node* node, NewChild(ctx, parent, name, type, mode));
  node->attr.rdev = rdev;
  return EntryOf(*node);
}

Result<Entry> MemFsApi::Symlink(const OpContext& ctx, InodeId parent, std::string_view name, std::string_view target) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(Node* node, NewChild(ctx, parent, name, FileType::kSymlink, 0777));
  node->data = target;
  node->attr.size = target.size();
  return EntryOf(*node);
}

Result<Entry> MemFsApi::Link(const OpContext& ctx, InodeId ino, InodeId parent, std::string_view name) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(Node* dir, FindDirectory(parent));
  Node* node = Find(ino);
  if (node == nullptr || node->attr.nlink == 0) return Code::kNotFound;
  if (Child(*dir, name).ok()) return Code::kExists;
  ++node->attr.nlink;
  Touch(*node, false);
  AddName(*dir, name, *node);
  return EntryOf(*node);
}

Result<CreateReply> MemFsApi::Create(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode, int flags) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(Node* node, NewChild(ctx, parent, name, FileType::kRegular, mode));
  CreateReply reply;
  reply.entry = EntryOf(*node);
  reply.open = {next_handle_++, true, false};
  ++node->opens;
  ++open_;
  return reply;
}

Status MemFsApi::Unlink(const OpContext& ctx, InodeId parent, std::string_view name) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(Node* dir, FindDirectory(parent));
  ARCHIL_ASSIGN_OR_RETURN(Node* node, Child(*dir, name));
  if (node->attr.type == FileType::kDirectory) return Code::kIsDirectory;
  RemoveName(*dir, name, *node);
  --node->attr.nlink;
  Touch(*node, false);
  DropIfDead(*node);
  return Ok();
}

Status MemFsApi::Rmdir(const OpContext& ctx, InodeId parent, std::string_view name) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(Node* dir, FindDirectory(parent));
  ARCHIL_ASSIGN_OR_RETURN(Node* node, Child(*dir, name));
  if (node->attr.type != FileType::kDirectory) return Code::kNotDirectory;
  if (!node->by_name.empty()) return Code::kNotEmpty;
  RemoveName(*dir, name, *node);
  node->attr.nlink = 0;
  Touch(*node, false);
  DropIfDead(*node);
  return Ok();
}

// The kernel has checked loops and types of directories; what is left is the exchange of names.
Status MemFsApi::Rename(const OpContext& ctx, InodeId parent, std::string_view name, InodeId new_parent,
                        std::string_view new_name, RenameMode mode) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(Node* from, FindDirectory(parent));
  ARCHIL_ASSIGN_OR_RETURN(Node* to, FindDirectory(new_parent));
  ARCHIL_ASSIGN_OR_RETURN(Node* node, Child(*from, name));
  if (new_name.size() > kMaxName) return Code::kNameTooLong;
  const Result<Node*> other = Child(*to, new_name);
  if (mode == RenameMode::kExchange) {
    if (!other.ok()) return Code::kNotFound;
    RemoveName(*from, name, *node);
    RemoveName(*to, new_name, **other);
    AddName(*from, name, **other);
    AddName(*to, new_name, *node);
    return Ok();
  }
  if (other.ok()) {
    if (mode == RenameMode::kNoReplace) return Code::kExists;
    if (*other == node) return Ok();
    const bool is_dir = (*other)->attr.type == FileType::kDirectory;
    if (is_dir != (node->attr.type == FileType::kDirectory)) return is_dir ? Code::kIsDirectory : Code::kNotDirectory;
    if (!(*other)->by_name.empty()) return Code::kNotEmpty;
    RemoveName(*to, new_name, **other);
    (*other)->attr.nlink = is_dir ? 0 : (*other)->attr.nlink - 1;
    Touch(**other, false);
    DropIfDead(**other);
  }
  RemoveName(*from, name, *node);
  AddName(*to, new_name, *node);
  Touch(*node, false);
  return Ok();
}

Status MemFsApi::Readdir(const OpContext& ctx, InodeId ino, uint64_t cookie, bool plus,
                         const std::function<bool(const DirItem&)>& fn) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(Node* dir, FindDirectory(ino));
  if (cookie < 1 && !fn({".", 1, ino, FileType::kDirectory, nullptr})) return Ok();
  if (cookie < 2 && !fn({"..", 2, dir->parent, FileType::kDirectory, nullptr})) return Ok();
  for (auto it = dir->by_cookie.upper_bound(cookie); it != dir->by_cookie.end(); ++it) {
    Node& node = *Find(InodeId(it->second.second));
    const Entry entry = {node.attr, kTtl, kTtl};
    if (!fn({it->second.first, it->first, node.attr.ino, node.attr.type, plus ? &entry : nullptr})) return Ok();
    if (plus) ++node.references;
  }
  return Ok();
}

// ---- one inode

Result<AttrReply> MemFsApi::GetAttr(const OpContext& ctx, InodeId ino) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  return AttrReply{node->attr, kTtl};
}

Status MemFsApi::Resize(Node& node, uint64_t size) {
  if (size > kMaxBytes) return Code::kFileTooBig;
  node.data.resize(size);
  node.attr.size = size;
  node.attr.allocated = (size + 4095) / 4096 * 4096;
  return Ok();
}

Result<AttrReply> MemFsApi::SetAttr(const OpContext& ctx, InodeId ino, const SetAttrRequest& r) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  const bool resized = r.fields & SetAttrRequest::kSize;
  if (resized) ARCHIL_RETURN_IF_ERROR(Resize(*node, r.size));
  Touch(*node, resized);
  if (r.fields & SetAttrRequest::kMode) node->attr.mode = r.mode & 07777;
  if (r.fields & SetAttrRequest::kUid) node->attr.uid = r.uid;
  if (r.fields & SetAttrRequest::kGid) node->attr.gid = r.gid;
  const bool owner_changed = r.fields & (SetAttrRequest::kUid | SetAttrRequest::kGid);
  if ((owner_changed || (r.fields & SetAttrRequest::kKillSetId)) && node->attr.type == FileType::kRegular) {
    node->attr.mode &= ~(S_ISUID | (node->attr.mode & S_IXGRP ? S_ISGID : 0));
  }
  const Timestamp now = ToTimestamp(scheduler_.clock().Wall());
  if (r.fields & SetAttrRequest::kAtime) node->attr.atime = r.atime;
  if (r.fields & SetAttrRequest::kMtime) node->attr.mtime = r.mtime;
  if (r.fields & SetAttrRequest::kAtimeNow) node->attr.atime = now;
  if (r.fields & SetAttrRequest::kMtimeNow) node->attr.mtime = now;
  return AttrReply{node->attr, kTtl};
}

Result<std::string> MemFsApi::Readlink(const OpContext& ctx, InodeId ino) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  if (node->attr.type != FileType::kSymlink) return Code::kInvalid;
  return node->data;
}

Result<OpenReply> MemFsApi::Open(const OpContext& ctx, InodeId ino, int flags) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  if (flags & O_TRUNC) {
    ARCHIL_RETURN_IF_ERROR(Resize(*node, 0));
    Touch(*node, true);
  }
  ++node->opens;
  ++open_;
  return OpenReply{next_handle_++, true, false, locks_.HasRanges(ino)};
}

Result<ReadReply> MemFsApi::Read(const OpContext& ctx, InodeId ino, uint64_t offset, size_t length) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  ReadReply reply;
  if (offset >= node->data.size()) return reply;
  reply.size = std::min<uint64_t>(length, node->data.size() - offset);
  reply.pieces.push_back(Buffer(node->data.substr(offset, reply.size)));
  return reply;
}

Result<size_t> MemFsApi::Write(const OpContext& ctx, InodeId ino, uint64_t offset, std::string_view data, bool append,
                               bool kill_set_id) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  if (append) offset = node->attr.size;
  if (offset > kMaxBytes || offset + data.size() > kMaxBytes) return Code::kFileTooBig;
  if (offset + data.size() > node->data.size()) ARCHIL_RETURN_IF_ERROR(Resize(*node, offset + data.size()));
  std::copy(data.begin(), data.end(), node->data.begin() + static_cast<ptrdiff_t>(offset));
  if (kill_set_id) node->attr.mode &= ~(S_ISUID | (node->attr.mode & S_IXGRP ? S_ISGID : 0));
  Touch(*node, true);
  return data.size();
}

Status MemFsApi::Fsync(const OpContext& ctx, InodeId, HandleId, bool) { return MustWait(ctx) ? Code::kWouldBlock : Code::kOk; }

Status MemFsApi::FsyncDir(const OpContext& ctx, InodeId) { return MustWait(ctx) ? Code::kWouldBlock : Code::kOk; }

Status MemFsApi::SetLock(const OpContext& ctx, InodeId ino, HandleId handle, const LockCall& call) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  return locks_.Set(ctx, ino, handle, call);
}

Result<std::optional<FileLock>> MemFsApi::TestLock(const OpContext& ctx, InodeId ino, const LockCall& call) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  return locks_.Test(ctx, ino, call);
}

Status MemFsApi::Flush(const OpContext& ctx, InodeId ino, HandleId, uint64_t owner) { return locks_.Close(ctx, ino, owner); }

void MemFsApi::Release(InodeId ino, HandleId handle) {
  locks_.Release(ino, handle);
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr || node->opens == 0) return;
  --node->opens;
  --open_;
  DropIfDead(*node);
}

Status MemFsApi::Fallocate(const OpContext& ctx, InodeId ino, FallocateMode mode, uint64_t offset, uint64_t length) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  if (offset > kMaxBytes || length > kMaxBytes) return Code::kFileTooBig;
  const bool grows = mode == FallocateMode::kAllocate || mode == FallocateMode::kZeroRange;
  if (grows && offset + length > node->attr.size) ARCHIL_RETURN_IF_ERROR(Resize(*node, offset + length));
  if (mode != FallocateMode::kAllocate && mode != FallocateMode::kAllocateKeepSize && offset < node->data.size()) {
    const uint64_t end = std::min<uint64_t>(offset + length, node->data.size());
    std::fill(node->data.begin() + static_cast<ptrdiff_t>(offset), node->data.begin() + static_cast<ptrdiff_t>(end), '\0');
  }
  Touch(*node, true);
  return Ok();
}

// One run of data with the hole that every file has at its end.
Result<uint64_t> MemFsApi::Seek(const OpContext& ctx, InodeId ino, uint64_t offset, SeekWhat what) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  if (offset >= node->attr.size) return Code::kNoSuchAddress;
  return what == SeekWhat::kData ? offset : node->attr.size;
}

Result<std::string> MemFsApi::GetXattr(const OpContext& ctx, InodeId ino, std::string_view name) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  auto it = node->xattrs.find(std::string(name));
  if (it == node->xattrs.end()) return Code::kNoData;
  return it->second;
}

Result<std::vector<std::string>> MemFsApi::ListXattrs(const OpContext& ctx, InodeId ino) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  std::vector<std::string> names;
  for (const auto& [name, value] : node->xattrs) names.push_back(name);
  return names;
}

Status MemFsApi::SetXattr(const OpContext& ctx, InodeId ino, std::string_view name, std::string_view value, XattrMode mode) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  const bool exists = node->xattrs.count(std::string(name)) != 0;
  if (mode == XattrMode::kCreate && exists) return Code::kExists;
  if (mode == XattrMode::kReplace && !exists) return Code::kNoData;
  node->xattrs[std::string(name)] = value;
  Touch(*node, false);
  return Ok();
}

Status MemFsApi::RemoveXattr(const OpContext& ctx, InodeId ino, std::string_view name) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  MutexLock lock(mu_);
  Node* node = Find(ino);
  if (node == nullptr) return Code::kStale;
  if (node->xattrs.erase(std::string(name)) == 0) return Code::kNoData;
  Touch(*node, false);
  return Ok();
}

Result<FsStats> MemFsApi::StatFs(const OpContext& ctx) {
  if (MustWait(ctx)) return Code::kWouldBlock;
  FsStats stats;
  stats.total_bytes = stats.free_bytes = 1ULL << 40;
  stats.total_inodes = stats.free_inodes = 1ULL << 32;
  return stats;
}

MountStatus MemFsApi::GetStatus() {
  MountStatus status;
  status.disk = "memory";
  status.state = "active";
  return status;
}

}  // namespace archil
