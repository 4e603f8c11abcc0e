// SimClient: a machine with a mount: its links, a kernel that remembers what it is allowed to, and applications that
// call the kernel.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/core/mount.h"
#include "tests/sim/history.h"
#include "tests/sim/network.h"

namespace archil::sim {

// What Linux keeps of names, attributes and pages, as far as it matters for who sees what: an answer enters only if
// nothing was dropped since its request, and stays until it is dropped. It never forgets by itself.
class SimKernel final : public KernelCache {
 public:
  SimKernel(SimScheduler& scheduler, FsApi& fs) : scheduler_(scheduler), fs_(fs) {}

  // The event's answer, from what is known or from the mount.
  void Call(const OpContext& ctx, Event& event);
  // Has the inode's number from the mount.
  bool Knows(InodeId ino) const { return ino == kRootInode || known_.contains(ino); }
  // Everything is forgotten, as when memory is short; not while calls run.
  void ForgetAll();
  uint64_t from_memory() const { return from_memory_; }

  void InvalidateInode(InodeId ino, uint64_t offset, uint64_t length) override;
  void InvalidateEntry(InodeId parent, const std::string& name) override;
  void DropNow(Names names, const std::vector<Drop>& inodes, const std::function<bool()>& blocked) override;

 private:
  struct Known {
    uint64_t references = 0;
    std::optional<Attr> attr;
    std::optional<std::string> pages;
  };
  using NameKey = std::pair<InodeId, std::string>;

  void Lookup(const OpContext& ctx, Event& event);
  void GetAttr(const OpContext& ctx, Event& event);
  void Read(const OpContext& ctx, Event& event);
  void List(const OpContext& ctx, Event& event);
  void Birth(const OpContext& ctx, Event& event);
  void ChangeNames(const OpContext& ctx, Event& event);
  void ChangeFile(const OpContext& ctx, Event& event);
  void Enter(const Entry& entry, uint64_t stamp);
  void Drop(InodeId ino, bool pages);
  void AwaitPages(InodeId ino, const std::function<bool()>& blocked);
  void DropAttrs();

  SimScheduler& scheduler_;
  FsApi& fs_;
  std::map<InodeId, Known> known_;
  std::map<NameKey, InodeId> names_;                                  // 0: absent
  std::map<std::pair<int, InodeId>, std::vector<HandleId>> handles_;  // by thread
  std::set<HandleId> direct_;                                             // nothing is kept of what is read through them
  std::multiset<InodeId> locked_;                                         // a write waits with a page that shows nothing
  uint64_t stamp_ = 0;                                                // +1 whenever something is dropped
  uint64_t from_memory_ = 0;
};

class SimClient {
 public:
  SimClient(Network& network, MetaService& meta, DataServicePool& data, Random& random, int client);
  ~SimClient();

  Status Start(const MountConfig& config);
  // The process is gone. Its calls return soon.
  void Crash();
  bool crashed() const { return end_->dead; }
  bool fenced();
  // It has its lease.
  bool active();
  // Since the last call it has lost something that it had acknowledged.
  bool TakeLost();

  void CutUntil(absl::Duration when) { end_->cut_until = std::max(end_->cut_until, when); }
  Mount& mount() { return *mount_; }
  bool mounted() const { return mount_ != nullptr; }
  SimKernel& kernel() { return *kernel_; }
  int number() const { return number_; }
  // The whole tree, from the mount.
  Result<Tree> Dump(const OpContext& ctx);

 private:
  Network& network_;
  Random& random_;
  const int number_;
  const std::shared_ptr<ClientEnd> end_;
  ClientLinks links_;
  std::unique_ptr<Mount> mount_;
  uint64_t lost_ops_ = 0;
  std::unique_ptr<SimKernel> kernel_;
};

}  // namespace archil::sim
