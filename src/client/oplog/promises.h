// Promises: what this mount has acknowledged on a disk with a quota and the server has not applied yet, against the credit that the
// server gave it (docs/quota.md). Pure: no lock, no clock; the caller serialises. Bytes.
//
// Each promise is an upper bound of what an op will add at the server. On a disk without a quota nothing is counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "common/api/meta_service.h"
#include "common/env/planted.h"

namespace archil {

class Promises {
 public:
  void Count() { counted_ = true; }
  bool counted() const { return counted_; }

  uint64_t promised() const { return dirty_ + in_log_; }
  // What may be promised in all.
  uint64_t limit() const {
    uint64_t limit = credit_.left;
    for (const auto& [id, wanted] : asked_) limit = std::min(limit, wanted);
    return limit;
  }
  bool Fits(uint64_t bytes) const { return !counted_ || bytes == 0 || (promised() <= limit() && bytes <= limit() - promised()); }
  // How many promises were made so far.
  uint64_t made() const { return made_; }

  // Bytes that were written and have no place in the log yet; they get it, or are not needed any more.
  void Dirty(uint64_t bytes) {
    if (Planted(Plant::kPromiseForgotten)) return;
    dirty_ += bytes;
    ++made_;
  }
  void NotDirty(uint64_t bytes) { dirty_ -= std::min(dirty_, bytes); }
  void Logged(Seq op, uint64_t bytes) {
    if (!counted_ || bytes == 0) return;
    ops_.emplace_back(op, bytes);
    in_log_ += bytes;
    ++made_;
  }
  // The op has another place in the log now, at its end.
  void Moved(Seq from, Seq to) {
    const auto it = std::find_if(ops_.begin(), ops_.end(), [&](const auto& op) { return op.first == from; });
    if (it == ops_.end()) return;
    const uint64_t bytes = it->second;
    ops_.erase(it);
    ops_.emplace_back(to, bytes);
  }

  // What an answer of the server says; an older one than was heard already changes nothing.
  void Told(const Credit& credit) {
    if (credit.position <= credit_.position) return;
    credit_ = credit;
    while (!ops_.empty() && ops_.front().first <= credit.applied) {
      in_log_ -= ops_.front().second;
      ops_.pop_front();
    }
  }

  // A reservation is about to be sent: its number. It may take effect until it, or a later one, is answered.
  uint64_t Ask(uint64_t wanted) {
    asked_[++last_id_] = wanted;
    return last_id_;
  }
  void Answered(uint64_t id) { asked_.erase(asked_.begin(), asked_.upper_bound(id)); }

 private:
  bool counted_ = false;
  uint64_t dirty_ = 0;
  uint64_t in_log_ = 0;
  std::deque<std::pair<Seq, uint64_t>> ops_;  // ascending
  Credit credit_;
  std::map<uint64_t, uint64_t> asked_;
  uint64_t last_id_ = 0;
  uint64_t made_ = 0;
};

}  // namespace archil
