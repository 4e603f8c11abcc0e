// The file of lost operations: golden bytes, round trips, what damage takes and what it leaves, and names before and
// after ops.
#include "client/recovery/lost_log.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

#include "client/recovery/lost_format.h"
#include "common/base/bytes.h"
#include "common/env/mem_files.h"
#include "common/env/random.h"
#include "common/format/op_codec.h"
#include "tests/support/sample_lost_log.h"
#include "tests/support/sample_ops.h"
#include "tests/support/scratch_dir.h"

namespace archil {
namespace {

using Name = LostLog::Name;
using Names = std::map<InodeId, Name>;

constexpr char kGolden[] = "tests/unit/client/recovery/testdata/lost_log_v1.hex";
constexpr char kDir[] = "/var/lost";

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

std::string Saved(const LostLog& log) {
  MemFiles files;
  const auto path = SaveLostLog(files, kDir, log);
  EXPECT_TRUE(path.ok()) << path.error().ToString();
  return path.ok() ? ReadWholeFile(files, *path).value() : "";
}

Result<LostLog> Loaded(std::string_view bytes) {
  MemFiles files;
  EXPECT_TRUE(files.Open("/f", OpenMode::kCreateNew).value()->Write(0, bytes).ok());
  return LoadLostLog(files, "/f");
}

// Places where a record begins, and the end.
std::vector<size_t> Places(std::string_view bytes) {
  std::vector<size_t> places;
  size_t at = kLostHeaderBytes;
  while (at < bytes.size()) {
    places.push_back(at);
    at += kLostFrameBytes + ByteReader(bytes.substr(at)).U32();
  }
  places.push_back(at);
  return places;
}

Extent Inline(uint64_t offset, std::string bytes) {
  Extent e{.offset = offset, .length = bytes.size(), .kind = ExtentKind::kInline};
  e.data = Buffer(std::move(bytes));
  return e;
}

std::string Pattern(size_t size) {
  std::string s(size, '\0');
  for (size_t i = 0; i < size; i++) s[i] = static_cast<char>(i * 131 + (i >> 12));
  return s;
}

void ExpectSameHead(const LostLog& a, const LostLog& b) {
  EXPECT_EQ(a.disk, b.disk);
  EXPECT_EQ(a.branch, b.branch);
  EXPECT_EQ(a.client_name, b.client_name);
  EXPECT_EQ(a.reason, b.reason);
  EXPECT_EQ(a.session, b.session);
  EXPECT_EQ(a.when, b.when);
  EXPECT_EQ(a.root, b.root);
  EXPECT_EQ(a.names, b.names);
}

// The bytes of version 1 never change: files lie on machines. ARCHIL_WRITE_GOLDEN=1 writes it; a diff in it is a break
// of the format.
TEST(LostLogFile, GoldenFile) {
  const std::string line = ToHex(Saved(SampleLostLog())) + "\n";
  if (std::getenv("ARCHIL_WRITE_GOLDEN") != nullptr) std::ofstream(kGolden) << line;
  std::ifstream in(kGolden);
  EXPECT_EQ(line, std::string(std::istreambuf_iterator<char>(in), {}));
}

TEST(LostLogFile, EverythingComesBack) {
  LostLog log = SampleLostLog();
  for (Op& op : ExtremeOps()) log.ops.push_back(std::move(op));
  const auto loaded = Loaded(Saved(log));
  ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
  EXPECT_EQ(loaded->damaged, "");
  ExpectSameHead(*loaded, log);
  EXPECT_EQ(EncodeOps(loaded->ops), EncodeOps(log.ops));
}

TEST(LostLogFile, EmptyAndManyNames) {
  LostLog log;
  ASSERT_TRUE(Loaded(Saved(log)).ok());
  for (uint64_t i = 1; i < 5000; i++) log.names[InodeId{i}] = {InodeId{i / 2}, std::string(1 + i % 200, 'n')};
  const auto loaded = Loaded(Saved(log));
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->damaged, "");
  EXPECT_EQ(loaded->names, log.names);
}

// Extents of any size, and in an order that the op codec does not know, show the same bytes afterwards.
TEST(LostLogFile, LargeExtentsAreCutAndComeBack) {
  LostLog log;
  const std::string big = Pattern(3 * kMaxInlineBytes + 17);
  SetExtentsOp op{.ino = InodeId{7}, .size = 1 << 30, .mtime = {1, 2}, .ctime = {3, 4}, .clear_mode = 04000};
  op.extents.push_back(Inline(5, "x"));
  op.extents.push_back(Inline(10, big));
  op.extents.push_back(Inline(2, "again"));
  op.extents.push_back({.offset = 1 << 20, .length = 1 << 19, .kind = ExtentKind::kZero});
  op.extents.push_back(
      {.offset = 1 << 21, .length = 100, .kind = ExtentKind::kSegment, .segment = SegmentId{9}, .segment_offset = 3});
  for (uint64_t i = 0; i < 3000; i++) op.extents.push_back(Inline((1 << 22) + i * 8192, "abc"));
  log.ops = {op, ReleaseOrphanOp{InodeId{7}}};
  const auto loaded = Loaded(Saved(log));
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->damaged, "");
  ASSERT_EQ(loaded->ops.size(), 2u);
  const auto& back = std::get<SetExtentsOp>(loaded->ops[0]);
  EXPECT_EQ(back.size, op.size);
  EXPECT_EQ(back.mtime, op.mtime);
  EXPECT_EQ(back.ctime, op.ctime);
  EXPECT_EQ(back.clear_mode, op.clear_mode);
  std::vector<std::pair<uint64_t, std::string>> ranges;  // adjacent ones joined
  for (const Extent& e : back.extents) {
    if (e.kind != ExtentKind::kInline) continue;
    EXPECT_LE(e.length, kMaxInlineBytes);
    if (!ranges.empty() && ranges.back().first + ranges.back().second.size() == e.offset) {
      ranges.back().second += e.data.view();
    } else {
      ranges.emplace_back(e.offset, e.data.view());
    }
  }
  ASSERT_EQ(ranges.size(), 3003u);
  EXPECT_EQ(ranges[1], std::make_pair(uint64_t{10}, big));
  EXPECT_EQ(ranges[2], std::make_pair(uint64_t{2}, std::string("again")));
  size_t others = 0;
  for (const Extent& e : back.extents) others += e.kind != ExtentKind::kInline;
  EXPECT_EQ(others, 2u);
}

