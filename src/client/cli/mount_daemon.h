// MountDaemon: a mounted disk with its control socket, from the session's opening to its end. Everything that
// `archil mount` starts, top to bottom.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "client/cli/control.h"
#include "client/cli/state_file.h"
#include "client/core/mount.h"
#include "client/fuse/fuse_mount.h"
#include "common/obs/log.h"

namespace archil::cli {

// What `archil mount` was told, checked.
struct MountPlan {
  std::string server;
  std::string mountpoint;  // canonical
  std::string log_file;    // for status; empty: stderr
  LogLevel log_level = LogLevel::kInfo;
  MountConfig config;
  absl::Duration poll_for = absl::Microseconds(50);
  bool no_name_cache = false;

  Personality FusePersonality() const {
    if (config.sharing == Sharing::kShared) return Personality::kShared;
    return config.kernel_writeback ? Personality::kExclusiveWriteback : Personality::kExclusive;
  }
  std::string DiskName() const { return config.branch == "main" ? config.disk : config.disk + "@" + config.branch; }
};

// Why a mount did not come about.
struct Refusal {
  int exit_code = 0;  // 0: it did
  std::string cause;
  std::string remedy;
};

class MountDaemon {
 public:
  // The services outlive the daemon.
  MountDaemon(const MountPlan& plan, Scheduler& scheduler, Random& random, MetaService& meta, DataServicePool& data);
  ~MountDaemon();

  // Opens the session, mounts, listens. Call once, on the thread that goes on with Run; SIGTERM and SIGINT must be
  // blocked in it. On a refusal nothing is left behind.
  Refusal Start();
  // Serves until the mount has ended, by command, signal or umount(8); then makes everything durable and ends the session.
  // Returns the exit code: kExitFailure if acknowledged changes were lost.
  int Run();

  SessionId session() const { return mount_->session(); }

 private:
  struct Ended {
    bool clean = false;  // everything acknowledged is durable and the session is closed
    std::string error;
    uint64_t lost_ops = 0;
    uint64_t lost_bytes = 0;
    SyncReport report;
  };
  Refusal OpenSession();
  Refusal MountKernel();
  Refusal Listen();
  void WriteMountInfo();

  Json Handle(const Json& request, const ControlServer::Progress& progress);
  Json StatusJson();
  void AwaitForgets();
  Json MetricsJson();
  Json CheckoutCommand(const Json& request);
  Json DelegationsJson(const Json& request);
  Json SyncCommand(const Json& request, const ControlServer::Progress& progress);
  Json UnmountCommand(const Json& request, const ControlServer::Progress& progress);
  Json ForcedUnmount(const ControlServer::Progress& progress, bool may_flush);
  Json ReportEnd(const SyncReport& flushed);
  // Sync in a thread of its own; tells `progress` each second what is left.
  Result<SyncReport> Flush(absl::Duration patience, const ControlServer::Progress& progress);

  void WatchSignals();
  void EndBySignal();
  // Makes sure that the process ends by then, whatever hangs.
  void ArmWatchdog(absl::Duration after);

  const MountPlan plan_;
  Scheduler& scheduler_;
  Random& random_;
  MetaService& meta_;
  DataServicePool& data_;
  const absl::Time since_;

  std::optional<StateFile> state_;
  std::unique_ptr<Mount> mount_;
  std::unique_ptr<FuseMount> fuse_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<Thread> signals_;
  std::unique_ptr<Thread> watchdog_;

  std::atomic<bool> ending_{false};   // an unmount is under way
  std::atomic<bool> abandon_{false};  // the end does not wait for the server
  CancelFlag cancel_flush_;
  Notification finished_;  // ended_ is set
  Ended ended_;            // written before finished_, read after
  std::atomic<bool> signals_done_{false};
};

}  // namespace archil::cli
