// The roles of `archild`, each wired top to bottom.
#pragma once

#include "common/base/result.h"
#include "server/main/options.h"

namespace archil {

// Serves until SIGTERM or SIGINT, then stops cleanly. An error means that it never served; its message names the remedy.
Status RunAll(const ServerOptions& options);
Status RunMeta(const ServerOptions& options);
Status RunData(const ServerOptions& options);

}  // namespace archil
