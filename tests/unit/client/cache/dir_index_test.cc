#include "client/cache/dir_index.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "common/env/random.h"

namespace archil {
namespace {

using Answer = DirIndex::Answer;
constexpr FileType kFile = FileType::kRegular;

std::vector<std::string> List(const DirIndex& dir) {
  std::vector<std::string> names;
  for (auto item = dir.Next(2); item; item = dir.Next(item->cookie)) names.push_back(std::string(item->name));
  return names;
}

TEST(DirIndex, NewDirectoryKnowsEveryName) {
  DirIndex dir(/*complete=*/true);
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kAbsent);
  dir.Insert("a", InodeId{5}, kFile);
  DirItemRef item;
  ASSERT_EQ(dir.Find("a", &item), Answer::kPresent);
  EXPECT_EQ(item.ino, InodeId{5});
  EXPECT_EQ(item.name, "a");
  EXPECT_GT(item.cookie, 2u);
  dir.Remove("a");
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kAbsent);
  EXPECT_EQ(dir.removed(), 0u);
  EXPECT_EQ(dir.size(), 0u);
  EXPECT_EQ(dir.Next(0), std::nullopt);
}

TEST(DirIndex, ReplaceKeepsTheCookie) {
  DirIndex dir(true);
  dir.Insert("a", InodeId{5}, kFile);
  DirItemRef before, after;
  dir.Find("a", &before);
  dir.Replace("a", InodeId{6}, FileType::kSymlink);
  dir.Find("a", &after);
  EXPECT_EQ(after.cookie, before.cookie);
  EXPECT_EQ(after.ino, InodeId{6});
  EXPECT_EQ(after.type, FileType::kSymlink);
}

TEST(DirIndex, RemovedNameIsNotBroughtBackByAnOlderPage) {
  DirIndex dir(false);
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kUnknown);
  EXPECT_TRUE(dir.Load("a", InodeId{5}, kFile));
  EXPECT_FALSE(dir.Load("a", InodeId{9}, kFile));
  dir.Remove("a");
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kAbsent);
  EXPECT_FALSE(dir.Load("a", InodeId{5}, kFile));
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kAbsent);
  dir.SetComplete();
  EXPECT_FALSE(dir.Load("a", InodeId{5}, kFile));
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kAbsent);
  dir.Insert("a", InodeId{7}, kFile);
  EXPECT_EQ(dir.size(), 1u);
}

TEST(DirIndex, ForgetRemovedAsksTheServerAgain) {
  DirIndex dir(false);
  dir.Insert("a", InodeId{5}, kFile);
  dir.Remove("a");
  EXPECT_EQ(dir.removed(), 1u);
  dir.ForgetRemoved();
  EXPECT_EQ(dir.removed(), 0u);
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kUnknown);
}

