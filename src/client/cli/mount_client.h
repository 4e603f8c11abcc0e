// What commands about a mounted disk have in common: from a path to its daemon.
#pragma once

#include <optional>
#include <string>

#include "client/cli/control.h"
#include "client/cli/json.h"
#include "client/fuse/mount_table.h"

namespace archil::cli {

inline constexpr std::string_view kMountType = "fuse.archil";

struct MountTarget {
  std::string path;                     // canonical
  std::optional<MountEntry> mount;      // of ours in the mount table
  std::optional<ControlClient> daemon;  // alive
};

// Looks the path up without touching it. Returns 0, or the exit code of a refusal that was told.
int FindTarget(const std::string& path, MountTarget* target);
// The same, and refuses if there is no daemon.
int FindLivingTarget(const std::string& path, MountTarget* target);

// One call; a failure is told and its exit code returned.
int CallDaemon(MountTarget& target, const Json& request, absl::Duration patience, Json* reply,
               const std::function<void(const Json&)>& progress = {});

// "12 B", "3.4 MiB".
std::string HumanBytes(uint64_t bytes);
// For progress lines of a flush.
void TellProgress(const Json& line);

}  // namespace archil::cli
