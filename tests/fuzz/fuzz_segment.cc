// Every decoder of a segment's bytes: survives anything; what the scan finds good is good.
#include "common/base/check.h"
#include "common/base/checksum.h"
#include "server/data/segment_format.h"
#include "tests/fuzz/fuzz.h"

namespace archil {
namespace {

const SegmentKey kKey{DiskId(3), SegmentId(5)};

void CheckScan(std::string_view file) {
  const SegmentScan scan = ScanSegment(file, kKey);
  uint64_t offset = 0;
  uint64_t position = kSegmentHeaderSize;
  for (const FrameRef& f : scan.frames) {
    ARCHIL_CHECK(f.offset >= offset && f.position >= position);
    ARCHIL_CHECK(scan.damaged || f.offset == offset);
    offset = uint64_t{f.offset} + f.length;
    position = uint64_t{f.position} + kFrameHeaderSize + f.length;
    ARCHIL_CHECK(position <= file.size());
    const auto header = DecodeFrameHeader(file.substr(f.position), kKey);
    ARCHIL_CHECK(header.ok());
    ARCHIL_CHECK(header->checksum == Checksum(file.substr(f.position + kFrameHeaderSize, f.length)));
  }
  ARCHIL_CHECK(scan.damaged || offset == scan.length);
  ARCHIL_CHECK(scan.end <= file.size() || scan.end == kSegmentHeaderSize);
}

std::string SampleFile(bool sealed) {
  std::string file = EncodeSegmentHeader(kKey);
  std::vector<FrameRef> frames;
  uint64_t offset = 0;
  uint64_t synced = 0;
  for (const std::string& payload : {std::string("hello"), std::string(), std::string(300, 'x'), std::string("end")}) {
    FrameHeader h;
    h.kind = payload.empty() ? FrameKind::kFence : FrameKind::kData;
    h.length = static_cast<uint32_t>(payload.size());
    h.offset = offset;
    h.token = 1 + file.size();
    h.synced = synced;
    h.checksum = Checksum(payload);
    synced = file.size();
    if (!payload.empty()) {
      frames.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(file.size()), h.length});
    }
    EncodeFrameHeader(h, kKey, &file);
    file += payload;
    offset += payload.size();
  }
  return sealed ? file + EncodeSegmentEnd(frames, file.size(), offset, 9, kKey) : file + std::string(100, '\0');
}

}  // namespace
}  // namespace archil

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace archil;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)DecodeSegmentHeader(bytes, kKey);
  (void)DecodeFrameHeader(bytes, kKey);
  if (const auto record = DecodeStateRecord(bytes, kKey); record.ok()) {
    ARCHIL_CHECK(DecodeStateRecord(EncodeStateRecord(*record, kKey), kKey).ok());
  }
  if (const auto index = DecodeIndex(bytes, kKey, kMaxSegmentFile, kMaxSegmentFile); index.ok()) {
    ARCHIL_CHECK(EncodeIndex(*index, kKey) == bytes);
  }
  CheckScan(bytes);
  if (size < kSegmentTrailerSize) return 0;
  const auto trailer = DecodeTrailer(bytes.substr(size - kSegmentTrailerSize), kKey, size);
  if (!trailer.ok()) return 0;
  (void)DecodeIndex(bytes.substr(trailer->index_position, trailer->index_size), kKey, trailer->index_position,
                    trailer->length);
  return 0;
}

std::vector<std::string> archil::FuzzSeeds() {
  return {SampleFile(false), SampleFile(true), EncodeStateRecord({}, kKey), EncodeSegmentHeader(kKey),
          EncodeIndex({{0, 64, 5}, {5, 200, 7}}, kKey)};
}
