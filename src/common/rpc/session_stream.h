// The calls of a session that go over its stream (rpc Session of archil.v1.Meta). One stream for each session, opened by the first
// call and, when it has broken, by the next one. Internal to the clients of this room.
//
// Many calls are under way at once, answers come in any order. A renewal is sent before whatever waits to be sent, and no message is
// large, so nothing holds it up on the stream (LSE-1). Outcomes are those of client.h: when a stream breaks, what was not sent, and
// what changes nothing, is kUnavailable, and a change that was sent kUnknown. Nothing is sent again here.
#pragma once

#include <map>
#include <memory>

#include "archil/v1/meta.grpc.pb.h"
#include "common/api/context.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/env/sched.h"
#include "common/rpc/channel.h"

namespace archil {

// Thread safe.
class SessionStreams {
 public:
  // Both must outlive this.
  SessionStreams(const RpcChannel& channel, v1::Meta::Stub& stub);
  // Ends all streams and waits until gRPC is done with them. Precondition: no call runs.
  ~SessionStreams();

  // Makes one call of `session`. `request` says what, and has no number yet.
  Status Call(const OpContext& ctx, CallKind kind, SessionId session, v1::SessionUp request, v1::SessionDown* reply);
  // There are no more calls of this session: its stream ends, and a call after all opens another.
  void End(SessionId session);

 private:
  class Stream;
  struct Living;

  std::shared_ptr<Stream> Of(SessionId session);

  const RpcChannel& channel_;
  v1::Meta::Stub& stub_;
  const std::shared_ptr<Living> living_;  // owners: this and every stream
  Mutex mu_;                              // before a stream's
  std::map<SessionId, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);  // owners: this, calls that run, gRPC
};

}  // namespace archil
