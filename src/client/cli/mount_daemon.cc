#include "client/cli/mount_daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "absl/time/clock.h"
#include "client/cli/exit_codes.h"
#include "client/cli/paths.h"
#include "common/obs/log.h"

namespace archil::cli {
namespace {

constexpr absl::Duration kCloseDeadline = absl::Seconds(60);
constexpr absl::Duration kSignalFlush = absl::Seconds(30);

Refusal RefusalOf(const Error& error, std::string_view what, const std::string& server) {
  const std::string_view why = error.message().empty() ? CodeName(error.code()) : error.message();
  return {ExitCodeOf(error.code()), fmt::format("{}: {}", what, why), RemedyOf(error.code(), server)};
}

std::string Message(const Error& error) {
  return std::string(error.message().empty() ? CodeName(error.code()) : error.message());
}

}  // namespace

MountDaemon::MountDaemon(const MountPlan& plan, Scheduler& scheduler, Random& random, MetaService& meta, DataServicePool& data)
    : plan_(plan),
      scheduler_(scheduler),
      random_(random),
      meta_(meta),
      data_(data),
      since_(absl::Now()),
      finished_(scheduler) {}

MountDaemon::~MountDaemon() = default;

// ---- birth

Refusal MountDaemon::Start() {
  if (Refusal r = OpenSession(); r.exit_code != 0) return r;
  Refusal refused = MountKernel();
  if (refused.exit_code == 0) {
    refused = Listen();
    if (refused.exit_code != 0) {
      (void)fuse_->Unmount(true);
      fuse_->Stop();
    }
  }
  if (refused.exit_code != 0) {
    OpContext ctx;
    ctx.deadline = scheduler_.clock().Boot() + absl::Seconds(5);
    if (mount_->Close(ctx).ok()) state_->Clear();
    return refused;
  }
  signals_ = scheduler_.Spawn("signals", [this] { WatchSignals(); });
  LogInfo("mounted", {{"disk", plan_.DiskName()}, {"mountpoint", plan_.mountpoint}, {"server", plan_.server},
                      {"session", mount_->session()}});
  return {};
}

Refusal MountDaemon::OpenSession() {
  if (const Status made = MakePrivateDir(StateDir(), "ARCHIL_STATE_DIR"); !made.ok()) {
    return {kExitPermission, Message(made.error()), ""};
  }
  if (const Status made = MakePrivateDir(RuntimeDir(), "ARCHIL_RUNTIME_DIR"); !made.ok()) {
    return {kExitPermission, Message(made.error()), ""};
  }
  Result<StateFile> state = StateFile::Lock(StateDir(), {plan_.server, plan_.DiskName(), plan_.mountpoint});
  if (!state.ok()) {
    const bool busy = state.code() == Code::kBusy;
    return {busy ? kExitMountpoint : kExitPermission, Message(state.error()),
            busy ? "`archil status` shows it; `archil unmount MOUNTPOINT` ends it" : ""};
  }
  state_ = std::move(*state);

  MountConfig config = plan_.config;
  config.predecessor = state_->Predecessor().session;
  config.predecessor_key = state_->Predecessor().key;
  if (config.predecessor) {
    LogInfo("replacing the session of a daemon that died", {{"session", config.predecessor}});
  }
  Result<std::unique_ptr<Mount>> mount = Mount::Open({scheduler_, random_, meta_, data_}, config);
  if (!mount.ok()) {
    state_->Discard();
    Refusal r = RefusalOf(mount.error(), fmt::format("cannot mount {}", plan_.DiskName()), plan_.server);
    const bool no_subdir = !config.subdir.empty() && (mount.code() == Code::kNotFound || mount.code() == Code::kNotDirectory);
    if (no_subdir) {
      r = {kExitNoSuchDisk, fmt::format("the disk {} has no directory {}", plan_.DiskName(), config.subdir),
           "mount the whole disk and create it"};
    }
    return r;
  }
  mount_ = std::move(*mount);
  if (const Status kept = state_->Record({mount_->session(), mount_->session_key()}); !kept.ok()) {
    LogWarning("session not recorded", {{"error", Message(kept.error())}});
  }
  return {};
}

Refusal MountDaemon::MountKernel() {
  FuseOptions options;
  options.mountpoint = plan_.mountpoint;
  options.fsname = plan_.DiskName();
  options.read_only = plan_.config.read_only;
  options.poll_for = plan_.poll_for;
  options.personality = plan_.FusePersonality();
  options.no_name_cache = plan_.no_name_cache;
  fuse_ = FuseMount::Create(scheduler_, options);
  mount_->SetKernelCache(&fuse_->kernel_cache());
  const Status started = fuse_->Start(mount_->fs());
  if (started.ok()) return {};
  const bool forbidden = started.code() == Code::kPermission || started.code() == Code::kAccess;
  return {forbidden ? kExitPermission : kExitMountpoint, Message(started.error()), ""};
}

Refusal MountDaemon::Listen() {
  control_ = std::make_unique<ControlServer>(
      scheduler_, ControlSocketPath(plan_.mountpoint),
      [this](const Json& request, const ControlServer::Progress& progress) { return Handle(request, progress); });
  const Status listening = control_->Start();
  if (!listening.ok()) return {kExitFailure, Message(listening.error()), ""};
  WriteMountInfo();
  return {};
}

void MountDaemon::WriteMountInfo() {
  Json info;
  info.Set("mountpoint", plan_.mountpoint);
  info.Set("disk", plan_.DiskName());
  info.Set("server", plan_.server);
  info.Set("pid", static_cast<uint64_t>(getpid()));
  const std::string text = info.Dump() + "\n";
  const int fd = open(MountInfoPath(plan_.mountpoint).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (write(fd, text.data(), text.size()) < 0) {
    // `archil status` then knows this mount by its socket alone.
  }
  close(fd);
}

// ---- end

int MountDaemon::Run() {
  fuse_->WaitForEnd();
  ending_ = true;
  fuse_->Stop();
  const MountStatus left = mount_->fs().GetStatus();
  if (abandon_) {
    mount_->Abandon();
    ended_.lost_ops = left.log_ops;
    ended_.lost_bytes = left.dirty_bytes;
    ended_.clean = false;
    ended_.error = "ended by force";
  } else {
    OpContext ctx;
    ctx.deadline = scheduler_.clock().Boot() + kCloseDeadline;
    ctx.cancel = &cancel_flush_;
    const Result<SyncReport> closed = mount_->Close(ctx);
    ended_.clean = closed.ok();
    if (closed.ok()) {
      ended_.report = *closed;
      state_->Clear();
    } else {
      const MountStatus lost = mount_->fs().GetStatus();
      ended_.error = Message(closed.error());
      ended_.lost_ops = lost.log_ops;
      ended_.lost_bytes = lost.dirty_bytes;
    }
  }
  const bool lost = !ended_.clean && (ended_.lost_ops != 0 || ended_.lost_bytes != 0);
  if (lost) {
    LogError("unmounted with losses", {{"mountpoint", plan_.mountpoint}, {"error", ended_.error}, {"lost_ops", ended_.lost_ops},
                                       {"lost_bytes", ended_.lost_bytes}});
  } else {
    LogInfo("unmounted", {{"mountpoint", plan_.mountpoint}, {"clean", ended_.clean}, {"error", ended_.error}});
  }
  FlushLog();
  finished_.Notify();
  control_->Stop();
  unlink(MountInfoPath(plan_.mountpoint).c_str());
  signals_done_ = true;
  kill(getpid(), SIGUSR1);
  signals_->Join();
  if (watchdog_ != nullptr) _exit(lost ? kExitFailure : kExitOk);  // what hung may hang still
  mount_.reset();
  return lost ? kExitFailure : kExitOk;
}

void MountDaemon::WatchSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, s);
  bool asked = false;
  std::unique_ptr<Thread> ender;
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (signals_done_) break;
    if (signal == SIGUSR1) continue;
    if (!asked) {
      asked = true;
      LogInfo("ending by signal; once more gives up what is not flushed", {{"signal", signal}});
      ender = scheduler_.Spawn("end", [this] { EndBySignal(); });
      continue;
    }
    abandon_ = true;
    cancel_flush_.Cancel();
    mount_->fs().WakeWaiters();
    fuse_->Abort();
  }
  if (ender != nullptr) ender->Join();
}

