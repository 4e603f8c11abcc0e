// What every fuzz target defines: the entry that libFuzzer calls, and valid inputs to start from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Must survive any bytes. A broken promise of the code under test ends the process (ARCHIL_CHECK).
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace archil {

// Deterministic. replay_main mutates them; libFuzzer takes its seeds from tests/fuzz/corpus.
std::vector<std::string> FuzzSeeds();

}  // namespace archil
