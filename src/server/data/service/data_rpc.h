// The gRPC face of a data server: archil.v1.Data.
//
// No gRPC thread ever blocks: appends are asynchronous, reads and the rare calls run on workers of their own, so that
// reads from a slow object store hold up no fence. Full is a decision: kTryAgain.
#pragma once

#include <memory>

#include "common/env/sched.h"
#include "common/rpc/server.h"
#include "server/data/data_server.h"

namespace archil {

// `server` must outlive the service. Thread safe.
std::unique_ptr<RpcService> NewDataRpcService(Scheduler& scheduler, DataServer& server);

}  // namespace archil
