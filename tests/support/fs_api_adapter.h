// FsApiAdapter: an FsApi (a mounted disk in memory) in the clothes of InodeFs. It behaves as a moody kernel: it keeps
// references for a while before it forgets them, lists directories in pieces, with and without attributes, and often
// forbids a call to wait first and repeats it when it would have had to.
#pragma once

#include <deque>
#include <memory>

#include "client/core/fs_api.h"
#include "common/env/random.h"
#include "tests/support/inode_fs.h"

namespace archil::test {

class FsApiAdapter : public InodeFs {
 public:
  FsApiAdapter(FsApi& fs, uint64_t seed) : fs_(fs), random_(SeededRandom(seed)) {}

  InodeId Root() override { return fs_.Root(); }
  Result<Attr> Lookup(InodeId parent, std::string_view name) override;
  void Forget(InodeId ino) override;
  Result<Attr> GetAttr(InodeId ino) override;
  Result<Attr> SetAttr(InodeId ino, const AttrChange& change) override;
  Result<std::string> Readlink(InodeId ino) override;
  Result<Attr> Mkdir(Who who, InodeId parent, std::string_view name, uint32_t mode) override;
  Result<Attr> Mknod(Who who, InodeId parent, std::string_view name, FileType type, uint32_t mode,
                     uint64_t rdev) override;
  Result<Attr> Symlink(Who who, InodeId parent, std::string_view name, std::string_view target) override;
  Result<Attr> Link(InodeId ino, InodeId parent, std::string_view name) override;
  Result<OpenedFile> Create(Who who, InodeId parent, std::string_view name, uint32_t mode, int flags) override;
  Status Unlink(InodeId parent, std::string_view name) override;
  Status Rmdir(InodeId parent, std::string_view name) override;
  Status Rename(InodeId parent, std::string_view name, InodeId new_parent, std::string_view new_name,
                RenameKind kind) override;
  Result<uint64_t> Open(InodeId ino, int flags) override;
  Result<std::string> Read(InodeId ino, uint64_t offset, size_t length) override;
  Result<uint64_t> Write(InodeId ino, uint64_t offset, std::string_view data, bool append, bool kill_set_id) override;
  Status Fsync(InodeId ino, uint64_t handle, bool data_only) override;
  Status FsyncDir(InodeId ino) override;
  void Release(InodeId ino, uint64_t handle) override;
  Status Fallocate(InodeId ino, AllocKind kind, uint64_t offset, uint64_t length) override;
  Result<uint64_t> Seek(InodeId ino, uint64_t offset, SeekKind what) override;
  Result<std::vector<ListedName>> Readdir(InodeId ino) override;
  Result<std::string> GetXattr(InodeId ino, std::string_view name) override;
  Result<std::vector<std::string>> ListXattrs(InodeId ino) override;
  Status SetXattr(InodeId ino, std::string_view name, std::string_view value, XattrKind kind) override;
  Status RemoveXattr(InodeId ino, std::string_view name) override;
  Status Sync() override;
  void DropCaches() override;

 private:
  // Calls call(ctx), perhaps first with waiting forbidden.
  template <class F>
  auto Call(Who who, F call) {
    OpContext ctx;
    ctx.caller = {who.uid, who.gid, 4711};
    if (random_->Below(3) != 0) {
      ctx.may_block = false;
      auto result = call(ctx);
      if (result.code() != Code::kWouldBlock) return result;
      ctx.may_block = true;
    }
    return call(ctx);
  }
  template <class F>
  auto Call(F call) {
    return Call(Who{}, call);
  }

  FsApi& fs_;
  std::unique_ptr<Random> random_;
  std::deque<InodeId> forget_later_;
};

}  // namespace archil::test
