// HOST:PORT, as options and messages carry it; an IPv6 literal stands in brackets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace archil {

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
  bool wildcard() const { return host == "0.0.0.0" || host == "::"; }
  std::string ToString() const;
};

// kInvalid naming what is wrong. Port 0 is let through.
Result<HostPort> ParseHostPort(std::string_view text);

}  // namespace archil
