// Sessions, what they say, and what commits do. Requests: delegation_requests.cc.
#include "common/env/planted.h"
#include "server/meta/delegation/delegation_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace archil {
namespace {

// Between a look-up at the server and the open that it was for; the client takes it back later than that.
constexpr absl::Duration kGlimpse = absl::Seconds(1);

std::string Seconds(absl::Duration d) {
  const int64_t s = absl::ToInt64Seconds(d);
  if (s < 120) return fmt::format("{} s", s);
  if (s < 7200) return fmt::format("{} min", s / 60);
  return fmt::format("{} h", s / 3600);
}

}  // namespace

// --- sessions

void DelegationTable::Add(const Holder& holder, uint64_t number, Birth birth) {
  Session& s = sessions_[holder.session];
  s.holder = holder;
  s.number = number;
  s.reclaimed = number;
  s.unclaimed = birth == Birth::kUnclaimed;
  s.claim_until = holder.lease.heard + holder.lease.length;
  Branch& branch = BranchOf(s);
  if (!s.unclaimed) return;
  ++branch.unclaimed;
  branch.claims_until = std::min(branch.claims_until, s.claim_until);
}

void DelegationTable::Remove(SessionId session, const std::string& reason, DelegationEffects& out) {
  Session* s = Live(session);
  if (s == nullptr) return;
  Branch& branch = BranchOf(*s);
  for (auto it = branch.requests.begin(); it != branch.requests.end();) {
    if (it->session != session) {
      ++it;
      continue;
    }
    if (it->wants.empty() && !it->checkout) {
      out.granted.push_back({it->id, {}, {}, {}});  // a revocation: nothing is held any more
    } else {
      out.failed.push_back({it->id, Error(Code::kFenced, reason)});
    }
    it = branch.requests.erase(it);
  }
  branch.wanted.reset();
  branch.book.ForgetSession(session);
  std::erase_if(branch.checkouts, [&](const auto& checkout) { return checkout.second.session == session; });
  if (branch.alone == session) branch.alone = SessionId{0};
  for (InodeId ino : s->opens) {
    const auto it = branch.opens.find(ino);
    if (it == branch.opens.end()) continue;
    it->second.erase(session);
    if (it->second.empty()) branch.opens.erase(it);
  }
  for (auto& [ino, seen] : branch.glimpses) seen.erase(session);
  branch.unclaimed -= s->unclaimed;
  sessions_.erase(session);
}

uint64_t DelegationTable::MakeAlone(SessionId session) {
  Session* s = Live(session);
  if (s == nullptr || s->unclaimed) return 0;
  for (const auto& [id, other] : sessions_) {
    if (id != session && other.holder.branch == s->holder.branch) return 0;
  }
  Branch& branch = BranchOf(*s);
  branch.alone = session;
  branch.alone_number = ++s->number;
  return branch.alone_number;
}

void DelegationTable::Renew(SessionId session, BootTime received) {
  Session* s = Live(session);
  if (s == nullptr || s->unclaimed) return;
  if (s->Owes() && received - s->owing_since > limits_.recall_grace) return;
  s->holder.lease.Renew(received);
}

void DelegationTable::Progress(SessionId session, uint64_t progress, BootTime received) {
  Session* s = Live(session);
  if (s == nullptr || progress <= s->progress) return;
  s->progress = progress;
  s->owing_since = std::max(s->owing_since, received);
}

absl::Duration DelegationTable::LeaseLeft(SessionId session, BootTime now) const {
  const Session* s = Live(session);
  if (s == nullptr) return absl::ZeroDuration();
  const BootTime end = s->unclaimed ? s->claim_until : s->holder.lease.heard + s->holder.lease.length;
  return std::max(end - now, absl::ZeroDuration());
}

DelegationTable::Session* DelegationTable::Live(SessionId session) {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : &it->second;
}

const DelegationTable::Session* DelegationTable::Live(SessionId session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : &it->second;
}

const Holder* DelegationTable::Find(SessionId session) const {
  const Session* s = Live(session);
  return s == nullptr ? nullptr : &s->holder;
}

std::vector<Holder> DelegationTable::Holders() const {
  std::vector<Holder> out;
  for (const auto& [id, s] : sessions_) out.push_back(s.holder);
  return out;
}

