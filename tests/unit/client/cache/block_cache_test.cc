#include "client/cache/block_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/env/random.h"

namespace archil {
namespace {

constexpr uint64_t kCost = 1000 + BlockCache::kEntryOverhead;
Buffer Bytes(size_t n, char c = 'x') { return Buffer(std::string(n, c)); }

TEST(BlockCache, KeepsAndCounts) {
  BlockCache cache(RealScheduler(), 10 * kCost);
  EXPECT_EQ(cache.Get(SegmentId{1}, 0), std::nullopt);
  cache.Put(SegmentId{1}, 0, Bytes(1000, 'a'));
  cache.Put(SegmentId{2}, 0, Bytes(1000, 'b'));
  cache.Put(SegmentId{1}, 1, Bytes(1000, 'c'));
  EXPECT_EQ(cache.Get(SegmentId{1}, 0)->view()[0], 'a');
  EXPECT_EQ(cache.Get(SegmentId{2}, 0)->view()[0], 'b');
  EXPECT_EQ(cache.Get(SegmentId{1}, 1)->view()[0], 'c');
  EXPECT_EQ(cache.bytes(), 3 * kCost);
  EXPECT_EQ(cache.hits(), 3u);
  EXPECT_EQ(cache.misses(), 1u);
  cache.Clear();
  EXPECT_EQ(cache.bytes(), 0u);
  EXPECT_EQ(cache.Get(SegmentId{1}, 0), std::nullopt);
}

TEST(BlockCache, LeastRecentlyUsedGoes) {
  BlockCache cache(RealScheduler(), 3 * kCost);
  for (uint64_t block = 0; block < 3; ++block) cache.Put(SegmentId{1}, block, Bytes(1000));
  EXPECT_TRUE(cache.Get(SegmentId{1}, 0));
  cache.Put(SegmentId{1}, 1, Bytes(1000));  // there already: used
  cache.Put(SegmentId{1}, 3, Bytes(1000));
  EXPECT_TRUE(cache.Get(SegmentId{1}, 0));
  EXPECT_TRUE(cache.Get(SegmentId{1}, 1));
  EXPECT_FALSE(cache.Get(SegmentId{1}, 2));
  EXPECT_TRUE(cache.Get(SegmentId{1}, 3));
}

TEST(BlockCache, TheLongerBlockStays) {
  BlockCache cache(RealScheduler(), 1 << 20);
  cache.Put(SegmentId{1}, 0, Bytes(10, 'a'));
  const auto held = cache.Get(SegmentId{1}, 0);
  cache.Put(SegmentId{1}, 0, Bytes(20, 'b'));
  EXPECT_EQ(cache.Get(SegmentId{1}, 0)->size(), 20u);
  cache.Put(SegmentId{1}, 0, Bytes(15, 'c'));
  EXPECT_EQ(cache.Get(SegmentId{1}, 0)->size(), 20u);
  EXPECT_EQ(cache.bytes(), 20 + BlockCache::kEntryOverhead);
  EXPECT_EQ(held->view(), std::string(10, 'a'));
}

TEST(BlockCache, ASliceKeepsNoLargerBufferAlive) {
  BlockCache cache(RealScheduler(), 1 << 20);
  auto whole = std::make_shared<const std::string>(1 << 22, 'w');
  cache.Put(SegmentId{1}, 0, Buffer(whole, 100, 50));
  EXPECT_EQ(whole.use_count(), 1);
  EXPECT_EQ(cache.Get(SegmentId{1}, 0)->size(), 50u);
}

TEST(BlockCache, LimitIsHard) {
  const uint64_t limit = 1 << 20;
  BlockCache cache(RealScheduler(), limit);
  cache.Put(SegmentId{1}, 0, Bytes(limit));  // with its overhead above the limit
  EXPECT_EQ(cache.bytes(), 0u);
  auto random = SeededRandom(3);
  for (int i = 0; i < 5000; ++i) {
    cache.Put(SegmentId{random->Below(4)}, random->Below(100), Bytes(random->Below(BlockCache::kBlock)));
    ASSERT_LE(cache.bytes(), limit);
  }
  EXPECT_GT(cache.bytes(), limit - BlockCache::kBlock - BlockCache::kEntryOverhead);
  BlockCache none(RealScheduler(), 0);
  none.Put(SegmentId{1}, 0, Bytes(0));
  EXPECT_FALSE(none.Get(SegmentId{1}, 0));
}

TEST(BlockCache, ManyThreads) {
  BlockCache cache(RealScheduler(), 64 * 1024);
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<uint64_t> found(4), wrong(4);
  for (size_t t = 0; t < 4; ++t) {
    threads.push_back(RealScheduler().Spawn("cache", [&, t] {
      auto random = SeededRandom(t);
      for (int i = 0; i < 20'000; ++i) {
        const uint64_t block = random->Below(100);
        const auto bytes = cache.Get(SegmentId{1}, block);
        if (!bytes) {
          cache.Put(SegmentId{1}, block, Bytes(1000, static_cast<char>(block)));
          continue;
        }
        ++found[t];
        if (bytes->size() != 1000 || bytes->view()[999] != static_cast<char>(block)) ++wrong[t];
      }
    }));
  }
  for (auto& thread : threads) thread->Join();
  for (size_t t = 0; t < 4; ++t) {
    EXPECT_GT(found[t], 100u);
    EXPECT_EQ(wrong[t], 0u);
  }
  EXPECT_EQ(cache.hits() + cache.misses(), 80'000u);
}

}  // namespace
}  // namespace archil