TEST(DirIndex, NegativesAreBoundedAndTheOldestGo) {
  DirIndex dir(false);
  for (size_t i = 0; i < DirIndex::kMaxAbsent + 10; ++i) dir.LoadAbsent(fmt::format("n{}", i));
  EXPECT_EQ(dir.Find("n9", nullptr), Answer::kUnknown);
  EXPECT_EQ(dir.Find("n10", nullptr), Answer::kAbsent);
  const size_t memory = dir.memory_bytes();
  for (size_t i = 0; i < 100'000; ++i) dir.LoadAbsent(fmt::format("m{}", i));
  EXPECT_LT(dir.memory_bytes(), memory * 2);
  // A negative gives way to a name, of ours or the server's, and is not in the way of the bound then.
  dir.Insert("m99999", InodeId{5}, kFile);
  EXPECT_TRUE(dir.Load("m99998", InodeId{6}, kFile));
  dir.LoadAbsent("m99999");
  EXPECT_EQ(dir.Find("m99999", nullptr), Answer::kPresent);
  EXPECT_EQ(dir.size(), 2u);
  for (size_t i = 0; i < 2 * DirIndex::kMaxAbsent; ++i) dir.LoadAbsent(fmt::format("o{}", i));
  EXPECT_EQ(dir.Find("m99999", nullptr), Answer::kPresent);
  EXPECT_EQ(dir.Find("m99998", nullptr), Answer::kPresent);
}

TEST(DirIndex, MemoryReturns) {
  DirIndex dir(true);
  const size_t empty = dir.memory_bytes();
  for (int i = 0; i < 1000; ++i) dir.Insert(fmt::format("a rather long name of a file {}", i), InodeId{5}, kFile);
  EXPECT_GT(dir.memory_bytes(), empty + 1000 * 64);
  for (int i = 0; i < 1000; ++i) dir.Remove(fmt::format("a rather long name of a file {}", i));
  EXPECT_EQ(dir.memory_bytes(), empty);
}

TEST(DirIndexDeath, MisuseIsAFault) {
  DirIndex dir(true);
  EXPECT_DEATH(dir.Remove("a"), "");
  EXPECT_DEATH(dir.Replace("a", InodeId{1}, kFile), "");
  dir.Insert("a", InodeId{1}, kFile);
  EXPECT_DEATH(dir.Insert("a", InodeId{1}, kFile), "");
}

// A loop that renames each name that it meets must end.
TEST(DirIndex, ListingEndsThoughEachNameMakesAnother) {
  for (const bool loaded : {false, true}) {
    DirIndex dir(!loaded);
    for (int i = 0; i < 100; ++i) {
      if (loaded) {
        dir.Load(fmt::format("f{}", i), InodeId{10}, kFile);
      } else {
        dir.Insert(fmt::format("f{}", i), InodeId{10}, kFile);
      }
    }
    int met = 0;
    for (auto item = dir.Next(2); item; item = dir.Next(item->cookie)) {
      ASSERT_LE(++met, 100);
      const std::string name(item->name);
      dir.Remove(name);
      dir.Insert(name + ".bak", InodeId{10}, kFile);
    }
    EXPECT_EQ(met, 100);
    EXPECT_EQ(dir.size(), 100u);
  }
}

// Names come and go under a listing: every survivor is met once, nothing twice, and it ends.
TEST(DirIndex, ListingUnderChangesMissesNoSurvivor) {
  uint64_t changes = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    auto random = SeededRandom(seed);
    const bool complete = random->Below(2) == 0;
    DirIndex dir(complete);
    std::map<std::string, uint64_t> present;
    uint64_t next_ino = 10;
    auto add = [&](const std::string& name) {
      if (present.contains(name)) return;
      if (!complete && random->Below(2) == 0) {
        if (!dir.Load(name, InodeId{next_ino}, kFile)) return;  // removed here
      } else {
        dir.Insert(name, InodeId{next_ino}, kFile);
      }
      present[name] = next_ino++;
      ++changes;
    };
    auto name = [&] { return fmt::format("n{}", random->Below(60)); };
    for (int i = 0; i < 40; ++i) add(name());
    std::map<std::string, uint64_t> survivors = present;  // there from the beginning to the end
    std::set<uint64_t> met;
    int steps = 0;
    for (auto item = dir.Next(2); item; item = dir.Next(item->cookie)) {
      ASSERT_TRUE(met.insert(item->ino.value).second) << "seed " << seed;
      ASSERT_LT(++steps, 1000) << "seed " << seed;
      for (uint64_t n = random->Below(4); n > 0; --n) {
        const std::string victim = name();
        if (random->Below(2) == 0) {
          add(victim);
        } else if (present.contains(victim)) {
          dir.Remove(victim);
          present.erase(victim);
          survivors.erase(victim);
          ++changes;
        }
      }
    }
    for (const auto& [survivor, ino] : survivors) ASSERT_TRUE(met.contains(ino)) << survivor << " seed " << seed;
    ASSERT_EQ(List(dir).size(), present.size());
    for (const auto& [n, ino] : present) {
      DirItemRef item;
      ASSERT_EQ(dir.Find(n, &item), Answer::kPresent);
      ASSERT_EQ(item.ino.value, ino);
    }
  }
  EXPECT_GT(changes, 5'000u);
}

TEST(DirIndex, AfterInvalidateNothingIsKnownAndCookiesComeBack) {
  DirIndex dir(true);
  dir.Insert("a", InodeId{5}, kFile);
  dir.Insert("b", InodeId{6}, kFile);
  dir.Insert("c", InodeId{7}, kFile);
  DirItemRef before;
  ASSERT_EQ(dir.Find("b", &before), Answer::kPresent);
  const uint64_t cookie = before.cookie;
  dir.Invalidate();
  EXPECT_FALSE(dir.complete());
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kUnknown);
  EXPECT_EQ(dir.size(), 0u);
  EXPECT_EQ(dir.Next(0), std::nullopt);
  // Another inode stands under the name now; the listing that is under way goes on at the same place.
  EXPECT_TRUE(dir.Load("b", InodeId{60}, kFile));
  EXPECT_TRUE(dir.Load("d", InodeId{8}, kFile));
  dir.LoadAbsent("a");
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kAbsent);
  dir.SetComplete();
  DirItemRef after;
  ASSERT_EQ(dir.Find("b", &after), Answer::kPresent);
  EXPECT_EQ(after.cookie, cookie);
  EXPECT_EQ(after.ino, InodeId{60});
  EXPECT_EQ(dir.Find("c", nullptr), Answer::kAbsent);
  EXPECT_EQ(List(dir), (std::vector<std::string>{"b", "d"}));
}

TEST(DirIndex, InvalidateForgetsRemovedAndAbsentNames) {
  DirIndex dir(false);
  EXPECT_TRUE(dir.Load("a", InodeId{5}, kFile));
  dir.Remove("a");
  dir.LoadAbsent("b");
  dir.Invalidate();
  EXPECT_EQ(dir.removed(), 0u);
  EXPECT_EQ(dir.Find("a", nullptr), Answer::kUnknown);
  EXPECT_EQ(dir.Find("b", nullptr), Answer::kUnknown);
  EXPECT_TRUE(dir.Load("a", InodeId{9}, kFile));
}

}  // namespace
}  // namespace archil
