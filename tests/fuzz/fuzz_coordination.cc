// The coordination file and the manifest of a log, which it holds: any bytes give an error or a value that encodes to itself.
// The first byte chooses: whose decoder, and whether a right checksum is put behind the bytes so that the fields are reached.
#include "common/base/bytes.h"
#include "common/base/check.h"
#include "common/base/checksum.h"
#include "common/env/mem_files.h"
#include "common/env/sched.h"
#include "server/coord/coordination.h"
#include "server/meta/log/manifest.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace archil;

constexpr char kDir[] = "/coord";
constexpr char kFile[] = "/coord/coordination";

void TryManifest(std::string_view bytes) {
  const auto manifest = DecodeManifest(bytes);
  if (!manifest.ok()) return;
  const std::string again = EncodeManifest(*manifest);
  const auto twice = DecodeManifest(again);
  ARCHIL_CHECK(twice.ok());
  ARCHIL_CHECK(EncodeManifest(*twice) == again);
}

void TryFile(std::string_view bytes) {
  MemFiles files;
  ARCHIL_CHECK(files.MakeDirs(kDir).ok());
  ARCHIL_CHECK(WriteFileAtomically(files, kFile, bytes).ok());
  auto coord = OpenLocalCoordination(RealScheduler(), files, kDir);
  if (!coord.ok()) return;
  ARCHIL_CHECK((*coord)->List("").ok());
}

std::string SampleFile() {
  MemFiles files;
  auto coord = OpenLocalCoordination(RealScheduler(), files, kDir);
  ARCHIL_CHECK(coord.ok());
  CoordTxn txn;
  txn.puts.emplace_back("disk/a", "value");
  txn.puts.emplace_back("disk/b", std::string(300, 'b'));
  ARCHIL_CHECK((*coord)->Commit(txn).ok());
  auto bytes = ReadWholeFile(files, kFile);
  ARCHIL_CHECK(bytes.ok());
  return *bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] & 2) {
    ByteWriter sum;
    sum.U64(Checksum(bytes));
    bytes += sum.str();
  }
  if (data[0] & 1) {
    TryFile(bytes);
  } else {
    TryManifest(bytes);
  }
  return 0;
}

std::vector<std::string> archil::FuzzSeeds() {
  Manifest m;
  m.epoch = 3;
  m.next_segment = 9;
  m.segments.push_back({SegmentId{kLogSegmentBit | 1}, Lsn{1}, true, 4096, {1}});
  m.segments.push_back({SegmentId{kLogSegmentBit | 2}, Lsn{77}, false, 0, {1, 2}});
  const std::string manifest = EncodeManifest(m), file = SampleFile();
  const auto open = [](const std::string& bytes) { return bytes.substr(0, bytes.size() - 8); };
  using S = std::string;
  return {S(1, '\0') + manifest, S(1, '\1') + file, S(1, '\2') + open(manifest), S(1, '\3') + open(file)};
}
