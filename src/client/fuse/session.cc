#include "client/fuse/session.h"

namespace archil::fuse {

Session::Session(Scheduler& scheduler, void* owner, size_t max_workers, absl::Duration worker_idle_end)
    : owner_(owner),
      waiting_(scheduler, HasSigkillPending, [this] { fs_->WakeWaiters(); }),
      pool_(scheduler, max_workers, worker_idle_end) {}

}  // namespace archil::fuse
