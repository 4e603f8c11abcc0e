#include "server/meta/ops/server_op.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/posix/attributes.h"
#include "common/posix/entries.h"
#include "common/posix/rename.h"
#include "server/meta/ops/op_env.h"

namespace archil {
namespace {

constexpr char kCapability[] = "security.capability";
constexpr int kMaxDepth = 1 << 20;

Result<const InodeRecord*> Directory(Txn& txn, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* dir, txn.FindInode(ino));
  if (dir == nullptr) return Code::kNotFound;
  if (dir->attr.type != FileType::kDirectory) return Code::kNotDirectory;
  if (dir->attr.nlink == 0) return Code::kNotFound;  // a removed directory
  return dir;
}

Result<const InodeRecord*> Existing(Txn& txn, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, txn.FindInode(ino));
  if (inode == nullptr) return Code::kStale;
  return inode;
}

// 0: nothing.
Result<InodeId> Child(Txn& txn, InodeId dir, const std::string& name) {
  ARCHIL_ASSIGN_OR_RETURN(const auto raw, txn.Get(DentryKey(dir, name)));
  if (!raw) return InodeId{0};
  ARCHIL_ASSIGN_OR_RETURN(const DentryRecord dentry, DecodeDentry(*raw));
  return dentry.ino;
}

Result<const InodeRecord*> Shown(Txn& txn, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, txn.FindInode(ino));
  if (inode == nullptr) return Error(Code::kCorrupt, "a name shows an inode that does not exist");
  return inode;
}

// No change leaves a ctime equal or lower.
void After(Timestamp& now, const InodeRecord* inode) { now = std::max(now, AddNanosecond(inode->attr.ctime)); }

Result<ServerOpPlan> Plan(Txn& txn, const ApplyOpRequest&, CreateOp op) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(op.name)));
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* parent, Directory(txn, op.parent));
  ARCHIL_ASSIGN_OR_RETURN(const InodeId child, Child(txn, op.parent, op.name));
  if (child) return Code::kExists;
  const NewInodeOwner owner = OwnerOfNewInode(parent->attr, op.type, op.mode, op.gid);
  op.gid = owner.gid;
  op.mode = owner.mode;
  After(op.now, parent);
  const InodeId ino = op.ino;
  return ServerOpPlan{{std::move(op)}, ino, InodeId{0}};
}

Result<ServerOpPlan> Plan(Txn& txn, const ApplyOpRequest&, LinkOp op) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(op.name)));
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* parent, Directory(txn, op.parent));
  ARCHIL_ASSIGN_OR_RETURN(const InodeId child, Child(txn, op.parent, op.name));
  if (child) return Code::kExists;
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, txn.FindInode(op.ino));
  if (inode == nullptr) return Code::kNotFound;
  ARCHIL_RETURN_IF_ERROR(Status(CheckLink(inode->attr.type, inode->attr.nlink)));
  After(op.now, parent);
  After(op.now, inode);
  const InodeId ino = op.ino;
  return ServerOpPlan{{std::move(op)}, ino, InodeId{0}};
}

template <class RemovalOp>
Result<ServerOpPlan> PlanRemoval(Txn& txn, RemovalOp op) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(op.name)));
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* parent, Directory(txn, op.parent));
  ARCHIL_ASSIGN_OR_RETURN(op.ino, Child(txn, op.parent, op.name));
  if (!op.ino) return Code::kNotFound;
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, Shown(txn, op.ino));
  if constexpr (std::is_same_v<RemovalOp, RmdirOp>) {
    ARCHIL_RETURN_IF_ERROR(Status(CheckRmdir(op.ino, inode->attr.type, inode->attr.size == 0)));
  } else {
    ARCHIL_RETURN_IF_ERROR(Status(CheckUnlink(inode->attr.type)));
  }
  After(op.now, parent);
  After(op.now, inode);
  op.still_open = false;  // what the session has open it has told
  const bool last = inode->attr.type == FileType::kDirectory || inode->attr.nlink <= 1;
  const InodeId removed = last ? op.ino : InodeId{0};
  return ServerOpPlan{{std::move(op)}, InodeId{0}, removed};
}

Result<ServerOpPlan> Plan(Txn& txn, const ApplyOpRequest&, UnlinkOp op) { return PlanRemoval(txn, std::move(op)); }
Result<ServerOpPlan> Plan(Txn& txn, const ApplyOpRequest&, RmdirOp op) { return PlanRemoval(txn, std::move(op)); }

