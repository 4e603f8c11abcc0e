// gRPC clients of the server roles: the same faces that the servers implement, over a network.
//
// Making one does no I/O: the first call connects. A broken connection is made again by itself, at most
// `max_backoff` after the server is back; meanwhile calls fail at once with kUnavailable, they never queue.
// Nothing is retried here. Outcomes beside those of the interfaces:
//   kUnavailable  nothing was sent, or the call changes nothing
//   kUnknown      a change was sent and its answer did not come
//   kInterrupted  within 20 ms or so after ctx.cancel was set; a change may have happened
//   kWouldBlock   ctx.may_block is false: every call here waits for a server
//   kCorrupt      the answer does not decode or fails its checksum
// A deadline given on the boot clock runs on the monotonic clock once the call is sent: it does not count
// time in suspend. What must stop in time after a suspend (leases) is checked by its owner.
//
// Fork: a process that uses these must not fork afterwards without exec (gRPC has threads).
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/api/data_service.h"
#include "common/api/meta_service.h"

namespace archil {

struct RpcOptions {
  absl::Duration connect_timeout = absl::Seconds(3);      // of one attempt to connect
  absl::Duration max_backoff = absl::Seconds(1);          // between attempts; the first comes after 100 ms
  absl::Duration keepalive_interval = absl::Seconds(10);  // a silent connection is probed
  absl::Duration keepalive_timeout = absl::Seconds(10);   // and given up when the probe is not answered
};

// `address` is HOST:PORT; a bad one is found at the first call. Thread safe. Destroy only when no call runs.
std::unique_ptr<MetaService> NewMetaClient(const std::string& address, const RpcOptions& options = {});
std::unique_ptr<DataService> NewDataClient(const std::string& address, const RpcOptions& options = {});
// One client for each address, kept as long as the pool.
std::unique_ptr<DataServicePool> NewDataPool(const RpcOptions& options = {});

}  // namespace archil
