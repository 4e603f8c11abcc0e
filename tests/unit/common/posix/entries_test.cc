#include "common/posix/entries.h"

#include <gtest/gtest.h>

namespace archil {
namespace {

constexpr FileType kAllTypes[] = {FileType::kRegular, FileType::kDirectory,  FileType::kSymlink,    FileType::kFifo,
                                  FileType::kSocket,  FileType::kCharDevice, FileType::kBlockDevice};

TEST(Entries, Names) {
  const struct {
    std::string name;
    Code code;
  } cases[] = {
      {"a", Code::kOk},
      {"...", Code::kOk},
      {".hidden", Code::kOk},
      {" ", Code::kOk},
      {"\xff\xfe not UTF-8", Code::kOk},
      {"new\nline", Code::kOk},
      {std::string(255, 'x'), Code::kOk},
      {std::string(256, 'x'), Code::kNameTooLong},
      {std::string(300, '/'), Code::kNameTooLong},
      {"", Code::kNotFound},
      {".", Code::kInvalid},
      {"..", Code::kInvalid},
      {"a/b", Code::kInvalid},
      {"/", Code::kInvalid},
      {std::string("a\0b", 3), Code::kInvalid},
      {std::string(1, '\0'), Code::kInvalid},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(CheckName(c.name), c.code) << c.name;
    EXPECT_EQ(CheckName(c.name) == Code::kOk, IsValidName(c.name)) << c.name;
  }
}

TEST(Entries, LinkCounts) {
  for (const FileType type : kAllTypes) {
    const bool dir = type == FileType::kDirectory;
    EXPECT_EQ(InitialNlink(type), dir ? 2u : 1u);
    EXPECT_EQ(ParentNlinkOf(type), dir ? 1 : 0);
  }
}

TEST(Entries, Link) {
  for (const FileType type : kAllTypes) {
    const bool dir = type == FileType::kDirectory;
    EXPECT_EQ(CheckLink(type, 1), dir ? Code::kPermission : Code::kOk);
    EXPECT_EQ(CheckLink(type, 0), dir ? Code::kPermission : Code::kNotFound);
    EXPECT_EQ(CheckLink(type, kMaxLinks - 1), dir ? Code::kPermission : Code::kOk);
    EXPECT_EQ(CheckLink(type, kMaxLinks), dir ? Code::kPermission : Code::kTooManyLinks);
  }
}

TEST(Entries, Removal) {
  for (const FileType type : kAllTypes) {
    const bool dir = type == FileType::kDirectory;
    EXPECT_EQ(CheckUnlink(type), dir ? Code::kIsDirectory : Code::kOk);
    EXPECT_EQ(CheckRmdir(InodeId{9}, type, true), dir ? Code::kOk : Code::kNotDirectory);
    EXPECT_EQ(CheckRmdir(InodeId{9}, type, false), dir ? Code::kNotEmpty : Code::kNotDirectory);
  }
  EXPECT_EQ(CheckRmdir(kRootInode, FileType::kDirectory, true), Code::kBusy);
}

}  // namespace
}  // namespace archil
