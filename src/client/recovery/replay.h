// Replay: the ops of a LostLog done again below a directory, by ordinary system calls: a mount of the disk, or any
// directory.
//
// What was there before the lost ops ("base") is not changed unless `overwrite`:
//   a base file that is there       gets its lost bytes beside it, as NAME.recovered (-2 …), sparse: only what was lost
//   is in it a base file that is not there   is made, sparse, with only what was lost (mode 0600); so are directories
//   above it a create, link or rename that meets a name   makes NAME.recovered instead; ops below it follow removals of
//   base files, and attributes of base files without lost bytes     are skipped a rename of a base file         is done
//   if its new name is free, else skipped; an exchange of one is skipped
// With `overwrite` base files are changed in place, replaced and removed. A name of another kind (a directory where the
// ops have a file) is never replaced. An inode whose name is not known is inode-N.recovered in the directory. Modes and
// times are set at the end (a file of mode 0444 is written before), deepest first, and everything is synced.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/recovery/lost_log.h"

namespace archil {

enum class ReplayMode : uint8_t { kKeep, kOverwrite };

enum class Outcome : uint8_t {
  kDone,     // as it was
  kNothing,  // nothing to do: times of a base directory, files that later ops remove
  kBeside,   // under another name
  kSkipped,
};
std::string_view OutcomeName(Outcome outcome);

struct OpOutcome {
  Outcome outcome = Outcome::kDone;
  std::string detail;  // for people; may be empty
};

struct ReplayReport {
  std::vector<OpOutcome> ops;           // one for each op of the log
  std::vector<std::string> at_the_end;  // what failed when modes, times and durability were seen to
  bool Complete() const;                // nothing was skipped, put beside or failed
};

// kNotFound, kNotDirectory, kAccess: of `dir` itself, and nothing was done. Everything else is told by op.
Result<ReplayReport> Replay(const LostLog& log, const std::string& dir, ReplayMode mode);

}  // namespace archil
