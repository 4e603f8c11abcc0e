#include <fmt/format.h>
#include <sys/mount.h>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/mount_client.h"

namespace archil::cli {

// First the kernel's caches of this mount: a remount without changes drops its unused names, and with them inodes and
// pages. Then what the daemon keeps, which needs that the kernel has forgotten the inodes.
int DropCachesCommand(const Argv& argv) {
  const Result<Args> args = Args::Parse(argv, {}, 1, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), "archil drop-caches MOUNTPOINT");
  MountTarget target;
  if (const int refused = FindLivingTarget(args->rest()[0], &target); refused != kExitOk) return refused;
  bool kernel_too = false;
  if (target.mount) {
    const unsigned long flags = MS_REMOUNT | (target.mount->read_only ? MS_RDONLY : 0);
    kernel_too = mount(nullptr, target.path.c_str(), nullptr, flags, nullptr) == 0;
  }
  Json request, reply;
  request.Set("command", "drop_caches");
  if (const int failed = CallDaemon(target, request, absl::Seconds(30), &reply); failed != kExitOk) return failed;
  fmt::print("{}: dropped; {} inodes and {} of data stay\n", target.path, reply.GetNumber("inodes"),
             HumanBytes(reply.GetNumber("cache_bytes")));
  if (!kernel_too) fmt::print(stderr, "note: the kernel's own cache of this mount stays (dropping it needs root)\n");
  return kExitOk;
}

}  // namespace archil::cli
