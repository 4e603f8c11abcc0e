// Mount: builds a mounted disk from an environment and a config. The one way to get an FsApi.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/core/fs_api.h"
#include "common/api/data_service.h"
#include "common/api/meta_service.h"
#include "common/env/random.h"
#include "common/env/sched.h"

namespace archil {

struct MountEnv {
  Scheduler& scheduler;
  Random& random;
  MetaService& meta;
  DataServicePool& data;
};

struct MountConfig {
  std::string disk;
  std::string branch = "main";
  std::string subdir;  // "" or "/a/b": mounted root below the disk's root
  bool read_only = false;
  Sharing sharing = Sharing::kShared;
  bool force = false;        // fences who stands in the way of the mount
  bool conditional = false;  // every operation is applied at the server, nothing is kept; with kShared
  // The kernel's side of an exclusive mount (client/fuse/personality.h). It tells neither Open nor Release: a file may be open as long
  // as it has references.
  bool references_are_opens = false;
  // It keeps written pages, sizes and times of files, and hands them in later: a write does not move times, Sync asks for them.
  bool kernel_writeback = false;
  std::string client_name;
  SessionKey key;  // zero: made from `random`
  SessionId predecessor;
  SessionKey predecessor_key;
  absl::Duration lease;  // zero: the server's default
  absl::Duration flush_after = absl::Seconds(1);
  uint64_t flush_ops = 4096;
  uint64_t flush_bytes = 4 << 20;
  uint64_t dirty_limit_bytes = 256 << 20;
  uint64_t cache_bytes = 256 << 20;     // data blocks in memory
  uint64_t inode_limit = 1'000'000;     // inodes in memory before clean ones that the kernel forgot are dropped
  absl::Duration op_deadline = absl::Seconds(60);      // of a call that waits for the server
  std::string recovery_dir;  // FENCE-1: where operations are saved that were acknowledged and are lost; empty: they are not
  absl::Duration fsync_deadline = absl::Seconds(60);   // then EIO
};

class Mount {
 public:
  virtual ~Mount() = default;  // ends like a crash unless Close was called
  // Opens the session and reads the root. Errors: those of OpenSession; kNotFound/kNotDirectory for the subdir.
  static Result<std::unique_ptr<Mount>> Open(const MountEnv& env, const MountConfig& config);

  virtual FsApi& fs() = 0;
  virtual SessionId session() const = 0;
  virtual SessionKey session_key() const = 0;
  // Every inode in memory that it may answer for now, with the right that it does so by; inode 0: everything. Empty without a
  // lease. For tests of DLG-1.
  virtual std::vector<HeldRight> Believed() = 0;
  // May be called once, before any call to fs(); null: nobody to tell.
  virtual void SetKernelCache(KernelCache* cache) = 0;
  // Makes everything durable and ends the session; kIo/kUnavailable if not all of it reached the server by the deadline.
  // Idempotent; afterwards calls of fs() answer kIo.
  virtual Result<SyncReport> Close(const OpContext& ctx) = 0;
  // Stops all threads at once, flushing nothing: what a crash of the process does. For tests and forced unmount.
  virtual void Abandon() = 0;
};

}  // namespace archil
