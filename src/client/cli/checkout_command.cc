#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/mount_client.h"

namespace archil::cli {
namespace {

// The daemon of the mount that the directory is on, and its inode there. Returns 0, or the exit code of a refusal that was told.
int FindDirectory(const std::string& path, std::string* real, uint64_t* inode, MountTarget* target) {
  char resolved[PATH_MAX];
  struct stat st;
  if (realpath(path.c_str(), resolved) == nullptr || stat(resolved, &st) != 0) {
    return Refuse(kExitMountpoint, fmt::format("{}: {}", path, std::strerror(errno)));
  }
  *real = resolved;
  if (!S_ISDIR(st.st_mode)) return Refuse(kExitMountpoint, fmt::format("{} is not a directory; a directory is checked out, with all below it", path));
  for (std::string at = *real;; at.resize(std::max<size_t>(at.rfind('/'), 1))) {
    const std::optional<MountEntry> mount = FindMount(at);
    if (mount && mount->type == kMountType) {
      *inode = st.st_ino;
      return FindLivingTarget(at, target);
    }
    if (mount || at == "/") break;
  }
  return Refuse(kExitMountpoint, fmt::format("{} is not on a mounted disk", path), "`archil status` shows the mounts of this machine");
}

int Run(const Argv& argv, bool checkout) {
  const std::string usage = checkout ? "archil checkout [--force] [--timeout 60s] PATH" : "archil checkin [--timeout 60s] PATH";
  std::vector<OptionSpec> specs = {{"timeout"}};
  if (checkout) specs.push_back({"force", false});
  const Result<Args> args = Args::Parse(argv, specs, 1, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), usage);
  const Result<absl::Duration> timeout = args->GetDuration("timeout", absl::Seconds(60));
  if (!timeout.ok()) return Refuse(kExitUsage, timeout.error().message(), usage);
  std::string path;
  uint64_t inode = 0;
  MountTarget target;
  if (const int refused = FindDirectory(args->rest()[0], &path, &inode, &target); refused != kExitOk) return refused;
  Json request, reply;
  request.Set("command", checkout ? "checkout" : "checkin");
  request.Set("inode", inode);
  request.Set("force", checkout && args->Has("force"));
  request.Set("timeout_s", static_cast<uint64_t>(absl::ToInt64Seconds(absl::Ceil(*timeout, absl::Seconds(1)))));
  if (const int failed = CallDaemon(target, request, *timeout + absl::Seconds(10), &reply); failed != kExitOk) return failed;
  fmt::print("{}: {}\n", path, checkout ? "checked out: others can read it, and change it after `archil checkin`" : "checked in");
  return kExitOk;
}

}  // namespace

int CheckoutCommand(const Argv& argv) { return Run(argv, true); }
int CheckinCommand(const Argv& argv) { return Run(argv, false); }

}  // namespace archil::cli
