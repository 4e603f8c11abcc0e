// The kernel's edge on a real mount: what programs do, over the file system in memory.
#include "client/fuse/fuse_mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <cerrno>

#include "client/fuse/mount_table.h"
#include "tests/unit/client/fuse/mounted.h"

namespace archil {
namespace {

class FuseMountTest : public OnRealMount {};

std::string Pattern(size_t size) {
  std::string s(size, '\0');
  uint64_t x = 1;
  for (char& c : s) c = static_cast<char>((x = x * 6364136223846793005 + 1442695040888963407) >> 56);
  return s;
}

struct stat Stat(const std::string& path) {
  struct stat st = {};
  EXPECT_EQ(lstat(path.c_str(), &st), 0) << path << ": " << std::strerror(errno);
  return st;
}

int RenameAt2(const std::string& from, const std::string& to, unsigned flags) {
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags));
}

TEST_F(FuseMountTest, IsMountedAsFuseArchil) {
  Mounted m;
  const auto entry = FindMount(m.root());
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->type, "fuse.archil");
  EXPECT_EQ(entry->source, "memory");
  EXPECT_EQ(entry->device_minor, m.mount().connection());
}

TEST_F(FuseMountTest, ReadsBackWhatWasWritten) {
  Mounted m;
  const std::string big = Pattern((48 << 20) + 123);
  WriteFile(m.Path("big"), big);
  EXPECT_TRUE(ReadFile(m.Path("big")) == big);
  EXPECT_EQ(Stat(m.Path("big")).st_size, static_cast<off_t>(big.size()));
  WriteFile(m.Path("big"), "short", O_TRUNC);
  EXPECT_EQ(ReadFile(m.Path("big")), "short");
}

TEST_F(FuseMountTest, WriteOnlyHandlesAndCachedReadersAgree) {
  Mounted m;
  WriteFile(m.Path("f"), std::string(10000, 'a'));
  const int reader = open(m.Path("f").c_str(), O_RDWR);
  char buf[4];
  ASSERT_EQ(pread(reader, buf, 4, 5000), 4);
  const int writer = open(m.Path("f").c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(writer, "bbbb", 4, 5000), 4);
  ASSERT_EQ(pread(reader, buf, 4, 5000), 4);
  EXPECT_EQ(std::string(buf, 4), "bbbb");
  ASSERT_EQ(pwrite(reader, "cccc", 4, 5002), 4);
  EXPECT_EQ(ReadFile(m.Path("f")).substr(4998, 10), "aabbccccaa");
  close(reader);
  close(writer);
}

TEST_F(FuseMountTest, AppendsNeverOverlap) {
  Mounted m;
  int fds[3];
  fds[0] = open(m.Path("log").c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644);
  fds[1] = open(m.Path("log").c_str(), O_WRONLY | O_APPEND);
  fds[2] = open(m.Path("log").c_str(), O_RDWR | O_APPEND);
  std::string want;
  for (int i = 0; i < 300; ++i) {
    const std::string line = fmt::format("line {}\n", i);
    ASSERT_EQ(write(fds[i % 3], line.data(), line.size()), static_cast<ssize_t>(line.size()));
    want += line;
  }
  EXPECT_EQ(ReadFile(m.Path("log")), want);
  for (const int fd : fds) close(fd);
}

TEST_F(FuseMountTest, MappedPagesAreWrittenBackAtTheirOwnOffset) {
  Mounted m;
  WriteFile(m.Path("map"), std::string(3 * 4096, 'a'));
  const int fd = open(m.Path("map").c_str(), O_RDWR | O_APPEND);
  char* p = static_cast<char*>(mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(p, MAP_FAILED);
  p[4096] = 'b';
  ASSERT_EQ(msync(p, 3 * 4096, MS_SYNC), 0);
  munmap(p, 3 * 4096);
  close(fd);
  OpContext ctx;
  const Result<Entry> e = m.fs().Lookup(ctx, kRootInode, "map");
  ASSERT_TRUE(e.ok());
  const Result<ReadReply> r = m.fs().Read(ctx, e->attr.ino, 4095, 3);
  m.fs().Forget(e->attr.ino, 1);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->pieces[0].view(), "aba");
  EXPECT_EQ(Stat(m.Path("map")).st_size, 3 * 4096);
}

