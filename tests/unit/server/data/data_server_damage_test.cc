// What the data server does about bytes that are not what was written, syncs that fail, and files left by crashes.
#include "tests/unit/server/data/data_server_fixture.h"

namespace archil {
namespace {

TEST_F(DataServerTest, AFailedSyncEndsTheSegmentAtItsAcknowledgedLength) {
  ASSERT_TRUE(Append(0, "abc").ok());
  files_.FailNext(MemFiles::Call::kSync, ".seg", Code::kIo);
  EXPECT_EQ(Append(3, "def").code(), Code::kIo);
  EXPECT_EQ(Append(3, "def").code(), Code::kIo) << "a later sync would prove nothing";
  EXPECT_TRUE(Append(0, "abc").ok()) << "a repeat of what was acknowledged";
  EXPECT_NE(server_->Stat(ctx_, key_)->state, SegmentState::kOpen);
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 3u);
  EXPECT_EQ(Read(0, 3), "abc");
  EXPECT_EQ(server_->Seal(ctx_, key_, 1)->length, 3u);
  Drain();  // a new file is made of the acknowledged bytes, and that is uploaded
  EXPECT_EQ(Metric("rebuilds"), 1u);
  EXPECT_EQ(Append(3, "def").code(), Code::kIo);
  EXPECT_EQ(server_->Stat(ctx_, key_)->state, SegmentState::kUploaded);
  EXPECT_EQ(Read(0, 3), "abc");
  CrashAndStart(1);
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 3u);
  EXPECT_EQ(Read(0, 3), "abc");
}

TEST_F(DataServerTest, TheEndOfABrokenSegmentSurvivesARestart) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const SegmentKey key{DiskId(1), SegmentId(seed + 1)};
    ASSERT_TRUE(server_->Append(ctx_, key, 1, 0, Buffer::Copy("abc"), Checksum("abc")).ok());
    files_.FailNext(MemFiles::Call::kSync, ".seg", Code::kIo);
    files_.FailNext(MemFiles::Call::kOpen, ".seg", Code::kIo);  // keeps the rebuild from being first, once
    EXPECT_EQ(server_->Append(ctx_, key, 1, 3, Buffer::Copy("def"), Checksum("def")).code(), Code::kIo);
    CrashAndStart(seed);
    EXPECT_EQ(server_->Stat(ctx_, key)->length, 3u) << "what was refused came to light";
    EXPECT_NE(server_->Stat(ctx_, key)->state, SegmentState::kOpen);
    EXPECT_EQ(ReadOf(key, 0, 3), "abc");
    Drain();
    EXPECT_EQ(server_->Stat(ctx_, key)->state, SegmentState::kUploaded);
  }
}

TEST_F(DataServerTest, AFailedFirstSyncLeavesNoSegment) {
  files_.FailNext(MemFiles::Call::kSync, ".seg", Code::kIo);
  EXPECT_EQ(Append(0, "abc").code(), Code::kIo);
  EXPECT_EQ(server_->Stat(ctx_, key_).code(), Code::kNotFound);
  EXPECT_TRUE(Append(0, "xyz").ok());
  CrashAndStart(1);
  EXPECT_EQ(Read(0, 3), "xyz");
  files_.FailNext(MemFiles::Call::kSyncDir, "/data/segments/", Code::kIo);
  EXPECT_EQ(server_->Append(ctx_, {DiskId(7), SegmentId(1)}, 1, 0, Buffer::Copy("a"), Checksum("a")).code(), Code::kIo);
}

TEST_F(DataServerTest, AFaultAfterTheSyncLosesTheAnswerOnly) {
  ASSERT_TRUE(Append(0, "abc").ok());
  ASSERT_TRUE(faults_.Arm("data.append.after_sync=error").ok());
  EXPECT_EQ(Append(3, "def").code(), Code::kUnknown);
  EXPECT_TRUE(Append(3, "def").ok());
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 6u);
  EXPECT_EQ(faults_.fired(), 1u);
}

