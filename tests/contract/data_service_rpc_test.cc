// The contract of DataService, kept by the stub that speaks gRPC to a data server over the loopback interface.
#include "common/base/check.h"
#include "common/env/faults.h"
#include "common/env/mem_files.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "server/data/data_server.h"
#include "server/data/service/data_rpc.h"
#include "server/object/object_store.h"
#include "tests/contract/data_service_contract.h"

namespace archil {
namespace {

class OverGrpc final : public DataServiceFixture {
 public:
  OverGrpc() {
    auto objects = OpenLocalObjectStore(files_, "/objects");
    ARCHIL_CHECK(objects.ok());
    objects_ = std::move(objects).value();
    Start();
  }
  ~OverGrpc() override { Stop(); }

  DataService& service() override { return *client_; }
  void DrainUploads() override { ASSERT_TRUE(server_->DrainUploads(OpContext()).ok()); }
  void Restart() override {
    Stop();
    Start();
  }

 private:
  void Start() {
    DataServerConfig config;
    config.dir = "/data";
    config.reserve_bytes = 0;
    auto server = DataServer::Open({RealScheduler(), files_, *objects_, faults_}, config);
    ARCHIL_CHECK(server.ok());
    server_ = std::move(server).value();
    service_ = NewDataRpcService(RealScheduler(), *server_);
    auto port = ReservedPort::Bind({"127.0.0.1", 0});
    ARCHIL_CHECK(port.ok());
    auto rpc = RpcServer::Start(std::move(port).value(), {service_.get()});
    ARCHIL_CHECK(rpc.ok());
    rpc_ = std::move(rpc).value();
    client_ = NewDataClient(rpc_->address().ToString());
  }
  void Stop() {
    client_.reset();
    rpc_->Stop(absl::Seconds(10));
    rpc_.reset();
    service_.reset();
    server_->Stop();
    server_.reset();
  }

  MemFiles files_;
  Faults faults_;
  std::unique_ptr<ObjectStore> objects_;
  std::unique_ptr<DataServer> server_;
  std::unique_ptr<RpcService> service_;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<DataService> client_;
};

INSTANTIATE_TEST_SUITE_P(Grpc, DataServiceContract,
                         testing::Values(DataServiceFactory{"grpc", [] { return std::make_unique<OverGrpc>(); }}));

}  // namespace
}  // namespace archil
