// What holds for every DataService: the server in the same process, and the stub that speaks to one over gRPC.
// Instantiate with factories:
//
//   INSTANTIATE_TEST_SUITE_P(Name, DataServiceContract, ::testing::Values(DataServiceFactory{"name", make}));
//
// In a program of its own file; this header defines the tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "common/api/data_service.h"
#include "common/api/types.h"
#include "common/base/checksum.h"
#include "common/env/random.h"
#include "common/env/sched.h"

namespace archil {

// Keeps a service and what it stands on.
class DataServiceFixture {
 public:
  virtual ~DataServiceFixture() = default;
  virtual DataService& service() = 0;
  // Everything sealed so far has become an object.
  virtual void DrainUploads() = 0;
  // Stops and starts again what holds the segments.
  virtual void Restart() = 0;
};

struct DataServiceFactory {
  std::string name;
  std::function<std::unique_ptr<DataServiceFixture>()> make;
};

inline std::ostream& operator<<(std::ostream& out, const DataServiceFactory& f) { return out << f.name; }

class DataServiceContract : public ::testing::TestWithParam<DataServiceFactory> {
 protected:
  void SetUp() override { fixture_ = GetParam().make(); }

  DataService& service() { return fixture_->service(); }
  Status Append(SegmentKey key, uint64_t token, uint64_t offset, const std::string& bytes) {
    return service().Append(ctx_, key, token, offset, Buffer::Copy(bytes), Checksum(bytes));
  }
  std::string Read(SegmentKey key, uint64_t offset, uint64_t length) {
    const auto bytes = service().Read(ctx_, key, offset, length);
    return bytes.ok() ? std::string(bytes->view()) : bytes.error().ToString();
  }
  static std::string Bytes(uint64_t seed, size_t n) {
    auto random = SeededRandom(seed);
    std::string out(n, '\0');
    for (char& c : out) c = static_cast<char>(random->Next());
    return out;
  }

  OpContext ctx_;
  const SegmentKey key_{DiskId(7), SegmentId(9)};
  std::unique_ptr<DataServiceFixture> fixture_;
};

TEST_P(DataServiceContract, WhatWasAppendedIsRead) {
  const std::string a = Bytes(1, 1);
  const std::string b = Bytes(2, 4096);
  const std::string c = Bytes(3, kMaxAppend);
  EXPECT_EQ(Append(key_, 1, 0, a).code(), Code::kOk);
  EXPECT_EQ(Append(key_, 1, 1, b).code(), Code::kOk);
  EXPECT_EQ(Append(key_, 1, 4097, c).code(), Code::kOk);
  const std::string all = a + b + c;
  EXPECT_TRUE(Read(key_, 0, all.size()) == all);
  for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 1}, {1, 4096}, {0, 2}, {4096, 2}, {4097 + 65535, 2}, {all.size() - 1, 1}, {5, 0}, {all.size(), 0}}) {
    EXPECT_EQ(Read(key_, offset, length), all.substr(offset, length)) << offset;
  }
  const auto info = service().Stat(ctx_, key_);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->length, all.size());
  EXPECT_EQ(info->state, SegmentState::kOpen);
  EXPECT_EQ(info->key, key_);
}

TEST_P(DataServiceContract, RangesOutsideAreInvalidAndUnknownSegmentsNotFound) {
  ASSERT_TRUE(Append(key_, 1, 0, "abc").ok());
  EXPECT_EQ(service().Read(ctx_, key_, 0, 4).code(), Code::kInvalid);
  EXPECT_EQ(service().Read(ctx_, key_, 4, 0).code(), Code::kInvalid);
  EXPECT_EQ(service().Read(ctx_, key_, ~0ULL, 2).code(), Code::kInvalid);
  EXPECT_EQ(service().Read(ctx_, key_, 1, ~0ULL).code(), Code::kInvalid);
  const SegmentKey other{DiskId(7), SegmentId(10)};
  EXPECT_EQ(service().Read(ctx_, other, 0, 1).code(), Code::kNotFound);
  EXPECT_EQ(service().Stat(ctx_, other).code(), Code::kNotFound);
  EXPECT_EQ(service().Seal(ctx_, other, 1).code(), Code::kNotFound);
  EXPECT_EQ(service().Stat(ctx_, {DiskId(8), SegmentId(9)}).code(), Code::kNotFound);
}

TEST_P(DataServiceContract, AppendsMustBeInOrderAndWhole) {
  EXPECT_EQ(Append(key_, 1, 5, "abc").code(), Code::kInvalid) << "the first append is at 0";
  EXPECT_EQ(service().Stat(ctx_, key_).code(), Code::kNotFound) << "a refused append creates nothing";
  ASSERT_TRUE(Append(key_, 1, 0, "abc").ok());
  EXPECT_EQ(Append(key_, 1, 4, "x").code(), Code::kInvalid);
  EXPECT_EQ(Append(key_, 1, 2, "xy").code(), Code::kInvalid) << "overlaps in part";
  EXPECT_EQ(Append(key_, 1, 3, "").code(), Code::kInvalid);
  EXPECT_EQ(Append(key_, 1, 3, std::string(kMaxAppend + 1, 'x')).code(), Code::kInvalid);
  EXPECT_EQ(service().Append(ctx_, key_, 1, 3, Buffer::Copy("def"), Checksum("deg")).code(), Code::kCorrupt);
  EXPECT_EQ(Append({DiskId(0), SegmentId(1)}, 1, 0, "x").code(), Code::kInvalid);
  EXPECT_EQ(service().Stat(ctx_, key_)->length, 3u);
  EXPECT_TRUE(Append(key_, 1, 3, "def").ok());
  EXPECT_EQ(Read(key_, 0, 6), "abcdef");
}

