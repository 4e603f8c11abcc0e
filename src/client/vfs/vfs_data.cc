// Open files: reading, writing, syncing.

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "client/vfs/vfs.h"
#include "common/env/planted.h"
#include "common/posix/attributes.h"

namespace archil {
namespace {

constexpr uint64_t kMaxAllocate = 1ULL << 40;  // of one fallocate that is not a punch; the server's bound for one op
constexpr size_t kKernelPage = 4096;           // at least
constexpr uint64_t kSmallFile = 256 * 1024;    // read together with what was written beside it

}  // namespace

OpenReply Vfs::NewHandle(Inode& inode, int flags, bool direct) {
  direct = inode.is_file() && (direct || config_.conditional);  // KRN-1
  const HandleId id = wb_.state_.next_handle++;
  wb_.state_.handles.emplace(id, Handle{inode.ino(), flags, direct});
  ++inode.opens;
  OpenReply reply;
  reply.handle = id;
  reply.locked = locks_.HasRanges(inode.ino());
  reply.keep_cache = true;  // the pages go when the right that covers the file is given up
  reply.direct_io = direct;
  return reply;
}

Result<OpenReply> Vfs::Open(const OpContext& ctx, InodeId ino, int flags) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(writes ? UsableForChange(ctx) : Usable(ctx));
    if ((flags & O_TRUNC) == 0 && Through(ino)) return OpenThrough(ctx, claim, ino, flags);
    ARCHIL_ENSURE(Need(ctx, claim, {{ino, (flags & O_TRUNC) ? Right::kWrite : Right::kRead}}, Otherwise::kThrough));
    Inode& inode = *wb_.state_.Find(ino);
    if (inode.is_dir()) {
      if (writes) return Code::kIsDirectory;
      return NewHandle(inode, flags);
    }
    if (inode.attr.nlink == 0 && !inode.orphan) return Code::kStale;  // its last name and handle are gone
    if ((flags & O_TRUNC) && inode.is_file()) {  // the times of an empty file move as well, open(2)
      if (inode.map && inode.map->dirty_bytes() > 0) wb_.Take(inode);
      SetAttrOp op;
      op.ino = ino;
      op.now = NextTime();
      op.fields = SetAttrOp::kSize | SetAttrOp::kMtime;
      Resize(inode, 0);
      inode.attr.mtime = inode.attr.ctime = op.mtime = op.now;
      ++inode.attr.change;
      if (inode.attr.nlink > 0 || inode.orphan) wb_.Log(std::move(op), {&inode});
    }
    return NewHandle(inode, flags);
  }
}

void Vfs::Release(InodeId ino, HandleId handle) {
  locks_.Release(ino, handle);
  MutexLock lock(wb_.state_.mu);
  const auto open = wb_.state_.handles.find(handle);
  if (open == wb_.state_.handles.end()) return;
  bad_handles_ -= open->second.lock_lost ? 1 : 0;
  wb_.state_.handles.erase(open);
  Inode* inode = wb_.state_.Find(ino);
  if (inode == nullptr) return;
  if (--inode->opens > 0) return;
  if (!InUse(*inode)) LastUse(*inode);
  if (inode->lookups == 0) {
    wb_.state_.droppable.push_back(ino);
    Trim();
  }
}

bool Vfs::InUse(const Inode& inode) const {
  return inode.opens > 0 || (config_.references_are_opens && inode.is_file() && inode.lookups > 0);
}

void Vfs::LastUse(Inode& inode) {
  if (!inode.orphan && !inode.told_open) return;
  // Others may have it open still: what was written here is theirs to read.
  const bool forget = inode.orphan && OnlyOurs(inode);
  if (!forget) wb_.Take(inode);
  // Most go right after their name: then the server need not hear that they were in use.
  const bool unheard = inode.orphan && !inode.told_open && inode.last_op == inode.orphaned_by && wb_.state_.log.UseEnded(inode.last_op);
  inode.orphan = inode.told_open = false;
  if (!unheard && !wb_.state_.broken) wb_.Log(ReleaseOrphanOp{inode.ino()}, {&inode});
  if (forget && inode.map) wb_.Discard(inode);
}

