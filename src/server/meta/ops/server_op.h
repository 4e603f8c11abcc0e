// Operations that the server decides (SRV-1): what they need, and what they come to on the state as it is. The
// decisions are those of common/posix, as a mount makes them under its rights.
#pragma once

#include <vector>

#include "common/api/meta_service.h"
#include "server/meta/delegation/delegation_table.h"
#include "server/meta/store/records.h"

namespace archil {

// kInvalid for an op that is none of them, or whose fields no caller could mean.
Status CheckServerOp(const ApplyOpRequest& request);
// Precondition: CheckServerOp.
Reservation ReservationOf(const Op& op);

struct ServerOpPlan {
  std::vector<Op> ops;  // none: a success that changes nothing
  InodeId shown;        // the inode to answer with; 0: none
  InodeId removed;      // may lose its last name; 0: none
};
// The verdict of the system call, or what to apply. `txn` uses the session's branch; it is read only.
Result<ServerOpPlan> PlanServerOp(Txn& txn, const ApplyOpRequest& request);

}  // namespace archil