TEST_P(DataServiceContract, ARepeatedAppendHappensOnce) {
  ASSERT_TRUE(Append(key_, 1, 0, "abc").ok());
  EXPECT_TRUE(Append(key_, 1, 0, "abc").ok());
  ASSERT_TRUE(Append(key_, 1, 3, "def").ok());
  EXPECT_TRUE(Append(key_, 1, 0, "abc").ok());
  EXPECT_EQ(Append(key_, 1, 0, "abd").code(), Code::kInvalid);
  EXPECT_EQ(Append(key_, 1, 3, "defg").code(), Code::kInvalid);
  EXPECT_EQ(service().Stat(ctx_, key_)->length, 6u);
  ASSERT_TRUE(service().Seal(ctx_, key_, 1).ok());
  EXPECT_TRUE(Append(key_, 1, 3, "def").ok()) << "it is there, sealed or not";
}

TEST_P(DataServiceContract, SEG2_AFenceStopsLowerTokens) {
  ASSERT_TRUE(Append(key_, 5, 0, "abc").ok());
  EXPECT_EQ(Append(key_, 4, 3, "x").code(), Code::kFenced) << "an append with a token sets it";
  const auto fenced = service().Fence(ctx_, key_, 8);
  ASSERT_TRUE(fenced.ok());
  EXPECT_EQ(fenced->length, 3u);
  EXPECT_EQ(fenced->token, 8u);
  EXPECT_EQ(Append(key_, 7, 3, "x").code(), Code::kFenced);
  EXPECT_EQ(Append(key_, 7, 0, "abc").code(), Code::kFenced) << "a repeat as well";
  EXPECT_EQ(service().Fence(ctx_, key_, 7).code(), Code::kFenced);
  EXPECT_EQ(service().Seal(ctx_, key_, 7).code(), Code::kFenced);
  EXPECT_TRUE(service().Fence(ctx_, key_, 8).ok());
  fixture_->Restart();
  EXPECT_EQ(service().Stat(ctx_, key_)->token, 8u);
  EXPECT_EQ(Append(key_, 7, 3, "x").code(), Code::kFenced);
  EXPECT_TRUE(Append(key_, 8, 3, "def").ok());
  EXPECT_EQ(Read(key_, 0, 6), "abcdef");
}

TEST_P(DataServiceContract, SEG2_FencingAnUnknownSegmentCreatesIt) {
  const auto fenced = service().Fence(ctx_, key_, 3);
  ASSERT_TRUE(fenced.ok());
  EXPECT_EQ(fenced->length, 0u);
  EXPECT_EQ(fenced->state, SegmentState::kOpen);
  fixture_->Restart();
  EXPECT_EQ(Append(key_, 2, 0, "x").code(), Code::kFenced);
  EXPECT_TRUE(Append(key_, 3, 0, "y").ok());
  EXPECT_EQ(Read(key_, 0, 1), "y");
}

TEST_P(DataServiceContract, ASealEndsASegmentForGood) {
  ASSERT_TRUE(Append(key_, 1, 0, "abc").ok());
  const auto sealed = service().Seal(ctx_, key_, 1);
  ASSERT_TRUE(sealed.ok());
  EXPECT_EQ(sealed->length, 3u);
  EXPECT_NE(sealed->state, SegmentState::kOpen);
  EXPECT_EQ(Append(key_, 1, 3, "x").code(), Code::kFenced);
  EXPECT_EQ(Append(key_, 9, 3, "x").code(), Code::kFenced) << "whatever the token";
  EXPECT_TRUE(service().Seal(ctx_, key_, 1).ok()) << "idempotent";
  EXPECT_EQ(service().Fence(ctx_, key_, 9)->length, 3u);
  fixture_->Restart();
  EXPECT_EQ(Append(key_, 9, 3, "x").code(), Code::kFenced);
  EXPECT_NE(service().Stat(ctx_, key_)->state, SegmentState::kOpen);
  EXPECT_EQ(Read(key_, 0, 3), "abc");
}

TEST_P(DataServiceContract, AnEmptySegmentCanBeSealed) {
  ASSERT_TRUE(service().Fence(ctx_, key_, 3).ok());
  EXPECT_EQ(service().Seal(ctx_, key_, 3)->length, 0u);
  fixture_->DrainUploads();
  EXPECT_EQ(service().Stat(ctx_, key_)->state, SegmentState::kUploaded);
  EXPECT_EQ(Read(key_, 0, 0), "");
}

