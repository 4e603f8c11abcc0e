#include "server/data/segment_format.h"

#include <gtest/gtest.h>

#include "common/base/bytes.h"
#include "common/base/checksum.h"

namespace archil {
namespace {

const SegmentKey kKey{DiskId(0x1122), SegmentId(0x3344)};
const SegmentKey kOther{DiskId(0x1122), SegmentId(0x3345)};

std::string Hex(std::string_view bytes) {
  std::string out;
  for (const unsigned char c : bytes) {
    out += "0123456789abcdef"[c >> 4];
    out += "0123456789abcdef"[c & 15];
  }
  return out;
}

// Builds a segment file frame by frame.
struct FileMaker {
  std::string file = EncodeSegmentHeader(kKey);
  std::vector<FrameRef> frames;
  uint64_t length = 0;
  uint64_t synced = 0;

  // Returns the position of the frame.
  uint64_t Add(const std::string& payload, bool ends = true, uint64_t token = 1) {
    const uint64_t position = file.size();
    FrameHeader h;
    h.kind = payload.empty() ? FrameKind::kFence : FrameKind::kData;
    h.ends_append = ends;
    h.length = static_cast<uint32_t>(payload.size());
    h.offset = length;
    h.token = token;
    h.synced = synced;
    h.checksum = Checksum(payload);
    if (!payload.empty()) {
      frames.push_back({static_cast<uint32_t>(length), static_cast<uint32_t>(position), h.length});
    }
    EncodeFrameHeader(h, kKey, &file);
    file += payload;
    length += payload.size();
    return position;
  }
  void Sync() { synced = file.size(); }
  void Flip(uint64_t position) { file[position] = static_cast<char>(file[position] ^ 1); }
};

// Version 1, byte by byte: what is on somebody's disk already must stay readable.
TEST(SegmentFormat, GoldenBytes) {
  EXPECT_EQ(Hex(EncodeSegmentHeader(kKey)),
            "415243534547310a010000000000000022110000000000004433000000000000"
            "000000000000000000000000000000000000000000000000cb8cb79d8ff78af8");
  std::string frame;
  EncodeFrameHeader({FrameKind::kData, true, 5, 7, 9, 64, 0x0102030405060708}, kKey, &frame);
  EXPECT_EQ(Hex(frame), "4146524d010100000500000000000000070000000000000009000000"
            "00000000400000000000000008070605040302010b8cb8b092ccc416");
  EXPECT_EQ(Hex(EncodeIndex({{0, 64, 5}, {5, 125, 300}}, kKey)), "414944580100000002000000000000000000000040000000"
            "05000000050000007d0000002c010000812499c7c674a51e");
  EXPECT_EQ(Hex(EncodeTrailer({481, 48, 305, 9, 2}, kKey)), "415243454e44310a0100000002000000e1010000000000003000000000000000"
            "31010000000000000900000000000000000000000000000059f4a747e8764ee5");
  EXPECT_EQ(Hex(EncodeStateRecord({StateRecord::Kind::kBroken, 305, 9, 0}, kKey)), "415243535441310a010000000200000031010000000000000900000000000000"
            "0000000000000000000000000000000000000000000000005f75da979838595f");
}

TEST(SegmentFormat, RoundTrips) {
  EXPECT_TRUE(DecodeSegmentHeader(EncodeSegmentHeader(kKey), kKey).ok());
  std::string bytes;
  EncodeFrameHeader({FrameKind::kData, false, 5, 7, 9, 64, 77}, kKey, &bytes);
  ASSERT_EQ(bytes.size(), kFrameHeaderSize);
  const auto frame = DecodeFrameHeader(bytes, kKey);
  ASSERT_TRUE(frame.ok());
  EXPECT_FALSE(frame->ends_append);
  EXPECT_EQ(frame->length, 5u);
  EXPECT_EQ(frame->offset, 7u);
  EXPECT_EQ(frame->token, 9u);
  EXPECT_EQ(frame->synced, 64u);
  EXPECT_EQ(frame->checksum, 77u);
  const std::vector<FrameRef> frames = {{0, 64, 5}, {5, 125, 300}};
  const auto index = DecodeIndex(EncodeIndex(frames, kKey), kKey, 481, 305);
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(*index, frames);
  EXPECT_EQ(DecodeIndex(EncodeIndex(frames, kKey), kKey, 480, 305).code(), Code::kCorrupt) << "outside the file";
  EXPECT_EQ(DecodeIndex(EncodeIndex(frames, kKey), kKey, 481, 304).code(), Code::kCorrupt) << "past the length";
  EXPECT_EQ(DecodeIndex(EncodeIndex({{5, 125, 300}, {0, 64, 5}}, kKey), kKey, 481, 305).code(), Code::kCorrupt);
  const auto trailer = DecodeTrailer(EncodeTrailer({481, 48, 305, 9, 2}, kKey), kKey, 481 + 48 + 64);
  ASSERT_TRUE(trailer.ok());
  EXPECT_EQ(trailer->index_position, 481u);
  EXPECT_EQ(trailer->length, 305u);
  EXPECT_EQ(trailer->token, 9u);
  EXPECT_EQ(DecodeTrailer(EncodeTrailer({481, 48, 305, 9, 2}, kKey), kKey, 600).code(), Code::kCorrupt);
  const auto record = DecodeStateRecord(EncodeStateRecord({StateRecord::Kind::kUploaded, 305, 9, 600}, kKey), kKey);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->object_size, 600u);
}

TEST(SegmentFormat, EveryFlippedBitAndEveryCutIsNoticed) {
  std::string frame;
  EncodeFrameHeader({FrameKind::kData, true, 5, 7, 9, 64, 77}, kKey, &frame);
  const std::vector<std::pair<std::string, std::function<bool(std::string_view)>>> all = {
      {EncodeSegmentHeader(kKey), [](std::string_view b) { return DecodeSegmentHeader(b, kKey).ok(); }},
      {frame, [](std::string_view b) { return DecodeFrameHeader(b, kKey).ok(); }},
      {EncodeIndex({{0, 64, 5}}, kKey), [](std::string_view b) { return DecodeIndex(b, kKey, 1000, 5).ok(); }},
      {EncodeTrailer({481, 48, 305, 9, 2}, kKey),
       [](std::string_view b) { return DecodeTrailer(b, kKey, 481 + 48 + 64).ok(); }},
      {EncodeStateRecord({}, kKey), [](std::string_view b) { return DecodeStateRecord(b, kKey).ok(); }},
  };
  for (const auto& [bytes, accepts] : all) {
    ASSERT_TRUE(accepts(bytes));
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string bad = bytes;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_FALSE(accepts(bad)) << bit;
    }
    for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(accepts(std::string_view(bytes).substr(0, n))) << n;
  }
}

