// The gRPC face of a metadata server: archil.v1.Control and archil.v1.Meta.
//
// A handler decodes, checks the shape of what came (sizes, enums, fields that must be there), hands over and answers
// once. No gRPC thread ever blocks: commits, calls that wait and the streams of sessions are asynchronous, other calls run where
// the server lets them block.
#pragma once

#include <memory>

#include "common/rpc/server.h"
#include "server/meta/meta_server.h"

namespace archil {

// `server` must outlive the service. Thread safe.
std::unique_ptr<RpcService> NewMetaRpcService(MetaServer& server);

}  // namespace archil
