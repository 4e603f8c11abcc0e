// The log of a disk: its writer's group commit, retries and rotation, and what its reader takes for torn or damaged.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/format/log_record.h"
#include "server/meta/log/log_reader.h"
#include "server/meta/log/log_writer.h"
#include "tests/support/mem_data_service.h"
#include "tests/support/meta_world.h"

namespace archil {
namespace {

constexpr DiskId kDisk{5};

LogRecord SampleCommit(uint64_t seq, size_t bytes = 10) {
  return CommitRecord{SessionId{9}, Seq{seq}, Seq{seq}, std::string(bytes, static_cast<char>('a' + seq % 26)), {}};
}

class LogTest : public ::testing::Test {
 protected:
  void Open(uint32_t servers, uint64_t segment_bytes = 1 << 20) {
    data_ = std::make_unique<test::MemDataServers>(servers);
    coord_ = std::move(OpenLocalCoordination(RealScheduler(), files_, "/coord")).value();
    ManifestStore store(*coord_, kDisk);
    Manifest m = *store.Load();
    m.epoch = 3;
    m.segments.push_back({SegmentId{kLogSegmentBit | m.next_segment++}, Lsn{1}, false, 0, {1}});
    ASSERT_TRUE(store.Store(m).ok());
    LogWriter::Hooks hooks;
    hooks.on_failed = [this](const Error&) { ++failed_; };
    hooks.on_closed = [this](const LogSegment&) { ++closed_; };
    writer_ = std::make_unique<LogWriter>(LogWriterEnv{RealScheduler(), pool_, *data_, faults_}, kDisk, std::move(store), m, Lsn{0}, segment_bytes, hooks);
  }
  ~LogTest() override {
    if (writer_ != nullptr) writer_->Stop();
    pool_.Stop();
  }
  void Submit(uint64_t lsn, size_t bytes = 10) {
    writer_->Submit(Lsn{lsn}, EncodeLogRecord(Lsn{lsn}, SampleCommit(lsn, bytes)), [this, lsn](Status s) {
      absl::MutexLock lock(&mu_);
      done_.push_back({lsn, s.code()});
    });
  }
  // Waits until everything submitted is answered.
  Status WaitDurable() {
    Notification done(RealScheduler());
    Status out;
    writer_->WhenDurable([&](Status s) {
      out = s;
      done.Notify();
    });
    done.Wait();
    return out;
  }
  std::vector<std::pair<uint64_t, Code>> Answers() {
    absl::MutexLock lock(&mu_);
    return done_;
  }
  Manifest StoredManifest() {
    ManifestStore store(*coord_, kDisk);
    return *store.Load();
  }
  // Positions read back; the error as text otherwise.
  std::vector<uint64_t> ReadBack() {
    const Manifest m = StoredManifest();
    const uint64_t open = data_->ById(m.segments.back().servers[0])->Fence({}, {kDisk, m.segments.back().segment}, 99)->length;
    std::vector<uint64_t> out;
    const auto end = ReadLog({}, *data_, kDisk, m, open, Lsn{0}, [&](LogFrame&& f) {
      out.push_back(f.lsn.value);
      return Ok();
    });
    EXPECT_TRUE(end.ok()) << end.error().ToString();
    return out;
  }
  static std::vector<uint64_t> UpTo(uint64_t n) {
    std::vector<uint64_t> out;
    for (uint64_t i = 1; i <= n; ++i) out.push_back(i);
    return out;
  }

