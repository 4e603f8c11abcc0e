#include <fmt/format.h>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/mount_client.h"

namespace archil::cli {

int DelegationsCommand(const Argv& argv) {
  const Result<Args> args = Args::Parse(argv, {{"json", false}, {"limit"}}, 1, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), "archil delegations [--json] [--limit N] MOUNTPOINT");
  const Result<uint64_t> limit = args->GetNumber("limit", 1000);
  if (!limit.ok()) return Refuse(kExitUsage, limit.error().message(), "archil delegations [--json] [--limit N] MOUNTPOINT");
  MountTarget target;
  if (const int refused = FindLivingTarget(args->rest()[0], &target); refused != kExitOk) return refused;
  Json request, reply;
  request.Set("command", "delegations");
  request.Set("limit", *limit);
  if (const int failed = CallDaemon(target, request, absl::Seconds(30), &reply); failed != kExitOk) return failed;
  const Json* rows = reply.Find("delegations");
  if (args->Has("json")) {
    fmt::print("{}", rows == nullptr ? "[]\n" : rows->DumpPretty());
    return kExitOk;
  }
  const Json::Array none;
  const Json::Array& list = rows == nullptr || rows->array() == nullptr ? none : *rows->array();
  fmt::print("{:<6} {:<11} {:>12} {:>8}  {}\n", "MODE", "SCOPE", "INODE", "AGE", "PATH");
  for (const Json& row : list) {
    const std::string path = row.GetString("path");
    fmt::print("{:<6} {:<11} {:>12} {:>8}  {}\n", row.GetString("mode"), row.GetString("scope"),
               row.GetString("scope") == "everything" ? "-" : fmt::format("{}", row.GetNumber("inode")),
               fmt::format("{:.0f}s", row.GetDouble("age_s")), path.empty() ? "?" : path);
  }
  const uint64_t held = reply.GetNumber("held");
  if (held > list.size()) fmt::print("… and {} more (--limit N shows them)\n", held - list.size());
  return kExitOk;
}

}  // namespace archil::cli
