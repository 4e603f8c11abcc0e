// Attributes, extended attributes, statfs.

#include <algorithm>
#include <utility>

#include "client/vfs/vfs.h"
#include "common/posix/attributes.h"

namespace archil {
namespace {

Status CheckXattrName(std::string_view name) {
  if (name.empty() || name.size() > kMaxXattrName) return Code::kRange;
  for (const std::string_view prefix : {"user.", "trusted.", "security.", "system."}) {
    if (name.substr(0, prefix.size()) == prefix) {
      if (prefix == "system.") return Code::kNotSupported;  // ACLs are not kept yet
      return name.size() > prefix.size() ? Ok() : Status(Code::kInvalid);
    }
  }
  return Code::kNotSupported;
}

}  // namespace

Result<AttrReply> Vfs::GetAttr(const OpContext& ctx, InodeId ino) {
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    if (const Inode* held = wb_.state_.Find(ino);
        AtServer(ino, Right::kRead) && !(held != nullptr && wb_.state_.Holds(*held, Right::kRead))) {
      Attr attr;
      ARCHIL_ENSURE(AttrAtServer(ctx, claim, ino, &attr));
      return AttrReply{attr, absl::ZeroDuration()};
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{ino, Right::kRead}}, Otherwise::kAtServer));
    const Inode& inode = *wb_.state_.Find(ino);
    return AttrReply{AttrOf(inode), AttrTtl(inode)};
  }
}

// A new size: bytes past it are gone, what the file grows by is a hole.
void Vfs::Resize(Inode& inode, uint64_t size) {
  if (size < inode.attr.size) {
    const uint64_t before = Writeback::MemoryOf(inode);
    inode.map->Truncate(size);
    wb_.MapChanged(inode, before);
  }
  inode.attr.size = size;
}

Result<AttrReply> Vfs::SetAttr(const OpContext& ctx, InodeId ino, const SetAttrRequest& request) {
  using F = SetAttrRequest;
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    if (AtServer(ino, Right::kWrite)) {
      auto changed = SetAttrAtServer(ctx, claim, ino, request);
      if (changed.code() == Code::kStale && WentAway(ino)) continue;
      return changed;
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{ino, Right::kWrite}}, Otherwise::kAtServer));
    Inode& inode = *wb_.state_.Find(ino);
    const bool resize = (request.fields & F::kSize) != 0;
    if (resize) {
      ARCHIL_RETURN_IF_ERROR(Status(CheckTruncate(inode.attr.type, request.size)));
    }
    const bool chown = (request.fields & (F::kUid | F::kGid)) != 0;
    if (chown || resize) ARCHIL_ENSURE(EnsureCapabilityKnown(ctx, inode));
    // EXT-1: earlier writes have their place (and their mtime) in the log before this.
    if (inode.map && inode.map->dirty_bytes() > 0) wb_.Take(inode);
    SetAttrOp op;
    op.ino = ino;
    op.now = (request.fields & F::kCtime) ? std::max(request.ctime, inode.attr.ctime) : NextTime();
    Attr& attr = inode.attr;
    if (request.fields & F::kMode) {
      op.fields |= SetAttrOp::kMode;
      attr.mode = request.mode & 07777;
    }
    if (chown) {
      if (request.fields & F::kUid) attr.uid = request.uid;
      if (request.fields & F::kGid) attr.gid = request.gid;
      op.fields |= SetAttrOp::kUid | SetAttrOp::kGid;
      // FUSE_HANDLE_KILLPRIV_V2 leaves this to us, whoever calls.
      if (const uint32_t bits = SetIdClearedByChown(attr.type, attr.mode); bits != 0 && !(request.fields & F::kMode)) {
        op.fields |= SetAttrOp::kMode;
        attr.mode &= ~bits;
      }
    }
    if (chown || resize) DropCapability(inode, op.now);
    if (request.fields & F::kKillSetId) {
      const uint32_t mode = attr.mode & ~SetIdClearedByWrite(attr.type, attr.mode);
      if (mode != attr.mode) op.fields |= SetAttrOp::kMode;
      attr.mode = mode;
    }
    if (resize) {
      op.fields |= SetAttrOp::kSize | SetAttrOp::kMtime;
      Resize(inode, request.size);
      if (!config_.kernel_writeback) attr.mtime = op.now;
    }
    if (request.fields & (F::kAtime | F::kAtimeNow)) {
      op.fields |= SetAttrOp::kAtime;
      attr.atime = (request.fields & F::kAtimeNow) ? op.now : request.atime;
    }
    if (request.fields & (F::kMtime | F::kMtimeNow)) {
      op.fields |= SetAttrOp::kMtime;
      attr.mtime = (request.fields & F::kMtimeNow) ? op.now : request.mtime;
    }
    attr.ctime = op.now;
    ++attr.change;
    op.mode = attr.mode;
    op.uid = attr.uid;
    op.gid = attr.gid;
    op.size = attr.size;
    op.atime = attr.atime;
    op.mtime = attr.mtime;
    // An inode without a name that nobody has open is known to this mount alone.
    if (attr.nlink > 0 || inode.orphan) wb_.Log(std::move(op), {&inode});
    return AttrReply{AttrOf(inode), AttrTtl(inode)};
  }
}

