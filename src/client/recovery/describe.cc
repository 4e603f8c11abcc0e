#include "client/recovery/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "client/recovery/path_names.h"

namespace archil {
namespace {

std::string TimeText(Timestamp t) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E9SZ", FromTimestamp(t), absl::UTCTimeZone());
}

std::string_view CreateVerb(FileType type) {
  switch (type) {
    case FileType::kDirectory: return "mkdir";
    case FileType::kSymlink: return "symlink";
    case FileType::kFifo:
    case FileType::kSocket:
    case FileType::kCharDevice:
    case FileType::kBlockDevice: return "mknod";
    case FileType::kRegular: break;
  }
  return "create";
}

std::string_view NodeText(FileType type) {
  switch (type) {
    case FileType::kFifo: return "fifo, ";
    case FileType::kSocket: return "socket, ";
    case FileType::kCharDevice: return "character device, ";
    case FileType::kBlockDevice: return "block device, ";
    default: return "";
  }
}

// Adjacent extents are one range.
struct Ranges {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t first = 0;
  uint64_t end = 0;

  void Add(const Extent& e) {
    if (count == 0) first = e.offset;
    if (count == 0 || e.offset != end) count++;
    bytes += e.length;
    end = e.end();
  }
  std::string Text() const {
    return count <= 1 ? fmt::format("{} bytes at {}", bytes, first)
                      : fmt::format("{} bytes in {} ranges from {} to {}", bytes, count, first, end);
  }
};

// Fills the line for one op; `names` are those before it.
class Describer {
 public:
  Describer(const PathNames& names, OpLine& line) : names_(names), line_(line) {}

  void operator()(const CreateOp& op) {
    Entry(CreateVerb(op.type), op.ino, op.parent, op.name);
    line_.more = fmt::format("({}mode {:04o}, owner {}:{})", NodeText(op.type), op.mode, op.uid, op.gid);
    if (op.type == FileType::kSymlink) line_.more = "to " + Printable(op.target);
  }
  void operator()(const LinkOp& op) {
    Inode("link", op.ino);
    line_.new_path = names_.PathOf(op.parent, op.name);
  }
  void operator()(const UnlinkOp& op) { Entry("unlink", op.ino, op.parent, op.name); }
  void operator()(const RmdirOp& op) { Entry("rmdir", op.ino, op.parent, op.name); }
  void operator()(const RenameOp& op) {
    const bool exchange = op.mode == RenameOp::Mode::kExchange;
    Entry(exchange ? "exchange" : "rename", op.ino, op.parent, op.name);
    line_.new_path = names_.PathOf(op.new_parent, op.new_name);
    if (!exchange && op.victim) line_.more = "(replaces it)";
  }
  void operator()(const SetAttrOp& op) {
    Inode("set", op.ino);
    std::string& more = line_.more;
    const auto add = [&more](const std::string& text) { more += (more.empty() ? "" : " ") + text; };
    if (op.fields & SetAttrOp::kMode) add(fmt::format("mode {:04o}", op.mode));
    if (op.fields & SetAttrOp::kUid) add(fmt::format("uid {}", op.uid));
    if (op.fields & SetAttrOp::kGid) add(fmt::format("gid {}", op.gid));
    if (op.fields & SetAttrOp::kSize) add(fmt::format("size {}", op.size));
    if (op.fields & SetAttrOp::kAtime) add("atime " + TimeText(op.atime));
    if (op.fields & SetAttrOp::kMtime) add("mtime " + TimeText(op.mtime));
  }
  void operator()(const SetExtentsOp& op) {
    Inode("write", op.ino);
    Ranges all, unreadable;
    for (const Extent& e : op.extents) {
      all.Add(e);
      if (e.kind == ExtentKind::kSegment) unreadable.Add(e);
    }
    line_.bytes = all.bytes;
    line_.unreadable = unreadable.bytes;
    line_.more = all.Text();
    if (unreadable.count != 0) {
      line_.more += fmt::format(", of which could not be read any more: {}", unreadable.Text());
    }
  }
  void operator()(const ClearRangeOp& op) {
    constexpr std::string_view kVerbs[] = {"punch", "zero", "allocate"};
    Inode(kVerbs[static_cast<size_t>(op.kind)], op.ino);
    line_.more = fmt::format("{} bytes at {}", op.length, op.offset);
  }
  void operator()(const SetXattrOp& op) {
    Inode("setxattr", op.ino);
    line_.more = fmt::format("{} ({} bytes)", Printable(op.name), op.value.size());
  }
  void operator()(const RemoveXattrOp& op) {
    Inode("removexattr", op.ino);
    line_.more = Printable(op.name);
  }
  void operator()(const ReleaseOrphanOp& op) { Inode("release", op.ino); }
  void operator()(const TouchOp& op) {
    Inode("touch", op.ino);
    line_.more = "mtime " + TimeText(op.mtime);
  }

