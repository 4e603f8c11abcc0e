// Who uses a mount: processes with an open file, a mapping, a working directory, root or program in it.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace archil::cli {

struct Holder {
  pid_t pid = 0;
  std::string command;
  std::string path;  // one that it uses
};

// Reads /proc only, never the mount. At most `limit` of them, looking no longer than `patience`; those of other users
// may be missing for who is not root.
std::vector<Holder> FindHolders(std::string_view mountpoint, size_t limit, absl::Duration patience);

}  // namespace archil::cli
