// The binary archild as people run it: starts, refusals, stops, kills; one process and three.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/checksum.h"
#include "common/env/files.h"
#include "common/env/sched.h"
#include "common/format/op_codec.h"
#include "common/rpc/client.h"

extern char** environ;

namespace archil {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

OpContext Soon() {
  OpContext ctx;
  ctx.deadline = RealClock().Boot() + kPatience;
  return ctx;
}

// A child process whose standard output and error are read here. Killed at the end if it still runs.
class Process {
 public:
  explicit Process(std::vector<std::string> args) {
    int ends[2];
    ARCHIL_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    args.insert(args.begin(), ARCHILD_BINARY);
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    ARCHIL_CHECK(posix_spawn(&pid_, ARCHILD_BINARY, &actions, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_fd_ = ends[0];
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(output_fd_);
  }

  // The address that it says it serves on; empty (and its output is shown) if it ends instead.
  std::string WaitServing() {
    const std::string mark = "serving on ";
    for (;;) {
      const size_t at = output_.find(": " + mark);
      if (const size_t comma = at == std::string::npos ? at : output_.find(',', at); comma != std::string::npos) {
        const size_t begin = at + 2 + mark.size();
        return output_.substr(begin, comma - begin);
      }
      if (!ReadMore()) {
        ADD_FAILURE() << "archild does not serve: " << output_;
        return "";
      }
    }
  }
  void Signal(int number) { kill(pid_, number); }
  // Exit code, or minus the signal that ended it.
  int WaitEnd() {
    while (ReadMore()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int Stop() {
    Signal(SIGTERM);
    return WaitEnd();
  }
  void Kill() {
    Signal(SIGKILL);
    EXPECT_EQ(WaitEnd(), -SIGKILL);
  }
  const std::string& output() const { return output_; }

 private:
  // False at the end of its output, or when it says nothing for too long.
  bool ReadMore() {
    pollfd p{output_fd_, POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) <= 0) return false;
    char buffer[4096];
    const ssize_t n = read(output_fd_, buffer, sizeof(buffer));
    if (n <= 0) return false;
    output_.append(buffer, n);
    return true;
  }

  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::string output_;
};

class Archild : public testing::Test {
 protected:
  Archild() {
    char name[] = "/tmp/archild_test.XXXXXX";
    ARCHIL_CHECK(mkdtemp(name) != nullptr);
    dir_ = name;
  }
  ~Archild() override { EXPECT_TRUE(RealFiles().RemoveTree(dir_).ok()); }

  std::unique_ptr<Process> Start(std::vector<std::string> args) { return std::make_unique<Process>(std::move(args)); }
  std::unique_ptr<Process> StartAll(const std::string& listen = "127.0.0.1:0") {
    return Start({"all", "--dir", dir_ + "/all", "--listen", listen});
  }

  std::string dir_;
};

// One mount's worth of calls: files that are committed and bytes in a segment.
class Session {
 public:
  explicit Session(const std::string& server) { Connect(server); }

  void Connect(const std::string& server) {
    meta_ = NewMetaClient(server);
    data_ = NewDataPool();
  }
  void Open(const std::string& disk) {
    OpenSessionRequest request;
    request.disk = disk;
    request.client_name = "archild_test";
    request.key = key_;
    request.lease = absl::Seconds(60);
    auto reply = meta_->OpenSession(Soon(), request);
    ASSERT_TRUE(reply.ok()) << reply.error().ToString();
    session_ = reply->session;
    disk_ = reply->disk.id;
    next_ = reply->inodes.first;
  }
  void Resume() {
    auto reply = meta_->Renew(Soon(), session_, key_, 0);
    ASSERT_TRUE(reply.ok()) << reply.error().ToString();
    EXPECT_EQ(reply->applied, seq_);
    EXPECT_TRUE(reply->reclaim);
    ReclaimRequest request;
    request.session = session_;
    request.key = key_;
    request.alone = true;
    const auto reclaimed = meta_->Reclaim(Soon(), request);
    ASSERT_TRUE(reclaimed.ok()) << reclaimed.error().ToString();
  }
  void Close() { EXPECT_TRUE(meta_->CloseSession(Soon(), session_, key_).ok()); }

  // A file with `content`, in a segment, committed.
  void CreateFile(const std::string& name, const std::string& content) {
    auto grants = meta_->AllocateSegments(Soon(), session_, key_, 1);
    ASSERT_TRUE(grants.ok()) << grants.error().ToString();
    ASSERT_EQ(grants->size(), 1u);
    const SegmentGrant grant = (*grants)[0];
    ASSERT_FALSE(grant.replicas.empty());
    const Status appended = data_->For(grant.replicas[0])
                                .Append(Soon(), {disk_, grant.segment}, grant.token, 0, Buffer(content), Checksum(content));
    ASSERT_TRUE(appended.ok()) << appended.error().ToString();
    CreateOp create;
    create.parent = kRootInode;
    create.name = name;
    create.ino = next_;
    create.mode = 0644;
    create.now = {1'800'000'000, static_cast<uint32_t>(next_.value % 1'000'000)};
    SetExtentsOp extents;
    extents.ino = next_;
    extents.extents = {{0, content.size(), ExtentKind::kSegment, grant.segment, 0, {}}};
    extents.size = content.size();
    extents.mtime = extents.ctime = create.now;
    const std::vector<Op> ops = {create, extents};
    const CommitRequest request{session_, key_, Seq(seq_.value + 1), 2, Seq(seq_.value + 2), EncodeOps(ops)};
    auto reply = meta_->Commit(Soon(), request);
    ASSERT_TRUE(reply.ok()) << reply.error().ToString();
    seq_ = Seq(seq_.value + 2);
    EXPECT_EQ(reply->applied, seq_);
    next_ = InodeId(next_.value + 1);
  }

  void ExpectFile(const std::string& name, const std::string& content) {
    auto inode = meta_->Lookup(Soon(), session_, kRootInode, name);
    ASSERT_TRUE(inode.ok()) << inode.error().ToString();
    EXPECT_EQ(inode->attr.size, content.size());
    auto chunks = meta_->GetExtents(Soon(), session_, inode->attr.ino, 0, content.size() / kChunkSize + 1);
    ASSERT_TRUE(chunks.ok()) << chunks.error().ToString();
    std::string found;
    for (const ChunkExtents& chunk : *chunks) {
      for (const Extent& extent : chunk.extents) {
        ASSERT_EQ(extent.offset, found.size());
        auto servers = meta_->LocateSegment(Soon(), session_, extent.segment);
        ASSERT_TRUE(servers.ok()) << servers.error().ToString();
        ASSERT_FALSE(servers->empty());
        auto bytes = data_->For((*servers)[0]).Read(Soon(), {disk_, extent.segment}, extent.segment_offset, extent.length);
        ASSERT_TRUE(bytes.ok()) << bytes.error().ToString();
        found += bytes->view();
      }
    }
    EXPECT_TRUE(found == content) << name << " has " << found.size() << " bytes";
  }

  MetaService& meta() { return *meta_; }

 private:
  std::unique_ptr<MetaService> meta_;
  std::unique_ptr<DataServicePool> data_;
  const SessionKey key_{0x1234, 0x5678};
  SessionId session_;
  DiskId disk_;
  InodeId next_;
  Seq seq_;
};

TEST_F(Archild, HelpVersionAndUsage) {
  const auto run = [this](std::vector<std::string> args, int code, const std::string& says) {
    auto process = Start(args);
    EXPECT_EQ(process->WaitEnd(), code) << process->output();
    EXPECT_THAT(process->output(), HasSubstr(says));
  };
  run({"--help"}, 0, "archild all");
  run({"version"}, 0, "archild 0.");
  run({}, 2, "role is missing");
  run({"gateway"}, 2, "unknown role");
  run({"all"}, 2, "--dir DIR is missing");
  run({"all", "--dir"}, 2, "needs a value");
  run({"all", "--dir", dir_, "--colour", "red"}, 2, "no option --colour");
  run({"all", "--dir", dir_, "--listen", "here"}, 2, "port is missing");
  run({"all", "--dir", dir_, "--listen", "0.0.0.0:0"}, 2, "--advertise");
  run({"all", "--dir", dir_, "--lease", "soon"}, 2, "--lease soon");
  run({"all", "--dir", dir_, "--object-store", "s3:bucket"}, 2, "only file:PATH");
  run({"all", "--dir", dir_, "--log-level", "loud"}, 2, "--log-level loud");
  run({"meta", "--dir", dir_}, 2, "--data");
  run({"meta", "--dir", dir_, "--data", "a:1,a:1"}, 2, "twice");
  run({"data", "--dir", dir_, "--data", "a:1"}, 2, "no option --data");
}

TEST_F(Archild, RefusesWhatIsTaken) {
  auto first = StartAll();
  const std::string address = first->WaitServing();
  auto same_dir = StartAll();
  EXPECT_EQ(same_dir->WaitEnd(), 1);
  EXPECT_THAT(same_dir->output(), HasSubstr("another archild uses it"));
  auto same_port = Start({"all", "--dir", dir_ + "/other", "--listen", address});
  EXPECT_EQ(same_port->WaitEnd(), 1);
  EXPECT_THAT(same_port->output(), HasSubstr("is in use by another process"));
  auto no_such_host = Start({"all", "--dir", dir_ + "/other", "--listen", "192.0.2.1:0"});
  EXPECT_EQ(no_such_host->WaitEnd(), 1);
  EXPECT_THAT(no_such_host->output(), HasSubstr("no address of this machine"));
  auto not_a_dir = Start({"all", "--dir", "/proc/version/x", "--listen", "127.0.0.1:0"});
  EXPECT_EQ(not_a_dir->WaitEnd(), 1);
  EXPECT_THAT(not_a_dir->output(), HasSubstr("/proc/version/x"));
  EXPECT_EQ(first->Stop(), 0);
  // What was refused left nothing behind that stands in the way.
  first = StartAll(address);
  EXPECT_EQ(first->WaitServing(), address);
  first->Signal(SIGINT);
  EXPECT_EQ(first->WaitEnd(), 0);
}

TEST_F(Archild, ClientsGetTheAdvertisedAddress) {
  auto server = Start({"all", "--dir", dir_ + "/all", "--listen=0.0.0.0:0", "--advertise=localhost:4711", "--log-file", dir_ + "/log",
                       "--lease", "7"});
  const std::string address = server->WaitServing();
  ASSERT_THAT(address, HasSubstr("0.0.0.0:"));
  const auto client = NewMetaClient("localhost" + address.substr(address.rfind(':')));
  ASSERT_TRUE(client->CreateDisk(Soon(), "disk", 0).ok());
  OpenSessionRequest request;
  request.disk = "disk";
  request.key = {1, 2};
  const auto session = client->OpenSession(Soon(), request);
  ASSERT_TRUE(session.ok()) << session.error().ToString();
  EXPECT_EQ(session->lease, absl::Seconds(7));
  ASSERT_EQ(session->data_servers.size(), 1u);
  EXPECT_EQ(session->data_servers[0].address, "localhost:4711");
  EXPECT_EQ(server->Stop(), 0);
  const auto log = ReadWholeFile(RealFiles(), dir_ + "/log");
  ASSERT_TRUE(log.ok());
  EXPECT_THAT(*log, HasSubstr("serving role=all"));
}

TEST_F(Archild, StopAndKillKeepWhatWasAcknowledged) {
  auto server = StartAll();
  Session session(server->WaitServing());
  ASSERT_TRUE(session.meta().CreateDisk(Soon(), "disk", 0).ok());
  session.Open("disk");
  const std::string big(3 << 20, 'b');
  session.CreateFile("before-stop", "first");
  EXPECT_EQ(server->Stop(), 0) << server->output();
  EXPECT_THAT(server->output(), HasSubstr("archild all: stopped"));

  server = StartAll();
  session.Connect(server->WaitServing());
  session.Resume();
  session.ExpectFile("before-stop", "first");
  for (int round = 0; round < 3; ++round) {
    session.CreateFile("before-kill-" + std::to_string(round), big + std::to_string(round));
    server->Kill();
    server = StartAll();
    session.Connect(server->WaitServing());
    session.Resume();
    for (int i = 0; i <= round; ++i) session.ExpectFile("before-kill-" + std::to_string(i), big + std::to_string(i));
  }
  session.Close();
  const auto disks = session.meta().ListDisks(Soon());
  ASSERT_TRUE(disks.ok());
  ASSERT_EQ(disks->size(), 1u);
  EXPECT_TRUE(disks->front().clients.empty());
  EXPECT_EQ(server->Stop(), 0) << server->output();
}

TEST_F(Archild, ACallThatRunsWhenTheServerDiesIsUnknownOrRefused) {
  auto server = StartAll();
  const std::string address = server->WaitServing();
  const auto client = NewMetaClient(address);
  ASSERT_TRUE(client->ListDisks(Soon()).ok());
  server->Signal(SIGSTOP);
  Status outcome;
  auto caller = RealScheduler().Spawn("caller", [&] { outcome = client->DeleteDisk(Soon(), "disk", false); });
  OpContext brief;
  brief.deadline = RealClock().Boot() + absl::Milliseconds(300);
  EXPECT_EQ(client->ListDisks(brief).code(), Code::kUnavailable);
  server->Kill();
  caller->Join();
  EXPECT_EQ(outcome.code(), Code::kUnknown) << outcome.error().ToString();
  EXPECT_EQ(client->DeleteDisk(Soon(), "disk", false).code(), Code::kUnavailable);
  // The same client finds the next server.
  server = StartAll(address);
  ASSERT_EQ(server->WaitServing(), address);
  const BootTime begin = RealClock().Boot();
  Notification never(RealScheduler());
  while (!client->ListDisks(Soon()).ok() && RealClock().Boot() - begin < absl::Seconds(10)) {
    never.WaitUntil(RealClock().Boot() + absl::Milliseconds(50));
  }
  EXPECT_LT(RealClock().Boot() - begin, absl::Seconds(3));
  EXPECT_EQ(server->Stop(), 0);
}

TEST_F(Archild, ThreeProcesses) {
  const auto start_data = [this](int i, const std::string& listen) {
    return Start({"data", "--dir", dir_ + "/data" + std::to_string(i), "--listen", listen});
  };
  auto data1 = start_data(1, "127.0.0.1:0"), data2 = start_data(2, "127.0.0.1:0");
  const std::string address1 = data1->WaitServing(), address2 = data2->WaitServing();
  const auto start_meta = [&] {
    return Start({"meta", "--dir", dir_ + "/meta", "--listen", "127.0.0.1:0", "--data", address1 + "," + address2});
  };
  auto meta = start_meta();
  Session session(meta->WaitServing());
  ASSERT_TRUE(session.meta().CreateDisk(Soon(), "disk", 0).ok());
  session.Open("disk");
  for (int i = 0; i < 4; ++i) session.CreateFile("a" + std::to_string(i), std::string(100'000, static_cast<char>('0' + i)));
  meta->Kill();
  data1->Kill();
  EXPECT_EQ(data2->Stop(), 0);
  // The metadata server waits for data servers that start after it.
  meta = start_meta();
  data1 = start_data(1, address1);
  data2 = start_data(2, address2);
  ASSERT_EQ(data1->WaitServing(), address1);
  ASSERT_EQ(data2->WaitServing(), address2);
  session.Connect(meta->WaitServing());
  session.Resume();
  session.CreateFile("b", "bytes");
  for (int i = 0; i < 4; ++i) session.ExpectFile("a" + std::to_string(i), std::string(100'000, static_cast<char>('0' + i)));
  session.ExpectFile("b", "bytes");
  EXPECT_EQ(meta->Stop(), 0) << meta->output();
  EXPECT_EQ(data1->Stop(), 0);
  EXPECT_EQ(data2->Stop(), 0);
}

}  // namespace
}  // namespace archil
