#include "client/cli/paths.h"

#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "client/fuse/mount_table.h"
#include "common/base/errno.h"

namespace archil::cli {
namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<std::string> Resolve(const std::string& path) {
  char buf[PATH_MAX];
  if (realpath(path.c_str(), buf) == nullptr) return ErrnoError(errno, path);
  return std::string(buf);
}

}  // namespace

std::string RuntimeDir() {
  if (std::string dir = FromEnvironment("ARCHIL_RUNTIME_DIR"); !dir.empty()) return dir;
  if (geteuid() == 0) return "/run/archil";
  if (std::string dir = FromEnvironment("XDG_RUNTIME_DIR"); !dir.empty()) return dir + "/archil";
  return fmt::format("/tmp/archil-{}", geteuid());
}

std::string StateDir() {
  if (std::string dir = FromEnvironment("ARCHIL_STATE_DIR"); !dir.empty()) return dir;
  if (geteuid() == 0) return "/var/lib/archil";
  if (std::string dir = FromEnvironment("XDG_STATE_HOME"); !dir.empty()) return dir + "/archil";
  return FromEnvironment("HOME") + "/.local/state/archil";
}

std::string LostDir() { return StateDir() + "/lost"; }

Status MakePrivateDir(const std::string& dir, std::string_view variable) {
  for (size_t slash = dir.find('/', 1); slash != std::string::npos; slash = dir.find('/', slash + 1)) {
    mkdir(dir.substr(0, slash).c_str(), 0755);
  }
  if (mkdir(dir.c_str(), 0700) == 0) return Ok();
  struct stat st;
  const bool usable = errno == EEXIST && stat(dir.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
  if (usable && access(dir.c_str(), W_OK | X_OK) == 0) return Ok();
  return Error(Code::kPermission, fmt::format("cannot use {}; set {} to a directory of your own", dir, variable));
}

std::string LexicalPath(std::string_view path) {
  std::string whole;
  if (path.empty() || path[0] != '/') {
    char buf[PATH_MAX];
    whole = getcwd(buf, sizeof(buf)) != nullptr ? buf : "/";
    whole.push_back('/');
  }
  whole.append(path);
  std::vector<std::string_view> parts;
  std::string_view rest = whole;
  while (!rest.empty()) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else {
      parts.push_back(part);
    }
  }
  std::string out;
  for (const std::string_view part : parts) out.append("/").append(part);
  return out.empty() ? "/" : out;
}

Result<std::string> CanonicalMountpoint(const std::string& path) {
  const std::string lexical = LexicalPath(path);
  if (FindMount(lexical)) return lexical;
  const size_t slash = lexical.rfind('/');
  ARCHIL_ASSIGN_OR_RETURN(std::string parent, Resolve(slash == 0 ? "/" : lexical.substr(0, slash)));
  if (parent == "/") parent.clear();
  const std::string joined = parent + lexical.substr(slash);
  if (FindMount(joined)) return joined;
  return Resolve(joined);
}

std::string PathKey(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::string ControlSocketPath(std::string_view canonical_mountpoint) {
  return fmt::format("{}/{}.sock", RuntimeDir(), PathKey(canonical_mountpoint));
}

std::string MountInfoPath(std::string_view canonical_mountpoint) {
  return fmt::format("{}/{}.json", RuntimeDir(), PathKey(canonical_mountpoint));
}

}  // namespace archil::cli
