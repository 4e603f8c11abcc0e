// What a mount has promised, against what it may (docs/quota.md).
#include "client/oplog/promises.h"

#include <gtest/gtest.h>

namespace archil {
namespace {

class PromisesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    promises_.Count();
    promises_.Told({Lsn{10}, Seq{5}, 100});
  }
  Promises promises_;
};

TEST(Promises, WithoutAQuotaEverythingFits) {
  Promises none;
  none.Logged(Seq{1}, 1 << 30);
  EXPECT_EQ(none.promised(), 0u);
  EXPECT_TRUE(none.Fits(UINT64_MAX));
}

TEST_F(PromisesTest, DirtyBytesAndOpsCountUntilTheyAreApplied) {
  EXPECT_TRUE(promises_.Fits(100));
  EXPECT_FALSE(promises_.Fits(101));
  promises_.Dirty(60);
  EXPECT_FALSE(promises_.Fits(41));
  promises_.NotDirty(60);
  promises_.Logged(Seq{6}, 60);
  promises_.Logged(Seq{8}, 30);
  EXPECT_EQ(promises_.promised(), 90u);
  EXPECT_FALSE(promises_.Fits(11));
  // 6 and 7 are applied, and added 20 bytes only.
  promises_.Told({Lsn{11}, Seq{7}, 80});
  EXPECT_EQ(promises_.promised(), 30u);
  EXPECT_TRUE(promises_.Fits(50));
  EXPECT_FALSE(promises_.Fits(51));
}

TEST_F(PromisesTest, AnOlderAnswerChangesNothing) {
  promises_.Told({Lsn{12}, Seq{7}, 50});
  promises_.Told({Lsn{11}, Seq{6}, 500});
  EXPECT_EQ(promises_.limit(), 50u);
  promises_.Told({Lsn{0}, Seq{0}, 500});  // an answer that says nothing of it
  EXPECT_EQ(promises_.limit(), 50u);
}

TEST_F(PromisesTest, WhatMayBeReturnedIsNotPromisedAnyMore) {
  const uint64_t first = promises_.Ask(30);
  EXPECT_FALSE(promises_.Fits(31));
  const uint64_t second = promises_.Ask(200);
  EXPECT_GT(second, first);
  EXPECT_FALSE(promises_.Fits(31)) << "the first may still take effect";
  promises_.Told({Lsn{11}, Seq{5}, 30});
  promises_.Answered(first);
  EXPECT_TRUE(promises_.Fits(30));
  // A commit's answer that was made before that is not looked at.
  promises_.Told({Lsn{10}, Seq{5}, 100});
  EXPECT_FALSE(promises_.Fits(31));
  promises_.Told({Lsn{13}, Seq{5}, 200});
  EXPECT_TRUE(promises_.Fits(200));
  promises_.Answered(second);
  EXPECT_TRUE(promises_.Fits(200));
}

TEST_F(PromisesTest, AnAnswerToALaterCallEndsTheEarlierOnes) {
  promises_.Ask(10);
  const uint64_t second = promises_.Ask(90);
  promises_.Told({Lsn{11}, Seq{5}, 90});
  promises_.Answered(second);
  EXPECT_TRUE(promises_.Fits(90));
}

TEST_F(PromisesTest, AnOpThatMovesToTheEndOfTheLogKeepsItsPromise) {
  promises_.Logged(Seq{6}, 40);
  promises_.Logged(Seq{7}, 20);
  promises_.Moved(Seq{6}, Seq{9});
  promises_.Moved(Seq{7}, Seq{10});
  promises_.Moved(Seq{3}, Seq{11});  // had none
  EXPECT_EQ(promises_.promised(), 60u);
  promises_.Told({Lsn{11}, Seq{8}, 100});
  EXPECT_EQ(promises_.promised(), 60u);
  promises_.Told({Lsn{12}, Seq{9}, 60});
  EXPECT_EQ(promises_.promised(), 20u);
}

}  // namespace
}  // namespace archil
