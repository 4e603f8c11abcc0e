#include "server/meta/ops/op_env.h"

#include <fmt/format.h>

namespace archil {

Error Refuse(std::string reason) { return Error(Code::kInvalid, std::move(reason)); }

const char* OpName(const Op& op) {
  static constexpr const char* kNames[] = {"create",      "link",      "unlink",       "rmdir",          "rename", "set-attr", "set-extents",
                                           "clear-range", "set-xattr", "remove-xattr", "release-orphan", "touch"};
  static_assert(std::variant_size_v<Op> == std::size(kNames));
  return kNames[op.index()];
}

Status ApplyOps(OpEnv& env, const std::vector<Op>& ops) {
  for (size_t i = 0; i < ops.size(); ++i) {
    const Status s = std::visit([&](const auto& op) { return Apply(env, op); }, ops[i]);
    if (s.ok()) continue;
    const char* verb = s.code() == Code::kInvalid ? "refused" : "failed";
    return Error(s.code(), fmt::format("op {} ({}) {}: {}", i, OpName(ops[i]), verb, std::string(s.error().message())));
  }
  return Ok();
}

}  // namespace archil
