// Operations applied at the server (SRV-1): on contended directories, and all of them on conditional mounts. Nothing is
// kept of what they are answered with. docs/delegation.md tells why each step stands where it does.

#include <algorithm>
#include <utility>

#include "client/vfs/vfs.h"

namespace archil {
namespace {

constexpr absl::Duration kAttempt = absl::Seconds(20);
constexpr absl::Duration kContendedFor = absl::Seconds(1);  // after the server said so
constexpr absl::Duration kLateAnswers = absl::Minutes(2);   // longer than any call lasts
constexpr size_t kLookedUp = 64;

}  // namespace

bool Vfs::AtServer(InodeId ino, Right right) {
  if (wb_.state_.rights.alone()) return false;
  const Inode* inode = wb_.state_.Find(ino);
  if (inode != nullptr && inode->gone) return false;
  if (config_.conditional) return true;
  const auto it = contended_.find(ino);
  if (it == contended_.end() || env_.scheduler.clock().Boot() >= it->second) return false;
  return inode == nullptr || !wb_.state_.Holds(*inode, right);
}

void Vfs::NoteContended(InodeId ino, bool contended) {
  const BootTime now = env_.scheduler.clock().Boot();
  if (!contended) {
    contended_.erase(ino);
    return;
  }
  if (!contended_.contains(ino)) absl::erase_if(contended_, [now](const auto& entry) { return now >= entry.second; });
  contended_[ino] = now + kContendedFor;
}

std::vector<InodeId> Vfs::ContendedNow() {
  const BootTime now = env_.scheduler.clock().Boot();
  std::vector<InodeId> out;
  for (const auto& [ino, until] : contended_) {
    const Inode* inode = wb_.state_.Find(ino);
    if (now < until && (inode == nullptr || inode->is_dir())) out.push_back(ino);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The server decides it, once: the id is the same over all tries.
Result<ApplyOpReply> Vfs::Apply(const OpContext& ctx, Claim& claim, InodeId dir, Op op, uint32_t flags) {
  if (!ctx.may_block) return Code::kWouldBlock;
  claim.Release();  // nobody waits with a right in hand: this may recall it from ourselves
  // What was acknowledged before it is there before it.
  ARCHIL_RETURN_IF_ERROR(wb_.MakeDurable(ctx, wb_.last_change()));
  ApplyOpRequest request;
  request.session = session_.id();
  request.key = session_.key();
  request.id = ++last_server_op_;
  request.after = wb_.told();
  request.op = std::move(op);
  request.flags = flags;
  server_ops_.insert(request.id);
  for (;;) {
    request.finished = *server_ops_.begin();
    Result<ApplyOpReply> reply = Code::kUnavailable;
    {
      ReleaseLock unlocked(wb_.state_.mu);
      counters_.rpc_apply_op.fetch_add(1);
      reply = env_.meta.ApplyOp(ctx.WithDeadline(env_.scheduler.clock().Boot() + kAttempt), request);
    }
    const bool verdict = !reply.ok() && reply.error().band() == Band::kVerdict;
    auto again = reply.ok() || verdict ? Result<bool>(false) : RetryLater(ctx, reply.error());
    if (!reply.ok() && !verdict && again.ok()) continue;
    server_ops_.erase(request.id);
    if (!again.ok()) return again.error();
    if (reply.ok()) NoteContended(dir, reply->contended);
    return reply;
  }
}

Result<ReadOnceReply> Vfs::LookOnce(const OpContext& ctx, Claim& claim, ReadOnceRequest request) {
  if (!ctx.may_block) return Code::kWouldBlock;
  claim.Release();
  request.session = session_.id();
  request.key = session_.key();
  for (;;) {
    Result<ReadOnceReply> reply = Code::kUnavailable;
    {
      ReleaseLock unlocked(wb_.state_.mu);
      counters_.rpc_read_once.fetch_add(1);
      reply = env_.meta.ReadOnce(ctx.WithDeadline(env_.scheduler.clock().Boot() + kAttempt), request);
    }
    if (reply.ok()) {
      NoteContended(request.ino, reply->contended);
      return reply;
    }
    if (reply.error().band() == Band::kVerdict) return reply;
    ARCHIL_ASSIGN_OR_RETURN(const bool never, RetryLater(ctx, reply.error()));
    (void)never;
  }
}

// Memory knows the inode from now on, but nothing of what stands there is true after this answer. What is held here is
// not touched.
Inode& Vfs::Shown(const InodeInfo& info) {
  Inode& inode = wb_.state_.InMemory(info.attr.ino);
  if (inode.valid || (inode.map && inode.map->has_memory())) return inode;
  Refresh(inode, info);
  inode.valid = false;
  if (inode.dir) inode.dir->Invalidate();
  return inode;
}

Entry Vfs::ShownEntry(const InodeInfo& info) {
  Inode& inode = Shown(info);
  ++inode.lookups;
  return Entry{inode.valid ? AttrOf(inode) : info.attr, absl::ZeroDuration(), AttrTtl(inode)};
}

// What the server said is of a moment within the call, unless it was changed here since the question was asked.
bool Vfs::Believed(InodeId ino, uint64_t stamp) {
  const Inode* inode = wb_.state_.Find(ino);
  return (inode != nullptr && inode->valid) || wb_.state_.Fresh(ino, stamp);
}

// The server has it no more: whoever still works in it sees it without a name. False: nothing of it is known here, or
// it is held.
bool Vfs::WentAway(InodeId ino) {
  Inode* inode = wb_.state_.Find(ino);
  if (inode == nullptr || wb_.state_.Holds(*inode, Right::kRead)) return false;
  Gone(*inode);
  return true;
}

// The kernel is about to open it, and nothing keeps it from being removed meanwhile: the server counts it as open for a
// moment, and hears when that was not so (EndGrace).
void Vfs::Glimpsed(Inode& inode) {
  looked_up_.emplace_back(inode.ino(), env_.scheduler.clock().Boot());
  if (looked_up_.size() > kLookedUp) looked_up_.pop_front();
  if (inode.told_open) return;
  inode.told_open = true;
  grace_.push_back(inode.ino());
}

// Its attributes are mostly asked for once more, to remove it: not worth a right that would have to be recalled for
// that.
void Vfs::ShownInContended(const Inode& inode, bool contended) {
  if (contended && !inode.is_dir() && !inode.valid)
    contended_[inode.ino()] = env_.scheduler.clock().Boot() + kContendedFor;
}

Result<Entry> Vfs::LookupAtServer(const OpContext& ctx, Claim& claim, InodeId parent, std::string_view name) {
  for (;;) {
    LoadScope load(wb_.state_, nullptr);
    const Seq durable = wb_.state_.log.durable();
    const auto reply = LookOnce(ctx, claim, {.ino = parent, .name = std::string(name)});
    if (reply.code() == Code::kStale && WentAway(parent)) return Code::kNotFound;  // a removed directory
    if (!reply.ok()) return reply.error();
    if (reply->absent) {
      absent_once_[parent] = env_.scheduler.clock().Boot();
      return Code::kNotFound;
    }
    if (!Believed(reply->inode.attr.ino, load.stamp())) continue;
    // A close that the server hears after this look would take back that the look keeps the file: it hears of it first.
    if (const Inode* known = wb_.state_.Find(reply->inode.attr.ino); known != nullptr && !InUse(*known) && known->last_op > durable) {
      ARCHIL_RETURN_IF_ERROR(wb_.MakeDurable(ctx, known->last_op));
      continue;
    }
    const Entry entry = ShownEntry(reply->inode);
    Inode& inode = *wb_.state_.Find(reply->inode.attr.ino);
    if (inode.is_file()) Glimpsed(inode);
    ShownInContended(inode, reply->contended);
    return entry;
  }
}

// A name that was absent in an answer of the server may be there when the directory's right has come: the kernel must
// not keep it.
bool Vfs::AbsentOnce(InodeId parent) {
  const auto it = absent_once_.find(parent);
  if (it == absent_once_.end()) return false;
  if (env_.scheduler.clock().Boot() - it->second < kLateAnswers) return true;
  absent_once_.erase(it);
  return false;
}

Result<bool> Vfs::AttrAtServer(const OpContext& ctx, Claim& claim, InodeId ino, Attr* attr) {
  LoadScope load(wb_.state_, nullptr);
  const auto reply = LookOnce(ctx, claim, {.ino = ino});
  if (reply.code() == Code::kStale && WentAway(ino)) return false;
  if (!reply.ok()) return reply.error();
  if (!Believed(ino, load.stamp())) return false;
  const Inode& inode = Shown(reply->inode);
  *attr = inode.valid ? AttrOf(inode) : reply->inode.attr;
  return true;
}

Result<Entry> Vfs::MakeAtServer(const OpContext& ctx, Claim& claim, InodeId ino, InodeId parent, std::string_view name,
                                NewNode node, Inode** made) {
  CreateOp op;
  op.parent = parent;
  op.name = std::string(name);
  op.ino = ino;
  op.type = node.type;
  op.mode = node.mode;
  op.uid = ctx.caller.uid;
  op.gid = ctx.caller.gid;
  op.rdev = node.rdev;
  op.target = std::move(node.target);
  op.now = NextTime();
  const uint32_t flags = made != nullptr ? uint32_t{ApplyOpRequest::kOpen} : 0;
  ARCHIL_ASSIGN_OR_RETURN(const ApplyOpReply reply, Apply(ctx, claim, parent, std::move(op), flags));
  const Entry entry = ShownEntry(reply.inode);
  if (made != nullptr) {
    *made = wb_.state_.Find(ino);
    (*made)->told_open = true;
  }
  ShownInContended(*wb_.state_.Find(ino), reply.contended);
  return entry;
}

Result<Entry> Vfs::LinkAtServer(const OpContext& ctx, Claim& claim, InodeId ino, InodeId parent,
                                std::string_view name) {
  if (Inode* inode = wb_.state_.Find(ino)) wb_.Take(*inode);  // ORD-2
  ARCHIL_ASSIGN_OR_RETURN(const ApplyOpReply reply,
                          Apply(ctx, claim, parent, LinkOp{ino, parent, std::string(name), NextTime()}, 0));
  return ShownEntry(reply.inode);
}

Status Vfs::RenameAtServer(const OpContext& ctx, Claim& claim, InodeId parent, std::string_view name,
                           InodeId new_parent, std::string_view new_name, RenameOp::Mode mode) {
  wb_.TakeAll();  // ORD-2: it may be a directory
  RenameOp op;
  op.parent = parent;
  op.name = std::string(name);
  op.new_parent = new_parent;
  op.new_name = std::string(new_name);
  op.mode = mode;
  op.now = NextTime();
  auto reply = Apply(ctx, claim, parent, std::move(op), 0);
  return reply.ok() ? Ok() : Status(reply.error());
}

Result<AttrReply> Vfs::SetAttrAtServer(const OpContext& ctx, Claim& claim, InodeId ino, const SetAttrRequest& request) {
  using F = SetAttrRequest;
  SetAttrOp op;
  op.ino = ino;
  op.now = NextTime();
  const auto copy = [&](uint32_t from, uint32_t to) { op.fields |= (request.fields & from) != 0 ? to : 0u; };
  copy(F::kMode, SetAttrOp::kMode);
  copy(F::kUid, SetAttrOp::kUid);
  copy(F::kGid, SetAttrOp::kGid);
  copy(F::kSize, SetAttrOp::kSize);
  copy(F::kAtime | F::kAtimeNow, SetAttrOp::kAtime);
  copy(F::kMtime | F::kMtimeNow, SetAttrOp::kMtime);
  op.mode = request.mode & 07777;
  op.uid = request.uid;
  op.gid = request.gid;
  op.size = request.size;
  op.atime = request.atime;
  op.mtime = request.mtime;
  uint32_t flags = 0;
  if ((request.fields & F::kKillSetId) != 0) flags |= ApplyOpRequest::kKillSetId;
  if ((request.fields & F::kAtimeNow) != 0) flags |= ApplyOpRequest::kAtimeNow;
  if ((request.fields & F::kMtimeNow) != 0) flags |= ApplyOpRequest::kMtimeNow;
  ARCHIL_ASSIGN_OR_RETURN(const ApplyOpReply reply, Apply(ctx, claim, ino, std::move(op), flags));
  const Inode& inode = Shown(reply.inode);
  return AttrReply{inode.valid ? AttrOf(inode) : reply.inode.attr, AttrTtl(inode)};
}

}  // namespace archil
