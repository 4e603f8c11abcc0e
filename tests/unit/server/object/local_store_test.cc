// What is special about objects in a local directory: crashes, several processes, file systems without links.
#include <gtest/gtest.h>

#include "common/env/mem_files.h"
#include "server/object/object_store.h"

namespace archil {
namespace {

std::unique_ptr<ObjectStore> Open(MemFiles& files) {
  auto store = OpenLocalObjectStore(files, "/store");
  EXPECT_TRUE(store.ok());
  return store.ok() ? std::move(*store) : nullptr;
}

std::string Get(ObjectStore& store, const std::string& key) {
  const OpContext ctx;
  const auto info = store.Head(ctx, key);
  if (!info.ok()) return std::string(CodeName(info.code()));
  const auto bytes = store.Get(ctx, key, 0, info->size);
  return bytes.ok() ? std::string(bytes->view()) : std::string(CodeName(bytes.code()));
}

// Stopped at every step and crashed, the store shows the old object or the new one, and the new one once Put said so.
void CrashAtEveryStep(const std::function<Status(MemFiles&, ObjectStore&, const std::string&)>& put) {
  const std::string before(3000, 'o');
  const std::string after(4000, 'n');
  uint64_t stopped = 0;
  for (uint64_t step = 0; step < 60; ++step) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      SCOPED_TRACE("step " + std::to_string(step) + " seed " + std::to_string(seed));
      MemFiles files;
      auto random = SeededRandom(step * 100 + seed);
      auto store = Open(files);
      ASSERT_TRUE(store->Put(OpContext(), "a/b", Buffer::Copy(before)).ok());
      files.FailAfter(step);
      const Status first = put(files, *store, "a/b");
      const Status second = put(files, *store, "new/dir/k");
      stopped += files.stopped() ? 1 : 0;
      store.reset();
      files.Crash(*random);
      store = Open(files);
      const std::string b = Get(*store, "a/b");
      EXPECT_TRUE(b == after || (b == before && !first.ok())) << b.size();
      const std::string k = Get(*store, "new/dir/k");
      EXPECT_TRUE(k == after || (k == "not_found" && !second.ok())) << k.size();
    }
  }
  EXPECT_GT(stopped, 50u);
  EXPECT_LT(stopped, 300u) << "some runs came through";
}

TEST(LocalStore, APutIsWholeAndLasting) {
  CrashAtEveryStep([](MemFiles&, ObjectStore& store, const std::string& key) {
    return store.Put(OpContext(), key, Buffer(std::string(4000, 'n')));
  });
}

TEST(LocalStore, ALinkedFileIsWholeAndLasting) {
  CrashAtEveryStep([](MemFiles& files, ObjectStore& store, const std::string& key) -> Status {
    ARCHIL_ASSIGN_OR_RETURN(auto file, files.Open("/sealed", OpenMode::kCreateOrOpen));
    ARCHIL_RETURN_IF_ERROR(file->Write(0, std::string(4000, 'n')));  // and not synced: the store does that
    return store.PutFile(OpContext(), key, "/sealed");
  });
}

TEST(LocalStore, ALinkTakesNoSpaceAndACopyIsMadeWhereLinksCannot) {
  MemFiles files;
  auto store = Open(files);
  const std::string bytes(100'000, 'x');
  ASSERT_TRUE(WriteFileAtomically(files, "/sealed", bytes).ok());
  const uint64_t used = files.used_bytes();
  ASSERT_TRUE(store->PutFile(OpContext(), "linked", "/sealed").ok());
  EXPECT_EQ(files.used_bytes(), used);
  files.FailNext(MemFiles::Call::kLink, "/sealed", Code::kCrossDevice);
  ASSERT_TRUE(store->PutFile(OpContext(), "copied", "/sealed").ok());
  EXPECT_EQ(files.used_bytes(), used + bytes.size());
  EXPECT_EQ(Get(*store, "linked"), bytes);
  EXPECT_EQ(Get(*store, "copied"), bytes);
  EXPECT_TRUE(files.List("/store/tmp/0")->empty()) << "nothing is left behind";
}

TEST(LocalStore, AFullDiskLeavesTheOldObject) {
  MemFiles files;
  auto store = Open(files);
  ASSERT_TRUE(store->Put(OpContext(), "k", Buffer::Copy("old")).ok());
  files.SetCapacity(files.used_bytes() + 100);
  EXPECT_EQ(store->Put(OpContext(), "k", Buffer(std::string(1000, 'x'))).code(), Code::kNoSpace);
  EXPECT_EQ(Get(*store, "k"), "old");
  EXPECT_TRUE(files.List("/store/tmp/0")->empty());
  EXPECT_TRUE(store->Put(OpContext(), "k", Buffer::Copy("new")).ok());
}

TEST(LocalStore, SeveralProcessesShareADirectory) {
  MemFiles files;
  auto first = Open(files);
  auto second = Open(files);
  ASSERT_TRUE(first->Put(OpContext(), "a", Buffer::Copy("1")).ok());
  ASSERT_TRUE(second->Put(OpContext(), "b", Buffer::Copy("2")).ok());
  EXPECT_EQ(Get(*second, "a"), "1");
  EXPECT_EQ(Get(*first, "b"), "2");
  EXPECT_EQ(first->List(OpContext(), "", "", 10)->objects.size(), 2u);
}

TEST(LocalStore, LeftoversOfACrashGoAtTheNextOpen) {
  MemFiles files;
  auto store = Open(files);
  files.FailNext(MemFiles::Call::kRename, "/store/tmp", Code::kIo);
  files.FailNext(MemFiles::Call::kRemove, "/store/tmp", Code::kIo);
  EXPECT_EQ(store->Put(OpContext(), "k", Buffer::Copy("x")).code(), Code::kIo);
  EXPECT_EQ(files.List("/store/tmp/0")->size(), 1u);
  store.reset();
  store = Open(files);
  EXPECT_TRUE(files.List("/store/tmp/0")->empty());
  EXPECT_EQ(Get(*store, "k"), "not_found");
}

}  // namespace
}  // namespace archil
