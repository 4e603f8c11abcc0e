// What the sources of FileMap share. Private to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/cache/file_map.h"
#include "common/base/check.h"

namespace archil {

inline constexpr uint64_t kFileEnd = kMaxFileSize + 1;  // no byte is here or past it

// offset + length, within the file's largest size.
inline uint64_t EndOf(uint64_t offset, uint64_t length) {
  ARCHIL_CHECK(offset <= kFileEnd);
  return length < kFileEnd - offset ? offset + length : kFileEnd;
}

// Bytes below `used` never change once a Buffer shares the block; above it nobody reads, so that a growing piece appends
// in place while readers hold what is below. The other fields belong to the map.
struct FileMap::Block {
  explicit Block(uint64_t file_offset, size_t capacity)
      : begin(file_offset), capacity(capacity), bytes(std::make_unique_for_overwrite<char[]>(capacity)) {}

  // Most of it shows nowhere, and it is large enough to matter.
  bool wasteful() const {
    constexpr size_t kSmall = 512;
    return capacity > kSmall && capacity - live > live;
  }

  const uint64_t begin;  // file offset of bytes[0]; pieces stay where they were written
  const size_t capacity;
  size_t used = 0;
  size_t live = 0;     // bytes that pieces show
  size_t pieces = 0;   // pieces that share it
  const std::unique_ptr<char[]> bytes;
};

}  // namespace archil
