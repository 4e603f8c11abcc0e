// LockTable against a model that knows single bytes and nothing else. The model does not predict the order of grants; it checks
// that each one was allowed when it came, and that after each call nobody is left who could be let through.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/posix/lock_table.h"

namespace archil {
namespace {

constexpr uint64_t kBytes = 8;

struct Held {
  LockType type;
  int32_t pid;
};

class Model {
 public:
  using File = std::pair<InodeId, LockFamily>;
  std::vector<LockRequest> queue;  // in order of arrival

  void Put(const FileLock& lock) {
    for (uint64_t b = lock.first; b < Limit(lock); ++b) {
      auto& owners = bytes[{lock.ino, lock.family}][b];
      owners.erase(lock.owner);
      if (lock.type != LockType::kUnlock) owners[lock.owner] = {lock.type, lock.pid};
    }
  }
  bool HeldAgainst(const FileLock& lock) const { return !Obstacles(lock).empty(); }
  bool Allowed(const FileLock& lock, size_t end) const {
    if (lock.type == LockType::kUnlock) return true;
    if (HeldAgainst(lock)) return false;
    for (size_t i = 0; i < end; ++i) {
      if (Clash(queue[i].lock, lock) && !Depends(i, lock)) return false;
    }
    return true;
  }
  // Is there a way from `request` back to its owner over owners that all wait to know?
  bool Deadlock(const LockRequest& request) const {
    std::map<LockOwner, bool> reached;  // false: not looked at
    for (const FileLock& o : Obstacles(request.lock)) reached.emplace(o.owner, false);
    for (bool more = true; more;) {
      more = false;
      for (auto& [owner, done] : reached) {
        if (done) continue;
        done = more = true;
        for (const LockRequest& w : queue) {
          if (w.lock.owner != owner || !w.detect_deadlock) continue;
          for (const FileLock& o : Obstacles(w.lock)) reached.emplace(o.owner, false);
        }
        break;
      }
    }
    return reached.contains(request.lock.owner);
  }
  std::array<std::map<LockOwner, Held>, kBytes>& At(InodeId ino, LockFamily family) { return bytes[{ino, family}]; }
  std::map<File, std::array<std::map<LockOwner, Held>, kBytes>> bytes;

 private:
  static uint64_t Limit(const FileLock& lock) { return std::min(lock.last, kBytes - 1) + 1; }
  static bool Same(const FileLock& a, const FileLock& b) {
    return a.owner == b.owner || (a.owner.session == b.owner.session && a.pid == b.pid);
  }
  static bool Clash(const FileLock& a, const FileLock& b) {
    if (a.ino != b.ino || a.family != b.family || a.owner == b.owner) return false;
    if (a.type == LockType::kRead && b.type == LockType::kRead) return false;
    return a.first <= b.last && b.first <= a.last;
  }
  // Bytes of others that stand against it, as locks of one byte.
  std::vector<FileLock> Obstacles(const FileLock& lock) const {
    std::vector<FileLock> out;
    const auto file = bytes.find({lock.ino, lock.family});
    if (file == bytes.end()) return out;
    for (uint64_t b = lock.first; b < Limit(lock); ++b) {
      for (const auto& [owner, held] : file->second[b]) {
        if (owner == lock.owner || (held.type == LockType::kRead && lock.type == LockType::kRead)) continue;
        out.push_back({lock.ino, lock.family, owner, held.type, b, b, held.pid});
      }
    }
    return out;
  }
  // Does waiter i wait for who asks in `target`?
  bool Depends(size_t i, const FileLock& target) const {
    std::vector<bool> seen(queue.size(), false);
    seen[i] = true;
    for (bool more = true; more;) {
      more = false;
      for (size_t w = 0; w < queue.size(); ++w) {
        if (!seen[w]) continue;
        for (const FileLock& o : Obstacles(queue[w].lock)) {
          if (Same(o, target)) return true;
          for (size_t v = 0; v < queue.size(); ++v) {
            if (!seen[v] && Same(queue[v].lock, o)) seen[v] = more = true;
          }
        }
        for (size_t v = 0; v < w; ++v) {
          if (!Clash(queue[v].lock, queue[w].lock)) continue;
          if (Same(queue[v].lock, target)) return true;
          for (size_t u = 0; u < queue.size(); ++u) {
            if (!seen[u] && Same(queue[u].lock, queue[v].lock)) seen[u] = more = true;
          }
        }
      }
    }
    return false;
  }
};

class Walk {
 public:
  explicit Walk(uint64_t seed) : seed_(seed), random_(seed) {}

