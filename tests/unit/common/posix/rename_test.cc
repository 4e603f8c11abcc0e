#include "common/posix/rename.h"

#include <gtest/gtest.h>

#include <tuple>

namespace archil {
namespace {

using Mode = RenameOp::Mode;
constexpr FileType kFile = FileType::kRegular;
constexpr FileType kDir = FileType::kDirectory;

RenameFacts Facts(Mode mode, FileType source) {
  RenameFacts f;
  f.mode = mode;
  f.source = InodeId{10};
  f.source_type = source;
  return f;
}
RenameFacts Facts(Mode mode, FileType source, FileType target, bool empty = true) {
  RenameFacts f = Facts(mode, source);
  f.target = InodeId{11};
  f.target_type = target;
  f.target_empty = empty;
  return f;
}

std::tuple<RenameAction, int32_t, int32_t> Does(const RenameFacts& f) {
  const RenameDecision d = DecideRename(f);
  EXPECT_EQ(d.code, Code::kOk) << CodeName(d.code);
  return {d.action, d.old_parent_nlink, d.new_parent_nlink};
}
Code Refuses(const RenameFacts& f) { return DecideRename(f).code; }

TEST(Rename, ToAFreeName) {
  for (const Mode mode : {Mode::kPlain, Mode::kNoReplace}) {
    EXPECT_EQ(Does(Facts(mode, kFile)), std::tuple(RenameAction::kMove, 0, 0));
    EXPECT_EQ(Does(Facts(mode, kDir)), std::tuple(RenameAction::kMove, -1, 1));
    EXPECT_EQ(Does(Facts(mode, FileType::kSymlink)), std::tuple(RenameAction::kMove, 0, 0));
  }
  EXPECT_EQ(Refuses(Facts(Mode::kExchange, kFile)), Code::kNotFound);
}

TEST(Rename, OverAnother) {
  EXPECT_EQ(Does(Facts(Mode::kPlain, kFile, kFile)), std::tuple(RenameAction::kReplace, 0, 0));
  EXPECT_EQ(Does(Facts(Mode::kPlain, kFile, FileType::kSymlink)), std::tuple(RenameAction::kReplace, 0, 0));
  EXPECT_EQ(Does(Facts(Mode::kPlain, kDir, kDir)), std::tuple(RenameAction::kReplace, -1, 0));
  EXPECT_EQ(Refuses(Facts(Mode::kPlain, kDir, kDir, false)), Code::kNotEmpty);
  EXPECT_EQ(Refuses(Facts(Mode::kPlain, kDir, kFile)), Code::kNotDirectory);
  EXPECT_EQ(Refuses(Facts(Mode::kPlain, FileType::kSymlink, kDir)), Code::kIsDirectory);
  EXPECT_EQ(Refuses(Facts(Mode::kPlain, kFile, kDir, false)), Code::kIsDirectory);
}

TEST(Rename, NoReplace) {
  for (const FileType target : {kFile, kDir}) {
    EXPECT_EQ(Refuses(Facts(Mode::kNoReplace, kFile, target)), Code::kExists);
    EXPECT_EQ(Refuses(Facts(Mode::kNoReplace, kDir, target)), Code::kExists);
  }
  RenameFacts same = Facts(Mode::kNoReplace, kFile, kFile);
  same.target = same.source;
  EXPECT_EQ(Refuses(same), Code::kExists);
}

// rename(2): "If oldpath and newpath are existing hard links referring to the same file, then rename() does nothing".
TEST(Rename, OntoAnotherNameOfItself) {
  for (const Mode mode : {Mode::kPlain, Mode::kExchange}) {
    RenameFacts f = Facts(mode, kFile, kFile);
    f.target = f.source;
    EXPECT_EQ(Does(f), std::tuple(RenameAction::kNothing, 0, 0));
  }
}

TEST(Rename, Exchange) {
  EXPECT_EQ(Does(Facts(Mode::kExchange, kFile, kFile)), std::tuple(RenameAction::kExchange, 0, 0));
  EXPECT_EQ(Does(Facts(Mode::kExchange, kDir, kDir, false)), std::tuple(RenameAction::kExchange, 0, 0));
  EXPECT_EQ(Does(Facts(Mode::kExchange, kDir, kFile)), std::tuple(RenameAction::kExchange, -1, 1));
  EXPECT_EQ(Does(Facts(Mode::kExchange, kFile, kDir, false)), std::tuple(RenameAction::kExchange, 1, -1));
}

TEST(Rename, NoLoops) {
  RenameFacts into_itself = Facts(Mode::kPlain, kDir);
  into_itself.source_above_new_parent = true;
  EXPECT_EQ(Refuses(into_itself), Code::kInvalid);
  for (const Mode mode : {Mode::kPlain, Mode::kExchange}) {
    RenameFacts onto_a_descendant = Facts(mode, kDir, kFile);
    onto_a_descendant.source_above_new_parent = true;
    EXPECT_EQ(Refuses(onto_a_descendant), Code::kInvalid);
    RenameFacts onto_an_ancestor = Facts(mode, kFile, kDir, false);
    onto_an_ancestor.target_above_old_parent = true;
    EXPECT_EQ(Refuses(onto_an_ancestor), mode == Mode::kPlain ? Code::kNotEmpty : Code::kInvalid);
  }
}

// Link counts are conserved: the tree as a whole gains or loses only the replaced directory.
TEST(Rename, LinkCountsAddUp) {
  for (const Mode mode : {Mode::kPlain, Mode::kExchange}) {
    for (const FileType source : {kFile, kDir, FileType::kSymlink}) {
      for (const FileType target : {kFile, kDir, FileType::kSymlink}) {
        const RenameDecision d = DecideRename(Facts(mode, source, target));
        if (d.code != Code::kOk) continue;
        const int32_t lost = d.action == RenameAction::kReplace && target == kDir ? 1 : 0;
        EXPECT_EQ(d.old_parent_nlink + d.new_parent_nlink, -lost);
      }
    }
  }
}

}  // namespace
}  // namespace archil
