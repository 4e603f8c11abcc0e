// Requests for rights: in order of arrival, all wants of one granted in one step or none.
#include <fmt/format.h>

#include <algorithm>

#include "common/env/planted.h"
#include "server/meta/delegation/delegation_table.h"

namespace archil {
namespace {

constexpr size_t kNamed = 4;  // of those that a request waits for, in its error

std::string NameOf(const Holder* holder) { return holder == nullptr || holder->name.empty() ? "an unnamed client" : holder->name; }

}  // namespace

Status DelegationTable::CheckRoom(const Session& session, const Branch& branch) const {
  const SessionId id = session.holder.session;
  const auto waiting = std::count_if(branch.requests.begin(), branch.requests.end(),
                                     [&](const Request& r) { return r.session == id && !r.wants.empty(); });
  if (static_cast<size_t>(waiting) < limits_.pending) return Ok();
  return Error(Code::kTryAgain, fmt::format("{} requests of the session wait already", limits_.pending));
}

Status DelegationTable::Acquire(uint64_t id, SessionId session, std::vector<Want> wants, BootTime deadline,
                                Manner manner) {
  Session* s = Live(session);
  if (s == nullptr) return Error(Code::kFenced, "the session has ended");
  if (!s->taken.empty()) return Error(Code::kUnavailable, "something was taken from the session: it has to settle that first");
  if (wants.empty() || wants.size() > kMaxWants) return Error(Code::kInvalid, fmt::format("between 1 and {} wants in one request", kMaxWants));
  std::set<InodeId> seen;
  for (const Want& w : wants) {
    if (!w.ino || !seen.insert(w.ino).second) return Error(Code::kInvalid, "the wants name an inode twice, or none");
    if (w.right != Right::kRead && w.right != Right::kWrite) return Error(Code::kInvalid, "a want of no right");
    if (w.right == Right::kWrite && s->holder.mode == SessionMode::kReadOnly) return Error(Code::kReadOnly, "the session is read-only");
  }
  Branch& branch = BranchOf(*s);
  ARCHIL_RETURN_IF_ERROR(CheckRoom(*s, branch));
  if (branch.book.Of(session).size() >= limits_.rights) {
    return Error(Code::kTryAgain, fmt::format("the session holds {} rights; it must give some back first", limits_.rights));
  }
  Request& request = branch.requests.emplace_back();
  request.id = id;
  request.session = session;
  request.wants = std::move(wants);
  request.manner = manner;
  request.deadline = deadline;
  branch.wanted.reset();
  return Ok();
}

Status DelegationTable::Reserve(uint64_t id, SessionId session, Reservation reservation, BootTime deadline) {
  Session* s = Live(session);
  if (s == nullptr) return Error(Code::kFenced, "the session has ended");
  const bool changes = reservation.kind == Reservation::Kind::kChange;
  if (changes && s->holder.mode == SessionMode::kReadOnly) return Error(Code::kReadOnly, "the session is read-only");
  if (reservation.wants.empty()) return Error(Code::kInvalid, "nothing to reserve");
  for (const Want& w : reservation.wants) {
    if (!w.ino) return Error(Code::kInvalid, "a reservation of no inode");
  }
  Branch& branch = BranchOf(*s);
  ARCHIL_RETURN_IF_ERROR(CheckRoom(*s, branch));
  Request& request = branch.requests.emplace_back();
  request.id = id;
  request.session = session;
  request.wants = reservation.wants;
  request.reservation = std::move(reservation);
  request.deadline = deadline;
  branch.wanted.reset();
  return Ok();
}

bool DelegationTable::Contended(BranchId branch, InodeId dir, BootTime now) const {
  const auto it = branches_.find(branch);
  return it != branches_.end() && it->second.contention.Contended(dir, now);
}

void DelegationTable::Revoke(uint64_t id, SessionId session, InodeId ino, BootTime deadline) {
  Session* s = Live(session);
  if (s == nullptr) return;
  Request& request = BranchOf(*s).requests.emplace_back();
  request.id = id;
  request.session = session;
  request.ino = ino;
  request.deadline = deadline;
}

void DelegationTable::Cancel(uint64_t id) {
  for (auto& entry : branches_) {
    Branch& branch = entry.second;
    branch.requests.remove_if([&](const Request& r) {
      if (r.id == id) UndoCheckout(branch, r);
      return r.id == id;
    });
    branch.wanted.reset();
  }
}

bool DelegationTable::Waiting() const {
  return std::any_of(branches_.begin(), branches_.end(), [](const auto& b) { return !b.second.requests.empty() || !b.second.book.crowded().empty(); });
}

BootTime DelegationTable::NextLook() const {
  BootTime next = BootTime::Infinite();
  for (const auto& [id, branch] : branches_) {
    if (!branch.requests.empty() && branch.unclaimed > 0) next = std::min(next, branch.claims_until);
    for (const Request& request : branch.requests) {
      next = std::min(next, request.deadline);
      for (const auto& [session, ino] : request.waits_for) {
        const Session* s = Live(session);
        if (s != nullptr) next = std::min(next, s->holder.lease.heard + s->holder.lease.length);
      }
    }
  }
  return next;
}

void DelegationTable::Look(Tree& tree, BootTime now, DelegationEffects& out) {
  for (auto& [id, branch] : branches_) {
    LookAt(id, branch, tree, now, out);
    Trim(branch, tree, now, out);
  }
}

void DelegationTable::LookAt(BranchId id, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out) {
  if (branch.requests.empty()) return;
  branch.wanted.reset();
  if (AwaitClaims(id, branch, now, out)) {
    (void)FailLate(branch, now, out);
    return;
  }
  LookAtAll(id, branch, tree, now, out);
  // One that gives up lets others go on that stood behind it.
  if (FailLate(branch, now, out)) LookAtAll(id, branch, tree, now, out);
  TakeFromSilent(id, branch, tree, now, out);
}

std::vector<DelegationEffects::End> DelegationTable::LateClaims(BranchId id, SessionId waiter, BootTime now) const {
  std::vector<DelegationEffects::End> late;
  for (const auto& [session, s] : sessions_) {
    if (s.holder.branch != id || !s.unclaimed || now < s.claim_until) continue;
    late.push_back({session, fmt::format("it did not come back within {} s after the server was started, and {} wanted something",
                                         absl::ToInt64Seconds(s.holder.lease.length), NameOf(Find(waiter)))});
  }
  return late;
}

// Nothing is granted while somebody who is known has not said what it holds; not for longer than its lease.
bool DelegationTable::AwaitClaims(BranchId id, Branch& branch, BootTime now, DelegationEffects& out) {
  if (branch.unclaimed == 0) return false;
  if (now >= branch.claims_until) {
    for (DelegationEffects::End& late : LateClaims(id, branch.requests.front().session, now)) out.ends.push_back(std::move(late));
    branch.claims_until = BootTime::Infinite();
    for (const auto& [session, s] : sessions_) {
      if (s.holder.branch == id && s.unclaimed) branch.claims_until = std::min(branch.claims_until, s.claim_until);
    }
  }
  return !Planted(Plant::kGrantBeforeReclaim);
}

// Names show other inodes as the ones before it are applied, so what it needs is found anew at each look.
void DelegationTable::Resolve(BranchId id, Request& request, Tree& tree) {
  const Reservation& wanted = *request.reservation;
  const auto add = [&](InodeId ino, Right right) {
    const auto it =
        std::find_if(request.wants.begin(), request.wants.end(), [&](const Want& w) { return w.ino == ino; });
    if (it == request.wants.end()) {
      request.wants.push_back({ino, right, false});
    } else {
      it->right = Stronger(it->right, right);
    }
  };
  request.wants.clear();
  for (const Want& w : wanted.wants) add(w.ino, w.right);
  bool directory = false;
  for (const Reservation::Name& n : wanted.names) {
    const InodeId child = tree.ChildOf(id, n.dir, n.name);
    if (!child) continue;
    add(child, n.right);
    directory = directory || tree.KindOf(id, child) == Tree::Kind::kDirectory;
  }
  if (!wanted.ancestors || !directory) return;
  for (const Want& w : wanted.wants) {
    for (InodeId up = tree.ParentOf(id, w.ino); up; up = tree.ParentOf(id, up)) add(up, Right::kRead);
  }
}

std::optional<std::pair<SessionId, InodeId>> DelegationTable::StandsBehind(const Request& request, const std::vector<Want>& wants, const Ahead& ahead) {
  for (const Want& w : wants) {
    const auto line = ahead.find(w.ino);
    if (line == ahead.end()) continue;
    if (const SessionId before = line->second.Conflicting(request.session, w.right, !request.reservation)) return std::pair(before, w.ino);
  }
  return std::nullopt;
}

bool DelegationTable::SentToServer(Branch& branch, const Request& request, BootTime now, DelegationEffects& out) {
  if (!request.manner.or_at_server) return false;
  DelegationEffects::Granted answer;
  answer.id = request.id;
  for (const Want& w : request.wants) {
    if (!branch.contention.Contended(w.ino, now)) continue;
    // What it holds it works with: only who does not hold it looks at the server.
    const RightRecord* held = branch.book.Find(w.ino, request.session);
    if (held != nullptr && held->right >= w.right) continue;
    branch.contention.Used(w.ino, request.session, now);
    answer.at_server.push_back(w.ino);
  }
  if (answer.at_server.empty()) return false;
  out.granted.push_back(std::move(answer));
  return true;
}

void DelegationTable::CountCollisions(BranchId id, Branch& branch, Request& request,
                                      const std::vector<Obstacle>& obstacles, Tree& tree, BootTime now) {
  if (std::exchange(request.collided, true)) return;
  std::set<InodeId> counted;
  for (const Obstacle& o : obstacles) {
    if (!o.ino || o.session == request.session || !counted.insert(o.ino).second) continue;
    if (tree.KindOf(id, o.ino) == Tree::Kind::kDirectory) branch.contention.Collided(o.ino, now);
  }
}

bool DelegationTable::LookAtWants(BranchId id, Branch& branch, Request& request, const Ahead& ahead, Tree& tree,
                                  BootTime now, DelegationEffects& out) {
  if (!request.reservation && MeetsCheckout(id, branch, request, tree, now, out)) return true;
  if (SentToServer(branch, request, now, out)) return true;
  if (request.reservation) {
    // Which inodes its names show matters when it is first in its directories: there it cannot be overtaken.
    request.behind = StandsBehind(request, request.reservation->wants, ahead);
    if (request.behind) return false;
    Resolve(id, request, tree);
    if (MeetsCheckout(id, branch, request, tree, now, out)) return true;
  }
  request.behind = StandsBehind(request, request.wants, ahead);
  if (request.behind || !Flushed(id, branch, request, tree, now, out)) return false;
  const std::vector<Obstacle> obstacles = ObstaclesOf(id, branch, request, tree);
  if (!obstacles.empty()) {
    CountCollisions(id, branch, request, obstacles, tree, now);
    SendAll(branch, request, obstacles, tree, now, out);
    return false;
  }
  if (!request.reservation) {
    out.granted.push_back(GrantAll(id, branch, request, tree));
    if (request.manner.brief) {
      // GRT-1: it is used once before it is given up.
      for (const Grant& grant : out.granted.back().grants)
        Send(sessions_[request.session], grant.ino, Right::kNone, branch, tree, now, out);
    }
    return true;
  }
  for (const Want& w : request.wants) branch.contention.Used(w.ino, request.session, now);
  if (request.reservation->kind == Reservation::Kind::kLook) {
    out.granted.push_back({request.id, {}, {}, {}, {}});
    return true;
  }
  if (out.ready == 0) out.ready = request.id;
  return false;
}

void DelegationTable::LookAtAll(BranchId id, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out) {
  Ahead ahead;
  for (auto it = branch.requests.begin(); it != branch.requests.end();) {
    Request& request = *it;
    request.waits_for.clear();
    request.behind.reset();
    bool done = false;
    if (!request.wants.empty() && Unsettled(request.session)) {
      out.failed.push_back({request.id, Error(Code::kUnavailable, "something was taken from the session meanwhile")});
      it = branch.requests.erase(it);
      branch.wanted.reset();
      continue;
    }
    if (request.wants.empty()) {
      done = request.checkout ? LookAtCheckout(id, branch, request, tree, now, out) : LookAtRevocation(branch, request, tree, now, out);
      if (done) out.granted.push_back({request.id, {}, {}, {}, {}});
    } else {
      done = LookAtWants(id, branch, request, ahead, tree, now, out);
      if (!done) {
        for (const Want& w : request.wants) ahead[w.ino].Add(request.session, w.right, request.reservation.has_value());
      }
    }
    if (done) branch.wanted.reset();
    it = done ? branch.requests.erase(it) : std::next(it);
  }
}

std::vector<DelegationTable::Obstacle> DelegationTable::ObstaclesOf(BranchId id, Branch& branch, const Request& request, Tree& tree) {
  std::vector<Obstacle> out;
  const Session& own = sessions_[request.session];
  // An operation at the server shares nothing, not even with its own session; a look does, as its session looks first itself.
  const bool strict = request.reservation && request.reservation->kind == Reservation::Kind::kChange;
  if (branch.alone && Planted(Plant::kAloneNotAsked)) return out;
  if (branch.alone == request.session) {
    if (own.alone_recall != 0 || strict) out.push_back({branch.alone, InodeId{0}, Right::kNone});
    return out;
  }
  if (branch.alone) {
    const Session& alone = sessions_[branch.alone];
    const auto holds = [&](const Want& w) { return !Lost(alone, w.ino, tree); };
    if (std::any_of(request.wants.begin(), request.wants.end(), holds)) {
      out.push_back({branch.alone, InodeId{0}, Right::kNone});
      return out;
    }
  }
  for (const Want& w : request.wants) {
    const Tree::Kind kind = tree.KindOf(id, w.ino);
    if (kind == Tree::Kind::kAbsent) continue;
    // Nothing on it before the answer that is owed.
    if (own.recalls.contains(w.ino) && !(request.reservation && !strict))
      out.push_back({request.session, w.ino, Right::kNone});
    const Right keep = StaysBeside(w.right);
    std::set<SessionId> others;
    for (const RightRecord& r : branch.book.At(w.ino)) {
      if ((strict || r.session != request.session) && Conflict(r.right, w.right)) others.insert(r.session);
    }
    if (kind == Tree::Kind::kOther) {
      if (const InodeId home = tree.HomeOf(id, w.ino)) {
        for (const RightRecord& r : branch.book.At(home)) {
          if (Planted(Plant::kForgetCoveredChild)) continue;
          if ((strict || r.session != request.session) && Conflict(r.right, w.right) && r.Covers(w.ino))
            others.insert(r.session);
        }
      }
    }
    if (const auto flushed = request.flushes.find(w.ino); flushed != request.flushes.end()) others.erase(flushed->second.first);
    if (Planted(Plant::kSkipRecall)) others.clear();
    for (SessionId other : others) out.push_back({other, w.ino, keep});
  }
  return out;
}

void DelegationTable::SendAll(Branch& branch, Request& request, const std::vector<Obstacle>& obstacles, Tree& tree, BootTime now, DelegationEffects& out) {
  for (const Obstacle& o : obstacles) {
    request.waits_for.emplace_back(o.session, o.ino);
    if (o.session == request.session && !request.reservation) continue;
    if (!o.ino) {
      SendAlone(sessions_[o.session], branch, now, out);
    } else {
      Send(sessions_[o.session], o.ino, o.keep, branch, tree, now, out);
    }
  }
}

// The message names the newer one of the grants of the inode itself and of its directory; all that is held on the inode is meant. From
// here on that is a record of its own: the directory may be given up in a message that overtakes the answer.
void DelegationTable::Send(Session& session, InodeId ino, Right keep, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out) {
  if (session.recalls.contains(ino) || session.recalls.size() >= limits_.recalls) return;
  const SessionId id = session.holder.session;
  SessionMessage m;
  m.kind = SessionMessage::Kind::kRecall;
  m.ino = ino;
  m.keep = keep;
  Right held = Right::kNone;
  if (const RightRecord* own = branch.book.Find(ino, id)) {
    m.grant = own->number;
    held = own->right;
  }
  const InodeId home = tree.HomeOf(session.holder.branch, ino);
  if (const RightRecord* cover = branch.book.Cover(home, ino, id)) {
    if (cover->number >= m.grant) {
      m.home = home;
      m.grant = cover->number;
    }
    held = Stronger(held, cover->right);
    branch.book.Except(home, id, ino);
    branch.book.Put(ino, id, held, m.grant, home);
  }
  m.number = ++session.number;
  if (!session.Owes()) session.owing_since = now;
  session.recalls[ino] = {m.number, keep};
  session.by_message[m.number] = ino;
  session.outbox[m.number] = m;
  out.told.insert(id);
  ++out.recalls;
}

void DelegationTable::SendAlone(Session& session, Branch& branch, BootTime now, DelegationEffects& out) {
  if (session.alone_recall != 0) return;
  SessionMessage m;
  m.kind = SessionMessage::Kind::kRecallAlone;
  m.grant = branch.alone_number;
  m.number = ++session.number;
  if (!session.Owes()) session.owing_since = now;
  session.alone_recall = m.number;
  session.outbox[m.number] = m;
  out.told.insert(session.holder.session);
  ++out.recalls;
}

// True: done.
bool DelegationTable::LookAtRevocation(Branch& branch, Request& request, Tree& tree, BootTime now, DelegationEffects& out) {
  Session& target = sessions_[request.session];
  request.waits_for.emplace_back(request.session, request.ino);
  if (branch.alone == request.session) {
    if (Lost(target, request.ino, tree)) return true;
    SendAlone(target, branch, now, out);
    return false;
  }
  if (const auto it = target.recalls.find(request.ino); it != target.recalls.end()) {
    request.recalled = request.recalled || it->second.keep == Right::kNone;
    return false;
  }
  const InodeId home = tree.HomeOf(target.holder.branch, request.ino);
  const bool holds = branch.book.Find(request.ino, request.session) != nullptr || branch.book.Cover(home, request.ino, request.session) != nullptr;
  if (request.recalled || !holds) return true;
  Send(target, request.ino, Right::kNone, branch, tree, now, out);
  request.recalled = target.recalls.contains(request.ino);
  return false;
}

DelegationEffects::Granted DelegationTable::GrantAll(BranchId id, Branch& branch, const Request& request, Tree& tree) {
  DelegationEffects::Granted out;
  out.id = request.id;
  Session& session = sessions_[request.session];
  for (const Want& w : request.wants) {
    const Tree::Kind kind = tree.KindOf(id, w.ino);
    // Without a name and open elsewhere only: who wants it now has found it before it lost its name. It is gone for that session, which
    // would not be asked when the last of the others closes it.
    const bool orphan = kind == Tree::Kind::kOther && branch.book.Find(w.ino, request.session) == nullptr && !tree.Reaches(id, w.ino, request.session);
    if (kind == Tree::Kind::kAbsent || orphan) {
      out.missing.push_back(w.ino);
    } else {
      out.grants.push_back(GrantOne(id, branch, session, w, kind, tree));
    }
  }
  return out;
}

// What is asked for by its own number becomes a record of its own, also where the session's right on the directory covers it: a grant
// in an answer never depends on another one, which may arrive later or be gone already.
Grant DelegationTable::GrantOne(BranchId id, Branch& branch, Session& session, const Want& want, Tree::Kind kind, Tree& tree) {
  const SessionId self = session.holder.session;
  if (branch.alone == self) return {want.ino, Right::kWrite, branch.alone_number};
  const RightRecord* own = branch.book.Find(want.ino, self);
  if (own != nullptr && own->right >= want.right) {
    Grant held{want.ino, own->right, own->number, {}};
    // The answer that told what fell out of it may have been lost.
    if (kind == Tree::Kind::kDirectory && !Planted(Plant::kUncoveredOnce)) held.uncovered = KeptBeside(id, branch, self, want.ino, *own, tree);
    return held;
  }
  const uint64_t number = ++session.number;
  if (kind == Tree::Kind::kDirectory) {
    return {want.ino, want.right, number, GrantDirectory(id, branch, session, want.ino, want.right, number, tree)};
  }
  branch.book.Put(want.ino, self, want.right, number, tree.HomeOf(id, want.ino));
  return {want.ino, want.right, number, {}};
}

// Children that WRITE of a directory does not cover and on which the session has a right of its own: fallen out with this grant or before, or
// being recalled, of which it may not know yet.
std::vector<InodeId> DelegationTable::KeptBeside(BranchId id, const Branch& branch, SessionId self, InodeId dir, const RightRecord& held, Tree& tree) {
  std::vector<InodeId> out;
  if (held.right != Right::kWrite) return out;
  for (InodeId child : held.exceptions) {
    if (branch.book.Find(child, self) != nullptr && tree.HomeOf(id, child) == dir) out.push_back(child);
  }
  std::sort(out.begin(), out.end());
  return out;
}

const DelegationTable::WantedChildren& DelegationTable::Wanted(BranchId id, Branch& branch, Tree& tree) {
  if (!branch.wanted) {
    branch.wanted.emplace();
    for (const Request& request : branch.requests) {
      for (const Want& w : request.wants) {
        if (const InodeId home = tree.HomeOf(id, w.ino)) (*branch.wanted)[home].emplace_back(request.session, w);
      }
    }
  }
  return *branch.wanted;
}

RightRecord& DelegationTable::PutDirectory(Branch& branch, SessionId self, InodeId dir, Right right, uint64_t number) {
  RightRecord& record = branch.book.Put(dir, self, right, number, InodeId{0});
  branch.book.ForChildren(dir, [&](InodeId child, const std::vector<RightRecord>& held) {
    for (const RightRecord& r : held) {
      if (Planted(Plant::kCoverEverything)) continue;
      if (r.session != self && Conflict(r.right, right)) record.exceptions.insert(child);
    }
  });
  return record;
}

// Not covered is what others hold, what others wait for, or the holder itself still has to answer for: else one that asks for
// the directory again and again could keep a child from who came earlier.
std::vector<InodeId> DelegationTable::GrantDirectory(BranchId id, Branch& branch, Session& session, InodeId dir, Right right, uint64_t number, Tree& tree) {
  const SessionId self = session.holder.session;
  std::optional<RightRecord> before;
  if (const RightRecord* held = branch.book.Find(dir, self)) before = *held;
  RightRecord& record = PutDirectory(branch, self, dir, right, number);
  const WantedChildren& wanted = Wanted(id, branch, tree);
  if (const auto it = wanted.find(dir); it != wanted.end()) {
    for (const auto& [other, w] : it->second) {
      if (other != self && Conflict(w.right, right)) record.exceptions.insert(w.ino);
    }
  }
  branch.book.ForChildren(dir, [&](InodeId child, const std::vector<RightRecord>&) {
    if (session.recalls.contains(child)) record.exceptions.insert(child);
  });
  // READ becomes WRITE: what it covered until now and does not any more stays with the session as it was, since it may use it until the
  // grant arrives; the grant says so.
  if (before) {
    for (InodeId child : record.exceptions) {
      const bool fell_out = before->Covers(child) && tree.HomeOf(id, child) == dir;
      if (fell_out && branch.book.Find(child, self) == nullptr) branch.book.Put(child, self, before->right, before->number, dir);
    }
  }
  return KeptBeside(id, branch, self, dir, record, tree);
}

uint64_t DelegationTable::NewNumber(SessionId session) {
  Session* s = Live(session);
  return s == nullptr ? 0 : ++s->number;
}

std::optional<Grant> DelegationTable::GrantAlong(SessionId session, InodeId dir, uint64_t number, Tree& tree) {
  Session* s = Live(session);
  if (s == nullptr || s->recalls.contains(dir)) return std::nullopt;
  Branch& branch = BranchOf(*s);
  if (branch.alone == session && s->alone_recall == 0) return Grant{dir, Right::kWrite, branch.alone_number};
  if (branch.alone || branch.book.Of(session).size() >= limits_.rights) return std::nullopt;
  for (const RightRecord& r : branch.book.At(dir)) {
    if (r.session == session || Conflict(r.right, Right::kRead)) return std::nullopt;
  }
  if (CheckedOutBy(s->holder.branch, dir, session, tree, BootTime{})) return std::nullopt;
  for (const Request& request : branch.requests) {
    if (request.session == session) continue;
    for (const Want& w : request.wants) {
      if (w.ino == dir && Conflict(w.right, Right::kRead)) return std::nullopt;
    }
  }
  GrantDirectory(s->holder.branch, branch, *s, dir, Right::kRead, number, tree);
  return Grant{dir, Right::kRead, number};
}

bool DelegationTable::FailLate(Branch& branch, BootTime now, DelegationEffects& out) {
  bool any = false;
  for (auto it = branch.requests.begin(); it != branch.requests.end();) {
    if (now < it->deadline) {
      ++it;
      continue;
    }
    out.failed.push_back({it->id, TooLate(*it)});
    UndoCheckout(branch, *it);
    it = branch.requests.erase(it);
    any = true;
  }
  if (any) branch.wanted.reset();
  return any;
}

Error DelegationTable::TooLate(const Request& request) const {
  std::string why;
  size_t named = 0;
  const auto add = [&](const std::string& what) {
    if (++named <= kNamed) why += (named > 1 ? "; " : "") + what;
  };
  for (const auto& [session, ino] : request.waits_for) {
    const std::string name = NameOf(Find(session));
    add(ino ? fmt::format("inode {} is held by {}", ino.value, name) : fmt::format("everything is held by {}", name));
    if (named >= kNamed) break;
  }
  // While claims are awaited it was not looked at, so it waits for those.
  const Session* self = Live(request.session);
  for (auto s = sessions_.begin(); self != nullptr && named < kNamed && s != sessions_.end(); ++s) {
    if (s->second.unclaimed && s->second.holder.branch == self->holder.branch)
      add(fmt::format("{} has not come back since the server was started", NameOf(&s->second.holder)));
  }
  if (request.behind) why = fmt::format("{} has asked for inode {} before and waits as well", NameOf(Find(request.behind->first)), request.behind->second.value);
  return Error(Code::kUnavailable, fmt::format("not granted in time: {}", why.empty() ? "it was not looked at" : why));
}

}  // namespace archil
