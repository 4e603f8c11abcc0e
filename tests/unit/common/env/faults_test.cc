#include "common/env/faults.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <vector>

#include "common/env/sched.h"

namespace archil {
namespace {

TEST(Faults, InertUnlessArmed) {
  Faults faults;
  EXPECT_TRUE(faults.Hit("log.append").ok());
  ASSERT_TRUE(faults.Arm("log.sync=error").ok());
  EXPECT_TRUE(faults.Hit("log.append").ok());
  EXPECT_EQ(faults.fired(), 0u);
}

TEST(Faults, FiresOnceAtTheNthHit) {
  Faults faults;
  ASSERT_TRUE(faults.Arm("a=error,b=error@3").ok());
  EXPECT_EQ(faults.Hit("a").code(), Code::kIo);
  EXPECT_TRUE(faults.Hit("a").ok());
  EXPECT_TRUE(faults.Hit("b").ok());
  EXPECT_TRUE(faults.Hit("b").ok());
  EXPECT_EQ(faults.Hit("b").code(), Code::kIo);
  EXPECT_TRUE(faults.Hit("b").ok());
  EXPECT_EQ(faults.fired(), 2u);
}

TEST(Faults, KillIsSigkill) {
  EXPECT_EXIT(
      {
        Faults faults;
        (void)faults.Arm("a=kill");
        (void)faults.Hit("a");
      },
      ::testing::KilledBySignal(SIGKILL), "");
}

TEST(Faults, BadSpecsAreNamed) {
  for (const char* spec : {"a", "a=explode", "a=error@", "a=error@0", "a=error@2x", "ok=error,b"}) {
    Faults faults;
    const Status armed = faults.Arm(spec);
    EXPECT_EQ(armed.code(), Code::kInvalid) << spec;
    EXPECT_NE(armed.error().message().find(std::string_view(spec).starts_with("ok") ? "b" : spec), std::string_view::npos)
        << armed.error().message();
  }
}

TEST(Faults, OneOfManyThreadsMeetsIt) {
  constexpr int kThreads = 4;
  constexpr int kHits = 1000;
  Faults faults;
  ASSERT_TRUE(faults.Arm("a=error@2000").ok());
  std::atomic<int> met{0};
  std::vector<std::unique_ptr<Thread>> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.push_back(RealScheduler().Spawn("hitter", [&] {
      for (int i = 0; i < kHits; ++i) met += !faults.Hit("a").ok();
    }));
  }
  for (auto& thread : threads) thread->Join();
  EXPECT_EQ(met, 1);
  EXPECT_EQ(faults.fired(), 1u);
}

}  // namespace
}  // namespace archil
