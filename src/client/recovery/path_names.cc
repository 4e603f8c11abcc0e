#include "client/recovery/path_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

namespace archil {
namespace {

// Bytes of the UTF-8 sequence that `s` begins with; 0: none, or not a shortest one.
size_t SequenceLength(std::string_view s) {
  const auto byte = [&s](size_t i) { return static_cast<uint8_t>(s[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || s.size() < length) return 0;
  for (size_t i = 1; i < length; i++) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool surrogate = byte(0) == 0xed && byte(1) > 0x9f;
  const bool too_high = byte(0) == 0xf4 && byte(1) > 0x8f;
  return overlong || surrogate || too_high ? 0 : length;
}

}  // namespace

std::string Printable(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    size_t length = SequenceLength(bytes);
    const auto first = static_cast<uint8_t>(bytes[0]);
    const bool control =
        first < 0x20 || first == 0x7f || (first == 0xc2 && length == 2 && static_cast<uint8_t>(bytes[1]) < 0xa0);
    if (length == 0 || control || first == '\\') {
      length = std::max<size_t>(length, 1);
      for (const char c : bytes.substr(0, length)) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    } else {
      out += bytes.substr(0, length);
    }
    bytes.remove_prefix(length);
  }
  return out;
}

PathNames::PathNames(const LostLog& log) : root_(log.root) {
  for (const auto& [ino, name] : log.names) known_[ino].names.push_back(name);
}

void PathNames::Add(InodeId ino, const LostLog::Name& name) {
  std::vector<LostLog::Name>& names = known_[ino].names;
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

void PathNames::Remove(InodeId ino, const LostLog::Name& name) {
  Known& known = known_[ino];
  std::erase(known.names, name);
  known.last = name;
}

void PathNames::Apply(const Op& op) {
  if (const auto* create = std::get_if<CreateOp>(&op)) Add(create->ino, {create->parent, create->name});
  if (const auto* link = std::get_if<LinkOp>(&op)) Add(link->ino, {link->parent, link->name});
  if (const auto* unlink = std::get_if<UnlinkOp>(&op)) Remove(unlink->ino, {unlink->parent, unlink->name});
  if (const auto* rmdir = std::get_if<RmdirOp>(&op)) Remove(rmdir->ino, {rmdir->parent, rmdir->name});
  const auto* rename = std::get_if<RenameOp>(&op);
  if (rename == nullptr || rename->ino == rename->victim) return;
  const LostLog::Name from{rename->parent, rename->name}, to{rename->new_parent, rename->new_name};
  Remove(rename->ino, from);
  if (rename->victim) Remove(rename->victim, to);
  Add(rename->ino, to);
  if (rename->mode == RenameOp::Mode::kExchange && rename->victim) Add(rename->victim, from);
}

bool PathNames::HasName(InodeId ino) const {
  const auto it = known_.find(ino);
  return ino == root_ || (it != known_.end() && !it->second.names.empty());
}

bool PathNames::Climb(InodeId ino, std::string* path) const {
  std::vector<std::string> parts;
  while (ino != root_) {
    const auto it = known_.find(ino);
    if (it == known_.end() || it->second.names.empty() || parts.size() >= kMaxPathDepth) return false;
    parts.push_back(Printable(it->second.names.front().name));
    ino = it->second.names.front().parent;
  }
  path->clear();
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) path->append("/").append(*part);
  return true;
}

std::string PathNames::PathOf(InodeId parent, std::string_view name) const {
  std::string path;
  if (!Climb(parent, &path)) path = fmt::format("(inode {})", parent.value);
  return path + "/" + Printable(name);
}

std::string PathNames::PathOf(InodeId ino) const {
  if (ino == root_) return "/";
  const auto it = known_.find(ino);
  if (it == known_.end()) return fmt::format("inode {}", ino.value);
  const Known& known = it->second;
  if (!known.names.empty()) return PathOf(known.names.front().parent, known.names.front().name);
  return fmt::format("inode {} (was {})", ino.value, PathOf(known.last.parent, known.last.name));
}

}  // namespace archil