TEST_F(FuseMountTest, Rename) {
  Mounted m;
  WriteFile(m.Path("a"), "A");
  WriteFile(m.Path("b"), "B");
  EXPECT_EQ(RenameAt2(m.Path("a"), m.Path("b"), RENAME_NOREPLACE), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(RenameAt2(m.Path("a"), m.Path("b"), RENAME_EXCHANGE), 0);
  EXPECT_EQ(ReadFile(m.Path("a")), "B");
  EXPECT_EQ(ReadFile(m.Path("b")), "A");
  EXPECT_EQ(RenameAt2(m.Path("a"), m.Path("b"), RENAME_WHITEOUT), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rename(m.Path("a").c_str(), m.Path("b").c_str()), 0);
  EXPECT_EQ(ReadFile(m.Path("b")), "B");
  EXPECT_EQ(access(m.Path("a").c_str(), F_OK), -1);
}

TEST_F(FuseMountTest, UnlinkedFileLivesWhileOpen) {
  Mounted m;
  const size_t empty = m.fs().nodes();
  const int fd = open(m.Path("gone").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(write(fd, "data", 4), 4);
  ASSERT_EQ(unlink(m.Path("gone").c_str()), 0);
  char buf[8];
  EXPECT_EQ(pread(fd, buf, 8, 0), 4);
  struct stat st;
  EXPECT_EQ(fstat(fd, &st), 0);
  EXPECT_EQ(st.st_nlink, 0u);
  close(fd);
  EXPECT_TRUE(Eventually([&] { return m.fs().nodes() == empty; }));
}

TEST_F(FuseMountTest, ExtendedAttributes) {
  Mounted m;
  WriteFile(m.Path("x"), "");
  const std::string path = m.Path("x");
  ASSERT_EQ(setxattr(path.c_str(), "user.one", "1", 1, XATTR_CREATE), 0);
  EXPECT_EQ(setxattr(path.c_str(), "user.one", "1", 1, XATTR_CREATE), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(setxattr(path.c_str(), "user.two", "2", 1, XATTR_REPLACE), -1);
  EXPECT_EQ(errno, ENODATA);
  ASSERT_EQ(setxattr(path.c_str(), "user.two", "22", 2, 0), 0);
  char buf[64];
  EXPECT_EQ(getxattr(path.c_str(), "user.two", nullptr, 0), 2);
  EXPECT_EQ(getxattr(path.c_str(), "user.two", buf, 1), -1);
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(getxattr(path.c_str(), "user.two", buf, sizeof(buf)), 2);
  EXPECT_EQ(listxattr(path.c_str(), buf, sizeof(buf)), 18);
  EXPECT_EQ(removexattr(path.c_str(), "user.one"), 0);
  EXPECT_EQ(getxattr(path.c_str(), "user.one", buf, sizeof(buf)), -1);
  EXPECT_EQ(errno, ENODATA);
}

TEST_F(FuseMountTest, SpecialFilesLinksAndModes) {
  Mounted m;
  ASSERT_EQ(Shell(m, R"sh(cd $1
    umask 027; mkdir d; touch d/f; test $(stat -c %a d) = 750; test $(stat -c %a d/f) = 640
    mkfifo p; test -p p; mknod c c 1 3; echo x > c; test $(stat -c %t.%T c) = 1.3
    ln d/f hard; test $(stat -c %h hard) = 2; ln -s d/f soft; test "$(readlink soft)" = d/f
    chmod 4711 hard; test $(stat -c %a d/f) = 4711; chown 7:8 hard; test $(stat -c %u:%g d/f) = 7:8
    touch -d '2001-02-03 04:05:06.123456789 UTC' hard; test "$(stat -c %.9Y d/f)" = 981173106.123456789
    fallocate -l 100000 hole; fallocate -p -o 4096 -l 4096 hole; test $(stat -c %s hole) = 100000
    truncate -s 5 hole; test $(stat -c %s hole) = 5
    cp --sparse=always hole copy; cmp hole copy; sync -f .; python3 -c 'import os; os.fsync(os.open(".", os.O_RDONLY))')sh"), 0);
}

TEST_F(FuseMountTest, ListsAndRemovesLargeDirectories) {
  Mounted m;
  ASSERT_EQ(Shell(m, R"sh(cd $1; mkdir d; (cd d; seq -f n%05g 3000 | xargs touch); test $(ls d | wc -l) = 3000
    ls -la d | tail -n +4 | wc -l | grep -qx 3000; find d -name 'n0[01]*' -delete; test $(ls -U d | wc -l) = 1001; rm -rf d; test ! -e d)sh"), 0);
}

TEST_F(FuseMountTest, GitCloneFsckAndStatus) {
  Mounted m;
  ASSERT_EQ(Shell(m, R"sh(src=$(mktemp -d); trap "rm -rf $src" EXIT
    (cd $src; git init -q .; git config user.email a@b; git config user.name n
     for d in $(seq 10); do mkdir d$d; for f in $(seq 30); do seq $f $((f+d*40)) > d$d/f$f; done; done
     git add -A; git commit -qm one; git tag old; seq 5 > d1/f1; git rm -rq d2; git commit -qam two)
    cd $1; git clone -q $src repo; cd repo; git checkout -q old; git checkout -q -; git gc -q; git fsck --full
    test -z "$(git status --porcelain)"; test ! -e d2)sh"), 0);
}

TEST_F(FuseMountTest, EverythingWorksThroughWorkersToo) {
  Mounted m;
  m.fs().set_always_wait(true);
  ASSERT_EQ(Shell(m, R"sh(cd $1; mkdir -p a/b; for i in $(seq 50); do echo $i > a/b/$i & done; wait; test $(ls a/b | wc -l) = 50
    head -c 3000000 /dev/urandom > r; cp r s; cmp r s; mv s a/t; ln -s a/t l; cmp l r; rm -r a; test $(ls | wc -l) = 2; stat -f .)sh"), 0);
  EXPECT_GT(m.Metrics()["fuse_handed_over"], 200u);
  EXPECT_TRUE(Eventually([&] { return m.Metrics()["fuse_waiting"] == 0; }));
}

TEST_F(FuseMountTest, UnprivilegedWritesClearSetIdBits) {
  Mounted m;
  for (const char* name : {"write", "truncate", "open_trunc", "untouched"}) {
    WriteFile(m.Path(name), "data");
    ASSERT_EQ(chown(m.Path(name).c_str(), 4711, 4711), 0);
    ASSERT_EQ(chmod(m.Path(name).c_str(), 06777), 0);
  }
  const pid_t pid = fork();
  if (pid == 0) {
    if (setgid(4711) != 0 || setuid(4711) != 0) _exit(1);
    const int w = open(m.Path("write").c_str(), O_WRONLY);
    if (write(w, "x", 1) != 1) _exit(2);
    if (truncate(m.Path("truncate").c_str(), 2) != 0) _exit(3);
    if (open(m.Path("open_trunc").c_str(), O_WRONLY | O_TRUNC) < 0) _exit(4);
    _exit(0);
  }
  int status = 0;
  ASSERT_TRUE(AwaitChild(pid, 20, &status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  WriteFile(m.Path("untouched"), "root");  // CAP_FSETID keeps them
  EXPECT_EQ(Stat(m.Path("write")).st_mode & 07777, 0777u);
  EXPECT_EQ(Stat(m.Path("truncate")).st_mode & 07777, 0777u);
  EXPECT_EQ(Stat(m.Path("open_trunc")).st_mode & 07777, 0777u);
  EXPECT_EQ(Stat(m.Path("untouched")).st_mode & 07777, 06777u);
  EXPECT_EQ(Stat(m.Path("truncate")).st_size, 2);
}

TEST_F(FuseMountTest, ReferencesReturnToNothing) {
  Mounted m;
  ASSERT_EQ(Shell(m, "cd $1; mkdir d; seq -f d/%g 500 | xargs touch; ls -l d > /dev/null; find . > /dev/null"), 0);
  EXPECT_GT(m.fs().references(), 500u);
  ASSERT_EQ(mount(nullptr, m.root().c_str(), nullptr, MS_REMOUNT, nullptr), 0);  // what drop-caches does
  EXPECT_TRUE(Eventually([&] { return m.fs().references() == 0; })) << m.fs().references();
}

TEST_F(FuseMountTest, InvalidationsReachTheKernel) {
  Mounted m;
  WriteFile(m.Path("f"), "before");
  EXPECT_EQ(ReadFile(m.Path("f")), "before");
  OpContext ctx;
  const Result<Entry> e = m.fs().Lookup(ctx, kRootInode, "f");
  ASSERT_TRUE(e.ok());
  ASSERT_TRUE(m.fs().Write(ctx, e->attr.ino, 0, "after, and longer", false, false).ok());
  EXPECT_EQ(ReadFile(m.Path("f")), "before");  // nobody told the kernel
  m.mount().kernel_cache().InvalidateInode(e->attr.ino, 0, UINT64_MAX);
  EXPECT_TRUE(Eventually([&] { return m.Metrics()["fuse_invalidations"] == 1; }));
  EXPECT_EQ(ReadFile(m.Path("f")), "after, and longer");

  ASSERT_TRUE(m.fs().Unlink(ctx, kRootInode, "f").ok());
  EXPECT_EQ(access(m.Path("f").c_str(), F_OK), 0);
  m.mount().kernel_cache().InvalidateEntry(kRootInode, "f");
  m.mount().kernel_cache().InvalidateEntry(kRootInode, "never known");
  EXPECT_TRUE(Eventually([&] { return m.Metrics()["fuse_invalidations"] == 3; }));
  EXPECT_EQ(access(m.Path("f").c_str(), F_OK), -1);
  m.fs().Forget(e->attr.ino, 1);
}

TEST_F(FuseMountTest, ReadOnlyMountRefusesWrites) {
  FuseOptions options;
  options.read_only = true;
  Mounted m(options);
  EXPECT_EQ(open(m.Path("f").c_str(), O_WRONLY | O_CREAT, 0644), -1);
  EXPECT_EQ(errno, EROFS);
}

TEST_F(FuseMountTest, BusyMountIsNotUnmountedUnlessLazily) {
  Mounted m;
  const int fd = open(m.Path("f").c_str(), O_RDWR | O_CREAT, 0644);
  EXPECT_EQ(m.mount().Unmount(false).code(), Code::kBusy);
  EXPECT_FALSE(m.mount().ended());
  ASSERT_TRUE(m.mount().Unmount(true).ok());
  EXPECT_FALSE(FindMount(m.root()).has_value());
  EXPECT_EQ(write(fd, "still", 5), 5);
  close(fd);
  m.mount().WaitForEnd();
  EXPECT_TRUE(m.mount().ended());
}

TEST_F(FuseMountTest, StoppingLeavesTheNextMountOnThatPathAlone) {
#ifdef __SANITIZE_ADDRESS__
  // libfuse would give its copy of the mount point up only together with what is mounted there now.
  const __lsan::ScopedDisabler known_leak;
#endif
  Mounted m;
  const int fd = open(m.Path("f").c_str(), O_RDWR | O_CREAT, 0644);  // keeps the connection
  ASSERT_TRUE(m.mount().Unmount(true).ok());
  ASSERT_EQ(mount("next", m.root().c_str(), "tmpfs", 0, nullptr), 0);
  m.mount().Stop();
  const auto next = FindMount(m.root());
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->type, "tmpfs");
  EXPECT_EQ(umount2(m.root().c_str(), 0), 0);
  EXPECT_EQ(write(fd, "gone", 4), -1);
  close(fd);
}

TEST_F(FuseMountTest, MountingOnNothingIsRefused) {
  MemFsApi fs(RealScheduler());
  FuseOptions options;
  options.mountpoint = "/nonexistent/mountpoint";
  auto mount = FuseMount::Create(RealScheduler(), options);
  const Status started = mount->Start(fs);
  ASSERT_FALSE(started.ok());
  EXPECT_FALSE(started.error().message().empty());
  mount->Stop();
}

}  // namespace
}  // namespace archil
