#include "common/obs/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "common/env/files.h"
#include "common/env/sched.h"

namespace archil {
namespace {

class TestClock : public Clock {
 public:
  absl::Time Wall() override { return absl::FromUnixMillis(1'000'000'000'123); }
  BootTime Boot() override { return {now}; }
  absl::Duration now = absl::Seconds(100);
};

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string dir = testing::TempDir() + "archil_log_XXXXXX";
    ASSERT_NE(mkdtemp(dir.data()), nullptr);
    dir_ = dir;
    path_ = JoinPath(dir_, "log");
  }
  void TearDown() override {
    ASSERT_TRUE(StartLog({}).ok());  // gives up the file and the clock
    ASSERT_TRUE(RealFiles().RemoveTree(dir_).ok());
  }
  void Start(LogConfig config = {}) {
    config.file = path_;
    ASSERT_TRUE(StartLog(config, clock_).ok());
  }
  std::vector<std::string> Lines() {
    FlushLog();
    auto text = ReadWholeFile(RealFiles(), path_);
    EXPECT_TRUE(text.ok());
    std::vector<std::string> lines;
    for (size_t at = 0; at < text->size();) {
      const size_t end = text->find('\n', at);
      EXPECT_NE(end, std::string::npos);
      lines.push_back(text->substr(at, end - at));
      at = end + 1;
    }
    return lines;
  }

  TestClock clock_;
  std::string dir_, path_;
};

TEST(LogLine, Fields) {
  EXPECT_EQ(FormatLogLine("event", {}), "event");
  const std::string text = "a b";
  EXPECT_EQ(FormatLogLine("commit done", {{"ino", InodeId{7}}, {"n", -3}, {"big", ~0ULL}, {"yes", true},
                                          {"part", 0.5}, {"took", absl::Milliseconds(1500)}, {"name", text},
                                          {"plain", "x/y.z"}, {"empty", ""}}),
            "commit done ino=7 n=-3 big=18446744073709551615 yes=true part=0.5 took=1.5s name=\"a b\" plain=x/y.z "
            "empty=\"\"");
}

// A file name must not be able to write lines of its own.
TEST(LogLine, HostileValuesStayInTheirLine) {
  EXPECT_EQ(FormatLogLine("e", {{"name", "a\nERROR forged=\"1\"\x1b[0m\\"}}),
            "e name=\"a\\nERROR forged=\\\"1\\\"\\x1b[0m\\\\\"");
  EXPECT_EQ(FormatLogLine("e\n", {{"k\n", std::string_view("\0", 1)}}), "e\\n k\\n=\"\\x00\"");
  for (const char* text : {"x", "\n"}) {
    std::string huge;
    for (int i = 0; i < 100'000; ++i) huge += text;
    const std::string line = FormatLogLine("e", {{"v", huge}, {"w", huge}});
    EXPECT_EQ(line.size(), kMaxLogLine);
    EXPECT_TRUE(line.ends_with("..."));
  }
}

TEST(LogLevelName, Parse) {
  EXPECT_EQ(*ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(*ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(*ParseLogLevel("off"), LogLevel::kOff);
  EXPECT_EQ(ParseLogLevel("loud").code(), Code::kInvalid);
}

TEST_F(LogTest, WritesToTheFileAndAppends) {
  Start();
  LogInfo("started", {{"pid", 5}});
  Start();
  LogError("failed");
  EXPECT_EQ(Lines(), (std::vector<std::string>{"2001-09-09T01:46:40.123Z INFO started pid=5",
                                               "2001-09-09T01:46:40.123Z ERROR failed"}));
}

TEST_F(LogTest, Levels) {
  Start({.level = LogLevel::kWarning});
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  LogDebug("d");
  LogInfo("i");
  LogWarning("w");
  SetLogLevel(LogLevel::kDebug);
  LogDebug("d2");
  SetLogLevel(LogLevel::kOff);
  LogError("e");
  ASSERT_EQ(Lines().size(), 2u);
  EXPECT_TRUE(Lines()[0].ends_with("WARN w"));
  EXPECT_TRUE(Lines()[1].ends_with("DEBUG d2"));
}

TEST_F(LogTest, OneCallSiteCannotFillTheLog) {
  Start({.burst = 3, .refill = absl::Seconds(1)});
  const uint64_t before = LogLinesSuppressed();
  auto noisy = [] { LogWarning("noisy"); };
  for (int i = 0; i < 10; ++i) noisy();
  LogWarning("another site");
  EXPECT_EQ(Lines().size(), 4u);
  EXPECT_EQ(LogLinesSuppressed() - before, 7u);
  clock_.now += absl::Seconds(1);
  noisy();
  noisy();
  ASSERT_EQ(Lines().size(), 5u);
  EXPECT_TRUE(Lines()[4].ends_with("WARN noisy suppressed=7"));
  clock_.now += absl::Hours(1);  // never more than a burst
  for (int i = 0; i < 10; ++i) noisy();
  EXPECT_EQ(Lines().size(), 8u);
  EXPECT_TRUE(Lines()[5].ends_with("WARN noisy suppressed=1"));
}

TEST_F(LogTest, FileHasALimit) {
  Start({.max_file_bytes = 4096, .burst = 0});
  for (int i = 0; i < 1000; ++i) LogInfo("line", {{"i", i}});
  FlushLog();
  uint64_t total = 0;
  auto names = RealFiles().List(dir_);
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(names->size(), 2u);
  for (const std::string& name : *names) total += ReadWholeFile(RealFiles(), JoinPath(dir_, name))->size();
  EXPECT_LE(total, 2 * 4096u);
  EXPECT_TRUE(Lines().back().ends_with("i=999"));
}

TEST_F(LogTest, FileThatCannotBeOpenedIsAnErrorAndChangesNothing) {
  Start();
  const Status status = StartLog({.file = JoinPath(path_, "below/a/file")}, clock_);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.error().message().find(path_), std::string_view::npos);
  LogInfo("still here");
  EXPECT_EQ(Lines().size(), 1u);
}

TEST_F(LogTest, ManyThreadsWriteWholeLines) {
  Start({.burst = 0});
  std::vector<std::unique_ptr<Thread>> threads;
  for (int t = 0; t < 4; ++t) {
    threads.push_back(RealScheduler().Spawn("log", [t] {
      for (int i = 0; i < 500; ++i) LogInfo("line", {{"thread", t}, {"pad", std::string(100, 'x')}});
    }));
  }
  for (auto& thread : threads) thread->Join();
  const auto lines = Lines();
  EXPECT_EQ(lines.size(), 2000u);
  for (const std::string& line : lines) ASSERT_TRUE(line.ends_with(" pad=" + std::string(100, 'x'))) << line;
}

}  // namespace
}  // namespace archil