TEST(SegmentFormat, AStructureBelongsToItsSegment) {
  EXPECT_EQ(DecodeSegmentHeader(EncodeSegmentHeader(kKey), kOther).code(), Code::kCorrupt);
  std::string frame;
  EncodeFrameHeader({FrameKind::kData, true, 5, 7, 9, 64, 77}, kKey, &frame);
  EXPECT_EQ(DecodeFrameHeader(frame, kOther).code(), Code::kCorrupt);
  EXPECT_EQ(DecodeIndex(EncodeIndex({}, kKey), kOther, 1000, 5).code(), Code::kCorrupt);
  EXPECT_EQ(DecodeStateRecord(EncodeStateRecord({}, kKey), kOther).code(), Code::kCorrupt);
  FileMaker maker;
  maker.Add("abc");
  EXPECT_EQ(ScanSegment(maker.file, kOther).length, 0u);
}

TEST(SegmentFormat, ANewerVersionIsRefused) {
  std::string header = EncodeSegmentHeader(kKey);
  header[8] = 2;  // the version; the checksum is made anew
  const std::string_view body = std::string_view(header).substr(0, kSegmentHeaderSize - 8);
  ByteWriter keyed;
  keyed.U64(kKey.disk.value);
  keyed.U64(kKey.segment.value);
  keyed.U64(Checksum(body));
  ByteWriter whole;
  whole.Bytes(body);
  whole.U64(Checksum(keyed.str()));
  EXPECT_EQ(DecodeSegmentHeader(whole.str(), kKey).code(), Code::kNotSupported);
}

TEST(SegmentScan, GoodFilesAreReadWhole) {
  FileMaker maker;
  maker.Add("hello");
  maker.Sync();
  maker.Add("", true, 7);
  maker.Add(std::string(1000, 'x'), false, 7);
  maker.Add("end", true, 7);
  for (const std::string& tail : {std::string(), std::string(5000, '\0')}) {
    const SegmentScan scan = ScanSegment(maker.file + tail, kKey);
    EXPECT_EQ(scan.frames, maker.frames);
    EXPECT_EQ(scan.length, maker.length);
    EXPECT_EQ(scan.end, maker.file.size());
    EXPECT_EQ(scan.token, 7u);
    EXPECT_TRUE(scan.header_ok);
    EXPECT_FALSE(scan.damaged || scan.torn || scan.sealing);
  }
}