Result<ReadReply> Vfs::Read(const OpContext& ctx, InodeId ino, uint64_t offset, size_t length) {
  std::vector<FilePiece> pieces;
  bool small = false;
  for (int attempt = 0;; ++attempt) {
    {
      MutexLock lock(wb_.state_.mu);
      Claim claim(wb_.state_);
      for (;;) {
        ARCHIL_RETURN_IF_ERROR(Usable(ctx));
        const bool keeps = KernelKeeps(ctx.handle);
        if (!keeps && Through(ino)) {
          ARCHIL_ASSIGN_OR_RETURN(pieces, ReadThrough(ctx, claim, ino, offset, length));
          break;
        }
        ARCHIL_ENSURE(Need(ctx, claim, {{ino, Right::kRead}}, keeps ? Otherwise::kWait : Otherwise::kThrough));
        Inode& inode = *wb_.state_.Find(ino);
        if (inode.is_dir()) return Code::kIsDirectory;
        if (!inode.is_file()) return Code::kInvalid;
        if (inode.gone) return Code::kStale;
        if (offset >= inode.attr.size) {
          wb_.state_.HandedOut(inode);
          return ReadReply{};
        }
        // Of this look only: when it is looked at again the file may be longer.
        const uint64_t there = std::min<uint64_t>(length, inode.attr.size - offset);
        if (Planted(Plant::kShortRead)) length = there;
        ARCHIL_ENSURE(EnsureChunks(ctx, inode, offset, there));
        pieces = inode.map->Read(offset, there);
        wb_.state_.HandedOut(inode);
        small = inode.attr.size <= kSmallFile;
        break;
      }
    }
    ReadReply reply;
    Status got = Ok();
    for (const FilePiece& piece : pieces) {
      switch (piece.source) {
        case FilePiece::Source::kHole:
        case FilePiece::Source::kZero: AppendZeros(piece.length, reply.pieces); break;
        case FilePiece::Source::kMemory:
        case FilePiece::Source::kInline: reply.pieces.push_back(piece.data); break;
        case FilePiece::Source::kSegment:
          got = reader_.Read(ctx, piece.segment, piece.segment_offset, piece.length, small, reply.pieces);
          break;
      }
      if (!got.ok()) break;
      reply.size += piece.length;
    }
    if (got.ok()) {
      counters_.read_bytes.fetch_add(reply.size, std::memory_order_relaxed);
      return reply;
    }
    // The bytes may have been placed elsewhere since the map was read: look again.
    if (got.code() == Code::kNotFound && attempt < 3) continue;
    if (got.error().band() == Band::kVerdict) return Error(Code::kIo, got.error().ToString());
    if (got.code() == Code::kWouldBlock || got.error().band() == Band::kBroken) return got.error();
    MutexLock lock(wb_.state_.mu);
    ARCHIL_ASSIGN_OR_RETURN(const bool never, RetryLater(ctx, got.error()));
    (void)never;
  }
}

void Vfs::AppendZeros(uint64_t length, std::vector<Buffer>& out) {
  static const Buffer* const kZeros = new Buffer(std::string(128 * 1024, '\0'));
  for (; length > 0;) {
    const uint64_t n = std::min<uint64_t>(length, kZeros->size());
    out.push_back(kZeros->Slice(0, n));
    length -= n;
  }
}

