#include "common/env/mem_files.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "common/env/sched.h"

namespace archil {
namespace {

TEST(MemFiles, WhatWasSyncedSurvivesEveryCrash) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    MemFiles files;
    auto random = SeededRandom(seed);
    ASSERT_TRUE(files.MakeDirs("/d/e").ok());
    auto file = files.Open("/d/e/f", OpenMode::kCreateNew);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write(0, "hello").ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE(files.SyncDir("/d/e").ok());
    files.Crash(*random);
    EXPECT_EQ((*file)->Read(0, 5).code(), Code::kIo) << "a file object of before the crash lives on";
    EXPECT_EQ(*ReadWholeFile(files, "/d/e/f"), "hello");
  }
}

TEST(MemFiles, UnsyncedWritesAreKeptLostAndTorn) {
  std::set<std::string> outcomes;
  const std::string old_bytes(2048, 'a');
  const std::string new_bytes(2048, 'b');
  for (uint64_t seed = 0; seed < 400; ++seed) {
    MemFiles files;
    auto random = SeededRandom(seed);
    auto file = files.Open("/f", OpenMode::kCreateNew);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write(0, old_bytes).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE(files.SyncDir("/").ok());
    ASSERT_TRUE((*file)->Write(0, new_bytes).ok());
    files.Crash(*random);
    const std::string got = *ReadWholeFile(files, "/f");
    ASSERT_EQ(got.size(), 2048u);
    for (size_t sector = 0; sector < 4; ++sector) {  // sectors are whole
      const std::string part = got.substr(sector * 512, 512);
      ASSERT_TRUE(part == old_bytes.substr(0, 512) || part == new_bytes.substr(0, 512));
    }
    outcomes.insert(std::string({got[0], got[512], got[1024], got[1536]}));
  }
  EXPECT_EQ(outcomes.size(), 16u) << "some way of tearing a write never happens";
}

TEST(MemFiles, EntryChangesAreKeptOrLostEachOnItsOwn) {
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    MemFiles files;
    auto random = SeededRandom(seed);
    ASSERT_TRUE(files.Open("/a", OpenMode::kCreateNew).ok());
    ASSERT_TRUE(files.SyncDir("/").ok());
    ASSERT_TRUE(files.Rename("/a", "/b").ok());
    files.Crash(*random);
    std::string names;
    const auto listed = files.List("/");
    for (const std::string& name : *listed) names += name;
    outcomes.insert(names);
  }
  EXPECT_EQ(outcomes, (std::set<std::string>{"", "a", "ab", "b"}));
}

TEST(MemFiles, FailAfterStopsAtEveryStep) {
  const auto work = [](MemFiles& files) -> Status {
    ARCHIL_RETURN_IF_ERROR(files.MakeDirs("/d"));
    return WriteFileAtomically(files, "/d/f", "new");
  };
  MemFiles whole;
  ASSERT_TRUE(work(whole).ok());
  const uint64_t steps = whole.steps();
  EXPECT_EQ(steps, 9u);  // mkdir and its sync, create, truncate, write, sync, two changes of entries, sync of the directory
  for (uint64_t n = 0; n < steps; ++n) {
    MemFiles files;
    auto random = SeededRandom(n);
    files.FailAfter(n);
    EXPECT_EQ(work(files).code(), Code::kIo);
    EXPECT_TRUE(files.stopped());
    EXPECT_EQ(files.List("/").code(), Code::kIo);
    files.Crash(*random);
    EXPECT_FALSE(files.stopped());
    const auto bytes = ReadWholeFile(files, "/d/f");
    EXPECT_TRUE(!bytes.ok() || *bytes == "new") << n;
  }
  MemFiles files;
  files.FailAfter(steps);
  EXPECT_TRUE(work(files).ok());
}

TEST(MemFiles, AFailedSyncLosesItsBytesForGood) {
  uint64_t lost = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MemFiles files;
    auto random = SeededRandom(seed);
    auto file = files.Open("/f", OpenMode::kCreateNew);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(files.SyncDir("/").ok());
    for (char c = 'a'; c < 'e'; ++c) ASSERT_TRUE((*file)->Write(c - 'a', std::string(1, c)).ok());
    files.FailNext(MemFiles::Call::kSync, "/f", Code::kIo);
    EXPECT_EQ((*file)->Sync().code(), Code::kIo);
    EXPECT_EQ(*(*file)->Read(0, 4), "abcd");
    EXPECT_TRUE((*file)->Sync().ok());
    files.Crash(*random);
    if (*ReadWholeFile(files, "/f") != "abcd") ++lost;
  }
  EXPECT_GT(lost, 0u);
}

TEST(MemFiles, AKilledProcessLeavesItsUnsyncedStateToTheMachine) {
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MemFiles files;
    auto random = SeededRandom(seed);
    auto lock = files.LockFile("/lock");
    auto file = files.Open("/f", OpenMode::kCreateNew);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(files.SyncDir("/").ok());
    ASSERT_TRUE((*file)->Write(0, "abc").ok());
    files.KillProcess();
    EXPECT_EQ((*file)->Sync().code(), Code::kIo);
    EXPECT_TRUE(files.LockFile("/lock").ok());
    EXPECT_EQ(*ReadWholeFile(files, "/f"), "abc");
    files.Crash(*random);
    outcomes.insert(*ReadWholeFile(files, "/f"));
  }
  EXPECT_TRUE(outcomes.contains("abc"));
  EXPECT_TRUE(outcomes.contains(""));
}

