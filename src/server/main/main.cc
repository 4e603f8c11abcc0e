// archild: options, limits of the process, then one role until it is told to stop.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <string>
#include <vector>

#include "common/obs/log.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/server.h"
#include "server/main/options.h"
#include "server/main/roles.h"

namespace archil {
namespace {

constexpr int kExitCannotStart = 1;
constexpr int kExitUsage = 2;

// RocksDB and segments keep many files open.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Status RunRole(const ServerOptions& options) {
  switch (options.role) {
    case Role::kAll: return RunAll(options);
    case Role::kMeta: return RunMeta(options);
    case Role::kData: return RunData(options);
    case Role::kHelp: std::fputs(std::string(Usage()).c_str(), stdout); return Ok();
    case Role::kVersion:
      std::puts(fmt::format("archild {} ({}), {}, compiler {}", ARCHIL_VERSION, ARCHIL_BUILD_TYPE, RpcVersion(), __VERSION__).c_str());
      return Ok();
  }
  return Code::kInternal;
}

int Main(const std::vector<std::string>& args) {
  const auto options = ParseOptions(args);
  if (!options.ok()) {
    std::fputs(fmt::format("archild: {}\nTry \"archild --help\".\n", options.error().message()).c_str(), stderr);
    return kExitUsage;
  }
  signal(SIGPIPE, SIG_IGN);
  RaiseFileLimit();
  Status status = StartLog(options->log);
  RouteGrpcLog();
  if (status.ok()) status = RunRole(*options);
  FlushLog();
  if (status.ok()) return 0;
  std::fputs(fmt::format("archild: {}\n", status.error().message()).c_str(), stderr);
  return kExitCannotStart;
}

}  // namespace
}  // namespace archil

int main(int argc, char** argv) { return archil::Main(std::vector<std::string>(argv + 1, argv + argc)); }
