// The daemon's log: one event a line on stderr (which is the log file once it is a daemon), with fields NAME=VALUE.
// Thread safe.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace archil::cli {

enum class LogLevel : int { kDebug, kInfo, kWarning, kError };

// False if the name is none of debug, info, warning, error.
bool ParseLogLevel(std::string_view name, LogLevel* level);
void SetLogLevel(LogLevel least);
void Log(LogLevel level, std::string_view event, std::initializer_list<std::pair<std::string_view, std::string>> fields = {});

}  // namespace archil::cli
