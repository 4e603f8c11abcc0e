// The parts of the FUSE room that need no kernel.
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <set>

#include "client/fuse/kernel_abi.h"
#include "client/fuse/kernel_notifier.h"
#include "client/fuse/mount_table.h"
#include "client/fuse/waiting_requests.h"
#include "client/fuse/worker_pool.h"
#include "common/env/sched.h"

namespace archil {
namespace {

template <class Arg>
std::string Request(uint32_t opcode, const Arg& arg) {
  fuse_in_header header = {};
  header.opcode = opcode;
  header.unique = 77;
  header.pid = 12;
  header.len = sizeof(header) + sizeof(arg);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(&arg), sizeof(arg));
  return bytes;
}

TEST(KernelAbi, PeeksAtWhatLibfuseHides) {
  fuse_write_in write = {};
  write.write_flags = FUSE_WRITE_KILL_SUIDGID;
  RequestPeek peek = Peek(Request(FUSE_WRITE, write).data(), Request(FUSE_WRITE, write).size());
  EXPECT_EQ(peek.opcode, static_cast<uint32_t>(FUSE_WRITE));
  EXPECT_EQ(peek.unique, 77u);
  EXPECT_EQ(peek.pid, 12u);
  EXPECT_TRUE(peek.kill_set_id);
  EXPECT_FALSE(peek.from_page_cache);
  write.write_flags = FUSE_WRITE_CACHE;
  std::string bytes = Request(FUSE_WRITE, write);
  peek = Peek(bytes.data(), bytes.size());
  EXPECT_FALSE(peek.kill_set_id);
  EXPECT_TRUE(peek.from_page_cache);
  fuse_open_in open = {};
  open.open_flags = FUSE_OPEN_KILL_SUIDGID;
  bytes = Request(FUSE_OPEN, open);
  EXPECT_TRUE(Peek(bytes.data(), bytes.size()).kill_set_id);
  fuse_setattr_in setattr = {};
  setattr.valid = FATTR_SIZE | FATTR_KILL_SUIDGID;
  bytes = Request(FUSE_SETATTR, setattr);
  EXPECT_TRUE(Peek(bytes.data(), bytes.size()).kill_set_id);
  fuse_interrupt_in interrupt = {99};
  bytes = Request(FUSE_INTERRUPT, interrupt);
  EXPECT_EQ(Peek(bytes.data(), bytes.size()).interrupted, 99u);
}

TEST(KernelAbi, ShortRequestsGiveNothing) {
  fuse_write_in write = {};
  write.write_flags = ~0u;
  const std::string bytes = Request(FUSE_WRITE, write);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::string cut = bytes.substr(0, n);  // its own allocation, so that a sanitizer sees reads beyond
    const RequestPeek peek = Peek(cut.data(), cut.size());
    EXPECT_FALSE(peek.kill_set_id);
    EXPECT_EQ(peek.opcode, n < sizeof(fuse_in_header) ? 0u : static_cast<uint32_t>(FUSE_WRITE));
  }
}

TEST(KernelAbi, InitReplyKeepsOnlyWhatIsOffered) {
  for (const Personality personality : {Personality::kShared, Personality::kExclusive, Personality::kExclusiveWriteback}) {
    const InitPolicy p = InitPolicyOf(personality);
    EXPECT_EQ(p.want & p.refuse, 0u);
    EXPECT_EQ(p.must & ~p.want, 0u);
    // Flags that change the layout of requests are not wanted.
    EXPECT_EQ(p.want & (static_cast<uint64_t>(FUSE_SETXATTR_EXT) | FUSE_SECURITY_CTX), 0u);
  }
  const InitPolicy policy = InitPolicyOf(Personality::kExclusive);

  fuse_init_out out = {};
  out.flags = FUSE_MAX_PAGES | FUSE_AUTO_INVAL_DATA | FUSE_HANDLE_KILLPRIV;
  uint64_t offered = FUSE_PARALLEL_DIROPS | FUSE_AUTO_INVAL_DATA | FUSE_HANDLE_KILLPRIV | FUSE_MAX_PAGES;
  uint64_t flags = CorrectInitReply(&out, sizeof(out), offered, policy);
  EXPECT_EQ(flags, static_cast<uint64_t>(FUSE_MAX_PAGES | FUSE_PARALLEL_DIROPS));
  EXPECT_EQ(out.flags, flags);
  EXPECT_EQ(out.flags2, 0u);

  offered = ~0ULL;
  flags = CorrectInitReply(&out, sizeof(out), offered, policy);
  EXPECT_TRUE(flags & FUSE_INIT_EXT);
  EXPECT_TRUE(flags & (1ULL << 36));
  EXPECT_EQ(out.flags2, 1u << 4);
  EXPECT_EQ(CorrectInitReply(&out, 8, offered, policy), 0u);
}

