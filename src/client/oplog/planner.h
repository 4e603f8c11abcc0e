// The plan of a commit: where it ends, what is absorbed, what stays behind of it. Pure; see docs/oplog.md for why it is right.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client/oplog/lives.h"
#include "common/api/ops.h"
#include "common/api/types.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"

namespace archil {

// Of what is sent; absorbed ops do not count. Never above what the server takes (common/api/types.h).
struct BatchLimits {
  size_t max_ops = kMaxOpsPerCommit;
  size_t max_bytes = kMaxCommitBytes / 2;
};

struct LogItem {
  enum class State : uint8_t { kReady, kPending, kCancelled };
  Op op;
  uint32_t bytes = 0;  // EncodedSize(op)
  State state = State::kReady;
};

// No commit ends after `first` (inclusive) and before `last`: they go into one batch.
struct Stretch {
  Seq first;
  Seq last;
};

// One planning of a batch from the head of the log. Time is linear in the ops that go into the batch and those of
// dying inodes among them; each costs a few hash lookups.
class Planner {
 public:
  // items[i] has number first + i; the plan covers the first `count` items at most, none of which is pending.
  // All are borrowed and outlive the planner.
  Planner(std::deque<LogItem>& items, Seq first, size_t count, const std::deque<Stretch>& stretches, Lives& lives)
      : items_(items), first_(first), count_(count), stretches_(stretches), lives_(lives) {}

  // How many items the batch takes; 0 if none can be sent now. To be called first.
  size_t ChooseEnd(const BatchLimits& limits);

  struct Output {
    uint64_t count = 0;
    std::string ops;
    uint64_t absorbed_ops = 0;
    std::vector<InodeId> absorbed;
  };
  // The encoded batch of what ChooseEnd chose.
  Output Encode();

 private:
  // Of a directory that ops of absorbed inodes changed; indices of items.
  struct Touched {
    ptrdiff_t left_out = -1;  // the last op that changed its entries and is not sent
    ptrdiff_t sent = -1;      // the last op that sets both of its times and is sent
  };
  struct Who {
    Life* owner = nullptr;
    Life* victim = nullptr;
  };
  // What the batch would hold at most if it ended here.
  struct Load {
    uint64_t sent_ops = 0, sent_bytes = 0;  // of ops that are sent wherever it ends
    uint64_t open_ops = 0, open_bytes = 0;  // of inodes whose end has not been seen yet
    uint64_t touched = 0;                   // directories that may need a TouchOp
    bool Fits(uint64_t max_ops, uint64_t max_bytes) const;
    bool SentFits(uint64_t max_ops, uint64_t max_bytes) const;
  };

  Who WhoIs(const Op& op);
  bool GoneBefore(const Life* life, size_t end) const;
  bool Absorbed(const Life* life) const { return GoneBefore(life, end_); }
  void Count(size_t i, const Who& who, Load& load);
  void CountTouched(InodeId directory, Load& load);
  void CountGone(InodeId ino, Life* life, size_t i, Load& load);
  void FindTouched();
  void LeftOut(InodeId directory, size_t i);
  void Sent(InodeId directory, size_t i);
  void SentTimes(const Op& op, size_t i);
  void EncodeItem(size_t i, Output& out, ByteWriter& bytes);
  void EncodeRemains(size_t i, Output& out, ByteWriter& bytes);
  void EncodeTouch(InodeId directory, size_t i, Timestamp now, Output& out, ByteWriter& bytes);

  std::deque<LogItem>& items_;
  const Seq first_;
  const size_t count_;
  const std::deque<Stretch>& stretches_;
  Lives& lives_;
  size_t end_ = 0;
  std::vector<Who> who_;  // of the items looked at
  absl::flat_hash_map<InodeId, Touched> touched_;
};

}  // namespace archil
