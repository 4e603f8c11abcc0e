// OpLog: the ordered log of a session's acknowledged, not yet durable ops, and the plan of its commits.
// Pure: no locks, clocks or I/O; the caller serialises.
//
// EXT-1: a SetExtents op stands pending where its bytes were taken, until the uploader fills it in; a commit ends
// before the first pending op.
// Absorption: an inode that is born and dies (last name removed or replaced, not open) inside one commit is left out of it, with
// everything that happened to it: birth, death and all between go out together or not at all. What those ops did to other
// inodes stays behind: parents' times as one TouchOp per directory (none for directories absorbed as well), a
// rename by the dying inode over another as the removal of the other, a rename over the dying inode as a plain rename.
// Absorbed ops keep their sequence numbers: a batch stands for first..last whatever it holds.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/api/ops.h"
#include "common/base/ids.h"

namespace archil {

struct CommitBatch {
  Seq first;
  Seq last;
  uint64_t count = 0;  // ops encoded in `ops`
  std::string ops;     // EncodeOps
  uint64_t absorbed_ops = 0;
  std::vector<InodeId> absorbed;  // inodes that never leave this mount
};

struct BatchLimits {
  size_t max_ops = kMaxOpsPerCommit;
  size_t max_bytes = kMaxCommitBytes / 2;
};

class OpLog {
 public:
  explicit OpLog(Seq last_durable = Seq{0}) : next_(last_durable.value + 1), durable_(last_durable) {}

  // Sequence number of the op.
  Seq Append(Op op);
  // A SetExtentsOp whose extents are not known yet.
  Seq AppendPending(SetExtentsOp op);
  // Fills in a pending op, which must not have been filled before.
  void Fill(Seq seq, std::vector<Extent> extents);
  // A pending op whose bytes are not needed (their inode died): it stays in the order and sends nothing.
  void Cancel(Seq seq);

  // The next commit: a prefix of the log up to `upto` at most, ending before the first pending op and within the limits (at least
  // one op if there is one). Encodes, absorbs, and holds the ops as in flight until Committed; nullopt if nothing can be sent.
  // One batch is in flight at a time. A batch with absorbed ops only has count 0 and needs no RPC when
  // nothing else is in flight, but its numbers count: send them with a later batch or commit them empty.
  std::optional<CommitBatch> Plan(Seq upto, const BatchLimits& limits);
  // The batch in flight is durable.
  void Committed(Seq last);

  Seq last() const { return Seq{next_ - 1}; }  // newest acknowledged op
  Seq durable() const { return durable_; }
  uint64_t size() const { return ops_.size(); }
  // Rough size of what waits, encoded.
  uint64_t bytes() const { return bytes_; }
  std::optional<Seq> first_pending() const;

 private:
  struct Item {
    Op op;
    enum class State : uint8_t { kReady, kPending, kCancelled } state = State::kReady;
  };
  std::deque<Item> ops_;  // ops_[i] has number durable_ + 1 + i
  uint64_t next_;
  Seq durable_;
  uint64_t bytes_ = 0;
};

}  // namespace archil
