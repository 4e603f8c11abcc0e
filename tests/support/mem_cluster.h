// MemCluster: a whole fleet in memory: one metadata server and some data servers, each on a machine of its own
// (MemFiles, so that a crash takes what was not synced), an object store, and the links between them and to a client.
//
// Servers can be stopped cleanly and cut off like a killed process or a machine without power, then started again on
// what is left. Clients keep their references: a link answers kUnavailable while its server is down, and kUnknown for a
// change whose answer was lost with it. Links can also lose requests and answers at random.
// Thread safe for clients; one thread at a time starts, stops and crashes.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/core/mount.h"
#include "common/env/faults.h"
#include "common/env/mem_files.h"
#include "common/env/random.h"
#include "common/env/sched.h"
#include "server/data/data_server.h"
#include "server/meta/meta_server.h"
#include "server/object/object_store.h"

namespace archil::test {

struct MemClusterOptions {
  uint64_t seed = 1;
  uint32_t data_servers = 1;
  MetaServerConfig meta;  // dir is filled in
  DataServerConfig data;  // dir is filled in
  Scheduler* scheduler = &RealScheduler();
  // Called at each step of a disk, before it happens, with no lock held; empty: none.
  std::function<void(MemFiles::Call call)> on_disk_step;
};

class MemCluster {
 public:
  explicit MemCluster(const MemClusterOptions& options);
  ~MemCluster();
  MemCluster(const MemCluster&) = delete;
  MemCluster& operator=(const MemCluster&) = delete;

  // Opens every server that is down.
  Status Start();
  // Cleanly, the metadata server first.
  void Stop();

  // A killed process, or with `power` a machine that also loses what was not synced. Down until Start.
  enum class Loss : uint8_t { kProcess, kPower };
  void CrashMeta(Loss loss);
  void CrashData(uint32_t index, Loss loss);
  void CrashAll(Loss loss);

  // Of a hundred thousand calls of a client, so many lose their request, and as many their answer.
  void SetLossRate(uint32_t per_100000) { loss_rate_ = per_100000; }

  MetaService& meta();
  DataServicePool& data();
  MetaServer* meta_server();  // null while down
  uint64_t lost_calls() const { return lost_calls_; }
  uint64_t crashes() const { return crashes_; }

 private:
  class MetaLink;
  class DataLink;
  class Pool;
  class ServerSet;
  class CrashKv;
  struct KvDisk;
  struct Machine;

  Status StartData(Machine& machine, uint32_t index);
  Status StartMeta();
  bool Lose();
  void CrashKvs();
  void CrashFiles(MemFiles& files, Loss loss);

  MemClusterOptions options_;
  std::unique_ptr<Random> random_;        // of the servers and the links
  std::unique_ptr<Random> crash_random_;  // what a crash keeps
  Faults faults_;
  std::atomic<uint32_t> loss_rate_{0};
  std::atomic<uint64_t> lost_calls_{0};
  uint64_t crashes_ = 0;

  std::unique_ptr<MemFiles> meta_files_;
  Mutex kv_mu_;
  std::map<std::string, std::shared_ptr<KvDisk>> kv_disks_ ABSL_GUARDED_BY(kv_mu_);  // by directory
  std::vector<std::unique_ptr<Machine>> machines_;
  std::shared_ptr<MetaServer> meta_server_;
  std::shared_ptr<Notification> meta_gone_;  // this life of it; owners: the cluster and the server's deleter
  std::shared_ptr<ServerSet> server_set_;  // of this life of the metadata server
  std::unique_ptr<MetaLink> meta_link_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace archil::test
