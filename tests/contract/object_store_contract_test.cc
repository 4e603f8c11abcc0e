// What holds for every ObjectStore.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "common/env/mem_files.h"
#include "server/object/object_store.h"

namespace archil {
namespace {

struct StoreFixture {
  std::unique_ptr<MemFiles> mem;
  Files* files = nullptr;
  std::string root;
  std::unique_ptr<ObjectStore> store;

  StoreFixture() = default;
  StoreFixture(StoreFixture&&) = default;
  ~StoreFixture() {
    store.reset();
    if (mem == nullptr && !root.empty()) std::filesystem::remove_all(root);
  }
  void Open() {
    store.reset();
    auto opened = OpenLocalObjectStore(*files, root + "/store");
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    store = std::move(*opened);
  }
};

struct StoreFactory {
  std::string name;
  std::function<std::unique_ptr<StoreFixture>()> make;
};
std::ostream& operator<<(std::ostream& out, const StoreFactory& f) { return out << f.name; }

class ObjectStoreContract : public ::testing::TestWithParam<StoreFactory> {
 protected:
  void SetUp() override {
    fixture_ = GetParam().make();
    fixture_->Open();
    ASSERT_NE(fixture_->store, nullptr);
  }
  ObjectStore& store() { return *fixture_->store; }
  Status Put(const std::string& key, const std::string& bytes) { return store().Put(ctx_, key, Buffer::Copy(bytes)); }
  std::string Get(const std::string& key, uint64_t offset, uint64_t length) {
    const auto bytes = store().Get(ctx_, key, offset, length);
    return bytes.ok() ? std::string(bytes->view()) : std::string(CodeName(bytes.code()));
  }
  std::vector<std::string> ListAll(const std::string& prefix, uint32_t limit) {
    std::vector<std::string> keys;
    std::string after;
    for (int pages = 0; pages < 1000; ++pages) {
      const auto page = store().List(ctx_, prefix, after, limit);
      EXPECT_TRUE(page.ok());
      if (!page.ok()) return keys;
      EXPECT_LE(page->objects.size(), limit);
      for (const ObjectInfo& info : page->objects) keys.push_back(info.key);
      if (page->complete) return keys;
      EXPECT_FALSE(page->objects.empty()) << "an incomplete page makes progress";
      after = keys.back();
    }
    return keys;
  }

  OpContext ctx_;
  std::unique_ptr<StoreFixture> fixture_;
};

TEST_P(ObjectStoreContract, PutGetHeadDelete) {
  EXPECT_EQ(store().Get(ctx_, "a", 0, 0).code(), Code::kNotFound);
  EXPECT_EQ(store().Head(ctx_, "a/b/c").code(), Code::kNotFound);
  ASSERT_TRUE(Put("a/b/c", "hello").ok());
  EXPECT_EQ(Get("a/b/c", 0, 5), "hello");
  EXPECT_EQ(Get("a/b/c", 1, 3), "ell");
  EXPECT_EQ(Get("a/b/c", 5, 0), "");
  EXPECT_EQ(store().Head(ctx_, "a/b/c")->size, 5u);
  ASSERT_TRUE(Put("a/b/c", "other!").ok()) << "replaces";
  EXPECT_EQ(Get("a/b/c", 0, 6), "other!");
  ASSERT_TRUE(Put("empty", "").ok());
  EXPECT_EQ(Get("empty", 0, 0), "");
  EXPECT_TRUE(store().Delete(ctx_, "a/b/c").ok());
  EXPECT_TRUE(store().Delete(ctx_, "a/b/c").ok()) << "absent is success";
  EXPECT_TRUE(store().Delete(ctx_, "x/y").ok());
  EXPECT_EQ(store().Head(ctx_, "a/b/c").code(), Code::kNotFound);
}

TEST_P(ObjectStoreContract, ARangeIsExactOrInvalid) {
  ASSERT_TRUE(Put("k", "0123456789").ok());
  EXPECT_EQ(store().Get(ctx_, "k", 0, 11).code(), Code::kInvalid);
  EXPECT_EQ(store().Get(ctx_, "k", 10, 1).code(), Code::kInvalid);
  EXPECT_EQ(store().Get(ctx_, "k", ~0ULL, 2).code(), Code::kInvalid);
  EXPECT_EQ(store().Get(ctx_, "k", 1, ~0ULL).code(), Code::kInvalid);
}

TEST_P(ObjectStoreContract, KeysAreChecked) {
  for (const std::string& key :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."), std::string(".."),
        std::string("a/../b"), std::string("a/./b"), std::string("a b"), std::string("a+b"), std::string("ä"),
        std::string("a\0b", 3), std::string(513, 'a'), std::string(251, 'a')}) {
    EXPECT_EQ(Put(key, "x").code(), Code::kInvalid) << key;
    EXPECT_EQ(store().Get(ctx_, key, 0, 1).code(), Code::kInvalid) << key;
    EXPECT_EQ(store().Head(ctx_, key).code(), Code::kInvalid) << key;
    EXPECT_EQ(store().Delete(ctx_, key).code(), Code::kInvalid) << key;
    EXPECT_EQ(store().PutFile(ctx_, key, "/nowhere").code(), Code::kInvalid) << key;
  }
  for (const std::string& key : {std::string("..."), std::string(".a"), std::string("-"), std::string("A_z.9/-/x"),
                                 std::string(250, 'a') + "/" + std::string(250, 'b')}) {
    EXPECT_TRUE(Put(key, key).ok()) << key;
    EXPECT_EQ(Get(key, 0, key.size()), key);
  }
}

TEST_P(ObjectStoreContract, AKeyMayBeAPrefixOfAnother) {
  ASSERT_TRUE(Put("a/b", "1").ok());
  ASSERT_TRUE(Put("a", "2").ok());
  ASSERT_TRUE(Put("a/b/c", "3").ok());
  EXPECT_EQ(Get("a", 0, 1), "2");
  EXPECT_EQ(Get("a/b", 0, 1), "1");
  EXPECT_EQ(Get("a/b/c", 0, 1), "3");
  EXPECT_TRUE(store().Delete(ctx_, "a").ok());
  EXPECT_EQ(Get("a/b/c", 0, 1), "3");
}

TEST_P(ObjectStoreContract, ListsInKeyOrderByPages) {
  std::vector<std::string> keys = {"a",   "a-b", "a.b",   "a/b",   "a/b-c", "a/b/c", "a/b0",
                                   "a0",  "b",   "b/x/1", "b/x/2", "b/y",   "b_",    "c/d/e/f"};
  for (const std::string& key : keys) ASSERT_TRUE(Put(key, key).ok());
  std::sort(keys.begin(), keys.end());
  for (const uint32_t limit : {1, 2, 3, 5, 100}) {
    EXPECT_EQ(ListAll("", limit), keys) << limit;
    for (const std::string prefix : {"a", "a/", "a/b", "b/x/", "b/x/1", "c/d", "zzz", "a/b/c/d"}) {
      std::vector<std::string> expected;
      std::copy_if(keys.begin(), keys.end(), std::back_inserter(expected),
                   [&prefix](const std::string& key) { return key.starts_with(prefix); });
      EXPECT_EQ(ListAll(prefix, limit), expected) << prefix << " by " << limit;
    }
  }
  const auto page = store().List(ctx_, "", "a/b", 2);
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[0].key, "a/b-c") << "after is exclusive";
  EXPECT_EQ(page->objects[0].size, 5u);
  EXPECT_FALSE(page->complete);
}