// `ino` is `dir`, or a directory above it.
Result<bool> IsAbove(Txn& txn, InodeId ino, InodeId dir) {
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    if (dir == ino) return true;
    if (dir == kRootInode) return false;
    ARCHIL_ASSIGN_OR_RETURN(const auto parents, txn.List(ParentPrefix(dir)));
    if (parents.size() != 1)
      return Error(Code::kCorrupt, fmt::format("directory {} has {} parents", dir.value, parents.size()));
    dir = ParentOfKey(parents[0].first);
  }
  return Error(Code::kCorrupt, "the path to the root does not end");
}

Result<ServerOpPlan> Plan(Txn& txn, const ApplyOpRequest&, RenameOp op) {
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(op.name)));
  ARCHIL_RETURN_IF_ERROR(Status(CheckName(op.new_name)));
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* parent, Directory(txn, op.parent));
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* new_parent, Directory(txn, op.new_parent));
  ARCHIL_ASSIGN_OR_RETURN(op.ino, Child(txn, op.parent, op.name));
  if (!op.ino) return Code::kNotFound;
  ARCHIL_ASSIGN_OR_RETURN(op.victim, Child(txn, op.new_parent, op.new_name));
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* moved, Shown(txn, op.ino));
  const InodeRecord* victim = nullptr;
  RenameFacts facts;
  facts.mode = op.mode;
  facts.source = op.ino;
  facts.source_type = moved->attr.type;
  facts.same_parent = op.parent == op.new_parent;
  if (moved->attr.type == FileType::kDirectory) {
    ARCHIL_ASSIGN_OR_RETURN(facts.source_above_new_parent, IsAbove(txn, op.ino, op.new_parent));
  }
  if (op.victim) {
    ARCHIL_ASSIGN_OR_RETURN(victim, Shown(txn, op.victim));
    facts.target = op.victim;
    facts.target_type = victim->attr.type;
    facts.target_empty = victim->attr.size == 0;
    if (victim->attr.type == FileType::kDirectory) {
      ARCHIL_ASSIGN_OR_RETURN(facts.target_above_old_parent, IsAbove(txn, op.victim, op.parent));
    }
  }
  const RenameDecision decision = DecideRename(facts);
  if (decision.code != Code::kOk) return decision.code;
  if (decision.action == RenameAction::kNothing) return ServerOpPlan{};
  for (const InodeRecord* touched : {parent, new_parent, moved, victim}) {
    if (touched != nullptr) After(op.now, touched);
  }
  op.victim_still_open = false;
  const bool last = decision.action == RenameAction::kReplace &&
                    (victim->attr.type == FileType::kDirectory || victim->attr.nlink <= 1);
  const InodeId removed = last ? op.victim : InodeId{0};
  return ServerOpPlan{{std::move(op)}, InodeId{0}, removed};
}

Result<ServerOpPlan> Plan(Txn& txn, const ApplyOpRequest& request, SetAttrOp op) {
  using F = ApplyOpRequest;
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, Existing(txn, op.ino));
  const Attr& attr = inode->attr;
  const bool resize = (op.fields & SetAttrOp::kSize) != 0;
  if (resize) ARCHIL_RETURN_IF_ERROR(Status(CheckTruncate(attr.type, op.size)));
  After(op.now, inode);
  const bool chown = (op.fields & (SetAttrOp::kUid | SetAttrOp::kGid)) != 0;
  uint32_t mode = (op.fields & SetAttrOp::kMode) != 0 ? op.mode : attr.mode;
  if (chown && (op.fields & SetAttrOp::kMode) == 0) mode &= ~SetIdClearedByChown(attr.type, mode);
  if ((request.flags & F::kKillSetId) != 0) mode &= ~SetIdClearedByWrite(attr.type, mode);
  if (mode != attr.mode) op.fields |= SetAttrOp::kMode;
  op.mode = mode;
  if (resize && (op.fields & SetAttrOp::kMtime) == 0) {
    op.fields |= SetAttrOp::kMtime;
    op.mtime = op.now;
  }
  if ((request.flags & F::kAtimeNow) != 0) op.atime = op.now;
  if ((request.flags & F::kMtimeNow) != 0) op.mtime = op.now;
  ServerOpPlan plan{{}, op.ino, InodeId{0}};
  // Whoever changes a file's bytes or owner takes its capabilities (capabilities(7)).
  if ((chown || resize) && attr.type == FileType::kRegular) {
    ARCHIL_ASSIGN_OR_RETURN(const auto large, txn.Get(XattrKey(op.ino, kCapability)));
    if (large || inode->xattrs.contains(kCapability)) plan.ops.push_back(RemoveXattrOp{op.ino, kCapability, op.now});
  }
  plan.ops.push_back(std::move(op));
  return plan;
}

