// Result<T>: a value or an Error. Nothing in Archil throws.
//
// Codes come in bands that tell the caller what it may do (see BandOf):
//   verdict      final; asking again gives the same answer
//   not applied  nothing happened; a retry is safe
//   unknown      it may or may not have happened; retry only under the same id
//   broken       stop using the object that said so
// An Error without a message allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace archil {

enum class Code : uint8_t {
  kOk = 0,
  // --- verdict
  kNotFound = 1,       // ENOENT
  kExists = 2,         // EEXIST
  kNotDirectory = 3,   // ENOTDIR
  kIsDirectory = 4,    // EISDIR
  kNotEmpty = 5,       // ENOTEMPTY
  kInvalid = 6,        // EINVAL
  kNameTooLong = 7,    // ENAMETOOLONG
  kNoSpace = 8,        // ENOSPC
  kQuota = 9,          // EDQUOT
  kFileTooBig = 10,    // EFBIG
  kPermission = 11,    // EPERM
  kAccess = 12,        // EACCES
  kCrossDevice = 13,   // EXDEV
  kLoop = 14,          // ELOOP
  kTooManyLinks = 15,  // EMLINK
  kNoData = 16,        // ENODATA
  kRange = 17,         // ERANGE
  kBusy = 18,          // EBUSY
  kReadOnly = 19,      // EROFS
  kBadHandle = 20,     // EBADF
  kStale = 21,         // ESTALE
  kNotSupported = 22,  // EOPNOTSUPP
  kNoSuchAddress = 23, // ENXIO (SEEK_DATA past the end)
  kTooBig = 24,        // E2BIG (an xattr value over the limit)
  kHeldElsewhere = 25, // another session holds what was asked for
  kNoSuchDisk = 26,
  kNotImplemented = 27,  // ENOSYS
  kDeadlock = 28,        // EDEADLK
  kNoLocks = 29,         // ENOLCK: a limit on locks was reached
  // --- not applied
  kUnavailable = 64,  // the server cannot be reached or is not ready
  kTryAgain = 65,     // EAGAIN; a limit was reached, later it may work
  kWouldBlock = 66,   // the caller forbade waiting and the call would have to wait (internal, never an errno)
  kInterrupted = 67,  // EINTR
  kMoved = 68,        // another server is responsible
  // --- unknown
  kUnknown = 96,  // deadline passed or answer lost: may have been applied
  // --- broken
  kIo = 128,        // EIO
  kFenced = 129,    // the session was ended by the server; what it had not committed is lost
  kCorrupt = 130,   // bytes failed their checksum or do not decode
  kInternal = 131,  // an invariant does not hold
};

enum class Band : uint8_t { kOk, kVerdict, kNotApplied, kUnknown, kBroken };
Band BandOf(Code code);
// Stable lower-case name, e.g. "not_found".
std::string_view CodeName(Code code);

class [[nodiscard]] Error {
 public:
  Error(Code code) : code_(code) {}  // NOLINT: implicit on purpose, `return Code::kNotFound;`
  Error(Code code, std::string message)
      : code_(code), message_(std::make_shared<const std::string>(std::move(message))) {}

  Code code() const { return code_; }
  Band band() const { return BandOf(code_); }
  // What was wrong and what to do, for a person; may be empty.
  std::string_view message() const { return message_ ? std::string_view(*message_) : std::string_view(); }
  // "code: message".
  std::string ToString() const;

 private:
  Code code_;
  std::shared_ptr<const std::string> message_;  // shared by copies of one error, immutable
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}  // NOLINT
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  Result(Code code) : v_(std::in_place_index<1>, code) {}  // NOLINT

  bool ok() const { return v_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(v_); }
  Code code() const { return ok() ? Code::kOk : error().code(); }

 private:
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() : error_(Code::kOk) {}
  Result(Error error) : error_(std::move(error)) {}  // NOLINT
  Result(Code code) : error_(code) {}                // NOLINT

  bool ok() const { return error_.code() == Code::kOk; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_; }
  Code code() const { return error_.code(); }

 private:
  Error error_;
};

using Status = Result<void>;
inline Status Ok() { return Status(); }

#define ARCHIL_CONCAT_INNER(a, b) a##b
#define ARCHIL_CONCAT(a, b) ARCHIL_CONCAT_INNER(a, b)
#define ARCHIL_RETURN_IF_ERROR(expr)                    \
  do {                                                  \
    auto archil_status_ = (expr);                       \
    if (!archil_status_.ok()) return archil_status_.error(); \
  } while (0)
// ARCHIL_ASSIGN_OR_RETURN(auto x, F()); the left side must hold no unparenthesised comma.
#define ARCHIL_ASSIGN_OR_RETURN(lhs, expr) \
  ARCHIL_ASSIGN_OR_RETURN_IMPL(ARCHIL_CONCAT(archil_result_, __LINE__), lhs, expr)
#define ARCHIL_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return tmp.error();                 \
  lhs = std::move(tmp).value()

}  // namespace archil
