#include "client/cli/holders.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>

#include "absl/time/clock.h"

namespace archil::cli {
namespace {

bool Inside(std::string_view path, std::string_view mountpoint) {
  if (path.substr(0, mountpoint.size()) != mountpoint) return false;
  return path.size() == mountpoint.size() || path[mountpoint.size()] == '/';
}

// The target of a link below /proc; the kernel knows it, the file system is not asked.
std::string Target(const std::string& link) {
  char buf[PATH_MAX];
  const ssize_t n = readlink(link.c_str(), buf, sizeof(buf));
  return n > 0 ? std::string(buf, static_cast<size_t>(n)) : "";
}

std::vector<std::string> Names(const std::string& dir) {
  std::vector<std::string> names;
  DIR* handle = opendir(dir.c_str());
  if (handle == nullptr) return names;
  while (const dirent* entry = readdir(handle)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(handle);
  return names;
}

std::string ReadText(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buf[16384];
  for (ssize_t n; (n = read(fd, buf, sizeof(buf))) > 0;) text.append(buf, static_cast<size_t>(n));
  close(fd);
  return text;
}

std::string UsedPath(const std::string& proc, std::string_view mountpoint) {
  for (const char* link : {"/cwd", "/root", "/exe"}) {
    const std::string path = Target(proc + link);
    if (Inside(path, mountpoint)) return path;
  }
  for (const std::string& fd : Names(proc + "/fd")) {
    const std::string path = Target(proc + "/fd/" + fd);
    if (Inside(path, mountpoint)) return path;
  }
  const std::string maps = ReadText(proc + "/maps");
  const size_t at = maps.find(" " + std::string(mountpoint) + "/");
  return at == std::string::npos ? "" : maps.substr(at + 1, maps.find('\n', at) - at - 1);
}

}  // namespace

std::vector<Holder> FindHolders(std::string_view mountpoint, size_t limit, absl::Duration patience) {
  std::vector<Holder> holders;
  const absl::Time give_up = absl::Now() + patience;
  for (const std::string& name : Names("/proc")) {
    if (holders.size() >= limit || absl::Now() > give_up) break;
    if (!std::isdigit(static_cast<unsigned char>(name[0]))) continue;
    const std::string proc = "/proc/" + name;
    std::string path = UsedPath(proc, mountpoint);
    if (path.empty()) continue;
    std::string command = ReadText(proc + "/comm");
    while (!command.empty() && command.back() == '\n') command.pop_back();
    holders.push_back({static_cast<pid_t>(std::atoi(name.c_str())), std::move(command), std::move(path)});
  }
  return holders;
}

}  // namespace archil::cli
