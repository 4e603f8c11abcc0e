#include "server/meta/ops/op_effects.h"

namespace archil {

std::map<InodeId, DelegationTable::Touched> TouchedBy(const std::vector<Op>& ops) {
  std::map<InodeId, DelegationTable::Touched> out;
  const auto lost_name = [&](InodeId ino, InodeId dir) {
    out[ino].links_changed = true;
    out[ino].left.push_back(dir);
  };
  for (const Op& op : ops) {
    if (const auto* create = std::get_if<CreateOp>(&op)) {
      if (create->type == FileType::kDirectory) out[create->ino].born = true;
    } else if (const auto* link = std::get_if<LinkOp>(&op)) {
      out[link->ino].links_changed = true;
    } else if (const auto* unlink = std::get_if<UnlinkOp>(&op)) {
      lost_name(unlink->ino, unlink->parent);
    } else if (const auto* rmdir = std::get_if<RmdirOp>(&op)) {
      (void)out[rmdir->ino];
    } else if (const auto* release = std::get_if<ReleaseOrphanOp>(&op)) {
      (void)out[release->ino];
    } else if (const auto* rename = std::get_if<RenameOp>(&op)) {
      out[rename->ino].left.push_back(rename->parent);
      if (!rename->victim || rename->victim == rename->ino) continue;
      if (rename->mode == RenameOp::Mode::kExchange) {
        out[rename->victim].left.push_back(rename->new_parent);
      } else {
        lost_name(rename->victim, rename->new_parent);
      }
    }
  }
  return out;
}

}  // namespace archil