void MountDaemon::EndBySignal() {
  ending_ = true;
  (void)Flush(kSignalFlush, {});
  if (fuse_->Unmount(false).ok()) return;
  // Somebody still uses it: out of the tree, and what they hold open fails from now on.
  (void)fuse_->Unmount(true);
  fuse_->Abort();
}

void MountDaemon::ArmWatchdog(absl::Duration after) {
  if (watchdog_ != nullptr) return;
  watchdog_ = scheduler_.Spawn("watchdog", [this, after] {
    Notification never(scheduler_);
    never.WaitUntil(scheduler_.clock().Boot() + after);
    _exit(kExitFailure);
  });
}

Result<SyncReport> MountDaemon::Flush(absl::Duration patience, const ControlServer::Progress& progress) {
  Result<SyncReport> result = Code::kInternal;
  Notification done(scheduler_);
  auto syncing = scheduler_.Spawn("sync", [&] {
    OpContext ctx;
    ctx.deadline = scheduler_.clock().Boot() + patience;
    ctx.cancel = &cancel_flush_;
    result = mount_->fs().Sync(ctx);
    done.Notify();
  });
  while (!done.WaitUntil(scheduler_.clock().Boot() + absl::Seconds(1))) {
    if (!progress) continue;
    const MountStatus status = mount_->fs().GetStatus();
    Json line;
    line.Set("progress", "flushing");
    line.Set("dirty_bytes", status.dirty_bytes);
    line.Set("log_ops", status.log_ops);
    progress(line);
  }
  syncing->Join();
  return result;
}

}  // namespace archil::cli