TEST(LostLogFile, SenselessExtentsAreRefusedBeforeAnythingIsWritten) {
  Extent lies = Inline(0, "four");
  lies.length = 5;
  const Extent far{.offset = kMaxFileSize, .length = 1, .kind = ExtentKind::kZero};
  const Extent endless{.offset = 1, .length = std::numeric_limits<uint64_t>::max(), .kind = ExtentKind::kZero};
  for (const Extent& bad : {lies, far, endless}) {
    MemFiles files;
    LostLog log = SampleLostLog();
    log.ops.push_back(SetExtentsOp{.ino = InodeId{1}, .extents = {bad}});
    EXPECT_EQ(SaveLostLog(files, kDir, log).code(), Code::kInvalid);
    EXPECT_FALSE(files.Exists(kDir).value());
  }
}

TEST(LostLogFile, NamesOfFiles) {
  MemFiles files;
  LostLog log = SampleLostLog();
  EXPECT_EQ(SaveLostLog(files, kDir, log).value(), "/var/lost/photos-1f-20260101T000000Z-1.archil-lost");
  EXPECT_EQ(SaveLostLog(files, kDir, log).value(), "/var/lost/photos-1f-20260101T000000Z-2.archil-lost");
  log.disk = "../../etc/\n";
  EXPECT_EQ(SaveLostLog(files, kDir, log).value(), "/var/lost/.._.._etc__-1f-20260101T000000Z-1.archil-lost");
  EXPECT_EQ(files.List(kDir).value().size(), 3u);
}

