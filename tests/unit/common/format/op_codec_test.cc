// Encoding of ops: golden bytes, round trips, limits, and what a hostile batch may not do.
#include "common/format/op_codec.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "common/env/random.h"
#include "tests/support/sample_ops.h"

namespace archil {
namespace {

constexpr char kGoldenDir[] = "tests/unit/common/format/testdata/";

std::string ToHex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto b = static_cast<uint8_t>(c);
    out += kDigits[b >> 4];
    out += kDigits[b & 15];
  }
  return out;
}

// One op, framed as a batch with the given body.
std::string Batch(uint8_t kind, std::string_view body) {
  ByteWriter w;
  w.U8(1);
  w.Varint(1);
  w.U8(kind);
  w.LengthPrefixed(body);
  return w.Take();
}

std::string BodyOf(const Op& op) {
  ByteWriter w;
  EncodeOp(op, w);
  ByteReader r(w.str());
  r.U8();
  return std::string(r.LengthPrefixed());
}

std::string Recode(const Op& op) {
  const std::string encoded = EncodeOps({&op, 1});
  const auto decoded = DecodeOps(encoded);
  EXPECT_TRUE(decoded.ok()) << op.index();
  if (!decoded.ok()) return "";
  EXPECT_EQ(decoded->size(), 1u);
  EXPECT_EQ(decoded->front().index(), op.index());
  return EncodeOps(*decoded);
}

