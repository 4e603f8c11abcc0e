// What a session that is silent past its lease loses to those who want it (FENCE-1, docs/delegation.md).
#include <algorithm>

#include "server/meta/delegation/delegation_table.h"

namespace archil {

// FENCE-1: from whom the lease has run out while somebody waits for its answer, that is taken.
void DelegationTable::TakeFromSilent(BranchId id, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out) {
  std::set<std::pair<SessionId, InodeId>> taken;
  std::map<SessionId, std::pair<SessionId, size_t>> count;  // with one that waits
  for (const Request& request : branch.requests) {
    for (const auto& [session, ino] : request.waits_for) {
      const Session* s = Live(session);
      if (s == nullptr || !s->holder.lease.Expired(now) || (session == request.session && !request.wants.empty())) continue;
      const auto take = [&, from = session](InodeId what) {
        if (s->HasLost(what) || !taken.emplace(from, what).second) return;
        auto& [waiter, sum] = count[from];
        waiter = request.session;
        ++sum;
      };
      if (ino || request.wants.empty()) {
        take(ino ? ino : request.ino);
      } else {
        for (const Want& w : request.wants) {
          if (!Lost(*s, w.ino, tree)) take(w.ino);
        }
      }
    }
  }
  for (const auto& [session, who] : count) {
    if (MayTake(session, now) && Live(session)->taken.size() + who.second <= limits_.taken) continue;
    out.ends.push_back({session, SilentReason(session, who.first, now)});
  }
  for (const auto& [session, ino] : taken) {
    const auto ends = [&, of = session](const DelegationEffects::End& end) { return end.session == of; };
    if (std::none_of(out.ends.begin(), out.ends.end(), ends)) out.takes.push_back({session, {ino, true, false}});
  }
}

}  // namespace archil
