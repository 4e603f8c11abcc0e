// Which data servers a metadata server has: the one of its own process, or those of the command line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/rpc/client.h"
#include "server/data/data_server.h"
#include "server/meta/meta_server.h"

namespace archil {

// The data server of this process, called directly; clients reach it at `address`. Its id is 1.
class LocalDataServer final : public DataServerSet {
 public:
  LocalDataServer(DataServer& server, std::string address) : server_(server), address_(std::move(address)) {}
  std::vector<DataServerInfo> All() override { return {{1, address_}}; }
  DataService* ById(uint32_t id) override { return id == 1 ? &server_ : nullptr; }

 private:
  DataServer& server_;
  const std::string address_;
};

// Data servers of other processes, over gRPC.
class RemoteDataServers final : public DataServerSet {
 public:
  explicit RemoteDataServers(std::vector<DataServerInfo> servers) : servers_(std::move(servers)), pool_(NewDataPool()) {}
  std::vector<DataServerInfo> All() override { return servers_; }
  DataService* ById(uint32_t id) override {
    for (const DataServerInfo& server : servers_) {
      if (server.id == id) return &pool_->For(server);
    }
    return nullptr;
  }

 private:
  const std::vector<DataServerInfo> servers_;
  const std::unique_ptr<DataServicePool> pool_;
};

}  // namespace archil
