// Checkouts: a directory of a session, with all below it, that is not recalled for others (docs/delegation.md, "Checkouts").
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/meta/delegation/delegation_table.h"

namespace archil {
namespace {

constexpr size_t kSearchedAtOnce = 4096;  // records of rights in one turn of the strand

}  // namespace

SessionId DelegationTable::CheckedOutBy(BranchId id, InodeId ino, SessionId but, Tree& tree, BootTime now) const {
  const auto branch = branches_.find(id);
  if (branch == branches_.end() || branch->second.checkouts.empty()) return SessionId{0};
  const auto& checkouts = branch->second.checkouts;
  // A file with several names has no home, and is part of nothing.
  InodeId dir = tree.KindOf(id, ino) == Tree::Kind::kDirectory ? ino : tree.HomeOf(id, ino);
  for (; dir; dir = tree.ParentOf(id, dir)) {
    const auto it = checkouts.find(dir);
    if (it == checkouts.end() || it->second.session == but) continue;
    const Session* s = Live(it->second.session);
    if (s != nullptr && !s->holder.lease.Expired(now)) return it->second.session;
  }
  return SessionId{0};
}

Error DelegationTable::CheckedOut(SessionId holder, InodeId ino) const {
  const Holder* who = Find(holder);
  return Error(Code::kHeldElsewhere, fmt::format("inode {} is checked out by {}: it can be read, and changed after `archil checkin` there", ino.value,
                                                 who == nullptr || who->name.empty() ? "an unnamed client" : who->name));
}

Status DelegationTable::Checkout(uint64_t id, const CheckoutRequest& call, BootTime deadline, Tree& tree, BootTime now, DelegationEffects& out) {
  const SessionId session = call.session;
  const InodeId dir = call.ino;
  Session* s = Live(session);
  if (s == nullptr) return Error(Code::kFenced, "the session has ended");
  if (s->holder.mode == SessionMode::kReadOnly) return Error(Code::kReadOnly, "a read-only session has nothing to check out");
  if (call.id < s->last_checkout || call.id <= s->ended_checkout) return Error(Code::kInvalid, fmt::format("call {} was followed by others", call.id));
  s->last_checkout = call.id;
  const BranchId branch_id = s->holder.branch;
  if (tree.KindOf(branch_id, dir) != Tree::Kind::kDirectory) return Error(Code::kNotDirectory, "only a directory can be checked out");
  Branch& branch = BranchOf(*s);
  ARCHIL_RETURN_IF_ERROR(CheckRoom(*s, branch));
  if (call.in) ARCHIL_RETURN_IF_ERROR(CheckIn(branch, session, dir));
  Request& request = branch.requests.emplace_back();
  request.id = id;
  request.session = session;
  request.checkout = true;
  request.recalled = true;
  request.ino = dir;
  request.deadline = deadline;
  if (call.in) return Ok();
  const std::vector<InodeId> in_the_way = Excluded(branch_id, branch, session, dir, tree);
  for (const InodeId other : in_the_way) {
    const SessionId owner = branch.checkouts[other].session;
    if (!call.force && !Live(owner)->holder.lease.Expired(now)) return CheckedOut(owner, other);
  }
  for (const InodeId other : in_the_way) {
    TellEnded(branch.checkouts[other], other, out);
    branch.checkouts.erase(other);
  }
  Branch::Checkout& checkout = branch.checkouts[dir];
  // If it was checked out before it stays so whatever comes of this.
  request.recalled = checkout.session == session;
  branch.checkout_number = std::max(branch.checkout_number, s->number) + 1;
  checkout = {session, branch.checkout_number};
  return Ok();
}

// Above it, and below it.
std::vector<InodeId> DelegationTable::Excluded(BranchId id, const Branch& branch, SessionId session, InodeId dir, Tree& tree) {
  const auto below = [&](InodeId inner, InodeId outer) {
    for (InodeId at = inner; at; at = tree.ParentOf(id, at)) {
      if (at == outer) return true;
    }
    return false;
  };
  std::vector<InodeId> out;
  for (const auto& [other, checkout] : branch.checkouts) {
    if (checkout.session == session) continue;
    if (below(other, dir) || below(dir, other)) out.push_back(other);
  }
  return out;
}

void DelegationTable::TellEnded(const Branch::Checkout& checkout, InodeId dir, DelegationEffects& out) {
  SessionMessage message;
  message.kind = SessionMessage::Kind::kCheckoutEnded;
  message.ino = dir;
  message.grant = checkout.number;
  (void)Tell(checkout.session, message, out);
  // A late copy of the call does not bring it back.
  Session& owner = sessions_[checkout.session];
  owner.ended_checkout = owner.last_checkout;
}

uint64_t DelegationTable::CheckoutNumber(SessionId session, InodeId dir) const {
  const Session* s = Live(session);
  if (s == nullptr) return 0;
  const Branch& branch = branches_.at(s->holder.branch);
  const auto it = branch.checkouts.find(dir);
  return it == branch.checkouts.end() || it->second.session != session ? 0 : it->second.number;
}

// After a restart: of two that exclude each other the one that was given later is good.
void DelegationTable::ReclaimCheckouts(Session& session, Branch& branch, const ReclaimRequest& request, Tree& tree, DelegationEffects& out) {
  session.last_checkout = std::max(session.last_checkout, request.last_checkout);
  for (const HeldCheckout& held : request.checkouts) {
    branch.checkout_number = std::max(branch.checkout_number, held.number);
    const auto others = Excluded(session.holder.branch, branch, request.session, held.ino, tree);
    const bool newest = std::all_of(others.begin(), others.end(), [&](InodeId other) { return branch.checkouts[other].number < held.number; });
    if (!newest) {
      TellEnded({request.session, held.number}, held.ino, out);
      continue;
    }
    for (const InodeId other : others) {
      TellEnded(branch.checkouts[other], other, out);
      branch.checkouts.erase(other);
    }
    branch.checkouts[held.ino] = {request.session, held.number};
  }
}

Status DelegationTable::CheckIn(Branch& branch, SessionId session, InodeId dir) {
  const auto it = branch.checkouts.find(dir);
  if (it == branch.checkouts.end() || it->second.session != session) return Error(Code::kNotFound, "this mount has not checked it out");
  branch.checkouts.erase(it);
  return Ok();
}

// Its caller has left, or it is too late.
void DelegationTable::UndoCheckout(Branch& branch, const Request& request) {
  const auto it = branch.checkouts.find(request.ino);
  if (request.checkout && !request.recalled && it != branch.checkouts.end() && it->second.session == request.session) branch.checkouts.erase(it);
}

// Whatever others hold in it is recalled, found a part at a time: a disk may have millions of records. What they make in their
// directories before they give them up is found by another round. True: a whole round found nothing.
bool DelegationTable::LookAtCheckout(BranchId id, Branch& branch, Request& request, Tree& tree, BootTime now, DelegationEffects& out) {
  if (!branch.checkouts.contains(request.ino)) return true;  // removed, or ended by force
  if (branch.alone == request.session) return true;
  if (branch.alone) {
    request.waits_for.emplace_back(branch.alone, InodeId{0});
    SendAlone(sessions_[branch.alone], branch, now, out);
    return false;
  }
  std::erase_if(request.below, [&](const auto& held) { return branch.book.Find(held.second, held.first) == nullptr; });
  if (request.below.empty() && SearchBelow(id, branch, request, tree, out)) return true;
  for (const auto& [session, ino] : request.below) {
    request.waits_for.emplace_back(session, ino);
    Send(sessions_[session], ino, Right::kNone, branch, tree, now, out);
  }
  return false;
}

// True: that was the end of a round in which nothing was found.
bool DelegationTable::SearchBelow(BranchId id, Branch& branch, Request& request, Tree& tree, DelegationEffects& out) {
  size_t left = kSearchedAtOnce;
  for (auto s = sessions_.lower_bound(request.searched.first); s != sessions_.end(); ++s) {
    const SessionId session = s->first;
    if (session == request.session || s->second.holder.branch != id) continue;
    const absl::btree_set<InodeId>& held = branch.book.Of(session);
    auto ino = session == request.searched.first ? held.upper_bound(request.searched.second) : held.begin();
    for (; ino != held.end(); ++ino) {
      if (left-- == 0) {
        out.again = true;
        return false;
      }
      request.searched = {session, *ino};
      InodeId dir = tree.KindOf(id, *ino) == Tree::Kind::kDirectory ? *ino : tree.HomeOf(id, *ino);
      while (dir && dir != request.ino) dir = tree.ParentOf(id, dir);
      if (!dir) continue;
      request.below.emplace(session, *ino);
      request.found = true;
    }
  }
  request.searched = {};
  const bool found = std::exchange(request.found, false);
  out.again = out.again || found;
  return !found;
}

bool DelegationTable::MeetsCheckout(BranchId id, Branch& branch, Request& request, Tree& tree, BootTime now, DelegationEffects& out) {
  if (branch.checkouts.empty()) return false;
  if (request.reservation && request.reservation->kind == Reservation::Kind::kLook) return false;
  DelegationEffects::Granted answer;
  answer.id = request.id;
  for (const Want& w : request.wants) {
    const SessionId holder = CheckedOutBy(id, w.ino, request.session, tree, now);
    if (!holder) continue;
    if (w.right == Right::kWrite) {
      out.failed.push_back({request.id, CheckedOut(holder, w.ino)});
      return true;
    }
    // What it holds (for a listing, say) it need not read through.
    const RightRecord* own = branch.book.Find(w.ino, request.session);
    if (!request.reservation && !request.manner.must_hold && own == nullptr) answer.through.push_back(w.ino);
  }
  if (answer.through.empty()) return false;
  out.granted.push_back(std::move(answer));
  return true;
}

// For a look the holder makes durable what it had acknowledged before the look was asked for, and goes on.
bool DelegationTable::Flushed(BranchId id, Branch& branch, Request& request, Tree& tree, BootTime now, DelegationEffects& out) {
  if (branch.checkouts.empty() || !request.reservation || request.reservation->kind != Reservation::Kind::kLook) {
    request.flushes.clear();
    return true;
  }
  bool durable = true;
  for (const Want& w : request.wants) {
    const SessionId holder = CheckedOutBy(id, w.ino, request.session, tree, now);
    if (!holder) {
      request.flushes.erase(w.ino);
      continue;
    }
    Session& s = sessions_[holder];
    auto& [asked, message] = request.flushes[w.ino];
    if (asked != holder) {
      SessionMessage flush;
      flush.kind = SessionMessage::Kind::kFlush;
      flush.ino = w.ino;
      if (!s.Owes()) s.owing_since = now;
      asked = holder;
      message = Tell(holder, flush, out);
      s.flushes.insert(message);
    }
    if (!s.flushes.contains(message)) continue;
    request.waits_for.emplace_back(holder, w.ino);
    durable = false;
  }
  return durable;
}

}  // namespace archil
