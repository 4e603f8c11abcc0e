// The one place that knows grpc::Status.
//
// A failed call carries our Code and message in its status details (archil.v1.ErrorInfo), so that both survive
// exactly; the gRPC code beside it is for tools. A status without them was made by gRPC itself, and what it
// means depends on whether the call may have changed something at the server.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"

namespace grpc {
class Status;
}

namespace archil {

namespace v1 {
class ErrorInfo;
}

inline constexpr size_t kMaxErrorMessage = 1024;  // bytes of a message on the wire; longer ones are cut

enum class CallKind : uint8_t { kRead, kChange };

grpc::Status ToGrpc(const Status& status);
void ToProto(const Error& error, v1::ErrorInfo* out);
Error FromProto(const v1::ErrorInfo& in);

// Precondition: !status.ok(). `server` is named in messages. Without an ErrorInfo:
//   no connection to the server              kUnavailable: it has not seen the call
//   deadline, connection lost in the call     kUnavailable; kUnknown for a change
//   refused by gRPC itself (size, method)      a final code; nothing happened
Error FromGrpc(const grpc::Status& status, CallKind kind, std::string_view server);

}  // namespace archil