Result<bool> Vfs::EnsureCapabilityKnown(const OpContext& ctx, Inode& inode) {
  return inode.is_file() && inode.has_xattrs ? EnsureXattrs(ctx, inode) : Result<bool>(true);
}

// Whoever changes a file's bytes or owner takes its capabilities (capabilities(7)); with FUSE_HANDLE_KILLPRIV_V2 the kernel
// leaves it to us.
void Vfs::DropCapability(Inode& inode, Timestamp now) {
  static constexpr char kCapability[] = "security.capability";
  if (!inode.is_file() || !inode.xattrs || inode.xattrs->erase(kCapability) == 0) return;
  if (inode.attr.nlink > 0 || inode.orphan) wb_.Log(RemoveXattrOp{inode.ino(), kCapability, now}, {&inode});
}

Result<std::string> Vfs::Readlink(const OpContext& ctx, InodeId ino) {
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    ARCHIL_ENSURE(EnsureInode(ctx, claim, ino));
    const Inode& inode = *wb_.state_.Find(ino);
    if (inode.attr.type != FileType::kSymlink) return Code::kInvalid;
    return inode.target;
  }
}

Result<std::string> Vfs::GetXattr(const OpContext& ctx, InodeId ino, std::string_view name) {
  if (const Status named = CheckXattrName(name); !named.ok()) return named.error();
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    if (Through(ino)) {
      ARCHIL_ASSIGN_OR_RETURN(auto xattrs, XattrsThrough(ctx, claim, ino));
      const auto it = xattrs.find(std::string(name));
      if (it == xattrs.end()) return Code::kNoData;
      return std::move(it->second);
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{ino, Right::kRead}}, Otherwise::kThrough));
    Inode& inode = *wb_.state_.Find(ino);
    ARCHIL_ENSURE(EnsureXattrs(ctx, inode));
    const auto it = inode.xattrs->find(std::string(name));
    if (it == inode.xattrs->end()) return Code::kNoData;
    return it->second;
  }
}

Result<std::vector<std::string>> Vfs::ListXattrs(const OpContext& ctx, InodeId ino) {
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    std::vector<std::string> names;
    if (Through(ino)) {
      ARCHIL_ASSIGN_OR_RETURN(const auto xattrs, XattrsThrough(ctx, claim, ino));
      for (const auto& [name, value] : xattrs) names.push_back(name);
      return names;
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{ino, Right::kRead}}, Otherwise::kThrough));
    Inode& inode = *wb_.state_.Find(ino);
    ARCHIL_ENSURE(EnsureXattrs(ctx, inode));
    for (const auto& [name, value] : *inode.xattrs) names.push_back(name);
    return names;
  }
}

