// Decoder of ops: survives anything, and what it accepts encodes to bytes that decode to the same.
#include "common/base/check.h"
#include "common/format/op_codec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/sample_ops.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace archil;
  const auto ops = DecodeOps({reinterpret_cast<const char*>(data), size});
  if (!ops.ok()) return 0;
  size_t total = EncodeOpsHeader(ops->size()).size();
  for (const Op& op : *ops) total += EncodedSize(op);
  const std::string encoded = EncodeOps(*ops);
  ARCHIL_CHECK(encoded.size() == total);
  ARCHIL_CHECK(encoded.size() <= size);
  const auto again = DecodeOps(encoded);
  ARCHIL_CHECK(again.ok());
  ARCHIL_CHECK(EncodeOps(*again) == encoded);
  return 0;
}

std::vector<std::string> archil::FuzzSeeds() {
  std::vector<std::string> seeds;
  const std::vector<Op> ops = SampleOps();
  for (const Op& op : ops) seeds.push_back(EncodeOps({&op, 1}));
  seeds.push_back(EncodeOps(ops));
  return seeds;
}
