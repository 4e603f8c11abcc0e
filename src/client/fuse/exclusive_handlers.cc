// Exclusive mounts: the kernel opens and locks files by itself. OPEN and FLUSH are answered ENOSYS, once; RELEASE comes only for
// files created before the first OPEN, and says nothing. What is open is what the kernel has not forgotten (FORGET).
#include <cerrno>

#include "client/fuse/replies.h"
#include "client/fuse/session.h"

namespace archil::fuse {
namespace {

// CREATE stays: its answer can say that a handle which only writes goes past the page cache (FileInfoOf), MKNOD's cannot, and
// each first write would ask for security.capability. Not where the kernel keeps pages and times: it must see every write.
bool Create(Session& s, fuse_req_t req, const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode, int flags) {
  const Result<Entry> made = s.fs().Mknod(ctx, parent, name, FileType::kRegular, mode, 0);
  if (!made.ok()) return ReplyError(req, made.code());
  const fuse_entry_param e = EntryParamOf(s, *made);
  fuse_file_info fi = {};
  fi.keep_cache = 1;
  fi.direct_io = s.personality() == Personality::kExclusive && (flags & O_ACCMODE) == O_WRONLY;
  if (fuse_reply_create(req, &e, &fi) != 0) s.fs().Forget(made->attr.ino, 1);
  return true;
}

void OnCreate(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* fi) {
  Session& s = SessionOf(req);
  s.Run(req, Create, s.InodeOf(parent), name, mode & 07777, fi->flags);
}

// The kernel opens by itself from now on and keeps the pages that it has.
void OnOpen(fuse_req_t req, fuse_ino_t, fuse_file_info*) { fuse_reply_err(req, ENOSYS); }
// The kernel sends no more FLUSH: close(2) has nothing to wait for.
void OnFlush(fuse_req_t req, fuse_ino_t, fuse_file_info*) { fuse_reply_err(req, ENOSYS); }
void OnRelease(fuse_req_t req, fuse_ino_t, fuse_file_info*) { fuse_reply_err(req, 0); }

}  // namespace

void AddExclusiveHandlers(Personality personality, fuse_lowlevel_ops* ops) {
  ops->create = OnCreate;
  ops->open = OnOpen;
  ops->flush = OnFlush;
  ops->release = OnRelease;
  // Only the kernel knows what it has not handed in: left out, it takes everything for data.
  if (personality == Personality::kExclusiveWriteback) ops->lseek = nullptr;
}

}  // namespace archil::fuse
