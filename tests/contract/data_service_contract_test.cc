// DataServer in the same process, on files in memory and on real ones.
#include <filesystem>

#include "common/env/mem_files.h"
#include "server/data/data_server.h"
#include "tests/contract/data_service_contract.h"

namespace archil {
namespace {

class InProcess final : public DataServiceFixture {
 public:
  InProcess(Files& files, std::string root, std::unique_ptr<MemFiles> owned)
      : owned_(std::move(owned)), files_(files), root_(std::move(root)) {
    Open();
  }
  ~InProcess() override {
    server_.reset();
    objects_.reset();
    if (owned_ == nullptr) std::filesystem::remove_all(root_);
  }
  DataService& service() override { return *server_; }
  void DrainUploads() override {
    OpContext ctx;
    ctx.deadline = RealClock().Boot() + absl::Seconds(30);
    ASSERT_TRUE(server_->DrainUploads(ctx).ok());
  }
  void Restart() override {
    server_->Stop();
    server_.reset();
    objects_.reset();
    Open();
  }

 private:
  void Open() {
    auto objects = OpenLocalObjectStore(files_, root_ + "/objects");
    ASSERT_TRUE(objects.ok()) << objects.error().ToString();
    objects_ = std::move(*objects);
    DataServerConfig config;
    config.dir = root_ + "/data";
    config.reserve_bytes = 0;
    auto server = DataServer::Open({RealScheduler(), files_, *objects_, faults_}, config);
    ASSERT_TRUE(server.ok()) << server.error().ToString();
    server_ = std::move(*server);
  }

  std::unique_ptr<MemFiles> owned_;
  Files& files_;
  std::string root_;
  Faults faults_;
  std::unique_ptr<ObjectStore> objects_;
  std::unique_ptr<DataServer> server_;
};

std::unique_ptr<DataServiceFixture> OnMemFiles() {
  auto files = std::make_unique<MemFiles>();
  MemFiles& borrowed = *files;
  return std::make_unique<InProcess>(borrowed, "/root", std::move(files));
}

std::unique_ptr<DataServiceFixture> OnRealFiles() {
  std::string path = (std::filesystem::temp_directory_path() / "archil-data-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) return nullptr;
  return std::make_unique<InProcess>(RealFiles(), path, nullptr);
}

INSTANTIATE_TEST_SUITE_P(InProcess, DataServiceContract,
                         ::testing::Values(DataServiceFactory{"MemFiles", OnMemFiles},
                                           DataServiceFactory{"RealFiles", OnRealFiles}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace archil
