// FuseMount: an FsApi served to the kernel at a mount point. Decodes each request, calls FsApi, replies exactly once.
//
// One thread reads /dev/fuse and answers what FsApi can answer without waiting; the rest goes, with copies of its
// arguments, to workers that may wait. After an answer the reader polls the device for a short while before it sleeps: the
// next request of the same program mostly comes within that time, and waking an idle core costs more than serving it.
// Life: Create, Start (mounted and usable when it returns), WaitForEnd, Stop. Methods are thread safe except Start and Stop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/core/fs_api.h"
#include "client/fuse/personality.h"
#include "common/base/result.h"
#include "common/env/sched.h"

namespace archil {

struct FuseOptions {
  std::string mountpoint;  // absolute, without symlinks
  std::string fsname;      // shown as the source of the mount
  bool read_only = false;
  bool allow_other = true;
  // How long the reader polls after an answer; zero: it sleeps at once.
  absl::Duration poll_for = absl::Microseconds(50);
  // Exclusive: `fs` must take what is referenced for open (MountConfig::references_are_opens).
  Personality personality = Personality::kShared;
  // The kernel is given no name to keep and asks for each again. A shared mount does that by itself on a kernel that cannot be told to
  // drop them all without waiting (before Linux 6.16).
  bool no_name_cache = false;
  size_t max_lock_waiters = 1024;  // locks that may be waited for at the same time, a thread each; then ENOLCK
  size_t max_workers = 64;
  absl::Duration worker_idle_end = absl::Seconds(10);
  uint32_t max_readahead_kb = 1024;
};

class FuseMount {
 public:
  virtual ~FuseMount() = default;

  // Starts nothing. The KernelCache may be given to the core before the first call of `fs`.
  static std::unique_ptr<FuseMount> Create(Scheduler& scheduler, const FuseOptions& options);
  virtual KernelCache& kernel_cache() = 0;

  // Mounts and serves `fs`, which must outlive Stop. kPermission, kBusy, kNotFound … with a message if it cannot.
  virtual Status Start(FsApi& fs) = 0;

  // Returns when the kernel has let go: unmounted, or the connection was aborted.
  virtual void WaitForEnd() = 0;
  virtual bool ended() = 0;

  // Unmounts; kBusy while something uses the mount, unless `lazy` (then it vanishes from the tree at once, and the
  // kernel lets go with the last user). Requests are served meanwhile.
  virtual Status Unmount(bool lazy) = 0;
  // Cuts the connection: all users get ENOTCONN or EIO. Does not wait.
  virtual void Abort() = 0;
  // Ends all threads; requests that still wait are cancelled. The kernel must have let go, else the mount is aborted.
  // Idempotent.
  virtual void Stop() = 0;

  // upcall_NAME: requests by kind; fuse_…: how they were served. Names: docs/metrics.md.
  virtual std::map<std::string, uint64_t> Metrics() = 0;
  // Flags agreed with the kernel at INIT, by name.
  virtual std::vector<std::string> InitFlags() = 0;
  // The kernel keeps names. Known when Start has returned.
  virtual bool keeps_names() = 0;
  // Number of the kernel's connection, as below /sys/fs/fuse/connections; 0 if unknown.
  virtual uint32_t connection() = 0;
};

}  // namespace archil
