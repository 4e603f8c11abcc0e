#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/holders.h"
#include "client/cli/mount_client.h"
#include "client/cli/paths.h"

namespace archil::cli {
namespace {

constexpr std::string_view kUsage = "archil unmount MOUNTPOINT [--timeout 60s] [--force]";

// True once the process is gone. A pidfd survives the reuse of its number.
bool AwaitExit(pid_t pid, absl::Duration patience) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd p = {fd, POLLIN, 0};
  const bool gone = poll(&p, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) > 0;
  close(fd);
  return gone;
}

int TakeAwayDeadMount(const MountTarget& target) {
  if (!target.mount) {
    return Refuse(kExitMountpoint, fmt::format("nothing of archil is mounted on {}", target.path),
                  "`archil status` lists the mounts of this machine");
  }
  if (umount2(target.path.c_str(), MNT_DETACH) != 0) {
    return Refuse(errno == EPERM ? kExitPermission : kExitMountpoint,
                  fmt::format("cannot unmount {}: {}", target.path, std::strerror(errno)),
                  fmt::format("`fusermount3 -uz {}` as the user who mounted it", target.path));
  }
  unlink(MountInfoPath(target.path).c_str());
  unlink(ControlSocketPath(target.path).c_str());
  fmt::print(stderr, "note: the daemon of {} had died; what it had not flushed is lost\n", target.path);
  fmt::print("{}: unmounted\n", target.path);
  return kExitOk;
}

// Says what became of the changes.
int Tell(const MountTarget& target, const Json& reply) {
  const uint64_t lost_ops = reply.GetNumber("lost_ops");
  const uint64_t lost_bytes = reply.GetNumber("lost_bytes");
  const std::string flushed =
      fmt::format("{} operations and {} flushed", reply.GetNumber("ops"), HumanBytes(reply.GetNumber("bytes")));
  if (lost_ops == 0 && lost_bytes == 0) {
    fmt::print("{}: unmounted, {}\n", target.path, flushed);
    return kExitOk;
  }
  return Refuse(kExitFailure, fmt::format("{}: unmounted, {}; LOST: {} operations and {} that were not durable ({})", target.path,
                                          flushed, lost_ops, HumanBytes(lost_bytes), reply.GetString("error")));
}

void TellHolders(const MountTarget& target) {
  const std::vector<Holder> holders = FindHolders(target.path, 5, absl::Seconds(2));
  for (const Holder& h : holders) fmt::print(stderr, "  in use by process {} ({}): {}\n", h.pid, h.command, h.path);
  fmt::print(stderr, "  end {} first, or cut {} off with `archil unmount --force {}`\n", holders.empty() ? "what uses it" : "these",
             holders.empty() ? "it" : "them", target.path);
}

// The daemon hangs or is stopped: from outside, without its help.
int KillFromOutside(MountTarget& target) {
  const pid_t pid = target.daemon->daemon_pid();
  if (target.mount) AbortConnection(*target.mount);
  kill(pid, SIGKILL);
  AwaitExit(pid, absl::Seconds(2));
  if (FindMount(target.path)) umount2(target.path.c_str(), MNT_DETACH);
  unlink(MountInfoPath(target.path).c_str());
  unlink(ControlSocketPath(target.path).c_str());
  return Refuse(kExitFailure, fmt::format("{}: unmounted; its daemon {} did not answer and was killed: what it had not flushed is LOST",
                                          target.path, pid));
}

int Force(MountTarget& target) {
  Json request;
  request.Set("command", "unmount");
  request.Set("force", true);
  // Together with the killing below 10 s: the daemon's own bound is 8 s, and it tells progress each second of its flush.
  const absl::Time give_up = absl::Now() + absl::Milliseconds(7500);
  const Result<Json> reply = target.daemon->Call(request, absl::Milliseconds(3500), TellProgress);
  if (!reply.ok() || !reply->GetBool("ok")) return KillFromOutside(target);
  const absl::Duration left = give_up - absl::Now();
  if (!AwaitExit(target.daemon->daemon_pid(), left > absl::Seconds(1) ? left : absl::Seconds(1))) {
    kill(target.daemon->daemon_pid(), SIGKILL);
  }
  return Tell(target, *reply);
}

}  // namespace

int UnmountCommand(const Argv& argv) {
  const Result<Args> args = Args::Parse(argv, {{"force", false}, {"timeout"}}, 1, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), kUsage);
  const Result<absl::Duration> timeout = args->GetDuration("timeout", absl::Seconds(60));
  if (!timeout.ok()) return Refuse(kExitUsage, timeout.error().message(), kUsage);
  MountTarget target;
  if (const int refused = FindTarget(args->rest()[0], &target); refused != kExitOk) return refused;
  if (!target.daemon) return TakeAwayDeadMount(target);
  if (args->Has("force")) return Force(target);

  Json request;
  request.Set("command", "unmount");
  request.Set("timeout_s", static_cast<uint64_t>(absl::ToInt64Seconds(absl::Ceil(*timeout, absl::Seconds(1)))));
  // The last lines come after the session's end, which has a deadline of a minute of its own.
  const Result<Json> reply = target.daemon->Call(request, *timeout + absl::Seconds(70), TellProgress);
  if (!reply.ok()) {
    return Refuse(kExitFailure, fmt::format("{}: {}", target.path, reply.error().message()),
                  fmt::format("`archil unmount --force {}` ends it", target.path));
  }
  if (!reply->GetBool("ok")) {
    const int code = Refuse(static_cast<int>(reply->GetNumber("exit_code", kExitFailure)), reply->GetString("message"),
                            reply->GetString("remedy"));
    if (reply->GetBool("busy")) TellHolders(target);
    return code;
  }
  AwaitExit(target.daemon->daemon_pid(), absl::Seconds(10));
  return Tell(target, *reply);
}

}  // namespace archil::cli
