// OpGen: a seeded stream of steps over a small universe of names, aimed at what broke other file systems: lock
// files, write-temp-then-rename, trees removed after churn, hard links, replaced open files, chunk boundaries,
// removed directories in use, files that are born and die unseen. About one step in ten is meant to fail.
// One seed and profile give the same stream for the same states of the reference.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/env/random.h"
#include "tests/support/model_op.h"
#include "tests/support/ref_state.h"

namespace archil::test {

struct GenProfile {
  bool callers = true;      // names are made by several users (else root)
  bool kill_set_id = true;  // writes that clear set-id bits
  bool exchange_dirs = true;
  size_t max_xattr = 4000;  // bytes of one value
  uint64_t max_file = 3 << 20;
  size_t max_inodes = 120;  // removes more than it makes above this
  // Weights of the steps of the run itself, in a thousand.
  int sync = 4;
  int fsync = 25;
  int drop_caches = 8;
  int compare = 8;
  int remount = 0;
  int crash_client = 0;
  int restart_server = 0;
  int crash_server = 0;
  int crash_both = 0;
};

class OpGen {
 public:
  OpGen(uint64_t seed, const GenProfile& profile);
  ModelOp Next(const RefState& state);

 private:
  struct Entry {
    std::string path;
    InodeId ino;
    FileType type;
  };

  bool Chance(uint64_t per_mille) { return random_->Below(1000) < per_mille; }
  template <class C>
  const auto& Pick(const C& from) {
    return from[random_->Below(std::size(from))];
  }
  void Scan(const RefState& state);
  void ScanDir(const RefState& state, InodeId dir, const std::string& path);

  std::string AnyName();
  std::string AnyDir();
  std::string AnyOf(FileType type);
  std::string AnyPath();    // of something that exists
  std::string NewPath();    // of something that may not
  std::string FreshPath();  // of something that does not
  int AnySlot();
  int OpenSlot();
  uint64_t AnyOffset();
  uint64_t AnyLength();
  uint64_t AnySize();
  Timestamp AnyTime();
  ModelOp Op(OpKind kind, std::string path = {});
  ModelOp Write(int slot, uint64_t offset, uint64_t length);
  ModelOp Make(OpKind kind);
  ModelOp Open(const std::string& path, int flags);
  ModelOp CreateFile(const std::string& path, int flags);
  ModelOp Attribute();
  ModelOp Data();
  ModelOp Xattr();
  ModelOp Rename();
  ModelOp Single();
  ModelOp RunStep(bool* found);
  void Push(ModelOp op) { queue_.push_back(std::move(op)); }

  void Pattern(const RefState& state);
  void LockFiles();
  void TempThenRename();
  void RemoveTree(const RefState& state);
  void SmallFiles();
  void HardLinks();
  void ReplaceOpenFile();
  void TruncateDownUp();
  void MoveAncestor();
  void ShortLived();
  void Database();
  void RemovedDirectory();
  void Boundaries();

  std::unique_ptr<Random> random_;
  GenProfile profile_;
  std::vector<Entry> all_;  // of the state scanned last; [0] is the root
  std::deque<ModelOp> queue_;
  uint64_t counter_ = 0;
};

}  // namespace archil::test
