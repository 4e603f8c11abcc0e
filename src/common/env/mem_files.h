// MemFiles: a file system in memory that is stricter than a real one. It keeps what was written and what
// was synced apart, for bytes and for directory entries alike, and Crash takes away as much of the difference as a power
// cut may: each unsynced write of a file is kept, lost, or torn at 512-byte boundaries of the file; each
// unsynced change of a directory entry is kept or lost, on its own (a rename is two changes).
//
// For tests of crashes: steps are counted (a step is one write, truncate, sync, or change of a directory entry), and FailAfter stops
// the machine at any of them. Directories are durable when MakeDirs returns, and only they. A name lives
// in a directory that must exist. Paths: "/a/b"; relative ones start at the root. Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/env/files.h"
#include "common/env/random.h"
#include "common/env/sched.h"

namespace archil {

class MemFiles final : public Files {
 public:
  enum class Call : uint8_t { kOpen, kRead, kWrite, kTruncate, kSync, kSyncDir, kRemove, kRename, kLink };

  MemFiles();
  ~MemFiles() override;

  // The power is cut: unsynced state is dropped as `random` decides, then the machine is up again. File
  // objects and locks from before are dead: they answer kIo. Everything kept is durable.
  void Crash(Random& random);
  // The process is killed and the machine goes on: File objects and locks are dead, unsynced state stays, and
  // stays unsynced. Ends what FailAfter began, as Crash does.
  void KillProcess();
  // The machine stops at the step after `steps` more ones: that step may have reached the disk or not (Crash decides), it
  // and every later call answer kIo until Crash. FailAfter(0): the next step fails.
  void FailAfter(uint64_t steps);
  void NeverFail();
  // True if the point of FailAfter was reached and Crash has not been called since.
  bool stopped() const;
  // Steps done since the beginning.
  uint64_t steps() const;
  // Called at every step, before it happens, with its kind and path, from the thread that makes it and with
  // no lock held. Empty: none. Set it while nobody uses the files.
  void OnStep(std::function<void(Call call, const std::string& path)> hook);

  // The next call of this kind on a path that contains `path_part` fails with `code`, after `skip` that
  // do not. A sync that fails so loses an arbitrary part of what it should have made durable, for good: no later sync
  // brings it back (as Linux does); reads still see it until the crash.
  void FailNext(Call call, std::string path_part, Code code, uint64_t skip = 0);
  // Bound on the sizes of all files, in bytes; what would pass it answers kNoSpace and changes nothing.
  void SetCapacity(uint64_t bytes);
  uint64_t used_bytes() const;
  // Damages stored bytes behind everybody's back: flips bits of the byte at `offset`. kNotFound, kInvalid past the end.
  Status FlipByte(const std::string& path, uint64_t offset);
  // Open File objects now, locks included.
  uint64_t open_files() const;

  Result<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) override;
  Result<bool> Exists(const std::string& path) override;
  Result<FileInfo> Stat(const std::string& path) override;
  Status Remove(const std::string& path) override;
  Status RemoveTree(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Link(const std::string& from, const std::string& to) override;
  Status MakeDirs(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& dir) override;
  Status SyncDir(const std::string& dir) override;
  Result<uint64_t> FreeBytes(const std::string& path) override;
  Result<std::unique_ptr<File>> LockFile(const std::string& path) override;

 private:
  struct Node;
  struct Injected {
    Call call;
    std::string path_part;
    Code code;
    uint64_t skip;
  };
  class Handle;
  using NodePtr = std::shared_ptr<Node>;

  // Counts a step. kDie: this one may happen but must answer kIo; kDead: it must not happen.
  enum class Step : uint8_t { kGo, kDie, kDead };
  Step TakeStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CallHook(Call call, const std::string& path);
  Status Injection(Call call, const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Alive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Result<NodePtr> Find(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The directory that holds the last name of the path, and that name.
  Result<NodePtr> FindParent(const std::string& path, std::string* name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One change of a directory entry (null: removal) as a step.
  Status ChangeEntry(Node& dir, const std::string& name, NodePtr target) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status RemoveChildren(const NodePtr& dir) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Reserve(Node& node, uint64_t new_size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::unique_ptr<File> MakeHandle(NodePtr node, std::string path, bool writable, bool lock)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndGeneration() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void CrashFile(Node& node, Random& random);
  static void CrashDir(Node& dir, Random& random, std::set<const Node*>* done);

  // Held over nothing that blocks, so a simulated scheduler need not know of it.
  mutable Mutex mu_{RealScheduler()};
  std::function<void(Call, const std::string&)> hook_;
  NodePtr root_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> locks_ ABSL_GUARDED_BY(mu_);
  std::vector<Injected> injected_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Random> lossy_syncs_ ABSL_GUARDED_BY(mu_);  // which writes a failed sync loses
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;              // +1 at each crash or kill; handles of older ones are dead
  uint64_t steps_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t stop_at_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<uint64_t>::max();
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t capacity_ ABSL_GUARDED_BY(mu_) = 1ULL << 40;
  uint64_t open_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<uint64_t> used_;  // sum of sizes, guarded by mu_; shared with nodes, whose death subtracts
};

}  // namespace archil
