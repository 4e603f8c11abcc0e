// release-orphan: the session's last reference to an unlinked inode is gone.
#include "server/meta/ops/inode_rules.h"

namespace archil {

Status Apply(OpEnv& env, const ReleaseOrphanOp& op) { return DropOrphanReference(env.txn, env.session, op.ino); }

}  // namespace archil
