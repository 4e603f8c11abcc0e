#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/daemonize.h"
#include "client/cli/exit_codes.h"
#include "client/cli/mount_client.h"
#include "client/cli/mount_daemon.h"
#include "client/cli/paths.h"
#include "common/env/random.h"
#include "common/obs/log.h"
#include "common/rpc/client.h"
#include "common/rpc/grpc_log.h"

namespace archil::cli {
namespace {

constexpr std::string_view kUsage =
    "archil mount DISK[@BRANCH][:/SUBDIR] MOUNTPOINT [--server HOST:PORT] [--read-only] [--exclusive [--force] [--kernel-writeback] | --conditional] [--no-name-cache] [--foreground] "
    "[--cache-mb N] [--flush-after 1s] [--flush-ops N] [--lease 15s] [--recovery-dir DIR] [--log-level debug|info|warning|error] [--log-file PATH]";

// DISK[@BRANCH][:/SUBDIR]
Status ParseDisk(const std::string& text, MountConfig* config) {
  std::string name = text;
  if (const size_t colon = name.find(':'); colon != std::string::npos) {
    const std::string subdir = name.substr(colon + 1);
    if (subdir.empty() || subdir[0] != '/') {
      return Error(Code::kInvalid, fmt::format("'{}': a directory in the disk starts with '/'", text));
    }
    const std::string clean = LexicalPath(subdir);
    config->subdir = clean == "/" ? "" : clean;
    name.resize(colon);
  }
  if (const size_t at = name.find('@'); at != std::string::npos) {
    config->branch = name.substr(at + 1);
    name.resize(at);
    if (config->branch.empty()) return Error(Code::kInvalid, fmt::format("'{}': the branch has no name", text));
  }
  if (name.empty()) return Error(Code::kInvalid, "the disk's name is missing");
  config->disk = name;
  return Ok();
}

Status ParsePlan(const Args& args, MountPlan* plan) {
  ARCHIL_RETURN_IF_ERROR(args.CheckServer());
  plan->server = args.Server();
  MountConfig& config = plan->config;
  ARCHIL_RETURN_IF_ERROR(ParseDisk(args.rest()[0], &config));
  config.read_only = args.Has("read-only");
  config.sharing = args.Has("exclusive") ? Sharing::kExclusive : Sharing::kShared;
  config.force = args.Has("force");
  if (config.force && config.sharing != Sharing::kExclusive) {
    return Error(Code::kInvalid, "--force goes with --exclusive: a shared mount is not refused for others' sake");
  }
  config.conditional = args.Has("conditional");
  if (config.conditional && config.sharing == Sharing::kExclusive) {
    return Error(Code::kInvalid, "--conditional holds nothing and --exclusive holds everything: choose one");
  }
  config.references_are_opens = config.sharing == Sharing::kExclusive;
  config.kernel_writeback = args.Has("kernel-writeback");
  if (config.kernel_writeback && config.sharing != Sharing::kExclusive) {
    return Error(Code::kInvalid, "--kernel-writeback goes with --exclusive: the kernel would not see what others change");
  }
  ARCHIL_ASSIGN_OR_RETURN(const uint64_t cache_mb, args.GetNumber("cache-mb", config.cache_bytes >> 20));
  if (cache_mb == 0 || cache_mb > (1 << 20)) return Error(Code::kInvalid, "--cache-mb: 1 to 1048576");
  config.cache_bytes = cache_mb << 20;
  ARCHIL_ASSIGN_OR_RETURN(config.flush_after, args.GetDuration("flush-after", config.flush_after));
  ARCHIL_ASSIGN_OR_RETURN(config.flush_ops, args.GetNumber("flush-ops", config.flush_ops));
  if (config.flush_ops == 0) return Error(Code::kInvalid, "--flush-ops: at least 1");
  ARCHIL_ASSIGN_OR_RETURN(config.lease, args.GetDuration("lease", config.lease));
  config.recovery_dir = args.Has("recovery-dir") ? args.Get("recovery-dir") : LostDir();
  if (!config.recovery_dir.empty()) config.recovery_dir = LexicalPath(config.recovery_dir);
  ARCHIL_ASSIGN_OR_RETURN(const uint64_t poll_us, args.GetNumber("poll-us", 50));
  plan->no_name_cache = args.Has("no-name-cache");
  plan->poll_for = absl::Microseconds(poll_us > 1000 ? 1000 : poll_us);
  return Ok();
}

// The mount of a daemon that died answers ENOTCONN to everything and can be replaced. Returns 0 or the code of a refusal.
int ReplaceDeadMount(const std::string& path, const MountEntry& mount) {
  if (mount.type != kMountType) return kExitOk;  // another file system's root is a directory like any other
  if (Result<ControlClient> daemon = ControlClient::Connect(ControlSocketPath(path)); daemon.ok()) {
    return Refuse(kExitMountpoint, fmt::format("{} is mounted on {} already", mount.source, path),
                  fmt::format("use it there, or `archil unmount {}` first", path));
  }
  // Unlike stat(2), whose answer the kernel may keep, this asks the daemon; if it is alive it is not ours to ask otherwise.
  struct statfs st;
  if (statfs(path.c_str(), &st) == 0 || errno != ENOTCONN) {
    return Refuse(kExitMountpoint, fmt::format("{} is mounted on {} by a daemon that this user cannot ask", mount.source, path),
                  "unmount it as the user who mounted it");
  }
  if (umount2(path.c_str(), MNT_DETACH) != 0) {
    return Refuse(kExitPermission, fmt::format("the daemon of {} died, and its mount cannot be taken away: {}", path,
                                               std::strerror(errno)),
                  fmt::format("`fusermount3 -uz {}` as the user who mounted it", path));
  }
  fmt::print(stderr, "note: the daemon that served {} had died; its mount was taken away\n", path);
  return kExitOk;
}

int CheckMountpoint(const std::string& given, std::string* canonical) {
  for (int dead_mounts = 0;; ++dead_mounts) {
    const Result<std::string> path = CanonicalMountpoint(given);
    if (!path.ok()) {
      return Refuse(kExitMountpoint, fmt::format("cannot mount on {}: {}", given, path.error().message()),
                    path.code() == Code::kNotFound ? fmt::format("`mkdir -p {}` makes it", given) : "");
    }
    *canonical = *path;
    const std::optional<MountEntry> mount = FindMount(*path);
    if (!mount || mount->type != kMountType || dead_mounts > 8) break;
    if (const int refused = ReplaceDeadMount(*path, *mount); refused != kExitOk) return refused;
  }
  DIR* dir = opendir(canonical->c_str());
  if (dir == nullptr) {
    const int err = errno;
    return Refuse(err == EACCES ? kExitPermission : kExitMountpoint,
                  fmt::format("cannot mount on {}: {}", given, std::strerror(err)),
                  err == ENOTDIR ? "a mount point is a directory" : "");
  }
  bool empty = true;
  while (const dirent* entry = readdir(dir)) {
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) empty = false;
  }
  closedir(dir);
  if (!empty) {
    return Refuse(kExitMountpoint, fmt::format("{} is not empty; what is in it would be hidden", given),
                  "mount on an empty directory");
  }
  return kExitOk;
}

std::string ClientName(const std::string& mountpoint) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return fmt::format("{}:{}:{}", host, getpid(), mountpoint);
}

