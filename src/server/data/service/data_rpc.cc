#include "server/data/service/data_rpc.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "archil/v1/data.grpc.pb.h"
#include "common/base/checksum.h"
#include "common/rpc/convert.h"
#include "common/rpc/handler.h"
#include "common/rpc/limits.h"
#include "common/rpc/status.h"
#include "server/data/service/workers.h"

namespace archil {
namespace {

using Call = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

constexpr int kReadThreads = 6;
constexpr int kOtherThreads = 2;
constexpr size_t kQueueLimit = 1024;
constexpr uint64_t kAppendBytesInFlight = 256 << 20;

template <class Request>
SegmentKey KeyOf(const Request& request) {
  return {DiskId(request.disk()), SegmentId(request.segment())};
}

using AppendMessages = OwnedMessages<v1::AppendRequest, v1::AppendReply>;

class DataHandlers final : public v1::Data::CallbackService {
 public:
  DataHandlers(Scheduler& scheduler, DataServer& server)
      : server_(server),
        readers_(scheduler, "data-read", kReadThreads, kQueueLimit),
        others_(scheduler, "data-call", kOtherThreads, kQueueLimit) {
    SetMessageAllocatorFor_Append(&append_messages_);
  }

  Reactor* Append(Call* call, const v1::AppendRequest* request, v1::AppendReply*) override {
    Reactor* reactor = call->DefaultReactor();
    const uint64_t size = request->data().size();
    if (size == 0 || size > kMaxAppend) {
      reactor->Finish(ToGrpc(Error(Code::kInvalid, fmt::format("append of {} bytes; 1 to {} are allowed", size, kMaxAppend))));
      return reactor;
    }
    if (in_flight_.fetch_add(size) + size > kAppendBytesInFlight) {
      in_flight_.fetch_sub(size);
      reactor->Finish(ToGrpc(Error(Code::kTryAgain, "too many bytes wait for the disk of the data server")));
      return reactor;
    }
    const Buffer bytes(std::move(*AppendMessages::RequestOf(*call).mutable_data()));
    server_.AppendAsync(ContextOf(*call), KeyOf(*request), request->token(), request->offset(), bytes, request->checksum(),
                        [this, reactor, size](Status status) {
                          in_flight_.fetch_sub(size);
                          reactor->Finish(ToGrpc(status));
                        });
    return reactor;
  }

  Reactor* Read(Call* call, const v1::ReadRequest* request, v1::ReadReply* reply) override {
    return Run(readers_, call, [this, request, reply](const OpContext& ctx) -> Status {
      if (request->length() > kMaxReadBytes) {
        return Error(Code::kInvalid, fmt::format("read of {} bytes, limit {}", request->length(), kMaxReadBytes));
      }
      ARCHIL_ASSIGN_OR_RETURN(auto bytes, server_.Read(ctx, KeyOf(*request), request->offset(), request->length()));
      reply->set_data(bytes.data(), bytes.size());
      reply->set_checksum(Checksum(bytes.view()));
      return Ok();
    });
  }

  Reactor* Fence(Call* call, const v1::FenceRequest* request, v1::SegmentReply* reply) override {
    return Run(others_, call, [this, request, reply](const OpContext& ctx) {
      return Answer(server_.Fence(ctx, KeyOf(*request), request->token()), reply);
    });
  }

  Reactor* Seal(Call* call, const v1::SealRequest* request, v1::SegmentReply* reply) override {
    return Run(others_, call, [this, request, reply](const OpContext& ctx) {
      return Answer(server_.Seal(ctx, KeyOf(*request), request->token()), reply);
    });
  }

  Reactor* Stat(Call* call, const v1::StatRequest* request, v1::SegmentReply* reply) override {
    return Run(others_, call,
               [this, request, reply](const OpContext& ctx) { return Answer(server_.Stat(ctx, KeyOf(*request)), reply); });
  }

  Reactor* Delete(Call* call, const v1::DeleteRequest* request, v1::DeleteReply*) override {
    return Run(others_, call, [this, request](const OpContext& ctx) { return server_.Delete(ctx, KeyOf(*request)); });
  }

  Reactor* List(Call* call, const v1::ListRequest* request, v1::ListReply* reply) override {
    return Run(others_, call, [this, request, reply](const OpContext& ctx) -> Status {
      ARCHIL_ASSIGN_OR_RETURN(auto all, server_.List(ctx, DiskId(request->disk())));
      std::sort(all.begin(), all.end(), [](const SegmentInfo& a, const SegmentInfo& b) { return a.key < b.key; });
      reply->set_complete(true);
      for (const SegmentInfo& info : all) {
        if (info.key.segment.value <= request->after()) continue;
        if (static_cast<size_t>(reply->segments_size()) == kSegmentsPerList) {
          reply->set_complete(false);
          break;
        }
        ToProto(info, reply->add_segments());
      }
      return Ok();
    });
  }

 private:
  // As in the metadata service: runs `body`, a Status(const OpContext&), and answers with what it returns.
  template <class Body>
  Reactor* Run(Workers& workers, Call* call, Body body) {
    Reactor* reactor = call->DefaultReactor();
    const Status accepted = workers.Run([reactor, ctx = ContextOf(*call), body = std::move(body)] {
      Status status = CheckDeadline(ctx);
      if (status.ok()) status = body(ctx);
      reactor->Finish(ToGrpc(status));
    });
    if (!accepted.ok()) reactor->Finish(ToGrpc(accepted));
    return reactor;
  }

  static Status Answer(Result<SegmentInfo> result, v1::SegmentReply* reply) {
    if (!result.ok()) return result.error();
    ToProto(*result, reply->mutable_segment());
    return Ok();
  }

  DataServer& server_;
  AppendMessages append_messages_;
  std::atomic<uint64_t> in_flight_{0};  // bytes of appends that are not answered
  Workers readers_;
  Workers others_;
};

class DataRpcService final : public RpcService {
 public:
  DataRpcService(Scheduler& scheduler, DataServer& server) : data_(scheduler, server) {}
  std::vector<grpc::Service*> GrpcServices() override { return {&data_}; }

 private:
  DataHandlers data_;
};

}  // namespace

std::unique_ptr<RpcService> NewDataRpcService(Scheduler& scheduler, DataServer& server) {
  return std::make_unique<DataRpcService>(scheduler, server);
}

}  // namespace archil
