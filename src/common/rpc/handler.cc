#include "common/rpc/handler.h"

#include <fmt/format.h>

#include <chrono>

#include "common/rpc/limits.h"

namespace archil {

OpContext ContextOf(const grpc::CallbackServerContext& call) {
  OpContext ctx;
  const auto deadline = call.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    ctx.deadline = RealClock().Boot() + absl::FromChrono(deadline - std::chrono::system_clock::now());
  }
  return ctx;
}

Status CheckDeadline(const OpContext& ctx) {
  if (ctx.deadline <= RealClock().Boot()) return Error(Code::kUnavailable, "the deadline passed before the server could begin");
  return Ok();
}

Status CheckReplySize(const google::protobuf::Message& reply) {
  const size_t size = reply.ByteSizeLong();
  if (size < static_cast<size_t>(kMaxMessageBytes)) return Ok();
  return Error(Code::kTooBig, fmt::format("the answer has {} bytes, limit {}", size, kMaxMessageBytes));
}

}  // namespace archil
