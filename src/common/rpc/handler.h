// What every server-side handler of a call needs. Internal to service adaptors.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/message_allocator.h>

#include "common/api/context.h"
#include "common/base/result.h"

namespace archil {

// Deadline of the caller; a caller that goes away cancels nothing, its change may be half way.
OpContext ContextOf(const grpc::CallbackServerContext& call);
// kUnavailable if the deadline has passed: work that waited too long for a thread is not begun.
Status CheckDeadline(const OpContext& ctx);
// kTooBig for a reply that no client would accept.
Status CheckReplySize(const google::protobuf::Message& reply);

// Given to gRPC for a method whose requests are large: its handler may take the bytes out of the request
// instead of copying them.
template <class Request, class Reply>
class OwnedMessages final : public grpc::MessageAllocator<Request, Reply> {
 public:
  grpc::MessageHolder<Request, Reply>* AllocateMessages() override { return new Holder; }
  // Precondition: a call of the method that has this allocator.
  static Request& RequestOf(grpc::CallbackServerContext& call) {
    return *static_cast<Holder*>(call.GetRpcAllocatorState())->request();
  }

 private:
  class Holder final : public grpc::MessageHolder<Request, Reply> {
   public:
    Holder() {
      this->set_request(&request_);
      this->set_response(&reply_);
    }
    void Release() override { delete this; }

   private:
    Request request_;
    Reply reply_;
  };
};

}  // namespace archil
