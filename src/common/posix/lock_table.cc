#include "common/posix/lock_table.h"

#include <algorithm>

namespace archil {
namespace {

// Who waits for whom is followed this far; a longer chain counts as a circle, which only lets somebody overtake.
constexpr size_t kMaxChain = 256;

}  // namespace

bool LockTable::SameActor(const FileLock& a, const FileLock& b) {
  return a.owner == b.owner || (a.owner.session == b.owner.session && a.pid != 0 && a.pid == b.pid);
}

bool LockTable::Clash(const FileLock& a, const FileLock& b) {
  return a.owner != b.owner && a.first <= b.last && b.first <= a.last &&
         (a.type == LockType::kWrite || b.type == LockType::kWrite);
}

std::vector<LockTable::Actor> LockTable::ActorsOf(const FileLock& lock) {
  std::vector<Actor> actors = {{lock.owner.session, false, lock.owner.id}};
  if (lock.pid != 0) actors.push_back({lock.owner.session, true, static_cast<uint64_t>(lock.pid)});
  return actors;
}

template <class Fn>
bool LockTable::AnyHolder(const FileLock& lock, const Fn& fn) const {
  const auto found = files_.find({lock.ino, lock.family});
  if (found == files_.end()) return false;
  for (const auto& [owner, pieces] : found->second.held) {
    if (owner == lock.owner) continue;
    auto it = pieces.upper_bound(lock.first);
    if (it != pieces.begin() && std::prev(it)->second.last >= lock.first) --it;
    for (; it != pieces.end() && it->first <= lock.last; ++it) {
      if (lock.type != LockType::kWrite && it->second.type != LockType::kWrite) continue;
      if (fn(FileLock{lock.ino, lock.family, owner, it->second.type, it->first, it->second.last, it->second.pid})) return true;
    }
  }
  return false;
}

template <class Fn>
bool LockTable::AnyWaiterOf(const FileLock& lock, const Fn& fn) const {
  for (const Actor& actor : ActorsOf(lock)) {
    const auto [begin, end] = asking_.equal_range(actor);
    for (auto it = begin; it != end; ++it) {
      if (fn(*it->second)) return true;
    }
  }
  return false;
}

// Does `start` wait, directly or through others, for who asks in `target`? Over locks that are held and places in queues.
// `everybody`: goes on when that is known, until all are visited for whom it waits.
bool LockTable::WaitsFor(const Waiter& start, const FileLock& target, bool everybody, Visited* visited) const {
  std::vector<const Waiter*> open = {&start};
  visited->insert(&start);
  bool found = false;
  const auto visit = [&](const Waiter& waiter) {
    if (visited->insert(&waiter).second) open.push_back(&waiter);
    return false;
  };
  while (!open.empty() && (everybody || !found)) {
    if (visited->size() > kMaxChain) return true;
    const Waiter& waiter = *open.back();
    open.pop_back();
    const FileLock& wanted = waiter.request.lock;
    AnyHolder(wanted, [&](const FileLock& held) {
      found |= SameActor(held, target);
      return AnyWaiterOf(held, visit);
    });
    for (const Waiter& earlier : files_.at({wanted.ino, wanted.family}).queue) {
      if (&earlier == &waiter) break;
      if (!Clash(earlier.request.lock, wanted)) continue;
      found |= SameActor(earlier.request.lock, target);
      AnyWaiterOf(earlier.request.lock, visit);
    }
  }
  return found;
}

bool LockTable::Blocked(const File& file, const FileLock& lock, Queue::const_iterator end) const {
  if (AnyHolder(lock, [](const FileLock&) { return true; })) return true;
  for (auto it = file.queue.begin(); it != end; ++it) {
    if (!Clash(it->request.lock, lock)) continue;
    Visited visited;
    if (!WaitsFor(*it, lock, false, &visited)) return true;
  }
  return false;
}

// As posix_locks_deadlock of Linux: over locks that are held and waits that want to know, by owner.
bool LockTable::ClosesCircle(const LockRequest& request) const {
  std::vector<const LockRequest*> open = {&request};
  std::set<const LockRequest*> seen = {&request};
  while (!open.empty()) {
    const LockRequest& r = *open.back();
    open.pop_back();
    const bool closes = AnyHolder(r.lock, [&](const FileLock& held) {
      if (held.owner == request.lock.owner) return true;
      const auto [begin, end] = asking_.equal_range({held.owner.session, false, held.owner.id});
      for (auto it = begin; it != end; ++it) {
        const LockRequest& next = it->second->request;
        if (next.detect_deadlock && seen.insert(&next).second) open.push_back(&next);
      }
      return false;
    });
    if (closes) return true;
  }
  return false;
}

bool LockTable::HasRoom(const FileLock& lock) const {
  const auto count = pieces_of_.find(lock.owner.session);
  const size_t now = count == pieces_of_.end() ? 0 : count->second;
  bool splits = false;
  if (const auto file = files_.find({lock.ino, lock.family}); file != files_.end()) {
    if (const auto held = file->second.held.find(lock.owner); held != file->second.held.end()) {
      const auto it = held->second.lower_bound(lock.first);
      splits = it != held->second.begin() && std::prev(it)->second.last > lock.last;
    }
  }
  const size_t more = (splits ? 1 : 0) + (lock.type == LockType::kUnlock ? 0 : 1);
  return more == 0 || now + more <= limits_.locks_per_session;
}

void LockTable::Count(SessionId session, size_t before, size_t after) {
  lock_count_ += after - before;
  size_t& n = pieces_of_[session];
  n += after - before;
  if (n == 0) pieces_of_.erase(session);
}

bool LockTable::Put(const FileLock& lock) {
  const FileKey key{lock.ino, lock.family};
  File& file = files_[key];
  Pieces& pieces = file.held[lock.owner];
  const size_t before = pieces.size();
  bool weaker = false;
  FileLock merged = lock;
  // What overlaps gives way, and what touches it with the same type becomes one with it.
  auto it = pieces.lower_bound(lock.first);
  if (it != pieces.begin()) --it;
  while (it != pieces.end() && (it->first <= lock.last || it->first == lock.last + 1)) {
    const uint64_t first = it->first;
    const Piece old = it->second;
    const bool overlaps = old.last >= lock.first && first <= lock.last;
    const bool touches = overlaps || old.last + 1 == lock.first || first == lock.last + 1;
    if (!touches || (!overlaps && old.type != lock.type)) {
      ++it;
      continue;
    }
    it = pieces.erase(it);
    if (old.type == lock.type) {
      merged.first = std::min(merged.first, first);
      merged.last = std::max(merged.last, old.last);
      continue;
    }
    weaker |= old.type > lock.type;
    if (first < lock.first) pieces[first] = {lock.first - 1, old.type, old.pid};
    if (old.last > lock.last) it = std::next(pieces.insert_or_assign(lock.last + 1, old).first);
  }
  if (lock.type != LockType::kUnlock) pieces[merged.first] = {merged.last, lock.type, lock.pid};
  Count(lock.owner.session, before, pieces.size());
  if (pieces.empty()) {
    file.held.erase(lock.owner);
    holdings_.erase({lock.owner, key});
  } else {
    holdings_.insert({lock.owner, key});
  }
  return weaker;
}

void LockTable::Forget(Queue& queue, Queue::iterator waiter) {
  const FileLock& lock = waiter->request.lock;
  for (const Actor& actor : ActorsOf(lock)) {
    auto [begin, end] = asking_.equal_range(actor);
    asking_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == &*waiter; }));
  }
  const SessionId session = lock.owner.session;
  if (--waiters_of_[session] == 0) waiters_of_.erase(session);
  waiters_.erase({session, *waiter->request.waiter});
  queue.erase(waiter);
}

