#include "client/cli/args.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "common/rpc/address.h"

namespace archil::cli {
namespace {

bool ParseUnsigned(std::string_view s, uint64_t* out) {
  const auto end = std::from_chars(s.data(), s.data() + s.size(), *out);
  return !s.empty() && end.ec == std::errc() && end.ptr == s.data() + s.size();
}

}  // namespace

Result<Args> Args::Parse(const std::vector<std::string>& argv, const std::vector<OptionSpec>& options, size_t min_rest,
                         size_t max_rest) {
  Args args;
  bool only_rest = false;
  for (size_t i = 0; i < argv.size(); ++i) {
    const std::string_view arg = argv[i];
    if (only_rest || arg.substr(0, 2) != "--") {
      args.rest_.emplace_back(arg);
      continue;
    }
    if (arg == "--") {
      only_rest = true;
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string_view name = arg.substr(2, equals == std::string_view::npos ? equals : equals - 2);
    const OptionSpec* spec = nullptr;
    for (const OptionSpec& o : options) {
      if (o.name == name) spec = &o;
    }
    if (spec == nullptr) return Error(Code::kInvalid, fmt::format("unknown option --{}", name));
    if (!spec->has_value) {
      if (equals != std::string_view::npos) return Error(Code::kInvalid, fmt::format("--{} takes no value", name));
      args.values_[std::string(name)] = "";
    } else if (equals != std::string_view::npos) {
      args.values_[std::string(name)] = arg.substr(equals + 1);
    } else if (i + 1 < argv.size()) {
      args.values_[std::string(name)] = argv[++i];
    } else {
      return Error(Code::kInvalid, fmt::format("--{} needs a value", name));
    }
  }
  if (args.rest_.size() < min_rest) return Error(Code::kInvalid, "an argument is missing");
  if (args.rest_.size() > max_rest) {
    return Error(Code::kInvalid, fmt::format("unexpected argument '{}'", args.rest_[max_rest]));
  }
  return args;
}

std::string Args::Get(std::string_view name, std::string_view fallback) const {
  auto it = values_.find(std::string(name));
  return it == values_.end() ? std::string(fallback) : it->second;
}

std::string Args::Server() const {
  if (Has("server")) return Get("server");
  const char* from_environment = std::getenv("ARCHIL_SERVER");
  return from_environment != nullptr && *from_environment != '\0' ? from_environment : "127.0.0.1:8100";
}

Status Args::CheckServer() const {
  const Result<HostPort> parsed = ParseHostPort(Server());
  if (parsed.ok()) return Ok();
  return Error(Code::kInvalid, fmt::format("the server's address '{}': {}", Server(), parsed.error().message()));
}

Result<absl::Duration> Args::GetDuration(std::string_view name, absl::Duration fallback) const {
  if (!Has(name)) return fallback;
  const std::string value = Get(name);
  uint64_t seconds = 0;
  absl::Duration duration;
  if (ParseUnsigned(value, &seconds)) {
    duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(value, &duration) || duration < absl::ZeroDuration()) {
    return Error(Code::kInvalid, fmt::format("--{} {}: not a duration such as 90s, 2m or 500ms", name, value));
  }
  return duration;
}

Result<uint64_t> Args::GetNumber(std::string_view name, uint64_t fallback) const {
  if (!Has(name)) return fallback;
  uint64_t number = 0;
  if (!ParseUnsigned(Get(name), &number)) {
    return Error(Code::kInvalid, fmt::format("--{} {}: not a number", name, Get(name)));
  }
  return number;
}

Result<uint64_t> Args::GetSize(std::string_view name, uint64_t fallback) const {
  if (!Has(name)) return fallback;
  std::string value = Get(name);
  const Error bad(Code::kInvalid, fmt::format("--{} {}: not a size such as 500M, 10G or 2T", name, value));
  int shift = 0;
  if (!value.empty()) {
    switch (value.back()) {
      case 'K': case 'k': shift = 10; break;
      case 'M': case 'm': shift = 20; break;
      case 'G': case 'g': shift = 30; break;
      case 'T': case 't': shift = 40; break;
      default: break;
    }
  }
  if (shift != 0) value.pop_back();
  uint64_t number = 0;
  if (!ParseUnsigned(value, &number) || number > (~0ULL >> shift)) return bad;
  return number << shift;
}

}  // namespace archil::cli
