#include "client/fuse/replies.h"

#include <sys/sysmacros.h>

#include <algorithm>

#include "common/base/errno.h"

namespace archil::fuse {
namespace {

// Hint for buffers of programs. Every write(2) of an O_WRONLY handle is a request, so not too small.
constexpr blksize_t kPreferredIo = 64 * 1024;
// Ten years: more than any mount lives, and far from where jiffies saturate.
constexpr double kMaxTtlSeconds = 3.2e8;

timespec TimespecOf(Timestamp t) { return {static_cast<time_t>(t.sec), static_cast<long>(t.nsec)}; }

}  // namespace

struct stat StatOf(const Attr& attr) {
  struct stat st = {};
  st.st_ino = attr.ino.value;
  st.st_mode = ModeBitsOf(attr.type) | (attr.mode & 07777);
  st.st_nlink = attr.nlink;
  st.st_uid = attr.uid;
  st.st_gid = attr.gid;
  st.st_rdev = attr.rdev;
  st.st_size = static_cast<off_t>(std::min<uint64_t>(attr.size, kMaxFileSize));
  st.st_blksize = kPreferredIo;
  st.st_blocks = static_cast<blkcnt_t>(attr.allocated / 512 + (attr.allocated % 512 != 0));
  st.st_atim = TimespecOf(attr.atime);
  st.st_mtim = TimespecOf(attr.mtime);
  st.st_ctim = TimespecOf(attr.ctime);
  return st;
}

double Seconds(absl::Duration ttl) { return std::clamp(absl::ToDoubleSeconds(ttl), 0.0, kMaxTtlSeconds); }

fuse_entry_param EntryParamOf(const Session& session, const Entry& entry) {
  fuse_entry_param e = {};
  e.ino = session.NodeOf(entry.attr.ino);
  e.attr = StatOf(entry.attr);
  e.attr_timeout = Seconds(entry.attr_ttl);
  e.entry_timeout = session.keeps_names() ? Seconds(entry.entry_ttl) : 0;
  return e;
}

bool ReplyError(fuse_req_t req, Code code) {
  if (code == Code::kWouldBlock) return false;
  fuse_reply_err(req, ErrnoOf(code));
  return true;
}

bool ReplyStatus(fuse_req_t req, const Status& status) { return ReplyError(req, status.code()); }

bool ReplyEntry(Session& session, fuse_req_t req, const Result<Entry>& result) {
  if (!result.ok()) return ReplyError(req, result.code());
  const fuse_entry_param e = EntryParamOf(session, *result);
  if (fuse_reply_entry(req, &e) != 0) session.fs().Forget(result->attr.ino, 1);
  return true;
}

bool ReplyAttr(fuse_req_t req, const Result<AttrReply>& result) {
  if (!result.ok()) return ReplyError(req, result.code());
  const struct stat st = StatOf(result->attr);
  fuse_reply_attr(req, &st, Seconds(result->ttl));
  return true;
}

}  // namespace archil::fuse
