// Thousands of sessions on one disk: what the metadata server does for each, and what it remembers.
//
//   many_sessions HOST:PORT [key=value ...]
//     disk=NAME        there is one (many)
//     sessions=N       (5000)
//     work=own|one     each in its own directory, or all in one (own)
//     every=SECONDS    a session makes one file of 1 KiB so often; 0: never, they only are there (1)
//     seconds=S        measured, after all are there (30)
//     lease=SECONDS    (15)
//     server_pid=PID   its memory is shown
// The server may be killed and started again meanwhile.
//
// Sessions here are what a mount is to the server, without the mount: a stream with one Poll always open and a Renew each third of a
// lease, recalls answered at once with nothing kept. A file is a Commit of its creation and its bytes under WRITE on the
// directory; if the server says that the directory is contended, an ApplyOp and the file's own WRITE. Everything is
// asynchronous over a few connections, so that the threads are the server's.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "archil/v1/meta.grpc.pb.h"
#include "bench/session_stream.h"
#include "common/base/check.h"
#include "common/rpc/client.h"
#include "common/rpc/convert.h"
#include "tests/support/meta_world.h"

namespace archil {
namespace {

using test::TestSession;

struct Options {
  std::string server, disk = "many", work = "own", server_pid;
  int sessions = 5000;
  double every = 1, seconds = 30, lease = 15;
};

// --- what was measured

class Times {
 public:
  void Add(const std::string& row, absl::Duration took) {
    std::lock_guard lock(mu_);
    rows_[row].push_back(static_cast<float>(absl::ToDoubleMilliseconds(took)));
  }
  void Clear() {
    std::lock_guard lock(mu_);
    rows_.clear();
  }
  void Print(double seconds) {
    std::lock_guard lock(mu_);
    for (auto& [row, times] : rows_) {
      std::sort(times.begin(), times.end());
      const auto at = [&](double q) { return times[std::min(times.size() - 1, static_cast<size_t>(q * static_cast<double>(times.size())))]; };
      std::puts(fmt::format("{:<22} {:>9.0f}/s   ms: {:>8.2f} median {:>8.2f} p99 {:>8.2f} p99.9 {:>8.2f} most", row,
                            static_cast<double>(times.size()) / seconds, at(0.5), at(0.99), at(0.999), times.back())
                    .c_str());
    }
  }

 private:
  std::mutex mu_;
  std::map<std::string, std::vector<float>> rows_;
};

Times times;
std::atomic<bool> over{false};
std::atomic<uint64_t> wrong{0}, again{0}, reclaims{0};

void Wrong(const std::string& what) {
  if (over) return;
  if (wrong.fetch_add(1) < 10) std::fprintf(stderr, "%s\n", what.c_str());
}

// Runs work at its time, on one thread: it only starts calls.
class Timer {
 public:
  Timer() : thread_([this] { Loop(); }) {}
  ~Timer() {
    {
      std::lock_guard lock(mu_);
      stop_ = true;
    }
    cv_.notify_all();
    thread_.join();
  }
  void In(absl::Duration time, std::function<void()> work) {
    {
      std::lock_guard lock(mu_);
      queue_.emplace(absl::Now() + time, std::move(work));
    }
    cv_.notify_all();
  }

 private:
  void Loop() {
    std::unique_lock lock(mu_);
    while (!stop_) {
      if (queue_.empty()) {
        cv_.wait(lock);
      } else if (queue_.begin()->first > absl::Now()) {
        cv_.wait_until(lock, absl::ToChronoTime(queue_.begin()->first));
      } else {
        auto node = queue_.extract(queue_.begin());
        lock.unlock();
        node.mapped()();
        lock.lock();
      }
    }
  }
  std::mutex mu_;
  std::condition_variable cv_;
  std::multimap<absl::Time, std::function<void()>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

// --- calls

using Async = v1::Meta::StubInterface::async_interface;

template <class Request, class Reply>
void Call(v1::Meta::Stub& stub, absl::Duration wait,
          void (Async::*method)(grpc::ClientContext*, const Request*, Reply*, std::function<void(grpc::Status)>),
          Request request, std::function<void(const grpc::Status&, Reply&, absl::Duration)> done) {
  struct State {
    grpc::ClientContext context;
    Request request;
    Reply reply;
    absl::Time begun = absl::Now();
  };
  auto state = std::make_shared<State>();
  state->request = std::move(request);
  state->context.set_deadline(absl::ToChronoTime(state->begun + wait));
  (stub.async()->*method)(&state->context, &state->request, &state->reply, [state, done = std::move(done)](grpc::Status status) {
    done(status, state->reply, absl::Now() - state->begun);
  });
}

constexpr absl::Duration kWait = absl::Seconds(60);

// --- a session

class Session {
 public:
  Session(const Options& options, int number, v1::Meta::Stub& stub, MetaService& meta, Timer& timer)
      : options_(options), number_(number), stub_(stub), meta_(meta), timer_(timer), random_(static_cast<uint64_t>(number)) {}