 private:
  void Inode(std::string_view verb, InodeId ino) {
    line_.verb = verb;
    line_.ino = ino;
    line_.path = names_.PathOf(ino);
  }
  void Entry(std::string_view verb, InodeId ino, InodeId parent, std::string_view name) {
    line_.verb = verb;
    line_.ino = ino;
    line_.path = names_.PathOf(parent, name);
  }

  const PathNames& names_;
  OpLine& line_;
};

// Who an op is a loss for: the file that it is about, and the directories whose names it changes.
class LossCounter {
 public:
  explicit LossCounter(const LostLog& log) : before_(log), root_(log.root) {
    for (const auto& [ino, name] : log.names) directories_.insert(name.parent);
  }

  void Count(const Op& op, const OpLine& line) {
    if (const auto* create = std::get_if<CreateOp>(&op)) {
      created_.insert(create->ino);
      if (create->type == FileType::kDirectory) directories_.insert(create->ino);
      Entries(create->parent);
      Of(create->ino).ops++;
    } else if (const auto* link = std::get_if<LinkOp>(&op)) {
      Entries(link->parent);
    } else if (const auto* unlink = std::get_if<UnlinkOp>(&op)) {
      Entries(unlink->parent);
    } else if (const auto* rmdir = std::get_if<RmdirOp>(&op)) {
      directories_.insert(rmdir->ino);
      Entries(rmdir->parent);
    } else if (const auto* rename = std::get_if<RenameOp>(&op)) {
      Entries(rename->parent);
      if (rename->new_parent != rename->parent) Entries(rename->new_parent);
    } else if (!std::holds_alternative<ReleaseOrphanOp>(op)) {
      if (std::holds_alternative<TouchOp>(op)) directories_.insert(line.ino);
      Loss& loss = Of(line.ino);
      loss.ops++;
      loss.bytes += line.bytes;
      loss.unreadable += line.unreadable;
    }
  }

  // What the ops made and removed again is no loss.
  std::vector<Loss> Finish(const PathNames& after) {
    std::vector<Loss> out;
    for (auto& [ino, loss] : losses_) {
      loss.created = created_.count(ino) != 0;
      loss.directory = ino == root_ || directories_.count(ino) != 0;
      if (loss.created && !after.HasName(ino)) continue;
      loss.path = (loss.created ? after : before_).PathOf(ino);
      out.push_back(loss);
    }
    std::sort(out.begin(), out.end(),
              [](const Loss& a, const Loss& b) { return std::tie(a.path, a.ino) < std::tie(b.path, b.ino); });
    return out;
  }

 private:
  Loss& Of(InodeId ino) {
    Loss& loss = losses_[ino];
    loss.ino = ino;
    return loss;
  }
  void Entries(InodeId directory) {
    directories_.insert(directory);
    Of(directory).ops++;
  }

  const PathNames before_;
  const InodeId root_;
  std::set<InodeId> directories_, created_;
  std::map<InodeId, Loss> losses_;
};

}  // namespace

std::string OpLine::Text() const {
  std::string text = verb + " " + path;
  if (!new_path.empty()) text += (verb == "exchange" ? " <-> " : " -> ") + new_path;
  if (!more.empty()) text += " " + more;
  return text;
}

Listing Describe(const LostLog& log) {
  Listing listing;
  PathNames names(log);
  LossCounter losses(log);
  for (const Op& op : log.ops) {
    OpLine line;
    std::visit(Describer(names, line), op);
    losses.Count(op, line);
    listing.bytes += line.bytes;
    listing.unreadable += line.unreadable;
    listing.lines.push_back(std::move(line));
    names.Apply(op);
  }
  listing.losses = losses.Finish(names);
  return listing;
}

}  // namespace archil
