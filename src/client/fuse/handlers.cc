// One pair per kernel request: a verb, which calls FsApi and replies, and On…, which decodes what libfuse hands over.
// A verb that returns false has sent nothing and had no effect; a worker repeats it (Session::Run).
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "client/fuse/replies.h"
#include "client/fuse/session.h"

namespace archil::fuse {
namespace {

using View = std::string_view;

// ---- names and inodes

bool Lookup(Session& s, fuse_req_t req, const OpContext& ctx, InodeId parent, View name) {
  const Result<Entry> entry = s.fs().Lookup(ctx, parent, name);
  if (entry.code() == Code::kNotFound) {
    // Inode 0 with a timeout is an absence that the kernel may remember.
    fuse_entry_param absent = {};
    absent.entry_timeout = Seconds(s.fs().NegativeTtl(parent));
    if (absent.entry_timeout == 0 || !s.keeps_names()) return ReplyError(req, Code::kNotFound);
    fuse_reply_entry(req, &absent);
    return true;
  }
  return ReplyEntry(s, req, entry);
}

bool GetAttr(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino) {
  return ReplyAttr(req, s.fs().GetAttr(ctx, ino));
}

bool SetAttr(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, SetAttrRequest request) {
  return ReplyAttr(req, s.fs().SetAttr(ctx, ino, request));
}

bool Readlink(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino) {
  const Result<std::string> target = s.fs().Readlink(ctx, ino);
  if (!target.ok()) return ReplyError(req, target.code());
  fuse_reply_readlink(req, target->c_str());
  return true;
}

bool Mkdir(Session& s, fuse_req_t req, const OpContext& ctx, InodeId parent, View name, uint32_t mode) {
  return ReplyEntry(s, req, s.fs().Mkdir(ctx, parent, name, mode));
}

bool Mknod(Session& s, fuse_req_t req, const OpContext& ctx, InodeId parent, View name, FileType type, uint32_t mode,
           uint64_t rdev) {
  return ReplyEntry(s, req, s.fs().Mknod(ctx, parent, name, type, mode, rdev));
}

bool Symlink(Session& s, fuse_req_t req, const OpContext& ctx, InodeId parent, View name, View target) {
  return ReplyEntry(s, req, s.fs().Symlink(ctx, parent, name, target));
}

bool Link(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, InodeId parent, View name) {
  return ReplyEntry(s, req, s.fs().Link(ctx, ino, parent, name));
}

bool Unlink(Session& s, fuse_req_t req, const OpContext& ctx, InodeId parent, View name) {
  return ReplyStatus(req, s.fs().Unlink(ctx, parent, name));
}

bool Rmdir(Session& s, fuse_req_t req, const OpContext& ctx, InodeId parent, View name) {
  return ReplyStatus(req, s.fs().Rmdir(ctx, parent, name));
}

bool Rename(Session& s, fuse_req_t req, const OpContext& ctx, InodeId parent, View name, InodeId new_parent, View new_name,
            RenameMode mode) {
  return ReplyStatus(req, s.fs().Rename(ctx, parent, name, new_parent, new_name, mode));
}

void OnLookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Session& s = SessionOf(req);
  s.Run(req, Lookup, s.InodeOf(parent), name);
}

void OnForget(fuse_req_t req, fuse_ino_t ino, uint64_t count) {
  Session& s = SessionOf(req);
  s.fs().Forget(s.InodeOf(ino), count);
  fuse_reply_none(req);
}

void OnForgetMulti(fuse_req_t req, size_t count, fuse_forget_data* forgets) {
  Session& s = SessionOf(req);
  for (size_t i = 0; i < count; ++i) s.fs().Forget(s.InodeOf(forgets[i].ino), forgets[i].nlookup);
  fuse_reply_none(req);
}

void OnGetAttr(fuse_req_t req, fuse_ino_t ino, fuse_file_info*) {
  Session& s = SessionOf(req);
  s.Run(req, GetAttr, s.InodeOf(ino));
}

Timestamp TimestampOf(const timespec& t) { return {t.tv_sec, static_cast<uint32_t>(t.tv_nsec % 1'000'000'000)}; }

void OnSetAttr(fuse_req_t req, fuse_ino_t ino, struct stat* attr, int to_set, fuse_file_info*) {
  Session& s = SessionOf(req);
  SetAttrRequest r;
  auto take = [&](int kernel, uint32_t field) {
    if (to_set & kernel) r.fields |= field;
  };
  take(FUSE_SET_ATTR_MODE, SetAttrRequest::kMode);
  take(FUSE_SET_ATTR_UID, SetAttrRequest::kUid);
  take(FUSE_SET_ATTR_GID, SetAttrRequest::kGid);
  take(FUSE_SET_ATTR_SIZE, SetAttrRequest::kSize);
  // The kernel sets ATIME beside ATIME_NOW; only one of ours is meant.
  take(FUSE_SET_ATTR_ATIME, to_set & FUSE_SET_ATTR_ATIME_NOW ? SetAttrRequest::kAtimeNow : SetAttrRequest::kAtime);
  take(FUSE_SET_ATTR_MTIME, to_set & FUSE_SET_ATTR_MTIME_NOW ? SetAttrRequest::kMtimeNow : SetAttrRequest::kMtime);
  take(FUSE_SET_ATTR_CTIME, SetAttrRequest::kCtime);  // sent where the kernel keeps the times
  if (s.current().kill_set_id) r.fields |= SetAttrRequest::kKillSetId;
  r.mode = attr->st_mode & 07777;
  r.uid = attr->st_uid;
  r.gid = attr->st_gid;
  r.size = static_cast<uint64_t>(attr->st_size);
  r.atime = TimestampOf(attr->st_atim);
  r.mtime = TimestampOf(attr->st_mtim);
  r.ctime = TimestampOf(attr->st_ctim);
  s.Run(req, SetAttr, s.InodeOf(ino), r);
}

void OnReadlink(fuse_req_t req, fuse_ino_t ino) {
  Session& s = SessionOf(req);
  s.Run(req, Readlink, s.InodeOf(ino));
}

void OnMkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  Session& s = SessionOf(req);
  s.Run(req, Mkdir, s.InodeOf(parent), name, mode & 07777);
}

void OnMknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t rdev) {
  Session& s = SessionOf(req);
  const FileType type = TypeOfModeBits(mode);
  if (!IsValid(type)) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  s.Run(req, Mknod, s.InodeOf(parent), name, type, mode & 07777, rdev);
}

void OnSymlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  Session& s = SessionOf(req);
  s.Run(req, Symlink, s.InodeOf(parent), name, target);
}

void OnLink(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char* name) {
  Session& s = SessionOf(req);
  s.Run(req, Link, s.InodeOf(ino), s.InodeOf(parent), name);
}

void OnUnlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Session& s = SessionOf(req);
  s.Run(req, Unlink, s.InodeOf(parent), name);
}

void OnRmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Session& s = SessionOf(req);
  s.Run(req, Rmdir, s.InodeOf(parent), name);
}

void OnRename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent, const char* new_name,
              unsigned flags) {
  Session& s = SessionOf(req);
  RenameMode mode = RenameMode::kPlain;
  if (flags == RENAME_NOREPLACE) {
    mode = RenameMode::kNoReplace;
  } else if (flags == RENAME_EXCHANGE) {
    mode = RenameMode::kExchange;
  } else if (flags != 0) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  s.Run(req, Rename, s.InodeOf(parent), name, s.InodeOf(new_parent), new_name, mode);
}

// ---- files

// How an open file is cached. Pages stay (the core tells when they must go). A handle that can only write goes past the
// page cache: its writes hold no folio lock and ask for no security.capability, and it can be neither read nor mapped.
// Handles that few programs take fcntl locks through send no FLUSH, if there is none to end: those locks end with the handle.
fuse_file_info FileInfoOf(const OpenReply& open, int flags) {
  fuse_file_info fi = {};
  const int access = flags & O_ACCMODE;
  fi.noflush = !open.locked && (access == O_RDONLY || (access == O_WRONLY && (flags & O_EXCL)));
  fi.fh = open.handle;
  fi.keep_cache = open.keep_cache;
  fi.direct_io = open.direct_io || access == O_WRONLY;
  return fi;
}

bool Create(Session& s, fuse_req_t req, const OpContext& ctx, InodeId parent, View name, uint32_t mode, int flags) {
  const Result<CreateReply> created = s.fs().Create(ctx, parent, name, mode, flags);
  // Another mount made the name since the kernel looked for it: it walks the path again, once, and opens what it finds.
  if (created.code() == Code::kExists && (flags & O_EXCL) == 0) return ReplyError(req, Code::kStale);
  if (!created.ok()) return ReplyError(req, created.code());
  const fuse_entry_param e = EntryParamOf(s, created->entry);
  const fuse_file_info fi = FileInfoOf(created->open, flags);
  if (fuse_reply_create(req, &e, &fi) != 0) {
    s.fs().Release(created->entry.attr.ino, created->open.handle);
    s.fs().Forget(created->entry.attr.ino, 1);
  }
  return true;
}

