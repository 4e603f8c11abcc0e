#include "common/obs/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <memory>

#include "common/env/sched.h"
#include "common/obs/rate_limit.h"

namespace archil {
namespace {

bool NeedsQuotes(std::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return true;
  }
  return false;
}

void AppendEscaped(std::string& line, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (byte < ' ' || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
    if (line.size() > kMaxLogLine) return;
  }
}

void AppendText(std::string& line, std::string_view text) {
  if (!NeedsQuotes(text)) {
    line.append(text.substr(0, kMaxLogLine));
    return;
  }
  line += '"';
  AppendEscaped(line, text);
  line += '"';
}

void AppendValue(std::string& line, const LogField::Value& value) {
  switch (value.index()) {
    case 0: line += std::get<bool>(value) ? "true" : "false"; return;
    case 1: line += fmt::format("{}", std::get<int64_t>(value)); return;
    case 2: line += fmt::format("{}", std::get<uint64_t>(value)); return;
    case 3: line += fmt::format("{:.6g}", std::get<double>(value)); return;
    case 4: AppendText(line, std::get<std::string_view>(value)); return;
    case 5: line += absl::FormatDuration(std::get<absl::Duration>(value)); return;
  }
}

void Bound(std::string& line) {
  if (line.size() <= kMaxLogLine) return;
  line.resize(kMaxLogLine - 3);
  line += "...";
}

std::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "DEBUG";
    case LogLevel::kInfo: return "INFO";
    case LogLevel::kWarning: return "WARN";
    case LogLevel::kError: return "ERROR";
    case LogLevel::kOff: break;
  }
  return "OFF";
}

// Where lines go. Shared by the calls that are writing while StartLog exchanges it.
struct Output {
  Output(const LogConfig& config, Clock& clock, std::shared_ptr<spdlog::sinks::sink> sink)
      : clock(clock), limit(config.burst, config.refill), logger("archil", std::move(sink)) {
    logger.set_pattern("%v");
    logger.set_level(spdlog::level::trace);
    logger.flush_on(spdlog::level::trace);
  }
  Clock& clock;
  SiteLimit limit;
  spdlog::logger logger;
};

struct State {
  State() {
    output = std::make_shared<Output>(LogConfig{}, RealClock(), std::make_shared<spdlog::sinks::stderr_sink_mt>());
  }
  std::shared_ptr<Output> Get() {
    MutexLock lock(mu);
    return output;
  }
  std::atomic<LogLevel> level{LogLevel::kWarning};
  std::atomic<uint64_t> suppressed{0};
  Mutex mu{RealScheduler()};
  std::shared_ptr<Output> output ABSL_GUARDED_BY(mu);  // owners: this, and calls that are writing
};

// Never destroyed: threads may log until the process ends.
State& TheLog() {
  static State& state = *new State;
  return state;
}

}  // namespace

Result<LogLevel> ParseLogLevel(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return Error(Code::kInvalid, fmt::format("\"{}\" is no log level: debug, info, warning, error or off", name));
}

Status StartLog(const LogConfig& config, Clock& clock) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (config.file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    try {  // the library throws; nothing of ours does
      sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(config.file, config.max_file_bytes, 1);
    } catch (const spdlog::spdlog_ex& e) {
      return Error(Code::kIo, fmt::format("cannot open log file {}: {}", config.file, e.what()));
    }
  }
  auto output = std::make_shared<Output>(config, clock, std::move(sink));
  State& log = TheLog();
  {
    MutexLock lock(log.mu);
    log.output.swap(output);
  }
  log.level = config.level;
  return Ok();
}

void SetLogLevel(LogLevel level) { TheLog().level = level; }

bool LogEnabled(LogLevel level) { return level >= TheLog().level.load(std::memory_order_relaxed); }

void FlushLog() { TheLog().Get()->logger.flush(); }

uint64_t LogLinesSuppressed() { return TheLog().suppressed; }

std::string FormatLogLine(std::string_view event, std::initializer_list<LogField> fields) {
  std::string line;
  AppendEscaped(line, event);
  for (const LogField& field : fields) {
    line += ' ';
    AppendEscaped(line, field.key());
    line += '=';
    AppendValue(line, field.value());
    if (line.size() > kMaxLogLine) break;
  }
  Bound(line);
  return line;
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields, const char* file, int line) {
  if (level == LogLevel::kOff || !LogEnabled(level)) return;
  const std::shared_ptr<Output> output = TheLog().Get();
  const SiteLimit::Answer answer = output->limit.Ask({file, static_cast<uint32_t>(line)}, output->clock.Boot());
  if (!answer.allowed) {
    TheLog().suppressed.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  std::string text = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ ", output->clock.Wall(), absl::UTCTimeZone());
  text += fmt::format("{} {}", NameOf(level), FormatLogLine(event, fields));
  if (answer.suppressed > 0) text += fmt::format(" suppressed={}", answer.suppressed);
  output->logger.log(spdlog::level::info, spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace archil
