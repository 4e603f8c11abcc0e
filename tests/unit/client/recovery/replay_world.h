// A directory to replay into, a log to fill, and what to look at afterwards. ARCHIL_SMOKE_DIR: where the directory is made;
// else /tmp. The same tests run on a real mount (e2e_cli).
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "client/recovery/replay.h"
#include "common/env/files.h"
#include "tests/support/scratch_dir.h"

namespace archil {

constexpr InodeId kTop{1};

class ReplayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(mkdir(top_.c_str(), 0755), 0);
    log_.root = kTop;
  }

  // ARCHIL_SMOKE_DIR: on that file system, which may be a mount of ours.
  static std::string Below() {
    const char* where = getenv("ARCHIL_SMOKE_DIR");
    return where != nullptr ? where : testing::TempDir();
  }
  std::string At(const std::string& path) const { return top_ + "/" + path; }
  void Put(const std::string& path, const std::string& text) { std::ofstream(At(path)) << text; }
  void MakeDirAt(const std::string& path) { ASSERT_EQ(mkdir(At(path).c_str(), 0755), 0); }
  std::string Get(const std::string& path) const {
    std::ifstream in(At(path));
    return in ? std::string(std::istreambuf_iterator<char>(in), {}) : "(none)";
  }
  struct stat Stat(const std::string& path) const {
    struct stat st {};
    EXPECT_EQ(lstat(At(path).c_str(), &st), 0) << path;
    return st;
  }
  bool Exists(const std::string& path) const {
    struct stat st;
    return lstat(At(path).c_str(), &st) == 0;
  }
  std::vector<std::string> List(const std::string& path = "") const {
    auto names = RealFiles().List(At(path));
    EXPECT_TRUE(names.ok());
    return names.ok() ? *names : std::vector<std::string>();
  }

  // A base inode: known by name, made by nobody here.
  void Base(uint64_t ino, uint64_t parent, const std::string& name) {
    log_.names[InodeId{ino}] = {InodeId{parent}, name};
  }

  void Create(uint64_t parent, std::string name, uint64_t ino, FileType type = FileType::kRegular,
              uint32_t mode = 0640) {
    CreateOp op{.parent = InodeId{parent}, .name = std::move(name), .ino = InodeId{ino}, .type = type, .mode = mode};
    op.uid = getuid();
    op.gid = getgid();
    op.now = {1'000'000'000, 5};
    if (type == FileType::kDirectory) op.mode = mode | 0100;
    log_.ops.push_back(op);
  }
  void Write(uint64_t ino, uint64_t offset, std::string text, uint64_t size = 0) {
    Extent e{.offset = offset, .length = text.size(), .kind = ExtentKind::kInline};
    e.data = Buffer(std::move(text));
    WriteExtents(ino, {e}, std::max(size, e.end()));
  }
  void WriteExtents(uint64_t ino, std::vector<Extent> extents, uint64_t size) {
    log_.ops.push_back(SetExtentsOp{InodeId{ino}, std::move(extents), size, {1'100'000'000, 7}, {1'100'000'000, 7}, 0});
  }
  void Rename(uint64_t parent, std::string name, uint64_t to, std::string new_name, uint64_t ino, uint64_t victim = 0,
              RenameOp::Mode mode = RenameOp::Mode::kPlain) {
    log_.ops.push_back(RenameOp{InodeId{parent},
                                std::move(name),
                                InodeId{to},
                                std::move(new_name),
                                InodeId{ino},
                                InodeId{victim},
                                mode,
                                false,
                                {1'200'000'000, 9}});
  }
  void Unlink(uint64_t parent, std::string name, uint64_t ino) {
    log_.ops.push_back(UnlinkOp{InodeId{parent}, std::move(name), InodeId{ino}});
  }

  // Replays; the outcomes as one letter per op: d(one), n(othing), b(eside), s(kipped).
  std::string Run(ReplayMode mode = ReplayMode::kKeep) {
    auto report = Replay(log_, top_, mode);
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().ToString());
    if (!report.ok()) return "";
    report_ = std::move(*report);
    std::string letters;
    for (const OpOutcome& op : report_.ops) letters += OutcomeName(op.outcome)[0];
    for (const std::string& failure : report_.at_the_end) letters += "!" + failure;
    EXPECT_EQ(report_.Complete(), letters.find_first_not_of("dn") == std::string::npos);
    return letters;
  }
  std::string Overwrite() { return Run(ReplayMode::kOverwrite); }
  std::string Detail(size_t op) const { return report_.ops.at(op).detail; }

  test::ScratchDir scratch_{Below()};
  const std::string& base_ = scratch_.path();
  const std::string top_ = base_ + "/top";
  LostLog log_;
  ReplayReport report_;
};

}  // namespace archil