Status Vfs::SetXattr(const OpContext& ctx, InodeId ino, std::string_view name, std::string_view value, XattrMode mode) {
  ARCHIL_RETURN_IF_ERROR(CheckXattrName(name));
  if (value.size() > kMaxXattrValue) return Code::kTooBig;
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    if (AtServer(ino, Right::kWrite)) {
      uint32_t flags = 0;
      if (mode == XattrMode::kCreate) flags = ApplyOpRequest::kMustBeNew;
      if (mode == XattrMode::kReplace) flags = ApplyOpRequest::kMustExist;
      auto reply = Apply(ctx, claim, ino, SetXattrOp{ino, std::string(name), std::string(value), NextTime()}, flags);
      if (reply.code() == Code::kStale && WentAway(ino)) continue;
      return reply.ok() ? Ok() : Status(reply.error());
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{ino, Right::kWrite}}, Otherwise::kAtServer));
    Inode& inode = *wb_.state_.Find(ino);
    ARCHIL_ENSURE(EnsureXattrs(ctx, inode));
    const std::string key(name);
    const bool present = inode.xattrs->contains(key);
    if (mode == XattrMode::kCreate && present) return Code::kExists;
    if (mode == XattrMode::kReplace && !present) return Code::kNoData;
    uint64_t list = key.size() + 1;
    for (const auto& [other, unused] : *inode.xattrs) list += other == key ? 0 : other.size() + 1;
    if (list > kMaxXattrList) return Code::kNoSpace;
    const Timestamp now = NextTime();
    (*inode.xattrs)[key] = std::string(value);
    inode.attr.ctime = now;
    ++inode.attr.change;
    if (inode.attr.nlink > 0 || inode.orphan) {
      wb_.Log(SetXattrOp{ino, key, std::string(value), now}, {&inode});
    }
    return Ok();
  }
}

Status Vfs::RemoveXattr(const OpContext& ctx, InodeId ino, std::string_view name) {
  ARCHIL_RETURN_IF_ERROR(CheckXattrName(name));
  MutexLock lock(wb_.state_.mu);
  Claim claim(wb_.state_);
  for (;;) {
    ARCHIL_RETURN_IF_ERROR(UsableForChange(ctx));
    if (AtServer(ino, Right::kWrite)) {
      auto reply = Apply(ctx, claim, ino, RemoveXattrOp{ino, std::string(name), NextTime()}, 0);
      if (reply.code() == Code::kStale && WentAway(ino)) continue;
      return reply.ok() ? Ok() : Status(reply.error());
    }
    ARCHIL_ENSURE(Need(ctx, claim, {{ino, Right::kWrite}}, Otherwise::kAtServer));
    Inode& inode = *wb_.state_.Find(ino);
    ARCHIL_ENSURE(EnsureXattrs(ctx, inode));
    const std::string key(name);
    if (inode.xattrs->erase(key) == 0) return Code::kNoData;
    const Timestamp now = NextTime();
    inode.attr.ctime = now;
    ++inode.attr.change;
    if (inode.attr.nlink > 0 || inode.orphan) wb_.Log(RemoveXattrOp{ino, key, now}, {&inode});
    return Ok();
  }
}

Result<FsStats> Vfs::StatFs(const OpContext& ctx) {
  if (!ctx.may_block) return Code::kWouldBlock;
  for (;;) {
    {
      MutexLock lock(wb_.state_.mu);
      ARCHIL_RETURN_IF_ERROR(Usable(ctx));
    }
    counters_.rpc_stat_fs.fetch_add(1);
    auto stats = env_.meta.StatFs(ctx, session_.id());
    if (stats.ok()) {
      // What is acknowledged here and not yet at the server counts as used.
      const uint64_t dirty = std::min(Pending(), stats->free_bytes);
      stats->used_bytes += dirty;
      stats->free_bytes -= dirty;
      return stats;
    }
    MutexLock lock(wb_.state_.mu);
    ARCHIL_ASSIGN_OR_RETURN(const bool never, RetryLater(ctx, stats.error()));
    (void)never;
  }
}

}  // namespace archil
