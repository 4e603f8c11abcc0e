#include "common/posix/attributes.h"

#include <gtest/gtest.h>

namespace archil {
namespace {

// should_remove_suid() of Linux, and the table in the comment of FUSE_HANDLE_KILLPRIV_V2.
TEST(Attributes, SetIdBits) {
  const struct {
    uint32_t mode;
    uint32_t cleared;
  } cases[] = {
      {00644, 0},      {00777, 0},      {01777, 0},      {04755, 04000},  {04644, 04000},
      {02755, 02000},  {02745, 0},      {02644, 0},      {02010, 02000},  {06755, 06000},
      {06745, 04000},  {07777, 06000},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(SetIdClearedByWrite(FileType::kRegular, c.mode), c.cleared) << std::oct << c.mode;
    EXPECT_EQ(SetIdClearedByChown(FileType::kRegular, c.mode), c.cleared) << std::oct << c.mode;
    EXPECT_EQ(SetIdClearedByChown(FileType::kFifo, c.mode), c.cleared) << std::oct << c.mode;
    EXPECT_EQ(SetIdClearedByChown(FileType::kDirectory, c.mode), 0u) << std::oct << c.mode;
    EXPECT_EQ(SetIdClearedByWrite(FileType::kDirectory, c.mode), 0u) << std::oct << c.mode;
    EXPECT_EQ(SetIdClearedByWrite(FileType::kFifo, c.mode), 0u) << std::oct << c.mode;
  }
}

TEST(Attributes, OwnerOfNewInode) {
  Attr plain;
  plain.mode = 0755;
  plain.gid = 50;
  Attr setgid = plain;
  setgid.mode = 02775;
  EXPECT_EQ(OwnerOfNewInode(plain, FileType::kRegular, 0644, 100), (NewInodeOwner{100, 0644}));
  EXPECT_EQ(OwnerOfNewInode(plain, FileType::kDirectory, 0755, 100), (NewInodeOwner{100, 0755}));
  EXPECT_EQ(OwnerOfNewInode(plain, FileType::kRegular, 02755, 100), (NewInodeOwner{100, 02755}));
  EXPECT_EQ(OwnerOfNewInode(setgid, FileType::kRegular, 0644, 100), (NewInodeOwner{50, 0644}));
  EXPECT_EQ(OwnerOfNewInode(setgid, FileType::kSymlink, 0777, 100), (NewInodeOwner{50, 0777}));
  EXPECT_EQ(OwnerOfNewInode(setgid, FileType::kDirectory, 0755, 100), (NewInodeOwner{50, 02755}));
}

TEST(Attributes, Relatime) {
  const auto moves = [](Timestamp atime, Timestamp mtime, Timestamp ctime, Timestamp now) {
    Attr attr;
    attr.atime = atime;
    attr.mtime = mtime;
    attr.ctime = ctime;
    return RelatimeMoves(attr, now);
  };
  EXPECT_FALSE(moves({100, 1}, {100, 0}, {100, 0}, {200, 0}));
  EXPECT_TRUE(moves({100, 0}, {100, 0}, {99, 0}, {200, 0}));
  EXPECT_TRUE(moves({100, 0}, {99, 0}, {100, 0}, {200, 0}));
  EXPECT_TRUE(moves({100, 0}, {100, 1}, {99, 0}, {200, 0}));
  EXPECT_FALSE(moves({100, 5}, {1, 0}, {1, 0}, {100 + 86'400, 4}));
  EXPECT_TRUE(moves({100, 5}, {1, 0}, {1, 0}, {100 + 86'400, 5}));
  EXPECT_FALSE(moves({1000, 0}, {1, 0}, {1, 0}, {1, 0})) << "atime in the future";
  EXPECT_FALSE(moves({INT64_MAX, 0}, {1, 0}, {1, 0}, {1, 0}));
}

TEST(Attributes, Truncate) {
  EXPECT_EQ(CheckTruncate(FileType::kRegular, 0), Code::kOk);
  EXPECT_EQ(CheckTruncate(FileType::kRegular, kMaxFileSize), Code::kOk);
  EXPECT_EQ(CheckTruncate(FileType::kRegular, kMaxFileSize + 1), Code::kFileTooBig);
  EXPECT_EQ(CheckTruncate(FileType::kRegular, UINT64_MAX), Code::kFileTooBig);
  EXPECT_EQ(CheckTruncate(FileType::kDirectory, 0), Code::kIsDirectory);
  EXPECT_EQ(CheckTruncate(FileType::kSymlink, 0), Code::kInvalid);
  EXPECT_EQ(CheckTruncate(FileType::kFifo, 0), Code::kInvalid);
}

TEST(Attributes, WritableBytes) {
  const auto bytes = [](uint64_t offset, uint64_t length) {
    const auto r = WritableBytes(offset, length);
    return r.ok() ? static_cast<int64_t>(*r) : -static_cast<int64_t>(r.code());
  };
  const auto too_big = -static_cast<int64_t>(Code::kFileTooBig);
  EXPECT_EQ(bytes(0, 10), 10);
  EXPECT_EQ(bytes(kMaxFileSize - 10, 10), 10);
  EXPECT_EQ(bytes(kMaxFileSize - 10, 11), 10);
  EXPECT_EQ(bytes(kMaxFileSize - 1, UINT64_MAX), 1);
  EXPECT_EQ(bytes(kMaxFileSize, 1), too_big);
  EXPECT_EQ(bytes(UINT64_MAX, 1), too_big);
  EXPECT_EQ(bytes(kMaxFileSize, 0), 0);
  EXPECT_EQ(bytes(UINT64_MAX, 0), 0);
}

TEST(Attributes, Ranges) {
  EXPECT_EQ(CheckRange(0, 0), Code::kInvalid);
  EXPECT_EQ(CheckRange(0, 1), Code::kOk);
  EXPECT_EQ(CheckRange(0, kMaxFileSize), Code::kOk);
  EXPECT_EQ(CheckRange(1, kMaxFileSize), Code::kFileTooBig);
  EXPECT_EQ(CheckRange(kMaxFileSize, 1), Code::kFileTooBig);
  EXPECT_EQ(CheckRange(UINT64_MAX, UINT64_MAX), Code::kFileTooBig);
}

}  // namespace
}  // namespace archil