TEST_F(DataServerTest, ASealThatFailsEndsTheSegmentAllTheSame) {
  ASSERT_TRUE(Append(0, "abc").ok());
  ASSERT_TRUE(faults_.Arm("data.seal.before_trailer=error").ok());
  EXPECT_EQ(server_->Seal(ctx_, key_, 1)->length, 3u);
  Drain();
  EXPECT_EQ(server_->Stat(ctx_, key_)->state, SegmentState::kUploaded);
  EXPECT_EQ(Read(0, 3), "abc");
}

TEST_F(DataServerTest, DamageInAnOpenSegmentIsToldAndNothingIsCut) {
  ASSERT_TRUE(Append(0, "first").ok());
  ASSERT_TRUE(Append(5, "second").ok());
  ASSERT_TRUE(Append(11, "third").ok());
  const std::string file = *ReadWholeFile(files_, Path());
  ASSERT_TRUE(files_.FlipByte(Path(), file.find("second")).ok());
  EXPECT_EQ(Read(0, 5), "first");
  EXPECT_EQ(Read(5, 6), "corrupt");
  EXPECT_EQ(Read(0, 16), "corrupt");
  EXPECT_EQ(Read(11, 5), "third");
  for (int round = 0; round < 2; ++round) {
    Restart();
    EXPECT_EQ(Metric("damaged_segments"), 1u);
    EXPECT_EQ(server_->Stat(ctx_, key_)->length, 16u);
    EXPECT_EQ(Read(0, 5), "first");
    EXPECT_EQ(Read(7, 1), "corrupt");
    EXPECT_EQ(Read(11, 5), "third");
    EXPECT_FALSE(Append(16, "x").ok());
  }
  Drain();
  EXPECT_FALSE(store_.Has(SegmentName(key_))) << "damage does not become an object";
}