  void Step() {
    granted_.clear();
    switch (Pick(12)) {
      case 0: Cancel(); break;
      case 1: ReleaseOwner(); break;
      case 2: Test(); break;
      case 3:
        if (Pick(6) == 0) {
          ReleaseSession();
        } else if (Pick(6) == 0) {
          DropInode();
        }
        break;
      default: Set(); break;
    }
    TakeGrants();
    for (size_t i = 0; i < model_.queue.size(); ++i) {
      ASSERT_FALSE(model_.Allowed(model_.queue[i].lock, i)) << Where() << "a waiter was left that could be let through";
    }
    CompareBytes();
  }
  std::map<std::string, int> seen;

 private:
  uint64_t Pick(uint64_t n) { return random_() % n; }
  std::string Where() { return fmt::format("seed {} step {}: {} | ", seed_, steps_, trace_); }

  FileLock RandomLock() {
    FileLock lock;
    lock.ino = InodeId{1 + Pick(2)};
    lock.family = Pick(4) == 0 ? LockFamily::kWhole : LockFamily::kRange;
    lock.owner = {SessionId{1 + Pick(2)}, 1 + Pick(3)};
    // Owners 1 and 2 are one process: an open file's locks beside its own.
    lock.pid = lock.owner.id == 3 ? 300 : 100;
    lock.type = static_cast<LockType>(Pick(3));
    if (lock.family == LockFamily::kRange) {
      lock.first = Pick(kBytes);
      lock.last = lock.first + Pick(kBytes - lock.first);
    }
    return lock;
  }

  void Set() {
    LockRequest request;
    request.lock = RandomLock();
    if (request.lock.type != LockType::kUnlock && Pick(2) == 0 && model_.queue.size() < 7) request.waiter = next_waiter_++;
    request.detect_deadlock = request.waiter && request.lock.family == LockFamily::kRange && request.lock.owner.id != 2;
    const FileLock& l = request.lock;
    trace_ = fmt::format("set ino {} family {} owner {}/{} type {} {}-{} waiter {}", l.ino.value, static_cast<int>(l.family),
                         l.owner.session.value, l.owner.id, static_cast<int>(l.type), l.first, l.last, request.waiter.value_or(0));
    const bool allowed = model_.Allowed(l, model_.queue.size());
    const LockOutcome outcome = table_.Set(request, &granted_);
    ++seen[fmt::format("outcome{}", static_cast<int>(outcome))];
    if (allowed) {
      ASSERT_EQ(outcome, LockOutcome::kDone) << Where();
      return model_.Put(l);
    }
    if (l.family == LockFamily::kWhole) {
      FileLock old = l;
      old.type = LockType::kUnlock;
      model_.Put(old);
    }
    if (!request.waiter) {
      ASSERT_EQ(outcome, LockOutcome::kConflict) << Where();
      return;
    }
    if (outcome == LockOutcome::kDone) {
      // Its wait let somebody overtake, and that let it through.
      model_.queue.push_back(request);
      ASSERT_FALSE(granted_.empty()) << Where();
      granted_.push_back({l.owner.session, *request.waiter});
      ++seen["through"];
      return;
    }
    const bool deadlock = request.detect_deadlock && model_.Deadlock(request);
    ASSERT_EQ(outcome, deadlock ? LockOutcome::kDeadlock : LockOutcome::kWaiting) << Where();
    if (!deadlock) model_.queue.push_back(request);
  }

  void Cancel() {
    if (model_.queue.empty()) return;
    const auto it = model_.queue.begin() + static_cast<long>(Pick(model_.queue.size()));
    trace_ = fmt::format("cancel {}", *it->waiter);
    ASSERT_TRUE(table_.Cancel({it->lock.owner.session, *it->waiter}, &granted_)) << Where();
    model_.queue.erase(it);
    ++seen["cancel"];
  }

  void ReleaseOwner() {
    FileLock lock = RandomLock();
    lock.type = LockType::kUnlock;
    lock.first = 0;
    lock.last = kLockEnd;
    trace_ = "release owner";
    bool held = false;
    for (const auto& byte : model_.At(lock.ino, lock.family)) held |= byte.contains(lock.owner);
    ASSERT_EQ(table_.Holds(lock.ino, lock.family, lock.owner), held) << Where();
    ASSERT_EQ(table_.Release(lock.ino, lock.family, lock.owner, &granted_), held) << Where();
    model_.Put(lock);
    ++seen["release"];
  }

