#include "common/base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace archil {

uint64_t Checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace archil