  MemFiles files_;
  Faults faults_;
  ThreadPool pool_{RealScheduler(), "log", 2};
  std::unique_ptr<test::MemDataServers> data_;
  std::unique_ptr<Coordination> coord_;
  std::unique_ptr<LogWriter> writer_;
  std::atomic<int> failed_{0};
  std::atomic<int> closed_{0};
  absl::Mutex mu_;
  std::vector<std::pair<uint64_t, Code>> done_ ABSL_GUARDED_BY(mu_);
};

TEST_F(LogTest, ManyRecordsShareAnAppendAndAreAnsweredInOrder) {
  Open(1);
  data_->at(0).HoldAppends(true);
  for (uint64_t i = 1; i <= 500; ++i) Submit(i);
  EXPECT_TRUE(Answers().empty());
  data_->at(0).HoldAppends(false);
  ASSERT_TRUE(WaitDurable().ok());
  EXPECT_LE(data_->at(0).appends(), 3u);
  EXPECT_EQ(ReadBack(), UpTo(500));
  const auto answers = Answers();
  ASSERT_EQ(answers.size(), 500u);
  for (uint64_t i = 0; i < 500; ++i) EXPECT_EQ(answers[i], (std::pair<uint64_t, Code>{i + 1, Code::kOk}));
  EXPECT_EQ(writer_->durable(), Lsn{500});
}

TEST_F(LogTest, AnAppendWhoseAnswerIsLostIsRepeatedWithoutEffect) {
  Open(1);
  data_->at(0).FailAppends(Code::kUnknown, 2);
  Submit(1);
  ASSERT_TRUE(WaitDurable().ok());
  Submit(2);
  ASSERT_TRUE(WaitDurable().ok());
  EXPECT_EQ(ReadBack(), UpTo(2));
  EXPECT_EQ(closed_, 0);
}

TEST_F(LogTest, SegmentsAreRotatedAtTheirLimit) {
  Open(2, 1000);
  for (uint64_t i = 1; i <= 60; ++i) {
    Submit(i, 50);
    ASSERT_TRUE(WaitDurable().ok());
  }
  EXPECT_EQ(ReadBack(), UpTo(60));
  const Manifest m = StoredManifest();
  EXPECT_GE(m.segments.size(), 5u);
  for (size_t i = 0; i + 1 < m.segments.size(); ++i) {
    EXPECT_TRUE(m.segments[i].closed);
    EXPECT_LE(m.segments[i].end, 1000u);
  }
  EXPECT_EQ(static_cast<size_t>(closed_), m.segments.size() - 1);
}

TEST_F(LogTest, ARecordLargerThanOneAppend) {
  Open(1, 64 << 20);
  Submit(1, kMaxAppend + 12345);
  ASSERT_TRUE(WaitDurable().ok());
  Submit(2);
  ASSERT_TRUE(WaitDurable().ok());
  EXPECT_EQ(ReadBack(), UpTo(2));
}

TEST_F(LogTest, AServerThatIsFullIsLeftForAnother) {
  Open(2);
  Submit(1);
  ASSERT_TRUE(WaitDurable().ok());
  data_->at(0).FailAppends(Code::kNoSpace, UINT64_MAX);
  Submit(2);
  ASSERT_TRUE(WaitDurable().ok());
  const Manifest m = StoredManifest();
  ASSERT_EQ(m.segments.size(), 2u);
  EXPECT_EQ(m.segments[1].servers[0], 2u);
  EXPECT_EQ(m.segments[1].first, Lsn{2});
  EXPECT_EQ(ReadBack(), UpTo(2));
}

// What an unanswered append left behind the end of a closed segment is not of the log.
TEST_F(LogTest, BytesBehindAClosedEndAreNotRead) {
  Open(2);
  Submit(1);
  ASSERT_TRUE(WaitDurable().ok());
  data_->at(0).FailAppends(Code::kUnknown, UINT64_MAX);
  Submit(2);
  ASSERT_TRUE(WaitDurable().ok());
  const Manifest m = StoredManifest();
  ASSERT_EQ(m.segments.size(), 2u);
  EXPECT_GT(data_->at(0).Content({kDisk, m.segments[0].segment}).size(), m.segments[0].end);
  EXPECT_EQ(ReadBack(), UpTo(2));
}

TEST_F(LogTest, AFencedWriterFailsForGood) {
  Open(1);
  Submit(1);
  ASSERT_TRUE(WaitDurable().ok());
  const Manifest m = StoredManifest();
  ASSERT_TRUE(data_->at(0).Fence({}, {kDisk, m.segments[0].segment}, m.epoch + 1).ok());
  Submit(2);
  EXPECT_EQ(WaitDurable().code(), Code::kUnavailable);
  EXPECT_EQ(Answers().back(), (std::pair<uint64_t, Code>{2, Code::kUnavailable}));
  Submit(3);
  EXPECT_EQ(Answers().back(), (std::pair<uint64_t, Code>{3, Code::kUnavailable}));
  writer_->Stop();
  EXPECT_EQ(failed_, 1);
  EXPECT_EQ(ReadBack(), UpTo(1));
}

TEST_F(LogTest, AnOvertakenLeaderCannotChangeTheManifest) {
  Open(2, 60);
  ManifestStore other(*coord_, kDisk);
  Manifest m = *other.Load();
  ++m.epoch;
  ASSERT_TRUE(other.Store(m).ok());
  Submit(1);
  ASSERT_TRUE(WaitDurable().ok());
  Submit(2);  // needs a new segment
  EXPECT_FALSE(WaitDurable().ok());
  writer_->Stop();
  EXPECT_EQ(StoredManifest().epoch, m.epoch);
}

// --- the reader, on a log made by hand: two closed segments and an open one

class ReaderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPerSegment = 4;
  void SetUp() override {
    uint64_t lsn = 0;
    for (uint64_t i = 0; i < 3; ++i) {
      std::string bytes;
      const Lsn first{lsn + 1};
      for (uint64_t j = 0; j < kPerSegment; ++j) {
        ++lsn;
        bytes += EncodeLogRecord(Lsn{lsn}, SampleCommit(lsn, 30));
        if (i == 2) ends_.push_back(bytes.size());
      }
      const SegmentId id{kLogSegmentBit | (i + 1)};
      manifest_.segments.push_back({id, first, i < 2, i < 2 ? bytes.size() : 0, {1}});
      contents_.push_back(bytes);
      data_.at(0).SetContent({kDisk, id}, bytes);
    }
  }
  SegmentKey Key(size_t i) { return {kDisk, manifest_.segments[i].segment}; }
  Result<LogEnd> Read(uint64_t open_length, Lsn after = Lsn{0}) {
    records_.clear();
    return ReadLog({}, data_, kDisk, manifest_, open_length, after, [&](LogFrame&& f) {
      records_.push_back(f.lsn.value);
      return Ok();
    });
  }