Result<bool> HasXattr(Txn& txn, const InodeRecord& inode, const std::string& name) {
  if (inode.xattrs.contains(name)) return true;
  ARCHIL_ASSIGN_OR_RETURN(const auto large, txn.Get(XattrKey(inode.attr.ino, name)));
  return large.has_value();
}

Result<ServerOpPlan> Plan(Txn& txn, const ApplyOpRequest& request, SetXattrOp op) {
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, Existing(txn, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(const bool present, HasXattr(txn, *inode, op.name));
  if ((request.flags & ApplyOpRequest::kMustBeNew) != 0 && present) return Code::kExists;
  if ((request.flags & ApplyOpRequest::kMustExist) != 0 && !present) return Code::kNoData;
  uint64_t list = op.name.size() + 1;
  for (const auto& [name, value] : inode->xattrs) list += name == op.name ? 0 : name.size() + 1;
  if (inode->large_xattrs > 0) {
    ARCHIL_ASSIGN_OR_RETURN(const auto large, txn.List(XattrPrefix(op.ino)));
    for (const auto& [key, value] : large) list += NameOfXattr(key) == op.name ? 0 : NameOfXattr(key).size() + 1;
  }
  if (list > kMaxXattrList) return Code::kNoSpace;
  After(op.now, inode);
  const InodeId ino = op.ino;
  return ServerOpPlan{{std::move(op)}, ino, InodeId{0}};
}

Result<ServerOpPlan> Plan(Txn& txn, const ApplyOpRequest&, RemoveXattrOp op) {
  ARCHIL_ASSIGN_OR_RETURN(const InodeRecord* inode, Existing(txn, op.ino));
  ARCHIL_ASSIGN_OR_RETURN(const bool present, HasXattr(txn, *inode, op.name));
  if (!present) return Code::kNoData;
  After(op.now, inode);
  const InodeId ino = op.ino;
  return ServerOpPlan{{std::move(op)}, ino, InodeId{0}};
}

template <class Other>
Result<ServerOpPlan> Plan(Txn&, const ApplyOpRequest&, const Other&) {
  return Error(Code::kInternal, "not an operation for the server");
}

struct NeedsOf {
  Reservation r;
  void Write(InodeId ino) { r.wants.push_back({ino, Right::kWrite, false}); }
  void operator()(const CreateOp& op) { Write(op.parent); }
  void operator()(const LinkOp& op) {
    Write(op.parent);
    Write(op.ino);
  }
  void operator()(const UnlinkOp& op) { Removal(op.parent, op.name); }
  void operator()(const RmdirOp& op) { Removal(op.parent, op.name); }
  void operator()(const RenameOp& op) {
    Removal(op.parent, op.name);
    if (op.new_parent != op.parent) Write(op.new_parent);
    r.names.push_back({op.new_parent, op.new_name, Right::kWrite});
    r.ancestors = op.new_parent != op.parent;
  }
  void operator()(const SetAttrOp& op) { Write(op.ino); }
  void operator()(const SetXattrOp& op) { Write(op.ino); }
  void operator()(const RemoveXattrOp& op) { Write(op.ino); }
  template <class Other>
  void operator()(const Other&) {}

  void Removal(InodeId parent, const std::string& name) {
    Write(parent);
    r.names.push_back({parent, name, Right::kWrite});
  }
};

Timestamp* NowOf(Op& op) {
  return std::visit(
      [](auto& o) -> Timestamp* {
        if constexpr (requires { o.now; }) return &o.now;
        return nullptr;
      },
      op);
}

}  // namespace

Status CheckServerOp(const ApplyOpRequest& request) {
  if (request.id == 0 || request.finished > request.id)
    return Error(Code::kInvalid, "the id of an operation is 0, or finished already");
  Op op = request.op;
  const Timestamp* now = NowOf(op);
  const bool known = now != nullptr && !std::holds_alternative<ClearRangeOp>(op);
  if (!known) return Error(Code::kInvalid, fmt::format("{} is no operation for the server", OpName(op)));
  if (now->nsec >= 1'000'000'000) return Error(Code::kInvalid, "a time has more than 999,999,999 ns");
  for (const Want& w : ReservationOf(op).wants) {
    if (!w.ino) return Error(Code::kInvalid, "the operation names no inode");
  }
  return Ok();
}

Reservation ReservationOf(const Op& op) {
  NeedsOf needs;
  std::visit(needs, op);
  return std::move(needs.r);
}

Result<ServerOpPlan> PlanServerOp(Txn& txn, const ApplyOpRequest& request) {
  return std::visit([&](const auto& op) { return Plan(txn, request, op); }, request.op);
}

}  // namespace archil
