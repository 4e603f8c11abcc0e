// Replay where something is in the way: names that are taken, things of another kind, symbolic links out of the
// directory, bad logs.
#include "tests/unit/client/recovery/replay_world.h"

namespace archil {
namespace {

using Strings = std::vector<std::string>;

class ReplayRefusals : public ReplayTest {
 protected:
  void SetUp() override {
    ReplayTest::SetUp();
    ASSERT_EQ(mkdir((base_ + "/outside").c_str(), 0755), 0);
    std::ofstream(base_ + "/outside/file") << "secret";
  }
  void TearDown() override {
    std::ifstream in(base_ + "/outside/file");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "secret");
    EXPECT_EQ(RealFiles().List(base_ + "/outside").value(), (Strings{"file"}));
    EXPECT_EQ(RealFiles().List(base_).value(), (Strings{"outside", "top"}));
    ReplayTest::TearDown();
  }
  void Symlink(const std::string& target, const std::string& path) {
    ASSERT_EQ(symlink(target.c_str(), At(path).c_str()), 0);
  }
};

// ---- names that are taken

TEST_F(ReplayRefusals, CreatesMeetNames) {
  Put("file", "theirs");
  MakeDirAt("dir");
  Put("dir/inside", "theirs");
  Create(1, "file", 10);
  Write(10, 0, "ours");
  Create(1, "dir", 11, FileType::kDirectory, 0700);
  Create(11, "inside", 12);
  Write(12, 0, "ours");
  log_.ops.push_back(LinkOp{InodeId{12}, kTop, "file"});
  EXPECT_EQ(Run(), "bdbddb");
  EXPECT_EQ(List(), (Strings{"dir", "dir.recovered", "file", "file.recovered", "file.recovered-2"}));
  EXPECT_EQ(Get("file"), "theirs");
  EXPECT_EQ(Get("file.recovered"), "ours");
  EXPECT_EQ(Get("dir/inside"), "theirs");
  EXPECT_EQ(Get("dir.recovered/inside"), "ours");
  EXPECT_EQ(Detail(0), "made as /file.recovered, for /file exists");
  EXPECT_EQ(Stat("file.recovered-2").st_ino, Stat("dir.recovered/inside").st_ino);
}

TEST_F(ReplayRefusals, CreatesReplaceNamesIfWanted) {
  Put("file", "theirs");
  ASSERT_EQ(link(At("file").c_str(), At("their other name").c_str()), 0);
  MakeDirAt("dir");
  Put("dir/inside", "theirs");
  MakeDirAt("kind");
  Put("kind 2", "theirs");
  Create(1, "file", 10);
  Write(10, 0, "ours");
  Create(1, "dir", 11, FileType::kDirectory, 0711);
  Create(11, "new", 12);
  Create(1, "kind", 13);
  Create(1, "kind 2", 14, FileType::kDirectory);
  EXPECT_EQ(Overwrite(), "ddddbb");
  EXPECT_EQ(Get("file"), "ours");
  EXPECT_EQ(Get("their other name"), "theirs");
  EXPECT_EQ(List("dir"), (Strings{"inside", "new"}));
  EXPECT_EQ(Stat("dir").st_mode & 07777, 0711u);
  EXPECT_TRUE(S_ISDIR(Stat("kind").st_mode));
  EXPECT_TRUE(S_ISREG(Stat("kind.recovered").st_mode));
  EXPECT_EQ(Get("kind 2"), "theirs");
  EXPECT_TRUE(S_ISDIR(Stat("kind 2.recovered").st_mode));
}

// What an editor does: the new content must not take the place of what somebody else saved meanwhile.
TEST_F(ReplayRefusals, SavedByRename) {
  Put("text", "theirs");
  Base(6, 1, "text");
  Create(1, "text.tmp", 10);
  Write(10, 0, "first");
  Rename(1, "text.tmp", 1, "text", 10, 6);
  Create(1, "text.tmp", 11);
  Write(11, 0, "second");
  Rename(1, "text.tmp", 1, "text", 11, 10);
  EXPECT_EQ(Run(), "ddbddb");
  EXPECT_EQ(List(), (Strings{"text", "text.recovered"}));
  EXPECT_EQ(Get("text"), "theirs");
  EXPECT_EQ(Get("text.recovered"), "second");
  EXPECT_EQ(Overwrite(), "dddddd");
  EXPECT_EQ(Get("text"), "second");
  EXPECT_EQ(List(), (Strings{"text", "text.recovered"}));
}

TEST_F(ReplayRefusals, RenamesOntoNamesThatAreTaken) {
  Put("a", "theirs a");
  Put("b", "theirs b");
  MakeDirAt("dir");
  Put("dir/x", "x");
  Base(6, 1, "a");
  Rename(1, "a", 1, "b", 6);
  Create(1, "mine", 10, FileType::kDirectory);
  Rename(1, "mine", 1, "dir", 10);
  Create(10, "below", 11);
  EXPECT_EQ(Run(), "sdbd");
  EXPECT_EQ(Get("a"), "theirs a");
  EXPECT_EQ(Get("b"), "theirs b");
  EXPECT_EQ(List("dir"), (Strings{"x"}));
  EXPECT_EQ(List("dir.recovered"), (Strings{"below"}));
}

TEST_F(ReplayRefusals, ExchangesOfBaseFilesOnlyIfWanted) {
  Put("a", "a");
  Put("b", "b");
  Base(6, 1, "a");
  Base(7, 1, "b");
  Rename(1, "a", 1, "b", 6, 7, RenameOp::Mode::kExchange);
  Write(6, 1, "+");
  EXPECT_EQ(Run(), "sb");
  EXPECT_EQ(Get("a"), "a");
  EXPECT_EQ(Get("a.recovered"), std::string("\0+", 2));
  unlink(At("a.recovered").c_str());
  EXPECT_EQ(Overwrite(), "dd");
  EXPECT_EQ(Get("a"), "b");
  EXPECT_EQ(Get("b"), "a+");
}

TEST_F(ReplayRefusals, LongNamesBesideOthers) {
  const std::string name(255, 'n');
  Put(name, "theirs");
  Create(1, name, 10);
  Write(10, 0, "ours");
  EXPECT_EQ(Run(), "bd");
  EXPECT_EQ(Get(std::string(245, 'n') + ".recovered"), "ours");
}

TEST_F(ReplayRefusals, DirectoriesThatAreNotEmptyStay) {
  Create(1, "dir", 10, FileType::kDirectory);
  Create(10, "file", 11);
  log_.ops.push_back(RmdirOp{kTop, "dir", InodeId{10}});  // as if the unlink before it were missing
  EXPECT_EQ(Run(), "dds");
  EXPECT_TRUE(Exists("dir/file"));
}

TEST_F(ReplayRefusals, WhatWasNotMadeIsNotWritten) {
  Put("no directory", "x");
  Base(5, 1, "no directory");
  Create(5, "file", 10);
  Write(10, 0, "x");
  log_.ops.push_back(LinkOp{InodeId{10}, kTop, "link"});
  Rename(5, "file", 1, "moved", 10);
  log_.ops.push_back(TouchOp{InodeId{10}});
  Unlink(1, "moved", 10);
  EXPECT_EQ(Run(), "sssssn");
  EXPECT_EQ(List(), (Strings{"no directory"}));
}

// ---- symbolic links

TEST_F(ReplayRefusals, NoSymlinkIsFollowed) {
  Symlink("../outside", "dir");
  Symlink("../outside/file", "file");
  Symlink("nowhere", "dangling");
  Base(5, 1, "dir");
  Base(6, 1, "file");
  Base(7, 5, "file");
  Base(8, 1, "dangling");
  for (const uint64_t without_bytes : {9, 11, 12}) Base(without_bytes, 5, "file");
  for (const ReplayMode mode : {ReplayMode::kKeep, ReplayMode::kOverwrite}) {
    log_.ops.clear();
    Create(5, "new", 10);
    Write(6, 0, "x");
    Write(7, 0, "x");
    Unlink(5, "file", 9);
    Rename(5, "file", 1, "stolen", 11);
    log_.ops.push_back(LinkOp{InodeId{12}, kTop, "stolen"});
    Write(8, 0, "x");
    EXPECT_EQ(Run(mode), "sbssssb");
    EXPECT_EQ(Get("file.recovered"), "x");
    EXPECT_EQ(Get("dangling.recovered"), "x");
    EXPECT_FALSE(Exists("stolen"));
    EXPECT_FALSE(Exists("nowhere"));
  }
  // Attributes are those of the link itself, or nobody's.
  log_.ops.clear();
  log_.ops.push_back(
      SetAttrOp{.ino = InodeId{6}, .fields = SetAttrOp::kMode | SetAttrOp::kMtime, .mode = 0777, .mtime = {4, 4}});
  EXPECT_EQ(Overwrite(), "d");
  EXPECT_EQ(Stat("file").st_mtim.tv_sec, 4);
  struct stat st {};
  ASSERT_EQ(stat((base_ + "/outside/file").c_str(), &st), 0);
  EXPECT_NE(st.st_mode & 0777, 0777u);
  EXPECT_NE(st.st_mtim.tv_sec, 4);
}

// A symlink of the log itself, and ops that go on as if it were a directory.
TEST_F(ReplayRefusals, SymlinksOfTheLogAreNotFollowedEither) {
  Create(1, "link", 10, FileType::kSymlink);
  std::get<CreateOp>(log_.ops.back()).target = "../outside";
  Create(10, "new", 11);
  Write(10, 0, "x");
  log_.ops.push_back(SetAttrOp{.ino = InodeId{10}, .fields = SetAttrOp::kSize, .size = 0});
  EXPECT_EQ(Run(), "dsss");
}

// ---- other kinds, bad logs

TEST_F(ReplayRefusals, PipesAndDevicesAreNotOpened) {
  ASSERT_EQ(mkfifo(At("pipe").c_str(), 0600), 0);
  Base(6, 1, "pipe");
  Write(6, 0, "x");
  EXPECT_EQ(Run(), "b");
  EXPECT_EQ(Overwrite(), "b");
  EXPECT_EQ(List(), (Strings{"pipe", "pipe.recovered", "pipe.recovered-2"}));
}

TEST_F(ReplayRefusals, NamesThatAreNone) {
  for (const char* name : {"..", ".", "", "../outside/x", "a/b"}) {
    Create(1, name, 10);
    Write(10, 0, "x");
  }
  Base(20, 1, "..");
  Base(21, 20, "outside");
  Base(22, 21, "file");
  Write(22, 0, "x");
  Unlink(21, "file", 22);
  Rename(1, "x", 21, "file", 30);
  Create(1, std::string("nul\0x", 5), 40);
  for (const ReplayMode mode : {ReplayMode::kKeep, ReplayMode::kOverwrite}) {
    EXPECT_EQ(Run(mode).find_first_not_of("s"), std::string::npos);
    EXPECT_EQ(List(), Strings());
  }
}

TEST_F(ReplayRefusals, CirclesEnd) {
  Base(5, 6, "a");
  Base(6, 5, "b");
  Write(5, 0, "x");
  Create(6, "c", 10);
  Create(1, "d", 11, FileType::kDirectory);
  Rename(1, "d", 11, "e", 11);
  EXPECT_EQ(Run(), "ssds");
  EXPECT_EQ(List(), (Strings{"d"}));
}

TEST_F(ReplayRefusals, ADirectoryIsNeeded) {
  EXPECT_EQ(Replay(log_, base_ + "/none", ReplayMode::kKeep).code(), Code::kNotFound);
  EXPECT_EQ(Replay(log_, base_ + "/outside/file", ReplayMode::kKeep).code(), Code::kNotDirectory);
}

}  // namespace
}  // namespace archil