std::vector<Holder> DelegationTable::OnBranch(BranchId branch) const {
  std::vector<Holder> out;
  for (const auto& [id, s] : sessions_) {
    if (s.holder.branch == branch) out.push_back(s.holder);
  }
  return out;
}

bool DelegationTable::Unclaimed(SessionId session) const {
  const Session* s = Live(session);
  return s != nullptr && s->unclaimed;
}

bool DelegationTable::OthersUnclaimed(SessionId session) const {
  const Session* self = Live(session);
  if (self == nullptr) return false;
  const auto branch = branches_.find(self->holder.branch);
  return branch != branches_.end() && branch->second.unclaimed > (self->unclaimed ? 1 : 0);
}

bool DelegationTable::LocksKnown(SessionId session, InodeId ino) const {
  const Session* self = Live(session);
  if (self == nullptr) return false;
  const auto branch = branches_.find(self->holder.branch);
  if (branch != branches_.end() && branch->second.alone && branch->second.alone != session && !LocksTaken(branch->second.alone, ino)) return false;
  return !OthersUnclaimed(session);
}

uint64_t DelegationTable::AloneNumber(SessionId session) const {
  const Session* s = Live(session);
  if (s == nullptr) return 0;
  const Branch& branch = branches_.at(s->holder.branch);
  return branch.alone == session ? branch.alone_number : 0;
}

// --- what is taken

void DelegationTable::Take(SessionId session, const Taken& taken, Tree& tree) {
  Session* s = Live(session);
  if (s == nullptr) return;
  Taken& known = s->taken[taken.ino];
  known.ino = taken.ino;
  known.right = known.right || taken.right;
  known.locks = known.locks || taken.locks;
  if (!taken.right) return;
  Branch& branch = BranchOf(*s);
  branch.wanted.reset();
  ForgetRecall(*s, taken.ino);
  if (branch.alone != session) TakeAway(*s, branch, taken.ino, Right::kNone, 0, tree);
}

bool DelegationTable::Unsettled(SessionId session) const {
  const Session* s = Live(session);
  return s != nullptr && !s->taken.empty();
}

std::vector<Taken> DelegationTable::TakenOf(SessionId session) const {
  std::vector<Taken> out;
  const Session* s = Live(session);
  if (s == nullptr) return out;
  for (const auto& [ino, taken] : s->taken) out.push_back(taken);
  return out;
}

bool DelegationTable::LocksTaken(SessionId session, InodeId ino) const {
  const Session* s = Live(session);
  if (s == nullptr) return false;
  const auto it = s->taken.find(ino);
  return it != s->taken.end() && it->second.locks;
}

// What it was is not known by the table any more where it covered the inode: the tree tells where that is.
bool DelegationTable::Lost(const Session& session, InodeId ino, Tree& tree) const {
  if (session.taken.empty()) return false;
  return session.HasLost(ino) || session.HasLost(tree.HomeOf(session.holder.branch, ino));
}

Status DelegationTable::CheckSettle(SessionId session) const {
  const Session* s = Live(session);
  if (s == nullptr) return Error(Code::kFenced, "the session has ended");
  if (s->unclaimed) return Error(Code::kUnavailable, "the session has to reclaim what it holds first");
  const auto branch = branches_.find(s->holder.branch);
  if (branch != branches_.end() && branch->second.alone == session) {
    return Error(Code::kUnavailable, "the session has not said yet what it keeps of everything");
  }
  return Ok();
}

void DelegationTable::Settle(SessionId session, const std::vector<InodeId>& inodes) {
  Session* s = Live(session);
  if (s == nullptr) return;
  for (InodeId ino : inodes) s->taken.erase(ino);
}

bool DelegationTable::MayTake(SessionId session, BootTime now) const {
  const Session* s = Live(session);
  return s != nullptr && !s->unclaimed && s->taken.size() < limits_.taken && s->holder.lease.Silence(now) < limits_.keep_silent;
}

std::string DelegationTable::SilentReason(SessionId session, SessionId waiter, BootTime now) const {
  const Session* s = Live(session);
  const Holder* who = Find(waiter);
  const std::string name = waiter == session || who == nullptr ? "somebody" : who->name.empty() ? "an unnamed client" : who->name;
  return fmt::format("its lease had run out ({} s without a message that counts) and {} wanted what it holds",
                     s == nullptr ? 0 : absl::ToInt64Seconds(s->holder.lease.Silence(now)), name);
}

