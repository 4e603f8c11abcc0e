// FENCE-1: the session was silent for longer than its lease, and others took what they wanted; or it was ended. What of the log touches
// that is lost: saved, taken out of the log, and forgotten. docs/delegation.md tells the protocol.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "client/oplog/op_facts.h"
#include "client/vfs/vfs.h"
#include "common/obs/log.h"

namespace archil {
namespace {

constexpr int kRefusals = 3;  // of the rest of the log, then it is lost as well
constexpr absl::Duration kReadBack = absl::Seconds(5);  // for bytes of lost ops that were uploaded already

}  // namespace

Status Vfs::TakenAway(const RenewReply& reply) {
  LoseLocks(reply.taken);
  bool alone = false;
  {
    MutexLock lock(wb_.state_.mu);
    if (wb_.state_.broken) return Error(Code::kIo, wb_.state_.broken_reason);
    // A commit that is on its way decides what is applied: the next heartbeat is sent when it has ended.
    wb_.HoldCommits(true);
    if (!std::exchange(quiet_, false)) return Code::kTryAgain;
    wb_.CatchUp(reply.applied);
    wb_.TakeAll();
    const Reach reach = ReachOf(reply.taken);
    if (const Seq first = FirstOpTouching(reach)) {
      Lose(first, &reach, fmt::format("{} inodes were wanted by other mounts while this one was silent for longer than its lease", reply.taken.size()));
    }
    // Records that stand only here, for what lost ops took out of a taken directory, are not claimed after a restart of the server either.
    for (const HeldRight& held : wb_.state_.rights.All()) {
      if (Touches(reach, held.ino) || never_born_.contains(held.ino)) not_held_.insert(held.ino);
    }
    not_held_.insert(reach.with.begin(), reach.with.end());
    not_true_.insert(not_held_.begin(), not_held_.end());
    // After a restart of the server nobody asks for what is kept of everything: it is reclaimed.
    alone = wb_.state_.rights.alone() && reply.reclaim;
    if (alone) (void)EndAlone(0);
  }
  if (alone) {
    (void)locks_.Surrender();  // what is held is reclaimed, what waits is asked for again
    locks_.Moved();
  }
  return Ok();
}

Status Vfs::BeforeSettle(const OpContext& ctx, SettleRequest& request) {
  std::vector<InodeId> known;
  {
    MutexLock lock(wb_.state_.mu);
    if (wb_.state_.rights.alone()) return Code::kTryAgain;  // the recall of that is on its way
    wb_.HoldCommits(false);
    while (wb_.state_.log.durable() < wb_.state_.log.last()) {
      const Status done = wb_.MakeDurable(ctx, wb_.state_.log.last());
      if (done.ok()) continue;
      // The cut was made where this mount sees no more that touches it; the server decides, and says otherwise.
      if (wb_.refusals() >= kRefusals) LoseRest("the server refused the rest of the log");
      return done;
    }
    request.last = wb_.state_.log.last();
    wb_.Settling(request.last);
    for (const InodeId ino : not_true_) {
      const Inode* inode = wb_.state_.Find(ino);
      if (inode != nullptr && inode->lookups > 0) known.push_back(ino);
      ForgetAll(ino);
    }
    for (const InodeId ino : never_born_) {
      Inode* inode = wb_.state_.Find(ino);
      if (inode == nullptr) continue;
      Gone(*inode);
      inode->told_open = false;
    }
    not_true_.clear();
    not_held_.clear();
    never_born_.clear();
    wb_.state_.changed.SignalAll();
  }
  if (kernel_ != nullptr) {
    for (const InodeId ino : known) kernel_->InvalidateInode(ino, 0, UINT64_MAX);
  }
  return Ok();
}

void Vfs::LoseEverything(const std::string& reason) {
  MutexLock lock(wb_.state_.mu);
  LoseRest(reason);
}

void Vfs::LoseRest(const std::string& reason) {
  wb_.HoldCommits(true);
  while (wb_.committing()) wb_.state_.changed.Wait(wb_.state_.mu);
  wb_.TakeAll();
  Lose(Seq{wb_.state_.log.durable().value + 1}, nullptr, reason);
}

// Conservative: what is in a taken directory, or was there at some time of the log, counts as taken with it.
Vfs::Reach Vfs::ReachOf(const std::vector<Taken>& taken) {
  Reach reach;
  for (const Taken& t : taken) {
    if (!t.right) continue;
    reach.taken.insert(t.ino);
    const Inode* inode = wb_.state_.Find(t.ino);
    reach.directory = reach.directory || inode == nullptr || inode->is_dir();
  }
  reach.with = reach.taken;
  absl::flat_hash_set<InodeId> linked;
  wb_.state_.log.ForOps([&](Seq, const Op& op) {
    if (const auto* link = std::get_if<LinkOp>(&op)) linked.insert(link->ino);
    return false;
  });
  // A second name that the server does not know of yet took the inode out of what the directory covers here, not there. Who was alone
  // has no records at the server: everything in the directory was taken with it.
  for (const InodeId ino : reach.taken) {
    const Inode* dir = wb_.state_.Find(ino);
    if (dir == nullptr || !dir->is_dir() || !dir->dir) continue;
    for (auto item = dir->dir->Next(2); item; item = dir->dir->Next(item->cookie)) {
      if (item->type == FileType::kDirectory) continue;  // it has a right of its own
      if (silent_alone_ || linked.contains(item->ino)) reach.with.insert(item->ino);
    }
  }
  wb_.state_.log.ForOps([&](Seq, const Op& op) {
    const EntryDirs dirs = EntryDirsOf(op);
    if (!reach.taken.contains(dirs.from) && !reach.taken.contains(dirs.to)) return false;
    reach.with.insert(OwnerOf(op));
    if (const auto* rename = std::get_if<RenameOp>(&op); rename != nullptr && rename->victim) reach.with.insert(rename->victim);
    return false;
  });
  return reach;
}

bool Vfs::Touches(const Reach& reach, InodeId ino) {
  if (reach.with.contains(ino)) return true;
  const Inode* inode = wb_.state_.Find(ino);
  return inode != nullptr && inode->home && reach.taken.contains(inode->home);
}

// 0: none.
Seq Vfs::FirstOpTouching(const Reach& reach) {
  Seq first;
  wb_.state_.log.ForOps([&](Seq seq, const Op& op) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (std::holds_alternative<ReleaseOrphanOp>(op)) return false;  // needs no right
    bool touches = false;
    ForInodes(op, [&](InodeId ino) ABSL_NO_THREAD_SAFETY_ANALYSIS { touches = touches || Touches(reach, ino); });
    // What was read of the directories above (REN-1) may have been taken.
    if (const auto* rename = std::get_if<RenameOp>(&op); rename != nullptr && reach.directory && rename->parent != rename->new_parent) {
      const Inode* moved = wb_.state_.Find(rename->ino);
      touches = touches || moved == nullptr || moved->is_dir();
    }
    if (touches) first = seq;
    return touches;
  });
  return first;
}

