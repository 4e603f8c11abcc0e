#include "tests/support/fs_api_adapter.h"

#include <utility>

#include "common/base/check.h"

namespace archil::test {
namespace {

Result<Attr> AttrOf(const Result<Entry>& entry) {
  if (!entry.ok()) return entry.error();
  return entry->attr;
}

Result<Attr> AttrOf(const Result<AttrReply>& reply) {
  if (!reply.ok()) return reply.error();
  return reply->attr;
}

}  // namespace

Result<Attr> FsApiAdapter::Lookup(InodeId parent, std::string_view name) {
  return AttrOf(Call([&](const OpContext& ctx) { return fs_.Lookup(ctx, parent, name); }));
}

void FsApiAdapter::Forget(InodeId ino) {
  forget_later_.push_back(ino);
  const size_t keep = random_->Below(20);
  while (forget_later_.size() > keep) {
    uint64_t count = 1;
    const InodeId next = forget_later_.front();
    forget_later_.pop_front();
    for (; !forget_later_.empty() && forget_later_.front() == next; ++count) forget_later_.pop_front();
    fs_.Forget(next, count);
  }
}

Result<Attr> FsApiAdapter::GetAttr(InodeId ino) {
  return AttrOf(Call([&](const OpContext& ctx) { return fs_.GetAttr(ctx, ino); }));
}

Result<Attr> FsApiAdapter::SetAttr(InodeId ino, const AttrChange& change) {
  using From = AttrChange;
  using To = SetAttrRequest;
  constexpr std::pair<uint32_t, uint32_t> kFields[] = {
      {From::kMode, To::kMode},         {From::kUid, To::kUid},           {From::kGid, To::kGid},
      {From::kSize, To::kSize},         {From::kAtime, To::kAtime},       {From::kMtime, To::kMtime},
      {From::kAtimeNow, To::kAtimeNow}, {From::kMtimeNow, To::kMtimeNow}, {From::kKillSetId, To::kKillSetId}};
  SetAttrRequest request;
  for (const auto& [from, to] : kFields) {
    if ((change.fields & from) != 0) request.fields |= to;
  }
  request.mode = change.mode;
  request.uid = change.uid;
  request.gid = change.gid;
  request.size = change.size;
  request.atime = change.atime;
  request.mtime = change.mtime;
  return AttrOf(Call([&](const OpContext& ctx) { return fs_.SetAttr(ctx, ino, request); }));
}

Result<std::string> FsApiAdapter::Readlink(InodeId ino) {
  return Call([&](const OpContext& ctx) { return fs_.Readlink(ctx, ino); });
}

Result<Attr> FsApiAdapter::Mkdir(Who who, InodeId parent, std::string_view name, uint32_t mode) {
  return AttrOf(Call(who, [&](const OpContext& ctx) { return fs_.Mkdir(ctx, parent, name, mode); }));
}

Result<Attr> FsApiAdapter::Mknod(Who who, InodeId parent, std::string_view name, FileType type, uint32_t mode,
                                 uint64_t rdev) {
  return AttrOf(Call(who, [&](const OpContext& ctx) { return fs_.Mknod(ctx, parent, name, type, mode, rdev); }));
}

Result<Attr> FsApiAdapter::Symlink(Who who, InodeId parent, std::string_view name, std::string_view target) {
  return AttrOf(Call(who, [&](const OpContext& ctx) { return fs_.Symlink(ctx, parent, name, target); }));
}

Result<Attr> FsApiAdapter::Link(InodeId ino, InodeId parent, std::string_view name) {
  return AttrOf(Call([&](const OpContext& ctx) { return fs_.Link(ctx, ino, parent, name); }));
}

Result<OpenedFile> FsApiAdapter::Create(Who who, InodeId parent, std::string_view name, uint32_t mode, int flags) {
  auto made = Call(who, [&](const OpContext& ctx) { return fs_.Create(ctx, parent, name, mode, flags); });
  if (!made.ok()) return made.error();
  return OpenedFile{made->entry.attr, made->open.handle};
}

Status FsApiAdapter::Unlink(InodeId parent, std::string_view name) {
  return Call([&](const OpContext& ctx) { return fs_.Unlink(ctx, parent, name); });
}

Status FsApiAdapter::Rmdir(InodeId parent, std::string_view name) {
  return Call([&](const OpContext& ctx) { return fs_.Rmdir(ctx, parent, name); });
}

Status FsApiAdapter::Rename(InodeId parent, std::string_view name, InodeId new_parent, std::string_view new_name,
                            RenameKind kind) {
  const RenameMode mode = kind == RenameKind::kPlain       ? RenameMode::kPlain
                          : kind == RenameKind::kNoReplace ? RenameMode::kNoReplace
                                                           : RenameMode::kExchange;
  return Call([&](const OpContext& ctx) { return fs_.Rename(ctx, parent, name, new_parent, new_name, mode); });
}

Result<uint64_t> FsApiAdapter::Open(InodeId ino, int flags) {
  auto open = Call([&](const OpContext& ctx) { return fs_.Open(ctx, ino, flags); });
  if (!open.ok()) return open.error();
  return open->handle;
}

Result<std::string> FsApiAdapter::Read(InodeId ino, uint64_t offset, size_t length) {
  auto reply = Call([&](const OpContext& ctx) { return fs_.Read(ctx, ino, offset, length); });
  if (!reply.ok()) return reply.error();
  std::string out;
  for (const Buffer& piece : reply->pieces) out.append(piece.view());
  ARCHIL_CHECK(out.size() == reply->size);
  return out;
}

Result<uint64_t> FsApiAdapter::Write(InodeId ino, uint64_t offset, std::string_view data, bool append,
                                     bool kill_set_id) {
  auto wrote = Call([&](const OpContext& ctx) { return fs_.Write(ctx, ino, offset, data, append, kill_set_id); });
  if (!wrote.ok()) return wrote.error();
  return *wrote;
}

Status FsApiAdapter::Fsync(InodeId ino, uint64_t handle, bool data_only) {
  return Call([&](const OpContext& ctx) { return fs_.Fsync(ctx, ino, handle, data_only); });
}

Status FsApiAdapter::FsyncDir(InodeId ino) {
  return Call([&](const OpContext& ctx) { return fs_.FsyncDir(ctx, ino); });
}

void FsApiAdapter::Release(InodeId ino, uint64_t handle) { fs_.Release(ino, handle); }

Status FsApiAdapter::Fallocate(InodeId ino, AllocKind kind, uint64_t offset, uint64_t length) {
  constexpr FallocateMode kModes[] = {FallocateMode::kAllocate, FallocateMode::kAllocateKeepSize,
                                      FallocateMode::kPunchHole, FallocateMode::kZeroRange,
                                      FallocateMode::kZeroRangeKeepSize};
  const FallocateMode mode = kModes[static_cast<size_t>(kind)];
  return Call([&](const OpContext& ctx) { return fs_.Fallocate(ctx, ino, mode, offset, length); });
}

Result<uint64_t> FsApiAdapter::Seek(InodeId ino, uint64_t offset, SeekKind what) {
  const SeekWhat seek = what == SeekKind::kData ? SeekWhat::kData : SeekWhat::kHole;
  return Call([&](const OpContext& ctx) { return fs_.Seek(ctx, ino, offset, seek); });
}

Result<std::vector<ListedName>> FsApiAdapter::Readdir(InodeId ino) {
  std::vector<ListedName> out;
  std::vector<InodeId> counted;
  uint64_t cookie = 0;
  int dots = 0;
  const bool plus = random_->Below(2) == 0;
  const bool pieces = random_->Below(2) == 0;
  // As the kernel does: the directory ends when a call gives nothing.
  for (bool more = true; more;) {
    size_t room = pieces ? 1 + random_->Below(4) : SIZE_MAX;
    more = false;
    const uint64_t from = cookie;
    Status status = Call([&](const OpContext& ctx) {
      return fs_.Readdir(ctx, ino, from, plus, [&](const DirItem& item) {
        if (room == 0) return false;
        --room;
        more = true;
        cookie = item.cookie;
        if (item.name == "." || item.name == "..") {
          ++dots;
          return true;
        }
        out.push_back({std::string(item.name), item.ino, item.type});
        if (item.entry != nullptr) counted.push_back(item.ino);
        return true;
      });
    });
    if (!status.ok()) return status.error();
  }
  for (const InodeId entry : counted) Forget(entry);
  if (dots != 2) return Error(Code::kInternal, "a listing without '.' and '..'");
  return out;
}

Result<std::string> FsApiAdapter::GetXattr(InodeId ino, std::string_view name) {
  return Call([&](const OpContext& ctx) { return fs_.GetXattr(ctx, ino, name); });
}

Result<std::vector<std::string>> FsApiAdapter::ListXattrs(InodeId ino) {
  return Call([&](const OpContext& ctx) { return fs_.ListXattrs(ctx, ino); });
}

Status FsApiAdapter::SetXattr(InodeId ino, std::string_view name, std::string_view value, XattrKind kind) {
  const XattrMode mode = kind == XattrKind::kEither   ? XattrMode::kEither
                         : kind == XattrKind::kCreate ? XattrMode::kCreate
                                                      : XattrMode::kReplace;
  return Call([&](const OpContext& ctx) { return fs_.SetXattr(ctx, ino, name, value, mode); });
}

Status FsApiAdapter::RemoveXattr(InodeId ino, std::string_view name) {
  return Call([&](const OpContext& ctx) { return fs_.RemoveXattr(ctx, ino, name); });
}

Status FsApiAdapter::Sync() {
  auto report = Call([&](const OpContext& ctx) { return fs_.Sync(ctx); });
  if (!report.ok()) return report.error();
  return Ok();
}

void FsApiAdapter::DropCaches() { fs_.DropCaches(); }

}  // namespace archil::test
