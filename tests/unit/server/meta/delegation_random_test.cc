// Sessions that follow the protocol of docs/delegation.md over a network that delays everything, against the delegation table: no
// two ever believe in conflicting rights (DLG-1), nobody believes in more than the table records (INV), requests are served in order of
// arrival, and when all recalls are answered every request is granted. The clients here are as simple as can be: what they believe
// is the model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>

#include "common/env/random.h"
#include "server/meta/delegation/delegation_table.h"

namespace archil {
namespace {

constexpr BranchId kBranch{1};

// Names in directories; directories are never removed.
class SimTree final : public Tree {
 public:
  Kind KindOf(BranchId, InodeId ino) override {
    if (dirs.contains(ino)) return Kind::kDirectory;
    return names.contains(ino) ? Kind::kOther : Kind::kAbsent;
  }
  InodeId HomeOf(BranchId, InodeId ino) override {
    const auto it = names.find(ino);
    return it != names.end() && it->second.size() == 1 ? *it->second.begin() : InodeId{0};
  }
  InodeId ChildOf(BranchId, InodeId, const std::string&) override { return InodeId{0}; }
  InodeId ParentOf(BranchId, InodeId) override { return InodeId{0}; }
  bool Reaches(BranchId, InodeId, SessionId) override { return true; }
  std::set<InodeId> dirs;
  std::map<InodeId, std::multiset<InodeId>> names;  // of files: the directories of their names
};

struct Believed {
  Right right = Right::kNone;
  uint64_t number = 0;
};

struct Reply {  // of an Acquire that was granted, on its way
  uint64_t request = 0;
  std::vector<Grant> grants;
  std::map<InodeId, std::set<InodeId>> covered;  // as a listing says
};

struct Client {
  SessionId id;
  bool alone = false;
  uint64_t alone_until = 0;  // the message that ended it
  std::map<InodeId, Believed> rights;
  std::map<InodeId, std::set<InodeId>> covered;  // children, by directory
  std::map<InodeId, uint64_t> given_up;          // by the newest recall of it
  std::map<InodeId, uint64_t> stale;             // what answers to requests before this one say of its cover is too old
  std::map<uint64_t, std::vector<Want>> asked;   // requests without an answer
  std::deque<Reply> replies;                     // on their way, any may be next
  std::map<uint64_t, std::pair<SessionMessage, std::set<uint64_t>>> messages;  // came; and the requests that were under way then
  uint64_t seen = 0;
  std::vector<RecallAnswer> answers;  // on their way

  Right Of(InodeId ino, InodeId home) const {
    if (alone) return Right::kWrite;
    Right right = Right::kNone;
    if (const auto it = rights.find(ino); it != rights.end()) right = it->second.right;
    const auto dir = rights.find(home);
    const auto children = covered.find(home);
    if (home && dir != rights.end() && children != covered.end() && children->second.contains(ino)) right = Stronger(right, dir->second.right);
    return right;
  }
  void Forget(InodeId ino) {
    rights.erase(ino);
    covered.erase(ino);
    for (auto& [dir, children] : covered) children.erase(ino);
  }
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(SeededRandom(seed)) {
    for (uint64_t d = 1; d <= 3; ++d) tree_.dirs.insert(InodeId{d});
    for (int i = 0; i < 5; ++i) tree_.names[InodeId{next_ino_++}] = {Dir()};
  }

  void Run(int steps) {
    for (int i = 0; i < 3; ++i) Join();
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      Step();
      Check();
    }
    if (!::testing::Test::HasFailure()) Drain();
    if (!::testing::Test::HasFailure()) return;
    for (size_t i = story_.size() < 60 ? 0 : story_.size() - 60; i < story_.size(); ++i) ADD_FAILURE() << story_[i];
  }
  uint64_t granted = 0, recalls = 0, commits = 0, reclaims = 0;

