#include "tests/unit/client/oplog/log_check.h"

#include <fmt/format.h>

#include <utility>

#include "client/oplog/op_facts.h"
#include "common/format/op_codec.h"

namespace archil {
namespace {

Timestamp At(int step) { return {1000 + step, 0}; }

SetExtentsOp Write(InodeId ino, int step) {
  Extent e{.offset = 4096ULL * static_cast<uint64_t>(step % 3), .length = 4096, .segment = SegmentId{7}};
  e.segment_offset = static_cast<uint64_t>(step) * 4096;
  return {ino, {e}, e.end(), At(step), At(step), 0};
}

std::vector<InodeId> Directories(const TinyNamespace& ns, const Universe& universe) {
  std::vector<InodeId> out;
  for (const auto& [ino, inode] : ns.inodes()) {
    if (inode.type != FileType::kDirectory || inode.orphan) continue;
    if (ino.value <= 2 || universe.inner_directories) out.push_back(ino);
  }
  return out;
}

void AddRenames(const TinyNamespace& ns, const Universe& u, const TinyNamespace::Name& from, InodeId ino,
                const TinyNamespace::Name& to, int step, std::vector<Op>& out) {
  const InodeId victim = ns.Lookup(to.first, to.second);
  if (from == to || ino == victim) return;
  const bool is_dir = ns.Find(ino)->type == FileType::kDirectory;
  if (is_dir && ns.IsAbove(ino, to.first)) return;
  RenameOp op{from.first, from.second, to.first, to.second, ino, victim, RenameOp::Mode::kPlain, false, At(step)};
  const bool victim_dir = victim && ns.Find(victim)->type == FileType::kDirectory;
  if (!victim) {
    op.mode = step % 2 == 0 ? RenameOp::Mode::kPlain : RenameOp::Mode::kNoReplace;
    out.push_back(op);
  } else if (victim_dir == is_dir && (!is_dir || ns.Empty(victim))) {
    out.push_back(op);
    if (u.open_files) {
      op.victim_still_open = true;
      out.push_back(op);
    }
  }
  const bool loop = victim_dir && ns.IsAbove(victim, from.first);
  if (victim && u.exchanges && !loop) {
    op.mode = RenameOp::Mode::kExchange;
    op.victim_still_open = false;
    out.push_back(op);
  }
}

void AddOpsOfName(const TinyNamespace& ns, const Universe& u, const TinyNamespace::Name& name, InodeId ino,
                  const std::vector<TinyNamespace::Name>& slots, int step, std::vector<Op>& out) {
  const TinyInode& inode = *ns.Find(ino);
  for (const bool still_open : {false, true}) {
    if (still_open && !u.open_files) continue;
    if (inode.type != FileType::kDirectory) {
      out.push_back(UnlinkOp{name.first, name.second, ino, still_open, At(step)});
    } else if (ns.Empty(ino)) {
      out.push_back(RmdirOp{name.first, name.second, ino, still_open, At(step)});
    }
  }
  for (const auto& slot : slots) {
    AddRenames(ns, u, name, ino, slot, step, out);
    if (u.links && inode.type != FileType::kDirectory && !ns.Lookup(slot.first, slot.second)) {
      out.push_back(LinkOp{ino, slot.first, slot.second, At(step)});
    }
  }
}

void AddOpsOfInode(const TinyNamespace&, const Universe& u, InodeId ino, const TinyInode& inode, int step,
                   std::vector<Op>& out) {
  if (inode.type == FileType::kRegular) out.push_back(Write(ino, step));
  if (inode.orphan) out.push_back(ReleaseOrphanOp{ino});
  if (!u.attributes) return;
  SetAttrOp set{.ino = ino, .fields = SetAttrOp::kMtime, .mtime = {5, 0}, .now = At(step)};
  out.push_back(set);
  set.fields = SetAttrOp::kMode;
  set.mode = static_cast<uint32_t>(step) & 07777;
  out.push_back(set);
  if (inode.type != FileType::kRegular) return;
  set.fields = SetAttrOp::kSize;
  out.push_back(set);
  out.push_back(ClearRangeOp{ino, ClearRangeOp::Kind::kPunch, 0, 4096, inode.size, At(step)});
  out.push_back(SetXattrOp{ino, "user.x", fmt::format("{}", step), At(step)});
  if (inode.xattrs.contains("user.x")) out.push_back(RemoveXattrOp{ino, "user.x", At(step)});
}

}  // namespace

std::vector<Op> PossibleOps(const TinyNamespace& ns, const Universe& u, InodeId next, int step) {
  std::vector<Op> out;
  std::vector<TinyNamespace::Name> slots;
  for (const InodeId dir : Directories(ns, u)) {
    for (const std::string& name : u.names) slots.emplace_back(dir, name);
  }
  for (const auto& slot : slots) {
    if (const InodeId ino = ns.Lookup(slot.first, slot.second)) {
      AddOpsOfName(ns, u, slot, ino, slots, step, out);
      continue;
    }
    for (const FileType type : {FileType::kRegular, FileType::kDirectory}) {
      out.push_back(CreateOp{.parent = slot.first, .name = slot.second, .ino = next, .type = type, .now = At(step)});
    }
  }
  for (const auto& [ino, inode] : ns.inodes()) AddOpsOfInode(ns, u, ino, inode, step, out);
  return out;
}

TinyNamespace StartState(bool with_file) {
  TinyNamespace ns;
  (void)ns.Apply(CreateOp{.parent = kRootInode, .name = "d", .ino = InodeId{2}, .type = FileType::kDirectory});
  if (with_file) (void)ns.Apply(CreateOp{.parent = kRootInode, .name = "a", .ino = InodeId{3}});
  return ns;
}

std::string Describe(const Op& op) {
  struct Visitor {
    std::string operator()(const CreateOp& o) const {
      return fmt::format("create {}/{} #{}{}", o.parent.value, o.name, o.ino.value,
                         o.type == FileType::kDirectory ? " dir" : "");
    }
    std::string operator()(const LinkOp& o) const {
      return fmt::format("link #{} {}/{}", o.ino.value, o.parent.value, o.name);
    }
    std::string operator()(const UnlinkOp& o) const {
      return fmt::format("unlink {}/{} #{}{}", o.parent.value, o.name, o.ino.value, o.still_open ? " open" : "");
    }
    std::string operator()(const RmdirOp& o) const {
      return fmt::format("rmdir {}/{} #{}{}", o.parent.value, o.name, o.ino.value, o.still_open ? " open" : "");
    }
    std::string operator()(const RenameOp& o) const {
      return fmt::format("rename{} {}/{} #{} -> {}/{} victim {}{}", o.mode == RenameOp::Mode::kExchange ? " exchange" : "",
                         o.parent.value, o.name, o.ino.value, o.new_parent.value, o.new_name, o.victim.value,
                         o.victim_still_open ? " open" : "");
    }
    std::string operator()(const SetAttrOp& o) const { return fmt::format("setattr #{} {:#x}", o.ino.value, o.fields); }
    std::string operator()(const SetExtentsOp& o) const { return fmt::format("write #{}", o.ino.value); }
    std::string operator()(const ClearRangeOp& o) const { return fmt::format("clear #{}", o.ino.value); }
    std::string operator()(const SetXattrOp& o) const { return fmt::format("setxattr #{}", o.ino.value); }
    std::string operator()(const RemoveXattrOp& o) const { return fmt::format("removexattr #{}", o.ino.value); }
    std::string operator()(const ReleaseOrphanOp& o) const { return fmt::format("release #{}", o.ino.value); }
    std::string operator()(const TouchOp& o) const { return fmt::format("touch #{} {}", o.ino.value, o.mtime.sec); }
  };
  return std::visit(Visitor{}, op);
}

std::string Describe(const Script& script) {
  std::string out;
  for (size_t i = 0; i < script.size(); i++) out += fmt::format("  {:4} {}\n", i + 1, Describe(script[i]));
  return out;
}

LogCheck::LogCheck(const TinyNamespace& start, uint64_t cancel_mask)
    : own_states_{start}, server_(start), cancel_mask_(cancel_mask) {}

LogCheck::LogCheck(const std::vector<TinyNamespace>* states)
    : states_(states), server_(states->front()), cancel_mask_(~0ULL) {}

bool LogCheck::Fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
  return false;
}

