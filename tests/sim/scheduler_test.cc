#include "tests/sim/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

// Threads that wait for ever are left where they wait, with all that they have.
extern "C" const char* __lsan_default_suppressions() { return "leak:SimScheduler"; }

namespace archil::sim {
namespace {

// Three threads hand a number round; the order depends on the seed alone.
uint64_t TraceOf(uint64_t seed) {
  SimScheduler scheduler(seed);
  const auto failure = scheduler.Run([&] {
    Mutex mu(scheduler);
    CondVar cv(scheduler);
    int turn = 0;
    std::vector<std::unique_ptr<Thread>> threads;
    for (int i = 0; i < 3; ++i) {
      threads.push_back(scheduler.Spawn("t", [&] {
        for (int n = 0; n < 50; ++n) {
          MutexLock lock(mu);
          if (turn % 3 == 2 && n % 2 == 0) (void)cv.WaitUntil(mu, scheduler.clock().Boot() + absl::Milliseconds(1));
          ++turn;
          cv.SignalAll();
        }
      }));
    }
    for (auto& thread : threads) thread->Join();
  });
  EXPECT_FALSE(failure.has_value()) << *failure;
  return scheduler.trace();
}

TEST(SimScheduler, OneSeedGivesOneTrace) {
  std::set<uint64_t> traces;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(TraceOf(seed), TraceOf(seed));
    traces.insert(TraceOf(seed));
  }
  EXPECT_EQ(traces.size(), 20u);
}

TEST(SimScheduler, TimeJumpsToTheNextDeadline) {
  SimScheduler scheduler(1);
  const auto failure = scheduler.Run([&] {
    const BootTime start = scheduler.clock().Boot();
    Notification never(scheduler);
    EXPECT_FALSE(never.WaitUntil(start + absl::Hours(2)));
    EXPECT_GE(scheduler.clock().Boot(), start + absl::Hours(2));
    EXPECT_LT(scheduler.clock().Boot(), start + absl::Hours(2) + absl::Seconds(1));
    scheduler.Sleep(absl::Hours(1));
    EXPECT_GE(scheduler.clock().Boot(), start + absl::Hours(3));
  });
  EXPECT_FALSE(failure.has_value()) << *failure;
}

TEST(SimScheduler, WhoWaitsForEverIsTold) {
  SimScheduler scheduler(1);
  const auto failure = scheduler.Run([&] {
    Notification never(scheduler);
    auto thread = scheduler.Spawn("waits", [&] { never.Wait(); });
    thread->Join();
  });
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(*failure, ::testing::HasSubstr("waits: wait"));
}

// Two threads that take two locks in different order meet in some seed.
TEST(SimScheduler, SomeSeedFindsADeadlock) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SimScheduler scheduler(seed);
    const auto failure = scheduler.Run([&] {
      Mutex a(scheduler), b(scheduler);
      auto other = scheduler.Spawn("other", [&] {
        MutexLock first(a);
        MutexLock second(b);
      });
      {
        MutexLock first(b);
        MutexLock second(a);
      }
      other->Join();
    });
    found += failure.has_value();
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 50);
}

TEST(SimScheduler, AFailureEndsTheRun) {
  SimScheduler scheduler(1);
  const auto failure = scheduler.Run([&] { scheduler.Fail("that is wrong"); });
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(*failure, ::testing::HasSubstr("that is wrong"));
}

TEST(SimScheduler, NothingComesBetweenWhileAlone) {
  SimScheduler scheduler(3);
  const auto failure = scheduler.Run([&] {
    int value = 0;
    Mutex mu(scheduler);
    auto other = scheduler.Spawn("other", [&] {
      for (int i = 0; i < 100; ++i) {
        MutexLock lock(mu);
        ++value;
      }
    });
    for (int i = 0; i < 100; ++i) {
      scheduler.Yield();
      SimScheduler::Alone alone(scheduler);
      const int before = value;
      for (int n = 0; n < 10; ++n) MutexLock lock(mu);
      EXPECT_TRUE(!alone.Undisturbed() || value == before);
    }
    other->Join();
  });
  EXPECT_FALSE(failure.has_value()) << *failure;
}

}  // namespace
}  // namespace archil::sim
