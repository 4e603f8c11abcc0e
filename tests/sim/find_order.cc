// The search for an order that explains what was answered: depth first over what may come next, with what was tried
// remembered.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "tests/sim/history.h"

namespace archil::sim {
namespace {

constexpr size_t kFreeWrites = 5;  // so many may be lost one by one; more are lost from the end
constexpr uint64_t kNoNumber = 1ULL << 60;

bool ChangesNames(const Event& e) {
  return (e.verb >= Verb::kCreate && e.verb <= Verb::kLink) || e.verb == Verb::kTruncate;
}
bool Writes(const Event& e) { return e.verb == Verb::kWrite || e.verb == Verb::kAppend; }

// One step of an order.
struct Step {
  const Event* event = nullptr;  // null: the loss of `lost`
  InodeId found;                 // of a birth whose answer nobody heard
  InodeId moved;                 // rename: what got another name
  int lost = -1;
  bool dropped = false;
  bool lives = false;  // of a loss
};

class Search {
 public:
  Search(const RefTree& start, const std::vector<Event>& events, const std::vector<Loss>& losses, uint64_t limit)
      : start_(start), losses_(losses), limit_(limit) {
    std::map<std::pair<int, int>, std::vector<const Event*>> threads;
    for (const Event& e : events) threads[{e.client, e.thread}].push_back(&e);
    for (auto& [key, list] : threads) threads_.push_back(std::move(list));
    FindNumbers(events);
    total_ = events.size();
  }

  Judgement Run() {
    Judgement out;
    std::vector<size_t> at(threads_.size());
    RefTree tree = start_;
    out.found = Go(at, tree, 0);
    out.gave_up = !out.found && tries_ >= limit_;
    if (out.found) out.end = end_;
    if (!out.found) out.furthest = Furthest();
    return out;
  }

 private:
  // Numbers that were seen and whose birth was not told: of births without an answer.
  void FindNumbers(const std::vector<Event>& events) {
    std::set<InodeId> seen, born;
    for (const Event& e : events) {
      const bool birth = e.verb == Verb::kCreate || e.verb == Verb::kMkdir;
      if (birth && !e.unknown) born.insert(e.found);
      if (e.found) seen.insert(e.found);
      for (const auto& [name, ino] : e.names) seen.insert(ino);
      for (const auto& [ino, shown] : e.tree) seen.insert(ino);
    }
    for (const InodeId ino : seen) {
      if (!born.contains(ino) && !start_.nodes().contains(ino)) numbers_.push_back(ino);
    }
  }

  static uint64_t Key(const std::vector<size_t>& at, const RefTree& tree, uint64_t lost, uint64_t path) {
    uint64_t hash = tree.Hash() * 31 + lost + path;
    for (const size_t n : at) hash = hash * 1099511628211ULL + n;
    return hash;
  }
  // While something can still be lost the way to a state matters.
  uint64_t PathHash(uint64_t lost) const {
    if (lost + 1 == 1ULL << losses_.size()) return 0;
    uint64_t hash = 7;
    for (const Step& s : path_)
      hash = hash * 1099511628211ULL + (s.event == nullptr ? 3 : s.event->begun * 2 + s.dropped);
    return hash;
  }

