#include "tests/support/agreement.h"

#include <fmt/format.h>

#include <cerrno>

namespace archil::test {
namespace {

std::string Show(Timestamp t) {
  if (t == kUnknownTime) return "any";
  if (IsTick(t)) return fmt::format("tick {}", t.sec - kTickSeconds);
  return fmt::format("{}.{:09}", t.sec, t.nsec);
}

bool IsDevice(FileType type) { return type == FileType::kCharDevice || type == FileType::kBlockDevice; }

std::string ContentDifference(const std::string& ref, const std::string& real) {
  if (ref.size() != real.size()) return fmt::format("content of {} bytes, expected {}", real.size(), ref.size());
  size_t at = 0;
  while (ref[at] == real[at]) ++at;
  size_t count = 0;
  for (size_t i = at; i < ref.size(); ++i) count += ref[i] != real[i];
  return fmt::format("content differs in {} bytes of {}, first at {}: {:02x}, expected {:02x}", count, ref.size(), at,
                     uint8_t(real[at]), uint8_t(ref[at]));
}

}  // namespace

bool Agreement::TimeAgrees(Timestamp ref, Timestamp real) const {
  if (ref == kUnknownTime) return true;
  if (!IsTick(ref)) return ref == real;
  auto it = times_.find(ref.sec);
  if (it != times_.end()) return rules_.exact_times ? it->second == real : true;
  auto after = times_.upper_bound(ref.sec);
  if (after != times_.end() && (rules_.exact_times ? !(real < after->second) : after->second < real)) return false;
  if (after == times_.begin()) return true;
  auto before = std::prev(after);
  return rules_.exact_times ? before->second < real : !(real < before->second);
}

std::optional<std::string> Agreement::CompareTime(const char* what, Timestamp ref, Timestamp real) {
  if (!TimeAgrees(ref, real)) {
    std::string known;
    if (auto it = times_.find(ref.sec); it != times_.end()) known = " = " + Show(it->second);
    return fmt::format("{} is {}, expected {}{}", what, Show(real), Show(ref), known);
  }
  if (IsTick(ref)) times_.emplace(ref.sec, real);
  return std::nullopt;
}

std::optional<std::string> Agreement::CompareIno(InodeId ref, InodeId real) {
  if (!rules_.inodes) return std::nullopt;
  const InodeId there = to_real_.emplace(ref, real).first->second;
  const InodeId here = to_ref_.emplace(real, ref).first->second;
  if (there != real) return fmt::format("inode {}, expected {} as before", real.value, there.value);
  if (here != ref)
    return fmt::format("inode {} stands for two inodes of the reference, {} and {}", real.value, here.value, ref.value);
  return std::nullopt;
}

std::optional<std::string> Agreement::Differ(const Attr& ref, const Attr& real, bool data) const {
  const auto differs = [](const char* what, uint64_t is, uint64_t expected) {
    return fmt::format("{} is {}, expected {}", what, is, expected);
  };
  if (ref.type != real.type) return differs("type", uint64_t(real.type), uint64_t(ref.type));
  if (ref.mode != real.mode) return fmt::format("mode is {:o}, expected {:o}", real.mode, ref.mode);
  if (ref.uid != real.uid) return differs("uid", real.uid, ref.uid);
  if (ref.gid != real.gid) return differs("gid", real.gid, ref.gid);
  if (ref.nlink != real.nlink) return differs("nlink", real.nlink, ref.nlink);
  if (IsDevice(ref.type) && ref.rdev != real.rdev) return differs("rdev", real.rdev, ref.rdev);
  const bool sized = ref.type == FileType::kDirectory ? rules_.directory_sizes : data;
  if (sized && ref.size != real.size) return differs("size", real.size, ref.size);
  if (rules_.inodes) {
    auto there = to_real_.find(ref.ino);
    auto here = to_ref_.find(real.ino);
    if (there != to_real_.end() && there->second != real.ino)
      return differs("inode", real.ino.value, there->second.value);
    if (here != to_ref_.end() && here->second != ref.ino)
      return differs("inode of the reference", here->second.value, ref.ino.value);
  }
  if (rules_.atime && !TimeAgrees(ref.atime, real.atime))
    return fmt::format("atime is {}, expected {}", Show(real.atime), Show(ref.atime));
  if (data && !TimeAgrees(ref.mtime, real.mtime))
    return fmt::format("mtime is {}, expected {}", Show(real.mtime), Show(ref.mtime));
  if (data && !TimeAgrees(ref.ctime, real.ctime))
    return fmt::format("ctime is {}, expected {}", Show(real.ctime), Show(ref.ctime));
  return std::nullopt;
}

std::optional<std::string> Agreement::CompareAttr(const Attr& ref, const Attr& real) {
  if (!rules_.removed_directories && ref.type == FileType::kDirectory && ref.nlink == 0) {
    if (real.nlink != 0) return fmt::format("nlink is {}, expected 0", real.nlink);
    return CompareIno(ref.ino, real.ino);
  }
  if (auto d = Differ(ref, real, true)) return d;
  if (auto d = CompareIno(ref.ino, real.ino)) return d;
  if (rules_.atime) {
    if (auto d = CompareTime("atime", ref.atime, real.atime)) return d;
  }
  if (auto d = CompareTime("mtime", ref.mtime, real.mtime)) return d;
  return CompareTime("ctime", ref.ctime, real.ctime);
}

std::optional<std::string> Agreement::Compare(const ModelOp& op, const Outcome& ref, const Outcome& real) {
  if (op.kind == OpKind::kSeek) {
    // The reference answers as finely as can be; a coarser answer is right if it hides no data.
    const bool data = op.sub == static_cast<uint32_t>(SeekKind::kData);
    if (ref.err != 0 && ref.err != ENXIO && ref.err != real.err)
      return fmt::format("errno {}, expected {}", real.err, ref.err);
    if (ref.err != 0) return std::nullopt;
    if (real.err != 0) return fmt::format("errno {}, expected success", real.err);
    if (real.number < op.offset) return fmt::format("found {}, before {}", real.number, op.offset);
    if (data ? real.number > ref.number : real.number < ref.number) {
      return fmt::format("found {}, the finest answer is {}", real.number, ref.number);
    }
    return std::nullopt;
  }
  if (ref.err != real.err) return fmt::format("errno {}, expected {}", real.err, ref.err);
  if (ref.number != real.number) return fmt::format("number {}, expected {}", real.number, ref.number);
  if (ref.text != real.text) return ContentDifference(ref.text, real.text);
  if (ref.attrs.size() != real.attrs.size()) return "attributes are missing";
  for (size_t i = 0; i < ref.attrs.size(); ++i) {
    if (auto d = CompareAttr(ref.attrs[i], real.attrs[i])) return d;
  }
  for (size_t i = 0; i < std::max(ref.names.size(), real.names.size()); ++i) {
    if (i >= real.names.size()) return "name missing: " + ref.names[i].name;
    if (i >= ref.names.size()) return "name too many: " + real.names[i].name;
    if (ref.names[i].name != real.names[i].name) {
      return fmt::format("name '{}', expected '{}'", real.names[i].name, ref.names[i].name);
    }
    if (ref.names[i].type != real.names[i].type) return "type of " + ref.names[i].name + " differs";
    if (auto d = CompareIno(ref.names[i].ino, real.names[i].ino)) return ref.names[i].name + ": " + *d;
  }
  return std::nullopt;
}

std::optional<std::string> Agreement::Compare(const Tree& ref, const Tree& real) {
  for (const auto& [path, node] : real) {
    if (!ref.contains(path)) return fmt::format("'{}' should not exist", path);
  }
  for (const auto& [path, node] : ref) {
    auto it = real.find(path);
    if (it == real.end()) return fmt::format("'{}' is missing", path);
    if (auto d = CompareAttr(node.attr, it->second.attr)) return fmt::format("'{}': {}", path, *d);
    if (node.target != it->second.target)
      return fmt::format("'{}': target '{}', expected '{}'", path, it->second.target, node.target);
    if (node.xattrs != it->second.xattrs) return fmt::format("'{}': xattrs differ", path);
    if (node.content != it->second.content)
      return fmt::format("'{}': {}", path, ContentDifference(node.content, it->second.content));
  }
  return std::nullopt;
}

}  // namespace archil::test