// --- what sessions say

std::vector<SessionMessage> DelegationTable::Poll(SessionId session, uint64_t after, size_t limit) {
  std::vector<SessionMessage> out;
  Session* s = Live(session);
  if (s == nullptr) return out;
  s->outbox.erase(s->outbox.begin(), s->outbox.upper_bound(after));
  for (const auto& [number, message] : s->outbox) {
    if (out.size() == limit) break;
    out.push_back(message);
  }
  return out;
}

uint64_t DelegationTable::Tell(SessionId session, SessionMessage message, DelegationEffects& out) {
  Session* s = Live(session);
  if (s == nullptr) return 0;
  message.number = ++s->number;
  s->outbox[message.number] = message;
  out.told.insert(session);
  return message.number;
}

void DelegationTable::ForgetRecall(Session& session, InodeId ino) {
  const auto it = session.recalls.find(ino);
  if (it == session.recalls.end()) return;
  session.outbox.erase(it->second.message);
  session.by_message.erase(it->second.message);
  session.recalls.erase(it);
}

// What stays is a record of its own, also where the directory covers as much: the session may give that up. The cover of the directory
// ends for the inode if it is stronger.
void DelegationTable::TakeAway(Session& session, Branch& branch, InodeId ino, Right keep, uint64_t number, Tree& tree) {
  const SessionId id = session.holder.session;
  branch.book.Weaken(ino, id, keep, number);
  const InodeId home = tree.HomeOf(session.holder.branch, ino);
  const RightRecord* cover = branch.book.Cover(home, ino, id);
  if (cover == nullptr) return;
  const Right kept = Weaker(cover->right, keep);
  if (cover->right > keep) branch.book.Except(home, id, ino);
  if (kept == Right::kNone) return;
  const RightRecord* own = branch.book.Find(ino, id);
  branch.book.Put(ino, id, own == nullptr ? kept : Stronger(kept, own->right), number, home);
}

void DelegationTable::Keep(Session& session, Branch& branch, const HeldRight& held, uint64_t number, Tree& tree) {
  const BranchId branch_id = session.holder.branch;
  const SessionId id = session.holder.session;
  Right right = held.right;
  if (session.holder.mode == SessionMode::kReadOnly) right = Weaker(right, Right::kRead);
  if (right == Right::kNone) return;
  const Tree::Kind kind = tree.KindOf(branch_id, held.ino);
  // Made by the session and not committed yet: it is born with its right when it is.
  if (kind == Tree::Kind::kAbsent) return;
  if (const RightRecord* before = branch.book.Find(held.ino, id)) right = Stronger(right, before->right);
  if (kind == Tree::Kind::kDirectory) {
    RightRecord& record = PutDirectory(branch, id, held.ino, right, number);
    for (const auto& [ino, taken] : session.taken) {
      if (taken.right) record.exceptions.insert(ino);
    }
    return;
  }
  const InodeId home = tree.HomeOf(branch_id, held.ino);
  branch.book.Put(held.ino, id, right, number, home);
  // Others that hold the directory know, if they are right, that this was carved out.
  for (const RightRecord& other : branch.book.At(home)) {
    if (other.session == id || !Conflict(other.right, right)) continue;
    branch.book.Except(home, other.session, held.ino);
  }
}

Status DelegationTable::CheckOpens(const Session& session, const std::vector<InodeId>& opens) const {
  if (session.opens.size() + opens.size() <= limits_.opens) return Ok();
  return Error(Code::kTryAgain, fmt::format("the session has told of more than {} open inodes", limits_.opens));
}

void DelegationTable::AddOpens(Session& session, Branch& branch, const std::vector<InodeId>& opens, Tree& tree) {
  if (Planted(Plant::kForgetOpen)) return;
  for (InodeId ino : opens) {
    if (tree.KindOf(session.holder.branch, ino) == Tree::Kind::kAbsent) continue;
    session.opens.insert(ino);
    branch.opens[ino].insert(session.holder.session);
  }
}

