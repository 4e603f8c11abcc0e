// What a call costs between client stub and server on the loopback interface: a Commit of a few bytes.
//
//   rpc_latency [CALLS [HOST:PORT]]
// Rows: who answers at the server (the thread that decoded; a strand, as the metadata server; the metadata server itself with
// RocksDB's place taken by memory and its log on files in memory), with and without a cancel flag. With an address: the list of
// disks of an archild, which is another process and therefore does not help the client to poll.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "common/env/mem_files.h"
#include "common/format/op_codec.h"
#include "tests/contract/rpc_fakes.h"

namespace archil {
namespace {

// Answers commits on one thread of its own.
class StrandMeta final : public FakeMetaServer {
 public:
  StrandMeta() : thread_(RealScheduler().Spawn("strand", [this] { Loop(); })) {}
  ~StrandMeta() override {
    Post(nullptr);
    thread_->Join();
  }
  void CommitAsync(const OpContext&, CommitRequest, std::function<void(Result<CommitReply>)> done) override {
    Post([done = std::move(done)] { done(CommitReply{Seq(1), Lsn(1)}); });
  }

 private:
  void Post(std::function<void()> work) {
    MutexLock lock(mu_);
    queue_.push_back(std::move(work));
    cv_.Signal();
  }
  void Loop() {
    for (;;) {
      std::function<void()> work;
      {
        MutexLock lock(mu_);
        while (queue_.empty()) cv_.Wait(mu_);
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      if (work == nullptr) return;
      work();
    }
  }

  Mutex mu_{RealScheduler()};
  CondVar cv_{RealScheduler()};
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Thread> thread_;
};

class InlineMeta final : public FakeMetaServer {
 public:
  void CommitAsync(const OpContext&, CommitRequest, std::function<void(Result<CommitReply>)> done) override {
    done(CommitReply{Seq(1), Lsn(1)});
  }
};

void Report(const std::string& row, std::vector<absl::Duration> times) {
  std::sort(times.begin(), times.end());
  std::puts(fmt::format("{:<34} {:>7.1f} us median, {:>7.1f} us p99, {} calls", row,
                        absl::ToDoubleMicroseconds(times[times.size() / 2]),
                        absl::ToDoubleMicroseconds(times[times.size() * 99 / 100]), times.size())
                .c_str());
}

// `commit` makes one call.
void Measure(const std::string& row, int calls, const std::function<Status(const OpContext&)>& commit) {
  CancelFlag flag;
  for (const CancelFlag* cancel : {static_cast<const CancelFlag*>(nullptr), static_cast<const CancelFlag*>(&flag)}) {
    std::vector<absl::Duration> times;
    for (int i = -calls / 10; i < calls; ++i) {  // the first ones warm up
      OpContext ctx = Within(absl::Seconds(10));
      ctx.cancel = cancel;
      const BootTime begin = RealClock().Boot();
      ARCHIL_CHECK(commit(ctx).ok());
      if (i >= 0) times.push_back(RealClock().Boot() - begin);
    }
    Report(row + (cancel == nullptr ? "" : ", cancellable"), std::move(times));
  }
}

void MeasureServer(const std::string& row, MetaServer& server, int calls,
                   const std::function<Status(MetaService&, const OpContext&)>& commit) {
  const auto service = NewMetaRpcService(server);
  auto port = ReservedPort::Bind({"127.0.0.1", 0});
  ARCHIL_CHECK(port.ok());
  auto rpc = RpcServer::Start(std::move(port).value(), {service.get()});
  ARCHIL_CHECK(rpc.ok());
  const auto client = NewMetaClient((*rpc)->address().ToString());
  Measure(row, calls, [&](const OpContext& ctx) { return commit(*client, ctx); });
}

CommitRequest SmallCommit() {
  CommitRequest request;
  request.count = 1;
  request.ops = std::string(64, 'o');
  return request;
}

Status PlainCommit(MetaService& meta, const OpContext& ctx) {
  static const CommitRequest request = SmallCommit();
  const auto reply = meta.Commit(ctx, request);
  return reply.ok() ? Ok() : Status(reply.error());
}

class OneDataServer final : public DataServerSet {
 public:
  explicit OneDataServer(DataServer& server) : server_(server) {}
  std::vector<DataServerInfo> All() override { return {{1, "127.0.0.1:1"}}; }
  DataService* ById(uint32_t id) override { return id == 1 ? &server_ : nullptr; }

 private:
  DataServer& server_;
};

// The metadata server on files in memory: everything but disks.
void MeasureMeta(int calls) {
  MemFiles files;
  auto objects = OpenLocalObjectStore(files, "/objects");
  ARCHIL_CHECK(objects.ok());
  auto data = DataServer::Open({RealScheduler(), files, **objects, ProcessFaults()}, {"/data"});
  ARCHIL_CHECK(data.ok());
  OneDataServer servers(**data);
  const auto open_kv = [](const std::string&) -> Result<std::unique_ptr<KvStore>> { return NewMemKvStore(); };
  auto meta = MetaServer::Open({RealScheduler(), RealRandom(), files, ProcessFaults(), servers, open_kv}, {"/meta"});
  ARCHIL_CHECK(meta.ok());
  const OpContext ctx = Within(absl::Seconds(60));
  ARCHIL_CHECK((*meta)->CreateDisk(ctx, "disk", 0).ok());
  OpenSessionRequest open;
  open.disk = "disk";
  open.key = {1, 2};
  const auto session = (*meta)->OpenSession(ctx, open);
  ARCHIL_CHECK(session.ok());
  uint64_t seq = 0;
  const auto commit = [&](MetaService& server, const OpContext& c) -> Status {
    ++seq;
    CreateOp create;
    create.parent = kRootInode;
    create.name = fmt::format("file-{}", seq);
    create.ino = InodeId(session->inodes.first.value + seq - 1);
    create.mode = 0644;
    create.now = {1'800'000'000 + static_cast<int64_t>(seq), 0};
    const std::vector<Op> ops = {create};
    const CommitRequest request{session->session, open.key, Seq(seq), 1, Seq(seq), EncodeOps(ops)};
    const auto reply = server.Commit(c, request);
    return reply.ok() ? Ok() : Status(reply.error());
  };
  Measure("metadata server, called directly", calls, [&](const OpContext& c) { return commit(**meta, c); });
  MeasureServer("metadata server, over gRPC", **meta, calls, commit);
  (*meta)->Stop();
  (*data)->Stop();
}

int Main(int calls, const char* address) {
  if (address != nullptr) {
    const auto client = NewMetaClient(address);
    Measure("ListDisks of another process", calls, [&](const OpContext& ctx) {
      const auto disks = client->ListDisks(ctx);
      return disks.ok() ? Ok() : Status(disks.error());
    });
    return 0;
  }
  InlineMeta inline_meta;
  MeasureServer("answered by the gRPC thread", inline_meta, calls, PlainCommit);
  StrandMeta strand_meta;
  MeasureServer("answered by a strand", strand_meta, calls, PlainCommit);
  MeasureMeta(calls);
  return 0;
}

}  // namespace
}  // namespace archil

int main(int argc, char** argv) { return archil::Main(std::max(10, argc > 1 ? std::atoi(argv[1]) : 5000), argc > 2 ? argv[2] : nullptr); }
