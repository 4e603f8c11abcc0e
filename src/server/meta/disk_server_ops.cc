// Operations that are applied here instead of in a session's log, and looks that leave nothing behind (SRV-1). They
// stand in the queue of the requests for rights; when nobody holds anything on what they name, they are decided,
// applied and remembered in one step.
#include <fmt/format.h>

#include <utility>

#include "common/format/op_codec.h"
#include "server/meta/apply.h"
#include "server/meta/asked_opens.h"
#include "server/meta/disk.h"
#include "server/meta/listing.h"
#include "server/meta/ops/op_effects.h"
#include "server/meta/ops/server_op.h"

namespace archil {
namespace {

InodeId DirectoryOf(const Op& op) {
  if (const auto* create = std::get_if<CreateOp>(&op)) return create->parent;
  if (const auto* link = std::get_if<LinkOp>(&op)) return link->parent;
  if (const auto* unlink = std::get_if<UnlinkOp>(&op)) return unlink->parent;
  if (const auto* rmdir = std::get_if<RmdirOp>(&op)) return rmdir->parent;
  if (const auto* rename = std::get_if<RenameOp>(&op)) return rename->parent;
  if (const auto* attr = std::get_if<SetAttrOp>(&op)) return attr->ino;
  return InodeId{0};
}

InodeInfo InfoAfter(const Op& op, const InodeRecord& rec) {
  const InodeId dir = DirectoryOf(op);
  return InfoOf(rec, dir == rec.attr.ino ? InodeId{0} : dir);
}

Error Stopping() { return Error(Code::kUnavailable, "the server is stopping"); }

}  // namespace

// --- asking

void Disk::ApplyOp(ApplyOpRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket,
                   Done<ApplyOpReply> done) {
  if (const Status s = CheckServerOp(request); !s.ok()) return done(s.error());
  const uint64_t wait = next_wait_.fetch_add(1);
  Run<ApplyOpReply>(Kind::kChange, std::move(done),
                    [this, wait, deadline, request = std::move(request), received = host_.Now()](
                        DiskCore& core, Done<ApplyOpReply> done) {
                      if (host_.draining.load()) return done(Stopping());
                      auto known = BeginServerOp(core, request, wait, deadline, received);
                      if (!known.ok()) return Reply(core, Kind::kChange, done, Result<ApplyOpReply>(known.error()));
                      if (*known) return Reply(core, Kind::kChange, done, **known);
                      core.applies[wait] = {request, done};
                      Settle(core);
                      if (core.applies.contains(wait)) ++host_.metrics.server_op_waits;
                    });
  OnCancel(ticket, wait);
}

// What was answered before, or nothing: then it waits for its turn.
Result<std::optional<Result<ApplyOpReply>>> Disk::BeginServerOp(DiskCore& core, const ApplyOpRequest& request,
                                                                uint64_t wait, BootTime deadline, BootTime received) {
  ARCHIL_ASSIGN_OR_RETURN(const SessionRecord* rec, LiveSession(core, request.session, &request.key, received));
  ServerOps& ops = core.server_ops[request.session];
  ops.Finished(request.finished);
  if (request.id < ops.finished) return Error(Code::kInvalid, fmt::format("operation {} is finished", request.id));
  if (const auto it = ops.answers.find(request.id); it != ops.answers.end()) {
    ++host_.metrics.server_ops_repeated;
    return std::optional<Result<ApplyOpReply>>(it->second);
  }
  ARCHIL_ASSIGN_OR_RETURN(auto stored, StoredAnswer(core, request));
  if (stored) {
    ++host_.metrics.server_ops_repeated;
    return std::optional<Result<ApplyOpReply>>(std::move(*stored));
  }
  if (request.after > rec->applied) {
    return Error(Code::kInvalid, fmt::format("op {} comes before the operation and is not applied, the newest is {}",
                                             request.after.value, rec->applied.value));
  }
  if (ops.answers.size() >= kMaxServerOps)
    return Error(Code::kTryAgain, "too many operations of the session are not finished");
  // Asked again while the first call waits: that one's caller has left.
  for (auto it = core.applies.begin(); it != core.applies.end();) {
    if (it->second.request.session != request.session || it->second.request.id != request.id) {
      ++it;
      continue;
    }
    core.table.Cancel(it->first);
    it->second.done(Error(Code::kUnavailable, "the operation was asked for again"));
    it = core.applies.erase(it);
  }
  ARCHIL_RETURN_IF_ERROR(core.table.Reserve(wait, request.session, ReservationOf(request.op), deadline));
  return std::optional<Result<ApplyOpReply>>();
}

// Of an earlier life of the server, or of the disk in it.
Result<std::optional<ApplyOpReply>> Disk::StoredAnswer(DiskCore& core, const ApplyOpRequest& request) {
  ARCHIL_ASSIGN_OR_RETURN(const auto below, GetDiskWide(*core.kv, ServerOpKey(request.session, 0)));
  if (below) {
    ARCHIL_ASSIGN_OR_RETURN(const uint64_t finished, DecodeFinished(*below));
    if (request.id < finished) return Error(Code::kInvalid, fmt::format("operation {} is finished", request.id));
  }
  ARCHIL_ASSIGN_OR_RETURN(const auto raw, GetDiskWide(*core.kv, ServerOpKey(request.session, request.id)));
  if (!raw) return std::optional<ApplyOpReply>();
  ARCHIL_ASSIGN_OR_RETURN(const ServerResultRecord result, DecodeServerResult(*raw));
  ApplyOpReply reply;
  reply.position = core.applied;
  reply.removed = result.removed;
  if (result.inode) {
    reply.inode = InfoAfter(request.op, *result.inode);
    if ((request.flags & ApplyOpRequest::kOpen) != 0) {
      StateTree tree(*core.kv);
      if (tree.KindOf(core.sessions[request.session].branch, reply.inode.attr.ino) != Tree::Kind::kAbsent)
        core.table.Opened(request.session, reply.inode.attr.ino);
      ARCHIL_RETURN_IF_ERROR(tree.status());
    }
  }
  return std::optional<ApplyOpReply>(std::move(reply));
}

// --- its turn

void Disk::ApplyReady(DiskCore& core, uint64_t wait) {
  core.table.Cancel(wait);
  auto node = core.applies.extract(wait);
  if (!node) return;
  const ApplyOpRequest& request = node.mapped().request;
  Result<ApplyOpReply> reply = ApplyNow(core, request);
  const bool verdict = reply.ok() || BandOf(reply.code()) == Band::kVerdict;
  if (verdict) core.server_ops[request.session].answers.insert_or_assign(request.id, reply);
  Reply(core, Kind::kChange, node.mapped().done, std::move(reply));
  MaybeFlush(core);
}

Result<ApplyOpReply> Disk::ApplyNow(DiskCore& core, const ApplyOpRequest& request) {
  const SessionRecord& session = core.sessions[request.session];
  const BootTime now = host_.Now();
  Txn txn(*core.kv);
  ARCHIL_RETURN_IF_ERROR(txn.UseBranch(session.branch));
  ARCHIL_ASSIGN_OR_RETURN(ServerOpPlan plan, PlanServerOp(txn, request));
  ServerOpRecord record{request.session,     request.id, core.server_ops[request.session].finished,
                        EncodeOps(plan.ops), {},         plan.shown,
                        plan.removed};
  // What the session itself has open it has told, as the others: its turn comes when all have reclaimed.
  AskedOpens opens(core.table, txn, request.session, [&](InodeId ino) {
    return core.table.OpenAnywhere(session.branch, ino, request.session, now);
  });
  ARCHIL_ASSIGN_OR_RETURN(const ServerResultRecord result, ApplyServerOp(txn, record, plan.ops, &opens));
  record.opens = std::move(opens.said);
  ARCHIL_RETURN_IF_ERROR(WriteRecord(core, txn, record, [](Status) {}));
  ++host_.metrics.server_ops;
  StateTree tree(*core.kv);
  core.table.AppliedAtServer(session.branch, TouchedBy(plan.ops), tree);
  if (!TreeIsGood(tree)) return Error(Code::kUnavailable, "the state cannot be read");
  if ((request.flags & ApplyOpRequest::kOpen) != 0 && plan.shown) core.table.Opened(request.session, plan.shown);
  ApplyOpReply reply;
  reply.position = core.applied;
  reply.removed = result.removed;
  reply.contended = core.table.Contended(session.branch, DirectoryOf(request.op), now);
  if (result.inode) reply.inode = InfoAfter(request.op, *result.inode);
  return reply;
}

// --- looks

void Disk::ReadOnce(ReadOnceRequest request, BootTime deadline, const std::shared_ptr<WaitTicket>& ticket,
                    Done<ReadOnceReply> done) {
  const uint64_t wait = next_wait_.fetch_add(1);
  Run<ReadOnceReply>(Kind::kRead, std::move(done),
                     [this, wait, deadline, request = std::move(request), received = host_.Now()](
                         DiskCore& core, Done<ReadOnceReply> done) {
                       if (host_.draining.load()) return done(Stopping());
                       const auto begin = [&]() -> Status {
                         ARCHIL_RETURN_IF_ERROR(LiveSession(core, request.session, &request.key, received));
                         if (!request.name.empty() && !IsValidName(request.name))
                           return Error(Code::kInvalid, "not a valid name");
                         if (request.chunks > kMaxChunksOnce) return Error(Code::kInvalid, "too many chunks in one look");
                         const bool more = request.chunks > 0 || request.xattrs || request.open;
                         if (more && !request.name.empty()) return Error(Code::kInvalid, "more is told of an inode only, not of a name");
                         Reservation needs;
                         needs.kind = Reservation::Kind::kLook;
                         needs.wants.push_back({request.ino, Right::kRead, false});
                         if (!request.name.empty()) needs.names.push_back({request.ino, request.name, Right::kRead});
                         return core.table.Reserve(wait, request.session, std::move(needs), deadline);
                       };
                       if (const Status s = begin(); !s.ok())
                         return Reply(core, Kind::kRead, done, Result<ReadOnceReply>(s.error()));
                       core.looks[wait] = {request, done};
                       Settle(core);
                     });
  OnCancel(ticket, wait);
}

Result<ReadOnceReply> Disk::LookNow(DiskCore& core, const ReadOnceRequest& request) {
  ++host_.metrics.reads_once;
  const SessionRecord& session = core.sessions[request.session];
  const BootTime now = host_.Now();
  ARCHIL_ASSIGN_OR_RETURN(BranchChain chain, LoadBranchChain(*core.kv, session.branch));
  const Records records(*core.kv, std::move(chain));
  ReadOnceReply reply;
  reply.position = core.applied;
  reply.contended = core.table.Contended(session.branch, request.ino, now);
  if (!reply.contended) {
    StateTree tree(*core.kv);
    reply.contended = static_cast<bool>(core.table.CheckedOutBy(session.branch, request.ino, request.session, tree, now));
    ARCHIL_RETURN_IF_ERROR(tree.status());
  }
  auto info = InfoOf(records, request.ino, InodeId{0});
  if (info.code() == Code::kNotFound) return Error(Code::kStale, fmt::format("inode {} is gone", request.ino.value));
  ARCHIL_RETURN_IF_ERROR(info);
  if (request.name.empty()) {
    reply.inode = std::move(*info);
    ARCHIL_RETURN_IF_ERROR(LookFurther(core, request, records, reply));
    return reply;
  }
  if (info->attr.type != FileType::kDirectory) return Code::kNotDirectory;
  ARCHIL_ASSIGN_OR_RETURN(const auto dentry, records.GetDentry(request.ino, request.name));
  reply.absent = !dentry.has_value();
  if (reply.absent) return reply;
  auto child = InfoOf(records, dentry->ino, request.ino);
  if (child.code() == Code::kNotFound) return Error(Code::kCorrupt, "a name shows an inode that does not exist");
  ARCHIL_RETURN_IF_ERROR(child);
  reply.inode = std::move(*child);
  if (reply.inode.attr.type == FileType::kRegular) core.table.Glimpsed(request.session, dentry->ino, now);
  return reply;
}

Status Disk::LookFurther(DiskCore& core, const ReadOnceRequest& request, const Records& records, ReadOnceReply& reply) {
  const FileType type = reply.inode.attr.type;
  for (uint32_t i = 0; type == FileType::kRegular && i < request.chunks && request.first_chunk + i <= kMaxFileSize / kChunkSize; ++i) {
    ARCHIL_ASSIGN_OR_RETURN(auto extents, records.GetExtents(request.ino, request.first_chunk + i));
    reply.chunks.push_back({request.first_chunk + i, std::move(extents)});
  }
  if (request.xattrs) {
    ARCHIL_ASSIGN_OR_RETURN(reply.xattrs, records.GetXattrs(request.ino));
  }
  if (request.open && type == FileType::kRegular && reply.inode.attr.nlink > 0) core.table.Opened(request.session, request.ino);
  return Ok();
}

// --- the others' part

bool Disk::AnswerServerWait(DiskCore& core, const DelegationEffects::Granted& granted) {
  auto look = core.looks.extract(granted.id);
  if (!look) return false;
  Reply(core, Kind::kRead, look.mapped().done, LookNow(core, look.mapped().request));
  return true;
}

bool Disk::FailServerWait(DiskCore& core, uint64_t wait, const Error& error) {
  if (auto apply = core.applies.extract(wait)) {
    const ApplyOpRequest& request = apply.mapped().request;
    if (BandOf(error.code()) == Band::kVerdict) core.server_ops[request.session].answers.insert_or_assign(request.id, Result<ApplyOpReply>(error));
    Reply(core, Kind::kRead, apply.mapped().done, Result<ApplyOpReply>(error));
    return true;
  }
  auto look = core.looks.extract(wait);
  if (look) Reply(core, Kind::kRead, look.mapped().done, Result<ReadOnceReply>(error));
  return static_cast<bool>(look);
}

void Disk::FailServerWaits(DiskCore& core, const Error& error) {
  for (auto& [wait, apply] : std::exchange(core.applies, {})) {
    core.table.Cancel(wait);
    apply.done(error);
  }
  for (auto& [wait, look] : std::exchange(core.looks, {})) {
    core.table.Cancel(wait);
    look.done(error);
  }
}

}  // namespace archil
