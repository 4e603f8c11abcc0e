// Coordination in a local file: versions, transactions, and what a crash at each step leaves.
#include <gtest/gtest.h>

#include "common/env/mem_files.h"
#include "common/env/random.h"
#include "server/coord/coordination.h"

namespace archil {
namespace {

Result<std::unique_ptr<Coordination>> Open(Files& files) { return OpenLocalCoordination(RealScheduler(), files, "/coord"); }

CoordTxn Put(const std::string& key, const std::string& value) { return {{}, {{key, value}}, {}}; }

TEST(LocalCoordinationTest, VersionsAndComparisons) {
  MemFiles files;
  auto c = std::move(Open(files)).value();
  EXPECT_FALSE(c->Get("a")->has_value());
  ASSERT_TRUE(c->Commit({{{"a", 0}}, {{"a", "1"}, {"b", "x"}}, {}}).ok());
  EXPECT_EQ(c->Commit({{{"a", 0}}, {{"a", "2"}}, {}}).code(), Code::kBusy);
  const uint64_t version = (*c->Get("a"))->version;
  ASSERT_TRUE(c->Commit({{{"a", version}, {"c", 0}}, {{"a", "2"}}, {"b"}}).ok());
  EXPECT_EQ((*c->Get("a"))->value, "2");
  EXPECT_GT((*c->Get("a"))->version, version);
  EXPECT_FALSE(c->Get("b")->has_value());
  EXPECT_EQ(c->Commit({{{"a", version}}, {}, {"a"}}).code(), Code::kBusy);
  // A key that was deleted and made again has a version that it never had.
  const uint64_t second = (*c->Get("a"))->version;
  ASSERT_TRUE(c->Commit({{}, {}, {"a"}}).ok());
  ASSERT_TRUE(c->Commit(Put("a", "3")).ok());
  EXPECT_GT((*c->Get("a"))->version, second);
}

TEST(LocalCoordinationTest, ListsByPrefixInOrder) {
  MemFiles files;
  auto c = std::move(Open(files)).value();
  for (const char* key : {"p/b", "p/a", "p", "q/a", "p/\xff"}) ASSERT_TRUE(c->Commit(Put(key, key)).ok());
  const auto list = c->List("p/");
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 3u);
  EXPECT_EQ((*list)[0].key, "p/a");
  EXPECT_EQ((*list)[2].key, "p/\xff");
  EXPECT_EQ(c->List("")->size(), 5u);
}

TEST(LocalCoordinationTest, OneProcessAtATime) {
  MemFiles files;
  auto c = Open(files);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(Open(files).code(), Code::kBusy);
}

TEST(LocalCoordinationTest, DamageIsNoticed) {
  MemFiles files;
  {
    auto c = std::move(Open(files)).value();
    ASSERT_TRUE(c->Commit(Put("a", "1")).ok());
  }
  const uint64_t size = ReadWholeFile(files, "/coord/coordination")->size();
  for (uint64_t i = 0; i < size; ++i) {
    ASSERT_TRUE(files.FlipByte("/coord/coordination", i).ok());
    EXPECT_FALSE(Open(files).ok()) << i;
    ASSERT_TRUE(files.FlipByte("/coord/coordination", i).ok());
  }
  EXPECT_TRUE(Open(files).ok());
}

// After a crash at any step the file holds every transaction that was answered, and the next one whole or not at all.
TEST(LocalCoordinationTest, ACrashAtEveryStep) {
  uint64_t crashes = 0;
  for (uint64_t step = 0;; ++step) {
    MemFiles files;
    int answered = 0;
    {
      auto c = std::move(Open(files)).value();
      files.FailAfter(step);
      for (int i = 1; i <= 5; ++i) {
        const CoordTxn txn{{}, {{"n", std::to_string(i)}, {"m", std::to_string(i)}}, {}};
        if (!c->Commit(txn).ok()) break;
        answered = i;
      }
    }
    const bool reached = files.stopped();
    auto random = SeededRandom(step);
    files.Crash(*random);
    auto c = Open(files);
    ASSERT_TRUE(c.ok()) << step << ": " << c.error().ToString();
    const auto n = (*c)->Get("n"), m = (*c)->Get("m");
    const int found = n->has_value() ? std::stoi((*n)->value) : 0;
    EXPECT_GE(found, answered) << step;
    EXPECT_LE(found, answered + 1) << step;
    EXPECT_EQ(m->has_value() ? std::stoi((*m)->value) : 0, found) << step;
    EXPECT_TRUE((*c)->Commit(Put("after", "x")).ok());
    if (!reached) break;
    ++crashes;
  }
  EXPECT_GE(crashes, 15u);
}

// A write that failed leaves a question; the answer is read back before anything else is said.
TEST(LocalCoordinationTest, AFailedWriteIsResolvedByReadingBack) {
  for (const auto call : {MemFiles::Call::kWrite, MemFiles::Call::kSync, MemFiles::Call::kRename, MemFiles::Call::kSyncDir}) {
    MemFiles files;
    auto c = std::move(Open(files)).value();
    ASSERT_TRUE(c->Commit(Put("a", "1")).ok());
    files.FailNext(call, "coord", Code::kIo);
    EXPECT_FALSE(c->Commit(Put("a", "2")).ok());
    const auto a = c->Get("a");
    ASSERT_TRUE(a.ok()) << a.error().ToString();
    const std::string seen = (*a)->value;
    EXPECT_EQ(seen, call == MemFiles::Call::kSyncDir ? "2" : "1");
    ASSERT_TRUE(c->Commit(Put("b", "1")).ok());
    c.reset();
    auto random = SeededRandom(1);
    files.Crash(*random);
    c = std::move(Open(files)).value();
    EXPECT_EQ((*c->Get("a"))->value, seen);
  }
}

}  // namespace
}  // namespace archil
