#include "client/oplog/planner.h"

#include <algorithm>
#include <utility>

#include "client/oplog/op_facts.h"
#include "common/env/planted.h"
#include "common/format/op_codec.h"

namespace archil {
namespace {

// Kind, length, inode and two times, at their longest.
constexpr uint64_t kTouchBytes = 2 + 10 + 2 * 15;
// Version and count of a batch.
constexpr uint64_t kHeaderBytes = 1 + 10;

// A rename over another inode cannot be left out altogether, whoever moved.
bool Replaces(const Op& op) {
  const auto* rename = std::get_if<RenameOp>(&op);
  return rename != nullptr && rename->mode != RenameOp::Mode::kExchange && rename->victim;
}

Timestamp NowOf(const Op& op) {
  return std::visit(
      [](const auto& o) {
        if constexpr (requires { o.now; }) {
          return o.now;
        } else {
          return Timestamp{};
        }
      },
      op);
}

}  // namespace

bool Planner::Load::SentFits(uint64_t max_ops, uint64_t max_bytes) const {
  return sent_ops <= max_ops && sent_bytes + kHeaderBytes <= max_bytes;
}

bool Planner::Load::Fits(uint64_t max_ops, uint64_t max_bytes) const {
  return sent_ops + open_ops + touched <= max_ops &&
         sent_bytes + open_bytes + touched * kTouchBytes + kHeaderBytes <= max_bytes;
}

Planner::Who Planner::WhoIs(const Op& op) {
  Who who;
  if (lives_.size() == 0) return who;
  who.owner = lives_.Find(OwnerOf(op));
  if (Replaces(op)) who.victim = lives_.Find(std::get<RenameOp>(op).victim);
  return who;
}

bool Planner::GoneBefore(const Life* life, size_t end) const {
  return life != nullptr && life->absorbable() && life->oldest >= first_ && life->gone.value < first_.value + end;
}

size_t Planner::ChooseEnd(const BatchLimits& limits) {
  const uint64_t max_ops = std::min(limits.max_ops, kMaxOpsPerCommit);
  const uint64_t max_bytes = std::min(limits.max_bytes, kMaxCommitBytes);
  size_t best = 0;      // the longest end that fits and is allowed
  size_t shortest = 0;  // the first end that is allowed and that the server takes
  size_t forced = 0;    // the longest end that the server takes
  bool allowed = false;
  Load load;
  auto stretch = stretches_.begin();
  who_.clear();
  touched_.clear();
  for (size_t i = 0; i < count_; i++) {
    const uint64_t seq = first_.value + i;
    who_.push_back(WhoIs(items_[i].op));
    Count(i, who_.back(), load);
    while (stretch != stretches_.end() && stretch->last.value <= seq) ++stretch;
    allowed = stretch == stretches_.end() || seq < stretch->first.value;
    const bool server_takes = load.Fits(kMaxOpsPerCommit, kMaxCommitBytes);
    if (allowed && load.Fits(max_ops, max_bytes)) best = i + 1;
    if (allowed && shortest == 0 && server_takes) shortest = i + 1;
    if (server_takes) forced = i + 1;
    // What is sent anyway only grows: no later end can fit.
    const bool later_may_fit = load.SentFits(max_ops, max_bytes) ||
                               (best == 0 && shortest == 0 && load.SentFits(kMaxOpsPerCommit, kMaxCommitBytes));
    if (!later_may_fit) break;
  }
  end_ = best != 0 ? best : shortest;
  // A stretch whose end is not ready yet is waited for. One that does not fit into any commit must be cut: a crash between the
  // two halves may then show an inode without bytes that were cancelled.
  const bool waits = who_.size() == count_ && !allowed;
  if (end_ == 0 && !waits) end_ = std::max<size_t>(forced, 1);
  return end_;
}

void Planner::Count(size_t i, const Who& who, Load& load) {
  const LogItem& item = items_[i];
  if (item.state == LogItem::State::kCancelled) return;
  const bool dies = GoneBefore(who.owner, count_);
  if (std::holds_alternative<CreateOp>(item.op) && who.owner != nullptr) {
    who.owner->plan_ops = 0;
    who.owner->plan_bytes = 0;
  }
  if (dies && !Replaces(item.op)) {
    who.owner->plan_ops++;
    who.owner->plan_bytes += item.bytes;
    load.open_ops++;
    load.open_bytes += item.bytes;
  } else {
    load.sent_ops++;
    load.sent_bytes += item.bytes;
  }
  if (dies) {
    const EntryDirs dirs = EntryDirsOf(item.op);
    if (dirs.from) CountTouched(dirs.from, load);
    if (dirs.to && dirs.to != dirs.from) CountTouched(dirs.to, load);
    CountGone(OwnerOf(item.op), who.owner, i, load);
  }
  if (GoneBefore(who.victim, count_)) CountGone(std::get<RenameOp>(item.op).victim, who.victim, i, load);
}

void Planner::CountTouched(InodeId directory, Load& load) {
  if (touched_.try_emplace(directory).second) load.touched++;
}

// If this op is the end of the inode, a batch that reaches so far leaves it out.
void Planner::CountGone(InodeId ino, Life* life, size_t i, Load& load) {
  if (life->gone.value != first_.value + i) return;
  load.open_ops -= life->plan_ops;
  load.open_bytes -= life->plan_bytes;
  if (life->directory && touched_.contains(ino)) load.touched--;
}

void Planner::LeftOut(InodeId directory, size_t i) {
  if (directory && !Absorbed(lives_.Find(directory))) touched_[directory].left_out = static_cast<ptrdiff_t>(i);
}

void Planner::Sent(InodeId directory, size_t i) {
  const auto it = touched_.find(directory);
  if (it != touched_.end()) it->second.sent = static_cast<ptrdiff_t>(i);
}

// Ops that are sent and after which earlier times of a directory cannot be seen any more.
void Planner::SentTimes(const Op& op, size_t i) {
  const EntryDirs dirs = EntryDirsOf(op);
  if (dirs.from) Sent(dirs.from, i);
  if (dirs.to) Sent(dirs.to, i);
  if (const auto* set = std::get_if<SetAttrOp>(&op); set != nullptr && (set->fields & SetAttrOp::kMtime)) {
    Sent(set->ino, i);
  } else if (const auto* touch = std::get_if<TouchOp>(&op)) {
    Sent(touch->ino, i);
  } else if (const auto* rmdir = std::get_if<RmdirOp>(&op); rmdir != nullptr && !rmdir->still_open) {
    Sent(rmdir->ino, i);
  }
}

void Planner::FindTouched() {
  touched_.clear();
  for (size_t i = 0; i < end_; i++) {
    const Op& op = items_[i].op;
    if (!Absorbed(who_[i].owner)) {
      if (!touched_.empty()) SentTimes(op, i);
      continue;
    }
    const EntryDirs dirs = EntryDirsOf(op);
    LeftOut(dirs.from, i);
    LeftOut(dirs.to, i);
  }
}

Planner::Output Planner::Encode() {
  FindTouched();
  Output out;
  ByteWriter bytes;
  for (size_t i = 0; i < end_; i++) {
    const Op& op = items_[i].op;
    if (Planted(Plant::kExtentsLast) && std::holds_alternative<SetExtentsOp>(op)) continue;
    const bool half = Planted(Plant::kHalfOfPair) && std::holds_alternative<UnlinkOp>(op);
    if (Absorbed(who_[i].owner) && !half) {
      out.absorbed_ops++;
      if (const auto* create = std::get_if<CreateOp>(&op)) out.absorbed.push_back(create->ino);
      EncodeRemains(i, out, bytes);
    } else if (items_[i].state != LogItem::State::kCancelled) {
      EncodeItem(i, out, bytes);
    }
  }
  for (size_t i = 0; Planted(Plant::kExtentsLast) && i < end_; i++) {
    const bool sent = !Absorbed(who_[i].owner) && items_[i].state != LogItem::State::kCancelled;
    if (sent && std::holds_alternative<SetExtentsOp>(items_[i].op)) EncodeItem(i, out, bytes);
  }
  out.ops = bytes.Take();
  out.ops.insert(0, EncodeOpsHeader(out.count));
  return out;
}

void Planner::EncodeItem(size_t i, Output& out, ByteWriter& bytes) {
  const Op& op = items_[i].op;
  out.count++;
  if (!Absorbed(who_[i].victim)) return EncodeOp(op, bytes);
  RenameOp plain = std::get<RenameOp>(op);  // the victim was never there
  plain.victim = InodeId{};
  plain.victim_still_open = false;
  EncodeOp(Op(std::move(plain)), bytes);
}

// What an op of an absorbed inode did to others.
void Planner::EncodeRemains(size_t i, Output& out, ByteWriter& bytes) {
  const Op& op = items_[i].op;
  if (Replaces(op) && !Absorbed(who_[i].victim)) {
    const auto& rename = std::get<RenameOp>(op);
    out.count++;
    if (who_[i].owner->directory) {
      EncodeOp(RmdirOp{rename.new_parent, rename.new_name, rename.victim, rename.victim_still_open, rename.now}, bytes);
    } else {
      EncodeOp(UnlinkOp{rename.new_parent, rename.new_name, rename.victim, rename.victim_still_open, rename.now}, bytes);
    }
  }
  const EntryDirs dirs = EntryDirsOf(op);
  if (dirs.from) EncodeTouch(dirs.from, i, NowOf(op), out, bytes);
  if (dirs.to && dirs.to != dirs.from) EncodeTouch(dirs.to, i, NowOf(op), out, bytes);
}

void Planner::EncodeTouch(InodeId directory, size_t i, Timestamp now, Output& out, ByteWriter& bytes) {
  const auto it = touched_.find(directory);
  if (it == touched_.end()) return;
  if (it->second.left_out != static_cast<ptrdiff_t>(i) || it->second.sent >= it->second.left_out) return;
  out.count++;
  EncodeOp(TouchOp{directory, now, now}, bytes);
}

}  // namespace archil
