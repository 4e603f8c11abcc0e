// Records and log records: what is on disks already must always decode (golden files), and damage is always noticed.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "tests/support/sample_records.h"

namespace archil {
namespace {

constexpr char kDir[] = "tests/unit/common/format/testdata/";

std::string Hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned char c : bytes) {
    out += kDigits[c >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

std::string Lines(const std::vector<Sample>& samples) {
  std::string out;
  for (const Sample& s : samples) out += s.name + " " + Hex(s.bytes) + "\n";
  return out;
}

std::string Golden(const std::string& file) {
  std::ifstream in(kDir + file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(RecordsGoldenTest, RecordsAreWhatTheyWere) { EXPECT_EQ(Lines(SampleRecords()), Golden("records_v1.hex")); }
TEST(RecordsGoldenTest, LogRecordsAreWhatTheyWere) { EXPECT_EQ(Lines(SampleLogRecords()), Golden("log_v1.hex")); }
TEST(RecordsGoldenTest, SoAreThoseOfVersionTwo) {
  EXPECT_EQ(Lines(SampleRecordsV2()), Golden("records_v2.hex"));
  EXPECT_EQ(Lines(SampleLogRecordsV2()), Golden("log_v2.hex"));
}
TEST(RecordsGoldenTest, SoAreThoseOfCredits) {
  EXPECT_EQ(Lines(SampleRecordsV3()), Golden("records_v3.hex"));
  EXPECT_EQ(Lines(SampleLogRecordsV4()), Golden("log_v4.hex"));
}
TEST(RecordsGoldenTest, SoAreThoseOfVersionThree) { EXPECT_EQ(Lines(SampleLogRecordsV3()), Golden("log_v3.hex")); }

TEST(RecordsGoldenTest, SoAreThoseOfOperationsAtTheServer) {
  EXPECT_EQ(Lines(SampleRecordsServerOps()), Golden("records_server_ops.hex"));
}

std::vector<Sample> AllSamples() {
  std::vector<Sample> all;
  for (const auto& samples : {SampleRecords(), SampleLogRecords(), SampleRecordsV2(), SampleLogRecordsV2(),
                              SampleRecordsServerOps(), SampleLogRecordsV3(), SampleRecordsV3(), SampleLogRecordsV4()}) {
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

TEST(RecordsTest, EverySampleComesBackAsItWas) {
  for (const Sample& s : AllSamples()) {
    const auto again = s.reencode(s.bytes);
    ASSERT_TRUE(again.ok()) << s.name << ": " << again.error().ToString();
    EXPECT_EQ(*again, s.bytes) << s.name;
  }
}

TEST(RecordsTest, EveryFlippedBitAndEveryCutIsNoticed) {
  for (const Sample& s : AllSamples()) {
    for (size_t i = 0; i < s.bytes.size(); ++i) {
      EXPECT_FALSE(s.reencode(std::string_view(s.bytes).substr(0, i)).ok()) << s.name << " cut at " << i;
      for (int bit = 0; bit < 8; ++bit) {
        std::string bad = s.bytes;
        bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
        EXPECT_FALSE(s.reencode(bad).ok()) << s.name << " byte " << i << " bit " << bit;
      }
    }
  }
}

TEST(RecordsTest, ImpossibleFieldsAreDamage) {
  InodeRecord inode;
  inode.attr.ino = InodeId{5};
  inode.attr.mtime.nsec = 1'000'000'000;
  EXPECT_EQ(DecodeInode(Encode(inode)).code(), Code::kCorrupt);
  EXPECT_EQ(DecodeChunk(Encode(ChunkRecord{})).code(), Code::kCorrupt);
  ChunkRecord overlap{{{.begin = 0, .end = 10, .kind = ExtentKind::kZero}, {.begin = 5, .end = 20, .kind = ExtentKind::kZero}}};
  EXPECT_EQ(DecodeChunk(Encode(overlap)).code(), Code::kCorrupt);
  ChunkRecord outside{{{.begin = 0, .end = static_cast<uint32_t>(kChunkSize) + 1, .kind = ExtentKind::kZero}}};
  EXPECT_EQ(DecodeChunk(Encode(outside)).code(), Code::kCorrupt);
  EXPECT_TRUE(IsTombstone(TombstoneValue()));
  EXPECT_FALSE(DecodeInode(TombstoneValue()).ok());
}

TEST(LogRecordTest, TheStartOfAFrameIsToldFromRubbish) {
  const std::string frame = EncodeLogRecord(Lsn{9}, CommitRecord{SessionId{1}, Seq{1}, Seq{2}, std::string(100, 'o'), {}});
  for (size_t i = 0; i < frame.size(); ++i) EXPECT_EQ(DecodeLogFrame(std::string_view(frame).substr(0, i)).code(), Code::kNoData) << i;
  EXPECT_EQ(DecodeLogFrame("rubbish").code(), Code::kCorrupt);
  EXPECT_FALSE(HasLogFrame(std::string_view(frame).substr(1)));
  EXPECT_TRUE(HasLogFrame("xx" + frame));
  EXPECT_TRUE(HasLogFrame("AR" + frame + "tail"));
  EXPECT_EQ(DecodeLogFrame(frame + "tail")->size, frame.size());
}

}  // namespace
}  // namespace archil
