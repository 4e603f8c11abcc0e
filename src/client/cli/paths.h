// Where the client keeps its sockets and state, and how a mount point is named. Nothing here touches a mount point
// that is mounted: its path is worked out from its parent and the mount table.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace archil::cli {

// Sockets: $ARCHIL_RUNTIME_DIR; else /run/archil for root; else $XDG_RUNTIME_DIR/archil; else /tmp/archil-UID.
std::string RuntimeDir();
// Lock files and logs, kept over a reboot: $ARCHIL_STATE_DIR; else /var/lib/archil for root; else
// $XDG_STATE_HOME/archil; else ~/.local/state/archil.
std::string StateDir();
// Files of what fenced mounts lost (client/recovery), unless `archil mount --recovery-dir` names another: "lost" in StateDir().
std::string LostDir();
// Makes the directory (0700) and its parents. kPermission naming the environment variable that moves it.
Status MakePrivateDir(const std::string& dir, std::string_view variable);

// Absolute, "." and ".." and doubled slashes taken out; looks at no file.
std::string LexicalPath(std::string_view path);
// The path by which the mount table would name it: parent resolved, last component taken as it is if something is
// mounted there, else resolved too. kNotFound … if it does not exist.
Result<std::string> CanonicalMountpoint(const std::string& path);

// 16 hex digits, stable over versions (FNV-1a).
std::string PathKey(std::string_view text);
std::string ControlSocketPath(std::string_view canonical_mountpoint);
// What is known about the mount, beside its socket; left over when a daemon dies.
std::string MountInfoPath(std::string_view canonical_mountpoint);

}  // namespace archil::cli
