#include "server/meta/delegation/waiting_line.h"

namespace archil {

void WaitingLine::Add(SessionId session, Right right, bool reserves) {
  Kind& kind = right == Right::kWrite ? writes_ : reads_;
  if (reserves && !kind.reserves) kind.reserves = session;
  if (!kind.first) {
    kind.first = session;
  } else if (!kind.another && kind.first != session) {
    kind.another = session;
  }
}

SessionId WaitingLine::Conflicting(SessionId session, Right right, bool shares) const {
  const auto of = [&](const Kind& kind) {
    if (kind.reserves) return kind.reserves;
    return !shares || kind.first != session ? kind.first : kind.another;
  };
  if (const SessionId writes = of(writes_)) return writes;
  return right == Right::kWrite ? of(reads_) : SessionId{};
}

}  // namespace archil
