#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include "common/obs/log.h"

namespace archil {

void RouteGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* args) {
    const LogLevel level = args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug;
    if (!LogEnabled(level)) return;
    Log(level, "grpc", {{"message", args->message}}, args->file, args->line);
  });
}

}  // namespace archil