TEST(MemFiles, MakeDirsMakesDurableWhatAKilledProcessLeft) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    MemFiles files;
    files.FailAfter(1);  // the directory is made, its name not synced
    EXPECT_EQ(files.MakeDirs("/d").code(), Code::kIo);
    files.KillProcess();
    ASSERT_TRUE(*files.Exists("/d"));
    ASSERT_TRUE(files.MakeDirs("/d").ok());
    files.Crash(*SeededRandom(seed));
    EXPECT_TRUE(*files.Exists("/d"));
  }
}

TEST(MemFiles, SpaceIsBoundedAndComesBack) {
  MemFiles files;
  files.SetCapacity(100);
  {
    auto file = files.Open("/f", OpenMode::kCreateNew);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ((*file)->Write(0, std::string(101, 'x')).code(), Code::kNoSpace);
    EXPECT_TRUE((*file)->Write(0, std::string(100, 'x')).ok());
    EXPECT_EQ(*files.FreeBytes("/"), 0u);
    EXPECT_EQ((*file)->Write(100, "x").code(), Code::kNoSpace);
    ASSERT_TRUE(files.Remove("/f").ok());
    EXPECT_EQ(files.used_bytes(), 100u) << "an open file keeps its space";
  }
  EXPECT_EQ(files.used_bytes(), 100u) << "an unsynced change still refers to it";
  ASSERT_TRUE(files.SyncDir("/").ok());
  EXPECT_EQ(files.used_bytes(), 0u);
}

TEST(MemFiles, LinksLocksAndListings) {
  MemFiles files;
  ASSERT_TRUE(files.MakeDirs("/d").ok());
  EXPECT_EQ(files.Open("/x/f", OpenMode::kCreateNew).code(), Code::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(files, "/d/f", "bytes").ok());
  ASSERT_TRUE(files.Link("/d/f", "/d/g").ok());
  EXPECT_EQ(files.Link("/d/f", "/d/g").code(), Code::kExists);
  ASSERT_TRUE(files.Remove("/d/f").ok());
  EXPECT_EQ(*ReadWholeFile(files, "/d/g"), "bytes");
  EXPECT_EQ(files.Stat("/d/g")->size, 5u);
  EXPECT_TRUE(files.Stat("/d")->is_directory);
  EXPECT_EQ(files.Stat("/d/f").code(), Code::kNotFound);
  {
    auto lock = files.LockFile("/d/lock");
    ASSERT_TRUE(lock.ok());
    EXPECT_EQ(files.LockFile("/d/lock").code(), Code::kBusy);
  }
  EXPECT_TRUE(files.LockFile("/d/lock").ok());
  ASSERT_TRUE(files.RemoveTree("/d").ok());
  EXPECT_FALSE(*files.Exists("/d"));
  EXPECT_TRUE(files.RemoveTree("/d").ok());
  EXPECT_EQ(files.open_files(), 0u);
}

TEST(MemFiles, FlippedBytesStayFlipped) {
  MemFiles files;
  auto random = SeededRandom(1);
  ASSERT_TRUE(WriteFileAtomically(files, "/f", "abc").ok());
  ASSERT_TRUE(files.FlipByte("/f", 1).ok());
  files.Crash(*random);
  EXPECT_NE(*ReadWholeFile(files, "/f"), "abc");
  EXPECT_EQ(files.FlipByte("/f", 3).code(), Code::kInvalid);
}

TEST(MemFiles, OneThreadAppendsWhileOthersReadAndMakeFilesOfTheirOwn) {
  constexpr int kThreads = 3;
  constexpr uint64_t kRounds = 300;
  MemFiles files;
  auto shared = files.Open("/shared", OpenMode::kCreateNew);
  ASSERT_TRUE(shared.ok());
  std::atomic<uint64_t> wrong{0};
  std::vector<std::unique_ptr<Thread>> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.push_back(RealScheduler().Spawn("reader", [&, t] {
      const std::string own = "/own" + std::to_string(t);
      for (uint64_t i = 0; i < kRounds; ++i) {
        const auto bytes = (*shared)->Read(0, kRounds);
        wrong += !bytes.ok() || bytes->find_first_not_of('x') != std::string::npos;
        wrong += !WriteFileAtomically(files, own, std::string(i, 'o')).ok();
      }
    }));
  }
  for (uint64_t i = 0; i < kRounds; ++i) wrong += !(*shared)->Write(i, "x").ok() || !(*shared)->Sync().ok();
  for (auto& thread : threads) thread->Join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(*ReadWholeFile(files, "/shared"), std::string(kRounds, 'x'));
  EXPECT_EQ(files.used_bytes(), kRounds + kThreads * (kRounds - 1));
  EXPECT_EQ(files.open_files(), 1u);
}

}  // namespace
}  // namespace archil