 private:
  template <class... A>
  void Tell(fmt::format_string<A...> format, A&&... args) {
    story_.push_back(fmt::format(format, std::forward<A>(args)...));
  }
  InodeId Dir() { return *std::next(tree_.dirs.begin(), static_cast<long>(random_->Below(tree_.dirs.size()))); }
  InodeId AnyInode() {
    const uint64_t n = random_->Below(tree_.dirs.size() + tree_.names.size());
    if (n < tree_.dirs.size()) return *std::next(tree_.dirs.begin(), static_cast<long>(n));
    return std::next(tree_.names.begin(), static_cast<long>(n - tree_.dirs.size()))->first;
  }
  Client& AnyClient() { return std::next(clients_.begin(), static_cast<long>(random_->Below(clients_.size())))->second; }
  InodeId Home(InodeId ino) { return tree_.HomeOf(kBranch, ino); }
  Right Belief(const Client& c, InodeId ino) { return c.Of(ino, Home(ino)); }

  void Join() {
    const SessionId id{next_session_++};
    table_->Add({id, kBranch, SessionMode::kReadWrite, Sharing::kShared, "c", Lease{now_, absl::Hours(1000), now_}}, epoch_ << 40,
                DelegationTable::Birth::kNew);
    Client& c = clients_[id];
    c.id = id;
    c.alone = table_->MakeAlone(id) != 0;
    EXPECT_EQ(c.alone, clients_.size() == 1);
  }

  void Step() {
    Client& c = AnyClient();
    switch (random_->Below(16)) {
      case 0:
      case 1:
      case 2: Ask(c); break;
      case 3:
      case 4: Deliver(c); break;
      case 5:
      case 6: Poll(c); break;
      case 7:
      case 8: HandleMessage(c); break;
      case 9:
      case 10: TellAnswer(c); break;
      case 11: GiveBack(c); break;
      case 12:
        if (random_->Below(40) == 0 && clients_.size() < 5) Join();
        if (random_->Below(60) == 0 && clients_.size() > 2) Leave(c);
        break;
      case 13:
        if (random_->Below(60) == 0) Restart();
        break;
      default: Commit(c); break;
    }
  }

  // --- requests
  void Ask(Client& c) {
    if (c.asked.size() >= 3) return;
    std::vector<Want> wants;
    std::set<InodeId> seen;
    for (uint64_t n = 1 + random_->Below(3); n > 0; --n) {
      const InodeId ino = AnyInode();
      if (seen.insert(ino).second) wants.push_back({ino, random_->Below(2) == 0 ? Right::kRead : Right::kWrite, false});
    }
    const uint64_t id = next_request_++;
    ASSERT_TRUE(table_->Acquire(id, c.id, wants, BootTime::Infinite()).ok());
    c.asked[id] = wants;
    for (const Want& w : wants) Tell("{} asks ({}) for {} on {}", c.id.value, id, RightName(w.right), w.ino.value);
    order_.push_back({id, c.id, wants});
    Look();
  }

  void Look() {
    DelegationEffects fx;
    table_->Look(tree_, now_, fx);
    Apply(fx);
  }
  void Apply(const DelegationEffects& fx) {
    EXPECT_TRUE(fx.ends.empty());
    recalls += fx.recalls;
    for (const auto& g : fx.granted) {
      const auto at = std::find_if(order_.begin(), order_.end(), [&](const Asked& a) { return a.id == g.id; });
      ASSERT_NE(at, order_.end());
      // In order: nobody who came earlier and waits still has a conflicting want.
      for (auto earlier = order_.begin(); earlier != at; ++earlier) {
        if (earlier->session == at->session) continue;
        for (const Want& a : earlier->wants) {
          for (const Want& b : at->wants) EXPECT_FALSE(a.ino == b.ino && Conflict(a.right, b.right)) << "overtaken on " << a.ino.value;
        }
      }
      Reply reply{g.id, g.grants, {}};
      for (const Grant& grant : g.grants) {
        if (!tree_.dirs.contains(grant.ino)) continue;
        for (const auto& [child, dirs] : tree_.names) {
          if (Home(child) == grant.ino && table_->Covered(at->session, grant.ino, child)) reply.covered[grant.ino].insert(child);
        }
      }
      for (const Want& w : at->wants) {
        const auto it = std::find_if(g.grants.begin(), g.grants.end(), [&](const Grant& grant) { return grant.ino == w.ino; });
        EXPECT_EQ(it == g.grants.end(), tree_.KindOf(kBranch, w.ino) == Tree::Kind::kAbsent);
        if (it != g.grants.end()) {
          Tell("granted ({}) to {}: {} on {}, number {}", g.id, at->session.value, RightName(it->right), w.ino.value, it->number);
          EXPECT_GE(it->right, w.right);
        }
      }
      clients_[at->session].replies.push_back(std::move(reply));
      order_.erase(at);
      ++granted;
    }
  }