  void Open(std::function<void()> opened) {
    OpenSessionRequest request;
    request.disk = options_.disk;
    request.key = {static_cast<uint64_t>(number_) + 1, 2};
    request.client_name = fmt::format("session {}", number_);
    request.lease = absl::Seconds(options_.lease);
    v1::OpenSessionRequest out;
    ToProto(request, &out);
    Go<v1::OpenSessionRequest, v1::OpenSessionReply>(
        "open a session", &Async::OpenSession, out, [this, key = request.key, opened](const grpc::Status& s, v1::OpenSessionReply& in) {
          auto reply = FromProto(in);
          if (!s.ok() || !reply.ok()) return Wrong("open a session: " + (s.ok() ? reply.error().ToString() : s.error_message()));
          session_.emplace(meta_, std::move(*reply), key);
          Poll();
          Renew();
          opened();
        });
  }
  // From now on, one file each `every` on average.
  void Work(InodeId dir) {
    dir_ = dir;
    if (options_.every > 0) Later();
  }
  uint64_t files() const { return files_; }
  absl::Duration longest() const { return longest_; }
  void Forget() { files_ = 0, longest_ = {}; }

 private:
  template <class Request, class Reply>
  void Go(const char* row, void (Async::*method)(grpc::ClientContext*, const Request*, Reply*, std::function<void(grpc::Status)>), const Request& request,
          std::function<void(const grpc::Status&, Reply&)> done) {
    Call<Request, Reply>(stub_, kWait, method, request,
                         [=, this, done = std::move(done)](const grpc::Status& status, Reply& reply, absl::Duration took) {
                           // The server is away, or has not heard yet what is held. Numbers make a repeat harmless.
                           const bool away = status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::UNKNOWN;
                           if (away && !over) {
                             ++again;
                             return timer_.In(absl::Milliseconds(200), [=, this] { Go<Request, Reply>(row, method, request, done); });
                           }
                           times.Add(row, took);
                           done(status, reply);
                         });
  }
  template <class Request>
  Request Mine() {
    Request request;
    request.set_session(session_->id().value);
    ToProto(session_->key(), request.mutable_key());
    return request;
  }

  // A call on the stream, which is opened where there is none.
  void Ask(v1::SessionUp up, SessionStream::Done done) {
    for (;;) {
      std::shared_ptr<SessionStream> stream;
      {
        std::lock_guard lock(mu_);
        if (stream_ == nullptr || stream_->ended()) {
          stream_ = std::make_shared<SessionStream>();
          stream_->Begin(stub_);
        }
        stream = stream_;
      }
      if (stream->Ask(up, done)) return;
    }
  }
  // Again while the server is away.
  void AskUntilHeard(const char* row, v1::SessionUp up, std::function<void(const std::string& wrong)> done) {
    const absl::Time begun = absl::Now();
    Ask(up, [=, this](Code code, v1::SessionDown& down) {
      if ((code == Code::kUnavailable || code == Code::kUnknown) && !over) {
        ++again;
        return timer_.In(absl::Milliseconds(200), [=, this] { AskUntilHeard(row, up, done); });
      }
      times.Add(row, absl::Now() - begun);
      done(code == Code::kOk ? "" : fmt::format("{}: {}", row, down.error().message()));
    });
  }

