// The server's end of the sessions' streams (rpc Session of archil.v1.Meta): Renew, Poll and AnswerRecall of one session over one call.
//
// Nothing occupies a thread while it waits. Each call that was taken is answered once, a renewal before what waits to be sent. A stream
// is ended, with the reason as its status, by a client that sends what is no message or too many calls at once; and when the server
// stops, with kUnavailable after everything that was taken has been answered: what has no answer then was never looked at.
#pragma once

#include <map>
#include <memory>

#include "common/env/sched.h"
#include "server/meta/meta_server.h"

namespace grpc {
template <class Request, class Response>
class ServerBidiReactor;
}

namespace archil {

namespace v1 {
class SessionDown;
class SessionUp;
}  // namespace v1

// Thread safe. Must outlive the gRPC server that has its streams.
class ServedStreams {
 public:
  using Reactor = grpc::ServerBidiReactor<v1::SessionUp, v1::SessionDown>;

  // `server` must outlive this.
  explicit ServedStreams(MetaServer& server);
  ~ServedStreams();

  // A stream begins; gRPC's until it is done.
  Reactor* Open();
  // All streams end soon, new ones at once. After MetaServer::EndWaits, which answers the calls that wait.
  void End();

 private:
  class Stream;

  void Gone(Stream* stream);

  MetaServer& server_;
  Mutex mu_;  // before a stream's
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::map<Stream*, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mu_);  // owners: this, and calls that were not answered yet
};

}  // namespace archil