  bool Go(std::vector<size_t>& at, const RefTree& tree, uint64_t lost) {
    if (++tries_ > limit_) return false;
    uint64_t first_end = UINT64_MAX;
    bool more = false;
    std::vector<size_t> next;
    for (size_t t = 0; t < threads_.size(); ++t) {
      if (at[t] == threads_[t].size()) continue;
      const Event& e = *threads_[t][at[t]];
      if (!e.unknown) more = true;
      first_end = std::min(first_end, e.ended);
      next.push_back(t);
    }
    if (!more) {
      end_ = tree;
      return true;
    }
    if (path_.size() > best_.size()) {
      best_ = path_;
      best_tree_ = tree;
      best_next_.clear();
      for (const size_t t : next) best_next_.push_back(threads_[t][at[t]]);
    }
    if (!tried_.insert(Key(at, tree, lost, PathHash(lost))).second) return false;
    std::sort(next.begin(), next.end(),
              [&](size_t a, size_t b) { return threads_[a][at[a]]->ended < threads_[b][at[b]]->ended; });
    for (const size_t t : next) {
      const Event& e = *threads_[t][at[t]];
      if (e.begun > first_end) continue;
      ++at[t];
      if (Take(at, tree, lost, e)) return true;
      --at[t];
    }
    for (size_t i = 0; i < losses_.size(); ++i) {
      if ((lost >> i & 1) == 0 && losses_[i].begun < first_end && Lose(at, lost | 1ULL << i, losses_[i])) return true;
    }
    return false;
  }

  bool Take(std::vector<size_t>& at, const RefTree& tree, uint64_t lost, const Event& e) {
    const bool birth = e.unknown && (e.verb == Verb::kCreate || e.verb == Verb::kMkdir);
    std::vector<InodeId> numbers{InodeId{}};
    if (birth) {
      numbers = numbers_;
      numbers.push_back(InodeId{kNoNumber + e.begun});
    }
    for (const InodeId number : numbers) {
      RefTree after = tree;
      Step step{&e, number, MovedBy(tree, e)};
      if (!ApplyStep(after, step, e.unknown ? RefTree::Judge::kNot : RefTree::Judge::kAnswer)) continue;
      path_.push_back(step);
      if (Go(at, after, lost)) return true;
      path_.pop_back();
    }
    return false;
  }

  static InodeId MovedBy(const RefTree& tree, const Event& e) {
    if (e.verb == Verb::kLink) return e.to;
    if (e.verb != Verb::kRename && e.verb != Verb::kExchange) return {};
    const auto dir = tree.nodes().find(e.ino);
    if (dir == tree.nodes().end()) return {};
    const auto it = dir->second.names.find(e.name);
    // From a name to itself nothing happens, rename(2).
    if (it == dir->second.names.end() || (e.ino == e.to && e.name == e.new_name)) return {};
    return it->second;
  }

  static bool ApplyStep(RefTree& tree, const Step& step, RefTree::Judge judge) {
    if (step.event == nullptr) {
      if (!step.lives) tree.Forget(step.lost);
      return true;
    }
    if (!step.found) return tree.Apply(*step.event, judge);
    Event e = *step.event;
    e.found = step.found;
    return tree.Apply(e, judge);
  }

  // The client's session ends here: every choice of what is lost that the others' answers allow.
  bool Lose(std::vector<size_t>& at, uint64_t lost, const Loss& loss) {
    const int client = loss.client;
    std::vector<size_t> names, writes;
    size_t floor = 0;
    Durable(client, names, writes, floor);
    const uint64_t choices = writes.size() <= kFreeWrites ? 1ULL << writes.size() : writes.size() + 1;
    const std::vector<Step> before = path_;
    std::set<uint64_t> seen;
    for (size_t kept = names.size() + 1; kept-- > floor;) {
      for (uint64_t choice = 0; choice < choices; ++choice) {
        path_ = before;
        for (size_t i = kept; i < names.size(); ++i) path_[names[i]].dropped = true;
        for (size_t i = 0; i < writes.size(); ++i) {
          const bool drop = writes.size() <= kFreeWrites ? (choice >> i & 1) != 0 : i + choice >= writes.size();
          if (drop) path_[writes[i]].dropped = true;
        }
        if (!DataFirst(client)) continue;
        path_.push_back({nullptr, {}, {}, client, false, loss.lives});
        RefTree tree = start_;
        if (++tries_ > limit_) break;
        if (!Replay(tree)) continue;
        if (!seen.insert(tree.Hash()).second) continue;
        if (Go(at, tree, lost)) return true;
      }
    }
    path_ = before;
    return false;
  }