TEST_F(DataServerTest, DamageInASealedSegmentIsNotUploaded) {
  store_.FailPuts(std::deque<Code>(100'000, Code::kUnavailable));
  ASSERT_TRUE(Append(0, "abc").ok());
  ASSERT_TRUE(Append(3, "def").ok());
  ASSERT_TRUE(server_->Seal(ctx_, key_, 1).ok());
  server_.reset();
  store_.FailPuts({});
  const std::string file = *ReadWholeFile(files_, Path());
  ASSERT_TRUE(files_.FlipByte(Path(), file.find("abc")).ok());
  Start();
  Drain();
  EXPECT_EQ(Metric("damaged_segments"), 1u);
  EXPECT_FALSE(store_.Has(SegmentName(key_)));
  EXPECT_EQ(Read(3, 3), "def");
  EXPECT_EQ(Read(0, 3), "corrupt");
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 6u);
}

TEST_F(DataServerTest, ABadLocalCopyIsFetchedFromTheObject) {
  ASSERT_TRUE(Append(0, std::string(1000, 'a')).ok());
  ASSERT_TRUE(Append(1000, std::string(1000, 'b')).ok());
  SealAndUpload();
  ASSERT_TRUE(files_.FlipByte(Path(), 300).ok());
  EXPECT_EQ(Read(1500, 10), std::string(10, 'b')) << "the other frame is good";
  EXPECT_EQ(Read(0, 10), std::string(10, 'a'));
  EXPECT_EQ(Metric("bad_copies_dropped"), 1u);
  EXPECT_FALSE(*files_.Exists(Path()));
  EXPECT_EQ(Read(0, 2000), std::string(1000, 'a') + std::string(1000, 'b'));
}

TEST_F(DataServerTest, ACutLocalCopyIsFetchedFromTheObject) {
  ASSERT_TRUE(Append(0, std::string(1000, 'a')).ok());
  SealAndUpload();
  server_.reset();
  (void)(*files_.Open(Path(), OpenMode::kReadWrite))->Truncate(500);
  Start();
  EXPECT_EQ(Read(0, 1000), std::string(1000, 'a'));
  ASSERT_TRUE(files_.MakeDirs("/x").ok());
  EXPECT_FALSE(*files_.Exists(Path()));
}

TEST_F(DataServerTest, ABadObjectIsNeverData) {
  server_.reset();
  config_.cache_limit_bytes = 0;
  Start();
  ASSERT_TRUE(Append(0, std::string(1000, 'a')).ok());
  ASSERT_TRUE(Append(1000, std::string(1000, 'b')).ok());
  SealAndUpload();
  ASSERT_EQ(Metric("evictions"), 1u);
  const std::string name = SegmentName(key_);
  ASSERT_EQ(Read(0, 1000), std::string(1000, 'a'));
  store_.Tamper(name, [](std::string* bytes) { (*bytes)[400] = static_cast<char>((*bytes)[400] ^ 1); });
  EXPECT_EQ(Read(0, 1000), "corrupt");
  EXPECT_EQ(Read(1000, 1000), std::string(1000, 'b'));
  Restart();  // forgets the index
  store_.Tamper(name, [](std::string* bytes) { bytes->pop_back(); });
  EXPECT_EQ(Read(1000, 1000), "corrupt");
  store_.Tamper(name, [](std::string* bytes) { *bytes = "<Error>SlowDown</Error>" + std::string(4000, ' '); });
  EXPECT_EQ(Read(1000, 1000), "corrupt");
  store_.Lose(name);
  EXPECT_EQ(Read(1000, 1000), "corrupt");
}

TEST_F(DataServerTest, EveryFlippedByteOfASealedFileIsNoticed) {
  // The store is kept from taking it, so there is no second copy to read from.
  store_.FailPuts(std::deque<Code>(1'000'000, Code::kUnavailable));
  ASSERT_TRUE(Append(0, "first").ok());
  ASSERT_TRUE(Append(5, "second").ok());
  ASSERT_TRUE(server_->Seal(ctx_, key_, 1).ok());
  server_.reset();
  const std::string good = *ReadWholeFile(files_, Path());
  uint64_t corrupt = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    SCOPED_TRACE(at);
    ASSERT_TRUE(WriteFileAtomically(files_, Path(), good).ok());
    ASSERT_TRUE(files_.FlipByte(Path(), at).ok());
    Start();
    EXPECT_EQ(server_->Stat(ctx_, key_)->length, 11u);
    EXPECT_NE(server_->Stat(ctx_, key_)->state, SegmentState::kOpen);
    const std::string bytes = Read(0, 11);
    EXPECT_TRUE(bytes == "firstsecond" || bytes == "corrupt") << bytes;
    if (bytes == "corrupt") ++corrupt;
    server_.reset();
  }
  EXPECT_EQ(corrupt, 2 * kFrameHeaderSize + 11) << "what else there is can be made anew from the frames";
}

// Files that crashes leave, made by hand.
class CrashLeftovers : public DataServerTest {
 protected:
  void Plant(const std::string& file) {
    server_.reset();
    ASSERT_TRUE(files_.MakeDirs(DirName(Path())).ok());
    ASSERT_TRUE(WriteFileAtomically(files_, Path(), file).ok());
  }
  std::string Frame(uint64_t offset, const std::string& payload, uint64_t synced, bool ends = true) {
    std::string out;
    EncodeFrameHeader({FrameKind::kData, ends, static_cast<uint32_t>(payload.size()), offset, 1, synced,
                       Checksum(payload)},
                      key_, &out);
    return out + payload;
  }
};

TEST_F(CrashLeftovers, AStaleFrameBehindATornOneNeverComesBack) {
  std::string torn = Frame(3, "def", 0);
  torn.back() ^= 1;
  Plant(EncodeSegmentHeader(key_) + Frame(0, "abc", 0) + torn + Frame(6, "ghi", 0));
  Start();
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 3u);
  EXPECT_EQ(Metric("torn_tails"), 1u);
  ASSERT_TRUE(Append(3, "xyz").ok());  // as long as the torn one: the stale frame would continue it
  CrashAndStart(1);
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 6u);
  EXPECT_EQ(Read(0, 6), "abcxyz");
}

TEST_F(CrashLeftovers, AnAppendIsThereWholeOrNotAtAll) {
  Plant(EncodeSegmentHeader(key_) + Frame(0, "abc", 0) + Frame(3, "def", 0, false));
  Start();
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 3u);
  EXPECT_TRUE(Append(3, "defghi").ok()) << "the writer repeats it";
  EXPECT_EQ(Read(0, 9), "abcdefghi");
}

