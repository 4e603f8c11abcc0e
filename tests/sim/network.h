// Network: what lies between a client and the servers. Each call travels on a thread of its own: its request and its
// answer are delayed, and may be lost; a request may come twice, the second time much later; a client's links may be
// cut for a while, also longer than its lease. What a caller hears is what the contract of the call allows:
// kUnavailable, or kUnknown for a change.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/core/mount.h"
#include "tests/sim/scheduler.h"

namespace archil::sim {

// Of a thousand calls.
struct NetworkTuning {
  uint32_t lose_request = 0;
  uint32_t lose_answer = 0;
  uint32_t twice = 0;
  uint32_t slow = 20;  // take up to `slowest` each way, others up to `usual`
  absl::Duration usual = absl::Milliseconds(1);
  absl::Duration slowest = absl::Milliseconds(300);
  absl::Duration latest_copy = absl::Seconds(8);  // after the request of which it is one
};

class Network {
 public:
  explicit Network(SimScheduler& scheduler) : scheduler_(scheduler) {}

  SimScheduler& scheduler() { return scheduler_; }
  void Tune(const NetworkTuning& tuning) { tuning_ = tuning; }
  const NetworkTuning& tuning() const { return tuning_; }

  struct Counts {
    uint64_t calls = 0;
    uint64_t lost = 0;
    uint64_t twice = 0;
    uint64_t cut = 0;
  };
  Counts counts;
  int flying = 0;  // calls on their way, copies too: the servers must outlive them

 private:
  SimScheduler& scheduler_;
  NetworkTuning tuning_;
};

// A client's end of all its links. Shared: the client's links, and calls on their way.
struct ClientEnd {
  explicit ClientEnd(std::string name) : name(std::move(name)) {}
  const std::string name;
  absl::Duration cut_until;  // virtual time; until then nothing passes
  bool dead = false;         // the client sends no more; what is on its way still arrives
};

// What a client mounts with: its own links to the servers behind `meta` and `data`, which outlive them.
class ClientLinks {
 public:
  ClientLinks(Network& network, std::shared_ptr<ClientEnd> end, MetaService& meta, DataServicePool& data);
  ~ClientLinks();
  MetaService& meta();
  DataServicePool& data();

 private:
  class Meta;
  class Data;
  class Pool;
  std::unique_ptr<Meta> meta_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace archil::sim
