// A session that holds very many rights is asked for the oldest of them, a few at a time: a walk over millions of directories costs the
// server no more memory than one over some hundred thousand, and no client has to know the limit (docs/delegation.md, "Many rights").
#include <algorithm>

#include "server/meta/delegation/delegation_table.h"

namespace archil {
namespace {

constexpr size_t kTrimAtOnce = 64;    // recalls of a session, with those that others caused
constexpr size_t kLookedAt = 1024;    // records in one turn

}  // namespace

void DelegationTable::Trim(Branch& branch, Tree& tree, BootTime now, DelegationEffects& out) {
  for (const SessionId id : std::vector<SessionId>(branch.book.crowded().begin(), branch.book.crowded().end())) {
    Session& session = sessions_[id];
    if (session.unclaimed || !session.taken.empty() || session.holder.lease.Expired(now)) continue;
    TrimSession(session, branch, tree, now, out);
  }
}

// A hand goes round the records by their inodes and passes over what was granted lately, unless that is all (thousands may come with one
// number).
void DelegationTable::TrimSession(Session& session, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out) {
  const absl::btree_set<InodeId>& held = branch.book.Of(session.holder.session);
  const uint64_t young = held.size() / 2;
  std::vector<InodeId> old, any;
  auto it = held.upper_bound(session.trimmed_to);
  const size_t room = session.recalls.size() < kTrimAtOnce ? kTrimAtOnce - session.recalls.size() : 0;
  const size_t coming = held.size() - std::min(held.size(), session.recalls.size());
  const size_t wanted = std::min(room, coming - std::min(coming, limits_.rights_kept));
  for (size_t looked = 0; looked < std::min(held.size(), kLookedAt) && old.size() < wanted; ++looked, ++it) {
    if (it == held.end()) it = held.begin();
    session.trimmed_to = *it;
    const RightRecord* record = branch.book.Find(*it, session.holder.session);
    if (session.recalls.contains(*it)) continue;
    if (record->number + young <= session.number) old.push_back(*it);
    if (any.size() < wanted) any.push_back(*it);
  }
  for (const InodeId ino : old.empty() ? any : old) Send(session, ino, Right::kNone, branch, tree, now, out);
}

}  // namespace archil
