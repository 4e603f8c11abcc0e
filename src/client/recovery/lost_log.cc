#include "client/recovery/lost_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "client/recovery/lost_format.h"
#include "common/base/bytes.h"
#include "common/format/op_codec.h"

namespace archil {
namespace {

using Names = std::map<InodeId, LostLog::Name>;

constexpr size_t kMaxTextBytes = 4096;
constexpr size_t kNamesBytes = 64 * 1024;  // of one record of names
constexpr size_t kExtentsPerRecord = 1024;
constexpr uint64_t kMaxFilesPerMoment = 10'000;  // names tried

// ---- names

// `ino` had this name before the op; another one that is known of it stays.
void Restore(Names& names, InodeId ino, const LostLog::Name& gone, const LostLog::Name& before) {
  const auto [it, unknown] = names.try_emplace(ino, before);
  if (!unknown && it->second == gone) it->second = before;
}

void Undo(const CreateOp& op, Names& names) { names.erase(op.ino); }

void Undo(const LinkOp& op, Names& names) {
  const auto it = names.find(op.ino);
  if (it != names.end() && it->second == LostLog::Name{op.parent, op.name}) names.erase(it);
}

void Undo(const UnlinkOp& op, Names& names) { names.try_emplace(op.ino, LostLog::Name{op.parent, op.name}); }
void Undo(const RmdirOp& op, Names& names) { names.try_emplace(op.ino, LostLog::Name{op.parent, op.name}); }

void Undo(const RenameOp& op, Names& names) {
  const LostLog::Name from{op.parent, op.name}, to{op.new_parent, op.new_name};
  if (op.ino == op.victim) return;
  Restore(names, op.ino, to, from);
  if (!op.victim) return;
  if (op.mode == RenameOp::Mode::kExchange) {
    Restore(names, op.victim, from, to);
  } else {
    names.try_emplace(op.victim, to);
  }
}

template <class OtherOp>
void Undo(const OtherOp&, Names&) {}

// ---- saving

Status CheckExtents(const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    const auto* set = std::get_if<SetExtentsOp>(&op);
    if (set == nullptr) continue;
    for (const Extent& e : set->extents) {
      const bool fits = e.length <= kMaxFileSize && e.offset <= kMaxFileSize - e.length &&
                        (e.kind != ExtentKind::kSegment || e.segment_offset <= kMaxFileSize - e.length);
      if (!fits || (e.kind == ExtentKind::kInline && e.data.size() != e.length)) {
        return Error(Code::kInvalid, fmt::format("an extent of inode {} makes no sense", set->ino.value));
      }
    }
  }
  return Ok();
}

std::string Cut(const std::string& text) { return text.substr(0, kMaxTextBytes); }

Status AppendAbout(const LostLog& log, LostLogWriter& out) {
  ByteWriter w;
  w.LengthPrefixed(Cut(log.disk));
  w.LengthPrefixed(Cut(log.branch));
  w.LengthPrefixed(Cut(log.client_name));
  w.LengthPrefixed(Cut(log.reason));
  w.U64(log.session.value);
  w.I64(log.when.sec);
  w.U32(log.when.nsec);
  w.U64(log.root.value);
  w.U64(log.names.size());
  w.U64(log.ops.size());
  return out.Append(LostRecord::kAbout, w.str());
}

Status AppendNames(const Names& names, LostLogWriter& out) {
  ByteWriter w;
  for (const auto& [ino, name] : names) {
    w.Varint(ino.value);
    w.Varint(name.parent.value);
    w.LengthPrefixed(name.name);
    if (w.size() < kNamesBytes) continue;
    ARCHIL_RETURN_IF_ERROR(out.Append(LostRecord::kNames, w.str()));
    w.str().clear();
  }
  return w.size() == 0 ? Ok() : out.Append(LostRecord::kNames, w.str());
}

// Cuts the extents of one op into records that the op codec can take: inline bytes up to its limit, sorted, apart.
class ExtentCutter {
 public:
  ExtentCutter(const SetExtentsOp& op, LostLogWriter& out) : out_(out) {
    piece_.ino = op.ino;
    piece_.size = op.size;
    piece_.mtime = op.mtime;
    piece_.ctime = op.ctime;
    piece_.clear_mode = op.clear_mode;
  }

