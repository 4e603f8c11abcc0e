#include "client/fuse/session.h"

namespace archil::fuse {

Session::Session(Scheduler& scheduler, void* owner, const FuseOptions& options)
    : owner_(owner),
      personality_(options.personality),
      max_lock_waiters_(options.max_lock_waiters),
      keeps_names_(!options.no_name_cache),
      waiting_(scheduler, HasSigkillPending, [this] { fs_->WakeWaiters(); }),
      pool_(scheduler, options.max_workers, options.worker_idle_end),
      lock_pool_(scheduler, options.max_lock_waiters, options.worker_idle_end) {}

}  // namespace archil::fuse
