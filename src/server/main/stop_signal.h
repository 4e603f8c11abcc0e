// SIGTERM and SIGINT as an event. One object in a process.
#pragma once

#include "common/base/result.h"

namespace archil {

class StopSignal {
 public:
  // From here on the signals no longer end the process. A second one does.
  static void Install();
  // Blocks until one has come.
  static void Wait();
};

}  // namespace archil
