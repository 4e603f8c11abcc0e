// Replayer: the state of one replay (replay.h): where each inode of the ops is below the directory, and what may be
// done to it. Internal to this room. One object for one replay: Do for each op in order, then Finish.
//   replay.cc         the ops
//   replay_places.cc  inodes, their places, names beside others, where changes go; the end
#pragma once

#include <sys/stat.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/recovery/replay.h"
#include "client/recovery/replay_tree.h"

namespace archil {

class Replayer {
 public:
  Replayer(const LostLog& log, ReplayTree tree, ReplayMode mode);
  OpOutcome Do(const Op& op);
  std::vector<std::string> Finish();

  OpOutcome operator()(const CreateOp& op);
  OpOutcome operator()(const LinkOp& op);
  OpOutcome operator()(const UnlinkOp& op) { return Remove(op.ino, {op.parent, op.name}, ::archil::Unlink); }
  OpOutcome operator()(const RmdirOp& op) { return Remove(op.ino, {op.parent, op.name}, ::archil::Rmdir); }
  OpOutcome operator()(const RenameOp& op);
  OpOutcome operator()(const SetAttrOp& op);
  OpOutcome operator()(const SetExtentsOp& op);
  OpOutcome operator()(const ClearRangeOp& op);
  OpOutcome operator()(const SetXattrOp& op);
  OpOutcome operator()(const RemoveXattrOp& op);
  OpOutcome operator()(const ReleaseOrphanOp&) { return {Outcome::kNothing, ""}; }
  OpOutcome operator()(const TouchOp& op);

 private:
  using Name = LostLog::Name;

  // One name of an inode: what the ops call it, and where it is below the directory.
  struct Link {
    Name name;
    Name at;
  };

  struct Object {
    bool ours = false;      // made by this replay, so that it may be changed and removed
    bool unmade = false;    // its creation was skipped
    bool nameless = false;  // no name is known; its place is made up
    bool changed = false;   // to be synced
    std::vector<Link> links;
    std::optional<Name> copy;  // its lost bytes beside the base file
    // Set at the end.
    std::optional<uint32_t> mode;
    std::optional<Timestamp> atime, mtime;
  };

  // Where changes of an inode go.
  struct Target {
    Spot spot;
    OpOutcome outcome;
  };

  struct Made {
    Name at;
    bool beside = false;
  };

  enum class Missing : uint8_t { kMake, kFail };

  bool overwrite() const { return mode_ == ReplayMode::kOverwrite; }
  Object& Get(InodeId ino);
  Link& LinkOf(Object& object, const Name& name);
  // Inodes from below the root down to this directory.
  Result<std::vector<InodeId>> Chain(InodeId ino);
  Result<Fd> OpenDir(InodeId ino, Missing missing);
  Result<Spot> SpotOf(const Name& at, Missing missing);
  std::string PathOf(const Name& at);
  void TouchParent(InodeId parent, Timestamp now);

  Result<Made> MakeBeside(const Name& wanted, const std::function<Status(int dir, const std::string& name)>& make);
  Result<Made> MakeEntry(const Name& wanted, const std::function<Status(int dir, const std::string& name)>& make);
  Status MakeInode(const CreateOp& op, int dir, const std::string& name);
  Result<Target> TargetOf(InodeId ino);
  Result<Target> MakeSparse(InodeId ino);
  Result<Target> MakeCopy(InodeId ino, const struct stat& base);
  void SetOwnerAsAllowed(const Spot& spot, uint32_t uid, uint32_t gid, OpOutcome& outcome);
  OpOutcome Remove(InodeId ino, const Name& name, Status (*remove)(const Spot&));
  OpOutcome Exchange(const RenameOp& op);
  OpOutcome Move(Object& object, Link& link, const Name& to, bool replace);
  void MoveCopy(Object& object, const Name& to, OpOutcome& outcome);
  std::string WriteExtent(const Fd& file, const Extent& extent);
  void FinishOne(InodeId ino, const Object& object, std::vector<std::string>& failures);

  const ReplayTree tree_;
  const ReplayMode mode_;
  const InodeId root_;
  const std::map<InodeId, Name>& names_;
  std::set<InodeId> has_data_;  // some op changes their bytes
  std::set<InodeId> touched_dirs_;
  std::map<InodeId, Object> objects_;
  std::vector<std::string> made_dirs_;  // by the op that is being done
};

// Words for outcomes.
OpOutcome Skipped(std::string detail);
OpOutcome Skipped(const Error& error);
void AddDetail(OpOutcome& outcome, const std::string& detail);
bool IsDirectory(const Result<struct stat>& st);

}  // namespace archil