void Vfs::Lose(Seq first, const Reach* reach, const std::string& reason) {
  absl::flat_hash_set<InodeId> others;
  const Seq from = wb_.state_.log.LossFrom(first);
  wb_.state_.log.ForOps([&](Seq seq, const Op& op) {
    if (seq < from || std::holds_alternative<SetExtentsOp>(op)) return false;
    ForInodes(op, [&](InodeId ino) { others.insert(ino); });
    return false;
  });
  LostLog lost;
  lost.ops = wb_.Lose(first, [&](InodeId ino) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return reach != nullptr && !others.contains(ino) && !Touches(*reach, ino);
  });
  if (lost.ops.empty()) return;
  lost_ops_ += lost.ops.size();
  lost.names = NamesBefore(lost.ops, NamesFor(lost.ops));
  MarkLost(lost.ops);
  lost.disk = session_.opened().disk.name;
  lost.branch = config_.branch;
  lost.client_name = config_.client_name;
  lost.reason = reason;
  lost.session = session_.id();
  lost.when = session_.Now();
  lost.root = root_;
  Result<std::string> saved = Error(Code::kNotSupported, "this mount has no directory for lost operations");
  {
    ReleaseLock unlocked(wb_.state_.mu);
    FillBytes(lost.ops);
    if (!config_.recovery_dir.empty()) saved = SaveLostLog(config_.recovery_dir, lost);
    LogError("session.lost", {{"ops", lost.ops.size()},
                              {"reason", reason},
                              {"saved", saved.ok() ? *saved : "no: " + saved.error().ToString()}});
  }
  lost_file_ = saved.ok() ? *saved : "";
}