bool Open(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, int flags, bool kill_set_id) {
  if (kill_set_id && (flags & O_TRUNC)) {
    SetAttrRequest truncate;
    truncate.fields = SetAttrRequest::kSize | SetAttrRequest::kKillSetId;
    const Result<AttrReply> truncated = s.fs().SetAttr(ctx, ino, truncate);
    if (!truncated.ok()) return ReplyError(req, truncated.code());
    flags &= ~O_TRUNC;
  }
  const Result<OpenReply> open = s.fs().Open(ctx, ino, flags);
  if (!open.ok()) return ReplyError(req, open.code());
  const fuse_file_info fi = FileInfoOf(*open, flags);
  if (fuse_reply_open(req, &fi) != 0) s.fs().Release(ino, open->handle);
  return true;
}

OpContext Through(const OpContext& ctx, HandleId handle) {
  OpContext through = ctx;
  through.handle = handle;
  return through;
}

bool Read(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, HandleId handle, uint64_t offset, size_t size) {
  const Result<ReadReply> read = s.fs().Read(Through(ctx, handle), ino, offset, size);
  if (!read.ok()) return ReplyError(req, read.code());
  constexpr size_t kMaxPieces = 512;  // writev(2) takes 1,024 with the header
  if (read->pieces.size() <= kMaxPieces) {
    iovec iov[kMaxPieces];
    int n = 0;
    for (const Buffer& piece : read->pieces) iov[n++] = {const_cast<char*>(piece.data()), piece.size()};
    fuse_reply_iov(req, iov, n);
    return true;
  }
  std::string joined;
  joined.reserve(read->size);
  for (const Buffer& piece : read->pieces) joined.append(piece.view());
  fuse_reply_buf(req, joined.data(), joined.size());
  return true;
}

bool Write(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, HandleId handle, uint64_t offset, View data, bool append,
           bool kill_set_id) {
  const Result<size_t> written = s.fs().Write(Through(ctx, handle), ino, offset, data, append, kill_set_id);
  if (!written.ok()) return ReplyError(req, written.code());
  fuse_reply_write(req, *written);
  return true;
}

bool Fsync(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, HandleId handle, bool data_only) {
  return ReplyStatus(req, s.fs().Fsync(ctx, ino, handle, data_only));
}

bool FsyncDir(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino) {
  return ReplyStatus(req, s.fs().FsyncDir(ctx, ino));
}

bool Fallocate(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, FallocateMode mode, uint64_t offset,
               uint64_t length) {
  return ReplyStatus(req, s.fs().Fallocate(ctx, ino, mode, offset, length));
}

bool Lseek(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, uint64_t offset, SeekWhat what) {
  const Result<uint64_t> found = s.fs().Seek(ctx, ino, offset, what);
  if (!found.ok()) return ReplyError(req, found.code());
  fuse_reply_lseek(req, static_cast<off_t>(*found));
  return true;
}

void OnCreate(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* fi) {
  Session& s = SessionOf(req);
  s.Run(req, Create, s.InodeOf(parent), name, mode & 07777, fi->flags);
}

void OnOpen(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Session& s = SessionOf(req);
  s.Run(req, Open, s.InodeOf(ino), fi->flags, s.current().kill_set_id);
}

void OnRead(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* fi) {
  Session& s = SessionOf(req);
  s.Run(req, Read, s.InodeOf(ino), fi->fh, static_cast<uint64_t>(offset), size);
}

void OnWrite(fuse_req_t req, fuse_ino_t ino, const char* data, size_t size, off_t offset, fuse_file_info* fi) {
  Session& s = SessionOf(req);
  // A page that is written back has its own offset, whatever the handle that the kernel guesses was opened with. Nor is the size
  // known here where the kernel keeps written pages.
  const bool kernel_knows = s.current().from_page_cache || s.personality() == Personality::kExclusiveWriteback;
  const bool append = (fi->flags & O_APPEND) && !kernel_knows;
  // Nor is the handle that it guesses the one through which the page was written.
  const HandleId handle = s.current().from_page_cache ? 0 : fi->fh;
  s.Run(req, Write, s.InodeOf(ino), handle, static_cast<uint64_t>(offset), View(data, size), append, s.current().kill_set_id);
}

void OnRelease(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Session& s = SessionOf(req);
  s.fs().Release(s.InodeOf(ino), fi->fh);
  fuse_reply_err(req, 0);
}

void OnFsync(fuse_req_t req, fuse_ino_t ino, int data_only, fuse_file_info* fi) {
  Session& s = SessionOf(req);
  s.Run(req, Fsync, s.InodeOf(ino), fi->fh, data_only != 0);
}

