// What applications do in a simulated run: short scripts of calls on a few names, so that they meet.
#pragma once

#include <functional>

#include "tests/sim/client.h"

namespace archil::sim {

struct Application {
  SimScheduler& scheduler;
  SimClient& client;
  int thread = 0;
  int scripts = 3;
  uint32_t checkouts = 0;  // of a hundred scripts, so many begin with one or end one
};

// Runs to its end, or until a call has no answer. `call` makes one call and notes it.
void RunApplication(const Application& application, const std::function<void(SimClient&, Event&)>& call);

}  // namespace archil::sim
