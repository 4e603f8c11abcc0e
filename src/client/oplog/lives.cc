#include "client/oplog/lives.h"

#include <algorithm>

namespace archil {

void Lives::Appended(const Op& op, Seq seq) {
  if (const auto* create = std::get_if<CreateOp>(&op)) {
    Life life;
    life.oldest = seq;
    life.directory = create->type == FileType::kDirectory;
    lives_.insert_or_assign(create->ino, life);
  } else if (const auto* link = std::get_if<LinkOp>(&op)) {
    if (Life* life = Find(link->ino)) life->names++;
  } else if (const auto* unlink = std::get_if<UnlinkOp>(&op)) {
    Removed(unlink->parent, unlink->ino, unlink->still_open, seq);
  } else if (const auto* rmdir = std::get_if<RmdirOp>(&op)) {
    Removed(rmdir->parent, rmdir->ino, rmdir->still_open, seq);
  } else if (const auto* rename = std::get_if<RenameOp>(&op)) {
    Renamed(*rename, seq);
  } else if (const auto* release = std::get_if<ReleaseOrphanOp>(&op)) {
    Life* life = Find(release->ino);
    if (life != nullptr && life->orphan) life->gone = seq;
  }
}

void Lives::UseEnded(InodeId parent, InodeId ino, Seq seq) {
  Life* life = Find(ino);
  if (life == nullptr || !life->orphan) return;
  life->orphan = false;
  life->gone = seq;
  Life* directory = Find(parent);
  if (directory == nullptr || directory->awaited == 0) return;
  --directory->awaited;
  Left(parent, ino, seq);
}

void Lives::Sent(const Op& op) {
  if (const auto* create = std::get_if<CreateOp>(&op)) lives_.erase(create->ino);
}

Life* Lives::Find(InodeId ino) {
  const auto it = lives_.find(ino);
  return it == lives_.end() ? nullptr : &it->second;
}

void Lives::Removed(InodeId parent, InodeId ino, bool still_open, Seq seq) {
  Life* life = Find(ino);
  if (life != nullptr && life->names > 0 && --life->names == 0) {
    if (still_open) {
      life->orphan = true;
    } else {
      life->gone = seq;
    }
  }
  Left(parent, ino, seq);
}

void Lives::Renamed(const RenameOp& op, Seq seq) {
  if (op.mode == RenameOp::Mode::kExchange || op.victim == op.ino) {
    Bar(op.ino);
    Bar(op.victim);
    if (op.parent != op.new_parent) {
      Left(op.parent, op.ino, seq);
      Left(op.new_parent, op.victim, seq);
    }
    return;
  }
  if (op.victim) Removed(op.new_parent, op.victim, op.victim_still_open, seq);
  if (op.parent == op.new_parent) return;
  Left(op.parent, op.ino, seq);
  if (Life* life = Find(op.ino); life != nullptr && op.victim) {
    life->barred = life->barred || life->crossed;
    life->crossed = true;
  }
}

void Lives::Bar(InodeId ino) {
  if (Life* life = Find(ino)) life->barred = true;
}

void Lives::Left(InodeId parent, InodeId ino, Seq seq) {
  Life* directory = Find(parent);
  if (directory == nullptr) return;
  const Life* life = Find(ino);
  if (life != nullptr && life->orphan && !life->gone) {
    ++directory->awaited;
    return;
  }
  if (life == nullptr || !life->absorbable() || life->gone != seq) {
    directory->barred = true;
  } else {
    directory->oldest = std::min(directory->oldest, life->oldest);
  }
}

}  // namespace archil