  // What of the client's steps may be lost: changes of names from `floor` on, and `writes`.
  void Durable(int client, std::vector<size_t>& names, std::vector<size_t>& writes, size_t& floor) const {
    for (size_t i = 0; i < path_.size(); ++i) {
      const Step& s = path_[i];
      if (s.event == nullptr || s.event->client != client || s.dropped) continue;
      const Event& e = *s.event;
      if (e.code != Code::kOk && !e.unknown) continue;
      if (ChangesNames(e)) names.push_back(i);
      if (Writes(e)) writes.push_back(i);
      if (e.verb != Verb::kFsync || e.unknown) continue;
      std::erase_if(writes, [&](size_t w) { return path_[w].event->ino == e.ino; });
      for (size_t n = 0; n < names.size(); ++n) {
        const Step& named = path_[names[n]];
        const InodeId about = named.event->verb == Verb::kTruncate ? named.event->ino
                              : named.moved                        ? named.moved
                                                                   : named.event->found;
        if (about == e.ino) floor = std::max(floor, n + 1);
      }
    }
  }

  // ORD-2: what a kept rename or link of a file made reachable is there.
  bool DataFirst(int client) const {
    for (size_t i = 0; i < path_.size(); ++i) {
      const Step& w = path_[i];
      if (!w.dropped || w.event == nullptr || w.event->client != client || !Writes(*w.event)) continue;
      for (size_t j = i + 1; j < path_.size(); ++j) {
        const Step& s = path_[j];
        if (s.event == nullptr || s.event->client != client || s.dropped) continue;
        if ((s.event->code == Code::kOk || s.event->unknown) && s.moved == w.event->ino) return false;
      }
    }
    return true;
  }

  bool Replay(RefTree& tree) const {
    std::set<int> gone;
    for (const Step& s : path_) {
      if (s.event == nullptr) gone.insert(s.lost);
    }
    for (const Step& s : path_) {
      if (s.dropped) continue;
      if (s.event == nullptr || !gone.contains(s.event->client)) {
        const bool unknown = s.event != nullptr && s.event->unknown;
        if (!ApplyStep(tree, s, unknown ? RefTree::Judge::kNot : RefTree::Judge::kAnswer)) return false;
        continue;
      }
      // What it was told itself was true when it was told.
      const Event& e = *s.event;
      if (e.code != Code::kOk && !e.unknown) continue;
      const bool changes = ChangesNames(e) || Writes(e);
      if (!ApplyStep(tree, s, RefTree::Judge::kNot) && changes && (ChangesNames(e) || tree.nodes().contains(e.ino)))
        return false;
    }
    return true;
  }

  std::string Furthest() const {
    std::string out = fmt::format("{} of {} events have an order:", best_.size(), total_);
    for (const Step& s : best_) {
      out += s.event == nullptr ? fmt::format("\n    -- client {} is lost", s.lost)
                                : fmt::format("\n    {}{}", s.dropped ? "(lost) " : "", ToString(*s.event));
    }
    out += "\n  that gives:";
    Event tree;
    tree.verb = Verb::kDump;
    tree.tree = best_tree_.nodes();
    out += ToString(tree) + "\n  and none of these can be next:";
    for (const Event* e : best_next_) out += "\n    " + ToString(*e);
    return out;
  }

  const RefTree& start_;
  const std::vector<Loss>& losses_;
  const uint64_t limit_;
  std::vector<std::vector<const Event*>> threads_;
  std::vector<InodeId> numbers_;
  size_t total_ = 0;
  uint64_t tries_ = 0;
  std::vector<Step> path_;
  std::unordered_set<uint64_t> tried_;
  RefTree end_;
  std::vector<Step> best_;
  RefTree best_tree_;
  std::vector<const Event*> best_next_;
};

}  // namespace

Judgement FindOrder(const RefTree& start, const std::vector<Event>& events, const std::vector<Loss>& losses,
                    uint64_t limit) {
  return Search(start, events, losses, limit).Run();
}

}  // namespace archil::sim
