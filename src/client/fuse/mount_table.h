// What /proc/self/mountinfo says about mounts. Never touches a mount point itself, so a hung mount hangs nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace archil {

struct MountEntry {
  std::string mountpoint;  // escapes decoded
  std::string type;        // "fuse.archil"
  std::string source;      // the disk
  uint32_t device_major = 0;
  uint32_t device_minor = 0;  // of FUSE: the number of its connection
  bool read_only = false;
};

// Lines that are not understood are left out.
std::vector<MountEntry> ParseMountInfo(std::string_view text);
std::vector<MountEntry> ReadMountTable();
// The topmost mount at exactly this path.
std::optional<MountEntry> FindMount(std::string_view mountpoint);

// Cuts the connection of a FUSE mount: every request, present and future, fails. False if no way to do so works
// (sysfs not mounted and not privileged).
bool AbortConnection(const MountEntry& mount);

}  // namespace archil
