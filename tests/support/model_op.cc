#include "tests/support/model_op.h"

#include <fmt/format.h>

#include <charconv>

namespace archil::test {
namespace {

constexpr std::string_view kNames[] = {
    "mkdir",       "mknod",   "symlink",   "link",         "create",         "open",         "close",
    "unlink",      "rmdir",   "rename",    "chmod",        "chown",          "truncate",     "utimens",
    "write",       "read",    "fallocate", "seek",         "setxattr",       "getxattr",     "listxattr",
    "removexattr", "readdir", "stat",      "readlink",     "fsync",          "fsyncdir",     "sync",
    "dropcaches",  "compare", "remount",   "crash_client", "restart_server", "crash_server", "crash_both",
};
static_assert(std::size(kNames) == static_cast<size_t>(OpKind::kCount));

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Strings appear as they are, but for what would break a line of words; long runs of one letter are counted.
std::string Quote(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    size_t run = 1;
    while (i + run < s.size() && s[i + run] == s[i]) ++run;
    const unsigned char c = s[i];
    if (run > 20) {
      out += fmt::format("%*{:02x}{}.", c, run);
      i += run;
      continue;
    }
    if (c <= ' ' || c == '%' || c >= 0x7f) {
      out += fmt::format("%{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
    ++i;
  }
  return out;
}

std::optional<std::string> Unquote(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    if (s[i] != '%') {
      out += s[i++];
      continue;
    }
    ++i;
    const bool run = i < s.size() && s[i] == '*';
    if (run) ++i;
    unsigned code = 0;
    if (i + 2 > s.size() || std::from_chars(s.data() + i, s.data() + i + 2, code, 16).ec != std::errc())
      return std::nullopt;
    i += 2;
    size_t times = 1;
    if (run) {
      const auto parsed = std::from_chars(s.data() + i, s.data() + s.size(), times);
      if (parsed.ec != std::errc()) return std::nullopt;
      i = parsed.ptr - s.data() + 1;
    }
    out.append(times, static_cast<char>(code));
  }
  return out;
}

template <class T>
bool ParseNumber(std::string_view text, T* out, int base = 10) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

bool ParseTime(std::string_view text, Timestamp* out) {
  const size_t dot = text.find('.');
  return dot != std::string_view::npos && ParseNumber(text.substr(0, dot), &out->sec) &&
         ParseNumber(text.substr(dot + 1), &out->nsec);
}

bool SetField(ModelOp& op, std::string_view key, std::string_view value) {
  const auto text = [&](std::string* out) {
    auto s = Unquote(value);
    if (s) *out = std::move(*s);
    return s.has_value();
  };
  if (key == "at") return ParseNumber(value, &op.at);
  if (key == "path") return text(&op.path);
  if (key == "at2") return ParseNumber(value, &op.at2);
  if (key == "path2") return text(&op.path2);
  if (key == "slot") return ParseNumber(value, &op.slot);
  if (key == "flags") return ParseNumber(value, &op.flags, 8);
  if (key == "mode") return ParseNumber(value, &op.mode, 8);
  if (key == "uid") return ParseNumber(value, &op.uid);
  if (key == "gid") return ParseNumber(value, &op.gid);
  if (key == "rdev") return ParseNumber(value, &op.rdev);
  if (key == "off") return ParseNumber(value, &op.offset);
  if (key == "len") return ParseNumber(value, &op.length);
  if (key == "fill") return ParseNumber(value, &op.fill);
  if (key == "sub") return ParseNumber(value, &op.sub);
  if (key == "kill") return op.kill_set_id = true;
  if (key == "name") return text(&op.name);
  if (key == "atime") return ParseTime(value, &op.atime);
  if (key == "mtime") return ParseTime(value, &op.mtime);
  return false;
}

}  // namespace

std::string FillBytes(uint64_t fill, uint64_t length) {
  std::string out(length, '\0');
  if (fill == 0) return out;
  for (uint64_t i = 0; i < length; i += 8) {
    const uint64_t word = Mix(fill * 0x10001 + i) | 0x0101010101010101;
    for (uint64_t j = 0; j < 8 && i + j < length; ++j) out[i + j] = static_cast<char>(word >> (8 * j));
  }
  return out;
}

std::string ToString(const ModelOp& op) {
  const ModelOp plain;
  std::string out(kNames[static_cast<size_t>(op.kind)]);
  const auto put = [&](bool differs, const std::string& text) {
    if (differs) out += " " + text;
  };
  put(op.at != plain.at, fmt::format("at={}", op.at));
  put(!op.path.empty(), fmt::format("path={}", Quote(op.path)));
  put(op.at2 != plain.at2, fmt::format("at2={}", op.at2));
  put(!op.path2.empty(), fmt::format("path2={}", Quote(op.path2)));
  put(op.slot != plain.slot, fmt::format("slot={}", op.slot));
  put(op.flags != 0, fmt::format("flags={:o}", op.flags));
  put(op.mode != 0, fmt::format("mode={:o}", op.mode));
  put(op.uid != 0, fmt::format("uid={}", op.uid));
  put(op.gid != 0, fmt::format("gid={}", op.gid));
  put(op.rdev != 0, fmt::format("rdev={}", op.rdev));
  put(op.offset != 0, fmt::format("off={}", op.offset));
  put(op.length != 0, fmt::format("len={}", op.length));
  put(op.fill != 0, fmt::format("fill={}", op.fill));
  put(op.sub != 0, fmt::format("sub={}", op.sub));
  put(op.kill_set_id, "kill=1");
  put(!op.name.empty(), fmt::format("name={}", Quote(op.name)));
  put(op.atime != plain.atime, fmt::format("atime={}.{}", op.atime.sec, op.atime.nsec));
  put(op.mtime != plain.mtime, fmt::format("mtime={}.{}", op.mtime.sec, op.mtime.nsec));
  return out;
}

std::string ToString(const std::vector<ModelOp>& ops) {
  std::string out;
  for (const ModelOp& op : ops) out += ToString(op) + "\n";
  return out;
}

std::optional<ModelOp> ParseModelOp(std::string_view line) {
  ModelOp op;
  size_t space = line.find(' ');
  const std::string_view kind = line.substr(0, space);
  size_t k = 0;
  while (k < std::size(kNames) && kNames[k] != kind) ++k;
  if (k == std::size(kNames)) return std::nullopt;
  op.kind = static_cast<OpKind>(k);
  while (space != std::string_view::npos) {
    line.remove_prefix(space + 1);
    space = line.find(' ');
    const std::string_view word = line.substr(0, space);
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    if (!SetField(op, word.substr(0, equals), word.substr(equals + 1))) return std::nullopt;
  }
  return op;
}

std::optional<std::vector<ModelOp>> ParseModelOps(std::string_view text) {
  std::vector<ModelOp> ops;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    if (line.empty() || line.front() == '#') continue;
    auto op = ParseModelOp(line);
    if (!op) return std::nullopt;
    ops.push_back(std::move(*op));
  }
  return ops;
}

}  // namespace archil::test
