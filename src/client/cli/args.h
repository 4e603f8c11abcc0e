// Command-line arguments: --name VALUE, --name=VALUE, flags without a value, and the rest. `--` ends options.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "common/base/result.h"

namespace archil::cli {

struct OptionSpec {
  std::string_view name;  // without "--"
  bool has_value = true;
};

class Args {
 public:
  // kInvalid naming an unknown option, a missing value, or a wrong number of other arguments.
  static Result<Args> Parse(const std::vector<std::string>& argv, const std::vector<OptionSpec>& options, size_t min_rest,
                            size_t max_rest);

  const std::vector<std::string>& rest() const { return rest_; }
  bool Has(std::string_view name) const { return values_.count(std::string(name)) != 0; }
  std::string Get(std::string_view name, std::string_view fallback = {}) const;
  // --server, then ARCHIL_SERVER, then the default. CheckServer: kInvalid unless it is HOST:PORT.
  std::string Server() const;
  Status CheckServer() const;
  // "90s", "2m", "500ms", or a number of seconds.
  Result<absl::Duration> GetDuration(std::string_view name, absl::Duration fallback) const;
  Result<uint64_t> GetNumber(std::string_view name, uint64_t fallback) const;
  // Bytes: a number with K, M, G or T behind it (powers of 1,024), or none.
  Result<uint64_t> GetSize(std::string_view name, uint64_t fallback) const;

 private:
  std::map<std::string, std::string> values_;
  std::vector<std::string> rest_;
};

}  // namespace archil::cli
