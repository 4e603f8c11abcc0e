#include "client/vfs/vfs.h"

namespace archil {

Vfs::Vfs(const MountEnv& env, const MountConfig& config, Session& session, BlockCache& cache, SegmentReader& reader,
         Writeback& writeback)
    : wb_(writeback), env_(env), config_(config), session_(session), cache_(cache), reader_(reader) {}

}  // namespace archil
