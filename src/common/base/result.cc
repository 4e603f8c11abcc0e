#include "common/base/result.h"

namespace archil {

Band BandOf(Code code) {
  const auto v = static_cast<uint8_t>(code);
  if (v == 0) return Band::kOk;
  if (v < 64) return Band::kVerdict;
  if (v < 96) return Band::kNotApplied;
  if (v < 128) return Band::kUnknown;
  return Band::kBroken;
}

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kNotFound: return "not_found";
    case Code::kExists: return "exists";
    case Code::kNotDirectory: return "not_directory";
    case Code::kIsDirectory: return "is_directory";
    case Code::kNotEmpty: return "not_empty";
    case Code::kInvalid: return "invalid";
    case Code::kNameTooLong: return "name_too_long";
    case Code::kNoSpace: return "no_space";
    case Code::kQuota: return "quota";
    case Code::kFileTooBig: return "file_too_big";
    case Code::kPermission: return "permission";
    case Code::kAccess: return "access";
    case Code::kCrossDevice: return "cross_device";
    case Code::kLoop: return "loop";
    case Code::kTooManyLinks: return "too_many_links";
    case Code::kNoData: return "no_data";
    case Code::kRange: return "range";
    case Code::kBusy: return "busy";
    case Code::kReadOnly: return "read_only";
    case Code::kBadHandle: return "bad_handle";
    case Code::kStale: return "stale";
    case Code::kNotSupported: return "not_supported";
    case Code::kNoSuchAddress: return "no_such_address";
    case Code::kTooBig: return "too_big";
    case Code::kHeldElsewhere: return "held_elsewhere";
    case Code::kNoSuchDisk: return "no_such_disk";
    case Code::kNotImplemented: return "not_implemented";
    case Code::kDeadlock: return "deadlock";
    case Code::kNoLocks: return "no_locks";
    case Code::kUnavailable: return "unavailable";
    case Code::kTryAgain: return "try_again";
    case Code::kWouldBlock: return "would_block";
    case Code::kInterrupted: return "interrupted";
    case Code::kMoved: return "moved";
    case Code::kUnknown: return "unknown";
    case Code::kIo: return "io";
    case Code::kFenced: return "fenced";
    case Code::kCorrupt: return "corrupt";
    case Code::kInternal: return "internal";
  }
  return "undefined";
}

std::string Error::ToString() const {
  std::string out(CodeName(code_));
  if (message_ && !message_->empty()) {
    out += ": ";
    out += *message_;
  }
  return out;
}

}  // namespace archil