Status DelegationTable::Answer(SessionId session, const RecallAnswer& answer, Tree& tree, BootTime now) {
  Session* s = Live(session);
  if (s == nullptr || answer.message == 0) return Ok();
  Branch& branch = BranchOf(*s);
  if (answer.message == s->alone_recall) {
    ARCHIL_RETURN_IF_ERROR(CheckOpens(*s, answer.opens));
    s->outbox.erase(s->alone_recall);
    s->alone_recall = 0;
    branch.alone = SessionId{0};
    for (const HeldRight& held : answer.keeps) {
      if (!Lost(*s, held.ino, tree)) Keep(*s, branch, held, answer.message, tree);
    }
  } else if (s->flushes.erase(answer.message) > 0) {
    s->outbox.erase(answer.message);
  } else {
    const auto it = s->by_message.find(answer.message);
    if (it == s->by_message.end()) return Ok();
    ARCHIL_RETURN_IF_ERROR(CheckOpens(*s, answer.opens));
    const InodeId ino = it->second;
    const Right keep = Weaker(answer.kept, s->recalls[ino].keep);
    ForgetRecall(*s, ino);
    TakeAway(*s, branch, ino, keep, answer.message, tree);
  }
  AddOpens(*s, branch, answer.opens, tree);
  s->owing_since = now;
  return Ok();
}

Status DelegationTable::GiveBack(SessionId session, const std::vector<InodeId>& inodes, const std::vector<InodeId>& opens, Tree& tree) {
  Session* s = Live(session);
  if (s == nullptr) return Ok();
  Branch& branch = BranchOf(*s);
  ARCHIL_RETURN_IF_ERROR(CheckOpens(*s, opens));
  for (InodeId ino : inodes) {
    if (branch.alone == session || s->recalls.contains(ino)) continue;
    TakeAway(*s, branch, ino, Right::kNone, 0, tree);
  }
  AddOpens(*s, branch, opens, tree);
  return Ok();
}

Status DelegationTable::CheckClaim(const Session& session, Branch& branch, const ReclaimRequest& request) const {
  const SessionId id = session.holder.session;
  const auto conflict = [](const std::string& what) { return Error(Code::kFenced, fmt::format("it reclaimed {} that another session has", what)); };
  if (request.alone && (branch.alone || !branch.book.empty())) return conflict("everything, of");
  if (branch.alone && !request.rights.empty()) return conflict("something, of everything");
  for (const HeldRight& held : request.rights) {
    if (session.HasLost(held.ino)) continue;
    for (const RightRecord& other : branch.book.At(held.ino)) {
      if (other.session != id && Conflict(other.right, held.right)) return conflict(fmt::format("inode {}", held.ino.value));
    }
  }
  return Ok();
}

Result<uint64_t> DelegationTable::Reclaim(const ReclaimRequest& request, Tree& tree, DelegationEffects& out) {
  Session* s = Live(request.session);
  if (s == nullptr) return Error(Code::kFenced, "the session has ended");
  if (!s->unclaimed) return s->reclaimed;  // the answer was lost
  Branch& branch = BranchOf(*s);
  ARCHIL_RETURN_IF_ERROR(CheckOpens(*s, request.opens));
  ARCHIL_RETURN_IF_ERROR(CheckClaim(*s, branch, request));
  const uint64_t number = ++s->number;
  s->unclaimed = false;
  --branch.unclaimed;
  s->reclaimed = number;
  if (request.alone) {
    branch.alone = request.session;
    branch.alone_number = number;
  } else {
    for (const HeldRight& held : request.rights) {
      if (!s->HasLost(held.ino)) Keep(*s, branch, held, number, tree);
    }
  }
  ReclaimCheckouts(*s, branch, request, tree, out);
  AddOpens(*s, branch, request.opens, tree);
  return number;
}

// --- commits

Right DelegationTable::RightOf(SessionId session, InodeId ino, const std::function<InodeId()>& home) const {
  const Session* s = Live(session);
  if (s == nullptr) return Right::kNone;
  const Branch& branch = branches_.at(s->holder.branch);
  if (s->HasLost(ino)) return Right::kNone;
  // What it holds by records of its own in a directory that was taken, it holds.
  if (branch.alone == session) return !s->taken.empty() && s->HasLost(home()) ? Right::kNone : Right::kWrite;
  const RightRecord* own = branch.book.Find(ino, session);
  if (own != nullptr && own->right == Right::kWrite) return Right::kWrite;
  const RightRecord* cover = branch.book.Cover(home(), ino, session);
  return Stronger(own == nullptr ? Right::kNone : own->right, cover == nullptr ? Right::kNone : cover->right);
}

