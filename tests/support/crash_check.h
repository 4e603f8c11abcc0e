// What a disk may look like after a crash of the client (with or without the server): ORD-1, ORD-2, DUR-1 as a check.
//
// The history is one sequence of events: metadata operations and writes, in the order in which they were acknowledged.
// A found tree is right if some cut c of it explains everything: every metadata event before c has happened and none
// from c on, and
//   DUR-1  c is not before the part that fsync made durable;
//   ORD-1  names, types, targets, modes, owners, link counts, xattrs and times are those of the state at c;
//   ORD-2  each file's bytes come from moments of that file between its floor and c. The floor is the latest moment
//   before c at
//          which its data had to be taken: its rename, link, exchange, setattr, truncate or fallocate, the rename of
//          any directory, or the last write that an fsync of it covered. The size is between those of floor and c, and
//          each byte below it has a value that it had at one of those moments, with a size that reached it then: so no
//          size runs ahead of its data, and zeros are right only where the file really had zeros. A write of a file
//          counts for the order as well: one that came after the first metadata event that is missing is missing too
//          (the log is one prefix).
// A file with writes between floor and c may show its mtime, ctime and cleared set-id bits of either side.
#pragma once

#include <optional>
#include <string>

#include "tests/support/agreement.h"
#include "tests/support/fs_runner.h"
#include "tests/support/ref_state.h"

namespace archil::test {

struct CrashExplanation {
  size_t cut = 0;  // the latest one that explains; events from here on were lost
  RefState state;  // what to go on with: the state at the cut with the bytes that were found
};

// nullopt, and in `why` the cuts that come nearest, if nothing explains the tree.
std::optional<CrashExplanation> ExplainCrash(const RefHistory& history, const Tree& found, const Agreement& agreement,
                                             std::string* why);

}  // namespace archil::test
