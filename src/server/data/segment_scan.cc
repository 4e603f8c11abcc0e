// Reading the frames of a file that has no trailer to trust: an open segment, or a damaged one.
#include <algorithm>

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "server/data/segment_format.h"

namespace archil {
namespace {

struct Found {
  FrameHeader header;
  uint64_t position = 0;
  uint64_t next = 0;  // position behind the payload
};

// The frame at `position`, if header and payload are good.
bool GoodFrameAt(std::string_view file, SegmentKey key, uint64_t position, Found* found) {
  if (position > file.size()) return false;
  const std::string_view rest = file.substr(position);
  const Result<FrameHeader> header = DecodeFrameHeader(rest, key);
  if (!header.ok() || header->length > rest.size() - kFrameHeaderSize || header->synced > position) return false;
  if (Checksum(rest.substr(kFrameHeaderSize, header->length)) != header->checksum) return false;
  *found = {*header, position, position + kFrameHeaderSize + header->length};
  return true;
}

// The first good frame at or after `position` that continues a segment of `offset` bytes.
bool FindGoodFrame(std::string_view file, SegmentKey key, uint64_t position, uint64_t offset, Found* found) {
  const std::string_view magic(reinterpret_cast<const char*>(&kFrameMagic), sizeof(kFrameMagic));
  while (true) {
    position = file.find(magic, position);
    if (position == std::string_view::npos) return false;
    if (GoodFrameAt(file, key, position, found) && found->header.offset >= offset) return true;
    ++position;
  }
}

// Looks behind the bad bytes at `position` for a frame that was written after they had been synced. True:
// they are damage, and `resume` is the first good frame behind them.
bool IsDamage(std::string_view file, SegmentKey key, uint64_t position, uint64_t offset, Found* resume) {
  if (!FindGoodFrame(file, key, position + 1, offset, resume)) return false;
  Found later = *resume;
  while (later.header.synced <= position) {
    if (!FindGoodFrame(file, key, later.next, offset, &later)) return false;
  }
  return true;
}

}  // namespace

SegmentScan ScanSegment(std::string_view file, SegmentKey key) {
  SegmentScan scan;
  scan.header_ok = DecodeSegmentHeader(file, key).ok();
  std::vector<FrameRef> append;  // frames of an append whose end has not been seen
  uint64_t position = kSegmentHeaderSize;
  uint64_t offset = 0;
  bool header_was_synced = false;
  while (true) {
    Found frame;
    if (!GoodFrameAt(file, key, position, &frame) || frame.header.offset != offset) {
      if (!IsDamage(file, key, position, offset, &frame)) break;
      scan.damaged = true;
      // Good frames of an append that was acknowledged whole, before the bad one.
      scan.frames.insert(scan.frames.end(), append.begin(), append.end());
      append.clear();
      offset = frame.header.offset;
    }
    if (frame.header.synced >= kSegmentHeaderSize) header_was_synced = true;
    if (frame.header.kind == FrameKind::kData) {
      append.push_back({static_cast<uint32_t>(frame.header.offset), static_cast<uint32_t>(frame.position),
                        frame.header.length});
    }
    offset += frame.header.length;
    position = frame.next;
    if (!frame.header.ends_append) continue;
    scan.frames.insert(scan.frames.end(), append.begin(), append.end());
    append.clear();
    scan.length = offset;
    scan.end = position;
    scan.token = std::max(scan.token, frame.header.token);
  }
  if (!scan.header_ok && header_was_synced) scan.damaged = true;
  const std::string_view behind = file.substr(std::min<uint64_t>(scan.end, file.size()));
  scan.sealing = ByteReader(behind).U32() == kIndexMagic;
  scan.torn = behind.find_first_not_of('\0') != std::string_view::npos;
  return scan;
}

}  // namespace archil