void LockTable::DropIfEmpty(FileKey key) {
  const auto it = files_.find(key);
  if (it != files_.end() && it->second.held.empty() && it->second.queue.empty()) files_.erase(it);
}

// Lets through who can be, in order of arrival.
void LockTable::Wake(FileKey key, std::vector<WaiterId>* granted) {
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  File& file = found->second;
  for (auto it = file.queue.begin(); it != file.queue.end();) {
    if (Blocked(file, it->request.lock, it)) {
      ++it;
      continue;
    }
    const FileLock lock = it->request.lock;
    granted->push_back({lock.owner.session, *it->request.waiter});
    Forget(file.queue, it++);
    // A grant that weakens what its owner had may let earlier ones through.
    if (Put(lock)) it = file.queue.begin();
  }
  DropIfEmpty(key);
}

LockOutcome LockTable::Enqueue(FileKey key, const LockRequest& request, std::vector<WaiterId>* granted) {
  const WaiterId id{request.lock.owner.session, *request.waiter};
  const auto count = waiters_of_.find(id.session);
  if (count != waiters_of_.end() && count->second >= limits_.waiters_per_session) return LockOutcome::kFull;
  ++waiters_of_[id.session];
  Queue& queue = files_[key].queue;
  queue.push_back({request, next_arrival_++});
  const auto self = std::prev(queue.end());
  waiters_[id] = {key, self};
  for (const Actor& actor : ActorsOf(request.lock)) asking_.emplace(actor, &*self);
  // Now others may stand behind somebody who waits for them through this one.
  Visited visited;
  if (WaitsFor(*self, request.lock, true, &visited)) {
    std::set<FileKey> files;
    for (const Waiter* waiter : visited) files.insert({waiter->request.lock.ino, waiter->request.lock.family});
    for (const FileKey& file : files) Wake(file, granted);
  }
  if (waiters_.contains(id)) return LockOutcome::kWaiting;
  std::erase(*granted, id);  // one of them was this one
  return LockOutcome::kDone;
}

