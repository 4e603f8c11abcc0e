// The two personalities of a mount (DESIGN §6), fixed when it begins because the kernel fixes them then.
#pragma once

#include <cstdint>

namespace archil {

enum class Personality : uint8_t {
  // Others change files meanwhile: opens, closes and file locks come to the daemon.
  kShared,
  // Nobody else can: the kernel keeps locks, opens files by itself (no OPEN, RELEASE, FLUSH), and what it has not forgotten may
  // be open. Written bytes come at once.
  kExclusive,
  // The same, and the kernel keeps written pages, sizes and times of files until it must hand them in.
  kExclusiveWriteback,
};

}  // namespace archil