void Vfs::MarkLost(const std::vector<Op>& ops) {
  absl::flat_hash_set<InodeId> touched;
  for (const Op& op : ops) {
    if (const auto* create = std::get_if<CreateOp>(&op)) never_born_.insert(create->ino);
    // A loss of the news that something is closed is none: it is said again.
    if (const auto* release = std::get_if<ReleaseOrphanOp>(&op)) {
      if (!never_born_.contains(release->ino) && !wb_.state_.broken) wb_.Log(*release, {});
      continue;
    }
    ForInodes(op, [&](InodeId ino) {
      if (ino) touched.insert(ino);
    });
  }
  not_true_.insert(touched.begin(), touched.end());
  for (auto& [id, handle] : wb_.state_.handles) handle.lost = handle.lost || touched.contains(handle.ino);
  for (const InodeId ino : touched) {
    Inode* inode = wb_.state_.Find(ino);
    if (inode != nullptr && (inode->is_dir() || config_.references_are_opens)) inode->lost = true;
  }
}

std::map<InodeId, LostLog::Name> Vfs::NamesFor(const std::vector<Op>& ops) {
  absl::flat_hash_set<InodeId> wanted;
  for (const Op& op : ops) ForInodes(op, [&](InodeId ino) { wanted.insert(ino); });
  const auto names = NamesOf([&](InodeId ino) { return wanted.contains(ino); });
  std::map<InodeId, LostLog::Name> out;
  for (const InodeId ino : wanted) {
    InodeId at = ino;
    for (auto it = names.find(at); at != root_ && it != names.end() && out.emplace(at, it->second).second; it = names.find(at)) {
      at = it->second.parent;
    }
  }
  return out;
}

// Without locks. What cannot be read stays as it is.
void Vfs::FillBytes(std::vector<Op>& ops) {
  OpContext ctx;
  ctx.deadline = env_.scheduler.clock().Boot() + kReadBack;
  for (Op& op : ops) {
    auto* set = std::get_if<SetExtentsOp>(&op);
    if (set == nullptr) continue;
    for (Extent& extent : set->extents) {
      std::vector<Buffer> pieces;
      if (extent.kind != ExtentKind::kSegment) continue;
      if (!reader_.Read(ctx, extent.segment, extent.segment_offset, extent.length, false, pieces).ok()) continue;
      std::string bytes;
      for (const Buffer& piece : pieces) bytes.append(piece.view());
      if (bytes.size() != extent.length) continue;
      extent.kind = ExtentKind::kInline;
      extent.data = Buffer(std::move(bytes));
    }
  }
}

void Vfs::ForgetAll(InodeId ino) {
  std::vector<InodeId> all;
  ForCovered(ino, [&](Inode& inode) { all.push_back(inode.ino()); });
  wb_.state_.rights.Erase(ino);
  wb_.state_.NotFresh(ino);
  for (const InodeId id : all) {
    Inode& inode = *wb_.state_.Find(id);
    inode.sealed = inode.recached = inode.only_ours = false;
    wb_.state_.SetHome(inode, InodeId{});
    if (id != ino && wb_.state_.rights.Of(id) != Right::kNone) continue;
    wb_.state_.NotFresh(id);
    wb_.ForgetContent(inode);
    if (wb_.Lost(inode.last_op)) inode.last_op = wb_.state_.log.durable();  // its loss has been told, or will be, by the open files
    inode.valid = inode.gone;
    // Whether it has a name is not known any more; that it is closed is told all the same.
    inode.told_open = inode.told_open || std::exchange(inode.orphan, false);
    ++inode.generation;
    if (inode.dir) inode.dir->Invalidate();
  }
}

void Vfs::LoseLocks(const std::vector<Taken>& taken) {
  for (const Taken& t : taken) {
    if (!t.locks) continue;
    const std::set<HandleId> through = locks_.Lose(t.ino);
    MutexLock lock(wb_.state_.mu);
    for (const HandleId id : through) {
      const auto handle = wb_.state_.handles.find(id);
      if (handle == wb_.state_.handles.end() || std::exchange(handle->second.lock_lost, true)) continue;
      ++bad_handles_;
    }
    LogWarning("session.locks_lost", {{"ino", t.ino.value}, {"open_files", through.size()}});
  }
}

}  // namespace archil
