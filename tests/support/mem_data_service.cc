#include "tests/support/mem_data_service.h"

#include <fmt/format.h>

#include "common/api/types.h"
#include "common/base/checksum.h"

namespace archil::test {

Status MemDataService::Append(const OpContext&, SegmentKey key, uint64_t token, uint64_t offset, const Buffer& bytes, uint64_t checksum) {
  absl::MutexLock lock(&mu_);
  const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !hold_; };
  mu_.Await(absl::Condition(&free));
  if (dead_) return Error(Code::kFenced, "dead");
  if (down_) return Code::kUnavailable;
  bool answer_lost = false;
  const bool dying = appends_ >= die_at_;
  if (dying) {
    down_ = dead_ = true;
    if (!die_applied_) return Error(Code::kFenced, "dead");
  }
  if (fail_count_ > 0) {
    --fail_count_;
    if (BandOf(fail_code_) != Band::kUnknown) return Error(fail_code_, "injected");
    answer_lost = true;
  }
  if (bytes.empty() || bytes.size() > kMaxAppend || offset >= kMaxSegment) return Error(Code::kInvalid, "size or offset");
  if (Checksum(bytes.view()) != checksum) return Error(Code::kCorrupt, "checksum");
  Segment& s = segments_[key];
  if (token < s.token || s.sealed) return Error(Code::kFenced, "token or sealed");
  s.token = token;
  if (offset != s.bytes.size()) {
    const auto it = s.appends.find(offset);
    if (it == s.appends.end() || it->second != bytes.size() || s.bytes.substr(offset, bytes.size()) != bytes.view()) {
      return Error(Code::kInvalid, fmt::format("append at {} of a segment of {}", offset, s.bytes.size()));
    }
  } else {
    s.appends[offset] = bytes.size();
    s.bytes.append(bytes.view());
    ++appends_;
  }
  if (dying) return Error(Code::kFenced, "dead");
  return answer_lost ? Status(Code::kUnknown) : Ok();
}

Result<Buffer> MemDataService::Read(const OpContext&, SegmentKey key, uint64_t offset, uint64_t length) {
  absl::MutexLock lock(&mu_);
  if (down_) return Code::kUnavailable;
  const auto it = segments_.find(key);
  if (it == segments_.end()) return Code::kNotFound;
  if (offset > it->second.bytes.size() || length > it->second.bytes.size() - offset) return Error(Code::kInvalid, "outside");
  return Buffer(it->second.bytes.substr(offset, length));
}

Result<SegmentInfo> MemDataService::Fence(const OpContext&, SegmentKey key, uint64_t token) {
  absl::MutexLock lock(&mu_);
  if (down_) return Code::kUnavailable;
  Segment& s = segments_[key];
  if (token < s.token) return Code::kFenced;
  s.token = token;
  return InfoOf(key, s);
}

Result<SegmentInfo> MemDataService::Seal(const OpContext&, SegmentKey key, uint64_t token) {
  absl::MutexLock lock(&mu_);
  if (down_) return Code::kUnavailable;
  const auto it = segments_.find(key);
  if (it == segments_.end()) return Code::kNotFound;
  if (!it->second.sealed && token < it->second.token) return Code::kFenced;
  it->second.sealed = true;
  return InfoOf(key, it->second);
}

Result<SegmentInfo> MemDataService::Stat(const OpContext&, SegmentKey key) {
  absl::MutexLock lock(&mu_);
  if (down_) return Code::kUnavailable;
  const auto it = segments_.find(key);
  if (it == segments_.end()) return Code::kNotFound;
  return InfoOf(key, it->second);
}

Status MemDataService::Delete(const OpContext&, SegmentKey key) {
  absl::MutexLock lock(&mu_);
  if (down_) return Code::kUnavailable;
  segments_.erase(key);
  return Ok();
}

Result<std::vector<SegmentInfo>> MemDataService::List(const OpContext&, DiskId disk) {
  absl::MutexLock lock(&mu_);
  if (down_) return Code::kUnavailable;
  std::vector<SegmentInfo> out;
  for (const auto& [key, s] : segments_) {
    if (key.disk == disk) out.push_back(InfoOf(key, s));
  }
  return out;
}

SegmentInfo MemDataService::InfoOf(SegmentKey key, const Segment& s) const {
  return {key, s.sealed ? SegmentState::kSealed : SegmentState::kOpen, s.bytes.size(), s.token};
}

void MemDataService::FailAppends(Code code, uint64_t count) {
  absl::MutexLock lock(&mu_);
  fail_code_ = code;
  fail_count_ = count;
}

void MemDataService::SetDown(bool down) {
  absl::MutexLock lock(&mu_);
  down_ = down;
  dead_ = false;
  die_at_ = UINT64_MAX;
}

void MemDataService::DieAfter(uint64_t appends, bool applied) {
  absl::MutexLock lock(&mu_);
  die_at_ = appends_ + appends;
  die_applied_ = applied;
}

void MemDataService::HoldAppends(bool hold) {
  absl::MutexLock lock(&mu_);
  hold_ = hold;
}

uint64_t MemDataService::appends() {
  absl::MutexLock lock(&mu_);
  return appends_;
}

std::vector<SegmentKey> MemDataService::Keys() {
  absl::MutexLock lock(&mu_);
  std::vector<SegmentKey> out;
  for (const auto& [key, s] : segments_) out.push_back(key);
  return out;
}

std::string MemDataService::Content(SegmentKey key) {
  absl::MutexLock lock(&mu_);
  const auto it = segments_.find(key);
  return it == segments_.end() ? std::string() : it->second.bytes;
}

void MemDataService::SetContent(SegmentKey key, std::string content) {
  absl::MutexLock lock(&mu_);
  segments_[key].bytes = std::move(content);
}

MemDataServers::MemDataServers(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) servers_.push_back(std::make_unique<MemDataService>());
}

std::vector<DataServerInfo> MemDataServers::All() {
  std::vector<DataServerInfo> out;
  for (uint32_t i = 0; i < servers_.size(); ++i) out.push_back({i + 1, fmt::format("mem:{}", i + 1)});
  return out;
}

DataService* MemDataServers::ById(uint32_t id) { return id == 0 || id > servers_.size() ? nullptr : servers_[id - 1].get(); }

}  // namespace archil::test
