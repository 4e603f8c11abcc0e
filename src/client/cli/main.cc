// archil: mounts disks and looks after them.
#include <fmt/format.h>

#include <cstring>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"

namespace archil::cli {
namespace {

struct Command {
  std::string_view name;
  int (*run)(const Argv&);
  std::string_view help;
};

constexpr Command kCommands[] = {
    {"disk", DiskCommand, "create NAME | list | show NAME | delete NAME"},
    {"mount", MountCommand, "DISK[:/SUBDIR] MOUNTPOINT"},
    {"unmount", UnmountCommand, "MOUNTPOINT: flushes everything, then unmounts"},
    {"sync", SyncCommand, "MOUNTPOINT: returns when everything acknowledged is durable"},
    {"status", StatusCommand, "[MOUNTPOINT]: what is mounted here, and how it is"},
    {"metrics", MetricsCommand, "MOUNTPOINT: counters"},
    {"drop-caches", DropCachesCommand, "MOUNTPOINT: forgets what can be fetched again"},
    {"checkout", CheckoutCommand, "[--force] PATH: a directory with all below it is this mount's until checkin"},
    {"checkin", CheckinCommand, "PATH: others may change it again"},
    {"delegations", DelegationsCommand, "MOUNTPOINT: what this mount may change or cache by itself"},
    {"clients", ClientsCommand, "DISK: who has it mounted"},
    {"revoke", RevokeCommand, "DISK --client ID [--inode N]: takes a right, or all, from a client"},
    {"recover-file", RecoverFileCommand, "FILE [--replay DIR]: shows or replays what a fenced mount lost"},
    {"version", VersionCommand, ""},
};

void PrintHelp(FILE* out) {
  fmt::print(out, "usage: archil COMMAND …\n");
  for (const Command& c : kCommands) fmt::print(out, "  {:<12} {}\n", c.name, c.help);
  fmt::print(out, "Commands that speak to a server take --server HOST:PORT (or ARCHIL_SERVER; default 127.0.0.1:8100).\n"
                  "All options and exit codes: docs/cli.md\n");
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    PrintHelp(stderr);
    return kExitUsage;
  }
  const std::string_view name = argv[1];
  if (name == "help" || name == "--help" || name == "-h") {
    PrintHelp(stdout);
    return kExitOk;
  }
  const Argv rest(argv + 2, argv + argc);
  for (const Command& c : kCommands) {
    if (c.name == name || (name == "--version" && c.name == "version")) return c.run(rest);
  }
  return Refuse(kExitUsage, fmt::format("unknown command '{}'", name), "`archil help` lists the commands");
}

}  // namespace
}  // namespace archil::cli

int main(int argc, char** argv) { return archil::cli::Main(argc, argv); }
