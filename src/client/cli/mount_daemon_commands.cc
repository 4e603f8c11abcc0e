// What the control socket answers.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "client/cli/exit_codes.h"
#include "client/cli/mount_daemon.h"
#include "client/cli/version.h"
#include "common/env/sched.h"
#include "common/obs/log.h"

namespace archil::cli {
namespace {

// A forced unmount ends within 10 s: this long it tries to save what is dirty, and by the last the process is gone.
constexpr absl::Duration kForcedFlush = absl::Seconds(4);
constexpr absl::Duration kForcedEnd = absl::Seconds(8);

Json Failed(std::string_view message, std::string_view remedy, int exit_code) {
  Json reply;
  reply.Set("ok", false);
  reply.Set("message", message);
  reply.Set("remedy", remedy);
  reply.Set("exit_code", static_cast<uint64_t>(exit_code));
  return reply;
}

std::string Message(const Error& error) {
  return std::string(error.message().empty() ? CodeName(error.code()) : error.message());
}

absl::Duration PatienceOf(const Json& request) {
  const uint64_t seconds = request.GetNumber("timeout_s", 60);
  return absl::Seconds(seconds > 86400 ? 86400 : seconds);
}

}  // namespace

Json MountDaemon::Handle(const Json& request, const ControlServer::Progress& progress) {
  const std::string command = request.GetString("command");
  if (command == "status") return StatusJson();
  if (command == "metrics") return MetricsJson();
  if (command == "sync") return SyncCommand(request, progress);
  if (command == "unmount") return UnmountCommand(request, progress);
  if (command == "checkout" || command == "checkin") return CheckoutCommand(request);
  if (command == "delegations") return DelegationsJson(request);
  if (command == "drop_caches") {
    mount_->fs().DropCaches();
    AwaitForgets();
    malloc_trim(0);  // else the allocator keeps what was freed
    return StatusJson();
  }
  return Failed(fmt::format("unknown command '{}'", command), "the daemon is of another version than this program", kExitFailure);
}

// The kernel tells by and by which inodes it has dropped: returns when no more of them leave memory, or after 5 s.
void MountDaemon::AwaitForgets() {
  Notification never(RealScheduler());
  const auto now = [] { return RealScheduler().clock().Boot(); };
  const BootTime deadline = now() + absl::Seconds(5);
  uint64_t before = UINT64_MAX;
  for (uint64_t inodes = mount_->fs().GetStatus().inodes; inodes < before && now() < deadline;
       inodes = mount_->fs().GetStatus().inodes) {
    before = inodes;
    never.WaitUntil(now() + absl::Milliseconds(200));
  }
}

Json MountDaemon::StatusJson() {
  const MountStatus s = mount_->fs().GetStatus();
  Json j;
  j.Set("ok", true);
  j.Set("mountpoint", plan_.mountpoint);
  j.Set("disk", plan_.config.disk);
  j.Set("branch", plan_.config.branch);
  j.Set("subdir", plan_.config.subdir);
  j.Set("server", plan_.server);
  j.Set("read_only", plan_.config.read_only);
  j.Set("exclusive", plan_.config.sharing == Sharing::kExclusive);
  j.Set("kernel_writeback", plan_.config.kernel_writeback);
  j.Set("pid", static_cast<uint64_t>(getpid()));
  j.Set("session", mount_->session().value);
  j.Set("state", ending_ ? "unmounting" : s.state);
  j.Set("state_detail", s.state_detail);
  j.Set("lease_s", absl::ToDoubleSeconds(s.lease));
  j.Set("lease_left_s", absl::ToDoubleSeconds(s.lease_left));
  j.Set("dirty_bytes", s.dirty_bytes);
  j.Set("dirty_limit_bytes", s.dirty_limit_bytes);
  j.Set("log_ops", s.log_ops);
  j.Set("lost_ops", s.lost_ops);
  j.Set("lost_file", s.lost_file);
  j.Set("acknowledged_seq", s.acknowledged.value);
  j.Set("durable_seq", s.durable.value);
  j.Set("inodes", s.inodes);
  j.Set("alone", s.alone);
  j.Set("delegations", s.delegations);
  j.Set("conditional", s.conditional);
  j.Set("contended", s.contended);
  j.Set("cache_bytes", s.cache_bytes);
  j.Set("cache_limit_bytes", s.cache_limit_bytes);
  j.Set("since", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", since_, absl::UTCTimeZone()));
  j.Set("uptime_s", absl::ToDoubleSeconds(absl::Floor(absl::Now() - since_, absl::Seconds(1))));
  j.Set("log_file", plan_.log_file);
  j.Set("version", kVersion);
  Json::Array flags;
  for (std::string& name : fuse_->InitFlags()) flags.emplace_back(std::move(name));
  Json kernel;
  kernel.Set("connection", static_cast<uint64_t>(fuse_->connection()));
  kernel.Set("init_flags", std::move(flags));
  kernel.Set("keeps_names", fuse_->keeps_names());
  j.Set("fuse", std::move(kernel));
  return j;
}

Json MountDaemon::CheckoutCommand(const Json& request) {
  OpContext ctx;
  ctx.deadline = scheduler_.clock().Boot() + absl::Seconds(static_cast<int64_t>(request.GetNumber("timeout_s", 60)));
  const InodeId ino{request.GetNumber("inode")};
  FsApi& fs = mount_->fs();
  const Status done = request.GetString("command") == "checkin" ? fs.Checkin(ctx, ino) : fs.Checkout(ctx, ino, request.GetBool("force"));
  Json reply;
  reply.Set("ok", done.ok());
  if (!done.ok()) {
    reply.Set("message", Message(done.error()));
    if (done.code() == Code::kHeldElsewhere) reply.Set("remedy", "`archil checkout --force` ends that checkout");
    reply.Set("exit_code", static_cast<uint64_t>(ExitCodeOf(done.code())));
  }
  return reply;
}

Json MountDaemon::DelegationsJson(const Json& request) {
  Json::Array rows;
  for (HeldDelegation& held : mount_->fs().Delegations(request.GetNumber("limit", 1000))) {
    Json row;
    row.Set("inode", held.ino.value);
    row.Set("path", held.path);
    row.Set("mode", RightName(held.right));
    const bool contended = held.right == Right::kNone;
    row.Set("scope", held.checkout ? "checkout" : contended ? "contended" : !held.ino ? "everything" : held.directory ? "directory" : "inode");
    row.Set("age_s", absl::ToDoubleSeconds(held.age));
    rows.push_back(std::move(row));
  }
  const MountStatus s = mount_->fs().GetStatus();
  Json reply;
  reply.Set("ok", true);
  reply.Set("held", s.alone ? uint64_t{1} : s.delegations);
  reply.Set("delegations", std::move(rows));
  return reply;
}

Json MountDaemon::MetricsJson() {
  std::map<std::string, uint64_t> counters = mount_->fs().Metrics();
  for (const auto& [name, value] : fuse_->Metrics()) counters[name] = value;
  Json metrics{Json::Object()};
  for (const auto& [name, value] : counters) metrics.Set(name, value);
  Json reply;
  reply.Set("ok", true);
  reply.Set("metrics", std::move(metrics));
  return reply;
}

Json MountDaemon::SyncCommand(const Json& request, const ControlServer::Progress& progress) {
  const Result<SyncReport> synced = Flush(PatienceOf(request), progress);
  if (!synced.ok()) {
    const MountStatus s = mount_->fs().GetStatus();
    return Failed(fmt::format("could not flush: {} ({} operations and {} bytes are not durable)", Message(synced.error()),
                              s.log_ops, s.dirty_bytes),
                  RemedyOf(synced.code(), plan_.server), ExitCodeOf(synced.code()));
  }
  Json reply;
  reply.Set("ok", true);
  reply.Set("ops", synced->ops);
  reply.Set("bytes", synced->bytes);
  return reply;
}

Json MountDaemon::UnmountCommand(const Json& request, const ControlServer::Progress& progress) {
  const bool force = request.GetBool("force");
  const bool under_way = ending_.exchange(true);
  if (force) return ForcedUnmount(progress, !under_way);
  if (under_way) return Failed("the mount is being unmounted already", "wait, or use --force", kExitFailure);
  const Result<SyncReport> flushed = Flush(PatienceOf(request), progress);
  if (!flushed.ok()) {
    ending_ = false;
    const MountStatus s = mount_->fs().GetStatus();
    return Failed(fmt::format("could not flush: {} ({} operations and {} bytes are not durable); still mounted",
                              Message(flushed.error()), s.log_ops, s.dirty_bytes),
                  fmt::format("try again when the server at {} answers, or lose them with `archil unmount --force`", plan_.server),
                  flushed.code() == Code::kUnavailable ? kExitUnreachable : kExitFailure);
  }
  const Status unmounted = fuse_->Unmount(false);
  if (!unmounted.ok()) {
    ending_ = false;
    Json reply = Failed(Message(unmounted.error()), "", kExitMountpoint);
    reply.Set("busy", unmounted.code() == Code::kBusy);
    return reply;
  }
  return ReportEnd(*flushed);
}

// Whatever the server does: a short try to save what is dirty, then the connection is cut.
Json MountDaemon::ForcedUnmount(const ControlServer::Progress& progress, bool may_flush) {
  LogWarning("unmount by force", {{"mountpoint", plan_.mountpoint}});
  ArmWatchdog(kForcedEnd);
  Result<SyncReport> flushed = Code::kUnavailable;
  if (may_flush) {
    flushed = Flush(kForcedFlush, progress);
  } else {
    cancel_flush_.Cancel();  // of the unmount that is under way
    mount_->fs().WakeWaiters();
  }
  abandon_ = !flushed.ok();
  if (abandon_ || !fuse_->Unmount(false).ok()) {
    // In use, or hung: every use of it fails from now on, and it leaves the tree. In this order: an unmount may wait for
    // pages that are written back.
    fuse_->Abort();
    (void)fuse_->Unmount(true);
  }
  return ReportEnd(flushed.ok() ? *flushed : SyncReport{});
}

Json MountDaemon::ReportEnd(const SyncReport& flushed) {
  finished_.Wait();
  Json reply;
  reply.Set("ok", true);
  reply.Set("clean", ended_.clean);
  reply.Set("error", ended_.error);
  reply.Set("ops", flushed.ops + ended_.report.ops);
  reply.Set("bytes", flushed.bytes + ended_.report.bytes);
  reply.Set("lost_ops", ended_.lost_ops);
  reply.Set("lost_bytes", ended_.lost_bytes);
  return reply;
}

}  // namespace archil::cli