  void ReleaseSession() {
    const SessionId session{1 + Pick(2)};
    trace_ = fmt::format("release session {}", session.value);
    table_.ReleaseSession(session, &granted_);
    std::erase_if(model_.queue, [&](const LockRequest& r) { return r.lock.owner.session == session; });
    for (auto& [file, bytes] : model_.bytes) {
      for (auto& byte : bytes) std::erase_if(byte, [&](const auto& held) { return held.first.session == session; });
    }
    ++seen["session"];
  }

  void DropInode() {
    const InodeId ino{1 + Pick(2)};
    trace_ = fmt::format("drop inode {}", ino.value);
    std::vector<WaiterId> lost;
    table_.DropInode(ino, &lost);
    const size_t before = model_.queue.size();
    std::erase_if(model_.queue, [&](const LockRequest& r) { return r.lock.ino == ino; });
    ASSERT_EQ(lost.size(), before - model_.queue.size()) << Where();
    for (auto& [file, bytes] : model_.bytes) {
      if (file.first == ino) bytes = {};
    }
    ++seen["drop"];
  }

  void Test() {
    FileLock lock = RandomLock();
    if (lock.type == LockType::kUnlock) lock.type = LockType::kRead;
    trace_ = "test";
    const auto found = table_.Test(lock);
    ASSERT_EQ(found.has_value(), model_.HeldAgainst(lock)) << Where();
    if (!found) return;
    const auto& byte = model_.At(lock.ino, lock.family)[std::max(found->first, lock.first)];
    ASSERT_TRUE(byte.contains(found->owner)) << Where();
    EXPECT_EQ(byte.at(found->owner).type, found->type) << Where();
    ++seen["test"];
  }

  void TakeGrants() {
    for (const WaiterId& id : granted_) {
      size_t i = 0;
      while (i < model_.queue.size() && !(WaiterId{model_.queue[i].lock.owner.session, *model_.queue[i].waiter} == id)) ++i;
      ASSERT_LT(i, model_.queue.size()) << Where() << "granted to nobody who waits: " << id.id;
      const FileLock lock = model_.queue[i].lock;
      ASSERT_TRUE(model_.Allowed(lock, i)) << Where() << "granted too early: " << id.id;
      model_.queue.erase(model_.queue.begin() + static_cast<long>(i));
      model_.Put(lock);
      ++seen["grant"];
    }
    granted_.clear();
  }

  void CompareBytes() {
    ++steps_;
    std::map<Model::File, std::array<std::map<LockOwner, LockType>, kBytes>> table, model;
    size_t pieces = 0;
    std::optional<FileLock> before;
    for (const FileLock& l : table_.Locks()) {
      ++pieces;
      if (before && before->ino == l.ino && before->family == l.family && before->owner == l.owner) {
        ASSERT_TRUE(before->last + 1 < l.first || before->type != l.type) << Where() << "two pieces that are one";
      }
      before = l;
      for (uint64_t b = l.first; b <= std::min(l.last, kBytes - 1); ++b) {
        auto& owners = table[{l.ino, l.family}][b];
        ASSERT_TRUE(owners.emplace(l.owner, l.type).second) << Where() << "pieces overlap";
      }
    }
    ASSERT_EQ(pieces, table_.lock_count()) << Where();
    for (const auto& [file, bytes] : model_.bytes) {
      for (uint64_t b = 0; b < kBytes; ++b) {
        for (const auto& [owner, held] : bytes[b]) model[file][b].emplace(owner, held.type);
      }
    }
    ASSERT_EQ(table, model) << Where();
    ASSERT_EQ(table_.waiter_count(), model_.queue.size()) << Where();
    const auto waiters = table_.Waiters();
    for (size_t i = 0; i < waiters.size(); ++i) ASSERT_EQ(waiters[i].waiter, model_.queue[i].waiter) << Where();
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  LockTable table_;
  Model model_;
  std::vector<WaiterId> granted_;
  uint64_t next_waiter_ = 1;
  int steps_ = 0;
  std::string trace_;
};

TEST(LockTableRandom, AgreesWithTheModelOfBytes) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Walk walk(seed);
    for (int i = 0; i < 200; ++i) {
      walk.Step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (const auto& [what, count] : walk.seen) seen[what] += count;
  }
  // Everything has happened, and often.
  for (const char* what : {"outcome0", "outcome1", "outcome2", "outcome3", "grant", "cancel", "release", "session", "drop", "test"}) {
    EXPECT_GE(seen[what], 100) << what;
  }
}

}  // namespace
}  // namespace archil
