#include <fmt/format.h>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/mount_client.h"

namespace archil::cli {

int MetricsCommand(const Argv& argv) {
  const Result<Args> args = Args::Parse(argv, {{"json", false}}, 1, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), "archil metrics MOUNTPOINT [--json]");
  MountTarget target;
  if (const int refused = FindLivingTarget(args->rest()[0], &target); refused != kExitOk) return refused;
  Json request, reply;
  request.Set("command", "metrics");
  if (const int failed = CallDaemon(target, request, absl::Seconds(10), &reply); failed != kExitOk) return failed;
  const Json* metrics = reply.Find("metrics");
  if (metrics == nullptr || metrics->object() == nullptr) return Refuse(kExitFailure, "the daemon sent no metrics");
  if (args->Has("json")) {
    fmt::print("{}", metrics->DumpPretty());
    return kExitOk;
  }
  for (const auto& [name, value] : *metrics->object()) fmt::print("{} {}\n", name, value.number());
  return kExitOk;
}

}  // namespace archil::cli
