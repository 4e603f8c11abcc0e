// Commits: all ops or none, in order, exactly once.
#include <fmt/format.h>

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "common/env/planted.h"
#include "common/format/op_codec.h"
#include "server/meta/apply.h"
#include "server/meta/asked_opens.h"
#include "server/meta/disk.h"
#include "server/meta/ops/op_effects.h"

namespace archil {
namespace {

// DLG-2 through the delegation table.
class SessionRights final : public RightsCheck {
 public:
  SessionRights(const DelegationTable& table, Txn& txn, SessionId session)
      : table_(table), txn_(txn), session_(session), alone_(table.AloneNumber(session) != 0 && !table.Unsettled(session)) {}

  // What was allowed once stays so in the batch: its own ops may have taken the inode out of what the session holds. What the batch
  // made is its own.
  bool MayWrite(InodeId ino) override {
    if (alone_ || allowed_.contains(ino) || txn_.Born(ino)) return true;
    const Right right = table_.RightOf(session_, ino, [&] {
      const auto home = txn_.HomeOf(ino);
      return home.ok() ? *home : InodeId{0};
    });
    const bool may = right == Right::kWrite;
    if (may) allowed_.insert(ino);
    return may;
  }

 private:
  const DelegationTable& table_;
  Txn& txn_;
  const SessionId session_;
  const bool alone_;
  absl::flat_hash_set<InodeId> allowed_;
};

Status CheckShape(const CommitRequest& request, const std::vector<Op>& ops) {
  if (request.first.value == 0 || request.last < request.first) return Error(Code::kInvalid, "the commit's numbers are not a range");
  if (ops.size() != request.count) return Error(Code::kInvalid, fmt::format("the commit says {} ops and holds {}", request.count, ops.size()));
  if (request.count > request.last.value - request.first.value + 1) return Error(Code::kInvalid, "more ops than numbers");
  return Ok();
}

}  // namespace

void Disk::Commit(CommitRequest request, Done<CommitReply> done) {
  // Decoded in the caller: the strand's time is scarce.
  if (request.ops.size() > kMaxCommitBytes) return done(Error(Code::kInvalid, "the commit is over the limit of bytes"));
  auto decoded = DecodeOps(request.ops);
  if (!decoded.ok()) return done(Error(Code::kInvalid, fmt::format("the ops do not decode: {}", decoded.error().ToString())));
  if (decoded->size() > kMaxOpsPerCommit) return done(Error(Code::kInvalid, "the commit is over the limit of ops"));
  if (const Status s = CheckShape(request, *decoded); !s.ok()) return done(s.error());
  struct Parsed {
    CommitRequest request;
    std::vector<Op> ops;
  };
  auto parsed = std::make_shared<Parsed>(Parsed{std::move(request), std::move(*decoded)});
  Run<CommitReply>(Kind::kChange, std::move(done), [this, parsed, received = host_.Now()](DiskCore& core, auto done) {
    DoCommit(core, parsed->request, parsed->ops, received, done);
  });
}

void Disk::DoCommit(DiskCore& core, CommitRequest& request, const std::vector<Op>& ops, BootTime received, const Done<CommitReply>& done) {
  const auto commit = [&]() -> Result<CommitReply> {
    ARCHIL_ASSIGN_OR_RETURN(SessionRecord * session, LiveSession(core, request.session, &request.key, received, Claim::kUnsettled));
    if (request.last <= session->applied && !Planted(Plant::kCommitTwice)) {
      ++host_.metrics.commits_repeated;
      return CommitReply{session->applied, core.applied, CreditOf(core, *session)};
    }
    Txn txn(*core.kv);
    SessionRights rights(core.table, txn, request.session);
    AskedOpens opens(core.table, txn, request.session,
                     [&](InodeId ino) { return core.table.OpenElsewhere(session->branch, ino, request.session); });
    SpaceUse use;
    SpaceUse* const counted = core.disk.quota_bytes == 0 ? nullptr : &use;
    if (const Status s = ApplyCommit(txn, request.session, request.first, request.last, ops, &rights, &opens, counted); !s.ok()) {
      ++host_.metrics.commits_refused;
      // The client does not know yet what was taken from it.
      if (s.code() == Code::kInvalid && core.table.Unsettled(request.session)) {
        return Error(Code::kTryAgain, fmt::format("the session has to settle what was taken from it first: {}", s.error().message()));
      }
      return s.error();
    }
    if (const Status known = opens.Known(); !known.ok()) {
      const auto late = core.table.LateClaims(session->branch, request.session, host_.Now());
      for (size_t i = 0; i < std::min(late.size(), kEndsAtOnce); ++i) {
        ARCHIL_RETURN_IF_ERROR(EndSession(core, late[i].session, true, late[i].reason));
      }
      return known.error();
    }
    if (use.overdraft > 0) {
      ARCHIL_ASSIGN_OR_RETURN(const bool may, MayOverdraw(core, txn, request.session));
      if (!may) {
        ++host_.metrics.commits_refused;
        return Error(Code::kInvalid, fmt::format("the commit adds {} bytes beyond the session's credit, and the quota has no room", use.overdraft));
      }
    }
    if (OpensSize(opens.said) > kMaxOpensBytes) return Error(Code::kTryAgain, "too many of the removed inodes are open elsewhere");
    const Seq last = request.last;
    const LogRecord record = CommitRecord{request.session, request.first, last, std::move(request.ops), std::move(opens.said)};
    ARCHIL_RETURN_IF_ERROR(WriteRecord(core, txn, record, [](Status) {}));
    session->applied = last;
    session->credit -= std::min(session->credit, use.added);
    core.space.Set(session->id, session->credit);
    ++host_.metrics.commits;
    host_.metrics.ops_applied += ops.size();
    TellTable(core, *session, ops);
    if (core.collecting) {
      for (const Op& op : ops) {
        if (const auto* set = std::get_if<SetExtentsOp>(&op)) {
          for (const Extent& e : set->extents) core.named_meanwhile.insert(e.segment);
        }
      }
    }
    return CommitReply{last, core.applied, CreditOf(core, *session)};
  };
  Reply(core, Kind::kChange, done, commit());
  if (core.table.Waiting() || core.space.Waiting()) Settle(core);
  MaybeFlush(core);
}

// The state shows the ops already.
void Disk::TellTable(DiskCore& core, const SessionRecord& session, const std::vector<Op>& ops) {
  if (!core.table.TakesNote(session.id)) return;
  for (const Op& op : ops) {
    if (const auto* release = std::get_if<ReleaseOrphanOp>(&op)) core.table.Closed(session.id, release->ino);
  }
  StateTree tree(*core.kv);
  core.table.Committed(session.id, TouchedBy(ops), tree);
  (void)TreeIsGood(tree);
}

}  // namespace archil
