// Metrics: numbers by name. Counters only grow (what was done); gauges go up and down (what is held now).
// Names are dotted and lower case, from the general to the particular: "fuse.upcalls.lookup", "commit.ops".
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/env/sched.h"

namespace archil {

// Thread safe, and cheap enough for every operation. The orders of different counters mean nothing to each other.
class Counter {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  void Add(uint64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  // Precondition: n was added before.
  void Sub(uint64_t n) { value_.fetch_sub(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Thread safe. One per mount or server, given to those who count.
class Metrics {
 public:
  explicit Metrics(Scheduler& scheduler) : mu_(scheduler) {}

  // The counter or gauge of that name, made at the first call. It lives as long as this object: ask once and keep the
  // reference. Precondition: the name is not that of the other kind.
  Counter& counter(std::string_view name);
  Gauge& gauge(std::string_view name);

  // Everything, by name. Numbers that change meanwhile are from some moment during the call.
  std::map<std::string, uint64_t> Snapshot() const;

 private:
  mutable Mutex mu_;
  std::map<std::string, std::unique_ptr<Counter>, std::less<>> counters_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::unique_ptr<Gauge>, std::less<>> gauges_ ABSL_GUARDED_BY(mu_);
};

// {"a":1,"b":2}, sorted by name.
std::string MetricsJson(const std::map<std::string, uint64_t>& snapshot);

}  // namespace archil
