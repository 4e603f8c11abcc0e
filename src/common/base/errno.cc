#include "common/base/errno.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace archil {
namespace {

struct Pair {
  Code code;
  int err;
};

constexpr Pair kPairs[] = {
    {Code::kNotFound, ENOENT},       {Code::kExists, EEXIST},
    {Code::kNotDirectory, ENOTDIR},  {Code::kIsDirectory, EISDIR},
    {Code::kNotEmpty, ENOTEMPTY},    {Code::kInvalid, EINVAL},
    {Code::kNameTooLong, ENAMETOOLONG}, {Code::kNoSpace, ENOSPC},
    {Code::kQuota, EDQUOT},          {Code::kFileTooBig, EFBIG},
    {Code::kPermission, EPERM},      {Code::kAccess, EACCES},
    {Code::kCrossDevice, EXDEV},     {Code::kLoop, ELOOP},
    {Code::kTooManyLinks, EMLINK},   {Code::kNoData, ENODATA},
    {Code::kRange, ERANGE},          {Code::kBusy, EBUSY},
    {Code::kReadOnly, EROFS},        {Code::kBadHandle, EBADF},
    {Code::kStale, ESTALE},          {Code::kNotSupported, EOPNOTSUPP},
    {Code::kNoSuchAddress, ENXIO},   {Code::kTooBig, E2BIG},
    {Code::kNotImplemented, ENOSYS}, {Code::kDeadlock, EDEADLK},
    {Code::kNoLocks, ENOLCK},        {Code::kTryAgain, EAGAIN},
    {Code::kInterrupted, EINTR},     {Code::kIo, EIO},
};

}  // namespace

int ErrnoOf(Code code) {
  if (code == Code::kOk) return 0;
  for (const Pair& p : kPairs) {
    if (p.code == code) return p.err;
  }
  if (code == Code::kHeldElsewhere) return EBUSY;
  if (code == Code::kNoSuchDisk) return ENOENT;
  return EIO;
}

Error ErrnoError(int errno_value, std::string_view what) {
  char buf[128];
  std::string message(what);
  message += ": ";
  message += strerror_r(errno_value, buf, sizeof(buf));
  for (const Pair& p : kPairs) {
    if (p.err == errno_value) return Error(p.code, std::move(message));
  }
  return Error(Code::kIo, std::move(message));
}

}  // namespace archil
