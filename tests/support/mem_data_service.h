// MemDataService: a data server in memory, stricter than the real one: every offset, token and checksum is checked, and it can
// refuse, lose answers, and forget. Thread safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/api/data_service.h"
#include "server/meta/meta_server.h"

namespace archil::test {

class MemDataService final : public DataService {
 public:
  Status Append(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset, const Buffer& bytes, uint64_t checksum) override;
  Result<Buffer> Read(const OpContext& ctx, SegmentKey key, uint64_t offset, uint64_t length) override;
  Result<SegmentInfo> Fence(const OpContext& ctx, SegmentKey key, uint64_t token) override;
  Result<SegmentInfo> Seal(const OpContext& ctx, SegmentKey key, uint64_t token) override;
  Result<SegmentInfo> Stat(const OpContext& ctx, SegmentKey key) override;
  Status Delete(const OpContext& ctx, SegmentKey key) override;
  Result<std::vector<SegmentInfo>> List(const OpContext& ctx, DiskId disk) override;

  // The next `count` appends answer `code`; applied all the same if the code leaves that open (kUnknown).
  void FailAppends(Code code, uint64_t count);
  // Every call answers kUnavailable.
  void SetDown(bool down);
  // The machine stops at the append after `appends` more ones, which is applied or not: from there on every call fails, appends with
  // kFenced so that a writer gives up at once.
  void DieAfter(uint64_t appends, bool applied);
  // Appends wait while held.
  void HoldAppends(bool hold);
  uint64_t appends();

  // The content behind everybody's back.
  std::vector<SegmentKey> Keys();
  std::string Content(SegmentKey key);
  void SetContent(SegmentKey key, std::string content);

 private:
  struct Segment {
    std::string bytes;
    uint64_t token = 0;
    bool sealed = false;
    std::map<uint64_t, size_t> appends;  // offset -> length
  };
  SegmentInfo InfoOf(SegmentKey key, const Segment& s) const;

  absl::Mutex mu_;
  std::map<SegmentKey, Segment> segments_ ABSL_GUARDED_BY(mu_);
  Code fail_code_ ABSL_GUARDED_BY(mu_) = Code::kOk;
  uint64_t fail_count_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t appends_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t die_at_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;
  bool die_applied_ ABSL_GUARDED_BY(mu_) = false;
  bool down_ ABSL_GUARDED_BY(mu_) = false;
  bool dead_ ABSL_GUARDED_BY(mu_) = false;
  bool hold_ ABSL_GUARDED_BY(mu_) = false;
};

class MemDataServers final : public DataServerSet {
 public:
  explicit MemDataServers(uint32_t count);
  std::vector<DataServerInfo> All() override;
  DataService* ById(uint32_t id) override;
  MemDataService& at(uint32_t index) { return *servers_[index]; }

 private:
  std::vector<std::unique_ptr<MemDataService>> servers_;  // server i has id i + 1
};

}  // namespace archil::test