LockOutcome LockTable::Set(const LockRequest& request, std::vector<WaiterId>* granted) {
  const FileLock& lock = request.lock;
  const FileKey key{lock.ino, lock.family};
  if (request.waiter && IsWaiting({lock.owner.session, *request.waiter})) return LockOutcome::kWaiting;
  if (!HasRoom(lock)) return LockOutcome::kFull;
  const auto found = files_.find(key);
  const bool blocked = lock.type != LockType::kUnlock && found != files_.end() &&
                       Blocked(found->second, lock, found->second.queue.end());
  if (!blocked) {
    if (Put(lock)) Wake(key, granted);
    DropIfEmpty(key);
    return LockOutcome::kDone;
  }
  // flock(2): the old lock goes first.
  if (lock.family == LockFamily::kWhole) Release(lock.ino, lock.family, lock.owner, granted);
  if (!request.waiter) return LockOutcome::kConflict;
  if (request.detect_deadlock && ClosesCircle(request)) return LockOutcome::kDeadlock;
  return Enqueue(key, request, granted);
}

std::optional<FileLock> LockTable::Test(const FileLock& lock) const {
  std::optional<FileLock> best;
  AnyHolder(lock, [&](const FileLock& held) {
    if (!best || held.first < best->first) best = held;
    return false;
  });
  return best;
}

bool LockTable::Cancel(WaiterId waiter, std::vector<WaiterId>* granted) {
  const auto it = waiters_.find(waiter);
  if (it == waiters_.end()) return false;
  const FileKey key = it->second.first;
  Forget(files_[key].queue, it->second.second);
  Wake(key, granted);
  DropIfEmpty(key);
  return true;
}

bool LockTable::Release(InodeId ino, LockFamily family, LockOwner owner, std::vector<WaiterId>* granted) {
  if (!Holds(ino, family, owner)) return false;
  Put({ino, family, owner, LockType::kUnlock, 0, kLockEnd, 0});
  Wake({ino, family}, granted);
  DropIfEmpty({ino, family});
  return true;
}

