// The parts of the command line that need no server and no mount.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "client/cli/args.h"
#include "client/cli/control.h"
#include "client/cli/daemonize.h"
#include "client/cli/exit_codes.h"
#include "client/cli/holders.h"
#include "client/cli/json.h"
#include "client/cli/mount_client.h"
#include "client/cli/paths.h"
#include "client/cli/state_file.h"
#include "common/env/files.h"

namespace archil::cli {
namespace {

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/archil-cli-XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
  }
  void TearDown() override { EXPECT_TRUE(RealFiles().RemoveTree(dir_).ok()); }
  std::string dir_;
};

// ---- arguments

TEST(CliArgs, OptionsAndTheRest) {
  const auto args = Args::Parse({"a", "--server=h:1", "--json", "b", "--quota", "5G", "--", "--c"},
                                {{"server"}, {"json", false}, {"quota"}}, 1, 3);
  ASSERT_TRUE(args.ok());
  EXPECT_EQ(args->rest(), (std::vector<std::string>{"a", "b", "--c"}));
  EXPECT_EQ(args->Server(), "h:1");
  EXPECT_TRUE(args->Has("json"));
  EXPECT_EQ(args->GetSize("quota", 0).value(), 5ULL << 30);
}

TEST(CliArgs, Refusals) {
  const std::vector<OptionSpec> specs = {{"json", false}, {"n"}};
  EXPECT_FALSE(Args::Parse({}, specs, 1, 1).ok());
  EXPECT_FALSE(Args::Parse({"a", "b"}, specs, 1, 1).ok());
  EXPECT_FALSE(Args::Parse({"a", "--n"}, specs, 1, 1).ok());
  EXPECT_FALSE(Args::Parse({"a", "--nope"}, specs, 1, 1).ok());
  EXPECT_FALSE(Args::Parse({"a", "--json=1"}, specs, 1, 1).ok());
  for (const char* bad : {"", "x", "-1", "1x", "99999999999999999999", "1.5G"}) {
    const auto args = Args::Parse({"a", std::string("--n=") + bad}, specs, 1, 1);
    ASSERT_TRUE(args.ok());
    EXPECT_FALSE(args->GetNumber("n", 0).ok()) << bad;
    EXPECT_FALSE(args->GetSize("n", 0).ok()) << bad;
  }
  EXPECT_FALSE(Args::Parse({"--n=99999999999G"}, specs, 0, 0)->GetSize("n", 0).ok());
}

TEST(CliArgs, Durations) {
  auto parse = [](const std::string& text) {
    return Args::Parse({"--d", text}, {{"d"}}, 0, 0)->GetDuration("d", absl::Seconds(7));
  };
  EXPECT_EQ(parse("90s").value(), absl::Seconds(90));
  EXPECT_EQ(parse("500ms").value(), absl::Milliseconds(500));
  EXPECT_EQ(parse("3").value(), absl::Seconds(3));
  EXPECT_EQ(Args::Parse({}, {{"d"}}, 0, 0)->GetDuration("d", absl::Seconds(7)).value(), absl::Seconds(7));
  for (const char* bad : {"", "soon", "-1s", "1 s", "5x"}) EXPECT_FALSE(parse(bad).ok()) << bad;
}

TEST(CliArgs, ServerAddress) {
  auto check = [](const std::string& text) { return Args::Parse({"--server", text}, {{"server"}}, 0, 0)->CheckServer().ok(); };
  EXPECT_TRUE(check("127.0.0.1:8100"));
  EXPECT_TRUE(check("[::1]:8100"));
  EXPECT_FALSE(check("nonsense"));
  EXPECT_FALSE(check(""));
}

// ---- JSON