// Everything from here on has threads; nothing forks after it.
int Serve(MountPlan plan, const std::function<void(const Report&)>& report) {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, s);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  plan.config.client_name = ClientName(plan.mountpoint);
  LogConfig log;
  log.level = plan.log_level;
  log.file = plan.log_file;
  if (const Status logging = StartLog(log); !logging.ok()) {
    report({kExitFailure, fmt::format("archil: the log: {}\n  name another file with --log-file\n", logging.error().message())});
    return kExitFailure;
  }
  RouteGrpcLog();
  const std::unique_ptr<MetaService> meta = NewMetaClient(plan.server);
  const std::unique_ptr<DataServicePool> data = NewDataPool();
  MountDaemon daemon(plan, RealScheduler(), RealRandom(), *meta, *data);
  if (const Refusal refused = daemon.Start(); refused.exit_code != 0) {
    LogError("mount refused", {{"cause", refused.cause}});
    FlushLog();
    std::string text = fmt::format("archil: {}\n", refused.cause);
    if (!refused.remedy.empty()) text += fmt::format("  {}\n", refused.remedy);
    report({refused.exit_code, text});
    return refused.exit_code;
  }
  report({kExitOk, fmt::format("{} mounted on {} (server {}, session {}, daemon {})\n", plan.DiskName(), plan.mountpoint,
                               plan.server, daemon.session().value, getpid())});
  return daemon.Run();
}

}  // namespace

int MountCommand(const Argv& argv) {
  const Result<Args> args =
      Args::Parse(argv, {{"server"}, {"read-only", false}, {"exclusive", false}, {"conditional", false}, {"force", false}, {"kernel-writeback", false}, {"no-name-cache", false}, {"foreground", false}, {"cache-mb"}, {"flush-after"}, {"flush-ops"},
                         {"lease"}, {"recovery-dir"}, {"log-level"}, {"log-file"}, {"poll-us"}}, 2, 2);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), kUsage);
  MountPlan plan;
  if (const Status parsed = ParsePlan(*args, &plan); !parsed.ok()) return Refuse(kExitUsage, parsed.error().message(), kUsage);
  const Result<LogLevel> level = ParseLogLevel(args->Get("log-level", "info"));
  if (!level.ok()) return Refuse(kExitUsage, "--log-level: one of debug, info, warning, error, off", kUsage);
  plan.log_level = *level;
  if (access("/dev/fuse", F_OK) != 0) {
    return Refuse(kExitMountpoint, "there is no /dev/fuse here",
                  "load the kernel's module with `modprobe fuse`; in a container: --device /dev/fuse --cap-add SYS_ADMIN");
  }
  if (const int refused = CheckMountpoint(args->rest()[1], &plan.mountpoint); refused != kExitOk) return refused;

  // One that was named must be of use now; the default is made when it is needed.
  if (args->Has("recovery-dir") && !plan.config.recovery_dir.empty()) {
    const Status made = MakePrivateDir(plan.config.recovery_dir, "--recovery-dir");
    if (!made.ok()) return Refuse(kExitPermission, made.error().message());
  }
  if (args->Has("log-file")) plan.log_file = LexicalPath(args->Get("log-file"));
  if (args->Has("foreground")) {
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    return Serve(plan, [](const Report& report) {
      fmt::print(report.exit_code == 0 ? stdout : stderr, "{}", report.text);
      fflush(stdout);
    });
  }
  if (const Status made = MakePrivateDir(StateDir(), "ARCHIL_STATE_DIR"); !made.ok()) {
    return Refuse(kExitPermission, made.error().message());
  }
  if (plan.log_file.empty()) {
    plan.log_file = fmt::format("{}/{}-{}.log", StateDir(), plan.config.disk, PathKey(plan.mountpoint));
  }
  return Daemonize(plan.log_file, [&](const std::function<void(const Report&)>& report) { return Serve(plan, report); });
}

}  // namespace archil::cli
