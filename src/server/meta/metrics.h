// Counters of a metadata server; names as in docs/metrics.md. Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace archil {

struct MetaMetrics {
  std::atomic<uint64_t> commits{0};
  std::atomic<uint64_t> commits_repeated{0};
  std::atomic<uint64_t> commits_refused{0};
  std::atomic<uint64_t> ops_applied{0};
  std::atomic<uint64_t> records_logged{0};
  std::atomic<uint64_t> log_bytes{0};
  std::atomic<uint64_t> sessions_opened{0};
  std::atomic<uint64_t> sessions_refused{0};
  std::atomic<uint64_t> sessions_closed{0};
  std::atomic<uint64_t> sessions_fenced{0};
  std::atomic<uint64_t> renewals{0};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> acquires{0};
  std::atomic<uint64_t> acquire_waits{0};
  std::atomic<uint64_t> acquires_late{0};
  std::atomic<uint64_t> recalls{0};
  std::atomic<uint64_t> recall_answers{0};
  std::atomic<uint64_t> silent_ended{0};
  std::atomic<uint64_t> silent_taken{0};
  std::atomic<uint64_t> space_reservations{0};
  std::atomic<uint64_t> space_asked{0};    // sessions, to return what they do not need
  std::atomic<uint64_t> space_refused{0};  // kNoSpace
  std::atomic<uint64_t> settles{0};
  std::atomic<uint64_t> reclaims{0};
  std::atomic<uint64_t> rights_granted{0};
  std::atomic<uint64_t> rights_held{0};  // now
  std::atomic<uint64_t> lock_calls{0};
  std::atomic<uint64_t> lock_waits{0};
  std::atomic<uint64_t> server_ops{0};  // applied at the server
  std::atomic<uint64_t> server_ops_repeated{0};
  std::atomic<uint64_t> server_op_waits{0};
  std::atomic<uint64_t> reads_once{0};
  std::atomic<uint64_t> contended_answers{0};  // requests for rights that were sent to be applied at the server
  std::atomic<uint64_t> segments_granted{0};
  std::atomic<uint64_t> segments_condemned{0};
  std::atomic<uint64_t> segments_deleted{0};
  std::atomic<uint64_t> segments_unexplained{0};
  std::atomic<uint64_t> gc_runs{0};
  std::atomic<uint64_t> flushes{0};
  std::atomic<uint64_t> replayed_records{0};
  std::atomic<uint64_t> torn_bytes_cut{0};
  std::atomic<uint64_t> step_downs{0};
  std::atomic<uint64_t> reopens{0};

  std::map<std::string, uint64_t> Snapshot() const;
};

}  // namespace archil
