#include "tests/support/crash_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace archil::test {
namespace {

using Kind = RefEvent::Kind;

// A file whose writes since its floor may be there or not.
struct Window {
  RefContent floor;
  uint32_t floor_mode = 0;
  std::vector<const RefEvent*> writes;
};
using Windows = std::map<InodeId, Window>;

void Replay(const RefHistory& history, size_t index, RefState& state, Windows& windows) {
  const RefEvent& e = history.events[index];
  if (e.kind == Kind::kWrite) {
    auto mark = history.data_durable.find(e.ino);
    if (mark != history.data_durable.end() && index < mark->second) {
      windows.erase(e.ino);
    } else {
      auto [it, fresh] = windows.try_emplace(e.ino);
      if (fresh) {
        it->second.floor = state.At(e.ino).content;
        it->second.floor_mode = state.At(e.ino).attr.mode;
      }
      it->second.writes.push_back(&e);
    }
    state.Apply(e);
    return;
  }
  state.Apply(e);
  switch (e.kind) {
    case Kind::kRename:
    case Kind::kExchange:
      if (state.At(e.ino).is_dir() || (e.kind == Kind::kExchange && state.At(e.victim).is_dir())) {
        windows.clear();
        return;
      }
      windows.erase(e.ino);
      if (e.kind == Kind::kExchange) windows.erase(e.victim);
      return;
    case Kind::kLink:
    case Kind::kSetAttr: windows.erase(e.ino); return;
    case Kind::kAllocate:
      if (!e.empty) windows.erase(e.ino);
      return;
    default: return;
  }
}

class Cut {
 public:
  Cut(const RefState& state, const Windows& windows, const Tree& found, const Agreement& agreement)
      : state_(state), windows_(windows), found_(found), agreement_(agreement) {}

  // Differences, up to `limit` of them; bytes are looked at only if all else is right.
  std::vector<std::string> Differences(size_t limit) {
    limit_ = limit;
    visited_ = 0;
    Visit(kRootInode, "", false);
    if (visited_ != found_.size() && out_.size() < limit_) Surplus();
    if (out_.empty()) Visit(kRootInode, "", true);
    return std::move(out_);
  }

 private:
  void Say(const std::string& path, const std::string& what) { out_.push_back(fmt::format("'{}': {}", path, what)); }

  void Visit(InodeId ino, const std::string& path, bool bytes) {
    if (out_.size() >= limit_) return;
    const RefInode& n = state_.At(ino);
    auto it = found_.find(path);
    if (it == found_.end()) return Say(path, "is missing");
    ++visited_;
    if (bytes) {
      CheckContent(n, it->second, path);
    } else {
      CheckMetadata(n, it->second, path);
    }
    for (const auto& [name, child] : n.names) Visit(child, path.empty() ? name : path + "/" + name, bytes);
  }

  void CheckMetadata(const RefInode& n, const TreeNode& there, const std::string& path) {
    auto window = windows_.find(n.attr.ino);
    Attr expected = n.Shown();
    if (window != windows_.end() && there.attr.mode == window->second.floor_mode) expected.mode = there.attr.mode;
    if (auto d = agreement_.Differ(expected, there.attr, window == windows_.end())) return Say(path, *d);
    if (n.target != there.target) return Say(path, "another link target");
    if (n.xattrs != there.xattrs) return Say(path, "other xattrs");
    if (window == windows_.end() || n.attr.type != FileType::kRegular) return;
    const uint64_t size = there.attr.size;
    if (size < window->second.floor.size() || size > n.content.size()) {
      Say(path, fmt::format("size is {}, may be {} to {}", size, window->second.floor.size(), n.content.size()));
    }
  }

  void CheckContent(const RefInode& n, const TreeNode& there, const std::string& path) {
    if (n.attr.type != FileType::kRegular) return;
    const std::string& bytes = there.content;
    if (bytes.size() != there.attr.size) return Say(path, "content is shorter or longer than the size");
    std::string now = n.content.Read(0, bytes.size());
    if (now == bytes) return;
    auto window = windows_.find(n.attr.ino);
    if (window == windows_.end()) {
      const size_t at = std::mismatch(now.begin(), now.end(), bytes.begin(), bytes.end()).first - now.begin();
      return Say(path, fmt::format("byte {} is {:02x}, must be {:02x}", at, uint8_t(bytes[at]), uint8_t(now[at])));
    }
    CheckMoments(window->second, bytes, path);
  }

