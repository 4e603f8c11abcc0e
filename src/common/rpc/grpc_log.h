// What gRPC itself has to say goes to our log, as warnings, instead of to stderr.
#pragma once

namespace archil {

// Call once, before the first channel or server.
void RouteGrpcLog();

}  // namespace archil