void OnFsyncDir(fuse_req_t req, fuse_ino_t ino, int, fuse_file_info*) {
  Session& s = SessionOf(req);
  s.Run(req, FsyncDir, s.InodeOf(ino));
}

void OnFallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, fuse_file_info*) {
  Session& s = SessionOf(req);
  FallocateMode m;
  switch (mode) {
    case 0: m = FallocateMode::kAllocate; break;
    case FALLOC_FL_KEEP_SIZE: m = FallocateMode::kAllocateKeepSize; break;
    case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE: m = FallocateMode::kPunchHole; break;
    case FALLOC_FL_ZERO_RANGE: m = FallocateMode::kZeroRange; break;
    case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE: m = FallocateMode::kZeroRangeKeepSize; break;
    default: fuse_reply_err(req, EOPNOTSUPP); return;
  }
  s.Run(req, Fallocate, s.InodeOf(ino), m, static_cast<uint64_t>(offset), static_cast<uint64_t>(length));
}

void OnLseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, fuse_file_info*) {
  Session& s = SessionOf(req);
  if ((whence != SEEK_DATA && whence != SEEK_HOLE) || offset < 0) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  s.Run(req, Lseek, s.InodeOf(ino), static_cast<uint64_t>(offset), whence == SEEK_DATA ? SeekWhat::kData : SeekWhat::kHole);
}

void OnIoctl(fuse_req_t req, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*, size_t, size_t) {
  fuse_reply_err(req, ENOTTY);
}

// ---- directories

// ENOSYS: the kernel opens directories by itself from now on and caches their listings.
void OnOpenDir(fuse_req_t req, fuse_ino_t, fuse_file_info*) { fuse_reply_err(req, ENOSYS); }

bool Readdir(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, uint64_t cookie, size_t size, bool plus) {
  std::vector<char> out(size);
  std::vector<InodeId> counted;
  size_t used = 0;
  const Status status = s.fs().Readdir(ctx, ino, cookie, plus, [&](const DirItem& item) {
    fuse_entry_param e = {};
    if (plus && item.entry != nullptr) {
      e = EntryParamOf(s, *item.entry);
    } else {
      e.attr.st_ino = item.ino.value;
      e.attr.st_mode = ModeBitsOf(item.type);
    }
    const std::string name(item.name);
    const off_t next = static_cast<off_t>(item.cookie);
    const size_t left = size - used;
    const size_t need = plus ? fuse_add_direntry_plus(req, out.data() + used, left, name.c_str(), &e, next)
                             : fuse_add_direntry(req, out.data() + used, left, name.c_str(), &e.attr, next);
    if (need > left) return false;
    used += need;
    if (plus && item.entry != nullptr) counted.push_back(item.ino);
    return true;
  });
  // What was listed before an error is an answer; the error comes again with the next call.
  if (!status.ok() && used == 0) return ReplyError(req, status.code());
  if (fuse_reply_buf(req, out.data(), used) != 0) {
    for (InodeId listed : counted) s.fs().Forget(listed, 1);
  }
  return true;
}

void OnReaddir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info*) {
  Session& s = SessionOf(req);
  s.Run(req, Readdir, s.InodeOf(ino), static_cast<uint64_t>(offset), size, false);
}

void OnReaddirPlus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info*) {
  Session& s = SessionOf(req);
  s.Run(req, Readdir, s.InodeOf(ino), static_cast<uint64_t>(offset), size, true);
}

// ---- extended attributes and the rest

// xattr(7): size 0 asks for the length only; a buffer too small is ERANGE.
bool ReplySized(fuse_req_t req, View bytes, size_t size) {
  if (size == 0) {
    fuse_reply_xattr(req, bytes.size());
  } else if (size < bytes.size()) {
    fuse_reply_err(req, ERANGE);
  } else {
    fuse_reply_buf(req, bytes.data(), bytes.size());
  }
  return true;
}

bool GetXattr(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, View name, size_t size) {
  const Result<std::string> value = s.fs().GetXattr(ctx, ino, name);
  if (!value.ok()) return ReplyError(req, value.code());
  return ReplySized(req, *value, size);
}

bool ListXattr(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, size_t size) {
  const Result<std::vector<std::string>> names = s.fs().ListXattrs(ctx, ino);
  if (!names.ok()) return ReplyError(req, names.code());
  std::string list;
  for (const std::string& name : *names) list.append(name).push_back('\0');
  return ReplySized(req, list, size);
}

bool SetXattr(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, View name, View value, XattrMode mode) {
  return ReplyStatus(req, s.fs().SetXattr(ctx, ino, name, value, mode));
}