  // Every byte must be what it was at some moment of the window.
  void CheckMoments(const Window& window, const std::string& bytes, const std::string& path) {
    std::vector<bool> explained(bytes.size());
    size_t left = bytes.size();
    RefContent content = window.floor;
    const auto moment = [&](uint64_t from, uint64_t to) {
      to = std::min({to, content.size(), uint64_t(bytes.size())});
      if (from >= to) return;
      const std::string shown = content.Read(from, to - from);
      for (uint64_t i = from; i < to; ++i) {
        if (explained[i] || shown[i - from] != bytes[i]) continue;
        explained[i] = true;
        --left;
      }
    };
    moment(0, content.size());
    for (const RefEvent* e : window.writes) {
      const uint64_t before = content.size();
      content.Write(e->offset, e->data);
      moment(std::min(before, e->offset), e->offset + e->data.size());
    }
    if (left == 0) return;
    const size_t at = std::find(explained.begin(), explained.end(), false) - explained.begin();
    Say(path, fmt::format("{} bytes were never so since the floor, first at {}: {:02x}", left, at, uint8_t(bytes[at])));
  }

  void Surplus() {
    std::map<std::string, int> known;
    Paths(kRootInode, "", known);
    for (const auto& [path, node] : found_) {
      if (!known.contains(path) && out_.size() < limit_) Say(path, "should not exist");
    }
  }
  void Paths(InodeId ino, const std::string& path, std::map<std::string, int>& out) {
    out[path] = 1;
    for (const auto& [name, child] : state_.At(ino).names) Paths(child, path.empty() ? name : path + "/" + name, out);
  }

  const RefState& state_;
  const Windows& windows_;
  const Tree& found_;
  const Agreement& agreement_;
  size_t limit_ = 0;
  size_t visited_ = 0;
  std::vector<std::string> out_;
};

// The state at the cut with what was found of the bytes, and without times that nobody has seen.
void TakeOver(RefState& state, InodeId ino, const std::string& path, const Windows& windows, const Tree& found,
              const Agreement& agreement) {
  RefInode& n = state.At(ino);
  const TreeNode& there = found.at(path);
  const auto settle = [&](Timestamp& t) {
    if (IsTick(t) && !agreement.Knows(t)) t = kUnknownTime;
  };
  if (windows.contains(ino)) {
    n.content = RefContent();
    n.content.Write(0, there.content);
    n.attr.mode = there.attr.mode;
    n.attr.mtime = n.attr.ctime = kUnknownTime;
  }
  settle(n.attr.atime);
  settle(n.attr.mtime);
  settle(n.attr.ctime);
  settle(n.attr.btime);
  for (const auto& [name, child] : n.names) {
    TakeOver(state, child, path.empty() ? name : path + "/" + name, windows, found, agreement);
  }
}

std::string Nearest(const RefHistory& history, const Tree& found, const Agreement& agreement) {
  struct Near {
    size_t cut;
    std::vector<std::string> differences;
  };
  std::vector<Near> near;
  RefState state = history.base;
  Windows windows;
  for (size_t i = 0; i <= history.events.size(); ++i) {
    const bool end = i == history.events.size();
    if (end || history.events[i].is_metadata())
      near.push_back({i, Cut(state, windows, found, agreement).Differences(50)});
    if (!end) Replay(history, i, state, windows);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const Near& a, const Near& b) { return a.differences.size() < b.differences.size(); });
  std::string out =
      fmt::format("no cut of {} events explains the tree (durable: {})", history.events.size(), history.durable);
  for (size_t i = 0; i < std::min<size_t>(near.size(), 3); ++i) {
    out += fmt::format("\n  cut {}{}: {} differences", near[i].cut,
                       near[i].cut < history.durable ? " (before durable)" : "", near[i].differences.size());
    for (size_t j = 0; j < std::min<size_t>(near[i].differences.size(), 3); ++j)
      out += "\n    " + near[i].differences[j];
  }
  return out;
}

}  // namespace

std::optional<CrashExplanation> ExplainCrash(const RefHistory& history, const Tree& found, const Agreement& agreement,
                                             std::string* why) {
  std::optional<CrashExplanation> best;
  RefState state = history.base;
  Windows windows;
  for (size_t i = 0; i <= history.events.size(); ++i) {
    const bool end = i == history.events.size();
    if (i >= history.durable && (end || history.events[i].is_metadata()) &&
        Cut(state, windows, found, agreement).Differences(1).empty()) {
      best = CrashExplanation{i, state};
      TakeOver(best->state, kRootInode, "", windows, found, agreement);
    }
    if (!end) Replay(history, i, state, windows);
  }
  if (!best) *why = Nearest(history, found, agreement);
  return best;
}

}  // namespace archil::test