TEST_F(CrashLeftovers, ATornCreationLeavesNothing) {
  for (const std::string& file : {std::string(), std::string(10, 'x'), EncodeSegmentHeader(key_),
                                  EncodeSegmentHeader(key_) + Frame(0, "abc", 0).substr(0, 20)}) {
    Plant(file);
    Start();
    EXPECT_EQ(server_->Stat(ctx_, key_).code(), Code::kNotFound);
    EXPECT_FALSE(*files_.Exists(Path()));
  }
  EXPECT_TRUE(Append(0, "abc").ok());
}

TEST_F(CrashLeftovers, ALostHeaderIsWrittenAgain) {
  Plant(std::string(kSegmentHeaderSize, '\0') + Frame(0, "abc", 0));
  for (int round = 0; round < 2; ++round) {
    round == 0 ? Start() : Restart();
    EXPECT_EQ(Read(0, 3), "abc");
  }
  EXPECT_TRUE(DecodeSegmentHeader(*ReadWholeFile(files_, Path()), key_).ok());
  SealAndUpload();
  EXPECT_EQ(server_->Stat(ctx_, key_)->state, SegmentState::kUploaded);
}

TEST_F(CrashLeftovers, AFileThatIsNotOursIsLeftAlone) {
  server_.reset();
  ASSERT_TRUE(files_.MakeDirs("/data/segments/0000000000000007").ok());
  ASSERT_TRUE(WriteFileAtomically(files_, "/data/segments/0000000000000007/notes.txt", "hello").ok());
  ASSERT_TRUE(WriteFileAtomically(files_, "/data/segments/0000000000000007/000000000000000z.seg", "hello").ok());
  ASSERT_TRUE(WriteFileAtomically(files_, "/data/segments/0000000000000007/0000000000000001.seg.tmp", "cut").ok());
  Start();
  EXPECT_TRUE(server_->List(ctx_, DiskId(7))->empty());
  EXPECT_TRUE(*files_.Exists("/data/segments/0000000000000007/notes.txt"));
  EXPECT_FALSE(*files_.Exists("/data/segments/0000000000000007/0000000000000001.seg.tmp"));
}

TEST_F(CrashLeftovers, OneUnreadableSegmentDoesNotStopTheOthers) {
  ASSERT_TRUE(Append(0, "abc").ok());
  const SegmentKey other{DiskId(7), SegmentId(1)};
  ASSERT_TRUE(server_->Append(ctx_, other, 1, 0, Buffer::Copy("xyz"), Checksum("xyz")).ok());
  server_.reset();
  files_.FailNext(MemFiles::Call::kRead, SegmentName(key_), Code::kIo);
  Start();
  EXPECT_EQ(ReadOf(other, 0, 3), "xyz");
  EXPECT_EQ(Read(0, 3), "io");
  EXPECT_EQ(server_->Fence(ctx_, key_, 5).code(), Code::kIo) << "never a length that may be too short";
  EXPECT_EQ(server_->Stat(ctx_, key_).code(), Code::kIo);
  EXPECT_EQ(Metric("unusable_segments"), 1u);
  Restart();
  EXPECT_EQ(Read(0, 3), "abc");
}

TEST_F(CrashLeftovers, ADamagedRecordOfAnUploadIsMadeAgain) {
  server_.reset();
  config_.cache_limit_bytes = 0;
  Start();
  ASSERT_TRUE(Append(0, "abc").ok());
  SealAndUpload();
  ASSERT_EQ(Metric("evictions"), 1u);
  server_.reset();
  const std::string state = "/data/segments/" + SegmentName(key_) + ".state";
  ASSERT_TRUE(files_.FlipByte(state, 20).ok());
  Start();
  EXPECT_EQ(Read(0, 3), "abc");
  Restart();
  EXPECT_EQ(Metric("bad_state_records"), 0u) << "written anew";
  EXPECT_EQ(Read(0, 3), "abc");
}

}  // namespace
}  // namespace archil
