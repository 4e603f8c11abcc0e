// DataService over gRPC, and the pool of such clients.
//
// Copies of appended bytes here: one into the message, one into gRPC's slices. Bytes that were read: one out of the
// slices. A ByteBuffer of our own would save the first; it has not been needed.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "archil/v1/data.grpc.pb.h"
#include "common/base/checksum.h"
#include "common/env/sched.h"
#include "common/rpc/channel.h"
#include "common/rpc/client.h"
#include "common/rpc/convert.h"
#include "common/rpc/limits.h"

namespace archil {
namespace {

using v1::Data;

template <class Request>
Request For(SegmentKey key) {
  Request request;
  request.set_disk(key.disk.value);
  request.set_segment(key.segment.value);
  return request;
}

class DataClient final : public DataService {
 public:
  DataClient(const std::string& address, const RpcOptions& options, std::shared_ptr<CancelWatcher> watcher)
      : channel_(address, options, std::move(watcher)), stub_(channel_.channel()) {}

  Status Append(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset, const Buffer& bytes,
                uint64_t checksum) override {
    if (bytes.empty() || bytes.size() > kMaxAppend) {
      return Error(Code::kInvalid, fmt::format("append of {} bytes; 1 to {} are allowed", bytes.size(), kMaxAppend));
    }
    auto request = For<v1::AppendRequest>(key);
    request.set_token(token);
    request.set_offset(offset);
    request.set_checksum(checksum);
    request.set_data(bytes.data(), bytes.size());
    v1::AppendReply reply;
    return channel_.Call(ctx, CallKind::kChange, stub_, &Data::Stub::Append, request, &reply);
  }

  Result<Buffer> Read(const OpContext& ctx, SegmentKey key, uint64_t offset, uint64_t length) override {
    if (length <= kMaxReadBytes) {
      ARCHIL_ASSIGN_OR_RETURN(auto bytes, ReadPiece(ctx, key, offset, length));
      return Buffer(std::move(bytes));
    }
    if (length > kMaxSegment || offset > kMaxSegment) {
      return Error(Code::kInvalid, fmt::format("read of [{}, +{}), a segment has at most {} bytes", offset, length, kMaxSegment));
    }
    std::string all;
    for (uint64_t done = 0; done < length;) {
      const uint64_t piece = std::min(length - done, kMaxReadBytes);
      ARCHIL_ASSIGN_OR_RETURN(auto bytes, ReadPiece(ctx, key, offset + done, piece));
      all += bytes;
      done += piece;
    }
    return Buffer(std::move(all));
  }

  Result<SegmentInfo> Fence(const OpContext& ctx, SegmentKey key, uint64_t token) override {
    auto request = For<v1::FenceRequest>(key);
    request.set_token(token);
    return Info(ctx, CallKind::kChange, &Data::Stub::Fence, request);
  }

  Result<SegmentInfo> Seal(const OpContext& ctx, SegmentKey key, uint64_t token) override {
    auto request = For<v1::SealRequest>(key);
    request.set_token(token);
    return Info(ctx, CallKind::kChange, &Data::Stub::Seal, request);
  }

  Result<SegmentInfo> Stat(const OpContext& ctx, SegmentKey key) override {
    return Info(ctx, CallKind::kRead, &Data::Stub::Stat, For<v1::StatRequest>(key));
  }

  Status Delete(const OpContext& ctx, SegmentKey key) override {
    v1::DeleteReply reply;
    return channel_.Call(ctx, CallKind::kChange, stub_, &Data::Stub::Delete, For<v1::DeleteRequest>(key), &reply);
  }

  Result<std::vector<SegmentInfo>> List(const OpContext& ctx, DiskId disk) override {
    std::vector<SegmentInfo> out;
    v1::ListRequest request;
    request.set_disk(disk.value);
    for (;;) {
      v1::ListReply reply;
      ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, stub_, &Data::Stub::List, request, &reply));
      for (const v1::Segment& s : reply.segments()) {
        ARCHIL_ASSIGN_OR_RETURN(auto info, Decoded(FromProto(s)));
        out.push_back(info);
      }
      if (reply.complete()) return out;
      const uint64_t last = out.empty() ? 0 : out.back().key.segment.value;
      if (last <= request.after()) return Error(Code::kCorrupt, "bad answer of the data server: list makes no progress");
      request.set_after(last);
    }
  }

 private:
  static Result<SegmentInfo> Decoded(Result<SegmentInfo> result) {
    if (result.ok()) return result;
    return Error(Code::kCorrupt, fmt::format("bad answer of the data server: {}", result.error().message()));
  }

  Result<std::string> ReadPiece(const OpContext& ctx, SegmentKey key, uint64_t offset, uint64_t length) {
    auto request = For<v1::ReadRequest>(key);
    request.set_offset(offset);
    request.set_length(length);
    v1::ReadReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, CallKind::kRead, stub_, &Data::Stub::Read, request, &reply));
    if (reply.data().size() != length || Checksum(reply.data()) != reply.checksum()) {
      return Error(Code::kCorrupt, fmt::format("{} sent other bytes than asked for: {} instead of {}, or damaged",
                                               channel_.address(), reply.data().size(), length));
    }
    return std::move(*reply.mutable_data());
  }

  template <class Method, class Request>
  Result<SegmentInfo> Info(const OpContext& ctx, CallKind kind, Method method, const Request& request) {
    v1::SegmentReply reply;
    ARCHIL_RETURN_IF_ERROR(channel_.Call(ctx, kind, stub_, method, request, &reply));
    return Decoded(FromProto(reply.segment()));
  }

  RpcChannel channel_;
  Data::Stub stub_;
};

class DataPool final : public DataServicePool {
 public:
  explicit DataPool(const RpcOptions& options) : options_(options), mu_(RealScheduler()) {}

  DataService& For(const DataServerInfo& server) override {
    MutexLock lock(mu_);
    std::unique_ptr<DataService>& client = clients_[server.address];
    if (client == nullptr) client = std::make_unique<DataClient>(server.address, options_, watcher_);
    return *client;
  }

 private:
  const RpcOptions options_;
  const std::shared_ptr<CancelWatcher> watcher_ = std::make_shared<CancelWatcher>();
  Mutex mu_;
  std::map<std::string, std::unique_ptr<DataService>> clients_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<DataService> NewDataClient(const std::string& address, const RpcOptions& options) {
  return std::make_unique<DataClient>(address, options, std::make_shared<CancelWatcher>());
}

std::unique_ptr<DataServicePool> NewDataPool(const RpcOptions& options) { return std::make_unique<DataPool>(options); }

}  // namespace archil
