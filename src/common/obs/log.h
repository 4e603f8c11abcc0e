// Log: events with fields, one line each, to stderr or a file. Logged once, where the decision is made.
//
//   LogWarning("commit retried", {{"seq", seq}, {"error", error.ToString()}});
//   -> 2026-11-30T18:00:00.123Z WARN commit retried seq=17 error="unavailable: connection refused"
//
// Each call site may write `burst` lines at once and one per `refill` afterwards; what was left out is counted in the next
// line of that site (suppressed=N). A line is bounded (kMaxLogLine) and holds no control characters, whatever the values hold.
// Thread safe. Before StartLog, warnings and errors go to stderr. Writing may block on the file, never on anything of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/env/clock.h"

namespace archil {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };
// "debug", "info", "warning", "error", "off"; kInvalid otherwise.
Result<LogLevel> ParseLogLevel(std::string_view name);

inline constexpr size_t kMaxLogLine = 4096;  // bytes, without the newline

// A key and a value, for the time of one call: strings are borrowed.
class LogField {
 public:
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string_view, absl::Duration>;

  LogField(std::string_view key, std::string_view value) : key_(key), value_(value) {}
  LogField(std::string_view key, const std::string& value) : key_(key), value_(std::string_view(value)) {}
  LogField(std::string_view key, const char* value) : key_(key), value_(std::string_view(value)) {}
  LogField(std::string_view key, absl::Duration value) : key_(key), value_(value) {}
  template <class Tag>
  LogField(std::string_view key, StrongId<Tag> value) : key_(key), value_(value.value) {}
  template <class T>
    requires std::is_arithmetic_v<T>
  LogField(std::string_view key, T value) : key_(key), value_(Widen(value)) {}

  std::string_view key() const { return key_; }
  const Value& value() const { return value_; }

 private:
  template <class T>
  static Value Widen(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(value);
    } else if constexpr (std::is_signed_v<T>) {
      return static_cast<int64_t>(value);
    } else {
      return static_cast<uint64_t>(value);
    }
  }

  std::string_view key_;
  Value value_;
};

struct LogConfig {
  LogLevel level = LogLevel::kInfo;
  std::string file;  // empty: stderr. Else appended to; at max_file_bytes it becomes FILE.1 (with its extension kept)
  uint64_t max_file_bytes = 64 << 20;
  uint32_t burst = 20;                         // lines of one call site at once; 0: no limit
  absl::Duration refill = absl::Seconds(1);    // one more line per this
};

// Where lines go from now on; may be called again. kIo if the file cannot be opened: then nothing changes.
// `clock` outlives the log.
Status StartLog(const LogConfig& config, Clock& clock = RealClock());
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
// Lines written so far are with the kernel.
void FlushLog();
// Lines left out by the limits since the start of the process.
uint64_t LogLinesSuppressed();

// `file` and `line` name the call site; the functions below fill them in where they are called.
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields, const char* file, int line);

inline void LogDebug(std::string_view event, std::initializer_list<LogField> fields = {},
                     const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  Log(LogLevel::kDebug, event, fields, file, line);
}
inline void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {},
                    const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  Log(LogLevel::kInfo, event, fields, file, line);
}
inline void LogWarning(std::string_view event, std::initializer_list<LogField> fields = {},
                       const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  Log(LogLevel::kWarning, event, fields, file, line);
}
inline void LogError(std::string_view event, std::initializer_list<LogField> fields = {},
                     const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  Log(LogLevel::kError, event, fields, file, line);
}

// The line as it is written, without time and level. Values with spaces, quotes or control characters are quoted and escaped.
std::string FormatLogLine(std::string_view event, std::initializer_list<LogField> fields);

}  // namespace archil