// The bytes of version 1 never change: disks and logs hold them. One line of hex for each sample op.
// ARCHIL_WRITE_GOLDEN=1 writes the file; a diff in it is a break of the format.
TEST(OpCodec, GoldenFile) {
  std::string lines;
  for (const Op& op : SampleOps()) lines += ToHex(EncodeOps({&op, 1})) + "\n";
  lines += ToHex(EncodeOps(SampleOps())) + "\n";
  const std::string path = std::string(kGoldenDir) + "ops_v1.hex";
  if (std::getenv("ARCHIL_WRITE_GOLDEN") != nullptr) std::ofstream(path) << lines;
  std::ifstream in(path);
  const std::string golden(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(lines, golden);
}

TEST(OpCodec, SampleFieldsSurvive) {
  const auto decoded = DecodeOps(EncodeOps(SampleOps()));
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->size(), SampleOps().size());
  const auto& create = std::get<CreateOp>((*decoded)[1]);
  EXPECT_EQ(create.parent, InodeId{1});
  EXPECT_EQ(create.name, "link");
  EXPECT_EQ(create.ino, InodeId{4097});
  EXPECT_EQ(create.type, FileType::kSymlink);
  EXPECT_EQ(create.mode, 0777u);
  EXPECT_EQ(create.uid, 1000u);
  EXPECT_EQ(create.gid, 100u);
  EXPECT_EQ(create.target, "../target");
  EXPECT_EQ(create.now, (Timestamp{1'767'225'600, 123'456'789}));
  EXPECT_EQ(std::get<CreateOp>((*decoded)[2]).rdev, 0x103u);
  const auto& rename = std::get<RenameOp>((*decoded)[6]);
  EXPECT_EQ(rename.name, "from");
  EXPECT_EQ(rename.new_parent, InodeId{2});
  EXPECT_EQ(rename.new_name, "to");
  EXPECT_EQ(rename.ino, InodeId{4100});
  EXPECT_EQ(rename.victim, InodeId{4101});
  EXPECT_TRUE(rename.victim_still_open);
  const auto& set = std::get<SetAttrOp>((*decoded)[8]);
  EXPECT_EQ(set.fields, 63u);
  EXPECT_EQ(set.atime, (Timestamp{-1, 5}));
  EXPECT_EQ(set.mtime, (Timestamp{-2, 6}));
  EXPECT_EQ(set.size, 1u << 20);
  const auto& extents = std::get<SetExtentsOp>((*decoded)[10]);
  ASSERT_EQ(extents.extents.size(), 3u);
  EXPECT_EQ(extents.extents[0].segment, SegmentId{77});
  EXPECT_EQ(extents.extents[0].segment_offset, 8192u);
  EXPECT_EQ(extents.extents[1].data.view(), "inline data");
  EXPECT_EQ(extents.extents[2].offset, 1u << 20);
  EXPECT_EQ(extents.extents[2].length, 65536u);
  EXPECT_EQ(extents.extents[2].kind, ExtentKind::kZero);
  EXPECT_EQ(extents.clear_mode, 06000u);
  EXPECT_EQ(std::get<SetXattrOp>((*decoded)[12]).value, std::string("va\0lue", 6));
  const auto& touch = std::get<TouchOp>((*decoded)[15]);
  EXPECT_EQ(touch.mtime, (Timestamp{10, 11}));
  EXPECT_EQ(touch.ctime, (Timestamp{12, 13}));
}

TEST(OpCodec, ExtremesSurvive) {
  for (const Op& op : ExtremeOps()) EXPECT_EQ(Recode(op), EncodeOps({&op, 1})) << op.index();
}

TEST(OpCodec, EncodedSizeIsExact) {
  std::vector<Op> ops = SampleOps();
  for (Op& op : ExtremeOps()) ops.push_back(std::move(op));
  for (const Op& op : ops) {
    ByteWriter w;
    EncodeOp(op, w);
    EXPECT_EQ(EncodedSize(op), w.size()) << op.index();
  }
}

TEST(OpCodec, EmptyBatch) {
  const auto decoded = DecodeOps(EncodeOps({}));
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(decoded->empty());
  EXPECT_EQ(EncodeOps({}), EncodeOpsHeader(0));
}

TEST(OpCodec, SmallOpsAreSmall) {
  const Op create = CreateOp{InodeId{65536}, "file-0001.txt", InodeId{70000}, FileType::kRegular, 0644, 1000, 1000, 0, "",
                             {1'767'225'600, 123'456'789}};
  EXPECT_LE(EncodedSize(create), 45u);
}

TEST(OpCodec, NewerVersionIsRefusedAsSuch) {
  std::string batch = EncodeOps(SampleOps());
  batch[0] = 2;
  EXPECT_EQ(DecodeOps(batch).code(), Code::kNotSupported);
  batch[0] = 0;
  EXPECT_EQ(DecodeOps(batch).code(), Code::kCorrupt);
}

TEST(OpCodec, EveryCutIsRefused) {
  const std::string batch = EncodeOps(SampleOps());
  for (size_t n = 0; n < batch.size(); n++) EXPECT_EQ(DecodeOps(batch.substr(0, n)).code(), Code::kCorrupt) << n;
  EXPECT_EQ(DecodeOps(batch + '\0').code(), Code::kCorrupt);
}

// A body is extensible only by a new version.
TEST(OpCodec, TrailingBytesInABodyAreRefused) {
  for (const Op& op : SampleOps()) {
    const auto kind = static_cast<uint8_t>(op.index() + 1);
    EXPECT_TRUE(DecodeOps(Batch(kind, BodyOf(op))).ok());
    EXPECT_EQ(DecodeOps(Batch(kind, BodyOf(op) + '\0')).code(), Code::kCorrupt);
  }
}

TEST(OpCodec, UnknownKindsAreRefused) {
  const std::string body = BodyOf(ReleaseOrphanOp{InodeId{5}});
  EXPECT_EQ(DecodeOps(Batch(0, body)).code(), Code::kCorrupt);
  EXPECT_EQ(DecodeOps(Batch(std::variant_size_v<Op> + 1, body)).code(), Code::kCorrupt);
  EXPECT_EQ(DecodeOps(Batch(255, body)).code(), Code::kCorrupt);
}

TEST(OpCodec, CountsAreBounded) {
  const std::vector<Op> most(kMaxOpsPerCommit, ReleaseOrphanOp{InodeId{1}});
  EXPECT_TRUE(DecodeOps(EncodeOps(most)).ok());
  const std::vector<Op> more(kMaxOpsPerCommit + 1, ReleaseOrphanOp{InodeId{1}});
  EXPECT_EQ(DecodeOps(EncodeOps(more)).code(), Code::kCorrupt);
  ByteWriter w;
  w.U8(1);
  w.Varint(~0ULL);
  w.Bytes(std::string(100, '\x01'));
  EXPECT_EQ(DecodeOps(w.str()).code(), Code::kCorrupt);
  EXPECT_EQ(DecodeOps(std::string(kMaxCommitBytes + 1, '\x01')).code(), Code::kCorrupt);
}

TEST(OpCodec, LengthsOverTheLimitsAreRefused) {
  const auto refused = [](const Op& op) { return DecodeOps(EncodeOps({&op, 1})).code() == Code::kCorrupt; };
  const std::string name(kMaxName + 1, 'n');
  EXPECT_TRUE(refused(CreateOp{.name = name}));
  EXPECT_TRUE(refused(CreateOp{.target = std::string(kMaxSymlink + 1, 't')}));
  EXPECT_TRUE(refused(LinkOp{.name = name}));
  EXPECT_TRUE(refused(UnlinkOp{.name = name}));
  EXPECT_TRUE(refused(RmdirOp{.name = name}));
  EXPECT_TRUE(refused(RenameOp{.name = name}));
  EXPECT_TRUE(refused(RenameOp{.new_name = name}));
  EXPECT_TRUE(refused(SetXattrOp{.name = name}));
  EXPECT_TRUE(refused(SetXattrOp{.value = std::string(kMaxXattrValue + 1, 'v')}));
  EXPECT_TRUE(refused(RemoveXattrOp{.name = name}));
}

TEST(OpCodec, FieldsOutOfRangeAreRefused) {
  const auto refused = [](const Op& op) { return DecodeOps(EncodeOps({&op, 1})).code() == Code::kCorrupt; };
  EXPECT_TRUE(refused(CreateOp{.mode = 010000}));
  EXPECT_TRUE(refused(CreateOp{.type = static_cast<FileType>(0)}));
  EXPECT_TRUE(refused(CreateOp{.type = static_cast<FileType>(8)}));
  EXPECT_TRUE(refused(CreateOp{.now = {0, 1'000'000'000}}));
  EXPECT_TRUE(refused(SetAttrOp{.fields = 64}));
  EXPECT_TRUE(refused(SetAttrOp{.fields = SetAttrOp::kMode, .mode = 010000}));
  EXPECT_TRUE(refused(RenameOp{.mode = static_cast<RenameOp::Mode>(3)}));
  EXPECT_TRUE(refused(ClearRangeOp{.kind = static_cast<ClearRangeOp::Kind>(3)}));
  EXPECT_TRUE(refused(SetExtentsOp{.clear_mode = 010000}));
}

TEST(OpCodec, BadExtentsAreRefused) {
  const auto refused = [](std::vector<Extent> extents) {
    const Op op = SetExtentsOp{.extents = std::move(extents)};
    return DecodeOps(EncodeOps({&op, 1})).code() == Code::kCorrupt;
  };
  const auto zero = [](uint64_t offset, uint64_t length) {
    return Extent{.offset = offset, .length = length, .kind = ExtentKind::kZero};
  };
  const auto data = [](uint64_t offset, size_t n) {
    return Extent{.offset = offset, .length = n, .kind = ExtentKind::kInline, .data = Buffer(std::string(n, 'x'))};
  };
  EXPECT_FALSE(refused({zero(0, 10), zero(10, 10), zero(30, 1)}));
  EXPECT_TRUE(refused({zero(0, 0)}));
  EXPECT_TRUE(refused({zero(0, 10), zero(9, 10)}));
  EXPECT_TRUE(refused({zero(20, 10), zero(0, 10)}));
  EXPECT_TRUE(refused({zero(kMaxFileSize, 1)}));
  EXPECT_TRUE(refused({zero(~0ULL, 2)}));
  EXPECT_TRUE(refused({zero(1, ~0ULL)}));
  EXPECT_FALSE(refused({data(0, kMaxInlineBytes)}));
  EXPECT_TRUE(refused({data(0, kMaxInlineBytes + 1)}));
  EXPECT_TRUE(refused({data(0, kMaxInlineBytes), data(kMaxInlineBytes, 1)}));
  Extent bad = zero(0, 1);
  bad.kind = static_cast<ExtentKind>(4);
  EXPECT_TRUE(refused({bad}));
  bad.kind = ExtentKind::kSegment;
  bad.segment_offset = ~0ULL;
  EXPECT_TRUE(refused({bad}));
}

// A short batch that claims much is refused before memory is taken for it.
TEST(OpCodec, ClaimedExtentsAreBounded) {
  ByteWriter body;
  for (int i = 0; i < 7; i++) body.Varint(0);  // ino, size, mtime, ctime, clear_mode
  body.Varint(1ULL << 60);
  EXPECT_EQ(DecodeOps(Batch(7, body.str())).code(), Code::kCorrupt);
}

TEST(OpCodec, RandomOpsSurvive) {
  const uint64_t seed = 7;
  const auto random = SeededRandom(seed);
  // 64-bit values of every length.
  const auto number = [&] { return random->Next() >> random->Below(64); };
  const auto time = [&] {
    return Timestamp{static_cast<int64_t>(number()) * (random->Below(2) ? 1 : -1), static_cast<uint32_t>(number() % 1'000'000'000)};
  };
  const auto text = [&](size_t max) { return std::string(random->Below(max + 1), static_cast<char>(random->Next())); };
  const auto id = [&] { return InodeId{number()}; };
  for (int round = 0; round < 2000; round++) {
    std::vector<Op> ops;
    ops.push_back(CreateOp{id(), text(255), id(), static_cast<FileType>(1 + random->Below(7)), static_cast<uint32_t>(number() % 010000),
                           static_cast<uint32_t>(number()), static_cast<uint32_t>(number()), number(), text(300), time()});
    ops.push_back(RenameOp{id(), text(255), id(), text(20), id(), id(), static_cast<RenameOp::Mode>(random->Below(3)),
                           random->Below(2) == 1, time()});
    ops.push_back(SetAttrOp{id(), static_cast<uint32_t>(random->Below(64)), 0, 1, 2, number(), time(), time(), time()});
    SetExtentsOp set{.ino = id(), .size = number(), .mtime = time(), .ctime = time()};
    uint64_t end = 0;
    for (uint64_t n = random->Below(20); n > 0; n--) {
      Extent e{.offset = end + number() % (1ULL << 50), .length = 1 + random->Below(3000)};
      e.kind = static_cast<ExtentKind>(1 + random->Below(3));
      e.segment = SegmentId{number()};
      e.segment_offset = number() % kMaxSegment;
      if (e.kind == ExtentKind::kInline) e.data = Buffer(std::string(e.length, static_cast<char>(n)));
      end = e.end();
      set.extents.push_back(e);
    }
    ops.push_back(set);
    ops.push_back(SetXattrOp{id(), text(255), text(5000), time()});
    const std::string encoded = EncodeOps(ops);
    const auto decoded = DecodeOps(encoded);
    ASSERT_TRUE(decoded.ok()) << "seed " << seed << " round " << round << ": " << decoded.error().ToString();
    ASSERT_EQ(EncodeOps(*decoded), encoded) << "seed " << seed << " round " << round;
    const auto& got = std::get<SetExtentsOp>((*decoded)[3]);
    ASSERT_EQ(got.extents.size(), set.extents.size());
    for (size_t i = 0; i < set.extents.size(); i++) {
      ASSERT_EQ(got.extents[i].offset, set.extents[i].offset);
      ASSERT_EQ(got.extents[i].length, set.extents[i].length);
      ASSERT_EQ(got.extents[i].data.view(), set.extents[i].data.view());
    }
  }
}

}  // namespace
}  // namespace archil
