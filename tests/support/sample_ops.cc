#include "tests/support/sample_ops.h"

#include <limits>

namespace archil {
namespace {

constexpr Timestamp kNow{1'767'225'600, 123'456'789};

Extent SegmentExtent(uint64_t offset, uint64_t length, uint64_t segment, uint64_t at) {
  return {.offset = offset, .length = length, .kind = ExtentKind::kSegment, .segment = SegmentId{segment}, .segment_offset = at};
}

Extent InlineExtent(uint64_t offset, std::string bytes) {
  Extent e{.offset = offset, .length = bytes.size(), .kind = ExtentKind::kInline};
  e.data = Buffer(std::move(bytes));
  return e;
}

Extent ZeroExtent(uint64_t offset, uint64_t length) { return {.offset = offset, .length = length, .kind = ExtentKind::kZero}; }

}  // namespace

std::vector<Op> SampleOps() {
  std::vector<Op> ops;
  ops.push_back(CreateOp{InodeId{1}, "README.md", InodeId{4096}, FileType::kRegular, 0644, 1000, 100, 0, "", kNow});
  ops.push_back(CreateOp{InodeId{1}, "link", InodeId{4097}, FileType::kSymlink, 0777, 1000, 100, 0, "../target", kNow});
  ops.push_back(CreateOp{InodeId{1}, "null", InodeId{4098}, FileType::kCharDevice, 0666, 0, 0, 0x103, "", kNow});
  ops.push_back(LinkOp{InodeId{4096}, InodeId{2}, "second name", kNow});
  ops.push_back(UnlinkOp{InodeId{1}, "README.md", InodeId{4096}, true, kNow});
  ops.push_back(RmdirOp{InodeId{1}, "empty", InodeId{4099}, false, kNow});
  ops.push_back(RenameOp{InodeId{1}, "from", InodeId{2}, "to", InodeId{4100}, InodeId{4101}, RenameOp::Mode::kPlain, true, kNow});
  ops.push_back(RenameOp{InodeId{1}, "from", InodeId{2}, "to", InodeId{4100}, InodeId{4101}, RenameOp::Mode::kExchange, false, kNow});
  ops.push_back(SetAttrOp{InodeId{4096}, 63, 0755, 1, 2, 1 << 20, {-1, 5}, {-2, 6}, kNow});
  ops.push_back(SetAttrOp{.ino = InodeId{4096}, .fields = SetAttrOp::kMtime, .mtime = {3, 4}, .now = kNow});
  ops.push_back(SetExtentsOp{InodeId{4096},
                             {SegmentExtent(0, 4096, 77, 8192), InlineExtent(4096, "inline data"), ZeroExtent(1 << 20, 65536)},
                             (1 << 20) + 65536,
                             kNow,
                             kNow,
                             06000});
  ops.push_back(ClearRangeOp{InodeId{4096}, ClearRangeOp::Kind::kZero, 100, 200, 300, kNow});
  ops.push_back(SetXattrOp{InodeId{4096}, "user.key", std::string("va\0lue", 6), kNow});
  ops.push_back(RemoveXattrOp{InodeId{4096}, "user.key", kNow});
  ops.push_back(ReleaseOrphanOp{InodeId{4096}});
  ops.push_back(TouchOp{InodeId{1}, {10, 11}, {12, 13}});
  return ops;
}

std::vector<Op> ExtremeOps() {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  constexpr uint32_t kMax32 = std::numeric_limits<uint32_t>::max();
  const Timestamp first{std::numeric_limits<int64_t>::min(), 0};
  const Timestamp last{std::numeric_limits<int64_t>::max(), 999'999'999};
  const std::string name(kMaxName, '\xff');
  std::vector<Op> ops;
  ops.push_back(CreateOp{InodeId{kMax}, name, InodeId{kMax}, FileType::kSymlink, 07777, kMax32, kMax32, kMax,
                         std::string(kMaxSymlink, 't'), last});
  ops.push_back(CreateOp{.now = first});
  ops.push_back(LinkOp{InodeId{kMax}, InodeId{kMax}, name, first});
  ops.push_back(UnlinkOp{InodeId{kMax}, name, InodeId{kMax}, false, last});
  ops.push_back(RenameOp{InodeId{kMax}, name, InodeId{kMax}, name, InodeId{kMax}, InodeId{kMax}, RenameOp::Mode::kNoReplace, true, last});
  ops.push_back(SetAttrOp{InodeId{kMax}, 63, 07777, kMax32, kMax32, kMax, first, last, last});
  ops.push_back(SetAttrOp{});
  ops.push_back(SetExtentsOp{InodeId{kMax}, {ZeroExtent(kMaxFileSize - 1, 1)}, kMax, first, last, 07777});
  ops.push_back(SetExtentsOp{InodeId{kMax}, {SegmentExtent(0, 1, kMax, 0), SegmentExtent(1, kMaxFileSize - 1, 1, 1)}, 0, {}, {}, 0});
  ops.push_back(SetExtentsOp{.extents = {InlineExtent(7, std::string(kMaxInlineBytes, 'i'))}});
  ops.push_back(SetExtentsOp{});
  ops.push_back(ClearRangeOp{InodeId{kMax}, ClearRangeOp::Kind::kAllocate, kMax, kMax, kMax, last});
  ops.push_back(SetXattrOp{InodeId{kMax}, std::string(kMaxXattrName, 'n'), std::string(kMaxXattrValue, 'v'), last});
  ops.push_back(SetXattrOp{});
  ops.push_back(TouchOp{InodeId{kMax}, first, last});
  return ops;
}

}  // namespace archil
