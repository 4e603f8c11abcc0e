// release-orphan: the session's last reference to an inode is gone that it has said, or the server thinks, that it has open. The
// inode may have its names still, or be gone: then there is nothing to do.
#include "server/meta/ops/inode_rules.h"

namespace archil {

Status Apply(OpEnv& env, const ReleaseOrphanOp& op) { return DropOrphanReference(env.txn, env.session, op.ino); }

}  // namespace archil