TEST(CliJson, WritesAndReadsBack) {
  Json inner;
  inner.Set("a", static_cast<uint64_t>(18446744073709551615ULL));
  Json all;
  all.Set("text", "quote \" back \\ line \n tab \t bell \x07 \xc3\xa9");
  all.Set("yes", true);
  all.Set("real", 1.5);
  all.Set("none", Json());
  all.Set("list", Json::Array{Json("x"), inner, Json(Json::Array{})});
  all.Set("object", inner);
  all.Set("yes", false);
  for (const std::string& text : {all.Dump(), all.DumpPretty()}) {
    const auto back = ParseJson(text);
    ASSERT_TRUE(back.ok()) << text;
    EXPECT_EQ(back->Dump(), all.Dump());
    EXPECT_EQ(back->Find("object")->GetNumber("a"), 18446744073709551615ULL);
    EXPECT_FALSE(back->GetBool("yes", true));
    EXPECT_EQ(back->GetDouble("real"), 1.5);
  }
  EXPECT_EQ(all.Dump().find('\n'), std::string::npos);
}

TEST(CliJson, RefusesWhatIsNone) {
  for (const char* bad : {"", "{", "}", "[1,]", "{\"a\"}", "{\"a\":}", "{a:1}", "\"open", "\"\\", "\"\\u12", "1 2", "nul", "-", "[1 2]"}) {
    EXPECT_FALSE(ParseJson(bad).ok()) << bad;
  }
  EXPECT_FALSE(ParseJson(std::string(100000, '[')).ok());
  EXPECT_TRUE(ParseJson(" { \"a\" : [ 1 , -2.5e3 ] } \n").ok());
  EXPECT_EQ(ParseJson("\"\\u00e9\"")->string()->size(), 2u);
}

TEST(CliJson, LenientReaders) {
  const Json j = *ParseJson("{\"n\": \"text\", \"s\": 5}");
  EXPECT_EQ(j.GetNumber("n", 3), 0u);
  EXPECT_EQ(j.GetString("s", "x"), "x");
  EXPECT_EQ(j.GetNumber("absent", 3), 3u);
  EXPECT_EQ(Json(5).Find("a"), nullptr);
}

// ---- paths

TEST_F(CliTest, LexicalPaths) {
  EXPECT_EQ(LexicalPath("/a//b/./c/../d/"), "/a/b/d");
  EXPECT_EQ(LexicalPath("/../.."), "/");
  EXPECT_EQ(LexicalPath("/"), "/");
  EXPECT_EQ(LexicalPath("x")[0], '/');
}

TEST_F(CliTest, CanonicalMountpointResolvesParentsAndLinks) {
  ASSERT_EQ(mkdir((dir_ + "/real").c_str(), 0755), 0);
  ASSERT_EQ(mkdir((dir_ + "/real/m").c_str(), 0755), 0);
  ASSERT_EQ(symlink("real", (dir_ + "/link").c_str()), 0);
  ASSERT_EQ(symlink("real/m", (dir_ + "/short").c_str()), 0);
  EXPECT_EQ(CanonicalMountpoint(dir_ + "/link/m").value(), dir_ + "/real/m");
  EXPECT_EQ(CanonicalMountpoint(dir_ + "/short/").value(), dir_ + "/real/m");
  EXPECT_EQ(CanonicalMountpoint(dir_ + "/absent").code(), Code::kNotFound);
  EXPECT_EQ(CanonicalMountpoint("/proc").value(), "/proc");
  EXPECT_EQ(CanonicalMountpoint("/").value(), "/");
}

TEST_F(CliTest, PathKeyIsStable) {
  EXPECT_EQ(PathKey(""), "cbf29ce484222325");
  EXPECT_EQ(PathKey("a"), "af63dc4c8601ec8c");
}

