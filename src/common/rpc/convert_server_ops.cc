// Conversions of the messages of operations applied at the server.
#include <fmt/format.h>

#include "common/format/op_codec.h"
#include "common/rpc/convert.h"

namespace archil {

void ToProto(const ApplyOpRequest& request, v1::ApplyOpRequest* out) {
  out->set_session(request.session.value);
  ToProto(request.key, out->mutable_key());
  out->set_id(request.id);
  out->set_finished(request.finished);
  out->set_after(request.after.value);
  out->set_op(EncodeOps({&request.op, 1}));
  out->set_flags(request.flags);
}

Result<ApplyOpRequest> FromProto(const v1::ApplyOpRequest& in) {
  if (!in.has_key()) return Missing("key");
  auto ops = DecodeOps(in.op());
  if (!ops.ok()) return Error(Code::kInvalid, fmt::format("the op does not decode: {}", ops.error().message()));
  if (ops->size() != 1) return Error(Code::kInvalid, fmt::format("{} ops instead of one", ops->size()));
  if ((in.flags() & ~kAllServerOpFlags) != 0)
    return Error(Code::kInvalid, fmt::format("flags {} of an op", in.flags()));
  ApplyOpRequest request;
  request.session = SessionId(in.session());
  request.key = FromProto(in.key());
  request.id = in.id();
  request.finished = in.finished();
  request.after = Seq(in.after());
  request.op = std::move((*ops)[0]);
  request.flags = in.flags();
  return request;
}

void ToProto(const ApplyOpReply& reply, v1::ApplyOpReply* out) {
  out->set_position(reply.position.value);
  if (reply.inode.attr.ino) ToProto(reply.inode, out->mutable_inode());
  out->set_removed(reply.removed.value);
  out->set_contended(reply.contended);
}

Result<ApplyOpReply> FromProto(v1::ApplyOpReply&& in) {
  ApplyOpReply reply;
  reply.position = Lsn(in.position());
  if (in.has_inode()) {
    ARCHIL_ASSIGN_OR_RETURN(reply.inode, FromProto(std::move(*in.mutable_inode())));
  }
  reply.removed = InodeId(in.removed());
  reply.contended = in.contended();
  return reply;
}

void ToProto(const ReadOnceRequest& request, v1::ReadOnceRequest* out) {
  out->set_session(request.session.value);
  ToProto(request.key, out->mutable_key());
  out->set_ino(request.ino.value);
  out->set_name(request.name);
  out->set_first_chunk(request.first_chunk);
  out->set_chunks(request.chunks);
  out->set_xattrs(request.xattrs);
  out->set_open(request.open);
}

Result<ReadOnceRequest> FromProto(const v1::ReadOnceRequest& in) {
  if (!in.has_key()) return Missing("key");
  if (in.name().size() > kMaxName) return Code::kNameTooLong;
  return ReadOnceRequest{SessionId(in.session()), FromProto(in.key()), InodeId(in.ino()), in.name(),
                         in.first_chunk(),        in.chunks(),          in.xattrs(),       in.open()};
}

void ToProto(const ReadOnceReply& reply, v1::ReadOnceReply* out) {
  out->set_position(reply.position.value);
  if (!reply.absent) ToProto(reply.inode, out->mutable_inode());
  out->set_contended(reply.contended);
  for (const ChunkExtents& chunk : reply.chunks) ToProto(chunk, out->add_chunks());
  for (const auto& [name, value] : reply.xattrs) {
    v1::Xattr* x = out->mutable_xattrs()->add_xattrs();
    x->set_name(name);
    x->set_value(value);
  }
}

Result<ReadOnceReply> FromProto(v1::ReadOnceReply&& in) {
  ReadOnceReply reply;
  reply.position = Lsn(in.position());
  reply.absent = !in.has_inode();
  if (in.has_inode()) {
    ARCHIL_ASSIGN_OR_RETURN(reply.inode, FromProto(std::move(*in.mutable_inode())));
  }
  reply.contended = in.contended();
  for (v1::ChunkExtents& c : *in.mutable_chunks()) {
    ARCHIL_ASSIGN_OR_RETURN(ChunkExtents chunk, FromProto(std::move(c)));
    reply.chunks.push_back(std::move(chunk));
  }
  for (v1::Xattr& x : *in.mutable_xattrs()->mutable_xattrs()) {
    reply.xattrs.insert_or_assign(std::move(*x.mutable_name()), std::move(*x.mutable_value()));
  }
  return reply;
}

}  // namespace archil
