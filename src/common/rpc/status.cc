#include "common/rpc/status.h"

#include <fmt/format.h>
#include <grpcpp/support/status.h>

#include <optional>
#include <string>

#include "archil/v1/types.pb.h"

namespace archil {
namespace {

grpc::StatusCode ToolCode(Code code) {
  switch (code) {
    case Code::kOk: return grpc::StatusCode::OK;
    case Code::kNotFound:
    case Code::kNoSuchDisk:
    case Code::kNoData: return grpc::StatusCode::NOT_FOUND;
    case Code::kExists: return grpc::StatusCode::ALREADY_EXISTS;
    case Code::kInvalid:
    case Code::kNameTooLong: return grpc::StatusCode::INVALID_ARGUMENT;
    case Code::kRange:
    case Code::kNoSuchAddress:
    case Code::kFileTooBig: return grpc::StatusCode::OUT_OF_RANGE;
    case Code::kPermission:
    case Code::kAccess: return grpc::StatusCode::PERMISSION_DENIED;
    case Code::kNoSpace:
    case Code::kQuota:
    case Code::kTooBig:
    case Code::kTryAgain: return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case Code::kNotSupported:
    case Code::kNotImplemented: return grpc::StatusCode::UNIMPLEMENTED;
    case Code::kUnavailable:
    case Code::kMoved: return grpc::StatusCode::UNAVAILABLE;
    case Code::kInterrupted: return grpc::StatusCode::CANCELLED;
    case Code::kUnknown: return grpc::StatusCode::UNKNOWN;
    case Code::kFenced: return grpc::StatusCode::ABORTED;
    case Code::kCorrupt: return grpc::StatusCode::DATA_LOSS;
    case Code::kIo:
    case Code::kInternal: return grpc::StatusCode::INTERNAL;
    default: return grpc::StatusCode::FAILED_PRECONDITION;
  }
}

bool IsKnown(Code code) { return code != Code::kOk && CodeName(code) != "undefined"; }

// A code that this program does not know (a newer peer's) still tells what may be done about it.
Code CodeFromWire(uint32_t wire) {
  if (wire > 255) return Code::kInternal;
  const auto code = static_cast<Code>(wire);
  if (IsKnown(code)) return code;
  switch (BandOf(code)) {
    case Band::kVerdict: return Code::kInvalid;
    case Band::kNotApplied: return Code::kTryAgain;
    case Band::kUnknown: return Code::kUnknown;
    default: return Code::kInternal;
  }
}

std::optional<Error> Decode(const std::string& details) {
  if (details.empty()) return std::nullopt;
  v1::StatusDetails outer;
  v1::ErrorInfo info;
  if (!outer.ParseFromString(details) || outer.details_size() != 1 || !outer.details(0).UnpackTo(&info)) return std::nullopt;
  return FromProto(info);
}

// gRPC has no better way to tell that no connection took a call than what it says when it finds none to give it to.
// Another text, in another version, makes us answer kUnknown, which is always allowed.
bool NeverSent(std::string_view text) {
  return text.starts_with("failed to connect to all addresses") || text.starts_with("DNS resolution failed");
}

// "Connection refused" of "failed to connect to all addresses; last error: UNKNOWN: ipv4:…: …: Connection refused".
std::string_view LastReason(std::string_view text) {
  const size_t at = text.rfind(": ");
  return at == std::string_view::npos ? text : text.substr(at + 2);
}

}  // namespace

void ToProto(const Error& error, v1::ErrorInfo* out) {
  out->set_code(static_cast<uint32_t>(error.code()));
  out->set_message(std::string(error.message().substr(0, kMaxErrorMessage)));
}

Error FromProto(const v1::ErrorInfo& in) {
  const Code code = CodeFromWire(in.code());
  if (in.message().empty()) return Error(code);
  return Error(code, in.message());
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const Error& error = status.error();
  v1::ErrorInfo info;
  ToProto(error, &info);
  const grpc::StatusCode tool_code = ToolCode(error.code());
  v1::StatusDetails outer;
  outer.set_code(tool_code);
  outer.add_details()->PackFrom(info);
  std::string text(CodeName(error.code()));
  if (!info.message().empty()) text += ": " + info.message();
  return grpc::Status(tool_code, text, outer.SerializeAsString());
}

Error FromGrpc(const grpc::Status& status, CallKind kind, std::string_view server) {
  if (auto error = Decode(status.error_details())) return *std::move(error);
  const Code lost = kind == CallKind::kChange ? Code::kUnknown : Code::kUnavailable;
  const std::string& text = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      if (NeverSent(text)) return Error(Code::kUnavailable, fmt::format("cannot reach {}: {}", server, LastReason(text)));
      return Error(lost, fmt::format("connection to {} was lost: {}", server, text));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return Error(lost, fmt::format("no answer from {} before the deadline", server));
    case grpc::StatusCode::UNIMPLEMENTED:
      return Error(Code::kNotSupported, fmt::format("{} does not know this call: not an archild with this role, or another version",
                                                    server));
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Error(Code::kTooBig, fmt::format("message to or from {} over the limit: {}", server, text));
    case grpc::StatusCode::INVALID_ARGUMENT:
      return Error(Code::kInvalid, text);
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return Error(Code::kAccess, text);
    default:
      return Error(lost, fmt::format("call to {} ended: {}", server, text));
  }
}

}  // namespace archil