bool LogCheck::Reference(const Op& op) {
  if (states_ != nullptr) return true;
  TinyNamespace next = own_states_.back();
  if (!next.Apply(op)) return Fail("bad script: " + Describe(op) + ": " + next.why);
  own_states_.push_back(std::move(next));
  return true;
}

void LogCheck::Append(const Op& op) {
  if (!Reference(op)) return;
  orphaned_.erase(OwnerOf(op));
  const auto removed = [&](InodeId ino, bool still_open) {
    if (still_open) orphaned_[ino] = Seq{log_.last().value + 1};
  };
  if (const auto* unlink = std::get_if<UnlinkOp>(&op)) removed(unlink->ino, unlink->still_open);
  if (const auto* rename = std::get_if<RenameOp>(&op)) removed(rename->victim, rename->victim_still_open);
  if (const auto* write = std::get_if<SetExtentsOp>(&op)) {
    SetExtentsOp empty = *write;
    empty.extents.clear();
    pending_[log_.AppendPending(std::move(empty))] = *write;
  } else {
    log_.Append(op);
    CancelDead();
  }
}

bool LogCheck::EndUse(InodeId ino) {
  const auto it = orphaned_.find(ino);
  if (it == orphaned_.end() || !log_.UseEnded(it->second)) return false;
  for (uint64_t n = it->second.value; n < own_states_.size(); ++n) {
    if (!own_states_[n].Apply(ReleaseOrphanOp{ino})) Fail("bad end of use: " + own_states_[n].why);
  }
  orphaned_.erase(it);
  CancelDead();
  ++ends_of_use;
  return true;
}