Result<size_t> Vfs::Write(const OpContext& ctx, InodeId ino, uint64_t offset, std::string_view data, bool append,
                          bool kill_set_id) {
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  bool room = false;
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    if (!room) ARCHIL_RETURN_IF_ERROR(wb_.Throttle(ctx));  // may give the lock up
    room = true;
    ARCHIL_ENSURE(Need(ctx, claim, {{ino, Right::kWrite}}));
    if (wb_.state_.Find(ino)->is_dir()) return Code::kIsDirectory;
    if (!wb_.state_.Find(ino)->is_file()) return Code::kInvalid;
    if (wb_.state_.Find(ino)->gone) return Code::kStale;
    ARCHIL_ENSURE(EnsureCapabilityKnown(ctx, *wb_.state_.Find(ino)));
    Inode& inode = *wb_.state_.Find(ino);
    const uint64_t at = append ? inode.attr.size : offset;
    if (data.empty()) return size_t{0};
    ARCHIL_ASSIGN_OR_RETURN(const uint64_t writable, WritableBytes(at, data.size()));
    data = data.substr(0, writable);
    ARCHIL_ENSURE(EnsureSpace(ctx, ino, at, data.size()));
    if (wb_.state_.promises.counted()) {
      const uint64_t adds = inode.map->Unallocated(at, data.size());
      inode.promised += adds;
      wb_.state_.promises.Dirty(adds);
    }
    const uint64_t before = Writeback::MemoryOf(inode);
    inode.map->Write(at, data);
    inode.attr.size = std::max<uint64_t>(inode.attr.size, at + data.size());
    if (!config_.kernel_writeback) inode.attr.mtime = inode.attr.ctime = NextTime();
    ++inode.attr.change;
    DropCapability(inode, inode.attr.ctime);
    if (kill_set_id) {
      const uint32_t cleared = SetIdClearedByWrite(inode.attr.type, inode.attr.mode);
      inode.clear_mode |= cleared;
      inode.attr.mode &= ~cleared;
    }
    wb_.counters.bytes_written.fetch_add(data.size(), std::memory_order_relaxed);
    wb_.MapChanged(inode, before);
    // Of less than a page the kernel keeps nothing that it did not have.
    if (data.size() >= kKernelPage) wb_.state_.HandedOut(inode);
    return data.size();
  }
}

Status Vfs::FsyncInode(const OpContext& outer, InodeId ino) {
  const OpContext ctx = outer.WithDeadline(env_.scheduler.clock().Boot() + config_.fsync_deadline);
  MutexLock lock(wb_.state_.mu);
  Inode* inode = wb_.state_.Find(ino);
  if (inode == nullptr) return wb_.state_.broken ? Status(Error(Code::kIo, wb_.state_.broken_reason)) : Ok();
  if (wb_.state_.broken) return Error(Code::kIo, wb_.state_.broken_reason);
  if (TakeLost(outer.handle, ino)) return LostError();
  if (Planted(Plant::kFsyncLies)) return Ok();
  wb_.Take(*inode);
  for (;;) {
    const Seq target = inode->last_op;
    const Status done = wb_.MakeDurable(ctx, target);
    inode = wb_.state_.Find(ino);
    const bool lost = TakeLost(outer.handle, ino) || (wb_.Lost(target) && (inode == nullptr || inode->last_op == target));
    if (lost) return LostError();
    if (!done.ok() || !wb_.Lost(target)) return done;
  }
}

// FENCE-1: each open file says it once; a directory its next fsync.
bool Vfs::TakeLost(HandleId handle, InodeId ino) {
  if (handle != 0) {
    const auto open = wb_.state_.handles.find(handle);
    return open != wb_.state_.handles.end() && std::exchange(open->second.lost, false);
  }
  Inode* inode = wb_.state_.Find(ino);
  return inode != nullptr && std::exchange(inode->lost, false);
}

Status Vfs::Fsync(const OpContext& ctx, InodeId ino, HandleId handle, bool data_only) {
  OpContext through = ctx;
  through.handle = handle;
  return FsyncInode(through, ino);
}

Status Vfs::FsyncDir(const OpContext& ctx, InodeId ino) {
  // fsync of the mount's root does what sync(2) should: it never reaches a FUSE daemon (DUR-1).
  if (ino != root_) return FsyncInode(ctx, ino);
  auto report = Sync(ctx);
  return report.ok() ? Ok() : Status(report.error());
}

Status Vfs::DrainKernel(const OpContext& ctx) {
  if (!config_.kernel_writeback || kernel_ == nullptr) return Ok();
  if (!ctx.may_block) return Code::kWouldBlock;
  std::vector<KernelCache::Drop> files;
  {
    MutexLock lock(wb_.state_.mu);
    for (const auto& [ino, inode] : wb_.state_.inodes) {
      if (inode->is_file() && inode->lookups > 0) files.push_back({ino});
    }
  }
  bool given_up = false;
  kernel_->DropNow(KernelCache::Names::kKeep, files, [&] {
    MutexLock lock(wb_.state_.mu);
    given_up = wb_.state_.broken || ctx.cancelled() || env_.scheduler.clock().Boot() >= ctx.deadline;
    return given_up;
  });
  return given_up ? Status(Error(Code::kIo, "the kernel did not hand in what it keeps of written files")) : Ok();
}

