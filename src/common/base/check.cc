#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace archil {

void CheckFailed(const char* file, int line, const char* expr) {
  std::fprintf(stderr, "archil: invariant broken at %s:%d: %s\n", file, line, expr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace archil
