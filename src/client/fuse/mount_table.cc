#include "client/fuse/mount_table.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <charconv>

namespace archil {
namespace {

// Space, tab, newline and backslash are written as \ooo.
std::string Unescape(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\\' && i + 3 < s.size()) {
      int value = 0;
      const auto end = std::from_chars(s.data() + i + 1, s.data() + i + 4, value, 8);
      if (end.ec == std::errc() && end.ptr == s.data() + i + 4) {
        out.push_back(static_cast<char>(value));
        i += 3;
        continue;
      }
    }
    out.push_back(s[i]);
  }
  return out;
}

std::vector<std::string_view> Fields(std::string_view line) {
  std::vector<std::string_view> fields;
  while (!line.empty()) {
    const size_t space = line.find(' ');
    if (space != 0) fields.push_back(line.substr(0, space));
    if (space == std::string_view::npos) break;
    line.remove_prefix(space + 1);
  }
  return fields;
}

bool ParseNumber(std::string_view s, uint32_t* out) {
  const auto end = std::from_chars(s.data(), s.data() + s.size(), *out);
  return end.ec == std::errc() && end.ptr == s.data() + s.size();
}

}  // namespace

// proc(5): id parent major:minor root mountpoint options [tags …] - type source super-options
std::vector<MountEntry> ParseMountInfo(std::string_view text) {
  std::vector<MountEntry> entries;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const std::vector<std::string_view> f = Fields(text.substr(0, newline));
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    size_t dash = 6;
    while (dash < f.size() && f[dash] != "-") ++dash;
    if (dash + 2 >= f.size()) continue;
    MountEntry entry;
    const size_t colon = f[2].find(':');
    if (colon == std::string_view::npos || !ParseNumber(f[2].substr(0, colon), &entry.device_major) ||
        !ParseNumber(f[2].substr(colon + 1), &entry.device_minor)) {
      continue;
    }
    entry.mountpoint = Unescape(f[4]);
    entry.type = f[dash + 1];
    entry.source = Unescape(f[dash + 2]);
    entry.read_only = f[5] == "ro" || f[5].substr(0, 3) == "ro,";
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<MountEntry> ReadMountTable() {
  std::string text;
  const int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char buf[16384];
  for (ssize_t n; (n = read(fd, buf, sizeof(buf))) > 0;) text.append(buf, n);
  close(fd);
  return ParseMountInfo(text);
}

std::optional<MountEntry> FindMount(std::string_view mountpoint) {
  std::optional<MountEntry> found;
  for (MountEntry& entry : ReadMountTable()) {
    if (entry.mountpoint == mountpoint) found = std::move(entry);
  }
  return found;
}

bool AbortConnection(const MountEntry& mount) {
  const std::string path = fmt::format("/sys/fs/fuse/connections/{}/abort", mount.device_minor);
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    const bool done = write(fd, "1", 1) == 1;
    close(fd);
    if (done) return true;
  }
  // MNT_FORCE aborts the connection of a FUSE mount even where the unmount itself then fails with EBUSY.
  if (umount2(mount.mountpoint.c_str(), MNT_FORCE) == 0) return true;
  return errno == EBUSY;
}

}  // namespace archil
