// Bytes: views, shared immutable buffers, and bounds-checked encoding.
//
// Durable and wire integers are little-endian, except in keys, where big-endian keeps numeric order.
// ByteReader never reads out of bounds: after the first short read it is failed() and yields zeros.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace archil {

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported");

// A slice of a reference-counted immutable block of bytes. Copying shares; thread-safe as shared_ptr.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::string bytes) : Buffer(std::make_shared<const std::string>(std::move(bytes))) {}
  Buffer(std::shared_ptr<const std::string> block, size_t offset, size_t size)
      : data_(block ? block->data() + offset : nullptr), size_(size), owner_(std::move(block)) {}
  static Buffer Copy(std::string_view bytes) { return Buffer(std::string(bytes)); }
  // Bytes that live as long as `owner` and never change.
  static Buffer Alias(std::shared_ptr<const void> owner, std::string_view bytes) {
    Buffer buffer;
    buffer.data_ = bytes.data();
    buffer.size_ = bytes.size();
    buffer.owner_ = std::move(owner);
    return buffer;
  }

  const char* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::string_view view() const { return {data_, size_}; }
  // Precondition: offset + size <= this->size().
  Buffer Slice(size_t offset, size_t size) const { return Alias(owner_, {data_ + offset, size}); }

 private:
  explicit Buffer(std::shared_ptr<const std::string> block)
      : data_(block->data()), size_(block->size()), owner_(std::move(block)) {}

  const char* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const void> owner_;  // owners: every Buffer that slices the block, and whoever made it
};

class ByteWriter {
 public:
  void U8(uint8_t v) { out_.push_back(static_cast<char>(v)); }
  void U16(uint16_t v) { Raw(&v, sizeof(v)); }
  void U32(uint32_t v) { Raw(&v, sizeof(v)); }
  void U64(uint64_t v) { Raw(&v, sizeof(v)); }
  void I64(int64_t v) { Raw(&v, sizeof(v)); }
  void BigU64(uint64_t v) { U64(__builtin_bswap64(v)); }
  // LEB128, at most 10 bytes.
  void Varint(uint64_t v) {
    while (v >= 0x80) {
      U8(static_cast<uint8_t>(v) | 0x80);
      v >>= 7;
    }
    U8(static_cast<uint8_t>(v));
  }
  void Bytes(std::string_view v) { out_.append(v); }
  void LengthPrefixed(std::string_view v) {
    Varint(v.size());
    Bytes(v);
  }
  void Raw(const void* p, size_t n) { out_.append(static_cast<const char*>(p), n); }

  size_t size() const { return out_.size(); }
  std::string& str() { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view in) : in_(in) {}

  uint8_t U8() { return Fixed<uint8_t>(); }
  uint16_t U16() { return Fixed<uint16_t>(); }
  uint32_t U32() { return Fixed<uint32_t>(); }
  uint64_t U64() { return Fixed<uint64_t>(); }
  int64_t I64() { return Fixed<int64_t>(); }
  uint64_t BigU64() { return __builtin_bswap64(U64()); }
  uint64_t Varint() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t b = U8();
      if (failed_) return 0;
      if (shift == 63 && b > 1) break;  // would not fit in 64 bits
      v |= static_cast<uint64_t>(b & 0x7f) << shift;
      if ((b & 0x80) == 0) return v;
    }
    failed_ = true;
    return 0;
  }
  std::string_view Bytes(size_t n) {
    if (failed_ || n > in_.size()) {
      failed_ = true;
      return {};
    }
    std::string_view v = in_.substr(0, n);
    in_.remove_prefix(n);
    return v;
  }
  std::string_view LengthPrefixed() {
    const uint64_t n = Varint();
    return Bytes(n);
  }
  std::string_view rest() const { return failed_ ? std::string_view() : in_; }

  bool failed() const { return failed_; }
  // All bytes were read and nothing was short.
  bool done() const { return !failed_ && in_.empty(); }

 private:
  template <class T>
  T Fixed() {
    T v{};
    if (failed_ || sizeof(T) > in_.size()) {
      failed_ = true;
      return v;
    }
    std::memcpy(&v, in_.data(), sizeof(T));
    in_.remove_prefix(sizeof(T));
    return v;
  }

  std::string_view in_;
  bool failed_ = false;
};

}  // namespace archil
