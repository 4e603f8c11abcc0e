// Checkouts: a directory of this mount with all below it, and what others have checked out (docs/delegation.md, "Checkouts").

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "client/vfs/vfs.h"
#include "common/obs/log.h"

namespace archil {
namespace {

constexpr absl::Duration kThroughFor = absl::Seconds(1);  // after the server said so
constexpr absl::Duration kAttempt = absl::Seconds(20);

}  // namespace

// --- this mount's

Status Vfs::Checkout(const OpContext& ctx, InodeId ino, bool force) {
  if (config_.read_only) return Error(Code::kReadOnly, "a read-only mount has nothing to check out");
  if (config_.conditional) return Error(Code::kNotSupported, "a conditional mount holds nothing, so it checks nothing out");
  MutexLock lock(wb_.state_.mu);
  const Result<uint64_t> number = CallCheckout(ctx, {.ino = ino, .force = force});
  if (!number.ok()) return number.error();
  // Its end may have been heard of before.
  if (ended_checkouts_.contains(*number)) return Error(Code::kHeldElsewhere, "another mount has checked it out by force meanwhile");
  checkouts_[ino] = *number;
  return Ok();
}

Status Vfs::Checkin(const OpContext& ctx, InodeId ino) {
  MutexLock lock(wb_.state_.mu);
  const bool known = checkouts_.contains(ino);
  const Result<uint64_t> done = CallCheckout(ctx, {.ino = ino, .in = true});
  // A repeat of a call whose answer was lost finds nothing.
  const bool gone = done.ok() || done.code() == Code::kNotFound;
  if (gone) checkouts_.erase(ino);
  return done.ok() || (gone && known) ? Ok() : Status(done.error());
}

// One after the other: they are numbered, and a late copy of an older one does nothing.
Result<uint64_t> Vfs::CallCheckout(const OpContext& ctx, CheckoutRequest request) {
  if (!ctx.may_block) return Code::kWouldBlock;
  while (std::exchange(checking_out_, true)) {
    if (ctx.cancelled()) return Code::kInterrupted;
    if (wb_.state_.changed.WaitUntil(wb_.state_.mu, ctx.deadline)) return Error(Code::kIo, "another call is not answered yet");
  }
  ended_checkouts_.clear();
  request.session = session_.id();
  request.key = session_.key();
  request.id = ++last_checkout_;
  Result<uint64_t> done = Code::kUnavailable;
  for (;;) {
    // The server knows the directory, and all that is above it.
    if (const Status durable = wb_.MakeDurable(ctx, wb_.state_.log.last()); !durable.ok()) {
      done = durable.error();
      break;
    }
    {
      ReleaseLock unlocked(wb_.state_.mu);
      done = env_.meta.Checkout(ctx.WithDeadline(env_.scheduler.clock().Boot() + kAttempt), request);
    }
    if (done.ok() || done.error().band() == Band::kVerdict) break;
    const Result<bool> again = RetryLater(ctx, done.error());
    if (again.ok()) continue;
    done = again.error();
    break;
  }
  checking_out_ = false;
  wb_.state_.changed.SignalAll();
  return done;
}

void Vfs::CheckoutEnded(const SessionMessage& message) {
  MutexLock lock(wb_.state_.mu);
  const auto it = checkouts_.find(message.ino);
  if (it != checkouts_.end() && it->second <= message.grant) checkouts_.erase(it);
  if (checking_out_) ended_checkouts_.insert(message.grant);  // the answer that gave it may be on its way
  LogWarning("checkout.ended", {{"inode", message.ino.value}, {"why", "another mount checked it out by force"}});
}

// Others want to see it: what was changed so far is made durable. Nothing is given up.
void Vfs::FlushOnly(const SessionMessage& message) {
  RecallAnswer answer;
  answer.message = message.number;
  {
    MutexLock lock(wb_.state_.mu);
    if (stop_.cancelled() || wb_.state_.broken || !FlushFor(message.ino).ok()) return;
    answer.last = wb_.told();
  }
  progress_.fetch_add(1);
  session_.Answer(std::move(answer));
}

// --- those of others

bool Vfs::Through(InodeId ino) {
  const auto it = through_.find(ino);
  if (it == through_.end()) return false;
  const Inode* inode = wb_.state_.Find(ino);
  if (inode != nullptr && (inode->gone || wb_.state_.Holds(*inode, Right::kRead))) return false;
  return env_.scheduler.clock().Boot() < it->second;
}

void Vfs::NoteThrough(InodeId ino) {
  const BootTime now = env_.scheduler.clock().Boot();
  if (!through_.contains(ino)) absl::erase_if(through_, [now](const auto& entry) { return now >= entry.second; });
  through_[ino] = now + kThroughFor;
  NoteContended(ino, true);  // its names and attributes are looked up, and changed, at the server
}

bool Vfs::KernelKeeps(HandleId handle) {
  const auto it = wb_.state_.handles.find(handle);
  return it == wb_.state_.handles.end() || !it->second.direct;
}

Result<std::vector<FilePiece>> Vfs::ReadThrough(const OpContext& ctx, Claim& claim, InodeId ino, uint64_t offset, size_t length) {
  ReadOnceRequest request;
  request.ino = ino;
  request.first_chunk = offset / kChunkSize;
  length = std::min<uint64_t>(length, (request.first_chunk + kMaxChunksOnce) * kChunkSize - offset);
  if (length == 0) return std::vector<FilePiece>{};
  request.chunks = static_cast<uint32_t>((offset + length - 1) / kChunkSize - request.first_chunk + 1);
  ARCHIL_ASSIGN_OR_RETURN(const ReadOnceReply reply, LookOnce(ctx, claim, std::move(request)));
  const Attr& attr = reply.inode.attr;
  if (attr.type == FileType::kDirectory) return Code::kIsDirectory;
  if (attr.type != FileType::kRegular) return Code::kInvalid;
  if (offset >= attr.size) return std::vector<FilePiece>{};
  FileMap map(false);
  for (const ChunkExtents& chunk : reply.chunks) map.LoadChunk(chunk.chunk, chunk.extents);
  return map.Read(offset, std::min<uint64_t>(length, attr.size - offset));
}

// The server knows that it is open, and keeps it as an orphan when its holder removes it.
Result<OpenReply> Vfs::OpenThrough(const OpContext& ctx, Claim& claim, InodeId ino, int flags) {
  ARCHIL_ASSIGN_OR_RETURN(const ReadOnceReply reply, LookOnce(ctx, claim, {.ino = ino, .open = true}));
  Inode& inode = Shown(reply.inode);
  if (inode.is_dir()) return (flags & O_ACCMODE) != O_RDONLY ? Result<OpenReply>(Code::kIsDirectory) : NewHandle(inode, flags);
  if (reply.inode.attr.nlink == 0) return Code::kStale;
  inode.told_open = true;
  return NewHandle(inode, flags, true);
}

Result<std::map<std::string, std::string>> Vfs::XattrsThrough(const OpContext& ctx, Claim& claim, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(ReadOnceReply reply, LookOnce(ctx, claim, {.ino = ino, .xattrs = true}));
  return std::move(reply.xattrs);
}

}  // namespace archil
