// Getting rights from the server, and giving them up. docs/delegation.md tells the protocol and why each step stands where it does.

#include <algorithm>
#include <utility>

#include "client/vfs/vfs.h"
#include "common/env/planted.h"

namespace archil {
namespace {

constexpr uint64_t kListAtOnce = 16384;   // names: larger directories are not listed with the right
constexpr uint32_t kWalkAfter = 2;        // directories asked for in a row before more are asked for at once
constexpr uint32_t kPrefetch = 8192;      // entries then
constexpr uint64_t kListAgain = 1024;     // names of a directory that is listed again for what lies below it
constexpr absl::Duration kWalkPause = absl::Milliseconds(500);
constexpr absl::Duration kAcquireAttempt = absl::Seconds(20);
constexpr absl::Duration kOpenGrace = absl::Seconds(1);  // between a LOOKUP and the OPEN that it was for
// A recall waits so long for the grant that it ends. Less than a server waits for an answer: what is on its way may be another request,
// which the server holds back until this recall is answered, while the answer that brought the grant was lost.
constexpr absl::Duration kGrantOnItsWay = absl::Seconds(1);
constexpr uint32_t kCarvedAtMost = 4;     // files of a directory wanted for writing one by one, before all of it is wanted

}  // namespace

Result<bool> Vfs::Need(const OpContext& ctx, Claim& claim, absl::Span<const Want> wants, Otherwise otherwise) {
  if (wb_.state_.rights.alone()) {
    for (const Want& want : wants) {
      if (wb_.state_.Find(want.ino) == nullptr) return LoadAlone(ctx, want.ino);
    }
    return true;
  }
  bool closing = false;
  for (const Want& want : wants) {
    const Inode* inode = wb_.state_.Find(want.ino);
    if (inode == nullptr || !wb_.state_.Holds(*inode, want.right)) return Acquire(ctx, claim, wants, otherwise);
    closing = closing || (want.right == Right::kWrite ? !wb_.state_.MayChange(*inode) : wb_.state_.ReadsWait(*inode));
  }
  if (!closing) return true;
  // It is being given up and will be gone in a moment; then it is asked for again.
  if (!ctx.may_block) return Code::kWouldBlock;
  if (ctx.cancelled()) return Code::kInterrupted;
  wb_.state_.changed.Wait(wb_.state_.mu);
  return false;
}

AcquireRequest Vfs::RequestFor(absl::Span<const Want> wants) {
  AcquireRequest request;
  request.session = session_.id();
  request.key = session_.key();
  bool reads_directory = false;
  const auto add = [&](const Want& want) {
    const auto same = [&](const Want& w) { return w.ino == want.ino; };
    const auto it = std::find_if(request.wants.begin(), request.wants.end(), same);
    if (it == request.wants.end()) {
      request.wants.push_back(want);
    } else {
      it->right = Stronger(it->right, want.right);
      it->list = it->list || want.list;
    }
  };
  for (Want want : wants) {
    Inode* inode = wb_.state_.Find(want.ino);
    const bool directory = inode == nullptr || inode->is_dir();
    if (directory) {
      const bool known = inode != nullptr && inode->valid && inode->dir->complete();
      want.list = !known && (inode == nullptr || inode->attr.size <= kListAtOnce);
      reads_directory = reads_directory || (want.list && want.right == Right::kRead);
    } else if (want.right == Right::kWrite && inode->home && !config_.conditional) {
      Inode* home = wb_.state_.Find(inode->home);
      if (home != nullptr && ++home->carved >= kCarvedAtMost) {
        home->carved = 0;
        add({home->ino(), Right::kWrite, false});
      }
    }
    add(want);
  }
  if (reads_directory && !config_.conditional) {
    const BootTime now = env_.scheduler.clock().Boot();
    walk_ = now - last_walk_ < kWalkPause ? walk_ + 1 : 0;
    last_walk_ = now;
    if (walk_ >= kWalkAfter) request.prefetch = kPrefetch;
    // What lies below the neighbours as well: below what is listed again.
    for (Want& want : request.wants) {
      const Inode* inode = wb_.state_.Find(want.ino);
      if (request.prefetch > 0 && inode != nullptr && inode->is_dir() && inode->attr.size <= kListAgain) want.list = true;
    }
  }
  return request;
}

Result<bool> Vfs::Acquire(const OpContext& ctx, Claim& claim, absl::Span<const Want> wants, Otherwise otherwise) {
  if (!ctx.may_block) return Code::kWouldBlock;
  claim.Release();
  AcquireRequest request = RequestFor(wants);
  request.or_at_server = otherwise == Otherwise::kAtServer;
  request.brief = config_.conditional;
  request.must_hold = otherwise == Otherwise::kWait;
  std::vector<Inode*> writing;
  for (const Want& want : request.wants) {
    Inode* inode = want.right == Right::kWrite ? wb_.state_.Find(want.ino) : nullptr;
    if (inode == nullptr || !inode->is_file()) continue;
    ++inode->waiting_writes;
    ++inode->pins;
    writing.push_back(inode);
  }
  LoadScope load(wb_.state_, nullptr);
  const uint64_t id = ++last_acquire_;
  const uint64_t reclaims = reclaims_;
  acquires_.insert(id);
  Result<AcquireReply> reply = Code::kUnavailable;
  {
    ReleaseLock unlocked(wb_.state_.mu);
    counters_.rpc_acquire.fetch_add(1);
    reply = env_.meta.Acquire(ctx.WithDeadline(env_.scheduler.clock().Boot() + kAcquireAttempt), request);
  }
  std::vector<InodeId> drop_now;  // what a recall could not drop meanwhile, because the kernel waited for us with its pages locked
  for (Inode* inode : writing) {
    --inode->pins;
    if (--inode->waiting_writes == 0 && std::exchange(inode->drop_pages, false)) drop_now.push_back(inode->ino());
  }
  const bool believed = reply.ok() && reclaims == reclaims_ && !wb_.state_.rights.alone();
  if (believed) {
    Install(*reply, load.stamp());
    for (const Grant& grant : reply->grants) {
      const auto wanted = [&](const Want& w) { return w.ino == grant.ino; };
      if (std::any_of(request.wants.begin(), request.wants.end(), wanted)) claim.Add(grant.ino);
    }
  }
  acquires_.erase(id);
  if (acquires_.empty()) wb_.state_.rights.ForgetGivenUp();
  wb_.state_.changed.SignalAll();  // recalls wait for grants that are on their way
  if (!drop_now.empty() && kernel_ != nullptr) {
    ReleaseLock unlocked(wb_.state_.mu);
    for (const InodeId ino : drop_now) kernel_->InvalidateInode(ino, 0, UINT64_MAX);
  }
  if (!reply.ok()) {
    if (reply.code() == Code::kReadOnly) return reply.error();
    return RetryLater(ctx, reply.error());
  }
  for (const InodeId ino : reply->at_server) NoteContended(ino, true);
  for (const InodeId ino : reply->through) NoteThrough(ino);
  if (believed) {
    for (const InodeId ino : reply->missing) {
      Inode* inode = wb_.state_.Find(ino);
      // What is held was made here, and the server does not know it yet.
      const bool ours = inode != nullptr && wb_.state_.Holds(*inode, Right::kRead);
      if (inode != nullptr && !ours && wb_.state_.Fresh(ino, load.stamp())) Gone(*inode);
      if (inode == nullptr && request.wants.size() == 1) return Code::kStale;
    }
  }
  Trim();
  return false;
}

// Its last name and handle are gone, on other mounts. Whoever still works in it or with it sees it without a name; it never comes back.
void Vfs::Gone(Inode& inode) {
  inode.gone = inode.valid = true;
  inode.orphan = inode.told_open = false;  // no server knows of it, whatever was said
  wb_.state_.EndPromise(inode);
  inode.attr.nlink = 0;
  inode.parent = InodeId{};
  wb_.state_.SetHome(inode, InodeId{});
  if (inode.is_dir()) {
    inode.dir = std::make_unique<DirIndex>(true);
    inode.attr.size = 0;
  } else if (inode.is_file()) {
    inode.map = std::make_unique<FileMap>(true);
  }
  if (!inode.xattrs) inode.xattrs.emplace();
}

void Vfs::Install(const AcquireReply& reply, uint64_t stamp) {
  const BootTime now = env_.scheduler.clock().Boot();
  for (size_t i = 0; i < reply.grants.size() && i < reply.inodes.size(); ++i) {
    const Grant& grant = reply.grants[i];
    if (!wb_.state_.rights.Install(grant.ino, grant.right, grant.number, now)) continue;
    Inode& inode = wb_.state_.InMemory(grant.ino);
    if (!inode.valid) Refresh(inode, reply.inodes[i]);
    for (const InodeId child : grant.uncovered) {
      if (Planted(Plant::kUncoveredIgnored)) break;
      wb_.state_.NotFresh(child);  // a listing that is on its way may call it covered
      Inode* known = wb_.state_.Find(child);
      if (known == nullptr || known->home != grant.ino) continue;
      wb_.state_.SetHome(*known, InodeId{});
      if (!wb_.state_.rights.Install(child, Right::kRead, grant.number, now)) known->valid = false;
    }
  }
  for (const DirPage& page : reply.listings) {
    Inode* dir = wb_.state_.Find(page.directory.attr.ino);
    if (dir == nullptr || !dir->valid || !dir->is_dir() || dir->dir->complete()) continue;
    if (wb_.state_.rights.Of(dir->ino()) == Right::kNone || !wb_.state_.Fresh(dir->ino(), stamp)) continue;
    InsertPage(*dir, page, stamp);
    if (page.complete) dir->dir->SetComplete();
  }
}

// --- giving up

bool Vfs::AcquiresUpTo(uint64_t id) { return !acquires_.empty() && *acquires_.begin() <= id; }

bool Vfs::Claimed(InodeId ino) {
  if (wb_.state_.claims.contains(ino)) return true;
  for (const auto& [claimed, count] : wb_.state_.claims) {
    const Inode* inode = wb_.state_.Find(claimed);
    if (inode != nullptr && inode->home == ino) return true;
  }
  return false;
}

void Vfs::OnMessage(const SessionMessage& message) {
  counters_.recalls.fetch_add(1);
  if (message.kind == SessionMessage::Kind::kRecallAlone) {
    RecallAlone(message);
  } else if (message.kind == SessionMessage::Kind::kReturnSpace) {
    ReturnSpace(message.number);
  } else if (message.kind == SessionMessage::Kind::kFlush) {
    FlushOnly(message);
  } else if (message.kind == SessionMessage::Kind::kCheckoutEnded) {
    CheckoutEnded(message);
  } else {
    Recall(message);
  }
}

void Vfs::StopRecalls() {
  locks_.Break();
  MutexLock lock(wb_.state_.mu);
  stop_.Cancel();
  wb_.state_.changed.SignalAll();
}

void Vfs::Recall(const SessionMessage& message) {
  RecallAnswer answer;
  answer.message = message.number;
  MutexLock lock(wb_.state_.mu);
  // 1: the grant that it ends may be on its way. 2: what was asked for is used once. What a recall of the directory has ended already does
  // not come: who waited for it would wait for our own next request, which may stand behind the one that this recall is for.
  const uint64_t newest = last_acquire_;
  const InodeId granted = message.home ? message.home : message.ino;
  BootTime patience = env_.scheduler.clock().Boot() + kGrantOnItsWay;
  if (Planted(Plant::kRecallOvertakesGrant)) patience = BootTime{};
  const bool for_ever = Planted(Plant::kWaitsForGrant);
  if (for_ever) patience = BootTime::Infinite();
  while (!stop_.cancelled() && !wb_.state_.broken) {
    const bool ended = wb_.state_.rights.Ended(granted, message.grant) && !for_ever;
    const bool comes = wb_.state_.rights.NumberOf(granted) < message.grant && !ended;
    const bool on_its_way = comes && AcquiresUpTo(newest) && env_.scheduler.clock().Boot() < patience;
    if (!on_its_way && !Claimed(message.ino)) break;
    wb_.state_.changed.WaitUntil(wb_.state_.mu, on_its_way ? patience : BootTime::Infinite());
  }
  if (stop_.cancelled() || wb_.state_.broken) return;
  wb_.state_.rights.BeginRecall(message.ino, message.keep);
  // 3: while changes go on; then once more for the little that came meanwhile, with everything at rest.
  std::vector<KernelCache::Drop> late;
  if (Planted(Plant::kAnswerBeforeDrop)) late = KernelDrops(message.ino);
  const bool drop = message.keep == Right::kNone && !Planted(Plant::kAnswerBeforeDrop);
  const bool flush = !Planted(Plant::kAnswerUnchecked);
  if (drop) DropFromKernel(message.ino);
  if (flush && !FlushFor(message.ino).ok()) return;  // the mount is at its end
  wb_.state_.rights.CloseNames(message.ino);
  if (drop) SealFromKernel(message.ino);
  // 4
  wb_.state_.rights.Close(message.ino);
  if (flush && !FlushFor(message.ino).ok()) return;
  // 5, 6
  answer.last = wb_.told();
  GiveUp(message, answer);
  wb_.state_.changed.SignalAll();
  ReleaseLock unlocked(wb_.state_.mu);
  progress_.fetch_add(1);
  session_.Answer(std::move(answer));
  if (!late.empty() && kernel_ != nullptr) kernel_->DropNow(KernelCache::Names::kForget, late, [] { return false; });
}

void Vfs::DropNow(KernelCache::Names names, const std::vector<KernelCache::Drop>& drops) {
  if (kernel_ == nullptr || (drops.empty() && names == KernelCache::Names::kKeep)) return;
  ReleaseLock unlocked(wb_.state_.mu);
  kernel_->DropNow(names, drops, [this, &drops] {
    MutexLock lock(wb_.state_.mu);
    if (stop_.cancelled()) return true;
    bool blocked = false;
    for (const KernelCache::Drop& drop : drops) {
      Inode* inode = wb_.state_.Find(drop.ino);
      if (inode == nullptr || !drop.pages || inode->waiting_writes == 0) continue;
      inode->drop_pages = true;
      blocked = true;
    }
    return blocked;
  });
  progress_.fetch_add(1);
}

void Vfs::DropFromKernel(InodeId ino) {
  const Inode* inode = wb_.state_.Find(ino);
  const bool directory = inode != nullptr && inode->is_dir();
  DropNow(directory ? KernelCache::Names::kForget : KernelCache::Names::kKeep, KernelDrops(ino));
  // A listing that was answered just before may reach the kernel's cache after that: it is dropped twice.
  if (Inode* dir = wb_.state_.Find(ino); dir != nullptr && dir->is_dir() && dir->lookups > 0) dir->recached = true;
}

// The kernel was handed pages since it dropped them (reads and writes are answered meanwhile). One inode after the other is
// dropped again until nothing was handed out in between, and is at rest from then on.
void Vfs::SealFromKernel(InodeId ino) {
  for (;;) {
    std::vector<InodeId> again;
    ForCovered(ino, [&](Inode& inode) {
      if (inode.recached && !inode.sealed) again.push_back(inode.ino());
    });
    if (again.empty()) return;
    for (const InodeId which : again) {
      Inode* inode = wb_.state_.Find(which);
      if (inode == nullptr) continue;
      inode->recached = inode->in_kernel = false;
      DropNow(KernelCache::Names::kKeep, {{which, true}});
      inode = wb_.state_.Find(which);
      // Meanwhile it may have been given up by itself: then it is not this recall that would open it again.
      const bool ours = inode != nullptr && (which == ino || inode->home == ino);
      if (ours && !inode->recached) inode->sealed = true;
      if (stop_.cancelled() || wb_.state_.broken) return;
    }
  }
}

// The inode, if it is in memory, and those that it covers.
void Vfs::ForCovered(InodeId ino, const std::function<void(Inode&)>& fn) {
  Inode* inode = wb_.state_.Find(ino);
  if (inode == nullptr) return;
  if (inode->is_dir() && inode->covered > 0) {
    for (auto item = inode->dir->Next(2); item; item = inode->dir->Next(item->cookie)) {
      Inode* child = wb_.state_.Find(item->ino);
      if (child != nullptr && child->home == ino) fn(*child);
    }
  }
  fn(*inode);
}

std::vector<KernelCache::Drop> Vfs::KernelDrops(InodeId ino) {
  std::vector<KernelCache::Drop> drops;
  ForCovered(ino, [&](Inode& inode) {
    inode.recached = false;
    const bool pages = std::exchange(inode.in_kernel, false) || inode.drop_pages;
    if (inode.lookups > 0) drops.push_back({inode.ino(), pages});
  });
  return drops;
}

Status Vfs::FlushFor(InodeId ino) {
  OpContext ctx;
  ctx.cancel = &stop_;
  Inode* inode = wb_.state_.Find(ino);
  if (inode == nullptr) return Ok();
  wb_.Take(*inode);
  if (inode->is_dir()) wb_.TakeCovered(*inode);
  // What comes after this moment is the next flush's: somebody who goes on changing must not keep it from ending.
  return wb_.MakeDurable(ctx, std::max(inode->last_op, inode->covered_last));
}

void Vfs::GiveUpInode(Inode& inode, RecallAnswer& answer) {
  wb_.state_.NotFresh(inode.ino());
  inode.valid = Planted(Plant::kStillTrue);
  inode.sealed = inode.recached = inode.only_ours = false;
  ++inode.generation;
  if (inode.dir) inode.dir->Invalidate();
  const bool opening = !InUse(inode) && JustLookedUp(inode.ino());
  if (opening && !inode.told_open) grace_.push_back(inode.ino());
  if (InUse(inode) || opening) {
    inode.told_open = true;
    answer.opens.push_back(inode.ino());
  }
}

bool Vfs::JustLookedUp(InodeId ino) {
  const BootTime since = env_.scheduler.clock().Boot() - kOpenGrace;
  return std::any_of(looked_up_.begin(), looked_up_.end(), [&](const auto& seen) { return seen.first == ino && seen.second >= since; });
}

void Vfs::BeforeBeat() {
  MutexLock lock(wb_.state_.mu);
  quiet_ = wb_.quiet();
  EndGrace();
}

void Vfs::EndGrace() {
  std::vector<InodeId> waiting;
  for (const InodeId ino : std::exchange(grace_, {})) {
    const Inode* known = wb_.state_.Find(ino);
    if (known != nullptr && (InUse(*known) || !known->told_open)) continue;  // its last close tells, or has told
    if (JustLookedUp(ino)) {
      waiting.push_back(ino);
      continue;
    }
    Inode& inode = wb_.state_.InMemory(ino);  // stays until that is heard
    inode.orphan = inode.told_open = false;
    if (!wb_.state_.broken) wb_.Log(ReleaseOrphanOp{ino}, {&inode});
  }
  grace_.insert(grace_.end(), waiting.begin(), waiting.end());
}

void Vfs::GiveUp(const SessionMessage& message, RecallAnswer& answer) {
  std::vector<InodeId> all;
  ForCovered(message.ino, [&](Inode& inode) { all.push_back(inode.ino()); });
  answer.kept = message.keep;
  if (message.keep == Right::kNone) {
    if (all.empty()) wb_.state_.NotFresh(message.ino);
    for (const InodeId ino : all) {
      Inode& inode = *wb_.state_.Find(ino);
      inode.sealed = inode.recached = false;
      wb_.state_.SetHome(inode, InodeId{});
      if (ino == message.ino || wb_.state_.rights.Of(ino) == Right::kNone) GiveUpInode(inode, answer);
    }
  } else {
    for (const InodeId ino : all) wb_.state_.Find(ino)->only_ours = false;
    // A listing that is on its way may still call it covered.
    wb_.state_.NotFresh(message.ino);
    // At most what is held: it may have been taken meanwhile.
    Inode* inode = wb_.state_.Find(message.ino);
    answer.kept = Weaker(message.keep, wb_.state_.rights.RightOf(message.ino, inode == nullptr ? InodeId{} : inode->home));
    // All that is held on it is meant; a record of its own stays.
    if (inode != nullptr && !inode->is_dir()) wb_.state_.SetHome(*inode, InodeId{});
  }
  wb_.state_.rights.GaveUp(message.ino, answer.kept, message.number);
  if (acquires_.empty()) wb_.state_.rights.ForgetGivenUp();
}

// What is kept of everything; not what was taken meanwhile.
std::vector<HeldRight> Vfs::EndAlone(uint64_t number) {
  std::vector<HeldRight> keeps;
  const Right right = config_.read_only ? Right::kRead : Right::kWrite;
  for (const auto& [ino, inode] : wb_.state_.inodes) {
    if (inode->valid && (inode->is_dir() || !inode->home) && !not_held_.contains(ino)) keeps.push_back({ino, right});
  }
  std::sort(keeps.begin(), keeps.end(), [](const HeldRight& a, const HeldRight& b) { return a.ino < b.ino; });
  wb_.state_.rights.EndAlone(keeps, number, env_.scheduler.clock().Boot());
  wb_.state_.NothingFresh();
  return keeps;
}

void Vfs::RecallAlone(const SessionMessage& message) {
  RecallAnswer answer;
  answer.message = message.number;
  {
    MutexLock lock(wb_.state_.mu);
    if (wb_.state_.broken) return;
    if (wb_.state_.rights.alone()) answer.keeps = EndAlone(message.number);
    answer.last = wb_.told();
    wb_.state_.changed.SignalAll();
  }
  FileLocks::Moving moving = locks_.Surrender();
  answer.locks = std::move(moving.locks);
  answer.waiters = std::move(moving.waiters);
  session_.Answer(answer);
  locks_.Moved();
}

// --- after a restart of the server

ReclaimRequest Vfs::HeldForReclaim() {
  MutexLock lock(wb_.state_.mu);
  ReclaimRequest request;
  request.session = session_.id();
  request.key = session_.key();
  request.alone = wb_.state_.rights.alone();
  if (!request.alone) request.rights = wb_.state_.rights.All();
  std::erase_if(request.rights, [&](const HeldRight& held) ABSL_NO_THREAD_SAFETY_ANALYSIS { return not_held_.contains(held.ino); });
  for (const auto& [ino, inode] : wb_.state_.inodes) {
    if (inode->told_open) request.opens.push_back(ino);
  }
  std::sort(request.opens.begin(), request.opens.end());
  request.locks = locks_.Held();
  for (const auto& [ino, number] : checkouts_) request.checkouts.push_back({ino, number});
  request.last_checkout = last_checkout_;
  request.finished_ops = server_ops_.empty() ? last_server_op_ + 1 : *server_ops_.begin();
  request.finished_locks = locks_.FinishedCalls();
  ++reclaims_;
  return request;
}

void Vfs::Reclaimed(uint64_t number) {
  MutexLock lock(wb_.state_.mu);
  wb_.state_.rights.Renumber(number);
  wb_.state_.changed.SignalAll();
}

}  // namespace archil
