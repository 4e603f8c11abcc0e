// OpLog: the ordered log of a session's acknowledged, not yet durable ops, and the plan of its commits.
// Pure: no locks, clocks or I/O; the caller serialises. The reasoning is in docs/oplog.md.
//
// EXT-1: a SetExtents op stands pending where its bytes were taken, until the uploader fills it in; a commit ends
// before the first pending op.
// Absorption: an inode that is born and dies (last name removed or replaced, not open any more) inside one commit is left out of
// it, with everything that happened to it: birth, death and all between go out together or not at all. What those ops did to
// other inodes stays behind: parents' times as one TouchOp per directory (none for directories absorbed as well, or changed again
// later in the batch), a rename by the dying inode over another as the removal of the other, a rename over the
// dying inode as a plain rename.
// Absorbed ops keep their sequence numbers: a batch stands for first..last whatever it holds, and never holds more ops than that.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "client/oplog/lives.h"
#include "client/oplog/planner.h"
#include "common/api/ops.h"
#include "common/base/ids.h"

namespace archil {

struct CommitBatch {
  Seq first;
  Seq last;
  uint64_t count = 0;  // ops encoded in `ops`
  std::string ops;     // EncodeOps; valid (of no ops) also when count is 0
  uint64_t absorbed_ops = 0;
  std::vector<InodeId> absorbed;  // inodes that never leave this mount
};

class OpLog {
 public:
  explicit OpLog(Seq last_durable = Seq{0}) : next_(last_durable.value + 1), durable_(last_durable) {}

  // Sequence number of the op.
  Seq Append(Op op);
  // A SetExtentsOp whose extents are not known yet.
  Seq AppendPending(SetExtentsOp op);
  // Fills in a pending op, which must not have been filled or cancelled before.
  void Fill(Seq seq, std::vector<Extent> extents);
  // A pending op whose bytes are not needed, because its inode died: to be called when the op by which it died (the removal of the
  // last name, or ReleaseOrphanOp if it was open) has been appended. True: the op stays in the order and sends nothing, and no
  // commit will end between it and what is the newest op now (ORD-2: the server must not show the inode without the bytes).
  // False: it cannot be promised that those go into one commit; the op stays pending and its bytes must be uploaded as ever.
  [[nodiscard]] bool Cancel(Seq seq);

  // `seq` removed the last name of an inode that was in use; its use has ended, and no later op touches it. True: that op says so
  // now, and it is as if it had not been in use. False: the op is on its way to the server, a ReleaseOrphanOp is needed.
  [[nodiscard]] bool UseEnded(Seq seq);

  // The next commit: a prefix of the log up to `upto` at most (up to Reach(upto), if that is later), ending before the first
  // pending op, the longest whose ops that are really sent fit the limits; at least one op if there is one. Encodes, absorbs, and
  // holds the ops as in flight until Committed; nullopt if nothing can be sent now, or a batch is in flight.
  // A batch with absorbed ops only has count 0; its numbers count all the same: commit it empty, or call Committed at once if no
  // RPC is wanted and the server is told the numbers by the next commit.
  std::optional<CommitBatch> Plan(Seq upto, const BatchLimits& limits);
  // The batch in flight, which ends at `last`, is durable.
  void Committed(Seq last);

  // --- FENCE-1: the newest ops are lost (docs/delegation.md)
  // The batch in flight is not, or not known to be, committed: it is planned anew.
  void GiveUpPlan() { in_flight_ = Seq{}; }
  // The server has applied what was in flight once, though no answer said so. Nothing is in flight.
  void Applied(Seq last);
  // A loss that takes `first` takes this op and all after it: a stretch goes as a whole.
  Seq LossFrom(Seq first) const;
  // In order, without what was cancelled. Their numbers stay used: they are committed as nothing. `from` as LossFrom gives it; nothing
  // is in flight. The bytes of pending ones are the caller's to add.
  struct LostOp {
    Seq seq;
    Op op;
    bool pending = false;
  };
  std::vector<LostOp> Lose(Seq from);
  // Calls fn(seq, op) in order until it returns true.
  template <class Fn>
  void ForOps(const Fn& fn) const {
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (ops_[i].state != LogItem::State::kCancelled && fn(Seq{durable_.value + 1 + i}, ops_[i].op)) return;
    }
  }

  Seq last() const { return Seq{next_ - 1}; }  // newest acknowledged op
  Seq durable() const { return durable_; }
  uint64_t size() const { return ops_.size(); }
  // Size of what waits, encoded, without absorption; pending ops count without their extents.
  uint64_t bytes() const { return bytes_; }
  // Inodes born in what waits: kept in memory until their birth is durable or absorbed.
  uint64_t births() const { return lives_.size(); }
  std::optional<Seq> first_pending() const;
  // The last op that must be ready before `upto` can be committed: `upto`, or the end of the stretch around it that Cancel
  // made indivisible. May grow while ops are cancelled.
  Seq Reach(Seq upto) const;

 private:
  LogItem& at(Seq seq) { return ops_[seq.value - durable_.value - 1]; }
  Seq Push(Op op, LogItem::State state);
  void Settled();
  void Pop(Seq last);

  std::deque<LogItem> ops_;  // ops_[i] has number durable_ + 1 + i
  uint64_t next_;
  Seq durable_;
  uint64_t bytes_ = 0;
  Seq in_flight_;             // last op of the batch in flight; 0: none
  Seq planned_;               // newest op that was ever in flight: the server may have it
  std::deque<Seq> pending_;   // ascending; the front one is pending, later ones may be settled
  std::deque<Stretch> stretches_;  // ascending, apart
  Lives lives_;
};

}  // namespace archil
