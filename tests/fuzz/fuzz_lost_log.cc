// Loading a file of lost operations: survives anything, and what it gives can be shown, saved and loaded again with the
// same meaning. An input is the file itself (first byte 0), or the bodies of its records, each with its kind and length
// before it, put into frames with good checksums (any other first byte).
#include <algorithm>

#include "client/recovery/describe.h"
#include "client/recovery/lost_format.h"
#include "client/recovery/lost_log.h"
#include "common/base/bytes.h"
#include "common/base/check.h"
#include "common/env/mem_files.h"
#include "common/format/op_codec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/sample_lost_log.h"

namespace archil {
namespace {

constexpr char kPath[] = "/input";

std::string FileOf(std::string_view input) {
  if (input.empty() || input[0] == 0) return std::string(input.substr(std::min<size_t>(1, input.size())));
  std::string file = LostHeader();
  ByteReader in(input.substr(1));
  for (uint64_t number = 0; !in.failed() && !in.done(); number++) {
    const auto kind = static_cast<LostRecord>(in.U8());
    const std::string_view body = in.LengthPrefixed();
    if (!in.failed()) AppendLostRecord(number, kind, body.substr(0, kMaxLostBody), file);
  }
  return file;
}

// What the ops say; extents that follow each other may have been cut at other places.
std::string Meaning(const LostLog& log, bool exact) {
  std::string out;
  for (const OpLine& line : Describe(log).lines) out += line.Text() + "\n";
  ByteWriter w;
  if (exact) {
    for (const Op& op : log.ops) EncodeOp(op, w);
  }
  return out + w.str();
}

}  // namespace
}  // namespace archil

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace archil;
  MemFiles files;
  {
    auto file = files.Open(kPath, OpenMode::kCreateNew);
    ARCHIL_CHECK(file.ok());
    ARCHIL_CHECK((*file)->Write(0, FileOf({reinterpret_cast<const char*>(data), size})).ok());
  }
  const auto log = LoadLostLog(files, kPath);
  if (!log.ok()) return 0;
  const Listing listing = Describe(*log);
  ARCHIL_CHECK(listing.lines.size() == log->ops.size());
  (void)NamesBefore(log->ops, log->names);
  const auto saved = SaveLostLog(files, "/saved", *log);
  ARCHIL_CHECK(saved.ok());
  const auto again = LoadLostLog(files, *saved);
  ARCHIL_CHECK(again.ok() && again->damaged.empty());
  ARCHIL_CHECK(again->names == log->names);
  const bool exact = size < kMaxInlineBytes;
  ARCHIL_CHECK(Meaning(*again, exact) == Meaning(*log, exact));
  return 0;
}

std::vector<std::string> archil::FuzzSeeds() {
  MemFiles files;
  LostLog log = SampleLostLog();
  const auto path = SaveLostLog(files, "/lost", log);
  ARCHIL_CHECK(path.ok());
  const auto whole = ReadWholeFile(files, *path);
  ARCHIL_CHECK(whole.ok());
  std::string records("\x01");
  ByteWriter w;
  for (std::string_view rest = std::string_view(*whole).substr(kLostHeaderBytes); !rest.empty();) {
    ByteReader in(rest);
    const uint32_t length = in.U32();
    w.U8(in.U8());
    w.LengthPrefixed(rest.substr(kLostFrameBytes, length));
    rest.remove_prefix(kLostFrameBytes + length);
  }
  records += w.str();
  return {std::string(1, '\0') + *whole, records};
}
