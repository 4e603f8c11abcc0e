// Records and log records with every field set: what golden files pin and fuzz targets start from. Never changed, only added to.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/format/log_record.h"
#include "common/format/records.h"

namespace archil {

struct Sample {
  std::string name;
  std::string bytes;
  // Decodes bytes of this kind and encodes what they hold.
  std::function<Result<std::string>(std::string_view)> reencode;
};

std::vector<Sample> SampleRecords();
std::vector<Sample> SampleLogRecords();
// What only version 2 can say.
std::vector<Sample> SampleRecordsV2();
std::vector<Sample> SampleLogRecordsV2();
// Operations applied at the server.
std::vector<Sample> SampleRecordsServerOps();
std::vector<Sample> SampleLogRecordsV3();
// A session with a credit, and how it came by it.
std::vector<Sample> SampleRecordsV3();
std::vector<Sample> SampleLogRecordsV4();

}  // namespace archil
