#include "client/delegation/rights.h"
#include "common/env/planted.h"

#include <algorithm>

namespace archil {
namespace {

constexpr size_t kEnded = 4096;

}  // namespace

Right Rights::Of(InodeId ino) const {
  if (alone_) return Right::kWrite;
  const auto it = records_.find(ino);
  return it == records_.end() ? Right::kNone : it->second.right;
}

uint64_t Rights::NumberOf(InodeId ino) const {
  const auto it = records_.find(ino);
  return it == records_.end() ? 0 : it->second.number;
}

BootTime Rights::SinceOf(InodeId ino) const {
  const auto it = records_.find(ino);
  return it == records_.end() ? BootTime{} : it->second.since;
}

bool Rights::Install(InodeId ino, Right right, uint64_t number, BootTime now) {
  if (const auto it = given_up_.find(ino); it != given_up_.end() && number < it->second && !Planted(Plant::kRecallOvertakesGrant)) {
    return false;
  }
  Record& record = records_[ino];
  if (record.right == Right::kNone) record.since = now;
  record.right = Stronger(record.right, right);
  record.number = std::max(record.number, number);
  return true;
}

void Rights::Born(InodeId ino, BootTime now) {
  if (alone_) return;
  Record& record = records_[ino];
  if (record.right == Right::kNone) record.since = now;
  record.right = Right::kWrite;
}

Right Rights::RightOf(InodeId ino, InodeId home) const {
  const Right own = Of(ino);
  return home ? Stronger(own, Of(home)) : own;
}

bool Rights::MayChange(InodeId ino, InodeId home) const {
  if (alone_) return true;
  const auto closed = [this](InodeId i) {
    const auto it = recalls_.find(i);
    return it != recalls_.end() && it->second.closed;
  };
  if (closed(ino)) return false;
  if (const auto it = recalls_.find(ino); it != recalls_.end() && it->second.names_closed) return false;
  if (Of(ino) == Right::kWrite) return true;
  return home && Of(home) == Right::kWrite && !closed(home);
}

bool Rights::MayCache(InodeId ino, InodeId home) const {
  if (alone_) return true;
  const auto going = [this](InodeId i) {
    const auto it = recalls_.find(i);
    return it != recalls_.end() && it->second.keep == Right::kNone;
  };
  if (going(ino)) return false;
  if (Of(ino) != Right::kNone) return true;
  return home && Of(home) != Right::kNone && !going(home);
}

bool Rights::ReadsWait(InodeId ino, InodeId home) const {
  if (alone_ || recalls_.empty()) return false;
  const auto closed = [this](InodeId i) {
    const auto it = recalls_.find(i);
    return it != recalls_.end() && it->second.closed && it->second.keep == Right::kNone;
  };
  return closed(ino) || (home && Of(ino) == Right::kNone && closed(home));
}

void Rights::BeginRecall(InodeId ino, Right keep) { recalls_[ino] = Recall{keep, false, false}; }

void Rights::CloseNames(InodeId ino) { recalls_[ino].names_closed = true; }

void Rights::Close(InodeId ino) { recalls_[ino].closed = true; }

void Rights::GaveUp(InodeId ino, Right keep, uint64_t message) {
  recalls_.erase(ino);
  if (keep == Right::kNone) {
    records_.erase(ino);
  } else {
    records_[ino] = Record{keep, message, SinceOf(ino)};
  }
  given_up_[ino] = message;
  ended_[ino] = message;
  ended_order_.emplace_back(ino, message);
  if (ended_order_.size() <= kEnded) return;
  const auto [oldest, number] = ended_order_.front();
  ended_order_.pop_front();
  if (const auto it = ended_.find(oldest); it->second == number) ended_.erase(it);
}

bool Rights::Ended(InodeId ino, uint64_t grant) const {
  const auto it = ended_.find(ino);
  return it != ended_.end() && grant < it->second;
}

void Rights::EndAlone(const std::vector<HeldRight>& keeps, uint64_t message, BootTime now) {
  alone_ = false;
  records_.clear();
  for (const HeldRight& held : keeps) records_[held.ino] = Record{held.right, message, now};
}

void Rights::Renumber(uint64_t number) {
  for (auto& [ino, record] : records_) record.number = number;
  given_up_.clear();
}

std::vector<HeldRight> Rights::All() const {
  std::vector<HeldRight> all;
  all.reserve(records_.size());
  for (const auto& [ino, record] : records_) all.push_back({ino, record.right});
  std::sort(all.begin(), all.end(), [](const HeldRight& a, const HeldRight& b) { return a.ino < b.ino; });
  return all;
}

}  // namespace archil
