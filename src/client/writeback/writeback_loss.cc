// What is lost when others took it while this session was silent, or when the session was ended (FENCE-1).

#include <algorithm>
#include <utility>

#include "client/writeback/writeback.h"

namespace archil {
void Writeback::HoldCommits(bool hold) {
  held_ = hold;
  if (hold) refusals_ = 0;
  if (!hold) state_.changed.SignalAll();
}

void Writeback::CatchUp(Seq applied) {
  if (applied <= server_applied_ || applied > state_.log.last()) return;
  if (batch_) {
    state_.log.GiveUpPlan();
    batch_.reset();
  }
  state_.log.Applied(applied);
  server_applied_ = applied;
  state_.changed.SignalAll();
}

std::vector<Op> Writeback::Lose(Seq first, const std::function<bool(InodeId)>& keep) {
  if (batch_) {
    state_.log.GiveUpPlan();
    batch_.reset();
  }
  const Seq from = std::max(state_.log.LossFrom(first), Seq{state_.log.durable().value + 1});
  const Seq last = state_.log.last();
  if (from > last) return {};
  std::vector<Op> lost;
  for (OpLog::LostOp& op : state_.log.Lose(from)) {
    auto* set = std::get_if<SetExtentsOp>(&op.op);
    if (set != nullptr && keep(set->ino)) {
      LogAgain(op);
      continue;
    }
    if (op.pending) Withdraw(op.seq, *set);
    lost.push_back(std::move(op.op));
  }
  lost_.emplace_back(from, last);
  state_.changed.SignalAll();
  return lost;
}

void Writeback::LogAgain(OpLog::LostOp& op) {
  auto& set = std::get<SetExtentsOp>(op.op);
  const InodeId ino = set.ino;
  Seq seq;
  if (op.pending) {
    seq = state_.log.AppendPending(std::move(set));
    for (const auto& upload : unfinished_[ino]) {
      if (upload->seq == op.seq) upload->seq = seq;
    }
  } else {
    seq = state_.log.Append(std::move(op.op));
  }
  last_change_ = seq;
  state_.promises.Moved(op.seq, seq);
  if (Inode* inode = state_.Find(ino)) Touched(*inode, seq);
}

// Bytes that need no place any more.
void Writeback::Withdraw(Seq seq, SetExtentsOp& op) {
  std::vector<std::shared_ptr<Upload>>& uploads = unfinished_[op.ino];
  for (const auto& upload : uploads) {
    if (upload->seq != seq) continue;
    for (const DirtyRange& range : upload->ranges) op.extents.push_back(InlineExtent(range));
    upload->cancelled = true;
    upload->next_range = upload->ranges.size();  // what an uploader has of it goes on, for nobody
  }
  std::erase_if(uploads, [](const auto& upload) { return upload->cancelled; });
  if (uploads.empty()) unfinished_.erase(op.ino);
}

bool Writeback::Lost(Seq seq) const {
  return std::any_of(lost_.begin(), lost_.end(), [&](const auto& range) { return range.first <= seq && seq <= range.second; });
}

void Writeback::ForgetContent(Inode& inode) {
  if (!inode.map) return;
  state_.EndPromise(inode);
  const uint64_t before = MemoryOf(inode);
  untaken_bytes_ -= std::min(untaken_bytes_, inode.map->dirty_bytes());
  inode.map = std::make_unique<FileMap>(false);
  inode.clear_mode = 0;
  Account(before, 0);
}

}  // namespace archil
