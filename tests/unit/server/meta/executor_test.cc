// Order on a strand.
#include "server/meta/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace archil {
namespace {

TEST(Strand, HeartbeatsGoFirst) {
  std::vector<int> seen;
  ThreadPool pool(RealScheduler(), "test", 2);
  const auto strand = std::make_shared<Strand>(RealScheduler(), pool);
  Notification begun(RealScheduler()), go_on(RealScheduler());
  strand->Post([&] {
    begun.Notify();
    go_on.Wait();
  });
  begun.Wait();
  for (int i = 1; i <= 1000; ++i) strand->Post([&seen, i] { seen.push_back(i); });
  strand->Post([&seen] { seen.push_back(-1); }, Strand::Order::kFirst);
  // Also one that comes while much is under way.
  strand->Post([&] { strand->Post([&seen] { seen.push_back(-2); }, Strand::Order::kFirst); }, Strand::Order::kFirst);
  go_on.Notify();
  pool.Stop();
  ASSERT_EQ(seen.size(), 1002u);
  EXPECT_EQ(seen[0], -1);
  EXPECT_LT(std::find(seen.begin(), seen.end(), -2) - seen.begin(), 300);
  std::erase_if(seen, [](int i) { return i < 0; });
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(Strand, WhatCannotRunAnyMoreIsNotKept) {
  ThreadPool pool(RealScheduler(), "test", 1);
  const auto strand = std::make_shared<Strand>(RealScheduler(), pool);
  pool.Stop();
  auto owner = std::make_shared<int>(1);
  EXPECT_FALSE(strand->Post([owner] {}));
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace archil
