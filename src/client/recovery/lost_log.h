// LostLog: operations that a mount acknowledged and that its session lost when it was fenced (FENCE-1), with
// their bytes, in a file of the mount's machine. `archil recover-file` shows and replays it. Layout: docs/formats.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/api/ops.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/env/files.h"

namespace archil {

struct LostLog {
  struct Name {
    InodeId parent;
    std::string name;
    friend bool operator==(const Name&, const Name&) = default;
  };

  std::string disk, branch, client_name, reason;  // for people; each is cut at 4,096 bytes
  SessionId session;
  Timestamp when;
  InodeId root;  // the mounted root: paths start there
  // Of inodes that the ops are about, and of the directories above them, as they were before the first op.
  std::map<InodeId, Name> names;
  // In order. Bytes are kInline extents of any size; a kSegment extent stands for bytes that could not be read any
  // more.
  std::vector<Op> ops;
  // Of a loaded file: what is missing and where the file breaks off, for people. Empty: it is whole.
  std::string damaged;
};

// Names after all ops -> names before them: creates, links, removals and renames undone, the last one first. Pure.
// What the ops do not tell and `after` does not have stays unknown; of several names of an inode one is kept.
std::map<InodeId, LostLog::Name> NamesBefore(const std::vector<Op>& ops, std::map<InodeId, LostLog::Name> after);

// Writes `dir`/<disk>-<session, hex>-<UTC time of `when`>-<n>.archil-lost with mode 0600 and returns its path. `dir` is
// made (0700) with what is missing above it. On success the file and its name are durable. Never overwrites: n is the
// first free number. Needs no more memory than a few MiB beside the log. On failure (kNoSpace, kAccess …) a beginning
// of the file may be left; it loads as a damaged one, with the ops that were written. kInvalid, and nothing is written:
// extents past kMaxFileSize or whose bytes are not as many as their length.
Result<std::string> SaveLostLog(const std::string& dir, const LostLog& log);
Result<std::string> SaveLostLog(Files& files, const std::string& dir, const LostLog& log);

// What SaveLostLog wrote; extents of more than kMaxInlineBytes come back as several. Takes as much memory as the file
// is long. A file that is cut or damaged gives the ops before the damage, with `damaged` set. Errors: kNotFound …;
// kCorrupt: not such a file, or damaged before its first op; kNotSupported: of a newer version.
Result<LostLog> LoadLostLog(const std::string& path);
Result<LostLog> LoadLostLog(Files& files, const std::string& path);

}  // namespace archil
