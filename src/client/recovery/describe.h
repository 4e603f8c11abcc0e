// What a LostLog holds, in words: one line per op, and who lost what. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/recovery/lost_log.h"

namespace archil {

struct OpLine {
  std::string verb;      // "create", "write", "rename" …
  std::string path;      // printable; when the op was made
  std::string new_path;  // of link, rename and exchange
  std::string more;      // "4096 bytes at 0"
  InodeId ino;
  uint64_t bytes = 0;       // written
  uint64_t unreadable = 0;  // of bytes that were not to be had any more when the file was saved

  std::string Text() const;
};

// A file or directory of the disk that is not as the mount had shown it.
struct Loss {
  InodeId ino;
  std::string path;        // where it is on the disk; of what was new, where it would be
  bool directory = false;  // lost changes of its names or attributes
  bool created = false;    // by the lost ops: the disk has nothing of it
  uint64_t ops = 0;
  uint64_t bytes = 0;
  uint64_t unreadable = 0;
};

struct Listing {
  std::vector<OpLine> lines;  // one for each op
  std::vector<Loss> losses;   // by path
  uint64_t bytes = 0;
  uint64_t unreadable = 0;
};

Listing Describe(const LostLog& log);

}  // namespace archil
