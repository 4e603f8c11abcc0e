#include "client/oplog/op_log.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/format/op_codec.h"

namespace archil {
namespace {

// Half of what one commit may hold: the other half is for TouchOps and for ops that came in between.
constexpr uint64_t kMaxStretch = kMaxOpsPerCommit / 2;

}  // namespace

Seq OpLog::Push(Op op, LogItem::State state) {
  const Seq seq{next_++};
  lives_.Appended(op, seq);
  const auto bytes = static_cast<uint32_t>(EncodedSize(op));
  bytes_ += bytes;
  ops_.push_back(LogItem{std::move(op), bytes, state});
  return seq;
}

Seq OpLog::Append(Op op) { return Push(std::move(op), LogItem::State::kReady); }

Seq OpLog::AppendPending(SetExtentsOp op) {
  const Seq seq = Push(std::move(op), LogItem::State::kPending);
  pending_.push_back(seq);
  return seq;
}

void OpLog::Fill(Seq seq, std::vector<Extent> extents) {
  ARCHIL_CHECK(seq > durable_ && seq <= last());
  LogItem& item = at(seq);
  ARCHIL_CHECK(item.state == LogItem::State::kPending);
  std::get<SetExtentsOp>(item.op).extents = std::move(extents);
  item.state = LogItem::State::kReady;
  const auto bytes = static_cast<uint32_t>(EncodedSize(item.op));
  bytes_ = bytes_ - item.bytes + bytes;
  item.bytes = bytes;
  Settled();
}

bool OpLog::Cancel(Seq seq) {
  ARCHIL_CHECK(seq > durable_ && seq <= last());
  LogItem& item = at(seq);
  ARCHIL_CHECK(item.state == LogItem::State::kPending);
  // Stretches that meet become one.
  Seq first = seq;
  auto meets = stretches_.end();
  while (meets != stretches_.begin() && std::prev(meets)->last >= seq) {
    --meets;
    first = std::min(first, meets->first);
  }
  if (last().value - first.value >= kMaxStretch) return false;
  stretches_.erase(meets, stretches_.end());
  stretches_.push_back(Stretch{first, last()});
  item.state = LogItem::State::kCancelled;
  Settled();
  return true;
}

bool OpLog::UseEnded(Seq seq) {
  if (seq <= std::max(durable_, planned_)) return false;
  LogItem& item = at(seq);
  if (auto* unlink = std::get_if<UnlinkOp>(&item.op)) {
    unlink->still_open = false;
    lives_.UseEnded(unlink->parent, unlink->ino, seq);
  } else if (auto* rename = std::get_if<RenameOp>(&item.op)) {
    rename->victim_still_open = false;
    lives_.UseEnded(rename->new_parent, rename->victim, seq);
  } else {
    return false;
  }
  const auto bytes = static_cast<uint32_t>(EncodedSize(item.op));
  bytes_ = bytes_ - item.bytes + bytes;
  item.bytes = bytes;
  return true;
}

void OpLog::Settled() {
  while (!pending_.empty() && at(pending_.front()).state != LogItem::State::kPending) pending_.pop_front();
}

std::optional<Seq> OpLog::first_pending() const {
  if (pending_.empty()) return std::nullopt;
  return pending_.front();
}

Seq OpLog::Reach(Seq upto) const {
  const auto after = std::lower_bound(stretches_.begin(), stretches_.end(), upto,
                                      [](const Stretch& s, Seq seq) { return s.last < seq; });
  if (after == stretches_.end() || upto < after->first) return upto;
  return after->last;
}

std::optional<CommitBatch> OpLog::Plan(Seq upto, const BatchLimits& limits) {
  if (in_flight_) return std::nullopt;
  Seq end = Reach(std::min(upto, last()));
  if (!pending_.empty()) end = std::min(end, Seq{pending_.front().value - 1});
  if (end <= durable_) return std::nullopt;
  const Seq first{durable_.value + 1};
  Planner planner(ops_, first, end.value - durable_.value, stretches_, lives_);
  const size_t count = planner.ChooseEnd(limits);
  if (count == 0) return std::nullopt;
  Planner::Output output = planner.Encode();
  in_flight_ = Seq{durable_.value + count};
  planned_ = std::max(planned_, in_flight_);
  return CommitBatch{.first = first,
                     .last = in_flight_,
                     .count = output.count,
                     .ops = std::move(output.ops),
                     .absorbed_ops = output.absorbed_ops,
                     .absorbed = std::move(output.absorbed)};
}

void OpLog::Committed(Seq last) {
  ARCHIL_CHECK(in_flight_ && last == in_flight_);
  Pop(last);
  in_flight_ = Seq{};
}

void OpLog::Pop(Seq last) {
  while (durable_ < last) {
    bytes_ -= ops_.front().bytes;
    lives_.Sent(ops_.front().op);
    ops_.pop_front();
    durable_.value++;
  }
  while (!stretches_.empty() && stretches_.front().last <= durable_) stretches_.pop_front();
  // Only a stretch that no commit could hold was cut; the rest of it stays together.
  if (!stretches_.empty() && stretches_.front().first <= durable_) stretches_.front().first = Seq{durable_.value + 1};
}

void OpLog::Applied(Seq last) {
  ARCHIL_CHECK(!in_flight_ && last <= this->last());
  ARCHIL_CHECK(pending_.empty() || last < pending_.front());
  Pop(last);
}

Seq OpLog::LossFrom(Seq first) const {
  for (const Stretch& s : stretches_) {
    if (s.first < first && first <= s.last) return s.first;
  }
  return first;
}

std::vector<OpLog::LostOp> OpLog::Lose(Seq from) {
  ARCHIL_CHECK(!in_flight_ && from > durable_);
  std::vector<LostOp> lost;
  for (Seq seq = from; seq <= last(); ++seq.value) {
    LogItem& item = at(seq);
    if (item.state != LogItem::State::kCancelled) lost.push_back({seq, std::move(item.op), item.state == LogItem::State::kPending});
    bytes_ -= item.bytes;
    item = LogItem{ReleaseOrphanOp{}, 0, LogItem::State::kCancelled};
  }
  while (!pending_.empty() && pending_.back() >= from) pending_.pop_back();
  while (!stretches_.empty() && stretches_.back().first >= from) stretches_.pop_back();
  lives_ = Lives();
  for (size_t i = 0; i < from.value - durable_.value - 1; ++i) lives_.Appended(ops_[i].op, Seq{durable_.value + 1 + i});
  return lost;
}

}  // namespace archil
