// Conversions of the messages of delegations.
#include <fmt/format.h>

#include "common/rpc/convert.h"
#include "common/rpc/limits.h"

namespace archil {
namespace {

void ToProto(const std::vector<HeldRight>& rights, v1::HeldRights* out) {
  out->mutable_inos()->Reserve(static_cast<int>(rights.size()));
  std::string* bytes = out->mutable_rights();
  bytes->reserve(rights.size());
  for (const HeldRight& r : rights) {
    out->add_inos(r.ino.value);
    bytes->push_back(static_cast<char>(r.right));
  }
}

Result<std::vector<HeldRight>> HeldFromProto(const v1::HeldRights& in) {
  ARCHIL_RETURN_IF_ERROR(CheckRights("rights", in.inos_size()));
  if (in.rights().size() != static_cast<size_t>(in.inos_size())) return Error(Code::kInvalid, "as many rights as inodes are needed");
  std::vector<HeldRight> out;
  out.reserve(in.inos_size());
  for (int i = 0; i < in.inos_size(); ++i) {
    ARCHIL_ASSIGN_OR_RETURN(const Right right, RightFromProto(static_cast<unsigned char>(in.rights()[i])));
    out.push_back({InodeId(in.inos(i)), right});
  }
  return out;
}

void ToProto(const SessionMessage& m, v1::SessionMessage* out) {
  out->set_number(m.number);
  out->set_kind(static_cast<v1::MessageKind>(m.kind));
  out->set_ino(m.ino.value);
  out->set_home(m.home.value);
  out->set_grant(m.grant);
  out->set_keep(ToProto(m.keep));
}

Result<SessionMessage> FromProto(const v1::SessionMessage& in) {
  const int kind = in.kind();
  if (kind < v1::MESSAGE_KIND_RECALL || kind > v1::MESSAGE_KIND_CHECKOUT_ENDED) return Error(Code::kInvalid, fmt::format("message kind {}", kind));
  SessionMessage m;
  m.number = in.number();
  m.kind = static_cast<SessionMessage::Kind>(kind);
  m.ino = InodeId(in.ino());
  m.home = InodeId(in.home());
  m.grant = in.grant();
  ARCHIL_ASSIGN_OR_RETURN(m.keep, RightFromProto(in.keep()));
  return m;
}

void ToProto(const LockRequest& request, v1::LockRequest* out) {
  archil::ToProto(request.lock, out->mutable_lock());
  if (request.waiter) out->set_waiter(*request.waiter);
  out->set_detect_deadlock(request.detect_deadlock);
}

Result<LockRequest> FromProto(const v1::LockRequest& in) {
  LockRequest request;
  ARCHIL_ASSIGN_OR_RETURN(request.lock, archil::FromProto(in.lock()));
  if (in.has_waiter()) request.waiter = in.waiter();
  request.detect_deadlock = in.detect_deadlock();
  return request;
}

Status CheckLocks(size_t count) {
  if (count > kMaxLocksMoved) return Error(Code::kInvalid, fmt::format("{} locks, limit {}", count, kMaxLocksMoved));
  return Ok();
}

template <class Locks>
Result<std::vector<FileLock>> LocksFromProto(const Locks& in) {
  ARCHIL_RETURN_IF_ERROR(CheckLocks(in.size()));
  std::vector<FileLock> out;
  for (const auto& lock : in) {
    ARCHIL_ASSIGN_OR_RETURN(const FileLock one, archil::FromProto(lock));
    out.push_back(one);
  }
  return out;
}

template <class Inodes>
void AddInodes(const Inodes& inodes, google::protobuf::RepeatedField<uint64_t>* out) {
  out->Reserve(static_cast<int>(inodes.size()));
  for (InodeId ino : inodes) out->Add(ino.value);
}

}  // namespace

Status CheckRights(std::string_view name, size_t count) {
  if (count > kMaxRights) return Error(Code::kInvalid, fmt::format("{} {}, limit {}", count, name, kMaxRights));
  return Ok();
}

v1::Right ToProto(Right right) { return static_cast<v1::Right>(right); }

Result<Right> RightFromProto(int in) {
  if (in < v1::RIGHT_NONE || in > v1::RIGHT_WRITE) return Error(Code::kInvalid, fmt::format("right {}", in));
  return static_cast<Right>(in);
}

void ToProto(const AcquireRequest& request, v1::AcquireRequest* out) {
  out->set_session(request.session.value);
  ToProto(request.key, out->mutable_key());
  for (const Want& w : request.wants) {
    v1::Want* want = out->add_wants();
    want->set_ino(w.ino.value);
    want->set_right(ToProto(w.right));
    want->set_list(w.list);
  }
  out->set_prefetch(request.prefetch);
  out->set_or_at_server(request.or_at_server);
  out->set_brief(request.brief);
  out->set_must_hold(request.must_hold);
}

Result<AcquireRequest> FromProto(const v1::AcquireRequest& in) {
  if (!in.has_key()) return Missing("key");
  if (static_cast<size_t>(in.wants_size()) > kMaxWants) return Error(Code::kInvalid, fmt::format("{} wants, limit {}", in.wants_size(), kMaxWants));
  AcquireRequest request;
  request.session = SessionId(in.session());
  request.key = FromProto(in.key());
  for (const v1::Want& w : in.wants()) {
    Want want;
    want.ino = InodeId(w.ino());
    ARCHIL_ASSIGN_OR_RETURN(want.right, RightFromProto(w.right()));
    want.list = w.list();
    request.wants.push_back(want);
  }
  request.prefetch = in.prefetch();
  request.or_at_server = in.or_at_server();
  request.brief = in.brief();
  request.must_hold = in.must_hold();
  return request;
}

void ToProto(const AcquireReply& reply, v1::AcquireReply* out) {
  out->set_position(reply.position.value);
  for (const Grant& g : reply.grants) {
    v1::Grant* grant = out->add_grants();
    grant->set_ino(g.ino.value);
    grant->set_right(ToProto(g.right));
    grant->set_number(g.number);
    AddInodes(g.uncovered, grant->mutable_uncovered());
  }
  for (const InodeInfo& info : reply.inodes) ToProto(info, out->add_inodes());
  AddInodes(reply.missing, out->mutable_missing());
  for (const DirPage& page : reply.listings) ToProto(page, out->add_listings());
  AddInodes(reply.at_server, out->mutable_at_server());
  AddInodes(reply.through, out->mutable_through());
}

Result<AcquireReply> FromProto(v1::AcquireReply&& in) {
  if (in.grants_size() != in.inodes_size()) return Error(Code::kInvalid, "as many inodes as grants are needed");
  AcquireReply reply;
  reply.position = Lsn(in.position());
  for (const v1::Grant& g : in.grants()) {
    Grant grant;
    grant.ino = InodeId(g.ino());
    ARCHIL_ASSIGN_OR_RETURN(grant.right, RightFromProto(g.right()));
    grant.number = g.number();
    for (uint64_t ino : g.uncovered()) grant.uncovered.emplace_back(ino);
    reply.grants.push_back(std::move(grant));
  }
  for (v1::Inode& i : *in.mutable_inodes()) {
    ARCHIL_ASSIGN_OR_RETURN(auto inode, FromProto(std::move(i)));
    reply.inodes.push_back(std::move(inode));
  }
  for (uint64_t ino : in.missing()) reply.missing.emplace_back(ino);
  for (v1::ReadDirReply& l : *in.mutable_listings()) {
    ARCHIL_ASSIGN_OR_RETURN(auto page, FromProto(std::move(l)));
    reply.listings.push_back(std::move(page));
  }
  for (uint64_t ino : in.at_server()) reply.at_server.emplace_back(ino);
  for (uint64_t ino : in.through()) reply.through.emplace_back(ino);
  return reply;
}

void ToProto(const PollReply& reply, v1::PollReply* out) {
  for (const SessionMessage& m : reply.messages) ToProto(m, out->add_messages());
  out->set_reclaim(reply.reclaim);
}

Result<PollReply> FromProto(const v1::PollReply& in) {
  PollReply reply;
  for (const v1::SessionMessage& m : in.messages()) {
    ARCHIL_ASSIGN_OR_RETURN(const SessionMessage message, FromProto(m));
    reply.messages.push_back(message);
  }
  reply.reclaim = in.reclaim();
  return reply;
}

void ToProto(const RecallAnswer& answer, v1::AnswerRecallRequest* out) {
  out->set_message(answer.message);
  out->set_kept(ToProto(answer.kept));
  out->set_last(answer.last.value);
  AddInodes(answer.opens, out->mutable_opens());
  ToProto(answer.keeps, out->mutable_keeps());
  for (const FileLock& lock : answer.locks) ToProto(lock, out->add_locks());
  for (const LockRequest& waiter : answer.waiters) ToProto(waiter, out->add_waiters());
}

Result<RecallAnswer> FromProto(const v1::AnswerRecallRequest& in) {
  RecallAnswer answer;
  answer.message = in.message();
  ARCHIL_ASSIGN_OR_RETURN(answer.kept, RightFromProto(in.kept()));
  answer.last = Seq(in.last());
  ARCHIL_ASSIGN_OR_RETURN(answer.opens, InodesFromProto("open inodes", in.opens()));
  ARCHIL_ASSIGN_OR_RETURN(answer.keeps, HeldFromProto(in.keeps()));
  ARCHIL_ASSIGN_OR_RETURN(answer.locks, LocksFromProto(in.locks()));
  ARCHIL_RETURN_IF_ERROR(CheckLocks(in.waiters_size()));
  for (const v1::LockRequest& waiter : in.waiters()) {
    ARCHIL_ASSIGN_OR_RETURN(const LockRequest one, FromProto(waiter));
    answer.waiters.push_back(one);
  }
  return answer;
}

void ToProto(const ReclaimRequest& request, v1::ReclaimRequest* out) {
  out->set_session(request.session.value);
  ToProto(request.key, out->mutable_key());
  out->set_alone(request.alone);
  ToProto(request.rights, out->mutable_rights());
  AddInodes(request.opens, out->mutable_opens());
  out->set_finished_ops(request.finished_ops);
  out->set_finished_locks(request.finished_locks);
  for (const HeldCheckout& held : request.checkouts) {
    v1::HeldCheckout* one = out->add_checkouts();
    one->set_ino(held.ino.value);
    one->set_number(held.number);
  }
  out->set_last_checkout(request.last_checkout);
  for (const FileLock& lock : request.locks) ToProto(lock, out->add_locks());
}

Result<ReclaimRequest> FromProto(const v1::ReclaimRequest& in) {
  if (!in.has_key()) return Missing("key");
  ReclaimRequest request;
  request.session = SessionId(in.session());
  request.key = FromProto(in.key());
  request.alone = in.alone();
  ARCHIL_ASSIGN_OR_RETURN(request.rights, HeldFromProto(in.rights()));
  ARCHIL_ASSIGN_OR_RETURN(request.opens, InodesFromProto("open inodes", in.opens()));
  request.finished_ops = in.finished_ops();
  request.finished_locks = in.finished_locks();
  for (const v1::HeldCheckout& held : in.checkouts()) request.checkouts.push_back({InodeId(held.ino()), held.number()});
  request.last_checkout = in.last_checkout();
  ARCHIL_ASSIGN_OR_RETURN(request.locks, LocksFromProto(in.locks()));
  return request;
}

void ToProto(const Credit& credit, v1::Credit* out) {
  out->set_position(credit.position.value);
  out->set_applied(credit.applied.value);
  out->set_left(credit.left);
}

Credit FromProto(const v1::Credit& in) { return {Lsn(in.position()), Seq(in.applied()), in.left()}; }

void ToProto(const ReserveSpaceRequest& request, v1::ReserveSpaceRequest* out) {
  out->set_session(request.session.value);
  ToProto(request.key, out->mutable_key());
  out->set_id(request.id);
  out->set_least(request.least);
  out->set_wanted(request.wanted);
  out->set_message(request.message);
}

Result<ReserveSpaceRequest> FromProto(const v1::ReserveSpaceRequest& in) {
  if (!in.has_key()) return Missing("key");
  return ReserveSpaceRequest{SessionId(in.session()), FromProto(in.key()), in.id(), in.least(), in.wanted(), in.message()};
}

void ToProto(const SettleRequest& request, v1::SettleRequest* out) {
  out->set_session(request.session.value);
  ToProto(request.key, out->mutable_key());
  AddInodes(request.taken, out->mutable_taken());
  out->set_last(request.last.value);
}

Result<SettleRequest> FromProto(const v1::SettleRequest& in) {
  if (!in.has_key()) return Missing("key");
  SettleRequest request;
  request.session = SessionId(in.session());
  request.key = FromProto(in.key());
  ARCHIL_ASSIGN_OR_RETURN(request.taken, InodesFromProto("taken inodes", in.taken()));
  request.last = Seq(in.last());
  return request;
}

void ToProto(const FileLock& lock, v1::FileLock* out) {
  out->set_ino(lock.ino.value);
  out->set_family(static_cast<uint32_t>(lock.family));
  out->set_session(lock.owner.session.value);
  out->set_owner(lock.owner.id);
  out->set_type(static_cast<uint32_t>(lock.type));
  out->set_first(lock.first);
  out->set_last(lock.last);
  out->set_pid(lock.pid);
}

Result<FileLock> FromProto(const v1::FileLock& in) {
  if (in.family() > 255 || in.type() > 255) return Error(Code::kInvalid, "no such lock");
  FileLock lock;
  lock.ino = InodeId(in.ino());
  lock.family = static_cast<LockFamily>(in.family());
  lock.owner = {SessionId(in.session()), in.owner()};
  lock.type = static_cast<LockType>(in.type());
  lock.first = in.first();
  lock.last = in.last();
  lock.pid = in.pid();
  if (!IsValid(lock)) return Error(Code::kInvalid, "no lock has such a range, type or family");
  return lock;
}

void ToProto(const SetLockRequest& request, v1::SetLockRequest* out) {
  out->set_session(request.session.value);
  ToProto(request.key, out->mutable_key());
  out->set_id(request.id);
  out->set_finished(request.finished);
  ToProto(request.request, out->mutable_request());
}

Result<SetLockRequest> FromProto(const v1::SetLockRequest& in) {
  if (!in.has_key()) return Missing("key");
  if (!in.has_request() || !in.request().has_lock()) return Missing("lock");
  SetLockRequest request;
  request.session = SessionId(in.session());
  request.key = FromProto(in.key());
  request.id = in.id();
  request.finished = in.finished();
  ARCHIL_ASSIGN_OR_RETURN(request.request, FromProto(in.request()));
  return request;
}

Result<LockOutcome> OutcomeFromProto(uint32_t in) {
  if (in > static_cast<uint32_t>(LockOutcome::kFull)) return Error(Code::kInvalid, fmt::format("outcome {} of a lock", in));
  return static_cast<LockOutcome>(in);
}

void ToProto(const RightInfo& info, v1::RightInfo* out) {
  out->set_session(info.session.value);
  out->set_ino(info.ino.value);
  out->set_right(ToProto(info.right));
  out->set_exceptions(info.exceptions);
  out->set_checkout(info.checkout);
}

Result<RightInfo> FromProto(const v1::RightInfo& in) {
  RightInfo info;
  info.session = SessionId(in.session());
  info.ino = InodeId(in.ino());
  ARCHIL_ASSIGN_OR_RETURN(info.right, RightFromProto(in.right()));
  info.exceptions = in.exceptions();
  info.checkout = in.checkout();
  return info;
}

}  // namespace archil