TEST_F(CliTest, PrivateDirs) {
  const std::string dir = dir_ + "/a/b";
  ASSERT_TRUE(MakePrivateDir(dir, "X").ok());
  ASSERT_TRUE(MakePrivateDir(dir, "X").ok());
  struct stat st;
  ASSERT_EQ(stat(dir.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
  std::ofstream(dir_ + "/file") << "x";
  const Status refused = MakePrivateDir(dir_ + "/file", "ARCHIL_X_DIR");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("ARCHIL_X_DIR"), std::string_view::npos);
}

// ---- state file

TEST_F(CliTest, StateFileKnowsItsDeadPredecessor) {
  const MountIdentity id{"s:1", "disk", "/m"};
  {
    auto first = StateFile::Lock(dir_, id);
    ASSERT_TRUE(first.ok());
    EXPECT_FALSE(first->Predecessor().session);
    ASSERT_TRUE(first->Record({SessionId(5), {6, ~0ULL}}).ok());
    EXPECT_EQ(StateFile::Lock(dir_, id).code(), Code::kBusy) << "its daemon lives";
    // Another mount point of the same disk must not take a living one for dead.
    auto other = StateFile::Lock(dir_, {"s:1", "disk", "/other"});
    ASSERT_TRUE(other.ok());
    EXPECT_FALSE(other->Predecessor().session);
    other->Discard();
  }
  {
    auto second = StateFile::Lock(dir_, id);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second->Predecessor().session, SessionId(5));
    EXPECT_EQ(second->Predecessor().key, (SessionKey{6, ~0ULL}));
    second->Discard();  // no session came about: the record stays
  }
  {
    auto elsewhere = StateFile::Lock(dir_, {"s:1", "disk", "/other"});
    ASSERT_TRUE(elsewhere.ok());
    EXPECT_EQ(elsewhere->Predecessor().session, SessionId(5));
    ASSERT_TRUE(elsewhere->Record({SessionId(7), {}}).ok());
    EXPECT_FALSE(StateFile::Lock(dir_, {"s:1", "disk2", "/m"})->Predecessor().session);
    EXPECT_FALSE(StateFile::Lock(dir_, {"s:2", "disk", "/m"})->Predecessor().session);
    EXPECT_FALSE(StateFile::Lock(dir_, id)->Predecessor().session) << "its session was replaced";
    elsewhere->Clear();
  }
  EXPECT_FALSE(StateFile::Lock(dir_, {"s:1", "disk", "/other"})->Predecessor().session);
}

TEST_F(CliTest, DamagedStateFileIsNone) {
  const MountIdentity id{"s:1", "disk", "/m"};
  ASSERT_TRUE(StateFile::Lock(dir_, id)->Record({SessionId(5), {6, 7}}).ok());
  const auto names = RealFiles().List(dir_);
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 1u);
  std::ofstream(dir_ + "/" + (*names)[0], std::ios::trunc) << "{\"session\": ";
  EXPECT_FALSE(StateFile::Lock(dir_, id)->Predecessor().session);
}

// ---- control socket

Json Request(const char* command) {
  Json j;
  j.Set("command", command);
  return j;
}

TEST_F(CliTest, ControlCallsProgressAndManyAtOnce) {
  const std::string path = dir_ + "/c.sock";
  Notification release(RealScheduler());
  ControlServer server(RealScheduler(), path, [&](const Json& request, const ControlServer::Progress& progress) {
    Json reply;
    reply.Set("echo", request.GetString("command"));
    if (request.GetString("command") == "slow") {
      progress(Request("working"));
      release.Wait();
    }
    return reply;
  });
  EXPECT_EQ(ControlClient::Connect(path).code(), Code::kNotFound);
  ASSERT_TRUE(server.Start().ok());
  struct stat st;
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);

  auto slow = RealScheduler().Spawn("slow", [&] {
    auto client = ControlClient::Connect(path);
    ASSERT_TRUE(client.ok());
    int lines = 0;
    const auto reply = client->Call(Request("slow"), absl::Seconds(20), [&](const Json&) { ++lines; });
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply->GetString("echo"), "slow");
    EXPECT_EQ(lines, 1);
  });
  for (int i = 0; i < 100; ++i) {
    auto client = ControlClient::Connect(path);
    ASSERT_TRUE(client.ok());
    EXPECT_EQ(client->daemon_pid(), getpid());
    EXPECT_EQ(client->Call(Request("quick"), absl::Seconds(20))->GetString("echo"), "quick");
  }
  release.Notify();
  slow->Join();
  server.Stop();
  EXPECT_EQ(ControlClient::Connect(path).code(), Code::kNotFound);
  EXPECT_NE(stat(path.c_str(), &st), 0);
}

