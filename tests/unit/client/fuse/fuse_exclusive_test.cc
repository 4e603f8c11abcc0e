// Exclusive mounts on a real kernel: it opens files by itself, so what is open is known by references alone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/client/fuse/mounted.h"

namespace archil {
namespace {

class FuseExclusive : public OnRealMount, public ::testing::WithParamInterface<Personality> {
 protected:
  static FuseOptions Options() {
    FuseOptions options;
    options.personality = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Both, FuseExclusive, ::testing::Values(Personality::kExclusive, Personality::kExclusiveWriteback));

uint64_t Count(Mounted& m, const std::string& name) { return m.Metrics()["upcall_" + name]; }

TEST_P(FuseExclusive, FlagsInForce) {
  Mounted m(Options());
  const std::vector<std::string> flags = m.mount().InitFlags();
  auto has = [&](const char* name) { return std::find(flags.begin(), flags.end(), name) != flags.end(); };
  EXPECT_TRUE(has("no_open"));
  EXPECT_TRUE(has("no_opendir"));
  EXPECT_EQ(has("writeback_cache"), GetParam() == Personality::kExclusiveWriteback);
  for (const char* unwanted : {"atomic_o_trunc", "posix_locks", "flock_locks", "auto_inval_data"}) EXPECT_FALSE(has(unwanted)) << unwanted;
}

TEST_P(FuseExclusive, NeitherOpensNorLocksAreTold) {
  Mounted m(Options());
  for (int i = 0; i < 20; ++i) {
    const int fd = open(m.Path("f").c_str(), O_RDWR | O_CREAT, 0644);
    ASSERT_GE(fd, 0);
    struct flock all = {};
    all.l_type = F_WRLCK;
    EXPECT_EQ(fcntl(fd, F_SETLK, &all), 0);
    EXPECT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
  }
  EXPECT_EQ(Count(m, "open"), 1u);
  EXPECT_LE(Count(m, "flush"), 1u);
  EXPECT_LE(Count(m, "release"), 1u);
  EXPECT_EQ(Count(m, "setlk") + Count(m, "setlkw"), 0u);
  EXPECT_EQ(m.fs().open_handles(), 0u);
}

TEST_P(FuseExclusive, TruncatesAtOpenAndAppends) {
  Mounted m(Options());
  WriteFile(m.Path("f"), "something long");
  WriteFile(m.Path("f"), "one", O_TRUNC);
  const int fd = open(m.Path("f").c_str(), O_WRONLY | O_APPEND);
  ASSERT_EQ(write(fd, " two", 4), 4);
  ASSERT_EQ(write(fd, " three", 6), 6);
  close(fd);
  EXPECT_EQ(ReadFile(m.Path("f")), "one two three");
}

TEST_P(FuseExclusive, UnlinkedFilesLiveUntilTheLastUse) {
  Mounted m(Options());
  WriteFile(m.Path("f"), std::string(8192, 'a'));
  const int fd = open(m.Path("f").c_str(), O_RDWR);
  ASSERT_EQ(unlink(m.Path("f").c_str()), 0);
  ASSERT_EQ(pwrite(fd, "b", 1, 4096), 1);
  char* map = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(map, MAP_FAILED);
  ASSERT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  close(fd);
  EXPECT_EQ(map[4096], 'b');
  map[0] = 'c';
  EXPECT_EQ(msync(map, 8192, MS_SYNC), 0);
  munmap(map, 8192);
  const uint64_t before = Count(m, "forget") + Count(m, "batch_forget");
  EXPECT_TRUE(Eventually([&] { return before > 0 || Count(m, "forget") + Count(m, "batch_forget") > 0; }));
}

}  // namespace
}  // namespace archil
