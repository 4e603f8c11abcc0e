#include <fmt/format.h>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/mount_client.h"

namespace archil::cli {

int SyncCommand(const Argv& argv) {
  const Result<Args> args = Args::Parse(argv, {{"timeout"}}, 1, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), "archil sync MOUNTPOINT [--timeout 60s]");
  const Result<absl::Duration> timeout = args->GetDuration("timeout", absl::Seconds(60));
  if (!timeout.ok()) return Refuse(kExitUsage, timeout.error().message());
  MountTarget target;
  if (const int refused = FindLivingTarget(args->rest()[0], &target); refused != kExitOk) return refused;
  Json request, reply;
  request.Set("command", "sync");
  request.Set("timeout_s", static_cast<uint64_t>(absl::ToInt64Seconds(absl::Ceil(*timeout, absl::Seconds(1)))));
  if (const int failed = CallDaemon(target, request, *timeout + absl::Seconds(10), &reply, TellProgress); failed != kExitOk) {
    return failed;
  }
  fmt::print("{}: durable ({} operations, {} sent)\n", target.path, reply.GetNumber("ops"), HumanBytes(reply.GetNumber("bytes")));
  return kExitOk;
}

}  // namespace archil::cli
