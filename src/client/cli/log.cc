#include "client/cli/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace archil::cli {
namespace {

constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};
std::atomic<int> g_least{static_cast<int>(LogLevel::kInfo)};

}  // namespace

bool ParseLogLevel(std::string_view name, LogLevel* level) {
  for (int i = 0; i < 4; ++i) {
    if (kNames[i] != name) continue;
    *level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

void SetLogLevel(LogLevel least) { g_least = static_cast<int>(least); }

void Log(LogLevel level, std::string_view event, std::initializer_list<std::pair<std::string_view, std::string>> fields) {
  if (static_cast<int>(level) < g_least.load(std::memory_order_relaxed)) return;
  std::string line = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  line += fmt::format(" {} {}", kNames[static_cast<int>(level)], event);
  for (const auto& [name, value] : fields) {
    const bool plain = !value.empty() && value.find_first_of(" \"\n=") == std::string::npos;
    line += plain ? fmt::format(" {}={}", name, value) : fmt::format(" {}={:?}", name, value);
  }
  line.push_back('\n');
  // One write, so that lines of several threads do not mix.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
    // There is nowhere to tell it.
  }
}

}  // namespace archil::cli