void LogCheck::CancelDead() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const bool dead = state(log_.last().value).Find(it->second.ino) == nullptr;
    if (dead && (cancel_mask_ >> (it->first.value % 64) & 1) && log_.Cancel(it->first)) {
      cancelled++;
      it = pending_.erase(it);
    } else {
      ++it;
    }
  }
}

void LogCheck::Fill(size_t count) {
  for (; count > 0 && !pending_.empty(); count--) {
    log_.Fill(pending_.begin()->first, pending_.begin()->second.extents);
    pending_.erase(pending_.begin());
  }
}

bool LogCheck::Commit(Seq upto, const BatchLimits& limits) {
  if (!failure_.empty()) return false;
  const auto batch = log_.Plan(upto, limits);
  if (!batch) return false;
  if (batch->last > log_.Reach(upto)) return Fail("batch goes past what was asked for");
  if (!Check(*batch, limits)) return false;
  if (log_.Plan(upto, limits)) return Fail("two batches in flight");
  log_.Committed(batch->last);
  commits++;
  sent_ops += batch->count;
  absorbed_ops += batch->absorbed_ops;
  absorbed_inodes += batch->absorbed.size();
  return true;
}

bool LogCheck::Check(const CommitBatch& batch, const BatchLimits& limits) {
  const auto at = fmt::format("batch {}..{}: ", batch.first.value, batch.last.value);
  if (batch.first.value != log_.durable().value + 1 || batch.last < batch.first) return Fail(at + "bad numbers");
  if (batch.count > batch.last.value - batch.first.value + 1) return Fail(at + "more ops than numbers");
  const auto ops = DecodeOps(batch.ops);
  if (!ops.ok() || ops->size() != batch.count) return Fail(at + "does not decode");
  const bool cut_possible = log_.Reach(batch.first) == batch.first && batch.first != batch.last;
  if (cut_possible && batch.count > limits.max_ops) return Fail(at + "over the limit of ops");
  if (cut_possible && batch.ops.size() > limits.max_bytes) return Fail(at + "over the limit of bytes");
  std::string sent;
  for (const Op& op : *ops) {
    sent += "  " + Describe(op) + "\n";
    if (!server_.Apply(op)) return Fail(at + "refused: " + server_.why + ": " + Describe(op) + "\nsent:\n" + sent);
  }
  const TinyNamespace& expected = state(batch.last.value);
  if (!(server_ == expected)) {
    return Fail(at + "states differ\nsent:\n" + sent + "is:\n" + server_.Dump() + "should be:\n" + expected.Dump());
  }
  for (const InodeId ino : batch.absorbed) {
    if (expected.Find(ino) != nullptr) return Fail(at + "absorbed what lives");
  }
  return true;
}

TinyNamespace LogCheck::Lose(Seq first) {
  const Seq from = log_.LossFrom(first);
  lost += log_.Lose(from).size();
  pending_.erase(pending_.lower_bound(from), pending_.end());
  std::erase_if(orphaned_, [&](const auto& orphan) { return orphan.second >= from; });
  for (uint64_t n = from.value; n < own_states_.size(); ++n) own_states_[n] = own_states_[from.value - 1];
  return own_states_.back();
}

void LogCheck::Drain(const BatchLimits& limits) {
  Fill(pending_.size());
  while (Commit(log_.last(), limits)) {
  }
  if (failure_.empty() && log_.size() != 0) Fail("not all could be committed");
}

}  // namespace archil
