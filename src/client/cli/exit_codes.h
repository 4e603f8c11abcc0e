// Exit codes of `archil`, documented in docs/cli.md, and how a refusal is told: the cause, then the remedy.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace archil::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitUnreachable = 3,    // the server
  kExitNoSuchDisk = 4,     // or branch, or directory in it
  kExitMountpoint = 5,     // the mount point cannot be used, or is none
  kExitHeldElsewhere = 6,
  kExitPermission = 7,
};

// For errors of servers and of the client core.
int ExitCodeOf(Code code);

// "archil: CAUSE" and, if not empty, "  REMEDY" on stderr. Returns `exit_code`.
int Refuse(int exit_code, std::string_view cause, std::string_view remedy = {});
// The same for an error met while doing `what` with the server at `server`.
int RefuseServerError(const Error& error, std::string_view what, std::string_view server);
// What to do about it, for errors of servers; may be empty.
std::string RemedyOf(Code code, std::string_view server);

}  // namespace archil::cli