  void Deliver(Client& c) {
    if (c.replies.empty()) return;
    const size_t at = random_->Below(c.replies.size());
    const Reply reply = c.replies[at];
    c.replies.erase(c.replies.begin() + static_cast<long>(at));
    c.asked.erase(reply.request);
    const bool lost = random_->Below(10) == 0;  // and the caller gave up
    Tell("answer ({}) {} {}", reply.request, lost ? "is lost on the way to" : "comes to", c.id.value);
    if (lost) return;
    for (const Grant& g : reply.grants) {
      // A recall that was answered ended everything before it; the loads that came with this are older as well.
      if (c.given_up[g.ino] > g.number || c.alone_until > g.number || c.alone) continue;
      Believed& b = c.rights[g.ino];
      if (b.number > g.number) continue;
      b = {g.right, g.number};
      if (!tree_.dirs.contains(g.ino)) continue;
      c.covered[g.ino].clear();
      if (const auto it = reply.covered.find(g.ino); it != reply.covered.end()) {
        for (InodeId child : it->second) {
          if (reply.request >= c.stale[child]) c.covered[g.ino].insert(child);
        }
      }
    }
  }

  // --- messages
  void Poll(Client& c) {
    for (const SessionMessage& m : table_->Poll(c.id, random_->Below(2) == 0 ? c.seen : 0, 100)) {
      if (m.number <= c.seen) continue;  // came before
      c.seen = m.number;
      Tell("message {} comes to {}: recall of {} home {} grant {} keep {}", m.number, c.id.value, m.ino.value, m.home.value, m.grant, RightName(m.keep));
      std::set<uint64_t> under_way;
      for (const auto& [id, wants] : c.asked) under_way.insert(id);
      c.messages[m.number] = {m, under_way};
    }
  }

  bool Arrived(const Client& c, const SessionMessage& m, std::set<uint64_t>& under_way) {
    const auto held = c.rights.find(m.home ? m.home : m.ino);
    if (held != c.rights.end() && held->second.number >= m.grant) return true;
    std::erase_if(under_way, [&](uint64_t id) { return !c.asked.contains(id) || !Granted(id); });
    return under_way.empty();
  }
  // (A client waits for requests that are not granted yet as well, which takes longer and changes nothing.)
  bool Granted(uint64_t id) {
    return std::none_of(order_.begin(), order_.end(), [&](const Asked& a) { return a.id == id; });
  }

  void HandleMessage(Client& c) {
    if (c.messages.empty()) return;
    auto it = std::next(c.messages.begin(), static_cast<long>(random_->Below(c.messages.size())));
    const SessionMessage m = it->second.first;
    RecallAnswer answer;
    answer.message = m.number;
    if (m.kind == SessionMessage::Kind::kRecallAlone) {
      KeepOfEverything(c, m, answer);
    } else {
      if (!Arrived(c, m, it->second.second)) return;
      GiveUp(c, m, answer);
    }
    c.messages.erase(it);
    Tell("{} has done {}: kept {} of {}", c.id.value, m.number, RightName(answer.kept), m.ino.value);
    c.answers.push_back(answer);
  }

  void KeepOfEverything(Client& c, const SessionMessage& m, RecallAnswer& answer) {
    c.alone = false;
    c.alone_until = m.number;
    for (InodeId dir : tree_.dirs) {
      if (random_->Below(2) == 0) continue;
      answer.keeps.push_back({dir, Right::kWrite});
      c.rights[dir] = {Right::kWrite, m.number};
      for (const auto& [child, dirs] : tree_.names) {
        if (Home(child) == dir) c.covered[dir].insert(child);
      }
    }
    for (const auto& [ino, dirs] : tree_.names) {
      if (random_->Below(2) == 0) continue;
      answer.keeps.push_back({ino, Right::kWrite});
      c.rights[ino] = {Right::kWrite, m.number};
    }
  }

