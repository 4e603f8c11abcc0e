// The command line of `archild`, checked once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "common/api/data_service.h"
#include "common/base/result.h"
#include "common/obs/log.h"
#include "common/rpc/address.h"

namespace archil {

enum class Role : uint8_t { kAll, kMeta, kData, kVersion, kHelp };

struct ServerOptions {
  Role role = Role::kHelp;
  std::string dir;
  HostPort listen;
  HostPort advertise;      // what clients connect to; without --advertise the listen address
  std::vector<DataServerInfo> data_servers;  // role meta
  std::string object_dir;  // --object-store file:PATH; roles all and data
  absl::Duration lease = absl::Seconds(15);
  uint64_t rights_kept = 256 << 10;
  uint32_t contended_after = 10;
  LogConfig log;
};

// kInvalid says what is wrong with which option.
Result<ServerOptions> ParseOptions(const std::vector<std::string>& args);
std::string_view Usage();

}  // namespace archil
