#include "client/oplog/op_facts.h"

namespace archil {

InodeId OwnerOf(const Op& op) {
  return std::visit([](const auto& o) { return o.ino; }, op);
}

EntryDirs EntryDirsOf(const Op& op) {
  struct Visitor {
    EntryDirs operator()(const CreateOp& o) const { return {o.parent, InodeId{}}; }
    EntryDirs operator()(const LinkOp& o) const { return {o.parent, InodeId{}}; }
    EntryDirs operator()(const UnlinkOp& o) const { return {o.parent, InodeId{}}; }
    EntryDirs operator()(const RmdirOp& o) const { return {o.parent, InodeId{}}; }
    EntryDirs operator()(const RenameOp& o) const { return {o.parent, o.new_parent}; }
    EntryDirs operator()(const SetAttrOp&) const { return {}; }
    EntryDirs operator()(const SetExtentsOp&) const { return {}; }
    EntryDirs operator()(const ClearRangeOp&) const { return {}; }
    EntryDirs operator()(const SetXattrOp&) const { return {}; }
    EntryDirs operator()(const RemoveXattrOp&) const { return {}; }
    EntryDirs operator()(const ReleaseOrphanOp&) const { return {}; }
    EntryDirs operator()(const TouchOp&) const { return {}; }
  };
  return std::visit(Visitor{}, op);
}

}  // namespace archil
