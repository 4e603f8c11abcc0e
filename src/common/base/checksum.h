// The checksum of every durable byte and every data message: XXH3, 64 bits (libxxhash).
// Not cryptographic: it finds damage, not malice.
#pragma once

#include <cstdint>
#include <string_view>

namespace archil {

uint64_t Checksum(std::string_view bytes);

}  // namespace archil
