// Runs a sequence of ops twice: one by one into a namespace, and through an OpLog in commits into another. After each commit
// both must be in the same state, whatever was absorbed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/oplog/op_log.h"
#include "tests/unit/client/oplog/tiny_namespace.h"

namespace archil {

// SetExtentsOps of a script are appended as pending ones, with their extents filled in later or cancelled.
using Script = std::vector<Op>;

// What may come next, every op of it valid in `ns`; deterministic. The new inode, if any, is `next`; `step` makes times.
struct Universe {
  std::vector<std::string> names = {"a", "b"};
  bool links = true;
  bool exchanges = true;
  bool open_files = true;    // removals of inodes that are still open, and their releases
  bool attributes = true;    // setattr of directories and files, xattrs, truncation
  bool inner_directories = true;  // entries in directories of the script
};
std::vector<Op> PossibleOps(const TinyNamespace& ns, const Universe& universe, InodeId next, int step);
// Root, an empty directory 2 at "/d" and, if `with_file`, a file 3 at "/a". Inodes of scripts start at 10.
TinyNamespace StartState(bool with_file);
std::string Describe(const Op& op);
std::string Describe(const Script& script);

class LogCheck {
 public:
  // Which pending ops of an inode that dies are cancelled: bit (seq % 64) of the mask.
  explicit LogCheck(const TinyNamespace& start, uint64_t cancel_mask = ~0ULL);
  // With the reference's states known beforehand: the start, and that after each op. Borrowed.
  explicit LogCheck(const std::vector<TinyNamespace>* states);

  // Applies the op to the reference and appends it. The op must be valid.
  void Append(const Op& op);
  // The orphan is in use no more, if its last name's removal can still say so; false: not, a ReleaseOrphanOp is needed. Only with states
  // of its own.
  bool EndUse(InodeId ino);
  // Fills the oldest `count` pending ops.
  void Fill(size_t count);
  // Plans once and commits. False if there was nothing to commit, or after a failure.
  bool Commit(Seq upto, const BatchLimits& limits);
  // FENCE-1: the ops from `first` on are lost, with those that cannot be divided from it. The reference's state after that.
  TinyNamespace Lose(Seq first);
  // Fills everything and commits until all is durable.
  void Drain(const BatchLimits& limits);

  OpLog& log() { return log_; }
  // Empty while everything agrees.
  const std::string& failure() const { return failure_; }
  uint64_t absorbed_ops = 0;
  uint64_t absorbed_inodes = 0;
  uint64_t sent_ops = 0;
  uint64_t commits = 0;
  uint64_t cancelled = 0;
  uint64_t lost = 0;
  uint64_t ends_of_use = 0;

 private:
  void CancelDead();
  bool Check(const CommitBatch& batch, const BatchLimits& limits);
  bool Fail(std::string what);

  OpLog log_;
  bool Reference(const Op& op);
  const TinyNamespace& state(uint64_t n) const { return states_ != nullptr ? (*states_)[n] : own_states_[n]; }

  std::vector<TinyNamespace> own_states_;  // [n]: after op n
  const std::vector<TinyNamespace>* states_ = nullptr;
  TinyNamespace server_;
  uint64_t cancel_mask_;
  std::map<Seq, SetExtentsOp> pending_;
  std::map<InodeId, Seq> orphaned_;  // by the op that removed the last name; not those that an op touched since
  std::string failure_;
};

}  // namespace archil
