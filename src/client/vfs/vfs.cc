#include "client/vfs/vfs.h"

namespace archil {

Vfs::Vfs(const MountEnv& env, const MountConfig& config, Session& session, BlockCache& cache, SegmentReader& reader,
         Writeback& writeback)
    : wb_(writeback), env_(env), config_(config), session_(session), cache_(cache), reader_(reader),
      lock_server_(env.meta, session),
      locks_(env.scheduler, &lock_server_) {}

}  // namespace archil
