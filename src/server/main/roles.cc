#include "server/main/roles.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>

#include "common/env/faults.h"
#include "common/env/files.h"
#include "common/env/random.h"
#include "common/env/sched.h"
#include "common/obs/log.h"
#include "common/rpc/server.h"
#include "server/data/data_server.h"
#include "server/data/service/data_rpc.h"
#include "server/main/data_servers.h"
#include "server/main/stop_signal.h"
#include "server/meta/meta_server.h"
#include "server/meta/service/meta_rpc.h"
#include "server/object/object_store.h"

namespace archil {
namespace {

constexpr absl::Duration kDrain = absl::Seconds(2);        // running calls may end by themselves, clients disconnect
constexpr absl::Duration kHandlersEnd = absl::Seconds(4);  // then the roles are stopped under them
constexpr absl::Duration kStopBound = absl::Seconds(12);   // then the process ends as in a crash
constexpr absl::Duration kDataWait = absl::Seconds(15);    // a metadata server waits this long for its data servers

// stdio's functions, unlike fmt's, do not throw when nobody reads any more.
void Say(FILE* stream, const std::string& line) {
  std::fputs((line + "\n").c_str(), stream);
  std::fflush(stream);
}

// What to do about a start that failed, by kind of failure.
Error Explain(const Error& error, std::string_view what, const std::string& path) {
  std::string_view remedy;
  switch (error.code()) {
    case Code::kBusy: remedy = "another archild uses it; stop that one or choose another directory"; break;
    case Code::kAccess:
    case Code::kPermission: remedy = "give this user read and write permission there"; break;
    case Code::kReadOnly: remedy = "the file system is mounted read-only"; break;
    case Code::kNoSpace: remedy = "make room on that file system"; break;
    case Code::kCorrupt: remedy = "it is damaged; keep a copy, then put back a good one or move it away"; break;
    case Code::kNotSupported: remedy = "it was written by a newer version; use that one"; break;
    case Code::kUnavailable: remedy = "start what it needs first"; break;
    default: remedy = "nothing was changed"; break;
  }
  return Error(error.code(), fmt::format("cannot open {} {}: {} ({})", what, path, error.ToString(), remedy));
}

// Held for the life of the process: two of them on one directory would destroy each other's state.
Result<std::unique_ptr<File>> LockRole(const std::string& dir, std::string_view role) {
  const std::string path = JoinPath(dir, fmt::format("{}.lock", role));
  const Status made = RealFiles().MakeDirs(dir);
  if (!made.ok()) return Explain(made.error(), "directory", dir);
  auto lock = RealFiles().LockFile(path);
  if (!lock.ok()) return Explain(lock.error(), "directory", dir);
  return lock;
}

Result<std::unique_ptr<ObjectStore>> OpenObjects(const ServerOptions& options) {
  auto objects = OpenLocalObjectStore(RealFiles(), options.object_dir);
  if (!objects.ok()) return Explain(objects.error(), "object store", options.object_dir);
  return objects;
}

Result<std::unique_ptr<DataServer>> OpenData(const ServerOptions& options, ObjectStore& objects) {
  DataServerConfig config;
  config.dir = JoinPath(options.dir, "data");
  auto server = DataServer::Open({RealScheduler(), RealFiles(), objects, ProcessFaults()}, config);
  if (!server.ok()) return Explain(server.error(), "segments in", config.dir);
  return server;
}

Result<std::unique_ptr<MetaServer>> OpenMeta(const ServerOptions& options, DataServerSet& data) {
  MetaServerConfig config;
  config.dir = JoinPath(options.dir, "meta");
  config.default_lease = options.lease;
  config.contended_after = options.contended_after;
  config.rights_kept = options.rights_kept;
  auto server = MetaServer::Open({RealScheduler(), RealRandom(), RealFiles(), ProcessFaults(), data, OpenRocksKvStore}, config);
  if (!server.ok()) return Explain(server.error(), "metadata in", config.dir);
  return server;
}

// Data servers that start at the same time as their metadata server get the time to do so. One that stays away is
// no reason not to start: disks that do not need it can be served.
void AwaitDataServers(DataServerSet& servers) {
  OpContext ctx;
  ctx.deadline = RealScheduler().clock().Boot() + kDataWait;
  Notification never(RealScheduler());
  for (const DataServerInfo& server : servers.All()) {
    for (;;) {
      const auto answer = servers.ById(server.id)->Stat(ctx, {DiskId(1), SegmentId(1)});
      if (answer.ok() || answer.error().band() != Band::kNotApplied) break;
      if (never.WaitUntil(std::min(ctx.deadline, RealScheduler().clock().Boot() + absl::Milliseconds(100)))) break;
      if (RealScheduler().clock().Boot() >= ctx.deadline) {
        LogWarning("data server does not answer", {{"id", server.id}, {"address", server.address}, {"error", answer.error().ToString()}});
        break;
      }
    }
  }
}

// Says that the role serves, waits for the signal to stop, and stops: first new calls, then running ones, then
// `stop_roles`, which answers whatever still waits inside them.
void ServeUntilStopped(std::string_view role, const ServerOptions& options, RpcServer& server,
                       const std::function<void()>& stop_roles) {
  StopSignal::Install();
  LogInfo("serving", {{"role", role}, {"address", server.address().ToString()}, {"dir", options.dir}, {"version", ARCHIL_VERSION}});
  Say(stdout, fmt::format("archild {}: serving on {}, dir {}", role, server.address().ToString(), options.dir));
  StopSignal::Wait();
  LogInfo("stopping", {{"role", role}});

  Scheduler& scheduler = RealScheduler();
  Notification stopped(scheduler);
  const BootTime begin = scheduler.clock().Boot();
  auto watchdog = scheduler.Spawn("stop-bound", [&] {
    if (stopped.WaitUntil(begin + kStopBound)) return;
    Say(stderr, fmt::format("archild {}: could not stop within {} s and ends at once; nothing acknowledged is lost", role,
                            absl::ToInt64Seconds(kStopBound)));
    _exit(1);
  });
  Notification drained(scheduler);
  auto drainer = scheduler.Spawn("stop-rpc", [&] {
    server.Stop(kDrain);
    drained.Notify();
  });
  drained.WaitUntil(begin + kHandlersEnd);
  stop_roles();
  drainer->Join();
  stopped.Notify();
  watchdog->Join();
  LogInfo("stopped", {{"role", role}, {"took", scheduler.clock().Boot() - begin}});
  Say(stdout, fmt::format("archild {}: stopped", role));
}

}  // namespace

Status RunAll(const ServerOptions& options) {
  ARCHIL_ASSIGN_OR_RETURN(auto port, ReservedPort::Bind(options.listen));
  ARCHIL_ASSIGN_OR_RETURN(auto data_lock, LockRole(options.dir, "data"));
  ARCHIL_ASSIGN_OR_RETURN(auto meta_lock, LockRole(options.dir, "meta"));
  ARCHIL_ASSIGN_OR_RETURN(auto objects, OpenObjects(options));
  ARCHIL_ASSIGN_OR_RETURN(auto data, OpenData(options, *objects));
  const HostPort& reached_at = options.advertise.host.empty() ? port.address() : options.advertise;
  LocalDataServer data_servers(*data, reached_at.ToString());
  ARCHIL_ASSIGN_OR_RETURN(auto meta, OpenMeta(options, data_servers));
  const auto data_rpc = NewDataRpcService(RealScheduler(), *data);
  const auto meta_rpc = NewMetaRpcService(*meta);
  ARCHIL_ASSIGN_OR_RETURN(auto server, RpcServer::Start(std::move(port), {meta_rpc.get(), data_rpc.get()}));
  ServeUntilStopped("all", options, *server, [&] {
    meta->Stop();
    data->Stop();
  });
  return Ok();
}

Status RunMeta(const ServerOptions& options) {
  ARCHIL_ASSIGN_OR_RETURN(auto port, ReservedPort::Bind(options.listen));
  ARCHIL_ASSIGN_OR_RETURN(auto lock, LockRole(options.dir, "meta"));
  RemoteDataServers data_servers(options.data_servers);
  AwaitDataServers(data_servers);
  ARCHIL_ASSIGN_OR_RETURN(auto meta, OpenMeta(options, data_servers));
  const auto meta_rpc = NewMetaRpcService(*meta);
  ARCHIL_ASSIGN_OR_RETURN(auto server, RpcServer::Start(std::move(port), {meta_rpc.get()}));
  ServeUntilStopped("meta", options, *server, [&] { meta->Stop(); });
  return Ok();
}

Status RunData(const ServerOptions& options) {
  ARCHIL_ASSIGN_OR_RETURN(auto port, ReservedPort::Bind(options.listen));
  ARCHIL_ASSIGN_OR_RETURN(auto lock, LockRole(options.dir, "data"));
  ARCHIL_ASSIGN_OR_RETURN(auto objects, OpenObjects(options));
  ARCHIL_ASSIGN_OR_RETURN(auto data, OpenData(options, *objects));
  const auto data_rpc = NewDataRpcService(RealScheduler(), *data);
  ARCHIL_ASSIGN_OR_RETURN(auto server, RpcServer::Start(std::move(port), {data_rpc.get()}));
  ServeUntilStopped("data", options, *server, [&] { data->Stop(); });
  return Ok();
}

}  // namespace archil