void DelegationTable::Committed(SessionId session, const std::map<InodeId, Touched>& touched, Tree& tree) {
  Session* s = Live(session);
  if (s == nullptr) return;
  Branch& branch = BranchOf(*s);
  branch.wanted.reset();
  for (const auto& [ino, what] : touched) {
    const Tree::Kind kind = tree.KindOf(s->holder.branch, ino);
    const InodeId home = kind == Tree::Kind::kOther ? tree.HomeOf(s->holder.branch, ino) : InodeId{0};
    for (InodeId dir : what.left) {
      if (dir != home) branch.book.ForgetException(dir, ino);
    }
    if (kind == Tree::Kind::kAbsent) {
      branch.book.ForgetInode(ino);
      branch.checkouts.erase(ino);
      ForgetRecall(*s, ino);
      const auto open = branch.opens.find(ino);
      if (open == branch.opens.end()) continue;
      for (SessionId other : open->second) sessions_[other].opens.erase(ino);
      branch.opens.erase(open);
      continue;
    }
    // Who is alone has everything without a record; from the recall of that on it may have named already what it keeps.
    if (branch.alone == session && s->alone_recall == 0) continue;
    const RightRecord* own = branch.book.Find(ino, session);
    if (kind == Tree::Kind::kDirectory) {
      if (what.born && own == nullptr) branch.book.Put(ino, session, Right::kWrite, 0, InodeId{0});
      continue;
    }
    if (what.links_changed && (own == nullptr || own->right != Right::kWrite)) {
      branch.book.Put(ino, session, Right::kWrite, own == nullptr ? 0 : own->number, home);
    }
    branch.book.SetHome(ino, home);
    // Only then: telling that it is open no more, say, takes nothing from those who hold its directory.
    if (home && what.links_changed) branch.book.ExceptOthers(home, session, ino);
  }
}

// All that was named was reserved: only what was not can be held still, by anybody.
void DelegationTable::AppliedAtServer(BranchId id, const std::map<InodeId, Touched>& touched, Tree& tree) {
  const auto it = branches_.find(id);
  if (it == branches_.end()) return;
  Branch& branch = it->second;
  branch.wanted.reset();
  for (const auto& [ino, what] : touched) {
    const Tree::Kind kind = tree.KindOf(id, ino);
    const InodeId home = kind == Tree::Kind::kOther ? tree.HomeOf(id, ino) : InodeId{0};
    for (InodeId dir : what.left) {
      if (dir != home) branch.book.ForgetException(dir, ino);
    }
    if (kind == Tree::Kind::kAbsent) {
      ForgetAbsent(branch, ino);
    } else if (kind == Tree::Kind::kOther) {
      branch.book.SetHome(ino, home);
      // Whoever holds the directory of its other name has nothing of it (session 0: nobody is spared).
      if (home && what.links_changed) branch.book.ExceptOthers(home, SessionId{0}, ino);
    }
  }
}

void DelegationTable::ForgetAbsent(Branch& branch, InodeId ino) {
  branch.book.ForgetInode(ino);
  branch.checkouts.erase(ino);
  branch.glimpses.erase(ino);
  for (auto& [session, s] : sessions_) ForgetRecall(s, ino);
  const auto open = branch.opens.find(ino);
  if (open == branch.opens.end()) return;
  for (SessionId other : open->second) sessions_[other].opens.erase(ino);
  branch.opens.erase(open);
}

std::vector<SessionId> DelegationTable::OpenElsewhere(BranchId branch, InodeId ino, SessionId but) const {
  std::vector<SessionId> out;
  const auto it = branches_.find(branch);
  if (it == branches_.end()) return out;
  const auto open = it->second.opens.find(ino);
  if (open == it->second.opens.end()) return out;
  for (SessionId s : open->second) {
    if (s != but) out.push_back(s);
  }
  return out;
}