TEST(SegmentScan, EveryCutLeavesWholeAppends) {
  FileMaker maker;
  std::vector<std::pair<uint64_t, uint64_t>> ends = {{kSegmentHeaderSize, 0}};  // (position, length)
  for (const int n : {5, 100, 1, 60}) {
    maker.Add(std::string(n, 'a'), false);
    maker.Add(std::string(n, 'b'));
    ends.push_back({maker.file.size(), maker.length});
  }
  for (size_t cut = kSegmentHeaderSize; cut <= maker.file.size(); ++cut) {
    const SegmentScan scan = ScanSegment(std::string_view(maker.file).substr(0, cut), kKey);
    auto last = ends.begin();
    for (auto it = ends.begin(); it != ends.end() && it->first <= cut; ++it) last = it;
    EXPECT_EQ(scan.end, last->first) << cut;
    EXPECT_EQ(scan.length, last->second) << cut;
    EXPECT_FALSE(scan.damaged);
    EXPECT_EQ(scan.torn, cut > last->first);
  }
}

TEST(SegmentScan, ABadFrameBelowASyncedPositionIsDamageAndNothingIsCut) {
  for (const bool in_header : {true, false}) {
    FileMaker maker;
    maker.Add("first");
    maker.Sync();
    const uint64_t bad = maker.Add("second");
    maker.Sync();
    maker.Add("third");
    maker.Flip(bad + (in_header ? 10 : kFrameHeaderSize));
    const SegmentScan scan = ScanSegment(maker.file, kKey);
    EXPECT_TRUE(scan.damaged);
    EXPECT_EQ(scan.length, maker.length);
    EXPECT_EQ(scan.end, maker.file.size());
    EXPECT_EQ(scan.frames, (std::vector<FrameRef>{maker.frames[0], maker.frames[2]}));
  }
}

TEST(SegmentScan, ABadFrameInAnUnsyncedBatchIsATornTail) {
  FileMaker maker;
  maker.Add("first");
  maker.Sync();
  const uint64_t end = maker.file.size();
  const uint64_t bad = maker.Add("second");
  maker.Add("third");  // of the same batch: it came through, the one before did not
  maker.Flip(bad + kFrameHeaderSize);
  const SegmentScan scan = ScanSegment(maker.file, kKey);
  EXPECT_FALSE(scan.damaged);
  EXPECT_TRUE(scan.torn);
  EXPECT_EQ(scan.length, 5u);
  EXPECT_EQ(scan.end, end);
}

TEST(SegmentScan, ALostFenceIsDamageWhenSomethingWasSyncedAfterIt) {
  FileMaker maker;
  maker.Add("first");
  maker.Sync();
  const uint64_t fence = maker.Add("", true, 9);
  maker.Sync();
  maker.Add("second", true, 9);
  maker.Flip(fence + 10);
  const SegmentScan scan = ScanSegment(maker.file, kKey);
  EXPECT_TRUE(scan.damaged);
  EXPECT_EQ(scan.length, 11u);
  EXPECT_EQ(scan.token, 9u) << "SEG-2: the token stands in later frames as well";
}

TEST(SegmentScan, ABadHeaderIsDamageOnlyIfItWasSynced) {
  FileMaker maker;
  maker.Add("first");
  FileMaker synced = maker;
  synced.Sync();
  synced.Add("second");
  maker.Flip(9);
  synced.Flip(9);
  EXPECT_FALSE(ScanSegment(maker.file, kKey).damaged);
  EXPECT_EQ(ScanSegment(maker.file, kKey).length, 5u);
  EXPECT_TRUE(ScanSegment(synced.file, kKey).damaged);
  EXPECT_EQ(ScanSegment(synced.file, kKey).length, 11u);
}

TEST(SegmentScan, ASealUnderWayIsSeen) {
  FileMaker maker;
  maker.Add("first");
  const std::string end = EncodeSegmentEnd(maker.frames, maker.file.size(), maker.length, 1, kKey);
  const SegmentScan scan = ScanSegment(maker.file + end.substr(0, 10), kKey);
  EXPECT_TRUE(scan.sealing);
  EXPECT_EQ(scan.end, maker.file.size());
  EXPECT_EQ(ScanSegment("", kKey).end, kSegmentHeaderSize);
  EXPECT_EQ(ScanSegment("", kKey).length, 0u);
}

}  // namespace
}  // namespace archil
