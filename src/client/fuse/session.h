// Inside of the FUSE room: the state that handlers share, and how a handler runs. Includes libfuse; nobody outside
// of this folder includes it.
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "client/core/fs_api.h"
#include "client/fuse/fuse_mount.h"
#include "client/fuse/kernel_abi.h"
#include "client/fuse/waiting_requests.h"
#include "client/fuse/worker_pool.h"

namespace archil::fuse {

// How an argument is kept while its request waits for a worker.
template <class T>
struct Kept {
  using Type = T;
};
template <>
struct Kept<std::string_view> {
  using Type = std::string;
};

class Session {
 public:
  // `owner` is handed back by owner(): libfuse's hooks carry no userdata but the session's.
  Session(Scheduler& scheduler, void* owner, const FuseOptions& options);

  void* owner() const { return owner_; }

  FsApi& fs() { return *fs_; }
  void set_fs(FsApi* fs) { fs_ = fs; }

  // The kernel calls the root of every mount 1; a mounted subtree's root has another number in the disk.
  InodeId InodeOf(fuse_ino_t node) const { return node == FUSE_ROOT_ID ? root_ : InodeId(node); }
  fuse_ino_t NodeOf(InodeId ino) const { return ino == root_ ? FUSE_ROOT_ID : ino.value; }
  void set_root(InodeId root) { root_ = root; }

  // Runs `verb(session, req, ctx, args…)`, which replies and returns true, or returns false without any reply if ctx
  // forbids waiting and it would have to; then a worker repeats it. Called by the reader only.
  template <class... Args>
  void Run(fuse_req_t req, bool (*verb)(Session&, fuse_req_t, const OpContext&, Args...),
           const std::type_identity_t<Args>&... args) {
    if (!RunNow(req, verb, args...)) HandOver(req, Interrupts::kDeadly, pool_, nullptr, verb, args...);
  }
  // The same for a wait for a lock: it has threads of its own, so that it takes none from requests that come to an end by
  // themselves, and any signal ends it.
  template <class... Args>
  void RunLockWait(fuse_req_t req, bool (*verb)(Session&, fuse_req_t, const OpContext&, Args...),
                   const std::type_identity_t<Args>&... args) {
    if (RunNow(req, verb, args...)) return;
    if (lock_waiters_.fetch_add(1) >= max_lock_waiters_) {
      lock_waiters_.fetch_sub(1);
      fuse_reply_err(req, ENOLCK);
      return;
    }
    HandOver(req, Interrupts::kAny, lock_pool_, &lock_waiters_, verb, args...);
  }

  static OpContext ContextOf(fuse_req_t req) {
    const fuse_ctx* c = fuse_req_ctx(req);
    OpContext ctx;
    ctx.caller = {c->uid, c->gid, c->pid};
    return ctx;
  }

  // The request that the reader is decoding; for handlers, before they hand over.
  const RequestPeek& current() const { return current_; }
  void Begin(const RequestPeek& peek) {
    current_ = peek;
    upcalls_[peek.opcode <= kMaxOpcode ? peek.opcode : 0].fetch_add(1, std::memory_order_relaxed);
  }

  WaitingRequests& waiting() { return waiting_; }
  WorkerPool& pool() { return pool_; }
  WorkerPool& lock_pool() { return lock_pool_; }
  size_t lock_waiters() const { return lock_waiters_.load(); }
  Personality personality() const { return personality_; }
  bool keeps_names() const { return keeps_names_.load(std::memory_order_relaxed); }
  // INIT: the protocol that the kernel speaks.
  void Negotiated(uint32_t minor) {
    if (personality_ == Personality::kShared && minor < kMinorWithEpochs) keeps_names_.store(false, std::memory_order_relaxed);
  }
  uint64_t upcalls(uint32_t opcode) const { return upcalls_[opcode].load(std::memory_order_relaxed); }
  uint64_t handed_over() const { return handed_over_.load(std::memory_order_relaxed); }

 private:
  template <class... Args>
  bool RunNow(fuse_req_t req, bool (*verb)(Session&, fuse_req_t, const OpContext&, Args...),
              const std::type_identity_t<Args>&... args) {
    OpContext ctx = ContextOf(req);
    ctx.may_block = false;
    return verb(*this, req, ctx, args...);
  }

  // `count`: taken down when it is over; may be null.
  template <class... Args>
  void HandOver(fuse_req_t req, Interrupts interrupts, WorkerPool& pool, std::atomic<size_t>* count,
                bool (*verb)(Session&, fuse_req_t, const OpContext&, Args...), const std::type_identity_t<Args>&... args) {
    handed_over_.fetch_add(1, std::memory_order_relaxed);
    auto waiting = std::make_shared<WaitingRequest>();
    waiting->unique = current_.unique;
    waiting->pid = current_.pid;
    waiting->interrupts = interrupts;
    waiting->answer_interrupted = [req] { fuse_reply_err(req, EINTR); };
    OpContext ctx = ContextOf(req);
    ctx.cancel = &waiting->cancel;
    waiting_.Add(waiting);
    pool.Submit([this, req, verb, ctx, waiting, count, kept = std::tuple<typename Kept<Args>::Type...>(args...)] {
      if (waiting->Take()) {
        std::apply([&](const auto&... a) { verb(*this, req, ctx, Args(a)...); }, kept);
      }
      waiting_.Remove(waiting->unique);
      if (count != nullptr) count->fetch_sub(1);
    });
  }

  void* const owner_;
  const Personality personality_;
  const size_t max_lock_waiters_;
  std::atomic<bool> keeps_names_;
  FsApi* fs_ = nullptr;
  InodeId root_;
  RequestPeek current_;  // the reader's
  std::array<std::atomic<uint64_t>, kMaxOpcode + 1> upcalls_{};
  std::atomic<uint64_t> handed_over_{0};
  WaitingRequests waiting_;
  std::atomic<size_t> lock_waiters_{0};
  WorkerPool pool_;
  WorkerPool lock_pool_;
};

inline Session& SessionOf(fuse_req_t req) { return *static_cast<Session*>(fuse_req_userdata(req)); }

// The handlers; their userdata is a Session.
fuse_lowlevel_ops Handlers(Personality personality);
// Of shared mounts: those for locks and FLUSH.
void AddLockHandlers(fuse_lowlevel_ops* ops);
// Of exclusive mounts: in the place of what opens and closes files.
void AddExclusiveHandlers(Personality personality, fuse_lowlevel_ops* ops);

}  // namespace archil::fuse