TEST(KernelAbi, PersonalitiesDifferInWhatTheKernelKeeps) {
  const InitPolicy shared = InitPolicyOf(Personality::kShared);
  EXPECT_EQ(shared.must, static_cast<uint64_t>(FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS));
  EXPECT_TRUE(shared.want & FUSE_ATOMIC_O_TRUNC);
  EXPECT_TRUE(shared.refuse & FUSE_WRITEBACK_CACHE);
  // Without OPEN nobody would truncate for it.
  const InitPolicy exclusive = InitPolicyOf(Personality::kExclusive);
  EXPECT_EQ(exclusive.must, static_cast<uint64_t>(FUSE_NO_OPEN_SUPPORT));
  EXPECT_EQ(exclusive.refuse & (FUSE_ATOMIC_O_TRUNC | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS | FUSE_WRITEBACK_CACHE),
            static_cast<uint64_t>(FUSE_ATOMIC_O_TRUNC | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS | FUSE_WRITEBACK_CACHE));
  const InitPolicy writeback = InitPolicyOf(Personality::kExclusiveWriteback);
  EXPECT_EQ(writeback.must, static_cast<uint64_t>(FUSE_NO_OPEN_SUPPORT | FUSE_WRITEBACK_CACHE));
  EXPECT_EQ(writeback.refuse, exclusive.refuse & ~static_cast<uint64_t>(FUSE_WRITEBACK_CACHE));
}

TEST(KernelAbi, OpcodesHaveDistinctNames) {
  std::set<std::string_view> names;
  for (uint32_t op = 0; op < 100; ++op) {
    if (OpcodeName(op).empty()) continue;
    EXPECT_TRUE(names.insert(OpcodeName(op)).second) << op;
  }
  EXPECT_EQ(OpcodeName(FUSE_LOOKUP), "lookup");
  EXPECT_EQ(OpcodeName(FUSE_TMPFILE), "tmpfile");
  EXPECT_EQ(OpcodeName(FUSE_RENAME2), "rename2");
  EXPECT_EQ(OpcodeName(FUSE_BATCH_FORGET), "batch_forget");
}

TEST(MountTable, ParsesEscapesTagsAndLeavesOutNonsense) {
  const auto entries = ParseMountInfo(
      "36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime shared:1 master:2 - fuse.archil my\\134disk rw\n"
      "nonsense\n"
      "37 35 0:52 / /ro ro - ext4 /dev/x rw,errors=continue\n"
      "38 35 x:52 / /bad rw - ext4 /dev/x rw\n");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].mountpoint, "/mnt/a b");
  EXPECT_EQ(entries[0].type, "fuse.archil");
  EXPECT_EQ(entries[0].source, "my\\disk");
  EXPECT_EQ(entries[0].device_major, 98u);
  EXPECT_FALSE(entries[0].read_only);
  EXPECT_EQ(entries[1].device_minor, 52u);
  EXPECT_TRUE(entries[1].read_only);
  EXPECT_TRUE(FindMount("/").has_value());
  EXPECT_FALSE(FindMount("/no such mount").has_value());
}

TEST(WorkerPool, GrowsToTheLimitAndRunsEverything) {
  WorkerPool pool(RealScheduler(), 3, absl::Seconds(10));
  Notification release(RealScheduler());
  Mutex mu(RealScheduler());
  CondVar cv(RealScheduler());
  int running = 0, most = 0, done = 0;
  for (int i = 0; i < 10; ++i) {
    pool.Submit([&] {
      {
        MutexLock lock(mu);
        most = std::max(most, ++running);
        cv.SignalAll();
      }
      release.Wait();
      MutexLock lock(mu);
      --running;
      ++done;
      cv.SignalAll();
    });
  }
  {
    MutexLock lock(mu);
    while (running < 3) cv.Wait(mu);
  }
  EXPECT_EQ(pool.threads(), 3u);
  release.Notify();
  MutexLock lock(mu);
  while (done < 10) cv.Wait(mu);
  EXPECT_EQ(most, 3);
}

TEST(WorkerPool, IdleThreadsEnd) {
  WorkerPool pool(RealScheduler(), 4, absl::Milliseconds(1));
  Notification ran(RealScheduler());
  pool.Submit([&] { ran.Notify(); });
  ran.Wait();
  const BootTime end = RealClock().Boot() + absl::Seconds(10);
  while (pool.threads() != 0 && RealClock().Boot() < end) sched_yield();
  EXPECT_EQ(pool.threads(), 0u);
  Notification again(RealScheduler());
  pool.Submit([&] { again.Notify(); });
  again.Wait();
}

