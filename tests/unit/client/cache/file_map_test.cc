// FileMap: its rules one by one, and its costs by counting.
#include "client/cache/file_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/env/random.h"
#include "common/env/sched.h"

namespace archil {
namespace {

using Source = FilePiece::Source;
constexpr uint64_t kMax = kMaxAppend;
constexpr uint64_t kMiB = 1 << 20;

std::string Text(const FileMap& map, uint64_t offset, uint64_t length) {
  std::string text;
  for (const FilePiece& piece : map.Read(offset, length)) {
    switch (piece.source) {
      case Source::kHole: text.append(piece.length, '.'); break;
      case Source::kZero: text.append(piece.length, '0'); break;
      case Source::kSegment: text.append(piece.length, 'S'); break;
      default: text.append(piece.data.view());
    }
  }
  return text;
}

Extent SegmentExtent(uint64_t offset, uint64_t length, uint64_t segment, uint64_t at) {
  return {.offset = offset, .length = length, .segment = SegmentId{segment}, .segment_offset = at};
}

Extent InlineExtent(uint64_t offset, std::string bytes) {
  Extent extent{.offset = offset, .length = bytes.size(), .kind = ExtentKind::kInline};
  extent.data = Buffer(std::move(bytes));
  return extent;
}

TEST(FileMap, NewFileIsOneHoleAndKnown) {
  FileMap map(/*born_here=*/true);
  EXPECT_TRUE(map.ChunkKnown(0));
  EXPECT_TRUE(map.ChunkKnown(1ULL << 40));
  EXPECT_TRUE(map.MissingChunks(0, kMaxFileSize).empty());
  EXPECT_EQ(Text(map, 5, 3), "...");
  EXPECT_TRUE(map.Read(7, 0).empty());
  EXPECT_EQ(map.SeekData(0, 100), std::nullopt);
  EXPECT_EQ(map.SeekHole(0, 100), 0u);
  EXPECT_FALSE(map.has_memory());
}

TEST(FileMap, LastByteOfTheLargestFile) {
  FileMap map(true);
  map.Write(kMaxFileSize - 1, "z");
  EXPECT_EQ(Text(map, kMaxFileSize - 3, 3), "..z");
  map.Clear(kMaxFileSize - 2, kMaxFileSize, ClearKind::kZero);
  EXPECT_EQ(Text(map, kMaxFileSize - 3, 3), ".00");
  map.Truncate(0);
  EXPECT_EQ(map.pieces(), 0u);
}

// Truncate down, then up, reads zeros; also where the server still has bytes.
TEST(FileMap, TruncateHidesWhatTheServerHas) {
  FileMap map(false);
  map.Truncate(kMiB + 10);
  EXPECT_FALSE(map.ChunkKnown(0));
  EXPECT_FALSE(map.ChunkKnown(1));
  EXPECT_TRUE(map.ChunkKnown(2));
  EXPECT_EQ(map.MissingChunks(0, 10 * kMiB), (std::vector<uint64_t>{0, 1}));
  EXPECT_TRUE(map.MissingChunks(kMiB + 10, kMiB).empty());
  map.LoadChunk(1, {SegmentExtent(kMiB, 100, 7, 0)});
  EXPECT_EQ(Text(map, kMiB + 8, 4), "SS..");
  map.LoadChunk(2, {SegmentExtent(2 * kMiB, 100, 7, 0)});  // known: ignored
  EXPECT_EQ(Text(map, 2 * kMiB, 2), "..");
}

TEST(FileMap, LoadFillsOnlyWhatWasNotChangedHere) {
  FileMap map(false);
  map.Write(2, "ab");
  map.Clear(6, 2, ClearKind::kPunch);
  map.Clear(8, 1, ClearKind::kZero);
  EXPECT_EQ(map.MissingChunks(2, 2), std::vector<uint64_t>{});
  EXPECT_EQ(map.MissingChunks(2, 3), std::vector<uint64_t>{0});
  map.LoadChunk(0, {InlineExtent(0, "0123456789")});
  EXPECT_EQ(Text(map, 0, 12), "01ab45..09..");
  EXPECT_EQ(map.inline_bytes(), 5u);
  EXPECT_EQ(map.allocated_bytes(), 8u);
}

// A damaged answer must not break the map: what does not fit is left out.
TEST(FileMap, LoadOfOddExtents) {
  FileMap map(false);
  Extent cut = InlineExtent(kMiB - 2, "abcdef");
  Extent liar = InlineExtent(10, "xy");
  liar.length = 100;
  map.LoadChunk(0, {SegmentExtent(4, 4, 1, 0), SegmentExtent(6, 4, 2, 0), liar, cut, SegmentExtent(~0ULL - 1, 5, 1, 1),
                    SegmentExtent(5 * kMiB, 5, 1, 1), SegmentExtent(0, 0, 1, 1)});
  const auto pieces = map.Read(0, 20);
  EXPECT_EQ(Text(map, 0, 20), "....SSSSSSxy........");
  EXPECT_EQ(Text(map, kMiB - 2, 2), "ab");
  EXPECT_EQ(pieces[2].segment, SegmentId{2});
  EXPECT_EQ(pieces[2].segment_offset, 2u);
}

TEST(FileMap, WriteAfterTakeIsDirtyAgain) {
  FileMap map(true);
  map.Write(0, "aaaa");
  auto first = map.Take(1, kMax);
  ASSERT_EQ(first.size(), 1u);
  map.Write(1, "BB");
  EXPECT_EQ(map.dirty_bytes(), 2u);
  EXPECT_EQ(map.taken_bytes(), 2u);
  EXPECT_EQ(first[0].data.view(), "aaaa");
  auto second = map.Take(2, kMax);
  map.Placed(1, {SegmentExtent(0, 4, 9, 100)});
  EXPECT_EQ(Text(map, 0, 4), "SBBS");
  map.Untake(2);
  EXPECT_EQ(map.dirty_bytes(), 2u);
  map.Placed(2, {SegmentExtent(0, 4, 9, 200)});  // no longer taken
  EXPECT_EQ(Text(map, 0, 4), "SBBS");
  map.Take(3, kMax);
  map.Placed(3, {SegmentExtent(1, 2, 9, 101)});
  const auto pieces = map.Read(0, 4);
  ASSERT_EQ(pieces.size(), 1u);  // they lie together in the segment
  EXPECT_EQ(pieces[0].segment_offset, 100u);
  EXPECT_EQ(map.memory_bytes() < 1024, true);
}

TEST(FileMap, PlacedAfterTruncateBringsNothingBack) {
  FileMap map(true);
  map.Write(0, "abcdef");
  map.Take(1, kMax);
  map.Truncate(2);
  map.Write(4, "x");
  map.Placed(1, {SegmentExtent(0, 6, 3, 0)});
  EXPECT_EQ(Text(map, 0, 6), "SS..x.");
}

TEST(FileMap, TakeMergesAndSplits) {
  FileMap map(true);
  map.Write(4, "4567");
  map.Write(0, "0123");
  map.Write(20, "xy");
  auto ranges = map.Take(1, 3);
  ASSERT_EQ(ranges.size(), 4u);
  EXPECT_EQ(ranges[0].data.view(), "012");
  EXPECT_EQ(ranges[1].data.view(), "345");
  EXPECT_EQ(ranges[2].data.view(), "67");
  EXPECT_EQ(ranges[3].offset, 20u);
  EXPECT_TRUE(map.Take(2, 3).empty());
  EXPECT_EQ(Text(map, 0, 8), "01234567");
}

TEST(FileMap, InlineTakenForCompaction) {
  FileMap map(true);
  map.Write(0, "abcd");
  map.Take(1, kMax);
  map.Placed(1, {InlineExtent(0, "abcd")});
  EXPECT_EQ(map.inline_bytes(), 4u);
  EXPECT_FALSE(map.has_memory());
  auto ranges = map.TakeInline(2, kMax);
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(map.taken_bytes(), 4u);
  EXPECT_EQ(Text(map, 0, 4), "abcd");
  map.Untake(2);
  EXPECT_EQ(map.inline_bytes(), 4u);
  EXPECT_EQ(map.dirty_bytes(), 0u);
  map.TakeInline(3, kMax);
  map.Write(3, "X");
  map.Placed(3, {SegmentExtent(0, 4, 5, 0)});
  EXPECT_EQ(Text(map, 0, 4), "SSSX");
}

TEST(FileMap, AllocateFillsHolesOnly) {
  FileMap map(true);
  map.Write(3, "ab");
  map.Clear(0, 8, ClearKind::kAllocate);
  EXPECT_EQ(Text(map, 0, 10), "000ab000..");
  EXPECT_EQ(map.SeekData(0, 10), 0u);
  EXPECT_EQ(map.SeekHole(0, 10), 8u);
  EXPECT_EQ(map.SeekHole(0, 8), std::nullopt);
}

TEST(FileMap, SeekFindsDirtyBytes) {
  FileMap map(true);
  map.Write(10, "aa");
  map.Write(20, "bb");
  EXPECT_EQ(map.SeekData(0, 30), 10u);
  EXPECT_EQ(map.SeekData(11, 30), 11u);
  EXPECT_EQ(map.SeekData(12, 30), 20u);
  EXPECT_EQ(map.SeekData(22, 30), std::nullopt);
  EXPECT_EQ(map.SeekData(12, 20), std::nullopt);
  EXPECT_EQ(map.SeekHole(10, 30), 12u);
  EXPECT_EQ(map.SeekHole(20, 22), std::nullopt);
}

TEST(FileMap, DropCleanKeepsChunksOfOurs) {
  FileMap map(true);
  map.Write(0, "old");
  map.Take(1, kMax);
  map.Placed(1, {SegmentExtent(0, 3, 1, 0)});
  map.Write(kMiB + 5, "new");
  map.DropClean();
  EXPECT_FALSE(map.ChunkKnown(0));
  EXPECT_TRUE(map.ChunkKnown(1));
  EXPECT_FALSE(map.ChunkKnown(2));
  EXPECT_EQ(Text(map, kMiB + 4, 5), ".new.");
  EXPECT_EQ(map.allocated_bytes(), 3u);
}

TEST(FileMapDeath, ReadingTheUnknownIsAFault) {
  FileMap map(false);
  EXPECT_DEATH((void)map.Read(0, 1), "");
}

// Readers on other threads look at their buffers while the writer appends, overwrites in place and takes.
TEST(FileMap, ReadersOnOtherThreadsSeeNoByteChange) {
  Scheduler& scheduler = RealScheduler();
  Mutex mu(scheduler);
  std::vector<std::pair<std::string, FilePiece>> handed;  // under mu
  bool done = false;                                      // under mu
  uint64_t wrong = 0, read = 0;                           // under mu
  std::vector<std::unique_ptr<Thread>> readers;
  for (int i = 0; i < 2; ++i) {
    readers.push_back(scheduler.Spawn("reader", [&] {
      for (;;) {
        std::vector<std::pair<std::string, FilePiece>> mine;
        {
          MutexLock lock(mu);
          mine.swap(handed);
          if (mine.empty() && done) return;
        }
        uint64_t bad = 0;
        for (const auto& [expected, piece] : mine) bad += piece.data.view() != expected;
        MutexLock lock(mu);
        wrong += bad;
        read += mine.size();
      }
    }));
  }
  FileMap map(true);
  auto random = SeededRandom(11);
  uint64_t end = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text(1 + random->Below(50), static_cast<char>('a' + i % 26));
    const uint64_t at = random->Below(2) == 0 ? end : random->Below(end + 1);
    map.Write(at, text);
    end = std::max(end, at + text.size());
    if (i % 1000 == 999) map.Placed(i, {SegmentExtent(0, map.Take(i, kMax).empty() ? 1 : end, 1, 0)});
    if (random->Below(4) != 0) continue;
    for (FilePiece& piece : map.Read(at, text.size())) {
      MutexLock lock(mu);
      handed.push_back({std::string(piece.data.view()), std::move(piece)});
    }
  }
  {
    MutexLock lock(mu);
    done = true;
  }
  for (auto& reader : readers) reader->Join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(read, 1000u);
}

// ---- costs

TEST(FileMapCost, SmallSequentialWritesMakeFewPieces) {
  FileMap map(true);
  const std::string piece(100, 'p');
  for (uint64_t i = 0; i < 100'000; ++i) map.Write(i * 100, piece);
  EXPECT_LT(map.pieces(), 40u);
  EXPECT_LT(map.memory_bytes(), 25'000'000u);
  auto ranges = map.Take(1, kMax);
  EXPECT_EQ(ranges.size(), 3u);
  EXPECT_LT(map.memory_bytes(), 10'100'000u);
}

// A reader that looks at the end after each write neither makes pieces nor sees bytes change.
TEST(FileMapCost, ReadsBetweenAppendsCostNothing) {
  FileMap map(true);
  auto text = [](uint64_t i) { return std::string(10, static_cast<char>('a' + i % 26)); };
  std::vector<FilePiece> seen;
  for (uint64_t i = 0; i < 20'000; ++i) {
    map.Write(i * 10, text(i));
    for (FilePiece& piece : map.Read(i * 10, 10)) seen.push_back(std::move(piece));
  }
  EXPECT_LT(map.pieces(), 30u);
  ASSERT_GE(seen.size(), 20'000u);
  for (const FilePiece& piece : seen) {
    ASSERT_EQ(piece.data.view(), text(piece.offset / 10).substr(0, piece.length));
  }
}

TEST(FileMapCost, RandomOverwritesOfADirtyFileStayInPlace) {
  FileMap map(true);
  const uint64_t size = 64 * kMiB;
  const std::string block(128 * 1024, 'b');
  for (uint64_t at = 0; at < size; at += block.size()) map.Write(at, block);
  const size_t before = map.pieces();
  auto random = SeededRandom(7);
  const std::string page(4096, 'p');
  for (int i = 0; i < 100'000; ++i) map.Write(random->Below(size / 4096) * 4096, page);
  EXPECT_EQ(map.pieces(), before);
  EXPECT_EQ(map.dirty_bytes(), size);
}

TEST(FileMapCost, RandomOverwritesOfALargeCleanFile) {
  FileMap map(false);
  const uint64_t pages = 1 << 20;  // 4 GiB
  auto random = SeededRandom(8);
  const std::string page(4096, 'p');
  for (int i = 0; i < 100'000; ++i) {
    map.Write(random->Below(pages) * 4096, page);
    if (i % 1000 == 999) {
      const TakeId take = i / 1000 + 1;
      std::vector<Extent> extents;
      uint64_t at = 0;
      for (const DirtyRange& range : map.Take(take, kMax)) {
        extents.push_back(SegmentExtent(range.offset, range.data.size(), take, at));
        at += range.data.size();
      }
      map.Placed(take, extents);
      ASSERT_FALSE(map.has_memory());
    }
  }
  EXPECT_LE(map.pieces(), 100'000u);
  EXPECT_GT(map.pieces(), 50'000u);
  EXPECT_LT(map.memory_bytes(), 30'000'000u);
  map.DropClean();
  EXPECT_EQ(map.pieces(), 0u);
}

// Few bytes do not keep a large block alive.
TEST(FileMapCost, RemainsOfALargeBlockAreCopiedOut) {
  FileMap map(true);
  map.Write(0, std::string(8 * kMiB, 'x'));
  map.Clear(100, 8 * kMiB - 200, ClearKind::kPunch);
  EXPECT_EQ(map.pieces(), 2u);
  EXPECT_LT(map.memory_bytes(), 4096u);
  EXPECT_EQ(Text(map, 98, 4), "xx..");
}

TEST(FileMapCost, TailThatIsTakenGivesUpItsReserve) {
  FileMap map(true);
  map.Write(0, std::string(kMiB, 'x'));
  map.Write(kMiB, "y");
  map.Take(1, kMiB);
  EXPECT_LT(map.memory_bytes(), kMiB + 4096);
}

}  // namespace
}  // namespace archil
