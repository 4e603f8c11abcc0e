// Lives: of the inodes born in the log and not yet sent, which are gone again, and which may be absorbed.
// It sees every op once, when it is appended, so that planning a commit needs no look at what it does not send.
// Pure; the caller serialises.
//
// An inode may be absorbed (`gone` set, not `barred`) when every op that names it can be left out:
//   - all of its names are gone and nothing has it open (a removal with still_open counts from its ReleaseOrphanOp on);
//   - it took no part in an exchange;
//   - a directory: every inode that left it was absorbable and gone in the same step. One that moved out, has a name elsewhere
//     or was still open needs the directory at the server until later than the directory's own end;
//     (so `oldest`, the oldest birth among it and them, must be in the same commit as its end);
//   - it replaced an inode by a rename between directories at most once: that leaves two ops behind, and
//     a batch must not hold more ops than numbers.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "common/api/ops.h"
#include "common/base/ids.h"

namespace archil {

struct Life {
  Seq oldest;  // its own birth, or an older one of an inode that left this directory
  Seq gone;    // the op by which it was gone; 0: it lives
  uint32_t names = 1;
  bool directory = false;
  bool barred = false;
  bool orphan = false;   // no name, but open
  uint32_t awaited = 0;  // a directory: orphans that left it and may yet turn out to have been gone in that step (UseEnded)
  bool crossed = false;  // replaced another by a rename between directories
  // Scratch of the planner: what leaving it out saves, of the ops seen so far.
  uint64_t plan_ops = 0;
  uint64_t plan_bytes = 0;

  // Given that the commit holds all from `oldest` to `gone`.
  bool absorbable() const { return gone && !barred && awaited == 0; }
};

class Lives {
 public:
  void Appended(const Op& op, Seq seq);
  // The op `seq` took the last name, in `parent`, of an orphan; it was the inode's end after all.
  void UseEnded(InodeId parent, InodeId ino, Seq seq);
  // The op is durable at the server: who was born by it is no longer ours to absorb.
  void Sent(const Op& op);

  // Null if it was not born in the log. Valid until the next Appended or Sent.
  Life* Find(InodeId ino);
  size_t size() const { return lives_.size(); }

 private:
  void Removed(InodeId parent, InodeId ino, bool still_open, Seq seq);
  void Renamed(const RenameOp& op, Seq seq);
  void Bar(InodeId ino);
  // `ino` left `parent` with the op `seq`.
  void Left(InodeId parent, InodeId ino, Seq seq);

  absl::flat_hash_map<InodeId, Life> lives_;
};

}  // namespace archil