TEST_P(ObjectStoreContract, PutFileTakesTheContent) {
  Files& files = *fixture_->files;
  const std::string path = fixture_->root + "/sealed";
  ASSERT_TRUE(WriteFileAtomically(files, path, "content").ok());
  ASSERT_TRUE(store().PutFile(ctx_, "d/k", path).ok());
  ASSERT_TRUE(store().PutFile(ctx_, "d/k", path).ok()) << "a repeat";
  EXPECT_EQ(Get("d/k", 0, 7), "content");
  ASSERT_TRUE(files.Remove(path).ok());
  EXPECT_EQ(Get("d/k", 0, 7), "content");
  ASSERT_TRUE(WriteFileAtomically(files, path, "newer").ok());
  ASSERT_TRUE(store().PutFile(ctx_, "d/k", path).ok());
  EXPECT_EQ(Get("d/k", 0, 5), "newer");
  EXPECT_EQ(store().PutFile(ctx_, "d/k", fixture_->root + "/absent").code(), Code::kNotFound);
  EXPECT_EQ(Get("d/k", 0, 5), "newer");
}

TEST_P(ObjectStoreContract, ObjectsOutliveTheStore) {
  ASSERT_TRUE(Put("a/b", "bytes").ok());
  fixture_->Open();
  EXPECT_EQ(Get("a/b", 0, 5), "bytes");
}

TEST_P(ObjectStoreContract, ACancelledCallDoesNothing) {
  CancelFlag flag;
  flag.Cancel();
  OpContext cancelled;
  cancelled.cancel = &flag;
  EXPECT_EQ(store().Put(cancelled, "a", Buffer::Copy("x")).code(), Code::kInterrupted);
  EXPECT_EQ(store().Head(ctx_, "a").code(), Code::kNotFound);
}

std::unique_ptr<StoreFixture> LocalOnMemFiles() {
  auto f = std::make_unique<StoreFixture>();
  f->mem = std::make_unique<MemFiles>();
  f->files = f->mem.get();
  f->root = "/root";
  EXPECT_TRUE(f->files->MakeDirs(f->root).ok());
  return f;
}

std::unique_ptr<StoreFixture> LocalOnRealFiles() {
  auto f = std::make_unique<StoreFixture>();
  f->files = &RealFiles();
  f->root = (std::filesystem::temp_directory_path() / "archil-objects-XXXXXX").string();
  EXPECT_NE(mkdtemp(f->root.data()), nullptr);
  return f;
}

INSTANTIATE_TEST_SUITE_P(Local, ObjectStoreContract,
                         ::testing::Values(StoreFactory{"MemFiles", LocalOnMemFiles},
                                           StoreFactory{"RealFiles", LocalOnRealFiles}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace archil
