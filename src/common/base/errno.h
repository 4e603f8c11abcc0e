// The one place that knows errno.
#pragma once

#include <string_view>

#include "common/base/result.h"

namespace archil {

// The errno (positive) a file-system call answers for a code; kOk is 0. Codes without an errno of
// their own (kCorrupt, kFenced, kUnavailable past its deadline …) are EIO.
int ErrnoOf(Code code);

// An error for a failed system call, message "WHAT: strerror". Errno values without a code are kIo.
Error ErrnoError(int errno_value, std::string_view what);

}  // namespace archil