bool RemoveXattr(Session& s, fuse_req_t req, const OpContext& ctx, InodeId ino, View name) {
  return ReplyStatus(req, s.fs().RemoveXattr(ctx, ino, name));
}

bool StatFs(Session& s, fuse_req_t req, const OpContext& ctx) {
  const Result<FsStats> stats = s.fs().StatFs(ctx);
  if (!stats.ok()) return ReplyError(req, stats.code());
  constexpr uint64_t kBlock = 4096;
  struct statvfs out = {};
  out.f_bsize = kBlock;
  out.f_frsize = kBlock;
  out.f_blocks = stats->total_bytes / kBlock;
  out.f_bfree = out.f_bavail = stats->free_bytes / kBlock;
  out.f_files = stats->total_inodes;
  out.f_ffree = out.f_favail = stats->free_inodes;
  out.f_namemax = kMaxName;
  fuse_reply_statfs(req, &out);
  return true;
}

void OnGetXattr(fuse_req_t req, fuse_ino_t ino, const char* name, size_t size) {
  Session& s = SessionOf(req);
  s.Run(req, GetXattr, s.InodeOf(ino), name, size);
}

void OnListXattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
  Session& s = SessionOf(req);
  s.Run(req, ListXattr, s.InodeOf(ino), size);
}

void OnSetXattr(fuse_req_t req, fuse_ino_t ino, const char* name, const char* value, size_t size, int flags) {
  Session& s = SessionOf(req);
  XattrMode mode = XattrMode::kEither;
  if (flags == XATTR_CREATE) {
    mode = XattrMode::kCreate;
  } else if (flags == XATTR_REPLACE) {
    mode = XattrMode::kReplace;
  } else if (flags != 0) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  s.Run(req, SetXattr, s.InodeOf(ino), name, View(value, size), mode);
}

void OnRemoveXattr(fuse_req_t req, fuse_ino_t ino, const char* name) {
  Session& s = SessionOf(req);
  s.Run(req, RemoveXattr, s.InodeOf(ino), name);
}

void OnStatFs(fuse_req_t req, fuse_ino_t) { SessionOf(req).Run(req, StatFs); }

void OnInit(void* session, fuse_conn_info* conn) {
  static_cast<Session*>(session)->Negotiated(conn->proto_minor);
  // Flags are settled when the reply leaves (CorrectInitReply); here only what libfuse itself acts on.
  conn->want &= ~(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE |
                  FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS);
  conn->want |= conn->capable & (FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_CACHE_SYMLINKS |
                                 FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_ASYNC_READ |
                                 FUSE_CAP_NO_OPENDIR_SUPPORT | FUSE_CAP_ASYNC_DIO);
  conn->max_write = 1 << 20;
  conn->max_background = 64;
  conn->congestion_threshold = 48;
}

}  // namespace

fuse_lowlevel_ops Handlers(Personality personality) {
  fuse_lowlevel_ops ops = {};
  ops.init = OnInit;
  ops.lookup = OnLookup;
  ops.forget = OnForget;
  ops.forget_multi = OnForgetMulti;
  ops.getattr = OnGetAttr;
  ops.setattr = OnSetAttr;
  ops.readlink = OnReadlink;
  ops.mknod = OnMknod;
  ops.mkdir = OnMkdir;
  ops.unlink = OnUnlink;
  ops.rmdir = OnRmdir;
  ops.symlink = OnSymlink;
  ops.rename = OnRename;
  ops.link = OnLink;
  ops.open = OnOpen;
  ops.read = OnRead;
  ops.write = OnWrite;
  ops.release = OnRelease;
  ops.fsync = OnFsync;
  ops.opendir = OnOpenDir;
  ops.readdir = OnReaddir;
  ops.readdirplus = OnReaddirPlus;
  ops.fsyncdir = OnFsyncDir;
  ops.statfs = OnStatFs;
  ops.setxattr = OnSetXattr;
  ops.getxattr = OnGetXattr;
  ops.listxattr = OnListXattr;
  ops.removexattr = OnRemoveXattr;
  ops.create = OnCreate;
  ops.ioctl = OnIoctl;
  ops.fallocate = OnFallocate;
  ops.lseek = OnLseek;
  // Left out, so that libfuse answers ENOSYS and the kernel stops asking: poll, bmap, copy_file_range, access.
  if (personality == Personality::kShared) {
    AddLockHandlers(&ops);
  } else {
    AddExclusiveHandlers(personality, &ops);
  }
  return ops;
}

}  // namespace archil::fuse
