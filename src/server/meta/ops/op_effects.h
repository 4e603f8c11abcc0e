// What ops may have done to who covers what, for the delegation table. Pure.
#pragma once

#include <map>
#include <vector>

#include "common/api/ops.h"
#include "server/meta/delegation/delegation_table.h"

namespace archil {

std::map<InodeId, DelegationTable::Touched> TouchedBy(const std::vector<Op>& ops);

}  // namespace archil
