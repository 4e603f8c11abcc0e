// SpaceBook: the credits of the sessions of a disk with a quota, who waits for one, and who was asked to return what it does not
// need (docs/quota.md). Pure: no clock, no I/O; the strand serialises. What it decides is to be logged by the caller in the same step.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/env/clock.h"

namespace archil {

struct SpaceEffects {
  struct Grant {
    uint64_t wait = 0;
    SessionId session;
    uint64_t request = 0;
    uint64_t credit = 0;  // set already
  };
  struct Failed {
    uint64_t wait = 0;
    Error error;
  };
  std::vector<Grant> grants;
  std::vector<Failed> failed;
  std::vector<SessionId> ask;  // to return what they do not need; tell the book the number with Asked
};

class SpaceBook {
 public:
  // Bytes, of a session and of all.
  uint64_t CreditOf(SessionId session) const;
  uint64_t total() const { return total_; }
  void Set(SessionId session, uint64_t credit);

  // What a session that has `held` gets of [least, wanted], with `room` bytes neither used nor another's credit (`held` is in it).
  // nullopt: `least` does not fit.
  static std::optional<uint64_t> Decide(uint64_t room, uint64_t held, uint64_t least, uint64_t wanted);

  struct Wait {
    uint64_t id = 0;
    SessionId session;
    uint64_t request = 0;  // the session's number of it
    uint64_t least = 0;
    uint64_t wanted = 0;
    BootTime deadline;
    std::set<SessionId> asked;  // since it is the first in line
  };
  void Add(Wait wait) { waits_.push_back(std::move(wait)); }
  // The caller has left.
  void Cancel(uint64_t wait);
  // Those of the session with lower numbers than `request`, which leave the line.
  std::vector<uint64_t> Overtaken(SessionId session, uint64_t request);
  bool Waiting() const { return !waits_.empty(); }

  // A message was sent to the session; it has answered that one, or is gone.
  void Asked(SessionId session, uint64_t message) { asked_[session] = message; }
  void Returned(SessionId session, uint64_t message);
  void Gone(SessionId session);

  // In order of arrival; nobody passes one that has to wait. `used` bytes of `quota`; `live`: the sessions that change something and can
  // answer, ascending. All of them are asked: what they have freed may not be applied yet.
  void Look(uint64_t quota, uint64_t used, BootTime now, const std::function<std::vector<SessionId>()>& live, SpaceEffects& out);
  // When one of those that wait has waited long enough.
  BootTime NextDeadline() const;

 private:
  bool AskOthers(Wait& wait, const std::vector<SessionId>& live, SpaceEffects& out);

  std::map<SessionId, uint64_t> credits_;  // not 0
  uint64_t total_ = 0;
  std::list<Wait> waits_;
  std::map<SessionId, uint64_t> asked_;  // messages without an answer
};

}  // namespace archil
