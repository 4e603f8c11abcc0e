// How many requests the kernel sends for common work (DESIGN §6, "upcall diet"). Counted, not timed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/unit/client/fuse/mounted.h"

namespace archil {
namespace {

FuseOptions Exclusive() {
  FuseOptions options;
  options.personality = Personality::kExclusive;
  return options;
}

class FuseBudget : public OnRealMount {
 protected:
  static void CreateFiles(const Mounted& m, int dirs, int files) {
    const std::string content(1024, 'x');
    for (int d = 0; d < dirs; ++d) {
      ASSERT_EQ(mkdir(m.Path(fmt::format("d{}", d)).c_str(), 0755), 0);
      for (int f = 0; f < files; ++f) WriteFile(m.Path(fmt::format("d{}/f{}", d, f)), content);
    }
  }
};

TEST_F(FuseBudget, FlagsInForce) {
  Mounted m;
  const std::vector<std::string> flags = m.mount().InitFlags();
  auto has = [&](const char* name) { return std::find(flags.begin(), flags.end(), name) != flags.end(); };
  for (const char* wanted : {"async_read", "atomic_o_trunc", "big_writes", "readdirplus", "readdirplus_auto", "parallel_dirops",
                             "cache_symlinks", "no_opendir", "explicit_inval_data", "handle_killpriv_v2", "max_pages", "posix_locks",
                             "flock_locks"}) {
    EXPECT_TRUE(has(wanted)) << wanted;
  }
  for (const char* unwanted : {"auto_inval_data", "writeback_cache", "handle_killpriv", "dont_mask", "splice_read", "setxattr_ext"}) {
    EXPECT_FALSE(has(unwanted)) << unwanted;
  }
  EXPECT_NE(m.mount().connection(), 0u);
}

TEST_F(FuseBudget, CreateWriteCloseTakesFour) {
  Mounted m(Exclusive());
  WriteFile(m.Path("first"), "x");
  ReadFile(m.Path("first"));  // OPEN is answered ENOSYS once
  const uint64_t before = m.Upcalls();
  CreateFiles(m, 10, 100);
  const double per_file = static_cast<double>(m.Upcalls() - before) / 1000;
  // LOOKUP, GETATTR of the directory, CREATE, WRITE; and what the directories cost.
  EXPECT_LE(per_file, 4.1);
  EXPECT_GE(per_file, 2.0) << "requests are not counted";
}

TEST_F(FuseBudget, CachedOpenReadCloseTakesNone) {
  Mounted m(Exclusive());
  CreateFiles(m, 1, 50);
  auto read_all = [&] {
    for (int f = 0; f < 50; ++f) ASSERT_EQ(ReadFile(m.Path(fmt::format("d0/f{}", f))).size(), 1024u);
  };
  read_all();
  read_all();
  const uint64_t before = m.Upcalls();
  for (int i = 0; i < 4; ++i) read_all();
  EXPECT_EQ(m.Upcalls() - before, 0u);
}

TEST_F(FuseBudget, SharedCreateWriteCloseTakesSix) {
  Mounted m;
  const uint64_t before = m.Upcalls();
  CreateFiles(m, 10, 100);
  const double per_file = static_cast<double>(m.Upcalls() - before) / 1000;
  // LOOKUP, GETATTR of the directory, CREATE, WRITE, FLUSH, RELEASE; and what the directories cost.
  EXPECT_LE(per_file, 6.1);
  EXPECT_GE(per_file, 2.0) << "requests are not counted";
}

TEST_F(FuseBudget, CachedOpenReadCloseTakesTwo) {
  Mounted m;
  CreateFiles(m, 1, 50);
  auto read_all = [&] {
    for (int f = 0; f < 50; ++f) ASSERT_EQ(ReadFile(m.Path(fmt::format("d0/f{}", f))).size(), 1024u);
  };
  read_all();
  const uint64_t before = m.Upcalls();
  for (int i = 0; i < 4; ++i) read_all();
  EXPECT_LE(static_cast<double>(m.Upcalls() - before) / 200, 2.0);
}

TEST_F(FuseBudget, WarmStatAndListingTakeNone) {
  Mounted m;
  CreateFiles(m, 2, 100);
  auto look = [&] { ASSERT_EQ(Shell(m, "find $1 -printf '%s %p\\n' > /dev/null"), 0); };
  look();
  look();
  const uint64_t before = m.Upcalls();
  look();
  EXPECT_LE(m.Upcalls() - before, 4u);
}

TEST_F(FuseBudget, WarmGitStatusTakesATenthPerFile) {
  Mounted m;
  ASSERT_EQ(Shell(m, R"sh(cd $1
    git init -q . && git config user.email a@b && git config user.name n
    for d in $(seq 20); do mkdir d$d; for f in $(seq 20); do echo $d $f > d$d/f$f; done; done
    touch -d '1 minute ago' d*/f*  # git reads files again that are no older than its index, in whole seconds
    git add -A && git commit -qm one && git status --porcelain && git status --porcelain)sh"), 0);
  const uint64_t before = m.Upcalls();
  ASSERT_EQ(Shell(m, "cd $1 && test -z \"$(git status --porcelain)\""), 0);
  EXPECT_LE(static_cast<double>(m.Upcalls() - before) / 400, 0.1);
}

TEST_F(FuseBudget, LargeWritesAreLarge) {
  Mounted m;
  const uint64_t before = m.Upcalls();
  WriteFile(m.Path("big"), std::string(32 << 20, 'b'));  // one write(2)
  const uint64_t cost = m.Upcalls() - before;
  EXPECT_LE(cost, 32u + 6u);
  EXPECT_GE(cost, 32u);
}

TEST_F(FuseBudget, RemovingATree) {
  Mounted m;
  CreateFiles(m, 10, 100);
  const uint64_t before = m.Upcalls();
  ASSERT_EQ(Shell(m, "rm -rf $1/d*"), 0);
  EXPECT_LE(static_cast<double>(m.Upcalls() - before) / 1010, 2.5);
}

}  // namespace
}  // namespace archil