std::shared_ptr<WaitingRequest> MakeRequest(uint64_t unique, uint32_t pid, int* answered) {
  auto request = std::make_shared<WaitingRequest>();
  request->unique = unique;
  request->pid = pid;
  request->answer_interrupted = [answered] { ++*answered; };
  return request;
}

TEST(WaitingRequests, OnlyDoomedThreadsAreCancelled) {
  std::set<uint32_t> doomed;
  int woken = 0, answered = 0;
  WaitingRequests waiting(RealScheduler(), [&](uint32_t pid) { return doomed.count(pid) != 0; }, [&] { ++woken; });
  auto running = MakeRequest(1, 100, &answered);
  auto queued = MakeRequest(2, 200, &answered);
  ASSERT_TRUE(running->Take());  // a worker runs it
  waiting.Add(running);
  waiting.Add(queued);

  waiting.Interrupt(1);
  waiting.Interrupt(3);  // answered long ago
  EXPECT_FALSE(running->cancel.cancelled());
  EXPECT_TRUE(waiting.HasInterrupted());
  waiting.Recheck();
  EXPECT_EQ(woken, 0);

  doomed = {100, 200};
  waiting.Recheck();
  EXPECT_TRUE(running->cancel.cancelled());
  EXPECT_FALSE(queued->cancel.cancelled()) << "nobody interrupted it";
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(answered, 0) << "the worker answers what it runs";

  waiting.Interrupt(2);
  EXPECT_EQ(answered, 1) << "no worker had it, so it is answered here";
  EXPECT_FALSE(queued->Take());
  waiting.Remove(1);
  waiting.Remove(2);
  EXPECT_FALSE(waiting.HasInterrupted());
  EXPECT_EQ(waiting.size(), 0u);
}

TEST(WaitingRequests, SigkillIsSeenPending) {
  EXPECT_FALSE(HasSigkillPending(static_cast<uint32_t>(getpid())));
  EXPECT_FALSE(HasSigkillPending(0));
  // A thread that is gone cannot want its answer.
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(HasSigkillPending(static_cast<uint32_t>(pid)));
}

TEST(KernelNotifier, KeepsTheOrderOfAnInodeAndNothingAfterStop) {
  Mutex mu(RealScheduler());
  CondVar cv(RealScheduler());
  std::vector<KernelNotifier::Item> seen;
  KernelNotifier notifier(RealScheduler(), [&](const KernelNotifier::Item& item) {
    MutexLock lock(mu);
    seen.push_back(item);
    cv.SignalAll();
  });
  notifier.InvalidateInode(InodeId(5), 1, 0);
  notifier.InvalidateEntry(InodeId(5), "name");
  notifier.Start();
  for (uint64_t i = 2; i < 100; ++i) notifier.InvalidateInode(InodeId(5), i, i);
  {
    MutexLock lock(mu);
    while (seen.size() < 100) cv.Wait(mu);
    EXPECT_EQ(seen[0].offset, 1u);
    EXPECT_EQ(seen[1].name, "name");
    for (uint64_t i = 2; i < 100; ++i) EXPECT_EQ(seen[i].offset, i);
  }
  notifier.Stop();
  notifier.InvalidateInode(InodeId(5), 7, 7);
  EXPECT_EQ(seen.size(), 100u);
}

// Whoever holds one delivery up may wait for what stands behind it.
TEST(KernelNotifier, ADropDoesNotWaitBehindOneThatIsHeldUp) {
  Notification free(RealScheduler());
  std::atomic<int> delivered{0};
  const InodeId held(5), behind(5 + KernelNotifier::kThreads), last(5 + 2 * KernelNotifier::kThreads);
  KernelNotifier notifier(RealScheduler(), [&](const KernelNotifier::Item& item) {
    if (item.ino != last) free.Wait();
    ++delivered;
  });
  notifier.Start();
  notifier.InvalidateInode(held, 0, 1);
  notifier.InvalidateInode(behind, 0, 1);
  notifier.DropNow(KernelCache::Names::kKeep, {{last, true}}, [] { return false; });
  EXPECT_EQ(delivered, 1);
  notifier.DropNow(KernelCache::Names::kKeep, {{held, true}}, [] { return true; });
  free.Notify();
  notifier.DropNow(KernelCache::Names::kKeep, {{held, true}}, [] { return false; });
  notifier.Stop();
  EXPECT_GE(delivered, 4);
}

}  // namespace
}  // namespace archil
