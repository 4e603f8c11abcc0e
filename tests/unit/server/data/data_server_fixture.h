// A DataServer on files in memory and a fake object store.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/api/types.h"
#include "common/base/checksum.h"
#include "common/env/mem_files.h"
#include "server/data/data_server.h"
#include "server/data/segment_format.h"
#include "tests/unit/server/data/fake_store.h"

namespace archil {

class DataServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.dir = "/data";
    config_.reserve_bytes = 0;
    config_.upload_retry = absl::Milliseconds(1);
    Start();
  }
  void TearDown() override { server_.reset(); }

  void Start() {
    auto server = DataServer::Open({RealScheduler(), files_, store_, faults_}, config_);
    ASSERT_TRUE(server.ok()) << server.error().ToString();
    server_ = std::move(*server);
  }
  void Restart() {
    server_.reset();
    Start();
  }
  void CrashAndStart(uint64_t seed) {
    server_.reset();
    files_.Crash(*SeededRandom(seed));
    Start();
  }
  Status Append(uint64_t offset, const std::string& bytes, uint64_t token = 1) {
    return server_->Append(ctx_, key_, token, offset, Buffer::Copy(bytes), Checksum(bytes));
  }
  std::string Read(uint64_t offset, uint64_t length) { return ReadOf(key_, offset, length); }
  // The bytes, or the name of the error.
  std::string ReadOf(SegmentKey key, uint64_t offset, uint64_t length) {
    const auto bytes = server_->Read(ctx_, key, offset, length);
    return bytes.ok() ? std::string(bytes->view()) : std::string(CodeName(bytes.code()));
  }
  void SealAndUpload() {
    ASSERT_TRUE(server_->Seal(ctx_, key_, 1).ok());
    Drain();
  }
  void Drain() {
    OpContext ctx;
    ctx.deadline = RealClock().Boot() + absl::Seconds(20);
    ASSERT_TRUE(server_->DrainUploads(ctx).ok());
  }
  uint64_t Metric(const std::string& name) {
    const auto metrics = server_->Metrics();
    const auto it = metrics.find(name);
    return it == metrics.end() ? 0 : it->second;
  }
  std::string Path() const { return "/data/segments/" + SegmentName(key_) + ".seg"; }

  OpContext ctx_;
  const SegmentKey key_{DiskId(7), SegmentId(9)};
  MemFiles files_;
  FakeStore store_{files_};
  Faults faults_;
  DataServerConfig config_;
  std::unique_ptr<DataServer> server_;
};

}  // namespace archil
