#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tests/sim/history.h"

namespace archil::sim {
namespace {

constexpr const char* kVerbs[] = {"lookup", "getattr", "list",     "create",   "mkdir", "unlink",
                                  "rmdir",  "rename",  "exchange", "link",     "open",  "close",
                                  "read",   "write",   "append",   "truncate", "fsync", "dump"};

void Mix(uint64_t& hash, uint64_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL ^ (hash >> 29); }
void Mix(uint64_t& hash, const std::string& text) {
  Mix(hash, text.size());
  for (const char c : text) Mix(hash, static_cast<unsigned char>(c));
}

void WriteAt(std::string& content, uint64_t offset, const std::string& data) {
  if (content.size() < offset + data.size()) content.resize(offset + data.size());
  std::copy(data.begin(), data.end(), content.begin() + static_cast<ptrdiff_t>(offset));
}

}  // namespace

std::string ToString(const Event& e) {
  std::string out =
      fmt::format("[{}..{}] client {} thread {} {} {}", e.begun, e.ended == UINT64_MAX ? "" : std::to_string(e.ended),
                  e.client, e.thread, kVerbs[static_cast<size_t>(e.verb)], e.ino.value);
  if (!e.name.empty()) out += " " + e.name;
  if (e.to) out += fmt::format(" with {}", e.to.value);
  if (!e.new_name.empty()) out += " " + e.new_name;
  if (e.verb == Verb::kWrite) out += fmt::format(" at {}", e.offset);
  if (e.verb == Verb::kTruncate) out += fmt::format(" to {}", e.size);
  if (e.verb == Verb::kWrite || e.verb == Verb::kAppend) out += fmt::format(" '{}'", e.data);
  out += e.unknown ? ": unknown " : ": ";
  out += CodeName(e.code);
  if (e.code != Code::kOk || e.unknown) return out;
  if (e.found) out += fmt::format(" {}", e.found.value);
  if (e.verb == Verb::kRead) out += fmt::format(" '{}'", e.data);
  if (e.verb == Verb::kGetAttr) out += fmt::format(" nlink {} size {}", e.nlink, e.size);
  if (e.verb == Verb::kList) {
    for (const auto& [name, ino] : e.names) out += fmt::format(" {}={}", name, ino.value);
  }
  for (const auto& [ino, shown] : e.tree) {
    out += fmt::format("\n      {}{} nlink {} '{}'", ino.value, shown.directory ? "/" : "", shown.nlink, shown.content);
    for (const auto& [name, child] : shown.names) out += fmt::format(" {}={}", name, child.value);
  }
  return out;
}

RefTree::RefTree() { nodes_[kRootInode] = {true, 2, "", {}}; }

Shown* RefTree::Dir(InodeId ino) {
  const auto it = nodes_.find(ino);
  return it == nodes_.end() || !it->second.directory ? nullptr : &it->second;
}

bool RefTree::Open(int client, InodeId ino) const {
  const auto it = opens_.find({client, ino});
  return it != opens_.end() && it->second > 0;
}

bool RefTree::Removed(InodeId ino) const {
  const auto it = nodes_.find(ino);
  return it == nodes_.end() ? removed_.contains(ino) : it->second.nlink == 0;
}

void RefTree::DropIfGone(InodeId ino) {
  const auto it = nodes_.find(ino);
  if (it == nodes_.end() || it->second.nlink > 0) return;
  for (const auto& [key, count] : opens_) {
    if (key.second == ino && count > 0) return;
  }
  nodes_.erase(it);
}

void RefTree::Unname(InodeId ino) {
  Shown& node = nodes_[ino];
  node.nlink = node.directory ? 0 : node.nlink - 1;
  if (node.nlink == 0) removed_[ino] = true;
  DropIfGone(ino);
}

bool RefTree::Below(InodeId ino, InodeId above) const {
  const auto it = nodes_.find(above);
  if (it == nodes_.end()) return false;
  return ino == above || std::any_of(it->second.names.begin(), it->second.names.end(),
                                     [&](const auto& e) { return Below(ino, e.second); });
}

void RefTree::Forget(int client) {
  std::vector<InodeId> was;
  for (auto it = opens_.begin(); it != opens_.end();) {
    if (it->first.first != client) {
      ++it;
      continue;
    }
    was.push_back(it->first.second);
    it = opens_.erase(it);
  }
  for (const InodeId ino : was) DropIfGone(ino);
}

RefTree::Verdict RefTree::Rename(const Event& e) {
  Shown* from = Dir(e.ino);
  Shown* to = Dir(e.to);
  const auto source = from->names.find(e.name);
  const auto target = to->names.find(e.new_name);
  if (source == from->names.end()) return {Code::kNotFound};
  const InodeId moved = source->second;
  const bool exchange = e.verb == Verb::kExchange;
  if (exchange && target == to->names.end()) return {Code::kNotFound};
  if (nodes_[moved].directory && Below(e.to, moved)) return {Code::kInvalid, true};
  const InodeId other = target == to->names.end() ? InodeId{} : target->second;
  if (exchange && nodes_[other].directory && Below(e.ino, other)) return {Code::kInvalid, true};
  if (other == moved) return {};
  const auto move_count = [&](InodeId ino, Shown* out, Shown* in) {
    if (!nodes_[ino].directory || out == in) return;
    --out->nlink;
    ++in->nlink;
  };
  if (exchange) {
    move_count(moved, from, to);
    move_count(other, to, from);
    from->names[e.name] = other;
    to->names[e.new_name] = moved;
    return {};
  }
  if (other) {
    if (Below(e.ino, other) && nodes_[other].directory) return {Code::kNotEmpty, true};
    if (nodes_[moved].directory && !nodes_[other].directory) return {Code::kNotDirectory};
    if (!nodes_[moved].directory && nodes_[other].directory) return {Code::kIsDirectory};
    if (!nodes_[other].names.empty()) return {Code::kNotEmpty};
    if (nodes_[other].directory) --to->nlink;
  }
  move_count(moved, from, to);
  from->names.erase(e.name);
  to->names[e.new_name] = moved;
  if (other) Unname(other);
  return {};
}

RefTree::Verdict RefTree::Names(const Event& e, Judge judge) {
  Shown* dir = Dir(e.ino);
  if (dir == nullptr) return {Code::kStale, true};
  if (Removed(e.ino)) return {Code::kNotFound, true};
  const auto it = dir->names.find(e.name);
  const bool there = it != dir->names.end();
  switch (e.verb) {
    case Verb::kLookup:
      if (!there) return {Code::kNotFound};
      if (judge == Judge::kAnswer && e.code == Code::kOk && e.found != it->second) return {Code::kInternal};
      return {};
    case Verb::kList:
      if (judge == Judge::kAnswer && e.code == Code::kOk && e.names != dir->names) return {Code::kInternal};
      return {};
    case Verb::kCreate:
    case Verb::kMkdir: {
      if (there) return {Code::kExists};
      // Without an answer nobody knows its number: it is not looked for, so a name would do. See FindOrder.
      if (!e.found || nodes_.contains(e.found) || removed_.contains(e.found)) return {Code::kInternal};
      const bool directory = e.verb == Verb::kMkdir;
      dir->names[e.name] = e.found;
      nodes_[e.found] = {directory, directory ? 2U : 1U, "", {}};
      if (directory) ++nodes_[e.ino].nlink;
      if (!directory) ++opens_[{e.client, e.found}];
      return {};
    }
    case Verb::kLink: {
      const auto file = nodes_.find(e.to);
      if (file == nodes_.end() || file->second.nlink == 0) return {Code::kStale, true};
      if (there) return {Code::kExists};
      ++file->second.nlink;
      dir->names[e.name] = e.to;
      return {};
    }
    case Verb::kUnlink: {
      if (!there) return {Code::kNotFound};
      const InodeId ino = it->second;
      if (nodes_[ino].directory) return {Code::kIsDirectory};
      dir->names.erase(it);
      Unname(ino);
      return {};
    }
    case Verb::kRmdir: {
      if (!there) return {Code::kNotFound};
      const InodeId ino = it->second;
      if (!nodes_[ino].directory) return {Code::kNotDirectory};
      if (!nodes_[ino].names.empty()) return {Code::kNotEmpty};
      dir->names.erase(it);
      --dir->nlink;
      Unname(ino);
      return {};
    }
    default: break;
  }
  if (Dir(e.to) == nullptr) return {Code::kStale, true};
  if (Removed(e.to)) return {Code::kNotFound, true};
  return Rename(e);
}

RefTree::Verdict RefTree::File(const Event& e, Judge judge) {
  const auto it = nodes_.find(e.ino);
  const bool open = Open(e.client, e.ino);
  if (e.verb == Verb::kClose) {
    if (open) --opens_[{e.client, e.ino}];
    DropIfGone(e.ino);
    return {};
  }
  // Without a name it is what the client remembers of it, unless it is open there: as long as it is open anywhere,
  // another may open it who had found it before.
  const bool opens = e.verb == Verb::kOpen && e.code == Code::kOk;
  if (it == nodes_.end() || (it->second.nlink == 0 && !open && !opens)) return {Code::kStale, true};
  if (it->second.nlink == 0 && e.code == Code::kStale && silent_.contains(e.client)) return {Code::kStale};
  // Nothing happened. (Whether there was room is not known here: what is open elsewhere, lost or cut off holds some.)
  if (e.code == Code::kNoSpace && (e.verb == Verb::kWrite || e.verb == Verb::kAppend)) return {Code::kNoSpace};
  Shown& node = it->second;
  const bool ask = judge == Judge::kAnswer && e.code == Code::kOk;
  switch (e.verb) {
    case Verb::kGetAttr:
      if (ask && (e.directory != node.directory || e.nlink != node.nlink ||
                  (!node.directory && e.size != node.content.size())))
        return {Code::kInternal};
      return {};
    case Verb::kOpen:
      if (opens) ++opens_[{e.client, e.ino}];
      return {};
    case Verb::kRead:
      if (ask && e.data != (e.offset < node.content.size() ? node.content.substr(e.offset) : std::string()))
        return {Code::kInternal};
      return {};
    case Verb::kWrite: WriteAt(node.content, e.offset, e.data); return {};
    case Verb::kAppend: node.content += e.data; return {};
    case Verb::kTruncate: node.content.resize(e.size); return {};
    default: return {};
  }
}

bool RefTree::Apply(const Event& e, Judge judge) {
  if (e.verb == Verb::kDump) return !Compare(e.tree).has_value();
  // Another has checked it out, and nothing happened.
  const bool changes = (e.verb >= Verb::kCreate && e.verb <= Verb::kLink) || e.verb == Verb::kWrite || e.verb == Verb::kAppend || e.verb == Verb::kTruncate;
  if (changes && !e.unknown && e.code == Code::kHeldElsewhere) return true;
  const bool names =
      e.verb == Verb::kLookup || e.verb == Verb::kList || (e.verb >= Verb::kCreate && e.verb <= Verb::kLink);
  const Verdict verdict = names ? Names(e, judge) : File(e, judge);
  if (judge == Judge::kNot) return verdict.code == Code::kOk;
  if (verdict.loose) {
    // Removed, as this mount may have seen it already or not; but nothing is made there.
    const bool makes = (e.verb >= Verb::kCreate && e.verb <= Verb::kLink) && e.code == Code::kOk;
    return !makes;
  }
  return verdict.code == e.code;
}

std::optional<std::string> RefTree::Compare(const Tree& shown) const {
  for (const auto& [ino, node] : nodes_) {
    if (node.nlink == 0) continue;
    const auto it = shown.find(ino);
    if (it == shown.end()) return fmt::format("inode {} is missing", ino.value);
    if (!(it->second == node)) return fmt::format("inode {} is not what it should be", ino.value);
  }
  for (const auto& [ino, node] : shown) {
    if (!nodes_.contains(ino)) return fmt::format("inode {} should not be there", ino.value);
  }
  return std::nullopt;
}

uint64_t RefTree::Hash() const {
  uint64_t hash = 1;
  for (const auto& [ino, node] : nodes_) {
    Mix(hash, ino.value);
    Mix(hash, node.nlink * 2 + node.directory);
    Mix(hash, node.content);
    for (const auto& [name, child] : node.names) {
      Mix(hash, name);
      Mix(hash, child.value);
    }
  }
  for (const auto& [key, count] : opens_) {
    if (count == 0) continue;
    Mix(hash, static_cast<uint64_t>(key.first));
    Mix(hash, key.second.value + 7 * static_cast<uint64_t>(count));
  }
  return hash;
}

}  // namespace archil::sim
