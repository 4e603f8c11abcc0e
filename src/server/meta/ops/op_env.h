// What every op works with. Applying an op is a pure function of the op and the records it names (replay): no clock, no
// random, no state outside the Txn. Each op has a file of its own with one shape: validate, read, decide, apply.
//
// Errors of an op: kInvalid with the reason (the op is not allowed, the commit is refused); kCorrupt, kIo (the state
// is damaged). After an error the Txn is thrown away.
#pragma once

#include <string>
#include <vector>

#include "common/api/ops.h"
#include "server/meta/store/records.h"

namespace archil {

// DLG-2: what a session may change. Asked for live ops, not on replay (what is in the log was allowed).
class RightsCheck {
 public:
  virtual ~RightsCheck() = default;
  virtual bool MayWrite(InodeId ino) = 0;
};

// Who else has an inode open that loses its last name. Asked the table for live ops, the record on replay.
class OpenQuery {
 public:
  virtual ~OpenQuery() = default;
  // Other sessions than the one whose ops are applied, in order.
  virtual std::vector<SessionId> OpenElsewhere(InodeId ino) = 0;
};

struct OpEnv {
  Txn& txn;
  SessionId session;
  RightsCheck* rights = nullptr;  // null: replay
  OpenQuery* opens = nullptr;     // null: nobody
};

Error Refuse(std::string reason);

Status Apply(OpEnv& env, const CreateOp& op);
Status Apply(OpEnv& env, const LinkOp& op);
Status Apply(OpEnv& env, const UnlinkOp& op);
Status Apply(OpEnv& env, const RmdirOp& op);
Status Apply(OpEnv& env, const RenameOp& op);
Status Apply(OpEnv& env, const SetAttrOp& op);
Status Apply(OpEnv& env, const SetExtentsOp& op);
Status Apply(OpEnv& env, const ClearRangeOp& op);
Status Apply(OpEnv& env, const SetXattrOp& op);
Status Apply(OpEnv& env, const RemoveXattrOp& op);
Status Apply(OpEnv& env, const ReleaseOrphanOp& op);
Status Apply(OpEnv& env, const TouchOp& op);

// The kind's name for messages, e.g. "create".
const char* OpName(const Op& op);
// All ops in order; the error of the first bad one with its index and kind before the reason.
Status ApplyOps(OpEnv& env, const std::vector<Op>& ops);

}  // namespace archil
