// Bytes of a file of lost operations (docs/formats.md, "Recovery file"). Pinned by a golden file.
//
//   file   = u64 magic "ARCLOST\n" ‖ u32 version (1) ‖ u32 checksum (low half, of the 12 bytes before) ‖ record …
//   record = u32 body length ‖ u8 kind ‖ u64 checksum ‖ body
// The checksum is XXH3 of (u64 number of the record, from 0 ‖ body length ‖ kind ‖ u64 XXH3 of the body), so that a
// record that is missing, doubled or moved is found as well as a changed one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/env/files.h"

namespace archil {

enum class LostRecord : uint8_t {
  kAbout = 1,        // always the first: who, when, why, how many ops
  kNames = 2,        // names, any number of such records, before the first op
  kOp = 3,           // one op (a batch of op_codec.h)
  kMoreExtents = 4,  // a SetExtentsOp whose extents belong to the op before
  kEnd = 5,          // always the last; empty
};

inline constexpr uint32_t kLostLogVersion = 1;
inline constexpr size_t kLostHeaderBytes = 16;
inline constexpr size_t kLostFrameBytes = 13;
inline constexpr size_t kMaxLostBody = 256 * 1024;

std::string LostHeader(uint32_t version = kLostLogVersion);
// Precondition: body.size() <= kMaxLostBody.
void AppendLostRecord(uint64_t number, LostRecord kind, std::string_view body, std::string& out);

// Appends records to a new file; writes them out a MiB at a time.
class LostLogWriter {
 public:
  explicit LostLogWriter(File& file) : file_(file), buffer_(LostHeader()) {}
  Status Append(LostRecord kind, std::string_view body);
  Status Flush();

 private:
  File& file_;
  std::string buffer_;
  uint64_t written_ = 0;
  uint64_t number_ = 0;
};

// Reads records one by one. Bytes from the disk are never believed.
class LostLogReader {
 public:
  explicit LostLogReader(File& file) : file_(file) {}
  // kCorrupt: not such a file; kNotSupported: of a newer version.
  Status ReadHeader();
  // The next record; `body` is good until the next call. kCorrupt, with the place, at the first one that is not whole.
  struct Record {
    LostRecord kind;
    std::string_view body;
  };
  Result<Record> Next();
  // kCorrupt naming the record that Next gave last, for a body that makes no sense.
  Error Bad(std::string_view what) const;
  // The file ends behind the last record.
  Result<bool> AtEnd();

 private:
  // `length` bytes at the reading position; fewer at the end of the file.
  Result<std::string_view> Peek(size_t length);

  File& file_;
  std::string window_;
  uint64_t window_at_ = 0;  // place of the window in the file
  size_t pos_ = 0;          // reading position in the window
  uint64_t number_ = 0;
  uint64_t record_number_ = 0;  // what Next gave last, or tried to give, and its place
  uint64_t record_at_ = 0;
};

}  // namespace archil
