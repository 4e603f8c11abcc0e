#include "client/delegation/rights.h"

#include <gtest/gtest.h>

namespace archil {
namespace {

constexpr InodeId kDir{10}, kFile{11}, kOther{12}, kNoHome{0};
const BootTime kNow = BootTime{} + absl::Seconds(3);

TEST(Rights, AloneMeansEverythingUntilOthersCome) {
  Rights rights;
  EXPECT_FALSE(rights.MayRead(kFile, kNoHome));
  rights.SetAlone(true);
  EXPECT_TRUE(rights.MayChange(kFile, kNoHome));
  EXPECT_TRUE(rights.MayCache(kFile, kNoHome));
  rights.EndAlone({{kDir, Right::kWrite}}, 7, kNow);
  EXPECT_TRUE(rights.MayChange(kDir, kNoHome));
  EXPECT_TRUE(rights.MayChange(kFile, kDir));
  EXPECT_FALSE(rights.MayRead(kFile, kNoHome));
  EXPECT_EQ(rights.NumberOf(kDir), 7u);
}

TEST(Rights, ADirectoryCoversWhatNamesItAsItsHome) {
  Rights rights;
  rights.Install(kDir, Right::kRead, 1, kNow);
  EXPECT_TRUE(rights.MayRead(kFile, kDir));
  EXPECT_FALSE(rights.MayChange(kFile, kDir));
  EXPECT_FALSE(rights.MayRead(kFile, kNoHome));
  rights.Install(kFile, Right::kWrite, 2, kNow);
  EXPECT_TRUE(rights.MayChange(kFile, kDir));
  EXPECT_FALSE(rights.MayChange(kOther, kDir));
}

TEST(Rights, AGrantStrengthensAndNeverWeakens) {
  Rights rights;
  rights.Install(kDir, Right::kWrite, 5, kNow);
  rights.Install(kDir, Right::kRead, 3, kNow);
  EXPECT_EQ(rights.Of(kDir), Right::kWrite);
  EXPECT_EQ(rights.NumberOf(kDir), 5u);
}

TEST(Rights, WhatIsGivenUpIsNotCachedThenNotChangedThenGone) {
  Rights rights;
  rights.Install(kDir, Right::kWrite, 1, kNow);
  rights.BeginRecall(kDir, Right::kNone);
  EXPECT_FALSE(rights.MayCache(kDir, kNoHome));
  EXPECT_FALSE(rights.MayCache(kFile, kDir));
  EXPECT_TRUE(rights.MayChange(kDir, kNoHome));
  rights.CloseNames(kDir);
  EXPECT_FALSE(rights.MayChange(kDir, kNoHome));
  EXPECT_TRUE(rights.MayChange(kFile, kDir));
  EXPECT_FALSE(rights.ReadsWait(kFile, kDir));
  rights.Close(kDir);
  EXPECT_FALSE(rights.MayChange(kDir, kNoHome));
  EXPECT_FALSE(rights.MayChange(kFile, kDir));
  EXPECT_TRUE(rights.MayRead(kFile, kDir));
  EXPECT_TRUE(rights.ReadsWait(kFile, kDir));
  rights.GaveUp(kDir, Right::kNone, 2);
  EXPECT_FALSE(rights.MayRead(kFile, kDir));
  EXPECT_FALSE(rights.ReadsWait(kFile, kDir));
}

TEST(Rights, WhatIsWeakenedStaysCachedAndReadable) {
  Rights rights;
  rights.Install(kDir, Right::kWrite, 1, kNow);
  rights.BeginRecall(kDir, Right::kRead);
  rights.Close(kDir);
  EXPECT_TRUE(rights.MayCache(kFile, kDir));
  EXPECT_FALSE(rights.MayChange(kFile, kDir));
  EXPECT_FALSE(rights.ReadsWait(kFile, kDir));
  rights.GaveUp(kDir, Right::kRead, 9);
  EXPECT_EQ(rights.Of(kDir), Right::kRead);
  EXPECT_EQ(rights.NumberOf(kDir), 9u);
  EXPECT_FALSE(rights.MayChange(kFile, kDir));
}

TEST(Rights, ARightOfItsOwnOutlivesTheDirectorys) {
  Rights rights;
  rights.Install(kDir, Right::kWrite, 1, kNow);
  rights.Install(kFile, Right::kWrite, 2, kNow);
  rights.BeginRecall(kDir, Right::kNone);
  rights.Close(kDir);
  EXPECT_TRUE(rights.MayChange(kFile, kDir));
  EXPECT_TRUE(rights.MayCache(kFile, kDir));
  EXPECT_FALSE(rights.ReadsWait(kFile, kDir));
  rights.GaveUp(kDir, Right::kNone, 3);
  EXPECT_TRUE(rights.MayChange(kFile, kNoHome));
}

// GRT-1: a grant that was overtaken by the recall that ended it.
TEST(Rights, ALateGrantOfSomethingGivenUpIsIgnored) {
  Rights rights;
  rights.Install(kFile, Right::kRead, 3, kNow);
  rights.BeginRecall(kFile, Right::kNone);
  rights.GaveUp(kFile, Right::kNone, 6);
  EXPECT_FALSE(rights.Install(kFile, Right::kWrite, 5, kNow));
  EXPECT_FALSE(rights.MayRead(kFile, kNoHome));
  EXPECT_TRUE(rights.Install(kFile, Right::kRead, 7, kNow));
  EXPECT_TRUE(rights.MayRead(kFile, kNoHome));
}

TEST(Rights, WhatIsToldToARestartedServer) {
  Rights rights;
  rights.Install(kFile, Right::kRead, 3, kNow);
  rights.Install(kDir, Right::kWrite, 4, kNow);
  rights.Born(kOther, kNow);
  const auto all = rights.All();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].ino, kDir);
  EXPECT_EQ(all[0].right, Right::kWrite);
  EXPECT_EQ(all[1].right, Right::kRead);
  EXPECT_EQ(all[2].right, Right::kWrite);
  rights.Renumber(100);
  EXPECT_EQ(rights.NumberOf(kFile), 100u);
  EXPECT_EQ(rights.NumberOf(kOther), 100u);
}

