// Assertions that stay on in release builds. For invariants of our own code only: bytes from disk,
// wire or kernel never trip a check, they give an Error.
#pragma once

namespace archil {

[[noreturn]] void CheckFailed(const char* file, int line, const char* expr);

#define ARCHIL_CHECK(expr) \
  (__builtin_expect(!!(expr), 1) ? (void)0 : ::archil::CheckFailed(__FILE__, __LINE__, #expr))

}  // namespace archil
