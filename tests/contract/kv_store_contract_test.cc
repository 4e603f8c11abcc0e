// What holds for every KvStore: the map in memory and RocksDB.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/env/random.h"
#include "server/meta/store/kv_store.h"

namespace archil {
namespace {

using Content = std::map<std::string, std::string>;

class KvFixture {
 public:
  virtual ~KvFixture() = default;
  virtual KvStore& kv() = 0;
  // A crash of the process; false if the kind keeps nothing.
  virtual bool Reopen() = 0;
};

class MemFixture final : public KvFixture {
 public:
  KvStore& kv() override { return *kv_; }
  bool Reopen() override { return false; }

 private:
  std::unique_ptr<KvStore> kv_ = NewMemKvStore();
};

class RocksFixture final : public KvFixture {
 public:
  RocksFixture() {
    char dir[] = "/tmp/archil-kv-XXXXXX";
    EXPECT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    Open();
  }
  ~RocksFixture() override {
    kv_.reset();
    std::filesystem::remove_all(dir_);
  }
  KvStore& kv() override { return *kv_; }
  bool Reopen() override {
    kv_.reset();  // closing flushes nothing, so it is as good as a kill
    Open();
    return true;
  }
  const std::string& dir() const { return dir_; }

 private:
  void Open() {
    auto kv = OpenRocksKvStore(dir_);
    ASSERT_TRUE(kv.ok()) << kv.error().ToString();
    kv_ = std::move(*kv);
  }
  std::string dir_;
  std::unique_ptr<KvStore> kv_;
};

struct Kind {
  std::string name;
  std::function<std::unique_ptr<KvFixture>()> make;
};
std::ostream& operator<<(std::ostream& out, const Kind& k) { return out << k.name; }

Content All(KvView& view, std::string_view begin = "", std::string_view end = "") {
  Content out;
  std::string last;
  EXPECT_TRUE(view.Scan(begin, end, [&](std::string_view key, std::string_view value) {
                    EXPECT_TRUE(out.empty() || key > last);
                    last = std::string(key);
                    out[last] = std::string(value);
                    return true;
                  }).ok());
  return out;
}

class KvStoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { fixture_ = GetParam().make(); }
  KvStore& kv() { return fixture_->kv(); }
  void Put(const std::string& key, const std::string& value) { ASSERT_TRUE(kv().Write({{{key, value}}, {}}).ok()); }
  std::unique_ptr<KvFixture> fixture_;
};

TEST_P(KvStoreContract, PutGetDeleteScan) {
  EXPECT_FALSE(kv().Get("a")->has_value());
  Put("a", "1");
  Put(std::string("b\0c", 3), "2");
  Put("b", "");
  Put("\xff\xff", "3");
  EXPECT_EQ(**kv().Get("a"), "1");
  EXPECT_EQ(**kv().Get("b"), "");
  EXPECT_EQ(All(kv()), (Content{{"a", "1"}, {"b", ""}, {std::string("b\0c", 3), "2"}, {"\xff\xff", "3"}}));
  EXPECT_EQ(All(kv(), "b", "c").size(), 2u);
  EXPECT_EQ(All(kv(), "a", "b"), (Content{{"a", "1"}}));
  ASSERT_TRUE(kv().Write({{{"a", std::nullopt}, {"never", std::nullopt}}, {}}).ok());
  EXPECT_FALSE(kv().Get("a")->has_value());
  int seen = 0;
  ASSERT_TRUE(kv().Scan("", "", [&](auto, auto) { return ++seen < 2; }).ok());
  EXPECT_EQ(seen, 2);
}

TEST_P(KvStoreContract, RangesAreDeletedBeforeEntriesAreWritten) {
  for (char c = 'a'; c <= 'f'; ++c) Put(std::string(1, c), "old");
  KvBatch batch;
  batch.delete_ranges.push_back({"b", "e"});
  batch.entries.push_back({"c", "new"});
  ASSERT_TRUE(kv().Write(batch).ok());
  EXPECT_EQ(All(kv()), (Content{{"a", "old"}, {"c", "new"}, {"e", "old"}, {"f", "old"}}));
}

TEST_P(KvStoreContract, ASnapshotDoesNotMove) {
  Put("a", "1");
  Put("b", "1");
  auto view = kv().Snapshot();
  Put("a", "2");
  ASSERT_TRUE(kv().Write({{{"b", std::nullopt}, {"c", "2"}}, {}}).ok());
  ASSERT_TRUE(kv().Flush().ok());
  EXPECT_EQ(All(*view), (Content{{"a", "1"}, {"b", "1"}}));
  EXPECT_EQ(**view->Get("a"), "1");
  EXPECT_FALSE(view->Get("c")->has_value());
  EXPECT_EQ(All(kv()), (Content{{"a", "2"}, {"c", "2"}}));
}

TEST_P(KvStoreContract, RandomBatchesAgainstAMap) {
  auto random = SeededRandom(11);
  Content model;
  for (int i = 0; i < 300; ++i) {
    KvBatch batch;
    if (random->Below(10) == 0) {
      std::string a = std::to_string(random->Below(500)), b = std::to_string(random->Below(500));
      if (b < a) std::swap(a, b);
      batch.delete_ranges.push_back({a, b});
      model.erase(model.lower_bound(a), model.lower_bound(b));
    }
    for (uint64_t n = random->Below(20); n > 0; --n) {
      const std::string key = std::to_string(random->Below(500));
      if (random->Below(3) == 0) {
        batch.entries.push_back({key, std::nullopt});
        model.erase(key);
      } else {
        const std::string value(random->Below(100), 'v');
        batch.entries.push_back({key, value});
        model[key] = value;
      }
    }
    ASSERT_TRUE(kv().Write(batch).ok());
    if (random->Below(40) == 0) {
      ASSERT_TRUE(kv().Flush().ok());
    }
  }
  EXPECT_EQ(All(kv()), model);
}

TEST_P(KvStoreContract, OnlyFlushesReachTheDisk) {
  Put("a", "1");
  EXPECT_GT(kv().UnflushedBytes(), 0u);
  ASSERT_TRUE(kv().Flush().ok());
  Put("a", "2");
  Put("b", "2");
  if (!fixture_->Reopen()) return;
  EXPECT_EQ(All(kv()), (Content{{"a", "1"}}));
  // Much more than any usual buffer, and still nothing reaches the disk by itself.
  const std::string big(1 << 20, 'x');
  for (int i = 0; i < 100; ++i) Put("big" + std::to_string(i), big);
  EXPECT_GT(kv().UnflushedBytes(), 100u << 20);
  fixture_->Reopen();
  EXPECT_EQ(All(kv()).size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, KvStoreContract,
                         ::testing::Values(Kind{"memory", [] { return std::make_unique<MemFixture>(); }},
                                           Kind{"rocksdb", [] { return std::make_unique<RocksFixture>(); }}));

TEST(RocksKvTest, TwoOpenersAndDamage) {
  RocksFixture fixture;
  EXPECT_EQ(OpenRocksKvStore(fixture.dir()).code(), Code::kBusy);
  EXPECT_FALSE(OpenRocksKvStore("/proc/nowhere").ok());
}

}  // namespace
}  // namespace archil