std::vector<SessionId> DelegationTable::OpenAnywhere(BranchId branch, InodeId ino, SessionId by, BootTime now) const {
  std::set<SessionId> sessions;
  const auto it = branches_.find(branch);
  if (it == branches_.end()) return {};
  if (const auto open = it->second.opens.find(ino); open != it->second.opens.end()) sessions = open->second;
  if (const auto seen = it->second.glimpses.find(ino); seen != it->second.glimpses.end()) {
    for (const auto& [session, at] : seen->second) {
      if (session != by && now - at <= kGlimpse) sessions.insert(session);
    }
  }
  return {sessions.begin(), sessions.end()};
}

void DelegationTable::Opened(SessionId session, InodeId ino) {
  Session* s = Live(session);
  if (s == nullptr) return;
  s->opens.insert(ino);
  BranchOf(*s).opens[ino].insert(session);
}

void DelegationTable::Glimpsed(SessionId session, InodeId ino, BootTime now) {
  const Session* s = Live(session);
  if (s == nullptr) return;
  Branch& branch = BranchOf(*s);
  if (now - branch.glimpses_swept > kGlimpse) {
    branch.glimpses_swept = now;
    absl::erase_if(branch.glimpses, [now](auto& entry) {
      std::erase_if(entry.second, [now](const auto& seen) { return now - seen.second > kGlimpse; });
      return entry.second.empty();
    });
  }
  branch.glimpses[ino][session] = now;
}

void DelegationTable::Closed(SessionId session, InodeId ino) {
  Session* s = Live(session);
  if (s == nullptr) return;
  Branch& branch = BranchOf(*s);
  if (const auto seen = branch.glimpses.find(ino); seen != branch.glimpses.end()) seen->second.erase(session);
  if (s->opens.erase(ino) == 0) return;
  const auto it = branch.opens.find(ino);
  if (it == branch.opens.end()) return;
  it->second.erase(session);
  if (it->second.empty()) branch.opens.erase(it);
}

bool DelegationTable::TakesNote(SessionId session) const {
  const Session* s = Live(session);
  if (s == nullptr) return false;
  const Branch& branch = branches_.at(s->holder.branch);
  return branch.alone != session || s->alone_recall != 0 || !branch.opens.empty() || !branch.glimpses.empty();
}

// --- reads

bool DelegationTable::Covered(SessionId session, InodeId dir, InodeId child) const {
  const Session* s = Live(session);
  if (s == nullptr) return false;
  const Branch& branch = branches_.at(s->holder.branch);
  // What others carved out of the directory is not known before they have reclaimed it.
  if (branch.unclaimed > 0 && branch.alone != session && !Planted(Plant::kCoveredBeforeReclaim)) return false;
  // While an answer is owed, the session may have given it up already.
  if (branch.alone == session) return s->alone_recall == 0;
  return branch.book.Cover(dir, child, session) != nullptr && !s->recalls.contains(child) && !s->recalls.contains(dir);
}

std::vector<RightInfo> DelegationTable::List(size_t limit) const {
  std::vector<RightInfo> out;
  for (const auto& [id, s] : sessions_) {
    const Branch& branch = branches_.at(s.holder.branch);
    if (out.size() == limit) return out;
    if (branch.alone == id) out.push_back({id, InodeId{0}, Right::kWrite, 0});
    for (const auto& [dir, checkout] : branch.checkouts) {
      if (checkout.session == id) out.push_back({id, dir, Right::kWrite, 0, true});
    }
    for (InodeId ino : branch.book.Of(id)) {
      if (out.size() == limit) return out;
      const RightRecord* record = branch.book.Find(ino, id);
      out.push_back({id, ino, record->right, static_cast<uint32_t>(record->exceptions.size()), false});
    }
  }
  return out;
}

size_t DelegationTable::records() const {
  size_t sum = 0;
  for (const auto& [id, branch] : branches_) sum += branch.book.size();
  return sum;
}

std::string HeldMessage(const std::string& disk, const std::string& client, absl::Duration age, absl::Duration silence, absl::Duration lease) {
  return fmt::format(
      "disk {} is held by {} (mounted {} ago, last heard of {} ago). Unmount it there; if that machine is gone, its lease ends "
      "{} after it was last heard of: try again then",
      disk, client.empty() ? "an unnamed client" : client, Seconds(age), Seconds(silence), Seconds(lease));
}

}  // namespace archil
