// Commits: all ops or none, in order, exactly once.
#include <fmt/format.h>

#include "common/format/op_codec.h"
#include "server/meta/apply.h"
#include "server/meta/disk.h"

namespace archil {
namespace {

// DLG-2 through the delegation table.
class SessionRights final : public RightsCheck {
 public:
  SessionRights(const DelegationTable& table, SessionId session) : table_(table), session_(session) {}
  bool MayWrite(InodeId ino) const override { return table_.Check(session_, ino, DelegationMode::kWrite); }

 private:
  const DelegationTable& table_;
  const SessionId session_;
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
    ARCHIL_ASSIGN_OR_RETURN(SessionRecord * session, LiveSession(core, request.session, &request.key, received));
    if (request.last <= session->applied) {
      ++host_.metrics.commits_repeated;
      return CommitReply{session->applied, core.applied};
    }
    Txn txn(*core.kv);
    const SessionRights rights(core.table, request.session);
    if (const Status s = ApplyCommit(txn, request.session, request.first, request.last, ops, &rights); !s.ok()) {
      ++host_.metrics.commits_refused;
      return s.error();
    }
    const Seq last = request.last;
    const LogRecord record = CommitRecord{request.session, request.first, last, std::move(request.ops)};
    ARCHIL_RETURN_IF_ERROR(WriteRecord(core, txn, record, [](Status) {}));
    session->applied = last;
    ++host_.metrics.commits;
    host_.metrics.ops_applied += ops.size();
    if (core.collecting) {
      for (const Op& op : ops) {
        if (const auto* set = std::get_if<SetExtentsOp>(&op)) {
          for (const Extent& e : set->extents) core.named_meanwhile.insert(e.segment);
        }
      }
    }
    return CommitReply{last, core.applied};
  };
  Reply(core, Kind::kChange, done, commit());
  MaybeFlush(core);
}

}  // namespace archil
