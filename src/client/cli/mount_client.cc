#include "client/cli/mount_client.h"

#include <fmt/format.h>

#include <cstdio>

#include "client/cli/exit_codes.h"
#include "client/cli/paths.h"

namespace archil::cli {

int FindTarget(const std::string& path, MountTarget* target) {
  const Result<std::string> canonical = CanonicalMountpoint(path);
  if (!canonical.ok()) {
    return Refuse(kExitMountpoint, fmt::format("{}: {}", path, canonical.error().message()),
                  "`archil status` lists the mounts of this machine");
  }
  target->path = *canonical;
  target->mount = FindMount(*canonical);
  if (target->mount && target->mount->type != kMountType) target->mount.reset();
  Result<ControlClient> daemon = ControlClient::Connect(ControlSocketPath(*canonical));
  if (daemon.ok()) {
    target->daemon.emplace(std::move(*daemon));
  } else if (daemon.code() == Code::kAccess) {
    return Refuse(kExitPermission, fmt::format("{} was mounted by another user", path), "run this as that user, or as root");
  }
  return kExitOk;
}

int FindLivingTarget(const std::string& path, MountTarget* target) {
  if (const int refused = FindTarget(path, target); refused != kExitOk) return refused;
  if (target->daemon) return kExitOk;
  if (target->mount) {
    return Refuse(kExitMountpoint, fmt::format("the daemon of {} has died (or another user's, or another ARCHIL_RUNTIME_DIR's)", path),
                  fmt::format("`archil unmount {}` takes the dead mount away; then mount it again", path));
  }
  return Refuse(kExitMountpoint, fmt::format("nothing of archil is mounted on {}", path),
                "`archil status` lists the mounts of this machine");
}

int CallDaemon(MountTarget& target, const Json& request, absl::Duration patience, Json* reply,
               const std::function<void(const Json&)>& progress) {
  Result<Json> answer = target.daemon->Call(request, patience, progress);
  if (!answer.ok()) {
    return Refuse(kExitFailure, fmt::format("{}: {}", target.path, answer.error().message()),
                  fmt::format("process {} is the daemon; `archil unmount --force {}` ends it", target.daemon->daemon_pid(), target.path));
  }
  *reply = std::move(*answer);
  if (reply->GetBool("ok")) return kExitOk;
  return Refuse(static_cast<int>(reply->GetNumber("exit_code", kExitFailure)), reply->GetString("message"),
                reply->GetString("remedy"));
}

std::string HumanBytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

void TellProgress(const Json& line) {
  fmt::print(stderr, "flushing: {} and {} operations to go\n", HumanBytes(line.GetNumber("dirty_bytes")), line.GetNumber("log_ops"));
}

}  // namespace archil::cli
