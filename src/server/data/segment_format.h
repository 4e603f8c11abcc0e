// The bytes of a segment file, of the object that it becomes, and of the state record beside it
// (docs/formats.md, "Segment file"). Pure functions; safe on any input: bytes from disk or from an
// object store give an Error (kCorrupt; kNotSupported for a newer version), never a crash.
//
//   header   frame …                       an open segment; behind the last frame zeros or a torn tail
//   header   frame …   index   trailer     a sealed one
//
// An append is one or more frames, the last of which says so. Checksums of structures cover the segment's key as
// well: a block of another segment is never taken for one of this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/data_service.h"
#include "common/base/result.h"

namespace archil {

inline constexpr size_t kSegmentHeaderSize = 64;
inline constexpr size_t kFrameHeaderSize = 56;
inline constexpr size_t kSegmentTrailerSize = 64;
inline constexpr size_t kIndexHeaderSize = 16;
inline constexpr size_t kIndexEntrySize = 12;
inline constexpr size_t kIndexFooterSize = 8;
inline constexpr size_t kMaxFramePayload = 64 * 1024;
inline constexpr uint32_t kFrameMagic = 0x4d524641;  // "AFRM"
inline constexpr uint32_t kIndexMagic = 0x58444941;  // "AIDX"
inline constexpr uint64_t kMaxSegmentFrames = 1 << 20;  // an append that would pass it is refused
// No segment file is longer; the positions in an index are 32 bits.
inline constexpr uint64_t kMaxSegmentFile = 512ULL << 20;

enum class FrameKind : uint8_t {
  kData = 1,
  kFence = 2,  // no payload: from here on appends need `token`
};

struct FrameHeader {
  FrameKind kind = FrameKind::kData;
  bool ends_append = true;
  uint32_t length = 0;      // of the payload that follows
  uint64_t offset = 0;      // in the segment
  uint64_t token = 0;       // fencing token in force
  // Position in the file below which everything was on stable storage when this was written: what is bad
  // below the `synced` of a later frame is damage, what is bad above may be a torn write.
  uint64_t synced = 0;
  uint64_t checksum = 0;    // of the payload
};

std::string EncodeSegmentHeader(SegmentKey key);
Status DecodeSegmentHeader(std::string_view bytes, SegmentKey key);

// Appends the encoded header to `out`.
void EncodeFrameHeader(const FrameHeader& header, SegmentKey key, std::string* out);
// `bytes`: at least kFrameHeaderSize bytes, more is not looked at.
Result<FrameHeader> DecodeFrameHeader(std::string_view bytes, SegmentKey key);

// Where a data frame lies.
struct FrameRef {
  uint32_t offset = 0;    // in the segment
  uint32_t position = 0;  // of the frame header in the file
  uint32_t length = 0;    // of the payload
  friend bool operator==(const FrameRef&, const FrameRef&) = default;
};

std::string EncodeIndex(const std::vector<FrameRef>& frames, SegmentKey key);
// The frames are in order and do not overlap; they lie in a file of this size and a segment of this length.
Result<std::vector<FrameRef>> DecodeIndex(std::string_view bytes, SegmentKey key, uint64_t file_size, uint64_t length);

struct SegmentTrailer {
  uint64_t index_position = 0;
  uint64_t index_size = 0;
  uint64_t length = 0;  // of the segment
  uint64_t token = 0;
  uint32_t frames = 0;
};
std::string EncodeTrailer(const SegmentTrailer& trailer, SegmentKey key);
// `bytes`: the last kSegmentTrailerSize bytes of a file of `file_size` bytes.
Result<SegmentTrailer> DecodeTrailer(std::string_view bytes, SegmentKey key, uint64_t file_size);

// Index and trailer of a file whose frames end at `position`: what seals it.
std::string EncodeSegmentEnd(const std::vector<FrameRef>& frames, uint64_t position, uint64_t length, uint64_t token,
                             SegmentKey key);

// Beside a segment file: what must not change the file itself, because an object may be a link to it.
struct StateRecord {
  enum class Kind : uint8_t {
    kUploaded = 1,  // the object is complete and lasting; the local file is cache
    kBroken = 2,    // a sync failed: the segment ends at `length`, whatever the file shows behind it
  };
  Kind kind = Kind::kUploaded;
  uint64_t length = 0;
  uint64_t token = 0;
  uint64_t object_size = 0;  // kUploaded
};
std::string EncodeStateRecord(const StateRecord& record, SegmentKey key);
Result<StateRecord> DecodeStateRecord(std::string_view bytes, SegmentKey key);

// What the frames of a file say, read from its start.
struct SegmentScan {
  std::vector<FrameRef> frames;  // good ones, in order; damage leaves holes between them
  uint64_t length = 0;     // end of the last complete append
  uint64_t token = 0;      // highest seen
  uint64_t end = kSegmentHeaderSize;  // position behind the last complete append
  bool damaged = false;    // bytes that had been acknowledged are bad
  bool header_ok = false;
  bool sealing = false;    // an index begins at `end`: a seal was under way, or its trailer is damaged
  bool torn = false;       // something other than zeros lies behind `end`
};
// Never fails: a file that holds nothing good gives an empty scan.
SegmentScan ScanSegment(std::string_view file, SegmentKey key);

// "<disk %016x>/<segment %016x>", the key of the object and the path below the directory of segments.
std::string SegmentName(SegmentKey key);

}  // namespace archil