TEST(LostLogFile, PrivateOnARealDisk) {
  const test::ScratchDir scratch;
  const std::string& base = scratch.path();
  const auto path = SaveLostLog(base + "/a/lost", SampleLostLog());
  ASSERT_TRUE(path.ok());
  struct stat st {};
  ASSERT_EQ(stat(path->c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  ASSERT_EQ(stat((base + "/a/lost").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  EXPECT_EQ(LoadLostLog(*path)->ops.size(), SampleOps().size());
  EXPECT_EQ(LoadLostLog(base + "/none").code(), Code::kNotFound);
}

// The power is cut at any step: once the path was returned all of it is there; before, what is there loads or says that
// it is damaged.
TEST(LostLogFile, DurableWhenItReturns) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    for (uint64_t step = 0; step < 12; step++) {
      MemFiles files;
      auto random = SeededRandom(seed);
      files.FailAfter(step);
      const auto path = SaveLostLog(files, kDir, SampleLostLog());
      files.NeverFail();
      files.Crash(*random);
      if (path.ok()) {
        const auto loaded = LoadLostLog(files, *path);
        ASSERT_TRUE(loaded.ok()) << seed << " " << step;
        ASSERT_EQ(loaded->damaged, "") << seed << " " << step;
      } else if (files.Exists(kDir).value()) {
        const auto names = files.List(kDir);
        ASSERT_TRUE(names.ok());
        for (const std::string& name : *names) {
          const auto loaded = LoadLostLog(files, JoinPath(kDir, name));
          ASSERT_TRUE(loaded.ok() || loaded.code() == Code::kCorrupt) << seed << " " << step;
        }
      }
    }
  }
}

TEST(LostLogFile, AFullDiskLeavesWhatFitted) {
  MemFiles files;
  files.SetCapacity(5 << 20);
  LostLog log;
  for (uint64_t i = 0; i < 10; i++)
    log.ops.push_back(SetExtentsOp{.ino = InodeId{i}, .extents = {Inline(0, Pattern(1 << 20))}});
  EXPECT_EQ(SaveLostLog(files, kDir, log).code(), Code::kNoSpace);
  const auto names = files.List(kDir).value();
  ASSERT_EQ(names.size(), 1u);
  const auto loaded = LoadLostLog(files, JoinPath(kDir, names[0]));
  ASSERT_TRUE(loaded.ok());
  EXPECT_NE(loaded->damaged, "");
  EXPECT_GE(loaded->ops.size(), 4u);
  EXPECT_LT(loaded->ops.size(), 10u);
}

// ---- damage

// Cut anywhere: the records before the cut, and it is said.
TEST(LostLogDamage, CutAtEveryByte) {
  const LostLog log = SampleLostLog();
  const std::string whole = Saved(log);
  const std::vector<size_t> places = Places(whole);
  for (size_t size = 0; size < whole.size(); size++) {
    const auto loaded = Loaded(whole.substr(0, size));
    if (size < places[1]) {
      ASSERT_EQ(loaded.code(), Code::kCorrupt) << size;
      continue;
    }
    ASSERT_TRUE(loaded.ok()) << size;
    ASSERT_NE(loaded->damaged, "") << size;
    size_t records = 0;  // whole ones: the first tells about it, the second has the names
    while (places[records + 1] <= size) records++;
    ASSERT_EQ(loaded->ops.size(), records < 2 ? 0 : records - 2) << size;
    ASSERT_EQ(EncodeOps(loaded->ops), EncodeOps(std::span(log.ops).first(loaded->ops.size()))) << size;
  }
}

TEST(LostLogDamage, EveryChangedByteIsFound) {
  const LostLog log = SampleLostLog();
  const std::string whole = Saved(log);
  const std::vector<size_t> places = Places(whole);
  for (size_t at = 0; at < whole.size(); at++) {
    std::string bytes = whole;
    bytes[at] ^= 0x41;
    const auto loaded = Loaded(bytes);
    if (at < places[1]) {
      ASSERT_TRUE(loaded.code() == Code::kCorrupt) << at;
      continue;
    }
    ASSERT_TRUE(loaded.ok()) << at;
    ASSERT_NE(loaded->damaged, "") << at;
    ASSERT_EQ(EncodeOps(loaded->ops), EncodeOps(std::span(log.ops).first(loaded->ops.size()))) << at;
  }
}

TEST(LostLogDamage, RecordsMissingDoubledOrMoved) {
  const std::string whole = Saved(SampleLostLog());
  const std::vector<size_t> places = Places(whole);
  const auto record = [&](size_t i) { return whole.substr(places[i], places[i + 1] - places[i]); };
  const std::string head = whole.substr(0, places[4]);
  for (const std::string& bytes :
       {head + whole.substr(places[5]), head + record(4) + record(4) + whole.substr(places[5]),
        head + record(5) + record(4) + whole.substr(places[6]), whole + record(3), whole + "x"}) {
    const auto loaded = Loaded(bytes);
    ASSERT_TRUE(loaded.ok());
    EXPECT_NE(loaded->damaged, "");
  }
}

TEST(LostLogDamage, TellsTheFileThePlaceAndWhatIsThere) {
  const std::string whole = Saved(SampleLostLog());
  const std::vector<size_t> places = Places(whole);
  const auto loaded = Loaded(whole.substr(0, places[5] + 3));
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->damaged, "record 5 at byte " + std::to_string(places[5]) +
                                 " is not there: the file ends; 3 of 16 operations are there");
  EXPECT_EQ(Loaded("some text that is none").error().message(), "/f: this is no file of lost operations");
}

TEST(LostLogDamage, NewerVersionIsRefused) {
  const std::string whole = Saved(SampleLostLog());
  const auto loaded = Loaded(LostHeader(kLostLogVersion + 1) + whole.substr(kLostHeaderBytes));
  EXPECT_EQ(loaded.code(), Code::kNotSupported);
  EXPECT_NE(loaded.error().message().find("newer"), std::string::npos);
  EXPECT_EQ(Loaded(LostHeader(0) + whole.substr(kLostHeaderBytes)).code(), Code::kCorrupt);
}

TEST(LostLogDamage, GoodChecksumsOverNonsense) {
  const std::string whole = Saved(SampleLostLog());
  const std::string about = whole.substr(0, Places(whole)[1]);
  const Op release = ReleaseOrphanOp{InodeId{1}};
  const struct {
    LostRecord kind;
    std::string body;
  } records[] = {{LostRecord::kOp, ""},
                 {LostRecord::kOp, EncodeOps(SampleOps())},
                 {LostRecord::kOp, "nonsense"},
                 {LostRecord::kMoreExtents, EncodeOps({&release, 1})},
                 {LostRecord::kNames, "nonsense"},
                 {LostRecord::kAbout, ""},
                 {static_cast<LostRecord>(9), ""},
                 {LostRecord::kEnd, ""}};
  for (const auto& [kind, body] : records) {
    std::string bytes = about;
    AppendLostRecord(1, kind, body, bytes);
    const auto loaded = Loaded(bytes);
    ASSERT_TRUE(loaded.ok());
    EXPECT_NE(loaded->damaged, "") << static_cast<int>(kind);
    EXPECT_TRUE(loaded->ops.empty());
  }
}

// ---- names

constexpr InodeId kTop{1};

CreateOp Create(uint64_t parent, std::string name, uint64_t ino) {
  return {.parent = InodeId{parent}, .name = std::move(name), .ino = InodeId{ino}};
}
RenameOp Rename(uint64_t parent, std::string name, uint64_t to, std::string new_name, uint64_t ino, uint64_t victim,
                RenameOp::Mode mode = RenameOp::Mode::kPlain) {
  return {InodeId{parent}, std::move(name), InodeId{to}, std::move(new_name), InodeId{ino}, InodeId{victim}, mode};
}

TEST(LostLogNames, EachKindIsUndone) {
  const Name a{kTop, "a"}, b{kTop, "b"};
  const InodeId x{10}, y{11};
  EXPECT_EQ(NamesBefore({Create(1, "a", 10)}, {{x, a}}), (Names{}));
  EXPECT_EQ(NamesBefore({UnlinkOp{kTop, "a", x}}, {}), (Names{{x, a}}));
  EXPECT_EQ(NamesBefore({RmdirOp{kTop, "a", x}}, {}), (Names{{x, a}}));
  EXPECT_EQ(NamesBefore({Rename(1, "a", 1, "b", 10, 0)}, {{x, b}}), (Names{{x, a}}));
  EXPECT_EQ(NamesBefore({Rename(1, "a", 1, "b", 10, 11)}, {{x, b}}), (Names{{x, a}, {y, b}}));
  EXPECT_EQ(NamesBefore({Rename(1, "a", 1, "b", 10, 11, RenameOp::Mode::kExchange)}, {{x, b}, {y, a}}),
            (Names{{x, a}, {y, b}}));
  EXPECT_EQ(NamesBefore({LinkOp{x, kTop, "b"}}, {{x, a}}), (Names{{x, a}}));
  EXPECT_EQ(NamesBefore({LinkOp{x, kTop, "b"}}, {{x, b}}), (Names{}));  // the other one is not known
  EXPECT_EQ(NamesBefore({Rename(1, "a", 1, "b", 10, 10)}, {{x, b}}), (Names{{x, b}}));
  EXPECT_EQ(NamesBefore({SetAttrOp{.ino = x}, TouchOp{kTop}}, {{x, b}}), (Names{{x, b}}));
}

TEST(LostLogNames, SeveralInReverseOrder) {
  const InodeId dir{5}, file{6};
  // An editor saves: a new file over the old one; then its directory is renamed and the file moved out of it.
  const std::vector<Op> ops = {Create(5, "tmp", 20), Rename(5, "tmp", 5, "file", 20, 6),
                               Rename(1, "dir", 1, "other", 5, 0), Rename(5, "file", 1, "out", 20, 0)};
  EXPECT_EQ(NamesBefore(ops, {{InodeId{20}, {kTop, "out"}}, {dir, {kTop, "other"}}}),
            (Names{{dir, {kTop, "dir"}}, {file, {dir, "file"}}}));
  // An unlinked name that was made before is nobody's.
  EXPECT_EQ(NamesBefore({Create(1, "a", 20), UnlinkOp{kTop, "a", InodeId{20}}}, {}), (Names{}));
}

// Against the straight way: random changes of a small tree, forwards, then back.
TEST(LostLogNames, AgreesWithTheTreeBefore) {
  for (uint64_t seed = 1; seed <= 300; seed++) {
    auto random = SeededRandom(seed);
    Names tree;
    for (uint64_t i = 2; i < 6; i++) tree[InodeId{i}] = {kTop, "base" + std::to_string(i)};
    const Names before = tree;
    std::vector<Op> ops;
    std::vector<InodeId> gone;
    for (uint64_t next = 100; next < 120; next++) {
      const Name to{kTop, "n" + std::to_string(random->Below(6))};
      InodeId there;
      for (const auto& [ino, name] : tree) there = name == to ? ino : there;
      auto some = tree.begin();
      std::advance(some, tree.empty() ? 0 : random->Below(tree.size()));
      const uint64_t choice = random->Below(3);
      if (choice == 0 && !there) {
        ops.push_back(Create(1, to.name, next));
        tree[InodeId{next}] = to;
      } else if (choice == 1 && some != tree.end()) {
        ops.push_back(UnlinkOp{kTop, some->second.name, some->first});
        tree.erase(some);
      } else if (choice == 2 && some != tree.end() && some->first != there) {
        ops.push_back(Rename(1, some->second.name, 1, to.name, some->first.value, there.value));
        some->second = to;
        if (there) tree.erase(there);
      }
    }
    ASSERT_EQ(NamesBefore(ops, tree), before) << "seed " << seed;
  }
}

}  // namespace
}  // namespace archil