  Status Add(const Extent& extent) {
    for (uint64_t done = 0; done < extent.length;) {
      const bool has_bytes = extent.kind == ExtentKind::kInline;
      const bool full = piece_.extents.size() >= kExtentsPerRecord || (has_bytes && inline_bytes_ >= kMaxInlineBytes);
      if (full || extent.offset + done < end_) ARCHIL_RETURN_IF_ERROR(Emit());
      Extent part = extent;
      part.offset = extent.offset + done;
      part.length = extent.length - done;
      if (has_bytes) {
        part.length = std::min<uint64_t>(part.length, kMaxInlineBytes - inline_bytes_);
        part.data = extent.data.Slice(done, part.length);
        inline_bytes_ += part.length;
      }
      done += part.length;
      end_ = part.end();
      piece_.extents.push_back(std::move(part));
    }
    return Ok();
  }

  // Also an op without extents is one record.
  Status Finish() { return first_ || !piece_.extents.empty() ? Emit() : Ok(); }

 private:
  Status Emit() {
    const Op op = std::move(piece_);
    piece_ = std::get<SetExtentsOp>(op);
    piece_.extents.clear();
    inline_bytes_ = 0;
    end_ = 0;
    return out_.Append(std::exchange(first_, false) ? LostRecord::kOp : LostRecord::kMoreExtents, EncodeOps({&op, 1}));
  }

  LostLogWriter& out_;
  SetExtentsOp piece_;
  size_t inline_bytes_ = 0;
  uint64_t end_ = 0;  // of the piece's last extent
  bool first_ = true;
};

Status AppendOp(const Op& op, LostLogWriter& out) {
  const auto* set = std::get_if<SetExtentsOp>(&op);
  if (set == nullptr) return out.Append(LostRecord::kOp, EncodeOps({&op, 1}));
  ExtentCutter cutter(*set, out);
  for (const Extent& e : set->extents) ARCHIL_RETURN_IF_ERROR(cutter.Add(e));
  return cutter.Finish();
}

Status WriteLog(const LostLog& log, File& file) {
  LostLogWriter out(file);
  ARCHIL_RETURN_IF_ERROR(AppendAbout(log, out));
  ARCHIL_RETURN_IF_ERROR(AppendNames(log.names, out));
  for (const Op& op : log.ops) ARCHIL_RETURN_IF_ERROR(AppendOp(op, out));
  ARCHIL_RETURN_IF_ERROR(out.Append(LostRecord::kEnd, ""));
  return out.Flush();
}

// "disk-1f-20260131T235959Z", a name whatever the disk is called.
std::string FileStem(const LostLog& log) {
  std::string disk = log.disk.substr(0, 64);
  for (char& c : disk) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    if (!plain) c = '_';
  }
  const std::string time = absl::FormatTime("%Y%m%dT%H%M%SZ", FromTimestamp(log.when), absl::UTCTimeZone());
  return fmt::format("{}-{:x}-{}", disk, log.session.value, time);
}

// ---- loading

struct Expected {
  uint64_t names = 0;
  uint64_t ops = 0;
};

bool ParseAbout(std::string_view body, LostLog* log, Expected* expected) {
  ByteReader in(body);
  log->disk = in.LengthPrefixed();
  log->branch = in.LengthPrefixed();
  log->client_name = in.LengthPrefixed();
  log->reason = in.LengthPrefixed();
  log->session = SessionId(in.U64());
  log->when.sec = in.I64();
  log->when.nsec = in.U32();
  log->root = InodeId(in.U64());
  expected->names = in.U64();
  expected->ops = in.U64();
  return in.done() && log->when.nsec < 1'000'000'000;
}

bool ParseNames(std::string_view body, Names* names) {
  ByteReader in(body);
  while (!in.failed() && !in.done()) {
    const InodeId ino(in.Varint());
    const InodeId parent(in.Varint());
    const std::string_view name = in.LengthPrefixed();
    if (!in.failed()) names->insert_or_assign(ino, LostLog::Name{parent, std::string(name)});
  }
  return in.done();
}