TEST_F(CliTest, ControlServerSurvivesNonsenseAndSilence) {
  const std::string path = dir_ + "/c.sock";
  ControlServer server(RealScheduler(), path, [](const Json&, const ControlServer::Progress&) { return Json(Json::Object()); });
  ASSERT_TRUE(server.Start().ok());
  auto raw = [&](std::string_view bytes) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    return fd;
  };
  close(raw("not json\n"));
  close(raw(std::string(10000, '[') + "\n"));
  close(raw("{\"command\": \"cut o"));
  const int silent = raw("");
  EXPECT_TRUE(ControlClient::Connect(path)->Call(Request("x"), absl::Seconds(20)).ok());
  server.Stop();  // does not wait for the silent one
  close(silent);
}

TEST_F(CliTest, ADeadSocketIsReplacedALivingOneIsNot) {
  const std::string path = dir_ + "/c.sock";
  auto handler = [](const Json&, const ControlServer::Progress&) { return Json(Json::Object()); };
  const pid_t pid = fork();
  if (pid == 0) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    _exit(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && listen(fd, 1) == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  ASSERT_EQ(status, 0);
  ControlServer server(RealScheduler(), path, handler);
  ASSERT_TRUE(server.Start().ok());
  ControlServer second(RealScheduler(), path, handler);
  EXPECT_EQ(second.Start().code(), Code::kBusy);
}

// ---- the rest

TEST_F(CliTest, DaemonizeReportsOrSaysThatItDied) {
  const std::string log = dir_ + "/log";
  const int refused = Daemonize(log, [](const std::function<void(const Report&)>& report) {
    report({kExitHeldElsewhere, ""});
    return 0;
  });
  EXPECT_EQ(refused, kExitHeldElsewhere);
  EXPECT_EQ(Daemonize(log, [](const std::function<void(const Report&)>&) { return 0; }), kExitFailure);
  EXPECT_EQ(Daemonize(log, [](const std::function<void(const Report&)>& report) {
              char cwd[16] = "";
              const bool own = getsid(0) == getpid() && getcwd(cwd, sizeof(cwd)) != nullptr && std::string(cwd) == "/";
              report({own ? kExitOk : kExitFailure, ""});
              return 0;
            }),
            kExitOk);
  EXPECT_EQ(Daemonize(dir_ + "/no/such/log", [](const std::function<void(const Report&)>&) { return 0; }), kExitFailure);
  while (waitpid(-1, nullptr, 0) > 0) {
  }
}

TEST_F(CliTest, HoldersAreFoundWithoutTouchingThePlace) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const bool inside = chdir(dir_.c_str()) == 0 && write(ready[1], "y", 1) == 1;
    if (inside) pause();
    _exit(1);
  }
  char c = 0;
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  const auto holders = FindHolders(dir_, 5, absl::Seconds(20));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  ASSERT_EQ(holders.size(), 1u);
  EXPECT_EQ(holders[0].pid, pid);
  EXPECT_EQ(holders[0].path, dir_);
  EXPECT_TRUE(FindHolders(dir_ + "x", 5, absl::Seconds(20)).empty());
}

TEST(CliTexts, ExitCodesAndBytes) {
  EXPECT_EQ(ExitCodeOf(Code::kOk), 0);
  EXPECT_EQ(ExitCodeOf(Code::kUnavailable), 3);
  EXPECT_EQ(ExitCodeOf(Code::kNoSuchDisk), 4);
  EXPECT_EQ(ExitCodeOf(Code::kHeldElsewhere), 6);
  EXPECT_EQ(ExitCodeOf(Code::kPermission), 7);
  EXPECT_EQ(ExitCodeOf(Code::kCorrupt), 1);
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(5ULL << 40), "5.0 TiB");
}

}  // namespace
}  // namespace archil::cli
