#include "common/obs/metrics.h"

#include <gtest/gtest.h>

#include <vector>

namespace archil {
namespace {

TEST(Metrics, CountsByName) {
  Metrics metrics(RealScheduler());
  EXPECT_TRUE(metrics.Snapshot().empty());
  Counter& ops = metrics.counter("commit.ops");
  ops.Add();
  ops.Add(4);
  EXPECT_EQ(&metrics.counter("commit.ops"), &ops);
  Gauge& held = metrics.gauge("cache.bytes");
  held.Set(10);
  held.Add(5);
  held.Sub(7);
  EXPECT_EQ(metrics.Snapshot(), (std::map<std::string, uint64_t>{{"cache.bytes", 8}, {"commit.ops", 5}}));
  EXPECT_EQ(MetricsJson(metrics.Snapshot()), R"({"cache.bytes":8,"commit.ops":5})");
  EXPECT_EQ(MetricsJson({}), "{}");
  EXPECT_EQ(MetricsJson({{"a\"\\\n", 1}}), R"({"a\"\\\u000a":1})");
}

TEST(MetricsDeath, OneNameIsOneKind) {
  Metrics metrics(RealScheduler());
  metrics.counter("a");
  EXPECT_DEATH(metrics.gauge("a"), "");
}

TEST(Metrics, ReferencesStayWhileOthersAreMade) {
  Metrics metrics(RealScheduler());
  Counter& first = metrics.counter("first");
  for (int i = 0; i < 1000; ++i) metrics.counter("c" + std::to_string(i)).Add(i);
  first.Add(3);
  EXPECT_EQ(metrics.Snapshot().at("first"), 3u);
  EXPECT_EQ(metrics.Snapshot().size(), 1001u);
}

TEST(Metrics, NothingIsLostBetweenThreads) {
  Metrics metrics(RealScheduler());
  std::vector<std::unique_ptr<Thread>> threads;
  for (int t = 0; t < 4; ++t) {
    threads.push_back(RealScheduler().Spawn("count", [&] {
      for (int i = 0; i < 10'000; ++i) metrics.counter("shared").Add();
    }));
  }
  for (auto& thread : threads) thread->Join();
  EXPECT_EQ(metrics.Snapshot().at("shared"), 40'000u);
}

}  // namespace
}  // namespace archil
