// MemFsApi: a file system in memory behind FsApi, one mutex around a tree of nodes. It has no server, no log and no
// delegation, so the kernel's edge can be tested and timed without the client core. Not a reference for semantics.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "client/core/fs_api.h"
#include "client/locks/file_locks.h"
#include "common/env/sched.h"

namespace archil {

class MemFsApi final : public FsApi {
 public:
  explicit MemFsApi(Scheduler& scheduler);
  ~MemFsApi() override;

  // ---- for tests
  // Calls that may not block answer kWouldBlock, as if each had to ask a server.
  void set_always_wait(bool on) { always_wait_ = on; }
  // A Lookup of this name never answers until its context is cancelled.
  void HoldName(std::string name);
  // Waits until `count` calls are held.
  void AwaitHeld(size_t count);
  size_t nodes();
  uint64_t references();  // of the kernel, over all nodes but the root
  size_t open_handles();

  InodeId Root() const override { return kRootInode; }
  Result<Entry> Lookup(const OpContext& ctx, InodeId parent, std::string_view name) override;
  absl::Duration NegativeTtl(InodeId parent) override;
  void Forget(InodeId ino, uint64_t count) override;
  Result<AttrReply> GetAttr(const OpContext& ctx, InodeId ino) override;
  Result<AttrReply> SetAttr(const OpContext& ctx, InodeId ino, const SetAttrRequest& request) override;
  Result<std::string> Readlink(const OpContext& ctx, InodeId ino) override;
  Result<Entry> Mkdir(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode) override;
  Result<Entry> Mknod(const OpContext& ctx, InodeId parent, std::string_view name, FileType type, uint32_t mode,
                      uint64_t rdev) override;
  Result<Entry> Symlink(const OpContext& ctx, InodeId parent, std::string_view name, std::string_view target) override;
  Result<Entry> Link(const OpContext& ctx, InodeId ino, InodeId parent, std::string_view name) override;
  Result<CreateReply> Create(const OpContext& ctx, InodeId parent, std::string_view name, uint32_t mode, int flags) override;
  Status Unlink(const OpContext& ctx, InodeId parent, std::string_view name) override;
  Status Rmdir(const OpContext& ctx, InodeId parent, std::string_view name) override;
  Status Rename(const OpContext& ctx, InodeId parent, std::string_view name, InodeId new_parent, std::string_view new_name,
                RenameMode mode) override;
  Result<OpenReply> Open(const OpContext& ctx, InodeId ino, int flags) override;
  Result<ReadReply> Read(const OpContext& ctx, InodeId ino, uint64_t offset, size_t length) override;
  Result<size_t> Write(const OpContext& ctx, InodeId ino, uint64_t offset, std::string_view data, bool append,
                       bool kill_set_id) override;
  Status Fsync(const OpContext& ctx, InodeId ino, HandleId handle, bool data_only) override;
  Status FsyncDir(const OpContext& ctx, InodeId ino) override;
  void Release(InodeId ino, HandleId handle) override;
  Status Fallocate(const OpContext& ctx, InodeId ino, FallocateMode mode, uint64_t offset, uint64_t length) override;
  Result<uint64_t> Seek(const OpContext& ctx, InodeId ino, uint64_t offset, SeekWhat what) override;
  Status Readdir(const OpContext& ctx, InodeId ino, uint64_t cookie, bool plus,
                 const std::function<bool(const DirItem&)>& fn) override;
  Status SetLock(const OpContext& ctx, InodeId ino, HandleId handle, const LockCall& call) override;
  Result<std::optional<FileLock>> TestLock(const OpContext& ctx, InodeId ino, const LockCall& call) override;
  Status Flush(const OpContext& ctx, InodeId ino, HandleId handle, uint64_t owner) override;
  Result<std::string> GetXattr(const OpContext& ctx, InodeId ino, std::string_view name) override;
  Result<std::vector<std::string>> ListXattrs(const OpContext& ctx, InodeId ino) override;
  Status SetXattr(const OpContext& ctx, InodeId ino, std::string_view name, std::string_view value, XattrMode mode) override;
  Status RemoveXattr(const OpContext& ctx, InodeId ino, std::string_view name) override;
  Result<FsStats> StatFs(const OpContext& ctx) override;
  Result<SyncReport> Sync(const OpContext& ctx) override { return SyncReport{}; }
  void DropCaches() override {}
  MountStatus GetStatus() override;
  std::vector<HeldDelegation> Delegations(size_t) override { return {}; }
  std::map<std::string, uint64_t> Metrics() override { return locks_.Metrics(); }
  void WakeWaiters() override;

 private:
  struct Node;
  Node* Find(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Result<Node*> FindDirectory(InodeId ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Result<Node*> Child(Node& dir, std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Result<Node*> NewChild(const OpContext& ctx, InodeId parent, std::string_view name, FileType type, uint32_t mode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddName(Node& dir, std::string_view name, Node& child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveName(Node& dir, std::string_view name, Node& child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Touch(Node& node, bool data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Resize(Node& node, uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropIfDead(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Entry EntryOf(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MustWait(const OpContext& ctx) const { return always_wait_ && !ctx.may_block; }

  Scheduler& scheduler_;
  FileLocks locks_;
  std::atomic<bool> always_wait_{false};
  Mutex mu_;
  CondVar changed_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Node>> nodes_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ino_ ABSL_GUARDED_BY(mu_) = 2;
  uint64_t next_handle_ ABSL_GUARDED_BY(mu_) = 1;
  size_t open_ ABSL_GUARDED_BY(mu_) = 0;
  std::string held_name_ ABSL_GUARDED_BY(mu_);
  size_t held_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace archil
