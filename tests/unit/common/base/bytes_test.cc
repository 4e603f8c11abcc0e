#include "common/base/bytes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/base/checksum.h"

namespace archil {
namespace {

TEST(Buffer, SlicesShareTheirBlock) {
  auto block = std::make_shared<const std::string>("0123456789");
  Buffer slice(block, 2, 5);
  EXPECT_EQ(slice.view(), "23456");
  EXPECT_EQ(slice.Slice(1, 3).view(), "345");
  EXPECT_EQ(slice.Slice(1, 3).data(), block->data() + 3);
  EXPECT_TRUE(slice.Slice(5, 0).empty());
  const Buffer copy = slice;
  slice = Buffer();
  EXPECT_EQ(copy.view(), "23456");
  EXPECT_EQ(block.use_count(), 2);
}

TEST(Buffer, EmptyOnes) {
  const Buffer none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_TRUE(none.Slice(0, 0).empty());
  EXPECT_TRUE(Buffer(std::string()).empty());
  EXPECT_TRUE(Buffer(nullptr, 0, 0).empty());
}

// Short strings live inside the string object: moving the buffer must not move them.
TEST(Buffer, MovedBuffersKeepTheirBytes) {
  Buffer first(std::string("ab"));
  const char* data = first.data();
  const Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.view(), "ab");
}

TEST(Buffer, AliasKeepsAnyOwnerAlive) {
  auto owner = std::make_shared<int>(5);
  {
    const Buffer alias = Buffer::Alias(owner, "text").Slice(1, 2);
    EXPECT_EQ(alias.view(), "ex");
    EXPECT_EQ(owner.use_count(), 2);
  }
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(Bytes, RoundTrip) {
  ByteWriter w;
  w.U8(0xab);
  w.U16(0x1234);
  w.U32(0xdeadbeef);
  w.U64(0x0123456789abcdef);
  w.I64(-5);
  w.BigU64(1);
  const uint64_t varints[] = {0, 1, 127, 128, 16383, 16384, 1ULL << 32, 1ULL << 63, ~0ULL};
  for (const uint64_t v : varints) w.Varint(v);
  w.LengthPrefixed("name");
  w.Bytes("rest");
  const std::string bytes = w.Take();
  EXPECT_EQ(bytes.substr(1, 2), "\x34\x12");  // little-endian
  ByteReader r(bytes);
  EXPECT_EQ(r.U8(), 0xab);
  EXPECT_EQ(r.U16(), 0x1234);
  EXPECT_EQ(r.U32(), 0xdeadbeef);
  EXPECT_EQ(r.U64(), 0x0123456789abcdefULL);
  EXPECT_EQ(r.I64(), -5);
  EXPECT_EQ(r.BigU64(), 1u);
  for (const uint64_t v : varints) EXPECT_EQ(r.Varint(), v);
  EXPECT_EQ(r.LengthPrefixed(), "name");
  EXPECT_FALSE(r.done());
  EXPECT_EQ(r.rest(), "rest");
  EXPECT_EQ(r.Bytes(4), "rest");
  EXPECT_TRUE(r.done());
}

TEST(Bytes, ReaderStopsAtTheFirstShortRead) {
  ByteReader r("abc");
  EXPECT_EQ(r.U32(), 0u);
  EXPECT_TRUE(r.failed());
  EXPECT_EQ(r.U8(), 0u);  // though a byte is there
  EXPECT_EQ(r.rest(), "");
  EXPECT_FALSE(r.done());
  ByteReader length(std::string_view("\xff\xff\xff\xff\x0fx", 6));  // a length beyond the end
  EXPECT_EQ(length.LengthPrefixed(), "");
  EXPECT_TRUE(length.failed());
}

TEST(Bytes, VarintBeyond64Bits) {
  const std::string nine(9, '\xff');
  ByteReader fits(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10));
  EXPECT_EQ(fits.Varint(), ~0ULL);
  EXPECT_TRUE(fits.done());
  const std::string over = nine + '\x02';
  ByteReader reader(over);
  EXPECT_EQ(reader.Varint(), 0u);
  EXPECT_TRUE(reader.failed());
  const std::string endless(20, '\x80');
  ByteReader never(endless);
  EXPECT_EQ(never.Varint(), 0u);
  EXPECT_TRUE(never.failed());
  ByteReader cut(nine);
  EXPECT_EQ(cut.Varint(), 0u);
  EXPECT_TRUE(cut.failed());
}

// A durable format: it may not change.
TEST(Checksum, Values) {
  EXPECT_EQ(Checksum(""), 0x2d06800538d394c2ULL);
  EXPECT_NE(Checksum("a"), Checksum("b"));
  EXPECT_NE(Checksum(std::string(1, '\0')), Checksum(std::string(2, '\0')));
}

}  // namespace
}  // namespace archil
