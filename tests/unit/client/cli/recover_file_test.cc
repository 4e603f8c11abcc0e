// `archil recover-file`: what it prints, JSON, exit codes, and replay as a person starts it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/json.h"
#include "client/cli/paths.h"
#include "client/recovery/lost_format.h"
#include "client/recovery/lost_log.h"
#include "tests/support/scratch_dir.h"

namespace archil::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RecoverFile : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(mkdir((dir_ + "/to").c_str(), 0755), 0);
    log_.disk = "photos";
    log_.branch = "main";
    log_.client_name = "laptop:77:/mnt";
    log_.reason = "silent past its lease";
    log_.session = SessionId{31};
    log_.when = {1'767'225'600, 0};
    log_.root = kRootInode;
    log_.names[InodeId{5}] = {kRootInode, "dir"};
    log_.names[InodeId{6}] = {InodeId{5}, "base"};
    CreateOp create{.parent = InodeId{5}, .name = "new\x1b", .ino = InodeId{10}, .mode = 0644};
    create.uid = getuid();
    create.gid = getgid();
    log_.ops = {create, Write(10, "hello"), Write(6, "lost")};
  }
  static SetExtentsOp Write(uint64_t ino, const std::string& text) {
    Extent e{.offset = 0, .length = text.size(), .kind = ExtentKind::kInline, .data = Buffer::Copy(text)};
    return {.ino = InodeId{ino}, .extents = {e}, .size = text.size()};
  }
  std::string Saved() {
    const auto path = SaveLostLog(dir_ + "/lost", log_);
    EXPECT_TRUE(path.ok());
    return path.ok() ? *path : "";
  }
  int Run(const Argv& argv) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = RecoverFileCommand(argv);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  std::string Read(const std::string& path) {
    std::ifstream in(dir_ + "/to/" + path);
    return in ? std::string(std::istreambuf_iterator<char>(in), {}) : "(none)";
  }

  test::ScratchDir scratch_;
  const std::string dir_ = scratch_.path();
  std::string out_, err_;
  LostLog log_;
};

TEST_F(RecoverFile, Shows) {
  ASSERT_EQ(Run({Saved()}), kExitOk);
  EXPECT_EQ(out_,
            "disk        photos, branch main\n"
            "client      laptop:77:/mnt, session 31\n"
            "when        2026-01-01T00:00:00Z\n"
            "reason      silent past its lease\n"
            "operations  3, 9 bytes written\n"
            "\n"
            "create /dir/new\\x1b (mode 0644, owner " +
                std::to_string(getuid()) + ":" + std::to_string(getgid()) +
                ")\n"
                "write /dir/new\\x1b 5 bytes at 0\n"
                "write /dir/base 4 bytes at 0\n"
                "\n"
                "3 files and directories lost something:\n"
                "  directory /dir: 1 operations\n"
                "  file      /dir/base: 1 operations, 4 bytes written\n"
                "  file      /dir/new\\x1b (the disk has nothing of it): 2 operations, 5 bytes written\n");
  EXPECT_EQ(err_, "");
  EXPECT_EQ(Read("dir/base"), "(none)");
}

TEST_F(RecoverFile, ShowsJson) {
  ASSERT_EQ(Run({Saved(), "--json"}), kExitOk);
  const auto json = ParseJson(out_);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->GetString("disk"), "photos");
  EXPECT_EQ(json->GetNumber("bytes"), 9u);
  EXPECT_EQ(json->Find("operations")->array()->size(), 3u);
  EXPECT_EQ((*json->Find("operations")->array())[2].GetString("path"), "/dir/base");
  EXPECT_EQ((*json->Find("operations")->array())[2].GetNumber("bytes"), 4u);
  EXPECT_EQ((*json->Find("lost")->array())[1].GetString("path"), "/dir/base");
  EXPECT_EQ(json->Find("complete"), nullptr);
}

TEST_F(RecoverFile, Replays) {
  const std::string file = Saved();
  ASSERT_EQ(Run({file, "--replay", dir_ + "/to"}), kExitOk) << out_ << err_;
  EXPECT_EQ(Read("dir/new\x1b"), "hello");
  EXPECT_EQ(Read("dir/base"), "lost");
  EXPECT_THAT(out_, HasSubstr("done     create /dir/new\\x1b"));
  EXPECT_THAT(out_, HasSubstr("directory /dir was missing and was made"));
  EXPECT_THAT(out_, HasSubstr("it was not there: /dir/base was made, only what was lost is in it"));
  EXPECT_THAT(out_, HasSubstr("\n3 done, 0 with nothing to do, 0 put beside what was there, 0 skipped\n"));
  // Now everything is there already.
  ASSERT_EQ(Run({file, "--replay", dir_ + "/to", "--json"}), kExitFailure);
  const auto json = ParseJson(out_);
  ASSERT_TRUE(json.ok());
  EXPECT_FALSE(json->GetBool("complete", true));
  EXPECT_EQ((*json->Find("operations")->array())[2].GetString("outcome"), "beside");
  EXPECT_EQ(Read("dir/base.recovered"), "lost");
  ASSERT_EQ(Run({file, "--replay", dir_ + "/to", "--overwrite"}), kExitOk) << out_;
}

TEST_F(RecoverFile, DamagedTail) {
  const std::string file = Saved();
  struct stat st {};
  ASSERT_EQ(stat(file.c_str(), &st), 0);
  ASSERT_EQ(truncate(file.c_str(), st.st_size - 20), 0);
  ASSERT_EQ(Run({file}), kExitFailure);
  EXPECT_THAT(out_, HasSubstr("write /dir/new"));
  EXPECT_THAT(out_, Not(HasSubstr("write /dir/base")));
  EXPECT_THAT(err_, StartsWith("archil: the file is damaged: record 4 at byte "));
  EXPECT_THAT(err_, HasSubstr("2 of 3 operations are there"));
  ASSERT_EQ(Run({file, "--json", "--replay", dir_ + "/to"}), kExitFailure);
  EXPECT_THAT(ParseJson(out_)->GetString("damaged"), HasSubstr("2 of 3"));
  EXPECT_FALSE(ParseJson(out_)->GetBool("complete", true));
  EXPECT_EQ(Read("dir/new\x1b"), "hello");
}

TEST_F(RecoverFile, Refusals) {
  const std::string file = Saved();
  std::ofstream(dir_ + "/text") << "no such file";
  std::ofstream(dir_ + "/newer") << LostHeader(kLostLogVersion + 1);
  for (const Argv& argv :
       {Argv{}, Argv{file, "more"}, Argv{file, "--overwrite"}, Argv{file, "--replay"}, Argv{file, "--nonsense"},
        Argv{dir_ + "/none"}, Argv{dir_ + "/text"}, Argv{dir_}, Argv{dir_ + "/newer"},
        Argv{file, "--replay", dir_ + "/none"}, Argv{file, "--replay", file}}) {
    EXPECT_EQ(Run(argv), kExitUsage) << ::testing::PrintToString(argv);
    EXPECT_THAT(err_, StartsWith("archil: "));
    EXPECT_EQ(out_, "");
  }
  EXPECT_EQ(Run({dir_ + "/newer"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("newer than this program's"));
}

TEST_F(RecoverFile, WhereTheFilesAre) {
  setenv("ARCHIL_STATE_DIR", dir_.c_str(), 1);
  EXPECT_EQ(LostDir(), dir_ + "/lost");
  unsetenv("ARCHIL_STATE_DIR");
  if (geteuid() == 0) {
    EXPECT_EQ(LostDir(), "/var/lib/archil/lost");
  }
}

}  // namespace
}  // namespace archil::cli
