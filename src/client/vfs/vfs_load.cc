// What must be in memory before a call can decide: inodes, names, listings, extents, xattrs.

#include <algorithm>
#include <utility>

#include "client/vfs/vfs.h"

namespace archil {
namespace {

constexpr uint32_t kPage = 4096;           // names per ReadDir
constexpr uint64_t kListAtOnce = 4 * kPage;  // a directory up to this size is listed whole at the first miss
constexpr uint32_t kChunksPerCall = 64;
constexpr absl::Duration kForever = absl::Hours(24);  // under a delegation; invalidation is explicit

}  // namespace

Status Vfs::Usable(const OpContext& ctx) {
  for (;;) {
    if (wb_.state_.broken) return Error(Code::kIo, wb_.state_.broken_reason);
    if (session_.Usable()) {
      if (bad_handles_ == 0 || ctx.handle == 0) return Ok();
      const auto handle = wb_.state_.handles.find(ctx.handle);
      if (handle == wb_.state_.handles.end() || !handle->second.lock_lost) return Ok();
      return Error(Code::kIo, "a file lock that was held through this open file was taken while the mount was silent");
    }
    if (!ctx.may_block) return Code::kWouldBlock;
    if (ctx.cancelled()) return Code::kInterrupted;
    const BootTime now = env_.scheduler.clock().Boot();
    const BootTime deadline = std::min(ctx.deadline, now + config_.op_deadline);
    if (now >= ctx.deadline) return Error(Code::kIo, "the lease ran out and the server does not answer");
    counters_.waits.fetch_add(1);
    if (wb_.state_.changed.WaitUntil(wb_.state_.mu, deadline) && !session_.Usable()) {
      return Error(Code::kIo, "the lease ran out and the server does not answer");
    }
  }
}

Status Vfs::UsableForChange(const OpContext& ctx) {
  if (config_.read_only) return Code::kReadOnly;
  return Usable(ctx);
}

Status Vfs::CheckAnswer(const Error& error) {
  (void)session_.Note(error);
  switch (error.code()) {
    case Code::kFenced: return Error(Code::kIo, std::string(error.message()));
    case Code::kUnavailable:
    case Code::kUnknown:
    case Code::kTryAgain:  // the server is full for the moment
    case Code::kMoved: return Ok();  // asked again until the deadline
    default: return error;
  }
}

Result<bool> Vfs::LoadAlone(const OpContext& ctx, InodeId ino) {
  if (!ctx.may_block) return Code::kWouldBlock;
  LoadScope load(wb_.state_, nullptr);
  Result<InodeInfo> info = Code::kUnavailable;
  {
    ReleaseLock unlocked(wb_.state_.mu);
    counters_.rpc_get_inode.fetch_add(1);
    info = env_.meta.GetInode(ctx, session_.id(), ino);
  }
  if (!info.ok()) {
    if (info.code() == Code::kNotFound) return Code::kStale;
    return RetryLater(ctx, info.error());
  }
  if (wb_.state_.rights.alone()) Insert(*info, InodeId{}, load.stamp());
  return false;
}

Result<bool> Vfs::RetryLater(const OpContext& ctx, const Error& error) {
  {
    ReleaseLock unlocked(wb_.state_.mu);
    ARCHIL_RETURN_IF_ERROR(CheckAnswer(error));
  }
  if (ctx.cancelled()) return Code::kInterrupted;
  const BootTime now = env_.scheduler.clock().Boot();
  if (now >= ctx.deadline) return Error(Code::kIo, "the server did not answer in time");
  wb_.state_.changed.WaitUntil(wb_.state_.mu, std::min(ctx.deadline, now + absl::Milliseconds(50)));
  ARCHIL_RETURN_IF_ERROR(Usable(ctx));
  return false;
}

Result<bool> Vfs::EnsureInode(const OpContext& ctx, Claim& claim, InodeId ino) {
  return Need(ctx, claim, {{ino, Right::kRead}});
}

Result<bool> Vfs::EnsureDir(const OpContext& ctx, Claim& claim, InodeId ino, Right right) {
  ARCHIL_ASSIGN_OR_RETURN(const bool there, Need(ctx, claim, {{ino, right}}));
  if (!there) return false;
  if (!wb_.state_.Find(ino)->is_dir()) return Code::kNotDirectory;
  return true;
}

// What the server says of an inode is what stands in memory from now on.
void Vfs::Refresh(Inode& inode, const InodeInfo& info) {
  inode.attr = info.attr;
  inode.target = info.target;
  inode.has_xattrs = info.has_xattrs;
  inode.xattrs.reset();
  if (!info.has_xattrs) inode.xattrs.emplace();
  if (inode.is_dir()) {
    inode.parent = info.parent;
    if (!inode.dir) inode.dir = std::make_unique<DirIndex>(false);
    if (info.attr.size == 0) inode.dir->SetComplete();
  } else if (inode.is_file()) {
    inode.map = std::make_unique<FileMap>(false);
    inode.map->Truncate(info.attr.size);
    inode.mapped = false;
  }
  // Its last name was removed on another mount while it is open here: the server knows that (docs/delegation.md).
  if (info.attr.nlink == 0 && (InUse(inode) || inode.told_open)) inode.orphan = true;
  inode.valid = true;
  // No change of ours may look older than what others did.
  wb_.state_.last_time = std::max(wb_.state_.last_time, info.attr.ctime);
}

void Vfs::Insert(const InodeInfo& info, InodeId parent, uint64_t stamp) {
  const InodeId ino = info.attr.ino;
  if (!wb_.state_.Fresh(ino, stamp)) return;
  const bool directory = info.attr.type == FileType::kDirectory;
  // A right of its own, or that of the directory it stands in.
  const bool alone = wb_.state_.rights.alone();
  const bool covered = !directory && parent && info.attr.nlink == 1 && (alone || info.covered);
  if (!alone && !covered && wb_.state_.rights.Of(ino) == Right::kNone) return;
  Inode& inode = wb_.state_.InMemory(ino);
  if (inode.valid) return;
  Refresh(inode, info);
  if (directory && !info.parent) inode.parent = parent;
  if (covered) wb_.state_.SetHome(inode, parent);
}

Status Vfs::LoadListing(const OpContext& ctx, Inode& dir) {
  LoadScope load(wb_.state_, &dir);
  const uint64_t generation = dir.generation;
  std::string after;
  for (;;) {
    Result<DirPage> page = Code::kUnavailable;
    {
      ReleaseLock unlocked(wb_.state_.mu);
      counters_.rpc_read_dir.fetch_add(1);
      page = env_.meta.ReadDir(ctx, session_.id(), dir.ino(), after, kPage);
    }
    if (dir.generation != generation) return Ok();  // it was given up meanwhile: what was loaded means nothing
    if (!page.ok()) {
      if (page.code() == Code::kNotFound && dir.attr.nlink == 0) return Ok();
      ARCHIL_ASSIGN_OR_RETURN(const bool never, RetryLater(ctx, page.error()));
      (void)never;
      if (dir.generation != generation) return Ok();
      continue;
    }
    InsertPage(dir, *page, load.stamp());
    if (page->complete || page->entries.empty()) break;
    after = page->entries.back().name;
  }
  dir.dir->SetComplete();
  Trim();
  return Ok();
}

void Vfs::InsertPage(Inode& dir, const DirPage& page, uint64_t stamp) {
  for (const DirEntry& entry : page.entries) {
    if (dir.dir->Load(entry.name, entry.inode.attr.ino, entry.inode.attr.type)) Insert(entry.inode, dir.ino(), stamp);
  }
}

Result<bool> Vfs::EnsureComplete(const OpContext& ctx, Inode& dir) {
  if (dir.dir->complete()) return true;
  if (!ctx.may_block) return Code::kWouldBlock;
  ARCHIL_RETURN_IF_ERROR(LoadListing(ctx, dir));
  return false;
}

Result<bool> Vfs::EnsureName(const OpContext& ctx, Inode& dir, std::string_view name) {
  DirItemRef item;
  if (dir.dir->Find(name, &item) != DirIndex::Answer::kUnknown) return true;
  if (!ctx.may_block) return Code::kWouldBlock;
  if (dir.attr.size <= kListAtOnce) {
    ARCHIL_RETURN_IF_ERROR(LoadListing(ctx, dir));
    return false;
  }
  LoadScope load(wb_.state_, &dir);
  const uint64_t generation = dir.generation;
  const std::string wanted(name);
  Result<InodeInfo> info = Code::kUnavailable;
  {
    ReleaseLock unlocked(wb_.state_.mu);
    counters_.rpc_lookup.fetch_add(1);
    info = env_.meta.Lookup(ctx, session_.id(), dir.ino(), wanted);
  }
  if (dir.generation != generation) return false;
  if (info.ok()) {
    if (dir.dir->Load(wanted, info->attr.ino, info->attr.type)) Insert(*info, dir.ino(), load.stamp());
  } else if (info.code() == Code::kNotFound) {
    dir.dir->LoadAbsent(wanted);
  } else {
    return RetryLater(ctx, info.error());
  }
  return false;
}

Result<bool> Vfs::EnsureChunks(const OpContext& ctx, Inode& inode, uint64_t offset, uint64_t length) {
  const std::vector<uint64_t> missing = inode.map->MissingChunks(offset, length);
  if (missing.empty()) return true;
  if (!ctx.may_block) return Code::kWouldBlock;
  // A file is mostly read from here on: ask for some more of it at once.
  const uint64_t first = missing.front();
  const uint64_t chunks = (inode.attr.size + kChunkSize - 1) / kChunkSize;
  uint64_t end = std::max(missing.back() + 1, std::min(chunks, first + kChunksPerCall));
  end = std::min(end, first + kChunksPerCall);
  LoadScope load(wb_.state_, &inode);
  Result<std::vector<ChunkExtents>> reply = Code::kUnavailable;
  const InodeId ino = inode.ino();
  const uint64_t generation = inode.generation;
  {
    ReleaseLock unlocked(wb_.state_.mu);
    counters_.rpc_get_extents.fetch_add(1);
    reply = env_.meta.GetExtents(ctx, session_.id(), ino, first, static_cast<uint32_t>(end - first));
  }
  if (!reply.ok()) return RetryLater(ctx, reply.error());
  if (!inode.map || inode.generation != generation) return false;
  std::vector<bool> seen(end - first, false);
  for (const ChunkExtents& chunk : *reply) {
    if (chunk.chunk < first || chunk.chunk >= end) continue;
    seen[chunk.chunk - first] = true;
    if (!inode.map->ChunkKnown(chunk.chunk)) inode.map->LoadChunk(chunk.chunk, chunk.extents);
  }
  for (uint64_t chunk = first; chunk < end; ++chunk) {  // a chunk that the server has nothing of is a hole
    if (!seen[chunk - first] && !inode.map->ChunkKnown(chunk)) inode.map->LoadChunk(chunk, {});
  }
  return false;
}

Result<bool> Vfs::EnsureXattrs(const OpContext& ctx, Inode& inode) {
  if (inode.xattrs) return true;
  if (!ctx.may_block) return Code::kWouldBlock;
  LoadScope load(wb_.state_, &inode);
  Result<std::map<std::string, std::string>> reply = Code::kUnavailable;
  const InodeId ino = inode.ino();
  const uint64_t generation = inode.generation;
  {
    ReleaseLock unlocked(wb_.state_.mu);
    counters_.rpc_get_xattrs.fetch_add(1);
    reply = env_.meta.GetXattrs(ctx, session_.id(), ino);
  }
  if (!reply.ok()) return RetryLater(ctx, reply.error());
  if (!inode.xattrs && inode.generation == generation) inode.xattrs = std::move(*reply);
  return false;
}

Result<bool> Vfs::EnsureInodeNumber(const OpContext& ctx, InodeId* ino) {
  auto next = session_.NextInode();
  if (next.ok()) {
    *ino = *next;
    return true;
  }
  if (!ctx.may_block) return Code::kWouldBlock;
  Status filled = Ok();
  {
    ReleaseLock unlocked(wb_.state_.mu);
    filled = session_.RefillInodes(ctx);
  }
  if (!filled.ok()) return RetryLater(ctx, filled.error());
  return false;
}

// --- answers

Attr Vfs::AttrOf(const Inode& inode) const {
  Attr attr = inode.attr;
  if (inode.map) {
    // Exact where the whole map is known; else the server's count and what only we have.
    attr.allocated = inode.mapped ? inode.map->allocated_bytes()
                                  : std::max(inode.attr.allocated + Writeback::MemoryOf(inode),
                                             inode.map->allocated_bytes());
  }
  return attr;
}

// KRN-1: the kernel keeps what a right covers that is not being given up; when the lease runs out, SessionChanged takes it back.
absl::Duration Vfs::AttrTtl(const Inode& inode) {
  return wb_.state_.MayCache(inode) ? kForever : absl::ZeroDuration();
}

Entry Vfs::EntryOf(const Inode& inode, const Inode& dir) {
  return Entry{AttrOf(inode), wb_.state_.MayCache(dir) ? kForever : absl::ZeroDuration(), AttrTtl(inode)};
}

absl::Duration Vfs::NegativeTtl(InodeId parent) {
  MutexLock lock(wb_.state_.mu);
  const Inode* dir = wb_.state_.Find(parent);
  return dir != nullptr && wb_.state_.MayCache(*dir) && !AbsentOnce(parent) ? kForever : absl::ZeroDuration();
}

void Vfs::Trim() {
  if (wb_.state_.inodes.size() > config_.inode_limit) DropPart(false);
}

void Vfs::DropPart(bool everything) {
  // Names in `droppable` may be there twice or not droppable any more; each is looked at once. A directory goes after
  // what it covers.
  for (size_t n = wb_.state_.droppable.size(); n > 0; --n) {
    if (!everything && wb_.state_.inodes.size() <= config_.inode_limit) return;
    const InodeId ino = wb_.state_.droppable.front();
    wb_.state_.droppable.pop_front();
    Inode* inode = wb_.state_.Find(ino);
    if (inode == nullptr || ino == root_) continue;
    if (wb_.state_.Droppable(*inode)) {
      wb_.state_.Drop(ino);
    } else if (inode->lookups == 0) {
      wb_.state_.droppable.push_back(ino);
    }
  }
}

}  // namespace archil
