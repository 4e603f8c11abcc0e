// From a command to a daemon. The parent stays until the daemon says that it serves, or why it does not.
#pragma once

#include <functional>
#include <string>

#include "common/base/result.h"

namespace archil::cli {

// What the daemon tells its parent, once.
struct Report {
  int exit_code = 0;
  std::string text;  // printed on stdout (exit code 0) or stderr
};

// Forks. In the child: own session, stdin empty, stdout and stderr in `log_file`, "/" as working directory, then `body`,
// whose result ends the process. Call before any thread exists.
// In the parent: returns the exit code of the report, after printing it; kExitFailure if the daemon ended without one.
int Daemonize(const std::string& log_file, const std::function<int(const std::function<void(const Report&)>& report)>& body);

}  // namespace archil::cli