  void Renew() {
    if (over) return;
    v1::SessionUp up;
    *up.mutable_renew() = Mine<v1::RenewRequest>();
    AskUntilHeard("renew", up, [this](const std::string& wrong) {
      if (!wrong.empty()) Wrong(wrong);
      timer_.In(absl::Seconds(options_.lease / 3), [this] { Renew(); });
    });
  }

  void Poll() {
    if (over) return;
    v1::SessionUp up;
    *up.mutable_poll() = Mine<v1::PollRequest>();
    up.mutable_poll()->set_after(seen_);
    up.set_timeout_ns(absl::ToInt64Nanoseconds(absl::Seconds(30)));
    Ask(up, [this](Code code, v1::SessionDown& down) {
      if (code == Code::kUnavailable) return timer_.In(absl::Milliseconds(50), [this] { Poll(); });
      if (code != Code::kOk) return Wrong("poll: " + down.error().message());
      const v1::PollReply& reply = down.poll();
      if (reply.reclaim()) return Reclaim();
      {
        std::lock_guard lock(mu_);
        for (const auto& m : reply.messages()) seen_ = std::max(seen_, m.number());
        owed_.insert(owed_.end(), reply.messages().begin(), reply.messages().end());
      }
      AnswerOwed();
      Poll();
    });
  }

  // The server was restarted.
  void Reclaim() {
    auto request = Mine<v1::ReclaimRequest>();
    {
      std::lock_guard lock(mu_);
      owed_.clear();
      request.mutable_rights();
      if (holds_) {
        request.mutable_rights()->add_inos(dir_.value);
        request.mutable_rights()->set_rights(std::string(1, static_cast<char>(Right::kWrite)));
      }
    }
    request.set_finished_ops(last_id_);
    Go<v1::ReclaimRequest, v1::ReclaimReply>("reclaim", &Async::Reclaim, request, [this](const grpc::Status& s, v1::ReclaimReply& reply) {
      if (!s.ok()) return Wrong("reclaim: " + s.error_message());
      ++reclaims;
      seen_ = reply.number();
      Poll();
    });
  }

  // Not while something is made under the right.
  void AnswerOwed() {
    std::vector<v1::SessionMessage> now;
    Seq applied;
    {
      std::lock_guard lock(mu_);
      if (busy_) return;
      now.swap(owed_);
      for (const auto& m : now) {
        if (m.kind() == v1::MESSAGE_KIND_RECALL_ALONE || m.ino() == dir_.value) holds_ = false;
      }
      applied = session_->applied();
    }
    for (const auto& m : now) {
      v1::SessionUp up;
      auto& answer = *up.mutable_answer_recall();
      answer = Mine<v1::AnswerRecallRequest>();
      answer.set_message(m.number());
      answer.set_last(applied.value);
      answer.mutable_keeps();
      AskUntilHeard("answer a recall", up, [](const std::string& wrong) {
        if (!wrong.empty()) Wrong(wrong);
      });
    }
  }

  // --- one file

  void Later() {
    if (over) return;
    const double mean = options_.every;
    timer_.In(absl::Seconds(std::uniform_real_distribution<>(0.5 * mean, 1.5 * mean)(random_)), [this] { Begin(); });
  }
  void Begin() {
    if (over) return;
    begun_ = absl::Now();
    bool holds = false;
    {
      std::lock_guard lock(mu_);
      holds = holds_;
      busy_ = true;  // a recall may overtake the grant that it ends: it is answered when that has come and was used
    }
    holds ? Create() : Acquire(dir_, true, [this](bool at_server) { at_server ? CreateAtServer() : Create(); });
  }
  void Done(bool made) {
    {
      std::lock_guard lock(mu_);
      busy_ = false;
    }
    if (made) {
      ++files_;
      const absl::Duration took = absl::Now() - begun_;
      longest_ = std::max(longest_, took);
      times.Add("FILE", took);
    }
    AnswerOwed();
    Later();
  }

  void Acquire(InodeId ino, bool or_at_server, std::function<void(bool at_server)> then) {
    AcquireRequest request;
    request.session = session_->id();
    request.key = session_->key();
    request.wants = {{ino, Right::kWrite, false}};
    request.or_at_server = or_at_server;
    v1::AcquireRequest out;
    ToProto(request, &out);
    Go<v1::AcquireRequest, v1::AcquireReply>("acquire", &Async::Acquire, out, [this, ino, then](const grpc::Status& s, v1::AcquireReply& reply) {
      if (!s.ok()) {
        Wrong("acquire: " + s.error_message());
        return Done(false);
      }
      const bool at_server = reply.at_server_size() > 0;
      {
        std::lock_guard lock(mu_);
        if (ino == dir_) holds_ = !at_server;
        busy_ = !at_server;
      }
      if (at_server) AnswerOwed();
      then(at_server);
    });
  }

