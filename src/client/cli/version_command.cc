#include <fmt/format.h>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/version.h"

namespace archil::cli {

int VersionCommand(const Argv& argv) {
  if (!argv.empty()) return Refuse(kExitUsage, "archil version takes no arguments");
  fmt::print("{}", VersionText());
  return kExitOk;
}

}  // namespace archil::cli
