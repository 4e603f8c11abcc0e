// Who has open what a live op takes the last name of: asked of the table, with what it said for the log.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "common/api/ops.h"
#include "server/meta/apply.h"
#include "server/meta/delegation/delegation_table.h"
#include "server/meta/store/records.h"

namespace archil {

class AskedOpens final : public OpenQuery {
 public:
  using Ask = std::function<std::vector<SessionId>(InodeId)>;
  AskedOpens(const DelegationTable& table, Txn& txn, SessionId session, Ask ask)
      : table_(table), txn_(txn), session_(session), ask_(std::move(ask)) {}

  std::vector<SessionId> OpenElsewhere(InodeId ino) override {
    // What the batch made nobody else has seen.
    if (!txn_.Born(ino) && table_.OthersUnclaimed(session_)) known_ = false;
    std::vector<SessionId> sessions = ask_(ino);
    if (!sessions.empty()) said.push_back({ino, sessions});
    return sessions;
  }
  // After a restart: kUnavailable if others have yet to say what they have open; what was applied is to be thrown away.
  Status Known() const {
    if (known_) return Ok();
    return Error(Code::kUnavailable, "others may have open what is removed: they have not reclaimed yet what they hold");
  }
  std::vector<CommitRecord::Open> said;

 private:
  const DelegationTable& table_;
  Txn& txn_;
  const SessionId session_;
  const Ask ask_;
  bool known_ = true;
};

}  // namespace archil
