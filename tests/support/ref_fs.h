// RefFs: the reference file system, the oracle of the model tests. Shares nothing with the system but value types.
//
// It has a visible state, what every call sees, and a durable one: the history of events (metadata operations
// and writes) since the last Sync, with the part of it that fsync has made durable:
//   fsync(file)    every metadata event before the last event of the file, and all writes of the file so far
//   fsync(dir)     every metadata event up to the last one that names the directory
//   sync           everything
// What a crash may leave of the rest is decided in crash_check.h.
// Handles and references are the caller's view only: an unlinked inode lives while it has any.
#pragma once

#include <map>
#include <set>

#include "tests/support/inode_fs.h"
#include "tests/support/ref_state.h"

namespace archil::test {

class RefFs : public InodeFs {
 public:
  RefFs() = default;

  InodeId Root() override { return kRootInode; }
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
  void DropCaches() override {}

  const RefState& visible() const { return visible_; }
  const RefHistory& history() const { return history_; }
  // Every handle and reference is gone and unlinked inodes with them: the end of a mount.
  void DropHandles();
  // After a crash: `state` is what was found, all of it durable.
  void Adopt(RefState state);

 private:
  // The directory, if a name may be looked up in it: kStale, kNotDirectory, kNotFound (removed), kNameTooLong.
  Status CheckDir(InodeId dir, std::string_view name) const;
  // CheckDir, and the name is absent: kExists.
  Status CheckAbsent(InodeId dir, std::string_view name) const;
  Result<Attr> Add(Who who, InodeId parent, std::string_view name, FileType type, uint32_t mode, uint64_t rdev,
                   std::string_view target);
  Status CheckRename(InodeId moved, InodeId victim, InodeId parent, InodeId new_parent, RenameKind kind) const;
  Result<const RefInode*> Regular(InodeId ino) const;
  void Do(RefEvent event);
  Result<Attr> Counted(InodeId ino);
  void MaybeDrop(InodeId ino);
  void MarkDurable(InodeId ino);

  RefState visible_;
  RefHistory history_;
  uint64_t ticks_ = 0;
  uint64_t next_ino_ = 2;
  uint64_t next_handle_ = 1;
  std::map<InodeId, uint64_t> references_;
  std::map<uint64_t, InodeId> handles_;
  std::map<InodeId, uint64_t> open_;
};

}  // namespace archil::test