// What of a record there is to say against; empty: it was taken.
std::string_view Take(const LostLogReader::Record& record, LostLog* log) {
  if (record.kind == LostRecord::kNames) {
    return log->ops.empty() && ParseNames(record.body, &log->names) ? "" : "holds no names";
  }
  if (record.kind != LostRecord::kOp && record.kind != LostRecord::kMoreExtents) {
    return "is of a kind that does not belong here";
  }
  Result<std::vector<Op>> ops = DecodeOps(record.body);
  if (!ops.ok() || ops->size() != 1) return "holds no operation";
  Op& op = ops->front();
  if (record.kind == LostRecord::kOp) {
    log->ops.push_back(std::move(op));
    return "";
  }
  auto* more = std::get_if<SetExtentsOp>(&op);
  auto* set = log->ops.empty() ? nullptr : std::get_if<SetExtentsOp>(&log->ops.back());
  if (more == nullptr || set == nullptr || more->ino != set->ino) {
    return "goes on with an operation that is not before it";
  }
  std::move(more->extents.begin(), more->extents.end(), std::back_inserter(set->extents));
  return "";
}

// Takes records until the end, or until the first bad one.
Status TakeAll(LostLogReader& in, const Expected& expected, LostLog* log) {
  for (;;) {
    ARCHIL_ASSIGN_OR_RETURN(const LostLogReader::Record record, in.Next());
    if (record.kind == LostRecord::kEnd) break;
    if (const std::string_view bad = Take(record, log); !bad.empty()) return in.Bad(bad);
  }
  if (log->ops.size() != expected.ops || log->names.size() != expected.names) {
    return in.Bad("is the end, but something is missing");
  }
  const Result<bool> at_end = in.AtEnd();
  return at_end.ok() && *at_end ? Ok() : in.Bad("is the end, but more follows");
}

}  // namespace

std::map<InodeId, LostLog::Name> NamesBefore(const std::vector<Op>& ops, std::map<InodeId, LostLog::Name> after) {
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    std::visit([&after](const auto& alternative) { Undo(alternative, after); }, *op);
  }
  return after;
}

Result<std::string> SaveLostLog(const std::string& dir, const LostLog& log) {
  return SaveLostLog(RealFiles(), dir, log);
}

Result<std::string> SaveLostLog(Files& files, const std::string& dir, const LostLog& log) {
  ARCHIL_RETURN_IF_ERROR(CheckExtents(log.ops));
  ARCHIL_RETURN_IF_ERROR(files.MakeDirs(dir));
  const std::string stem = FileStem(log);
  for (uint64_t n = 1; n <= kMaxFilesPerMoment; n++) {
    const std::string path = JoinPath(dir, fmt::format("{}-{}.archil-lost", stem, n));
    Result<std::unique_ptr<File>> file = files.Open(path, OpenMode::kCreateNew);
    if (file.code() == Code::kExists) continue;
    if (!file.ok()) return file.error();
    const Status written = WriteLog(log, **file);
    // What could be written is kept either way: a beginning is worth more than nothing.
    const Status synced = (*file)->Sync();
    const Status named = files.SyncDir(dir);
    for (const Status& status : {written, synced, named}) {
      if (!status.ok()) return status.error();
    }
    return path;
  }
  return Error(Code::kExists, fmt::format("{}/{}-*.archil-lost: all numbers are taken", dir, stem));
}

Result<LostLog> LoadLostLog(const std::string& path) { return LoadLostLog(RealFiles(), path); }

Result<LostLog> LoadLostLog(Files& files, const std::string& path) {
  ARCHIL_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.Open(path, OpenMode::kRead));
  const auto told = [&path](const Error& error) {
    return Error(error.code(), fmt::format("{}: {}", path, error.message()));
  };
  LostLogReader in(*file);
  if (const Status header = in.ReadHeader(); !header.ok()) return told(header.error());
  LostLog log;
  Expected expected;
  const Result<LostLogReader::Record> about = in.Next();
  if (!about.ok()) return told(about.error());
  if (about->kind != LostRecord::kAbout || !ParseAbout(about->body, &log, &expected)) {
    return told(in.Bad("does not tell what was lost"));
  }
  if (const Status rest = TakeAll(in, expected, &log); !rest.ok()) {
    const bool in_parts = !log.ops.empty() && std::holds_alternative<SetExtentsOp>(log.ops.back());
    log.damaged = fmt::format("{}; {} of {} operations are there{}", rest.error().message(), log.ops.size(),
                              expected.ops, in_parts ? ", the last one perhaps not whole" : "");
  }
  return log;
}

}  // namespace archil