void LockTable::ReleaseSession(SessionId session, std::vector<WaiterId>* granted) {
  std::set<FileKey> touched;
  for (auto it = waiters_.lower_bound({session, 0}); it != waiters_.end() && it->first.session == session;) {
    const auto [key, waiter] = (it++)->second;
    touched.insert(key);
    Forget(files_[key].queue, waiter);
  }
  for (auto it = holdings_.lower_bound({{session, 0}, {}}); it != holdings_.end() && it->first.session == session;) {
    const auto [owner, key] = *it++;
    touched.insert(key);
    Put({key.first, key.second, owner, LockType::kUnlock, 0, kLockEnd, 0});
  }
  for (const FileKey& key : touched) {
    Wake(key, granted);
    DropIfEmpty(key);
  }
}

void LockTable::ReleaseInode(SessionId session, InodeId ino, std::vector<WaiterId>* granted) {
  std::set<FileKey> touched;
  for (auto it = holdings_.lower_bound({{session, 0}, {}}); it != holdings_.end() && it->first.session == session;) {
    const auto [owner, key] = *it++;
    if (key.first != ino) continue;
    touched.insert(key);
    Put({key.first, key.second, owner, LockType::kUnlock, 0, kLockEnd, 0});
  }
  for (const FileKey& key : touched) {
    Wake(key, granted);
    DropIfEmpty(key);
  }
}

void LockTable::DropInode(InodeId ino, std::vector<WaiterId>* lost) {
  for (const LockFamily family : {LockFamily::kRange, LockFamily::kWhole}) {
    const auto found = files_.find({ino, family});
    if (found == files_.end()) continue;
    File& file = found->second;
    while (!file.queue.empty()) {
      const LockRequest& request = file.queue.front().request;
      lost->push_back({request.lock.owner.session, *request.waiter});
      Forget(file.queue, file.queue.begin());
    }
    while (!file.held.empty()) {
      const LockOwner owner = file.held.begin()->first;
      Put({ino, family, owner, LockType::kUnlock, 0, kLockEnd, 0});
    }
    files_.erase(found);
  }
}

LockOutcome LockTable::Restore(const FileLock& lock) {
  if (AnyHolder(lock, [](const FileLock&) { return true; })) return LockOutcome::kConflict;
  if (!HasRoom(lock)) return LockOutcome::kFull;
  Put(lock);
  return LockOutcome::kDone;
}

std::set<SessionId> LockTable::SessionsAgainst(const FileLock& lock) const {
  std::set<SessionId> sessions;
  AnyHolder(lock, [&](const FileLock& held) {
    if (held.owner.session != lock.owner.session) sessions.insert(held.owner.session);
    return false;
  });
  return sessions;
}

std::vector<InodeId> LockTable::BlockedBy(SessionId session) const {
  std::set<InodeId> inodes;
  for (const auto& [id, place] : waiters_) {
    if (id.session == session) continue;
    const FileLock& wanted = place.second->request.lock;
    if (AnyHolder(wanted, [&](const FileLock& held) { return held.owner.session == session; })) inodes.insert(wanted.ino);
  }
  return {inodes.begin(), inodes.end()};
}

bool LockTable::Holds(InodeId ino, LockFamily family, LockOwner owner) const {
  return holdings_.contains({owner, {ino, family}});
}

std::vector<FileLock> LockTable::Locks() const {
  std::vector<FileLock> locks;
  for (const auto& [key, file] : files_) {
    for (const auto& [owner, pieces] : file.held) {
      for (const auto& [first, piece] : pieces) {
        locks.push_back({key.first, key.second, owner, piece.type, first, piece.last, piece.pid});
      }
    }
  }
  return locks;
}

std::vector<LockRequest> LockTable::Waiters() const {
  std::vector<const Waiter*> waiters;
  for (const auto& [id, place] : waiters_) waiters.push_back(&*place.second);
  std::sort(waiters.begin(), waiters.end(), [](const Waiter* a, const Waiter* b) { return a->arrival < b->arrival; });
  std::vector<LockRequest> requests;
  for (const Waiter* waiter : waiters) requests.push_back(waiter->request);
  return requests;
}

}  // namespace archil
