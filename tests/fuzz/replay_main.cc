// Runs a fuzz target as an ordinary test, without libFuzzer: its valid inputs, cut, mutated and crossed, and random bytes.
//   fuzz_x [--rounds N] [--seed S] [FILE|DIR …]     with files: only those
// The input of the running round is kept in a file if the target crashes (ARCHIL_FUZZ_ARTIFACT names it).
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/env/random.h"
#include "tests/fuzz/fuzz.h"

namespace archil {
namespace {

const std::string* running_input = nullptr;

void SaveInput(int signal) {
  const char* path = std::getenv("ARCHIL_FUZZ_ARTIFACT");
  if (running_input != nullptr && path != nullptr) {
    if (std::FILE* f = std::fopen(path, "wb")) {
      std::fwrite(running_input->data(), 1, running_input->size(), f);
      std::fclose(f);
    }
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void RunOne(const std::string& input) {
  running_input = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  running_input = nullptr;
}

void Mutate(Random& random, const std::vector<std::string>& seeds, std::string& s) {
  const auto somewhere = [&](size_t size) { return static_cast<size_t>(random.Below(size + 1)); };
  switch (random.Below(8)) {
    case 0: s.resize(somewhere(s.size())); break;
    case 1: s.insert(somewhere(s.size()), 1 + random.Below(8), static_cast<char>(random.Next())); break;
    case 2:
      if (!s.empty()) s.erase(random.Below(s.size()), 1 + random.Below(4));
      break;
    case 3:
      if (!s.empty()) s[random.Below(s.size())] ^= static_cast<char>(1U << random.Below(8));
      break;
    case 4:
      if (!s.empty()) s[random.Below(s.size())] = static_cast<char>(random.Next());
      break;
    case 5:  // values at the edges
      if (!s.empty()) s[random.Below(s.size())] = "\x00\x01\x7f\x80\xff\xfe\x10\x40"[random.Below(8)];
      break;
    case 6: {  // the rest of another input
      const std::string& other = seeds[random.Below(seeds.size())];
      s.resize(somewhere(s.size()));
      s += other.substr(somewhere(other.size()));
      break;
    }
    case 7: {  // a run of one byte, as in overlong lengths
      const size_t at = somewhere(s.size());
      s.replace(at, std::min<size_t>(10, s.size() - at), std::string(1 + random.Below(10), random.Below(2) ? '\xff' : '\x80'));
      break;
    }
  }
}

std::string RandomBytes(Random& random) {
  std::string s(random.Below(200), '\0');
  for (char& c : s) c = static_cast<char>(random.Next());
  return s;
}

void RunRounds(uint64_t rounds, uint64_t seed) {
  const auto random = SeededRandom(seed);
  std::vector<std::string> seeds = FuzzSeeds();
  for (const std::string& s : seeds) RunOne(s);
  seeds.emplace_back();
  for (const std::string& s : seeds) {
    for (size_t cut = 0; cut < std::min<size_t>(s.size(), 4096); cut++) RunOne(s.substr(0, cut));
  }
  for (uint64_t i = 0; i < rounds; i++) {
    std::string input = random->Below(8) == 0 ? RandomBytes(*random) : seeds[random->Below(seeds.size())];
    for (uint64_t n = 1 + random->Below(5); n > 0; n--) Mutate(*random, seeds, input);
    RunOne(input);
  }
  fmt::print("{} seeds, {} rounds, --seed {}\n", seeds.size() - 1, rounds, seed);
}

void RunPath(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) RunPath(entry.path());
    return;
  }
  std::ifstream in(path, std::ios::binary);
  RunOne(std::string(std::istreambuf_iterator<char>(in), {}));
}

}  // namespace
}  // namespace archil

int main(int argc, char** argv) {
  uint64_t rounds = 100'000;
  uint64_t seed = 1;
  if (std::getenv("ARCHIL_TEST_LONG") != nullptr) rounds *= 50;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; i++) {
    const std::string_view arg = argv[i];
    if (arg == "--rounds" && i + 1 < argc) {
      rounds = std::strtoull(argv[++i], nullptr, 10);
    } else if (arg == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      paths.emplace_back(arg);
    }
  }
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) std::signal(signal, archil::SaveInput);
  if (paths.empty()) {
    archil::RunRounds(rounds, seed);
  } else {
    for (const std::string& path : paths) archil::RunPath(path);
  }
  return 0;
}