  void Create() {
    const CreateOp create = session_->File(dir_, Name());
    Commit("commit", {create, session_->Inline(create.ino, 0, Bytes(), 1024)});
  }
  void CreateAtServer() {
    ApplyOpRequest request;
    request.session = session_->id();
    request.key = session_->key();
    request.id = ++last_id_;
    request.finished = last_id_;
    request.after = session_->applied();
    const CreateOp create = session_->File(dir_, Name());
    request.op = create;
    request.flags = ApplyOpRequest::kOpen;
    v1::ApplyOpRequest out;
    ToProto(request, &out);
    Go<v1::ApplyOpRequest, v1::ApplyOpReply>("create at the server", &Async::ApplyOp, out, [this, ino = create.ino](const grpc::Status& s, v1::ApplyOpReply&) {
      if (!s.ok()) {
        Wrong("create at the server: " + s.error_message());
        return Done(false);
      }
      Acquire(ino, false, [this, ino](bool) { Commit("commit", {session_->Inline(ino, 0, Bytes(), 1024), ReleaseOrphanOp{ino}}); });
    });
  }
  void Commit(const char* row, const std::vector<Op>& ops) {
    const CommitRequest request = session_->Request(ops);
    v1::CommitRequest out;
    ToProto(request, &out);
    Go<v1::CommitRequest, v1::CommitReply>(row, &Async::Commit, out, [this, last = request.last](const grpc::Status& s, v1::CommitReply&) {
      // The right to a single file is not among what is reclaimed here.
      if (s.error_code() == grpc::StatusCode::INVALID_ARGUMENT && reclaims > 0) return Done(false);
      if (!s.ok()) {
        Wrong("commit: " + s.error_message());
        return Done(false);
      }
      {
        std::lock_guard lock(mu_);
        session_->Applied(last);
      }
      Done(true);
    });
  }
  std::string Name() { return fmt::format("{}-{}", number_, ++names_); }
  static const std::string& Bytes() {
    static const std::string bytes(1024, 'x');
    return bytes;
  }

