#include "common/rpc/convert.h"

#include <fmt/format.h>

#include "common/rpc/limits.h"

namespace archil {
namespace {

Result<FileType> FileTypeOf(v1::FileType in) {
  const int v = in;  // an open enum: any number may have come
  if (v < v1::FILE_TYPE_REGULAR || v > v1::FILE_TYPE_BLOCK_DEVICE) return Error(Code::kInvalid, fmt::format("file type {}", v));
  return static_cast<FileType>(v);
}

void ToProto(const Attr& a, v1::Attr* out) {
  out->set_ino(a.ino.value);
  out->set_type(static_cast<v1::FileType>(a.type));
  out->set_mode(a.mode);
  out->set_uid(a.uid);
  out->set_gid(a.gid);
  out->set_nlink(a.nlink);
  out->set_size(a.size);
  out->set_allocated_bytes(a.allocated);
  out->set_rdev(a.rdev);
  ToProto(a.atime, out->mutable_atime());
  ToProto(a.mtime, out->mutable_mtime());
  ToProto(a.ctime, out->mutable_ctime());
  ToProto(a.btime, out->mutable_btime());
  out->set_change(a.change);
}

Result<Attr> AttrFromProto(const v1::Attr& in) {
  Attr a;
  a.ino = InodeId(in.ino());
  ARCHIL_ASSIGN_OR_RETURN(a.type, FileTypeOf(in.type()));
  a.mode = in.mode();
  a.uid = in.uid();
  a.gid = in.gid();
  a.nlink = in.nlink();
  a.size = in.size();
  a.allocated = in.allocated_bytes();
  a.rdev = in.rdev();
  ARCHIL_ASSIGN_OR_RETURN(a.atime, FromProto(in.atime()));
  ARCHIL_ASSIGN_OR_RETURN(a.mtime, FromProto(in.mtime()));
  ARCHIL_ASSIGN_OR_RETURN(a.ctime, FromProto(in.ctime()));
  ARCHIL_ASSIGN_OR_RETURN(a.btime, FromProto(in.btime()));
  a.change = in.change();
  return a;
}

void ToProto(const Extent& e, v1::Extent* out) {
  out->set_offset(e.offset);
  out->set_length(e.length);
  out->set_kind(static_cast<v1::ExtentKind>(e.kind));
  out->set_segment(e.segment.value);
  out->set_segment_offset(e.segment_offset);
  if (e.kind == ExtentKind::kInline) out->set_data(e.data.data(), e.data.size());
}

Result<Extent> ExtentFromProto(v1::Extent&& in) {
  Extent e;
  e.offset = in.offset();
  e.length = in.length();
  const int kind = in.kind();
  if (kind < v1::EXTENT_KIND_SEGMENT || kind > v1::EXTENT_KIND_ZERO) return Error(Code::kInvalid, fmt::format("extent kind {}", kind));
  e.kind = static_cast<ExtentKind>(kind);
  if (e.length == 0 || e.offset > kMaxFileSize || e.length > kMaxFileSize - e.offset) {
    return Error(Code::kInvalid, fmt::format("extent [{}, +{})", e.offset, e.length));
  }
  e.segment = SegmentId(in.segment());
  e.segment_offset = in.segment_offset();
  if (e.kind == ExtentKind::kInline) {
    if (in.data().size() != e.length) return Error(Code::kInvalid, "extent whose data is not as long as itself");
    e.data = Buffer(std::move(*in.mutable_data()));
  }
  return e;
}

}  // namespace

Error Missing(std::string_view name) { return Error(Code::kInvalid, fmt::format("{} is missing", name)); }

Status CheckText(std::string_view name, std::string_view text) {
  if (text.size() > kMaxText) return Error(Code::kInvalid, fmt::format("{} is longer than {} bytes", name, kMaxText));
  return Ok();
}

void ToProto(Timestamp t, v1::Timestamp* out) {
  out->set_sec(t.sec);
  out->set_nsec(t.nsec);
}

Result<Timestamp> FromProto(const v1::Timestamp& in) {
  if (in.nsec() >= 1'000'000'000) return Error(Code::kInvalid, fmt::format("time with {} nanoseconds", in.nsec()));
  return Timestamp{in.sec(), in.nsec()};
}

void ToProto(const DataServerInfo& server, v1::DataServer* out) {
  out->set_id(server.id);
  out->set_address(server.address);
}

Result<DataServerInfo> FromProto(const v1::DataServer& in) {
  ARCHIL_RETURN_IF_ERROR(CheckText("address of a data server", in.address()));
  return DataServerInfo{in.id(), in.address()};
}

void ToProto(const DiskInfo& disk, v1::Disk* out) {
  out->set_id(disk.id.value);
  out->set_name(disk.name);
  ToProto(disk.created, out->mutable_created());
  out->set_used_bytes(disk.used_bytes);
  out->set_used_inodes(disk.used_inodes);
  out->set_quota_bytes(disk.quota_bytes);
  for (const DiskInfo::Client& c : disk.clients) {
    v1::DiskClient* client = out->add_clients();
    client->set_session(c.session.value);
    client->set_name(c.name);
    client->set_age_ns(absl::ToInt64Nanoseconds(c.age));
    client->set_silent(c.silent);
  }
}

Result<DiskInfo> FromProto(const v1::Disk& in) {
  DiskInfo disk;
  disk.id = DiskId(in.id());
  ARCHIL_RETURN_IF_ERROR(CheckText("name of a disk", in.name()));
  disk.name = in.name();
  ARCHIL_ASSIGN_OR_RETURN(disk.created, FromProto(in.created()));
  disk.used_bytes = in.used_bytes();
  disk.used_inodes = in.used_inodes();
  disk.quota_bytes = in.quota_bytes();
  for (const v1::DiskClient& c : in.clients()) {
    disk.clients.push_back({SessionId(c.session()), c.name(), absl::Nanoseconds(c.age_ns()), c.silent()});
  }
  return disk;
}

void ToProto(SessionKey key, v1::SessionKey* out) {
  out->set_hi(key.hi);
  out->set_lo(key.lo);
}

SessionKey FromProto(const v1::SessionKey& in) { return {in.hi(), in.lo()}; }

void ToProto(InodeRange range, v1::InodeRange* out) {
  out->set_first(range.first.value);
  out->set_count(range.count);
}

InodeRange FromProto(const v1::InodeRange& in) { return {InodeId(in.first()), in.count()}; }

void ToProto(const OpenSessionRequest& request, v1::OpenSessionRequest* out) {
  out->set_disk(request.disk);
  out->set_branch(request.branch);
  out->set_client_name(request.client_name);
  out->set_mode(request.mode == SessionMode::kReadOnly ? v1::SESSION_MODE_READ_ONLY : v1::SESSION_MODE_READ_WRITE);
  ToProto(request.key, out->mutable_key());
  out->set_lease_ns(absl::ToInt64Nanoseconds(request.lease));
  out->set_predecessor(request.predecessor.value);
  if (request.predecessor) ToProto(request.predecessor_key, out->mutable_predecessor_key());
  out->set_exclusive(request.sharing == Sharing::kExclusive);
  out->set_force(request.force);
  out->set_conditional(request.conditional);
}

Result<OpenSessionRequest> FromProto(const v1::OpenSessionRequest& in) {
  OpenSessionRequest request;
  ARCHIL_RETURN_IF_ERROR(CheckText("name of a disk", in.disk()));
  ARCHIL_RETURN_IF_ERROR(CheckText("name of a branch", in.branch()));
  ARCHIL_RETURN_IF_ERROR(CheckText("name of a client", in.client_name()));
  request.disk = in.disk();
  request.branch = in.branch();
  request.client_name = in.client_name();
  switch (in.mode()) {
    case v1::SESSION_MODE_READ_WRITE: request.mode = SessionMode::kReadWrite; break;
    case v1::SESSION_MODE_READ_ONLY: request.mode = SessionMode::kReadOnly; break;
    default: return Error(Code::kInvalid, fmt::format("session mode {}", static_cast<int>(in.mode())));
  }
  if (!in.has_key()) return Missing("key");
  request.key = FromProto(in.key());
  if (in.lease_ns() < 0) return Error(Code::kInvalid, "negative lease");
  request.lease = absl::Nanoseconds(in.lease_ns());
  request.predecessor = SessionId(in.predecessor());
  if (request.predecessor && !in.has_predecessor_key()) return Missing("predecessor_key");
  request.predecessor_key = FromProto(in.predecessor_key());
  request.sharing = in.exclusive() ? Sharing::kExclusive : Sharing::kShared;
  request.force = in.force();
  request.conditional = in.conditional();
  return request;
}

void ToProto(const OpenSessionReply& reply, v1::OpenSessionReply* out) {
  out->set_session(reply.session.value);
  ToProto(reply.disk, out->mutable_disk());
  out->set_branch(reply.branch.value);
  out->set_epoch(reply.epoch.value);
  out->set_lease_ns(absl::ToInt64Nanoseconds(reply.lease));
  ToProto(reply.inodes, out->mutable_inodes());
  for (const auto& s : reply.data_servers) ToProto(s, out->add_data_servers());
  out->set_server_time_unix_ns(absl::ToUnixNanos(reply.server_time));
  out->set_alone(reply.alone);
  out->set_number(reply.number);
}

Result<OpenSessionReply> FromProto(const v1::OpenSessionReply& in) {
  OpenSessionReply reply;
  reply.session = SessionId(in.session());
  ARCHIL_ASSIGN_OR_RETURN(reply.disk, FromProto(in.disk()));
  reply.branch = BranchId(in.branch());
  reply.epoch = Epoch(in.epoch());
  reply.lease = absl::Nanoseconds(in.lease_ns());
  reply.inodes = FromProto(in.inodes());
  ARCHIL_ASSIGN_OR_RETURN(reply.data_servers, ServersFromProto(in.data_servers()));
  reply.server_time = absl::FromUnixNanos(in.server_time_unix_ns());
  reply.alone = in.alone();
  reply.number = in.number();
  return reply;
}

void ToProto(const RenewReply& reply, v1::RenewReply* out) {
  out->set_lease_ns(absl::ToInt64Nanoseconds(reply.lease));
  out->set_applied(reply.applied.value);
  out->set_server_time_unix_ns(absl::ToUnixNanos(reply.server_time));
  for (const auto& s : reply.data_servers) ToProto(s, out->add_data_servers());
  out->set_reclaim(reply.reclaim);
  for (const Taken& t : reply.taken) {
    v1::Taken* one = out->add_taken();
    one->set_ino(t.ino.value);
    one->set_right(t.right);
    one->set_locks(t.locks);
  }
}

Result<RenewReply> FromProto(const v1::RenewReply& in) {
  RenewReply reply;
  reply.lease = absl::Nanoseconds(in.lease_ns());
  reply.applied = Seq(in.applied());
  reply.reclaim = in.reclaim();
  for (const v1::Taken& t : in.taken()) reply.taken.push_back({InodeId(t.ino()), t.right(), t.locks()});
  reply.server_time = absl::FromUnixNanos(in.server_time_unix_ns());
  ARCHIL_ASSIGN_OR_RETURN(reply.data_servers, ServersFromProto(in.data_servers()));
  return reply;
}

void ToProto(const CommitRequest& request, v1::CommitRequest* out) {
  out->set_session(request.session.value);
  ToProto(request.key, out->mutable_key());
  out->set_first(request.first.value);
  out->set_count(request.count);
  out->set_last(request.last.value);
  out->set_ops(request.ops);
}

Result<CommitRequest> FromProto(v1::CommitRequest&& in) {
  if (!in.has_key()) return Missing("key");
  if (in.count() > kMaxOpsPerCommit) return Error(Code::kInvalid, fmt::format("{} ops in a commit, limit {}", in.count(), kMaxOpsPerCommit));
  if (in.ops().size() > kMaxCommitBytes) {
    return Error(Code::kInvalid, fmt::format("commit of {} bytes, limit {}", in.ops().size(), kMaxCommitBytes));
  }
  CommitRequest request;
  request.session = SessionId(in.session());
  request.key = FromProto(in.key());
  request.first = Seq(in.first());
  request.count = in.count();
  request.last = Seq(in.last());
  request.ops = std::move(*in.mutable_ops());
  return request;
}

void ToProto(const SegmentGrant& grant, v1::SegmentGrant* out) {
  out->set_segment(grant.segment.value);
  out->set_token(grant.token);
  for (const auto& s : grant.replicas) ToProto(s, out->add_replicas());
}

Result<SegmentGrant> FromProto(const v1::SegmentGrant& in) {
  SegmentGrant grant;
  grant.segment = SegmentId(in.segment());
  grant.token = in.token();
  ARCHIL_ASSIGN_OR_RETURN(grant.replicas, ServersFromProto(in.replicas()));
  return grant;
}

void ToProto(const InodeInfo& inode, v1::Inode* out) {
  ToProto(inode.attr, out->mutable_attr());
  out->set_target(inode.target);
  out->set_has_xattrs(inode.has_xattrs);
  out->set_parent(inode.parent.value);
  out->set_covered(inode.covered);
}

Result<InodeInfo> FromProto(v1::Inode&& in) {
  InodeInfo inode;
  if (!in.has_attr()) return Missing("attr");
  ARCHIL_ASSIGN_OR_RETURN(inode.attr, AttrFromProto(in.attr()));
  if (in.target().size() > kMaxSymlink) return Error(Code::kInvalid, "symlink target over the limit");
  inode.target = std::move(*in.mutable_target());
  inode.has_xattrs = in.has_xattrs();
  inode.parent = InodeId(in.parent());
  inode.covered = in.covered();
  return inode;
}

void ToProto(const DirPage& page, v1::ReadDirReply* out) {
  ToProto(page.directory, out->mutable_directory());
  out->set_complete(page.complete);
  out->set_position(page.position.value);
  size_t bytes = 0;
  for (const DirEntry& entry : page.entries) {
    if (bytes > kReplyCutBytes) {
      out->set_complete(false);
      return;
    }
    v1::DirEntry* e = out->add_entries();
    e->set_name(entry.name);
    ToProto(entry.inode, e->mutable_inode());
    bytes += e->ByteSizeLong();
  }
}

Result<DirPage> FromProto(v1::ReadDirReply&& in) {
  DirPage page;
  if (!in.has_directory()) return Missing("directory");
  ARCHIL_ASSIGN_OR_RETURN(page.directory, FromProto(std::move(*in.mutable_directory())));
  page.entries.reserve(in.entries_size());
  for (v1::DirEntry& e : *in.mutable_entries()) {
    DirEntry entry;
    if (!IsValidName(e.name())) return Error(Code::kInvalid, "bad name in a directory");
    entry.name = std::move(*e.mutable_name());
    ARCHIL_ASSIGN_OR_RETURN(entry.inode, FromProto(std::move(*e.mutable_inode())));
    page.entries.push_back(std::move(entry));
  }
  page.complete = in.complete();
  page.position = Lsn(in.position());
  return page;
}

void ToProto(const ChunkExtents& chunk, v1::ChunkExtents* out) {
  out->set_chunk(chunk.chunk);
  for (const Extent& e : chunk.extents) ToProto(e, out->add_extents());
}

Result<ChunkExtents> FromProto(v1::ChunkExtents&& in) {
  ChunkExtents chunk;
  chunk.chunk = in.chunk();
  chunk.extents.reserve(in.extents_size());
  for (v1::Extent& e : *in.mutable_extents()) {
    ARCHIL_ASSIGN_OR_RETURN(auto extent, ExtentFromProto(std::move(e)));
    chunk.extents.push_back(std::move(extent));
  }
  return chunk;
}

void ToProto(const FsStats& stats, v1::StatFsReply* out) {
  out->set_total_bytes(stats.total_bytes);
  out->set_free_bytes(stats.free_bytes);
  out->set_used_bytes(stats.used_bytes);
  out->set_total_inodes(stats.total_inodes);
  out->set_free_inodes(stats.free_inodes);
  out->set_used_inodes(stats.used_inodes);
}

FsStats FromProto(const v1::StatFsReply& in) {
  return {in.total_bytes(), in.free_bytes(), in.used_bytes(), in.total_inodes(), in.free_inodes(), in.used_inodes()};
}

void ToProto(const SegmentInfo& info, v1::Segment* out) {
  out->set_disk(info.key.disk.value);
  out->set_segment(info.key.segment.value);
  out->set_state(static_cast<v1::SegmentState>(info.state));
  out->set_length_bytes(info.length);
  out->set_token(info.token);
}

Result<SegmentInfo> FromProto(const v1::Segment& in) {
  const int state = in.state();
  if (state < v1::SEGMENT_STATE_OPEN || state > v1::SEGMENT_STATE_UPLOADED) {
    return Error(Code::kInvalid, fmt::format("segment state {}", state));
  }
  SegmentInfo info;
  info.key = {DiskId(in.disk()), SegmentId(in.segment())};
  info.state = static_cast<SegmentState>(state);
  info.length = in.length_bytes();
  info.token = in.token();
  return info;
}

}  // namespace archil
