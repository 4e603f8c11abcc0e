// PathNames: the names that inodes have while the ops of a LostLog are gone through one by one, and paths made of them.
// Pure, for showing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/recovery/lost_log.h"

namespace archil {

// How deep a path may be; names of a damaged file may go round in a circle.
inline constexpr size_t kMaxPathDepth = 2048;

// For a terminal: control characters, backslashes and bytes that are no UTF-8 as \xNN.
std::string Printable(std::string_view bytes);

class PathNames {
 public:
  // Where the ops of `log` begin.
  explicit PathNames(const LostLog& log);

  // Goes past one op.
  void Apply(const Op& op);

  // "/a/b" from the mounted root, printable; "inode 7" where no name is known, "inode 7 (was /a/b)" where the last one
  // is gone.
  std::string PathOf(InodeId ino) const;
  std::string PathOf(InodeId parent, std::string_view name) const;
  bool HasName(InodeId ino) const;

 private:
  struct Known {
    std::vector<LostLog::Name> names;
    LostLog::Name last;  // the one that went last, if `names` is empty
  };
  void Add(InodeId ino, const LostLog::Name& name);
  void Remove(InodeId ino, const LostLog::Name& name);
  // "" for the root; false if the way up ends before it.
  bool Climb(InodeId ino, std::string* path) const;

  InodeId root_;
  std::map<InodeId, Known> known_;
};

}  // namespace archil
