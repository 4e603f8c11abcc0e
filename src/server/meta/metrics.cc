#include "server/meta/metrics.h"

namespace archil {

std::map<std::string, uint64_t> MetaMetrics::Snapshot() const {
  return {
      {"meta_commits", commits},
      {"meta_commits_repeated", commits_repeated},
      {"meta_commits_refused", commits_refused},
      {"meta_ops_applied", ops_applied},
      {"meta_records_logged", records_logged},
      {"meta_log_bytes", log_bytes},
      {"meta_sessions_opened", sessions_opened},
      {"meta_sessions_refused", sessions_refused},
      {"meta_sessions_closed", sessions_closed},
      {"meta_sessions_fenced", sessions_fenced},
      {"meta_renewals", renewals},
      {"meta_reads", reads},
      {"meta_acquires", acquires},
      {"meta_acquire_waits", acquire_waits},
      {"meta_acquires_late", acquires_late},
      {"meta_recalls", recalls},
      {"meta_recall_answers", recall_answers},
      {"meta_silent_ended", silent_ended},
      {"meta_silent_taken", silent_taken},
      {"meta_space_reservations", space_reservations},
      {"meta_space_asked", space_asked},
      {"meta_space_refused", space_refused},
      {"meta_settles", settles},
      {"meta_reclaims", reclaims},
      {"meta_rights_granted", rights_granted},
      {"meta_rights_held", rights_held},
      {"meta_lock_calls", lock_calls},
      {"meta_lock_waits", lock_waits},
      {"meta_server_ops", server_ops},
      {"meta_server_ops_repeated", server_ops_repeated},
      {"meta_server_op_waits", server_op_waits},
      {"meta_reads_once", reads_once},
      {"meta_contended_answers", contended_answers},
      {"meta_segments_granted", segments_granted},
      {"meta_segments_condemned", segments_condemned},
      {"meta_segments_deleted", segments_deleted},
      {"meta_segments_unexplained", segments_unexplained},
      {"meta_gc_runs", gc_runs},
      {"meta_flushes", flushes},
      {"meta_replayed_records", replayed_records},
      {"meta_torn_bytes_cut", torn_bytes_cut},
      {"meta_step_downs", step_downs},
      {"meta_reopens", reopens},
  };
}

}  // namespace archil
