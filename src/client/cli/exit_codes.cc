#include "client/cli/exit_codes.h"

#include <fmt/format.h>

#include <cstdio>

namespace archil::cli {

int ExitCodeOf(Code code) {
  switch (code) {
    case Code::kOk: return kExitOk;
    case Code::kUnavailable:
    case Code::kUnknown: return kExitUnreachable;
    case Code::kNoSuchDisk: return kExitNoSuchDisk;
    case Code::kHeldElsewhere: return kExitHeldElsewhere;
    case Code::kPermission:
    case Code::kAccess: return kExitPermission;
    default: return kExitFailure;
  }
}

int Refuse(int exit_code, std::string_view cause, std::string_view remedy) {
  fmt::print(stderr, "archil: {}\n", cause);
  if (!remedy.empty()) fmt::print(stderr, "  {}\n", remedy);
  return exit_code;
}

std::string RemedyOf(Code code, std::string_view server) {
  switch (code) {
    case Code::kUnavailable:
    case Code::kUnknown:
      return fmt::format("is a server running at {}? Start one with `archild all --dir DIR --listen {}`, or name another with "
                         "--server or ARCHIL_SERVER", server, server);
    case Code::kNoSuchDisk: return "`archil disk list` shows the disks, `archil disk create NAME` makes one";
    case Code::kFenced: return "the server ended this session: unmount with --force and mount again";
    default: return {};
  }
}

int RefuseServerError(const Error& error, std::string_view what, std::string_view server) {
  const std::string_view why = error.message().empty() ? CodeName(error.code()) : error.message();
  return Refuse(ExitCodeOf(error.code()), fmt::format("{}: {}", what, why), RemedyOf(error.code(), server));
}

}  // namespace archil::cli