  test::MemDataServers data_{1};
  Manifest manifest_;
  std::vector<std::string> contents_;
  std::vector<uint64_t> ends_;
  std::vector<uint64_t> records_;
};

TEST_F(ReaderTest, RecordsAfterAPosition) {
  for (uint64_t after = 0; after <= 12; ++after) {
    auto end = Read(contents_[2].size(), Lsn{after});
    ASSERT_TRUE(end.ok()) << end.error().ToString();
    EXPECT_EQ(end->last, Lsn{12});
    EXPECT_EQ(end->open_end, contents_[2].size());
    EXPECT_EQ(records_.size(), 12 - after);
    if (!records_.empty()) {
      EXPECT_EQ(records_[0], after + 1);
    }
  }
}

TEST_F(ReaderTest, TheOpenSegmentCutAnywhereEndsAtAWholeRecord) {
  for (uint64_t length = 0; length <= contents_[2].size(); ++length) {
    data_.at(0).SetContent(Key(2), contents_[2].substr(0, length));
    auto end = Read(length);
    ASSERT_TRUE(end.ok()) << length << ": " << end.error().ToString();
    uint64_t whole = 0, good = 0;
    for (uint64_t e : ends_) {
      if (e <= length) {
        ++whole;
        good = e;
      }
    }
    EXPECT_EQ(end->last.value, 8 + whole);
    EXPECT_EQ(end->open_end, good);
    EXPECT_EQ(end->torn, length - good);
  }
}

TEST_F(ReaderTest, AnyFlippedByteIsDamageUnlessItIsInTheLastRecord) {
  for (size_t i = 0; i < 3; ++i) {
    for (size_t at = 0; at < contents_[i].size(); ++at) {
      std::string bad = contents_[i];
      bad[at] = static_cast<char>(bad[at] ^ 0x40);
      data_.at(0).SetContent(Key(i), bad);
      auto end = Read(contents_[2].size());
      const bool in_last = i == 2 && at >= ends_[kPerSegment - 2];
      if (in_last) {
        ASSERT_TRUE(end.ok()) << at;
        EXPECT_EQ(end->last, Lsn{11});
      } else {
        EXPECT_FALSE(end.ok()) << i << " " << at;
        EXPECT_TRUE(end.code() == Code::kCorrupt || end.code() == Code::kNotSupported);
      }
    }
    data_.at(0).SetContent(Key(i), contents_[i]);
  }
}

TEST_F(ReaderTest, MissingSegmentsAndRecordsAreDamage) {
  data_.at(0).SetContent(Key(1), contents_[1].substr(0, contents_[1].size() - 1));
  EXPECT_EQ(Read(contents_[2].size()).code(), Code::kCorrupt);
  ASSERT_TRUE(data_.at(0).Delete({}, Key(1)).ok());
  EXPECT_EQ(Read(contents_[2].size()).code(), Code::kCorrupt);
  EXPECT_TRUE(Read(contents_[2].size(), Lsn{8}).ok());  // not needed any more
  data_.at(0).SetContent(Key(1), contents_[1]);
  manifest_.segments.erase(manifest_.segments.begin() + 1);
  EXPECT_EQ(Read(contents_[2].size()).code(), Code::kCorrupt);
  data_.at(0).SetDown(true);
  EXPECT_EQ(Read(contents_[2].size()).code(), Code::kUnavailable);
}

TEST(ManifestTest, RoundTripAndDamage) {
  Manifest m;
  m.epoch = 7;
  m.next_segment = 4;
  m.segments.push_back({SegmentId{kLogSegmentBit | 1}, Lsn{1}, true, 1234, {1, 2}});
  m.segments.push_back({SegmentId{kLogSegmentBit | 3}, Lsn{55}, false, 0, {2}});
  const std::string bytes = EncodeManifest(m);
  auto back = DecodeManifest(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(EncodeManifest(*back), bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(DecodeManifest(bad).ok()) << i;
    EXPECT_FALSE(DecodeManifest(std::string_view(bytes).substr(0, i)).ok()) << i;
  }
}

}  // namespace
}  // namespace archil
