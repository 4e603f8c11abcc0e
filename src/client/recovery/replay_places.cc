#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "client/recovery/path_names.h"
#include "client/recovery/replayer.h"

namespace archil {
namespace {

constexpr std::string_view kSuffix = ".recovered";
constexpr int kMaxBeside = 1000;  // names tried

timespec ToTimespec(const std::optional<Timestamp>& t) {
  if (!t) return {0, UTIME_OMIT};
  return {static_cast<time_t>(t->sec), static_cast<long>(t->nsec)};
}

}  // namespace

OpOutcome Skipped(std::string detail) { return {Outcome::kSkipped, std::move(detail)}; }
OpOutcome Skipped(const Error& error) {
  return Skipped(std::string(error.message().empty() ? CodeName(error.code()) : error.message()));
}

void AddDetail(OpOutcome& outcome, const std::string& detail) {
  if (!outcome.detail.empty()) outcome.detail += "; ";
  outcome.detail += detail;
}

bool IsDirectory(const Result<struct stat>& st) { return st.ok() && S_ISDIR(st->st_mode); }

Replayer::Replayer(const LostLog& log, ReplayTree tree, ReplayMode mode)
    : tree_(std::move(tree)), mode_(mode), root_(log.root), names_(log.names) {
  for (const Op& op : log.ops) {
    if (const auto* set = std::get_if<SetExtentsOp>(&op)) has_data_.insert(set->ino);
    if (const auto* clear = std::get_if<ClearRangeOp>(&op)) has_data_.insert(clear->ino);
    const auto* attr = std::get_if<SetAttrOp>(&op);
    if (attr != nullptr && (attr->fields & SetAttrOp::kSize)) has_data_.insert(attr->ino);
  }
}

OpOutcome Replayer::Do(const Op& op) {
  made_dirs_.clear();
  OpOutcome outcome = std::visit(*this, op);
  for (const std::string& dir : made_dirs_) {
    AddDetail(outcome, fmt::format("directory {} was missing and was made", dir));
  }
  return outcome;
}

// ---- inodes and places

Replayer::Object& Replayer::Get(InodeId ino) {
  const auto [it, unseen] = objects_.try_emplace(ino);
  Object& object = it->second;
  if (!unseen || ino == root_) return object;
  const auto name = names_.find(ino);
  object.nameless = name == names_.end();
  const Name at = object.nameless ? Name{root_, fmt::format("inode-{}{}", ino.value, kSuffix)} : name->second;
  object.links.push_back({at, at});
  return object;
}

// The link of this name; an op that names an inode so tells of a name that was not known.
Replayer::Link& Replayer::LinkOf(Object& object, const Name& name) {
  for (Link& link : object.links) {
    if (link.name == name) return link;
  }
  if (object.nameless) object.links.clear();
  object.nameless = false;
  object.links.push_back({name, name});
  return object.links.back();
}

Result<std::vector<InodeId>> Replayer::Chain(InodeId ino) {
  std::vector<InodeId> chain;
  while (ino != root_) {
    const Object& object = Get(ino);
    if (object.unmade || object.links.empty()) return Error(Code::kNotFound, "its directory is not there");
    if (chain.size() >= kMaxPathDepth) return Error(Code::kLoop, "its directory is too deep");
    chain.push_back(ino);
    ino = object.links.front().at.parent;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

Result<Fd> Replayer::OpenDir(InodeId ino, Missing missing) {
  ARCHIL_ASSIGN_OR_RETURN(const std::vector<InodeId> chain, Chain(ino));
  std::vector<std::string> names;
  size_t make_from = 0;  // behind the last one that this replay made: below it nothing was ever missing
  for (const InodeId dir : chain) {
    const Object& object = Get(dir);
    names.push_back(object.links.front().at.name);
    if (object.ours) make_from = names.size();
  }
  if (missing == Missing::kFail) make_from = names.size();
  Result<Fd> dir = tree_.OpenDir(names, make_from, [&](size_t i) {
    Object& made = Get(chain[i]);
    made.ours = made.changed = true;
    touched_dirs_.insert(made.links.front().at.parent);
    made_dirs_.push_back(PathOf(made.links.front().at));
  });
  if (!dir.ok() && dir.code() == Code::kNotFound) return Error(Code::kNotFound, "its directory is not there");
  if (!dir.ok() && dir.code() == Code::kNotDirectory) {
    return Error(Code::kNotDirectory, "what is in the place of its directory, or above it, is none");
  }
  return dir;
}

Result<Spot> Replayer::SpotOf(const Name& at, Missing missing) {
  if (!IsValidName(at.name)) return Error(Code::kInvalid, "it has a name that is none");
  ARCHIL_ASSIGN_OR_RETURN(Fd dir, OpenDir(at.parent, missing));
  return Spot{std::move(dir), at.name};
}

std::string Replayer::PathOf(const Name& at) {
  const Result<std::vector<InodeId>> chain = Chain(at.parent);
  std::string path;
  if (!chain.ok()) return "…/" + Printable(at.name);
  for (const InodeId dir : *chain) path += "/" + Printable(Get(dir).links.front().at.name);
  return path + "/" + Printable(at.name);
}

// The times of a directory whose entries an op changed; a base directory keeps what the system gives it.
void Replayer::TouchParent(InodeId parent, Timestamp now) {
  touched_dirs_.insert(parent);
  Object& object = Get(parent);
  if (object.ours) object.mtime = now;
}

// ---- making entries

// NAME.recovered, NAME.recovered-2 …: the first that is free.
Result<Replayer::Made> Replayer::MakeBeside(const Name& wanted,
                                            const std::function<Status(int dir, const std::string& name)>& make) {
  ARCHIL_ASSIGN_OR_RETURN(const Spot spot, SpotOf(wanted, Missing::kMake));
  for (int n = 1; n <= kMaxBeside; n++) {
    const std::string suffix = n == 1 ? std::string(kSuffix) : fmt::format("{}-{}", kSuffix, n);
    const std::string name = wanted.name.substr(0, kMaxName - suffix.size()) + suffix;
    const Status made = make(spot.dir.get(), name);
    if (made.ok()) return Made{{wanted.parent, name}, true};
    if (made.code() != Code::kExists) return made.error();
  }
  return Error(Code::kExists, "all names beside it are taken");
}

Result<Replayer::Made> Replayer::MakeEntry(const Name& wanted,
                                           const std::function<Status(int dir, const std::string& name)>& make) {
  ARCHIL_ASSIGN_OR_RETURN(const Spot spot, SpotOf(wanted, Missing::kMake));
  const Status made = make(spot.dir.get(), wanted.name);
  if (made.ok()) return Made{wanted, false};
  if (made.code() != Code::kExists) return made.error();
  ARCHIL_ASSIGN_OR_RETURN(const Made beside, MakeBeside(wanted, make));
  if (!overwrite() || IsDirectory(Look(spot))) return beside;
  // Replaced only when the new one is there.
  ARCHIL_ASSIGN_OR_RETURN(const Spot fresh, SpotOf(beside.at, Missing::kFail));
  if (!Rename(fresh, spot.dir.get(), spot.name, RenameKind::kReplace).ok()) return beside;
  (void)Unlink(fresh);  // still there if both were names of one file, which rename(2) leaves alone
  return Made{wanted, false};
}

void Replayer::SetOwnerAsAllowed(const Spot& spot, uint32_t uid, uint32_t gid, OpOutcome& outcome) {
  const Result<struct stat> st = Look(spot);
  if (st.ok() && st->st_uid == uid && st->st_gid == gid) return;
  if (SetOwner(spot, uid, gid).ok()) return;
  AddDetail(outcome, fmt::format("its owner {}:{} may not be set", uid, gid));
  (void)SetOwner(spot, -1, gid);  // the group alone is often allowed
}

// ---- where changes of an inode go

Result<Replayer::Target> Replayer::MakeSparse(InodeId ino) {
  Object& object = Get(ino);
  const Name at = object.links.front().at;
  ARCHIL_ASSIGN_OR_RETURN(Spot spot, SpotOf(at, Missing::kMake));
  ARCHIL_RETURN_IF_ERROR(MakeFile(spot.dir.get(), spot.name));
  object.ours = object.changed = true;
  touched_dirs_.insert(at.parent);
  const std::string_view why = object.nameless ? "its name is not known" : "it was not there";
  return Target{std::move(spot),
                {Outcome::kDone, fmt::format("{}: {} was made, only what was lost is in it", why, PathOf(at))}};
}

Result<Replayer::Target> Replayer::MakeCopy(InodeId ino, const struct stat& base) {
  Object& object = Get(ino);
  const Name at = object.links.front().at;
  ARCHIL_ASSIGN_OR_RETURN(const Made made, MakeBeside(at, MakeFile));
  object.copy = made.at;
  object.changed = true;
  object.mode = base.st_mode & 0777;
  touched_dirs_.insert(at.parent);
  ARCHIL_ASSIGN_OR_RETURN(Spot spot, SpotOf(made.at, Missing::kFail));
  OpOutcome outcome{Outcome::kBeside, fmt::format("{} existed before: only what was lost is in {}, beside it",
                                                  PathOf(at), PathOf(made.at))};
  SetOwnerAsAllowed(spot, base.st_uid, base.st_gid, outcome);
  return Target{std::move(spot), std::move(outcome)};
}

// Errors have the words for the outcome; kNoData: nothing to do.
Result<Replayer::Target> Replayer::TargetOf(InodeId ino) {
  Object& object = Get(ino);
  if (object.unmade) return Error(Code::kNotFound, "it was not made");
  const bool has_data = has_data_.count(ino) != 0;
  if (object.copy) {
    ARCHIL_ASSIGN_OR_RETURN(Spot spot, SpotOf(*object.copy, Missing::kFail));
    return Target{std::move(spot), {Outcome::kBeside, "in " + PathOf(*object.copy)}};
  }
  if (ino != root_ && object.links.empty()) return Error(Code::kNoData, "it was removed before");
  Result<Spot> spot =
      ino == root_ ? tree_.Top() : SpotOf(object.links.front().at, has_data ? Missing::kMake : Missing::kFail);
  if (!spot.ok()) return spot.error();
  if (object.ours) return Target{std::move(*spot), {}};
  const Result<struct stat> st = Look(*spot);
  if (st.code() == Code::kNotFound) {
    return has_data ? MakeSparse(ino) : Result<Target>(Error(Code::kNotFound, "it is not there"));
  }
  if (!st.ok()) return st.error();
  const bool in_place = overwrite() && (!has_data || S_ISREG(st->st_mode));
  if (in_place) object.changed = true;
  if (in_place) return Target{std::move(*spot), {}};
  if (has_data) return MakeCopy(ino, *st);
  return Error(Code::kExists, "it existed before; --overwrite changes it");
}

// ---- the end

void Replayer::FinishOne(InodeId ino, const Object& object, std::vector<std::string>& failures) {
  const Name* at = object.copy ? &*object.copy : object.links.empty() ? nullptr : &object.links.front().at;
  if (at == nullptr && ino != root_) return;
  const Result<Spot> spot = ino == root_ ? tree_.Top() : SpotOf(*at, Missing::kFail);
  const std::string path = ino == root_ ? "/" : PathOf(*at);
  if (!spot.ok()) return failures.push_back(fmt::format("{}: {}", path, spot.error().message()));
  const timespec times[2] = {ToTimespec(object.atime), ToTimespec(object.mtime)};
  const Status set[] = {
      object.mode ? SetMode(*spot, *object.mode) : Ok(),
      object.atime || object.mtime ? SetTimes(*spot, times) : Ok(),
  };
  for (const Status& status : set) {
    if (!status.ok()) failures.push_back(fmt::format("{}: {}", path, status.error().message()));
  }
}

// Durable first: a mode may forbid the opening that it takes.
std::vector<std::string> Replayer::Finish() {
  std::vector<std::string> failures;
  std::vector<std::pair<size_t, InodeId>> order;  // depth, inode
  for (auto& [ino, object] : objects_) {
    if (!object.changed && !object.ours && !object.mode && !object.atime && !object.mtime) continue;
    if (ino != root_ && object.links.empty() && !object.copy) continue;
    const InodeId parent = ino == root_ ? root_ : object.copy ? object.copy->parent : object.links.front().at.parent;
    const Result<std::vector<InodeId>> chain = Chain(parent);
    order.emplace_back(ino == root_ ? 0 : chain.ok() ? chain->size() + 1 : kMaxPathDepth, ino);
  }
  const auto sync = [&](const Result<Spot>& spot, const std::string& path) {
    const Status synced = spot.ok() ? SyncEntry(*spot) : Ok();
    if (!synced.ok()) failures.push_back(fmt::format("{}: {}", path, synced.error().message()));
  };
  for (const auto& [depth, ino] : order) {
    const Object& object = objects_[ino];
    if (ino == root_ || !object.changed) continue;
    const Name& at = object.copy ? *object.copy : object.links.front().at;
    sync(SpotOf(at, Missing::kFail), PathOf(at));
  }
  for (const InodeId dir : touched_dirs_) {
    if (dir == root_) {
      sync(tree_.Top(), "/");
    } else if (const Object& object = Get(dir); !object.links.empty() && !object.unmade) {
      sync(SpotOf(object.links.front().at, Missing::kFail), PathOf(object.links.front().at));
    }
  }
  std::sort(order.rbegin(), order.rend());
  for (const auto& [depth, ino] : order) FinishOne(ino, objects_[ino], failures);
  return failures;
}

}  // namespace archil
