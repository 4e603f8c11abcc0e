// Reads a disk's log back: every record after a position, in order, from the segments of the manifest.
//
// A closed segment holds whole good records up to its end, nothing else: anything different is damage (kCorrupt, nothing is
// cut). Only the tail of the open segment may be torn: it is cut if no good record follows it. Pure but for the reads.
#pragma once

#include <functional>

#include "common/format/log_record.h"
#include "server/meta/log/manifest.h"
#include "server/meta/meta_server.h"

namespace archil {

struct LogEnd {
  Lsn last;                // newest record; 0 for an empty log
  uint64_t open_end = 0;   // bytes of whole records in the open segment, if there is one
  uint64_t torn = 0;       // bytes that were cut behind them
  uint64_t records = 0;    // handed to `fn`
};

// Calls fn for each record with a position greater than `after`. `open_length` is the length of the open segment (as fencing told it).
Result<LogEnd> ReadLog(const OpContext& ctx, DataServerSet& data, DiskId disk, const Manifest& manifest, uint64_t open_length, Lsn after,
                       const std::function<Status(LogFrame&&)>& fn);

}  // namespace archil
