// World: one simulated run. Clients with applications, servers, what fails between them, and the oracles.
//
// A run is a few rounds. In a round applications on all clients work at once on a few names while clients and servers
// crash and links are cut; then everything heals, every mount shows its tree, and some order of all that was answered
// must explain it (history.h). Meanwhile a watcher compares what the clients believe to hold (DLG-1). At the end all
// unmount and nothing may be left over.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/client.h"
#include "tests/support/mem_cluster.h"

namespace archil::sim {

struct SimSetup {
  uint64_t seed = 1;
  int clients = 3;
  int threads = 2;  // applications of a client
  int rounds = 4;
  int scripts = 3;  // of an application in a round
  absl::Duration lease = absl::Seconds(2);
  uint64_t inode_limit = 1'000'000;
  uint64_t cache_bytes = 1 << 20;
  size_t rights_kept = 1'000'000;  // of a client, before the server wants the oldest back
  uint32_t checkouts = 0;          // of a hundred scripts
  uint64_t quota = 0;  // bytes; files have some 40 at most. 0: none
  absl::Duration flush_after = absl::Milliseconds(200);
  NetworkTuning network;                           // while a round runs
  absl::Duration pause = absl::Milliseconds(600);  // at most, between two faults
  // How often, of a hundred things that go wrong; all 0: nothing does.
  uint32_t cut_short = 0;
  uint32_t cut_long = 0;  // longer than the lease
  uint32_t crash_client = 0;
  uint32_t crash_meta = 0;
  uint32_t stop_meta = 0;
  uint32_t crash_data = 0;
};

// What a seed is, if nothing else is said: small limits, and other faults for other seeds.
SimSetup SetupOf(uint64_t seed);

struct SimTotals {
  uint64_t runs = 0;
  uint64_t events = 0;
  uint64_t succeeded = 0;
  uint64_t unknown = 0;
  uint64_t from_memory = 0;  // answered by a kernel
  uint64_t losses = 0;       // sessions ended without their consent
  uint64_t crashes = 0;      // of servers
  uint64_t lost_calls = 0;
  uint64_t cuts = 0;
  uint64_t copies = 0;
  uint64_t recalls = 0;
  uint64_t no_space = 0;    // writes that found the quota used up
  uint64_t refused = 0;     // changes of what another has checked out
  uint64_t watched = 0;     // comparisons of what clients believe
  uint64_t no_verdict = 0;  // rounds whose order was not found in time, nor excluded
  uint64_t switches = 0;
};

struct SimResult {
  std::optional<std::string> failure;
  uint64_t trace = 0;
};
// Runs a seed; adds to the totals.
SimResult RunSim(const SimSetup& setup, SimTotals& totals);

}  // namespace archil::sim