Result<SyncReport> Vfs::Sync(const OpContext& outer) {
  const OpContext ctx = outer.WithDeadline(env_.scheduler.clock().Boot() + config_.fsync_deadline);
  ARCHIL_RETURN_IF_ERROR(DrainKernel(ctx));
  MutexLock lock(wb_.state_.mu);
  if (wb_.state_.broken) return Error(Code::kIo, wb_.state_.broken_reason);
  const uint64_t dirty = wb_.dirty_bytes();
  wb_.TakeAll();
  const Seq target = wb_.state_.log.last();
  const uint64_t ops = target.value - wb_.state_.log.durable().value;
  ARCHIL_RETURN_IF_ERROR(wb_.MakeDurable(ctx, target));
  if (ops > 0 && wb_.Lost(target)) return LostError();
  return SyncReport{ops, dirty};
}

Status Vfs::Fallocate(const OpContext& ctx, InodeId ino, FallocateMode mode, uint64_t offset, uint64_t length) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckRange(offset, length)));
  const bool punch = mode == FallocateMode::kPunchHole;
  const bool keep = punch || mode == FallocateMode::kAllocateKeepSize || mode == FallocateMode::kZeroRangeKeepSize;
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    ARCHIL_ENSURE(Need(ctx, claim, {{ino, Right::kWrite}}));
    Inode* inode = wb_.state_.Find(ino);
    if (inode->is_dir()) return Code::kIsDirectory;
    if (!inode->is_file()) return Code::kNotSupported;
    if (inode->gone) return Code::kStale;
    const uint64_t end = keep ? std::min(offset + length, inode->attr.size) : offset + length;
    ClearRangeOp op;
    op.ino = ino;
    op.offset = offset;
    op.length = end > offset ? end - offset : 0;
    op.size = keep ? inode->attr.size : std::max(inode->attr.size, end);
    op.kind = punch ? ClearRangeOp::Kind::kPunch
                    : (mode == FallocateMode::kZeroRange || mode == FallocateMode::kZeroRangeKeepSize
                           ? ClearRangeOp::Kind::kZero
                           : ClearRangeOp::Kind::kAllocate);
    if (!punch && op.length > kMaxAllocate) return Code::kNoSpace;
    if (op.length == 0) return Ok();  // wholly past the end with the size kept: nothing to show for it
    if (op.kind == ClearRangeOp::Kind::kAllocate) ARCHIL_ENSURE(EnsureChunks(ctx, *inode, offset, op.length));
    if (!punch) ARCHIL_ENSURE(EnsureSpace(ctx, ino, offset, op.length));
    wb_.Take(*inode);
    const uint64_t adds = punch ? 0 : inode->map->Unallocated(offset, op.length);
    op.now = NextTime();
    const uint64_t before = Writeback::MemoryOf(*inode);
    inode->map->Clear(offset, op.length, op.kind);
    wb_.MapChanged(*inode, before);
    inode->attr.size = op.size;
    if (!config_.kernel_writeback) inode->attr.mtime = op.now;
    inode->attr.ctime = op.now;
    ++inode->attr.change;
    if (inode->attr.nlink > 0 || inode->orphan) {
      SetAttrOp keep{.ino = ino, .fields = SetAttrOp::kMtime, .mtime = inode->attr.mtime, .now = op.now};
      wb_.state_.promises.Logged(wb_.Log(std::move(op), {inode}), adds);
      if (config_.kernel_writeback) wb_.Log(std::move(keep), {inode});
    }
    return Ok();
  }
}

Result<uint64_t> Vfs::Seek(const OpContext& ctx, InodeId ino, uint64_t offset, SeekWhat what) {
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    ARCHIL_ENSURE(EnsureInode(ctx, claim, ino));
    Inode& inode = *wb_.state_.Find(ino);
    if (!inode.is_file()) return Code::kInvalid;
    const uint64_t size = inode.attr.size;
    if (offset >= size) return Code::kNoSuchAddress;
    ARCHIL_ENSURE(EnsureChunks(ctx, inode, offset, size - offset));
    if (what == SeekWhat::kData) {
      const auto at = inode.map->SeekData(offset, size);
      if (!at) return Code::kNoSuchAddress;
      return *at;
    }
    return inode.map->SeekHole(offset, size).value_or(size);
  }
}

}  // namespace archil
