// What a person or the kernel side is told about the mount as a whole.

#include <algorithm>
#include <utility>
#include <vector>

#include "client/vfs/vfs.h"

namespace archil {
namespace {

constexpr absl::Duration kShrinkTime = absl::Seconds(30);

}  // namespace

void Vfs::SessionChanged(Session::State state) {
  if (state == Session::State::kFenced || state == Session::State::kClosed) locks_.Break();
  std::vector<InodeId> known;
  {
    MutexLock lock(wb_.state_.mu);
    if (state == Session::State::kWaiting) silent_alone_ = wb_.state_.rights.alone();
    if (state == Session::State::kActive) {
      silent_alone_ = false;
      wb_.SettlementDone();
    }
    if (state == Session::State::kFenced) wb_.Break("the session was ended by the server: " + session_.detail());
    wb_.state_.changed.SignalAll();
    if (state == Session::State::kWaiting || state == Session::State::kFenced) {
      for (const auto& [ino, inode] : wb_.state_.inodes) {
        if (inode->lookups > 0) known.push_back(ino);
      }
      std::sort(known.begin(), known.end());  // the table's order is another one in each run
    }
  }
  if (state == Session::State::kFenced) LoseEverything(session_.detail());
  // FENCE-1: without a lease the kernel must not answer from what it keeps.
  if (kernel_ == nullptr || (state != Session::State::kWaiting && state != Session::State::kFenced)) return;
  kernel_->DropNow(KernelCache::Names::kForget, {}, [] { return true; });
  for (const InodeId ino : known) kernel_->InvalidateInode(ino, 0, UINT64_MAX);
}

void Vfs::WakeWaiters() {
  locks_.Wake();
  MutexLock lock(wb_.state_.mu);
  wb_.state_.changed.SignalAll();
}

void Vfs::DropCaches() {
  cache_.Clear();
  std::vector<std::pair<InodeId, std::string>> names;
  {
    MutexLock lock(wb_.state_.mu);
    // The kernel's FORGETs for what it is told to drop come after this call: they find nothing worth keeping either.
    shrink_until_ = env_.scheduler.clock().Boot() + kShrinkTime;
    for (const auto& [ino, inode] : wb_.state_.inodes) {
      if (inode->map && inode->pins == 0 && inode->last_op <= wb_.state_.log.durable() && !inode->map->has_memory()) {
        inode->attr.allocated = AttrOf(*inode).allocated;  // the map will not know it any more
        inode->mapped = false;
        inode->map->DropClean();
        inode->map->Truncate(inode->attr.size);  // nothing lies past: that stays known
      }
      if (kernel_ == nullptr || !inode->is_dir()) continue;
      // Files only: a directory whose name the kernel drops is shown as deleted to whoever works in it.
      for (auto item = inode->dir->Next(2); item; item = inode->dir->Next(item->cookie)) {
        if (item->type == FileType::kDirectory) continue;
        const Inode* child = wb_.state_.Find(item->ino);
        if (child != nullptr && child->lookups > 0 && child->opens == 0) names.emplace_back(ino, std::string(item->name));
      }
    }
    DropPart(true);
  }
  for (const auto& [parent, name] : names) kernel_->InvalidateEntry(parent, name);
}

MountStatus Vfs::GetStatus() {
  MountStatus status;
  status.disk = session_.opened().disk.name;
  status.branch = config_.branch;
  status.session = session_.id();
  const Session::State state = session_.state();
  const bool over = state == Session::State::kFenced || state == Session::State::kClosed;
  // The lease may have run out while this process was stopped, and not have been looked at since.
  status.state = StateName(over || session_.Usable() ? state : Session::State::kWaiting);
  status.state_detail = session_.detail();
  status.lease = session_.lease();
  status.lease_left = session_.lease_left();
  status.dirty_bytes = wb_.dirty_bytes();
  status.dirty_limit_bytes = config_.dirty_limit_bytes;
  status.cache_bytes = cache_.bytes();
  status.cache_limit_bytes = cache_.limit_bytes();
  MutexLock lock(wb_.state_.mu);
  if (wb_.state_.broken) {
    status.state = "fenced";
    status.state_detail = wb_.state_.broken_reason;
  }
  status.log_ops = wb_.state_.log.size();
  status.inodes = wb_.state_.inodes.size();
  status.alone = wb_.state_.rights.alone();
  status.delegations = wb_.state_.rights.size();
  status.conditional = config_.conditional;
  status.contended = ContendedNow().size();
  status.acknowledged = wb_.state_.log.last();
  status.durable = wb_.state_.log.durable();
  status.lost_ops = lost_ops_;
  status.lost_file = lost_file_;
  return status;
}

std::vector<HeldDelegation> Vfs::Delegations(size_t limit) {
  std::vector<HeldDelegation> held;
  MutexLock lock(wb_.state_.mu);
  const BootTime now = env_.scheduler.clock().Boot();
  absl::flat_hash_map<InodeId, size_t> rows;
  for (const auto& [ino, number] : checkouts_) {
    rows[ino] = held.size();
    held.push_back({ino, ino == root_ ? "/" : "", Right::kWrite, true, absl::ZeroDuration(), true});
  }
  if (wb_.state_.rights.alone()) held.push_back({InodeId{}, "/", config_.read_only ? Right::kRead : Right::kWrite, true, absl::ZeroDuration()});
  for (const HeldRight& right : wb_.state_.rights.All()) {
    if (held.size() == limit) break;
    const Inode* inode = wb_.state_.Find(right.ino);
    rows[right.ino] = held.size();
    held.push_back({right.ino, right.ino == root_ ? "/" : "", right.right, inode != nullptr && inode->is_dir(),
                    now - wb_.state_.rights.SinceOf(right.ino)});
  }
  for (const InodeId ino : ContendedNow()) {
    if (held.size() == limit) break;
    rows[ino] = held.size();
    held.push_back({ino, ino == root_ ? "/" : "", Right::kNone, true, absl::ZeroDuration()});
  }
  const auto names = NamesOf([&](InodeId ino) { return rows.contains(ino); });
  for (HeldDelegation& row : held) {
    std::string path;
    InodeId at = row.ino;
    for (auto it = names.find(at); at != root_ && it != names.end(); it = names.find(at)) {
      path = "/" + it->second.name + path;
      at = it->second.parent;
    }
    if (at == root_ && !path.empty()) row.path = std::move(path);
  }
  return held;
}

// Names stand in directories, so this looks at all of them once.
absl::flat_hash_map<InodeId, LostLog::Name> Vfs::NamesOf(const std::function<bool(InodeId)>& wanted) {
  absl::flat_hash_map<InodeId, LostLog::Name> names;
  for (const auto& [ino, inode] : wb_.state_.inodes) {
    if (!inode->is_dir() || !inode->dir) continue;
    for (auto item = inode->dir->Next(2); item; item = inode->dir->Next(item->cookie)) {
      if (item->type == FileType::kDirectory || wanted(item->ino)) names[item->ino] = {ino, std::string(item->name)};
    }
  }
  return names;
}

std::vector<HeldRight> Vfs::Believed() {
  std::vector<HeldRight> held;
  MutexLock lock(wb_.state_.mu);
  if (wb_.state_.broken || !session_.Usable()) return held;
  if (wb_.state_.rights.alone()) return {{InodeId{}, Right::kWrite}};
  for (const auto& [ino, inode] : wb_.state_.inodes) {
    if (inode->gone || !wb_.state_.MayRead(*inode)) continue;
    held.push_back({ino, wb_.state_.MayChange(*inode) ? Right::kWrite : Right::kRead});
  }
  return held;
}

std::map<std::string, uint64_t> Vfs::Metrics() {
  const Writeback::Counters& w = wb_.counters;
  std::map<std::string, uint64_t> m;
  m["ops_logged"] = w.ops_logged;
  m["ops_sent"] = w.ops_sent;
  m["ops_absorbed"] = w.ops_absorbed;
  m["inodes_absorbed"] = w.inodes_absorbed;
  m["commits"] = w.commits;
  m["commit_retries"] = w.commit_retries;
  m["appends"] = w.appends;
  m["append_bytes"] = w.append_bytes;
  m["append_retries"] = w.append_retries;
  m["inline_bytes"] = w.inline_bytes;
  m["bytes_written"] = w.bytes_written;
  m["bytes_read"] = counters_.read_bytes;
  m["dirty_bytes"] = wb_.dirty_bytes();
  m["cache_hits"] = cache_.hits();
  m["cache_misses"] = cache_.misses();
  m["cache_bytes"] = cache_.bytes();
  m["fetches"] = reader_.fetches();
  m["fetched_bytes"] = reader_.fetched_bytes();
  m["renewals"] = session_.renewals();
  m["lease_waits"] = counters_.waits;
  m["rpc_commit"] = w.commits + w.commit_retries;
  m["rpc_append"] = w.appends + w.append_retries;
  for (const auto& [name, value] : locks_.Metrics()) m[name] = value;
  m["rpc_acquire"] = counters_.rpc_acquire;
  m["rpc_apply_op"] = counters_.rpc_apply_op;
  m["rpc_read_once"] = counters_.rpc_read_once;
  m["rpc_reserve_space"] = counters_.rpc_reserve_space;
  m["recalls"] = counters_.recalls;
  m["rpc_get_inode"] = counters_.rpc_get_inode;
  m["rpc_lookup"] = counters_.rpc_lookup;
  m["rpc_read_dir"] = counters_.rpc_read_dir;
  m["rpc_get_extents"] = counters_.rpc_get_extents;
  m["rpc_get_xattrs"] = counters_.rpc_get_xattrs;
  m["rpc_stat_fs"] = counters_.rpc_stat_fs;
  m["rpc_read"] = reader_.fetches();
  MutexLock lock(wb_.state_.mu);
  m["inodes"] = wb_.state_.inodes.size();
  m["log_ops"] = wb_.state_.log.size();
  m["lost_ops"] = lost_ops_;
  return m;
}

}  // namespace archil
