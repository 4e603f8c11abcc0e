// Applies records of the log to the state. The same code runs live and on replay: a pure function of record and state.
// After an error the Txn is thrown away. kInvalid: the record is not allowed (live: refused; replay: damage).
#pragma once

#include "common/format/log_record.h"
#include "server/meta/ops/op_env.h"
#include "server/meta/store/records.h"

namespace archil {

inline constexpr BranchId kMainBranch{1};
inline constexpr size_t kEndedSessionsKept = 64;  // to tell a late caller why its session ended

// Any record, its ops decoded here, rights not asked: for replay.
Status ApplyRecord(Txn& txn, const LogRecord& record);
// Bytes that a commit adds, and those of them for which its session had no credit.
struct SpaceUse {
  uint64_t added = 0;
  uint64_t overdraft = 0;
};
// A commit whose ops are decoded already. What it adds is charged to the session's credit; `use` may be null.
Status ApplyCommit(Txn& txn, SessionId session, Seq first, Seq last, const std::vector<Op>& ops, RightsCheck* rights,
                   OpenQuery* opens,
                   SpaceUse* use = nullptr);
// An operation at the server; `ops` are the record's, decoded. The txn uses the session's branch. What it is to be
// answered with.
Result<ServerResultRecord> ApplyServerOp(Txn& txn, const ServerOpRecord& record, const std::vector<Op>& ops,
                                         OpenQuery* opens);

}  // namespace archil
