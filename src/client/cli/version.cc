#include "client/cli/version.h"

#include <fmt/format.h>

// The build defines these (CMakeLists.txt).
#ifndef ARCHIL_VERSION
#define ARCHIL_VERSION "0"
#define ARCHIL_BUILD_TYPE "unknown"
#define ARCHIL_GRPC_VERSION "unknown"
#define ARCHIL_PROTOBUF_VERSION "unknown"
#define ARCHIL_FUSE_VERSION "unknown"
#define ARCHIL_ABSL_VERSION "unknown"
#endif

namespace archil::cli {

const std::string_view kVersion = ARCHIL_VERSION;

std::string VersionText() {
  return fmt::format("archil {}\n  build     {}, g++ {}\n  libfuse   {}\n  gRPC      {}\n  protobuf  {}\n  abseil    {}\n  fmt       {}.{}.{}\n",
                     kVersion, ARCHIL_BUILD_TYPE, __VERSION__, ARCHIL_FUSE_VERSION, ARCHIL_GRPC_VERSION,
                     ARCHIL_PROTOBUF_VERSION, ARCHIL_ABSL_VERSION, FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
}

}  // namespace archil::cli