  void GiveUp(Client& c, const SessionMessage& m, RecallAnswer& answer) {
    const Right held = Belief(c, m.ino);
    const Right wish = random_->Below(3) == 0 ? Right::kNone : m.keep;  // not all that may stay has to
    answer.kept = Weaker(held, wish);
    c.given_up[m.ino] = m.number;
    c.stale[m.ino] = next_request_;
    if (tree_.dirs.contains(m.ino)) {
      if (answer.kept == Right::kNone) c.covered.erase(m.ino);
    } else {
      for (auto& [dir, children] : c.covered) children.erase(m.ino);
    }
    if (answer.kept == Right::kNone) {
      c.rights.erase(m.ino);
    } else {
      c.rights[m.ino] = {answer.kept, m.number};
    }
  }

  void TellAnswer(Client& c) {
    if (c.answers.empty()) return;
    const size_t at = random_->Below(c.answers.size());
    const RecallAnswer answer = c.answers[at];
    Tell("{} tells the answer to {}", c.id.value, answer.message);
    ASSERT_TRUE(table_->Answer(c.id, answer, tree_, now_).ok());
    if (random_->Below(4) != 0) c.answers.erase(c.answers.begin() + static_cast<long>(at));  // else it is told again
    Look();
  }

  void GiveBack(Client& c) {
    if (c.alone || c.rights.empty()) return;
    const InodeId ino = std::next(c.rights.begin(), static_cast<long>(random_->Below(c.rights.size())))->first;
    for (const auto& [id, wants] : c.asked) {
      for (const Want& w : wants) {
        if (w.ino == ino) return;
      }
    }
    for (const auto& [number, m] : c.messages) {
      if (m.first.ino == ino) return;
    }
    c.Forget(ino);
    c.stale[ino] = next_request_;
    Tell("{} gives back {}", c.id.value, ino.value);
    ASSERT_TRUE(table_->GiveBack(c.id, {ino}, {}, tree_).ok());
    Look();
  }

  // --- commits, as the session believes that it may
  bool May(const Client& c, InodeId ino) { return Belief(c, ino) == Right::kWrite; }

  void Commit(Client& c) {
    const InodeId from = Dir(), to = Dir();
    if (!May(c, from)) return;
    std::map<InodeId, DelegationTable::Touched> touched;
    const uint64_t kind = random_->Below(6);
    if (kind == 0 && tree_.names.size() < 12) {
      const InodeId made{next_ino_++};
      tree_.names[made] = {from};
      if (!c.alone) c.covered[from].insert(made);
    } else if (kind == 1 && tree_.dirs.size() < 6) {
      const InodeId made{next_ino_++};
      tree_.dirs.insert(made);
      if (!c.alone) c.rights[made] = {Right::kWrite, 0};
      touched[made].born = true;
    } else {
      const InodeId ino = AnyInode();
      const auto names = tree_.names.find(ino);
      if (names == tree_.names.end() || !May(c, ino)) return;
      if (kind == 2) {
        if (!May(c, to) || names->second.size() > 2) return;
        names->second.insert(to);
        touched[ino].links_changed = true;
      } else if (!names->second.contains(from)) {
        return;
      } else if (kind == 3) {
        if (tree_.names.size() < 4) return;
        names->second.erase(names->second.find(from));
        touched[ino].links_changed = true;
        touched[ino].left.push_back(from);
      } else {
        if (!May(c, to) || from == to) return;
        names->second.erase(names->second.find(from));
        names->second.insert(to);
        touched[ino].left.push_back(from);
        c.stale[ino] = next_request_;
        if (c.covered[from].erase(ino) > 0 && names->second.size() == 1) c.covered[to].insert(ino);
      }
      if (touched[ino].links_changed) {
        c.stale[ino] = next_request_;
        for (auto& [dir, children] : c.covered) children.erase(ino);
        if (names->second.empty()) {
          c.Forget(ino);
          tree_.names.erase(ino);
        } else if (!c.alone) {
          c.rights[ino].right = Right::kWrite;
        }
      }
    }
    for (const auto& [ino, what] : touched) {
      Tell("{} commits: kind {} on {} from {}, home now {}", c.id.value, kind, ino.value, from.value, Home(ino).value);
    }
    table_->Committed(c.id, touched, tree_);
    ++commits;
    Look();
  }

