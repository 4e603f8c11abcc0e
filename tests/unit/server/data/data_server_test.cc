// Group commit, limits, uploads and the cache of the data server.
#include <atomic>

#include "tests/unit/server/data/data_server_fixture.h"

namespace archil {
namespace {

struct Pending {
  Status status;
  Notification done{RealScheduler()};
};

TEST_F(DataServerTest, AppendsThatWaitShareOneSync) {
  ASSERT_TRUE(Append(0, "x").ok());
  // The first sync is held until the others are queued behind it.
  Notification in_sync(RealScheduler());
  Notification go(RealScheduler());
  std::atomic<int> syncs{0};
  files_.OnStep([&](MemFiles::Call call, const std::string&) {
    if (call != MemFiles::Call::kSync) return;
    if (syncs.fetch_add(1) > 0) return;
    in_sync.Notify();
    go.Wait();
  });
  std::vector<std::unique_ptr<Pending>> all;
  const auto append = [&](uint64_t offset) {
    all.push_back(std::make_unique<Pending>());
    server_->AppendAsync(ctx_, key_, 1, offset, Buffer::Copy("y"), Checksum("y"), [p = all.back().get()](Status s) {
      p->status = std::move(s);
      p->done.Notify();
    });
  };
  append(1);
  in_sync.Wait();
  for (uint64_t i = 2; i < 50; ++i) append(i);
  append(49);  // a repeat of one that is under way: one of both writes, both are answered
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 1u) << "nothing is visible before it is synced";
  go.Notify();
  for (const auto& pending : all) {
    pending->done.Wait();
    EXPECT_TRUE(pending->status.ok()) << pending->status.error().ToString();
  }
  EXPECT_EQ(syncs.load(), 2);
  EXPECT_EQ(Read(0, 50), "x" + std::string(49, 'y'));
}

TEST_F(DataServerTest, ADeadlineThatPassesIsUnknown) {
  Notification go(RealScheduler());
  files_.OnStep([&](MemFiles::Call call, const std::string&) {
    if (call == MemFiles::Call::kSync) go.Wait();
  });
  OpContext soon;
  soon.deadline = RealClock().Boot() + absl::Milliseconds(1);
  EXPECT_EQ(server_->Append(soon, key_, 1, 0, Buffer::Copy("x"), Checksum("x")).code(), Code::kUnknown);
  go.Notify();
  EXPECT_TRUE(Append(0, "x").ok()) << "the repeat finds it";
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 1u);
}

TEST_F(DataServerTest, LowSpaceIsRefusedBeforeAnythingIsWritten) {
  ASSERT_TRUE(Append(0, "abc").ok());
  server_.reset();
  config_.reserve_bytes = 1 << 20;
  Start();
  files_.SetCapacity(files_.used_bytes() + (1 << 20) + 200);
  const uint64_t steps = files_.steps();
  EXPECT_EQ(Append(3, std::string(300, 'x')).code(), Code::kNoSpace);
  EXPECT_EQ(files_.steps(), steps);
  EXPECT_TRUE(Append(3, "x").ok());
  EXPECT_EQ(Read(0, 4), "abcx");
  EXPECT_TRUE(server_->Seal(ctx_, key_, 1).ok()) << "there is room for what ends a segment";
}

TEST_F(DataServerTest, AFullDiskInTheMiddleOfAWriteChangesNothing) {
  ASSERT_TRUE(Append(0, "abc").ok());
  for (int round = 0; round < 2; ++round) {
    files_.FailNext(MemFiles::Call::kWrite, ".seg", Code::kNoSpace);
    // The first time also without the zeros ahead.
    if (round == 0) files_.FailNext(MemFiles::Call::kWrite, ".seg", Code::kNoSpace);
    EXPECT_EQ(Append(3 + round, "x").code(), Code::kNoSpace);
    EXPECT_TRUE(Append(3 + round, "y").ok());
  }
  EXPECT_EQ(Read(0, 5), "abcyy");
  files_.FailNext(MemFiles::Call::kWrite, SegmentName({DiskId(7), SegmentId(10)}), Code::kNoSpace);
  EXPECT_EQ(server_->Append(ctx_, {DiskId(7), SegmentId(10)}, 1, 0, Buffer::Copy("x"), Checksum("x")).code(),
            Code::kNoSpace);
  EXPECT_EQ(server_->Stat(ctx_, {DiskId(7), SegmentId(10)}).code(), Code::kNotFound);
  CrashAndStart(3);
  EXPECT_EQ(Read(0, 5), "abcyy");
  EXPECT_EQ(server_->List(ctx_, DiskId(7))->size(), 1u);
}

