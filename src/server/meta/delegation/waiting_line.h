// Who stands before a request on one inode. Thousands may: what decides whether another stands behind them is one of each
// kind, and a second session.
#pragma once

#include "common/base/ids.h"
#include "common/delegation/right.h"

namespace archil {

class WaitingLine {
 public:
  void Add(SessionId session, Right right, bool reserves);
  // One in it that conflicts with `right`; 0: none. Requests of one session do not conflict if neither reserves: `shares`
  // says that the asker does not.
  SessionId Conflicting(SessionId session, Right right, bool shares) const;

 private:
  struct Kind {
    SessionId first, another, reserves;
  };
  Kind reads_, writes_;
};

}  // namespace archil