TEST_P(DataServiceContract, SealedSegmentsAreUploadedAndRead) {
  const std::string bytes = Bytes(5, 300'000);
  ASSERT_TRUE(Append(key_, 1, 0, bytes).ok());
  ASSERT_TRUE(Append(key_, 1, bytes.size(), "tail").ok());
  ASSERT_TRUE(service().Seal(ctx_, key_, 1).ok());
  fixture_->DrainUploads();
  EXPECT_EQ(service().Stat(ctx_, key_)->state, SegmentState::kUploaded);
  EXPECT_TRUE(Read(key_, 0, bytes.size() + 4) == bytes + "tail");
  fixture_->Restart();
  EXPECT_EQ(service().Stat(ctx_, key_)->state, SegmentState::kUploaded);
  EXPECT_TRUE(Read(key_, 0, bytes.size() + 4) == bytes + "tail");
  EXPECT_EQ(Read(key_, bytes.size() - 1, 5), bytes.substr(bytes.size() - 1) + "tail");
}

TEST_P(DataServiceContract, DeletedSegmentsAreGone) {
  for (uint64_t n = 1; n <= 3; ++n) ASSERT_TRUE(Append({DiskId(7), SegmentId(n)}, 1, 0, "abc").ok());
  ASSERT_TRUE(Append({DiskId(8), SegmentId(1)}, 1, 0, "abc").ok());
  ASSERT_TRUE(service().Seal(ctx_, {DiskId(7), SegmentId(2)}, 1).ok());
  fixture_->DrainUploads();
  EXPECT_TRUE(service().Delete(ctx_, {DiskId(7), SegmentId(1)}).ok());
  EXPECT_TRUE(service().Delete(ctx_, {DiskId(7), SegmentId(2)}).ok());
  EXPECT_TRUE(service().Delete(ctx_, {DiskId(7), SegmentId(2)}).ok()) << "absent is success";
  EXPECT_TRUE(service().Delete(ctx_, {DiskId(99), SegmentId(2)}).ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(service().Read(ctx_, {DiskId(7), SegmentId(2)}, 0, 1).code(), Code::kNotFound);
    const auto listed = service().List(ctx_, DiskId(7));
    ASSERT_TRUE(listed.ok());
    ASSERT_EQ(listed->size(), 1u);
    EXPECT_EQ(listed->front().key, (SegmentKey{DiskId(7), SegmentId(3)}));
    EXPECT_EQ(listed->front().length, 3u);
    EXPECT_EQ(service().List(ctx_, DiskId(8))->size(), 1u);
    fixture_->Restart();
  }
}

TEST_P(DataServiceContract, SegmentsAreListedInOrder) {
  for (const uint64_t n : {5, 1, 300, 2}) ASSERT_TRUE(Append({DiskId(7), SegmentId(n)}, 1, 0, "abc").ok());
  ASSERT_TRUE(service().Seal(ctx_, {DiskId(7), SegmentId(300)}, 1).ok());
  const auto listed = service().List(ctx_, DiskId(7));
  ASSERT_TRUE(listed.ok());
  std::vector<uint64_t> ids;
  for (const SegmentInfo& info : *listed) ids.push_back(info.key.segment.value);
  EXPECT_EQ(ids, (std::vector<uint64_t>{1, 2, 5, 300}));
  EXPECT_TRUE(service().List(ctx_, DiskId(6))->empty());
}

TEST_P(DataServiceContract, ManyWritersAppendAtOnce) {
  constexpr uint64_t kWriters = 8;
  constexpr uint64_t kAppends = 25;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Status> results(kWriters);
  for (uint64_t w = 0; w < kWriters; ++w) {
    threads.push_back(RealScheduler().Spawn("writer", [this, w, &results] {
      const SegmentKey mine{DiskId(7), SegmentId(100 + w)};
      uint64_t offset = 0;
      for (uint64_t i = 0; i < kAppends && results[w].ok(); ++i) {
        const std::string bytes = Bytes(w * 1000 + i, 100 + i * 37);
        results[w] = Append(mine, 1, offset, bytes);
        offset += bytes.size();
      }
    }));
  }
  for (auto& thread : threads) thread->Join();
  for (uint64_t w = 0; w < kWriters; ++w) {
    ASSERT_TRUE(results[w].ok()) << results[w].error().ToString();
    std::string all;
    for (uint64_t i = 0; i < kAppends; ++i) all += Bytes(w * 1000 + i, 100 + i * 37);
    EXPECT_TRUE(Read({DiskId(7), SegmentId(100 + w)}, 0, all.size()) == all);
  }
}

TEST_P(DataServiceContract, AcknowledgedAppendsOutliveRestarts) {
  std::string all;
  for (int i = 0; i < 30; ++i) {
    const std::string bytes = Bytes(i, 1 + (i * 7919) % 100'000);
    ASSERT_TRUE(Append(key_, 1, all.size(), bytes).ok());
    all += bytes;
    if (i % 10 != 9) continue;
    fixture_->Restart();
    ASSERT_EQ(service().Stat(ctx_, key_)->length, all.size());
    ASSERT_TRUE(Read(key_, 0, all.size()) == all);
  }
}

}  // namespace archil