  const Options& options_;
  const int number_;
  v1::Meta::Stub& stub_;
  MetaService& meta_;
  Timer& timer_;
  std::mt19937_64 random_;
  std::optional<TestSession> session_;
  InodeId dir_;
  absl::Time begun_;
  std::atomic<uint64_t> last_id_{0};
  uint64_t names_ = 0;
  std::mutex mu_;
  std::shared_ptr<SessionStream> stream_;
  std::vector<v1::SessionMessage> owed_;
  uint64_t seen_ = 0;
  bool holds_ = false, busy_ = false;
  std::atomic<uint64_t> files_{0};
  absl::Duration longest_;
};

// --- the run

std::string MemoryOf(const std::string& pid) {
  std::ifstream in("/proc/" + pid + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmRSS:")) return fmt::format("{} MiB", std::strtoull(line.c_str() + 6, nullptr, 10) >> 10);
  }
  return "?";
}

// Directories of the sessions, and the one of all.
std::vector<InodeId> MakeDirectories(const Options& options, MetaService& meta) {
  auto maker = TestSession::Open(meta, options.disk, {7, 7}, "maker");
  ARCHIL_CHECK(maker.ok());
  (void)maker->Acquire({{kRootInode, Right::kWrite, false}});
  std::vector<Op> ops;
  std::vector<InodeId> dirs;
  const auto stamp = absl::ToUnixMicros(absl::Now());
  for (int i = 0; i <= options.sessions; ++i) {
    CreateOp dir = maker->File(kRootInode, fmt::format("{}-{}", stamp, i), FileType::kDirectory);
    dir.mode = 0755;
    dirs.push_back(dir.ino);
    ops.emplace_back(dir);
    if (ops.size() == 500 || i == options.sessions) {
      const auto s = maker->Commit(std::exchange(ops, {}));
      if (!s.ok()) std::fprintf(stderr, "%s\n", s.error().ToString().c_str());
      ARCHIL_CHECK(s.ok());
    }
  }
  ARCHIL_CHECK(meta.CloseSession({}, maker->id(), maker->key()).ok());
  return dirs;
}

int Main(const Options& options) {
  const auto meta = NewMetaClient(options.server);
  (void)meta->CreateDisk({}, options.disk, 0);
  const std::vector<InodeId> dirs = MakeDirectories(options, *meta);
  std::vector<std::unique_ptr<v1::Meta::Stub>> stubs;
  for (int i = 0; i < 16; ++i) {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(v1::Meta::NewStub(grpc::CreateCustomChannel(options.server, grpc::InsecureChannelCredentials(), args)));
  }
  Timer timer;
  std::vector<std::unique_ptr<Session>> sessions;
  const std::string before = MemoryOf(options.server_pid);
  std::atomic<int> opened{0};
  const absl::Time begun = absl::Now();
  for (int i = 0; i < options.sessions; ++i) {
    sessions.push_back(std::make_unique<Session>(options, i, *stubs[static_cast<size_t>(i) % stubs.size()], *meta, timer));
    sessions.back()->Open([&] { ++opened; });
  }
  while (opened < options.sessions && wrong == 0 && absl::Now() - begun < absl::Minutes(5)) absl::SleepFor(absl::Milliseconds(10));
  std::puts(fmt::format("{} sessions in {:.1f} s; the server's memory: {} before, {} with them", opened.load(),
                        absl::ToDoubleSeconds(absl::Now() - begun), before, MemoryOf(options.server_pid)).c_str());
  if (opened < options.sessions) return 1;
  for (size_t i = 0; i < sessions.size(); ++i) sessions[i]->Work(options.work == "one" ? dirs.back() : dirs[i]);
  absl::SleepFor(absl::Seconds(std::max(2 * options.every, 3.0)));
  times.Clear();
  for (auto& session : sessions) session->Forget();
  absl::SleepFor(absl::Seconds(options.seconds));
  over = true;
  times.Print(options.seconds);
  std::vector<uint64_t> files;
  absl::Duration longest;
  for (auto& session : sessions) {
    files.push_back(session->files());
    longest = std::max(longest, session->longest());
  }
  std::sort(files.begin(), files.end());
  std::puts(fmt::format("files of a session: {} least, {} median, {} most; longest {:.1f} s; {} calls failed, {} were asked again, {} reclaims; the server's memory: {}",
                        files.front(), files[files.size() / 2], files.back(), absl::ToDoubleSeconds(longest), wrong.load(), again.load(), reclaims.load(),
                        MemoryOf(options.server_pid)).c_str());
  std::fflush(stdout);
  // What is under way is not waited for.
  std::_Exit(wrong == 0 && (options.every == 0 || files.front() > 0) ? 0 : 1);
}

}  // namespace
}  // namespace archil

int main(int argc, char** argv) {
  archil::Options options;
  std::map<std::string, std::string*> texts{{"disk", &options.disk}, {"work", &options.work}, {"server_pid", &options.server_pid}};
  std::map<std::string, double*> numbers{{"every", &options.every}, {"seconds", &options.seconds}, {"lease", &options.lease}};
  if (argc < 2) {
    std::fputs("many_sessions HOST:PORT [disk=NAME] [sessions=N] [work=own|one] [every=S] [seconds=S] [lease=S] [server_pid=PID]\n", stderr);
    return 2;
  }
  options.server = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::vector<std::string> part = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    bool good = part.size() == 2;
    if (good && part[0] == "sessions") {
      good = absl::SimpleAtoi(part[1], &options.sessions) && options.sessions > 0;
    } else if (good && numbers.contains(part[0])) {
      good = absl::SimpleAtod(part[1], numbers[part[0]]);
    } else if (good && texts.contains(part[0])) {
      *texts[part[0]] = part[1];
    } else {
      good = false;
    }
    if (!good) {
      std::fprintf(stderr, "many_sessions: %s means nothing here\n", argv[i]);
      return 2;
    }
  }
  return archil::Main(options);
}
