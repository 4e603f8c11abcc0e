// The contract of MetaService, kept by the stub that speaks gRPC to a metadata server over the loopback interface.
#include "common/base/check.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "server/meta/service/meta_rpc.h"
#include "tests/contract/meta_lock_contract.h"
#include "tests/contract/meta_delegation_contract.h"
#include "tests/contract/meta_server_op_contract.h"
#include "tests/contract/meta_service_contract.h"

namespace archil {
namespace {

class OverGrpc final : public MetaServiceFixture {
 public:
  OverGrpc() {
    EXPECT_TRUE(world_.Start().ok());
    service_ = NewMetaRpcService(world_.meta());
    auto port = ReservedPort::Bind({"127.0.0.1", 0});
    ARCHIL_CHECK(port.ok());
    auto rpc = RpcServer::Start(std::move(port).value(), {service_.get()});
    ARCHIL_CHECK(rpc.ok());
    rpc_ = std::move(rpc).value();
    client_ = NewMetaClient(rpc_->address().ToString());
  }
  ~OverGrpc() override {
    client_.reset();
    rpc_->Stop(absl::Seconds(10));
  }
  MetaService& service() override { return *client_; }

 private:
  test::MetaWorld world_;
  std::unique_ptr<RpcService> service_;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<MetaService> client_;
};

INSTANTIATE_TEST_SUITE_P(Grpc, MetaServiceContract,
                         testing::Values(MetaServiceFactory{"grpc", [] { return std::make_unique<OverGrpc>(); }}));
INSTANTIATE_TEST_SUITE_P(Grpc, MetaLockContract,
                         testing::Values(MetaServiceFactory{"grpc", [] { return std::make_unique<OverGrpc>(); }}));
INSTANTIATE_TEST_SUITE_P(Grpc, MetaDelegationContract,
                         testing::Values(MetaServiceFactory{"grpc", [] { return std::make_unique<OverGrpc>(); }}));
INSTANTIATE_TEST_SUITE_P(Grpc, MetaServerOpContract,
                         testing::Values(MetaServiceFactory{"grpc", [] { return std::make_unique<OverGrpc>(); }}));

}  // namespace
}  // namespace archil