TEST_F(DataServerTest, SmallAppendsWriteIntoSpaceThatIsThere) {
  int growths = 0;
  uint64_t size = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_TRUE(Append(i * 100, std::string(100, 'a')).ok());
    const uint64_t now = files_.Stat(Path())->size;
    if (now != size) ++growths;
    size = now;
  }
  EXPECT_LT(growths, 10);
  EXPECT_LT(size, 2 * 500 * (100 + kFrameHeaderSize) + 20'000);
  Restart();
  EXPECT_EQ(server_->Stat(ctx_, key_)->length, 50'000u);
  ASSERT_TRUE(Append(50'000, "x").ok());
  EXPECT_EQ(files_.Stat(Path())->size, size) << "also what an earlier process filled";
  ASSERT_TRUE(server_->Seal(ctx_, key_, 1).ok());
  EXPECT_LT(files_.Stat(Path())->size, 90'000u) << "a sealed file has no zeros behind it";
}

TEST_F(DataServerTest, TheDirectoryHasOneOwner) {
  const auto second = DataServer::Open({RealScheduler(), files_, store_, faults_}, config_);
  EXPECT_EQ(second.code(), Code::kBusy);
  server_->Stop();
  EXPECT_TRUE(DataServer::Open({RealScheduler(), files_, store_, faults_}, config_).ok());
}

TEST_F(DataServerTest, AfterStopEveryCallIsUnavailable) {
  ASSERT_TRUE(Append(0, "abc").ok());
  server_->Stop();
  server_->Stop();
  EXPECT_EQ(Append(3, "x").code(), Code::kUnavailable);
  EXPECT_EQ(Read(0, 1), "unavailable");
  EXPECT_EQ(server_->Seal(ctx_, key_, 1).code(), Code::kUnavailable);
  EXPECT_EQ(server_->Stat(ctx_, key_).code(), Code::kUnavailable);
  EXPECT_EQ(server_->List(ctx_, key_.disk).code(), Code::kUnavailable);
  EXPECT_EQ(server_->Delete(ctx_, key_).code(), Code::kUnavailable);
}

TEST_F(DataServerTest, ThousandsOfSegmentsNeedFewDescriptors) {
  const auto append_to_all = [&](uint64_t offset, const std::string& bytes) {
    std::vector<std::unique_ptr<Pending>> all;
    for (uint64_t n = 1; n <= 2000; ++n) {
      all.push_back(std::make_unique<Pending>());
      server_->AppendAsync(ctx_, {DiskId(1), SegmentId(n)}, 1, offset, Buffer::Copy(bytes), Checksum(bytes),
                           [p = all.back().get()](Status s) {
                             p->status = std::move(s);
                             p->done.Notify();
                           });
    }
    for (const auto& pending : all) {
      pending->done.Wait();
      ASSERT_TRUE(pending->status.ok()) << pending->status.error().ToString();
    }
  };
  append_to_all(0, "abc");
  EXPECT_LT(files_.open_files(), 300u);
  Restart();
  for (uint64_t n = 1; n <= 2000; ++n) ASSERT_EQ(ReadOf({DiskId(1), SegmentId(n)}, 1, 2), "bc");
  append_to_all(3, "d");
  EXPECT_LT(files_.open_files(), 300u);
}

TEST_F(DataServerTest, UploadsAreTriedAgain) {
  store_.FailPuts({Code::kUnavailable, Code::kUnavailable, Code::kIo});
  ASSERT_TRUE(Append(0, "abc").ok());
  SealAndUpload();
  EXPECT_EQ(server_->Stat(ctx_, key_)->state, SegmentState::kUploaded);
  EXPECT_EQ(Metric("upload_retries"), 3u);
  EXPECT_TRUE(store_.Has(SegmentName(key_)));
}

TEST_F(DataServerTest, UploadsGoOnAfterARestart) {
  store_.FailPuts(std::deque<Code>(1000, Code::kUnavailable));
  ASSERT_TRUE(Append(0, "abc").ok());
  ASSERT_TRUE(server_->Seal(ctx_, key_, 1).ok());
  OpContext soon;
  soon.deadline = RealClock().Boot() + absl::Milliseconds(1);
  EXPECT_EQ(server_->DrainUploads(soon).code(), Code::kUnknown);
  server_.reset();
  store_.FailPuts({});
  Start();
  Drain();
  EXPECT_EQ(server_->Stat(ctx_, key_)->state, SegmentState::kUploaded);
}

TEST_F(DataServerTest, LocalCopiesAreEvictedDownToTheLimit) {
  server_.reset();
  config_.cache_limit_bytes = 5000;
  Start();
  for (uint64_t n = 1; n <= 10; ++n) {
    const std::string bytes(1000, static_cast<char>('a' + n));
    const SegmentKey key{DiskId(1), SegmentId(n)};
    ASSERT_TRUE(server_->Append(ctx_, key, 1, 0, Buffer::Copy(bytes), Checksum(bytes)).ok());
    ASSERT_TRUE(server_->Seal(ctx_, key, 1).ok());
    Drain();
    ASSERT_EQ(ReadOf({DiskId(1), SegmentId(1)}, 0, 1), "b");  // keeps the first one in use
  }
  EXPECT_LE(Metric("cached_bytes"), 5000u);
  EXPECT_GE(Metric("evictions"), 5u);
  EXPECT_TRUE(*files_.Exists("/data/segments/" + SegmentName({DiskId(1), SegmentId(1)}) + ".seg"));
  EXPECT_FALSE(*files_.Exists("/data/segments/" + SegmentName({DiskId(1), SegmentId(2)}) + ".seg"));
  for (int round = 0; round < 2; ++round) {
    for (uint64_t n = 1; n <= 10; ++n) {
      EXPECT_EQ(ReadOf({DiskId(1), SegmentId(n)}, 10, 2), std::string(2, static_cast<char>('a' + n)));
    }
    Restart();
    EXPECT_LE(Metric("cached_bytes"), 5000u);
  }
}

TEST_F(DataServerTest, ReadsOfObjectsFetchRangesOnly) {
  server_.reset();
  config_.cache_limit_bytes = 0;
  Start();
  std::string all;
  for (int i = 0; i < 10; ++i) {
    const std::string bytes(100'000, static_cast<char>('a' + i));
    ASSERT_TRUE(Append(all.size(), bytes).ok());
    all += bytes;
  }
  SealAndUpload();
  ASSERT_EQ(Metric("evictions"), 1u);
  EXPECT_EQ(Read(500'000, 100), std::string(100, 'f'));
  EXPECT_LT(store_.bytes_read(), 150'000u);
  EXPECT_TRUE(Read(0, all.size()) == all);
  EXPECT_EQ(server_->Append(ctx_, key_, 1, 0, Buffer::Copy("x"), Checksum("x")).code(), Code::kFenced);
}

TEST_F(DataServerTest, DeleteTakesFilesAndObject) {
  ASSERT_TRUE(Append(0, "abc").ok());
  SealAndUpload();
  ASSERT_TRUE(server_->Delete(ctx_, key_).ok());
  EXPECT_FALSE(store_.Has(SegmentName(key_)));
  EXPECT_EQ(files_.List("/data/segments/" + SegmentName(key_).substr(0, 16))->size(), 0u);
  EXPECT_TRUE(Append(0, "new").ok());
  EXPECT_EQ(Read(0, 3), "new");
}

TEST_F(DataServerTest, TooManyWaitingAppendsAreRefused) {
  ASSERT_TRUE(Append(0, "x").ok());
  Notification in_sync(RealScheduler());
  Notification go(RealScheduler());
  std::atomic<bool> first{true};
  files_.OnStep([&](MemFiles::Call call, const std::string&) {
    if (call != MemFiles::Call::kSync || !first.exchange(false)) return;
    in_sync.Notify();
    go.Wait();
  });
  const Buffer big(std::string(kMaxAppend, 'x'));
  const uint64_t checksum = Checksum(big.view());
  std::atomic<int> refused{0};
  std::vector<std::unique_ptr<Pending>> all;
  for (int i = 0; i < 80; ++i) {
    all.push_back(std::make_unique<Pending>());
    server_->AppendAsync(ctx_, {DiskId(1), SegmentId(1)}, 1, 0, big, checksum, [&, p = all.back().get()](Status s) {
      if (s.code() == Code::kTryAgain) ++refused;
      p->done.Notify();
    });
    if (i == 0) in_sync.Wait();
  }
  EXPECT_GT(refused.load(), 5);
  go.Notify();
  for (const auto& pending : all) pending->done.Wait();
  EXPECT_LT(refused.load(), 30);
}

}  // namespace
}  // namespace archil
