// What this program was built from.
#pragma once

#include <string>
#include <string_view>

namespace archil::cli {

extern const std::string_view kVersion;
std::string VersionText();

}  // namespace archil::cli