  // --- coming and going
  void Leave(Client& c) {
    const SessionId id = c.id;
    clients_.erase(id);
    std::erase_if(order_, [&](const Asked& a) { return a.session == id; });
    DelegationEffects fx;
    table_->Remove(id, "gone", fx);
    Look();
  }

  void Restart() {
    ++epoch_;
    Tell("restart");
    table_ = std::make_unique<DelegationTable>();
    order_.clear();
    for (auto& [id, c] : clients_) {
      table_->Add({id, kBranch, SessionMode::kReadWrite, Sharing::kShared, "c", Lease{now_, absl::Hours(1000), now_}}, epoch_ << 40,
                  DelegationTable::Birth::kUnclaimed);
      c.asked.clear();
      c.replies.clear();
      c.messages.clear();
      c.answers.clear();
    }
    for (auto& [id, c] : clients_) {
      EXPECT_EQ(table_->MakeAlone(id), 0u);
      ReclaimRequest request;
      request.session = id;
      request.alone = c.alone;
      for (const auto& [ino, b] : c.rights) {
        if (!c.alone) request.rights.push_back({ino, b.right});
      }
      DelegationEffects reclaimed;
      const auto number = table_->Reclaim(request, tree_, reclaimed);
      ASSERT_TRUE(number.ok()) << number.error().ToString();
      for (auto& [ino, b] : c.rights) {
        EXPECT_LT(b.number, *number);
        b.number = *number;
      }
      ++reclaims;
    }
    Look();
  }

  // --- what must hold
  void Check() {
    std::vector<InodeId> all(tree_.dirs.begin(), tree_.dirs.end());
    for (const auto& [ino, dirs] : tree_.names) all.push_back(ino);
    for (InodeId ino : all) {
      std::map<SessionId, Right> believed;
      for (const auto& [id, c] : clients_) {
        const Right right = Belief(c, ino);
        const Right recorded = table_->RightOf(id, ino, [&] { return Home(ino); });
        EXPECT_LE(right, recorded) << "INV: session " << id.value << " inode " << ino.value;
        for (const auto& [other, has] : believed) EXPECT_FALSE(Conflict(has, right)) << "DLG-1: inode " << ino.value;
        believed[id] = right;
      }
    }
  }

  // No more requests: everything on its way arrives, everything is granted in the end.
  void Drain() {
    for (int i = 0; i < 20000 && !order_.empty() && !::testing::Test::HasFailure(); ++i) {
      Client& c = AnyClient();
      Poll(c);
      HandleMessage(c);
      TellAnswer(c);
      Deliver(c);
      Check();
    }
    EXPECT_TRUE(order_.empty()) << order_.size() << " requests are left waiting";
    EXPECT_FALSE(table_->Waiting());
  }

  struct Asked {
    uint64_t id = 0;
    SessionId session;
    std::vector<Want> wants;
  };
  std::vector<std::string> story_;
  std::unique_ptr<Random> random_;
  SimTree tree_;
  std::unique_ptr<DelegationTable> table_ = std::make_unique<DelegationTable>();
  std::map<SessionId, Client> clients_;
  std::deque<Asked> order_;
  BootTime now_{absl::Seconds(100)};
  uint64_t next_ino_ = 10;
  uint64_t next_session_ = 1;
  uint64_t next_request_ = 1;
  uint64_t epoch_ = 1;
};

TEST(DelegationRandomTest, NobodyBelievesTooMuchAndEverybodyIsServed) {
  uint64_t granted = 0, recalls = 0, commits = 0, reclaims = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation(seed);
    simulation.Run(600);
    granted += simulation.granted;
    recalls += simulation.recalls;
    commits += simulation.commits;
    reclaims += simulation.reclaims;
    if (HasFailure()) break;
  }
  EXPECT_GT(granted, 30000u);
  EXPECT_GT(recalls, 30000u);
  EXPECT_GT(commits, 4000u);
  EXPECT_GT(reclaims, 2000u);
}

}  // namespace
}  // namespace archil
