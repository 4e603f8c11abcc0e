// Encoding of ops: the payload of a Commit on the wire and in the log. Versioned; pinned by golden files
// (tests/unit/common/format/testdata). Checksums are added by the frames that carry it.
//
//   batch  = u8 version (1) ‖ varint count ‖ count × op
//   op     = u8 kind ‖ varint body length ‖ body
// An unknown kind or version, trailing bytes in a body, counts or lengths over the limits of
// common/api/types.h are kCorrupt (a newer version: kNotSupported). Decoding allocates no more than
// the input is long, times a small constant.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/ops.h"
#include "common/base/bytes.h"
#include "common/base/result.h"

namespace archil {

// One op, without the batch header; what a batch concatenates.
void EncodeOp(const Op& op, ByteWriter& out);
// Bytes that EncodeOp writes for it.
size_t EncodedSize(const Op& op);
std::string EncodeOps(std::span<const Op> ops);
// Inline extents are copied out of `bytes`.
Result<std::vector<Op>> DecodeOps(std::string_view bytes);
// Header for `count` ops already encoded one by one with EncodeOp.
std::string EncodeOpsHeader(size_t count);

}  // namespace archil
