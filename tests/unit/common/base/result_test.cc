#include "common/base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

#include "common/base/errno.h"
#include "common/base/time.h"

namespace archil {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return Error(Code::kInvalid, "odd");
  return n / 2;
}

Status Quarter(int n, int* out) {
  ARCHIL_ASSIGN_OR_RETURN(const int half, Half(n));
  ARCHIL_ASSIGN_OR_RETURN(*out, Half(half));
  return Ok();
}

TEST(Result, ValuesAndErrors) {
  EXPECT_EQ(*Half(4), 2);
  EXPECT_EQ(Half(4).code(), Code::kOk);
  const auto odd = Half(3);
  EXPECT_FALSE(odd.ok());
  EXPECT_EQ(odd.code(), Code::kInvalid);
  EXPECT_EQ(odd.error().ToString(), "invalid: odd");
  EXPECT_EQ(Error(Code::kNotFound).ToString(), "not_found");
  int out = 0;
  EXPECT_TRUE(Quarter(8, &out).ok());
  EXPECT_EQ(out, 2);
  EXPECT_EQ(Quarter(6, &out).code(), Code::kInvalid);
  Result<std::unique_ptr<int>> moved(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = std::move(moved).value();
  EXPECT_EQ(*taken, 7);
}

TEST(Result, BandsTellWhatTheCallerMayDo) {
  EXPECT_EQ(BandOf(Code::kOk), Band::kOk);
  EXPECT_EQ(BandOf(Code::kNotFound), Band::kVerdict);
  EXPECT_EQ(BandOf(Code::kUnavailable), Band::kNotApplied);
  EXPECT_EQ(BandOf(Code::kUnknown), Band::kUnknown);
  EXPECT_EQ(BandOf(Code::kFenced), Band::kBroken);
}

TEST(Result, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  size_t codes = 0;
  for (int v = 0; v < 256; ++v) {
    const std::string_view name = CodeName(static_cast<Code>(v));
    if (name == "undefined") continue;
    ++codes;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_GE(codes, 38u);
}

TEST(Errno, ThereAndBack) {
  EXPECT_EQ(ErrnoOf(Code::kOk), 0);
  EXPECT_EQ(ErrnoOf(Code::kNotEmpty), ENOTEMPTY);
  EXPECT_EQ(ErrnoOf(Code::kHeldElsewhere), EBUSY);
  for (const Code code : {Code::kCorrupt, Code::kFenced, Code::kUnavailable, Code::kUnknown, Code::kInternal}) {
    EXPECT_EQ(ErrnoOf(code), EIO);
  }
  // Whatever has an errno of its own comes back as itself.
  for (int v = 1; v < 256; ++v) {
    const auto code = static_cast<Code>(v);
    if (CodeName(code) == "undefined" || ErrnoOf(code) == EIO) continue;
    if (code == Code::kHeldElsewhere || code == Code::kNoSuchDisk) continue;
    EXPECT_EQ(ErrnoError(ErrnoOf(code), "x").code(), code) << CodeName(code);
  }
  EXPECT_EQ(ErrnoError(ENOENT, "open /a").message(), "open /a: No such file or directory");
  EXPECT_EQ(ErrnoError(EPROTO, "x").code(), Code::kIo);
}

TEST(Timestamp, BeforeTheEpoch) {
  const Timestamp t{-5, 999'999'999};
  EXPECT_EQ(ToTimestamp(FromTimestamp(t)), t);
  EXPECT_EQ(AddNanosecond(t), (Timestamp{-4, 0}));
  EXPECT_LT(t, AddNanosecond(t));
  EXPECT_LT((Timestamp{-5, 1}), (Timestamp{0, 0}));
}

}  // namespace
}  // namespace archil
