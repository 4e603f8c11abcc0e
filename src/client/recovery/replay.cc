#include "client/recovery/replay.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "client/recovery/replayer.h"

namespace archil {
namespace {

OpOutcome Nothing(std::string detail) { return {Outcome::kNothing, std::move(detail)}; }

// kNoData is what TargetOf says of a file that was removed before.
OpOutcome NotChanged(const Error& error) {
  return error.code() == Code::kNoData ? Nothing(std::string(error.message())) : Skipped(error);
}

}  // namespace

Status Replayer::MakeInode(const CreateOp& op, int dir, const std::string& name) {
  switch (op.type) {
    case FileType::kRegular: return MakeFile(dir, name);
    case FileType::kDirectory: return MakeDir(dir, name);
    case FileType::kSymlink: return MakeSymlink(dir, name, op.target);
    default: return MakeNode(dir, name, op.type, op.rdev);
  }
}

OpOutcome Replayer::operator()(const CreateOp& op) {
  const Name wanted{op.parent, op.name};
  Object& object = objects_[op.ino];
  object = Object();
  object.unmade = true;
  Result<Made> made = Code::kExists;
  if (overwrite() && op.type == FileType::kDirectory) {
    const Result<Spot> there = SpotOf(wanted, Missing::kMake);
    if (there.ok() && IsDirectory(Look(*there))) made = Made{wanted, false};
  }
  if (!made.ok()) made = MakeEntry(wanted, [&](int dir, const std::string& name) { return MakeInode(op, dir, name); });
  if (!made.ok()) return Skipped(made.error());
  object.unmade = false;
  object.ours = object.changed = true;
  object.links.push_back({wanted, made->at});
  object.mode = op.mode;
  object.atime = object.mtime = op.now;
  TouchParent(op.parent, op.now);
  OpOutcome outcome;
  if (made->beside) {
    outcome = {Outcome::kBeside, fmt::format("made as {}, for {} exists", PathOf(made->at), PathOf(wanted))};
  }
  const Result<Spot> spot = SpotOf(made->at, Missing::kFail);
  if (!spot.ok()) return Skipped(spot.error());
  SetOwnerAsAllowed(*spot, op.uid, op.gid, outcome);
  return outcome;
}

OpOutcome Replayer::operator()(const LinkOp& op) {
  Object& object = Get(op.ino);
  const Name wanted{op.parent, op.name};
  if (object.unmade) return Skipped("the file was not made");
  if (object.links.empty()) return Skipped("the file has no name any more");
  Result<Spot> source = SpotOf(object.links.front().at, Missing::kFail);
  if ((!source.ok() || Look(*source).code() == Code::kNotFound) && has_data_.count(op.ino) != 0) {
    const Result<Target> made = MakeSparse(op.ino);
    if (made.ok()) source = SpotOf(object.links.front().at, Missing::kFail);
  }
  const Result<Made> made =
      !source.ok() ? Result<Made>(source.error())
                   : MakeEntry(wanted, [&](int dir, const std::string& name) { return MakeLink(*source, dir, name); });
  if (!made.ok()) return Skipped(made.error());
  object.links.push_back({wanted, made->at});
  TouchParent(op.parent, op.now);
  if (!made->beside) return {};
  return {Outcome::kBeside, fmt::format("made as {}, for {} exists", PathOf(made->at), PathOf(wanted))};
}

// ---- attributes and data

OpOutcome Replayer::operator()(const SetAttrOp& op) {
  Result<Target> target = TargetOf(op.ino);
  if (!target.ok()) return NotChanged(target.error());
  Object& object = Get(op.ino);
  const Spot& spot = target->spot;
  OpOutcome& outcome = target->outcome;
  if (op.fields & SetAttrOp::kSize) {
    const Result<Fd> file = OpenForWrite(spot);
    const Status set = file.ok() ? SetSize(*file, op.size) : Status(file.error());
    if (!set.ok()) return Skipped(set.error());
    object.mtime = op.now;
  }
  if (op.fields & (SetAttrOp::kUid | SetAttrOp::kGid)) {
    const Result<struct stat> st = Look(spot);
    if (!st.ok()) return Skipped(st.error());
    // A change of owner takes set-id bits away; those that should stay are set again at the end.
    if (!object.mode) object.mode = st->st_mode & 07777;
    SetOwnerAsAllowed(spot, op.fields & SetAttrOp::kUid ? op.uid : st->st_uid,
                      op.fields & SetAttrOp::kGid ? op.gid : st->st_gid, outcome);
  }
  if (op.fields & SetAttrOp::kMode) object.mode = op.mode;
  if (op.fields & SetAttrOp::kAtime) object.atime = op.atime;
  if (op.fields & SetAttrOp::kMtime) object.mtime = op.mtime;
  return outcome;
}

// What went wrong; empty: nothing.
std::string Replayer::WriteExtent(const Fd& file, const Extent& extent) {
  if (extent.kind == ExtentKind::kSegment) {
    return fmt::format("{} bytes at {} could not be read any more when the file was saved", extent.length,
                       extent.offset);
  }
  Status done = Ok();
  if (extent.kind == ExtentKind::kInline) {
    done = WriteAt(file, extent.offset, extent.data.view());
  } else if (const Result<uint64_t> size = SizeOf(file); !size.ok()) {
    done = size.error();
  } else {
    if (*size < extent.end()) done = SetSize(file, extent.end());
    if (done.ok()) done = ZeroRange(file, extent.offset, extent.length);
  }
  return done.ok() ? "" : fmt::format("{} bytes at {}: {}", extent.length, extent.offset, done.error().message());
}

OpOutcome Replayer::operator()(const SetExtentsOp& op) {
  Result<Target> target = TargetOf(op.ino);
  if (!target.ok()) return NotChanged(target.error());
  Object& object = Get(op.ino);
  OpOutcome& outcome = target->outcome;
  const Result<struct stat> st = Look(target->spot);
  const Result<Fd> file = OpenForWrite(target->spot);
  if (!st.ok() || !file.ok()) return Skipped(st.ok() ? file.error() : st.error());
  const auto fail = [&outcome](const std::string& what) {
    outcome.outcome = Outcome::kSkipped;
    AddDetail(outcome, what);
  };
  for (const Extent& extent : op.extents) {
    if (const std::string wrong = WriteExtent(*file, extent); !wrong.empty()) fail(wrong);
  }
  const Result<uint64_t> size = SizeOf(*file);
  const Status grown = !size.ok() ? Status(size.error()) : *size < op.size ? SetSize(*file, op.size) : Ok();
  if (!grown.ok()) fail(std::string(grown.error().message()));
  object.mode = object.mode.value_or(st->st_mode & 07777) & ~op.clear_mode;
  object.mtime = op.mtime;
  return outcome;
}

OpOutcome Replayer::operator()(const ClearRangeOp& op) {
  Result<Target> target = TargetOf(op.ino);
  if (!target.ok()) return NotChanged(target.error());
  const Result<Fd> file = OpenForWrite(target->spot);
  if (!file.ok()) return Skipped(file.error());
  const Result<uint64_t> size = SizeOf(*file);
  Status done = !size.ok() ? Status(size.error()) : *size < op.size ? SetSize(*file, op.size) : Ok();
  if (done.ok()) {
    switch (op.kind) {
      case ClearRangeOp::Kind::kPunch: done = PunchHole(*file, op.offset, op.length); break;
      case ClearRangeOp::Kind::kZero: done = ZeroRange(*file, op.offset, op.length); break;
      case ClearRangeOp::Kind::kAllocate: done = Allocate(*file, op.offset, op.length); break;
    }
  }
  if (!done.ok()) return Skipped(done.error());
  Get(op.ino).mtime = op.now;
  return target->outcome;
}

OpOutcome Replayer::operator()(const SetXattrOp& op) {
  Result<Target> target = TargetOf(op.ino);
  if (!target.ok()) return NotChanged(target.error());
  const Status set = SetXattr(target->spot, op.name, op.value);
  return set.ok() ? target->outcome : Skipped(set.error());
}

OpOutcome Replayer::operator()(const RemoveXattrOp& op) {
  Result<Target> target = TargetOf(op.ino);
  if (!target.ok()) return NotChanged(target.error());
  const Status removed = RemoveXattr(target->spot, op.name);
  return removed.ok() ? target->outcome : Skipped(removed.error());
}

OpOutcome Replayer::operator()(const TouchOp& op) {
  Object& object = Get(op.ino);
  if (object.unmade) return Skipped("it was not made");
  if (!object.ours && !overwrite()) return Nothing("times of a directory that existed before");
  Result<Target> target = TargetOf(op.ino);
  if (!target.ok()) return NotChanged(target.error());
  object.mtime = op.mtime;
  return target->outcome;
}

// ---- removals and renames

OpOutcome Replayer::Remove(InodeId ino, const Name& name, Status (*remove)(const Spot&)) {
  Object& object = Get(ino);
  if (object.unmade) return Nothing("it was not made");
  const Link link = LinkOf(object, name);
  std::erase_if(object.links, [&name](const Link& other) { return other.name == name; });
  const Result<Spot> spot = SpotOf(link.at, Missing::kFail);
  if (!spot.ok()) return Skipped(spot.error());
  const Result<struct stat> st = Look(*spot);
  if (st.code() == Code::kNotFound) return Skipped(fmt::format("{} is not there", PathOf(link.at)));
  const bool may = object.ours || overwrite();
  const Status removed =
      may ? remove(*spot) : Error(Code::kExists, "it existed before and stays; --overwrite removes it");
  if (removed.ok()) {
    touched_dirs_.insert(link.at.parent);
    return {};
  }
  if (IsDirectory(st)) object.links.push_back(link);  // it is still the place of what is in it
  return Skipped(fmt::format("{}: {}", PathOf(link.at), removed.error().message()));
}

void Replayer::MoveCopy(Object& object, const Name& to, OpOutcome& outcome) {
  if (!object.copy) return;
  const Result<Spot> from = SpotOf(*object.copy, Missing::kFail);
  if (!from.ok()) return;
  const Result<Made> moved = MakeBeside(
      to, [&](int dir, const std::string& name) { return Rename(*from, dir, name, RenameKind::kNoReplace); });
  if (!moved.ok()) return;  // it stays where it is
  object.copy = moved->at;
  outcome.outcome = Outcome::kBeside;
  AddDetail(outcome, fmt::format("what was lost is now in {}", PathOf(moved->at)));
}

// Moves one link; where it is afterwards stands in `link.at`.
OpOutcome Replayer::Move(Object& object, Link& link, const Name& to, bool replace) {
  const Result<Spot> from = SpotOf(link.at, Missing::kFail);
  if (!from.ok() || Look(*from).code() == Code::kNotFound) {
    const OpOutcome gone = Skipped(fmt::format("{} is not there", PathOf(link.at)));
    link.at = to;  // its lost bytes will be made there
    return gone;
  }
  const Result<Spot> target = SpotOf(to, Missing::kMake);
  if (!target.ok()) return Skipped(target.error());
  const Status moved =
      Rename(*from, target->dir.get(), target->name, replace ? RenameKind::kReplace : RenameKind::kNoReplace);
  const InodeId old_parent = link.at.parent;
  if (moved.ok()) {
    link.at = to;
    touched_dirs_.insert({old_parent, to.parent});
    OpOutcome outcome;
    MoveCopy(object, to, outcome);
    return outcome;
  }
  const bool taken = moved.code() == Code::kExists || moved.code() == Code::kNotEmpty ||
                     moved.code() == Code::kIsDirectory || moved.code() == Code::kNotDirectory;
  if (!taken) return Skipped(moved.error());
  if (!object.ours) {
    return Skipped(fmt::format("{} exists, and {} existed before: both stay", PathOf(to), PathOf(link.at)));
  }
  const Result<Made> beside = MakeBeside(
      to, [&](int dir, const std::string& name) { return Rename(*from, dir, name, RenameKind::kNoReplace); });
  if (!beside.ok()) return Skipped(beside.error());
  link.at = beside->at;
  touched_dirs_.insert({old_parent, to.parent});
  return {Outcome::kBeside, fmt::format("it is {}, for {} exists", PathOf(beside->at), PathOf(to))};
}

OpOutcome Replayer::operator()(const RenameOp& op) {
  if (op.ino == op.victim) return Nothing("two names of one file");
  if (op.mode == RenameOp::Mode::kExchange) return Exchange(op);
  const Name from{op.parent, op.name}, to{op.new_parent, op.new_name};
  Object& object = Get(op.ino);
  if (object.unmade) return Skipped("it was not made");
  Name target = to;
  bool replace = overwrite();
  if (op.victim) {
    Object& victim = Get(op.victim);
    const Name at = victim.unmade ? to : LinkOf(victim, to).at;
    if (victim.ours) target = at;
    replace = replace || victim.ours;
    std::erase_if(victim.links, [&to](const Link& link) { return link.name == to; });
  }
  Link& link = LinkOf(object, from);
  OpOutcome outcome = Move(object, link, target, replace);
  link.name = to;
  if (outcome.outcome == Outcome::kSkipped) return outcome;
  TouchParent(op.parent, op.now);
  TouchParent(op.new_parent, op.now);
  if (outcome.outcome == Outcome::kDone && target != to) {
    outcome = {Outcome::kBeside, fmt::format("it is {}, for {} existed before", PathOf(target), PathOf(to))};
  }
  return outcome;
}

OpOutcome Replayer::Exchange(const RenameOp& op) {
  Object& first = Get(op.ino);
  Object& second = Get(op.victim);
  if (first.unmade || second.unmade) return Skipped("one of the two was not made");
  const Name from{op.parent, op.name}, to{op.new_parent, op.new_name};
  Link& one = LinkOf(first, from);
  Link& other = LinkOf(second, to);
  one.name = to;
  other.name = from;
  if (!overwrite() && (!first.ours || !second.ours)) {
    return Skipped(fmt::format("{} and {} stay, for one of them existed before; --overwrite exchanges them",
                               PathOf(one.at), PathOf(other.at)));
  }
  const Result<Spot> a = SpotOf(one.at, Missing::kFail);
  const Result<Spot> b = SpotOf(other.at, Missing::kFail);
  if (!a.ok() || !b.ok()) return Skipped(a.ok() ? b.error() : a.error());
  const Status done = Rename(*a, b->dir.get(), b->name, RenameKind::kExchange);
  if (!done.ok()) return Skipped(done.error());
  std::swap(one.at, other.at);
  TouchParent(op.parent, op.now);
  TouchParent(op.new_parent, op.now);
  return {};
}

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone: return "done";
    case Outcome::kNothing: return "nothing";
    case Outcome::kBeside: return "beside";
    case Outcome::kSkipped: return "skipped";
  }
  return "unknown";
}

bool ReplayReport::Complete() const {
  return at_the_end.empty() && std::all_of(ops.begin(), ops.end(), [](const OpOutcome& op) {
           return op.outcome == Outcome::kDone || op.outcome == Outcome::kNothing;
         });
}

Result<ReplayReport> Replay(const LostLog& log, const std::string& dir, ReplayMode mode) {
  ARCHIL_ASSIGN_OR_RETURN(ReplayTree tree, ReplayTree::Open(dir));
  Replayer replayer(log, std::move(tree), mode);
  ReplayReport report;
  for (const Op& op : log.ops) report.ops.push_back(replayer.Do(op));
  report.at_the_end = replayer.Finish();
  return report;
}

}  // namespace archil
