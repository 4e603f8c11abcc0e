#include "common/obs/metrics.h"

#include <fmt/format.h>

#include "common/base/check.h"

namespace archil {
namespace {

template <class T>
T& GetOrMake(std::map<std::string, std::unique_ptr<T>, std::less<>>& map, std::string_view name) {
  auto it = map.find(name);
  if (it == map.end()) it = map.emplace(std::string(name), std::make_unique<T>()).first;
  return *it->second;
}

}  // namespace

Counter& Metrics::counter(std::string_view name) {
  MutexLock lock(mu_);
  ARCHIL_CHECK(!gauges_.contains(name));
  return GetOrMake(counters_, name);
}

Gauge& Metrics::gauge(std::string_view name) {
  MutexLock lock(mu_);
  ARCHIL_CHECK(!counters_.contains(name));
  return GetOrMake(gauges_, name);
}

std::map<std::string, uint64_t> Metrics::Snapshot() const {
  std::map<std::string, uint64_t> out;
  MutexLock lock(mu_);
  for (const auto& [name, counter] : counters_) out.emplace(name, counter->value());
  for (const auto& [name, gauge] : gauges_) out.emplace(name, gauge->value());
  return out;
}

std::string MetricsJson(const std::map<std::string, uint64_t>& snapshot) {
  std::string json = "{";
  for (const auto& [name, value] : snapshot) {
    if (json.size() > 1) json += ',';
    json += '"';
    for (const char c : name) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') json += '\\';
      if (byte < ' ') {
        json += fmt::format("\\u{:04x}", byte);
      } else {
        json += c;
      }
    }
    json += fmt::format("\":{}", value);
  }
  json += '}';
  return json;
}

}  // namespace archil
