// Decoders of metadata records and of the log: survive anything, and what they accept encodes to something they accept again
// and that says the same. The first byte chooses the decoder.
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/sample_records.h"

namespace {

const std::vector<archil::Sample>& AllSamples() {
  static const std::vector<archil::Sample> all = [] {
    std::vector<archil::Sample> out = archil::SampleRecords();
    out.push_back(archil::SampleLogRecords()[0]);  // one decoder for all kinds
    return out;
  }();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace archil;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Sample& kind = AllSamples()[data[0] % AllSamples().size()];
  (void)HasLogFrame(bytes);
  const auto once = kind.reencode(bytes);
  if (!once.ok()) return 0;
  const auto twice = kind.reencode(*once);
  ARCHIL_CHECK(twice.ok());
  ARCHIL_CHECK(*once == *twice);
  return 0;
}

std::vector<std::string> archil::FuzzSeeds() {
  std::vector<std::string> seeds;
  const auto& all = AllSamples();
  for (size_t i = 0; i < all.size(); ++i) seeds.push_back(static_cast<char>(i) + all[i].bytes);
  for (const Sample& s : SampleLogRecordsV2()) seeds.push_back(static_cast<char>(all.size() - 1) + s.bytes);
  for (const Sample& s : SampleLogRecordsV3()) seeds.push_back(static_cast<char>(all.size() - 1) + s.bytes);
  for (const Sample& s : SampleLogRecords()) seeds.push_back(static_cast<char>(all.size() - 1) + s.bytes);
  return seeds;
}