TEST(Rights, ConflictsAreThoseOfReadersAndWriters) {
  EXPECT_FALSE(Conflict(Right::kRead, Right::kRead));
  EXPECT_TRUE(Conflict(Right::kRead, Right::kWrite));
  EXPECT_TRUE(Conflict(Right::kWrite, Right::kRead));
  EXPECT_TRUE(Conflict(Right::kWrite, Right::kWrite));
  EXPECT_FALSE(Conflict(Right::kNone, Right::kWrite));
  EXPECT_EQ(StaysBeside(Right::kWrite), Right::kNone);
  EXPECT_EQ(StaysBeside(Right::kRead), Right::kRead);
}

TEST(Rights, AGrantThatALaterRecallEndedIsNotOnItsWay) {
  Rights rights;
  const InodeId dir{2}, other{3};
  ASSERT_TRUE(rights.Install(dir, Right::kWrite, 10, BootTime{}));
  EXPECT_FALSE(rights.Ended(dir, 10));
  rights.GaveUp(dir, Right::kNone, 12);
  rights.ForgetGivenUp();
  EXPECT_TRUE(rights.Ended(dir, 10));
  EXPECT_FALSE(rights.Ended(dir, 13));
  EXPECT_FALSE(rights.Ended(other, 10));
  for (uint64_t i = 0; i < 5000; ++i) rights.GaveUp(InodeId{100 + i}, Right::kNone, 20 + i);
  EXPECT_FALSE(rights.Ended(dir, 10)) << "the memory has a bound";
}

}  // namespace
}  // namespace archil
