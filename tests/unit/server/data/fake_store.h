// An object store in memory for tests of the data server: copies what it is given (never links), fails on demand.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "absl/synchronization/mutex.h"
#include "server/object/object_store.h"

namespace archil {

class FakeStore final : public ObjectStore {
 public:
  explicit FakeStore(Files& files) : files_(files) {}

  // The next puts answer these, then they succeed.
  void FailPuts(std::deque<Code> codes) {
    absl::MutexLock lock(&mu_);
    fail_puts_ = std::move(codes);
  }
  // Changes an object behind everybody's back.
  template <class Fn>
  void Tamper(const std::string& key, Fn fn) {
    absl::MutexLock lock(&mu_);
    fn(&objects_.at(key));
  }
  void Lose(const std::string& key) {
    absl::MutexLock lock(&mu_);
    objects_.erase(key);
  }
  bool Has(const std::string& key) {
    absl::MutexLock lock(&mu_);
    return objects_.contains(key);
  }
  uint64_t bytes_read() {
    absl::MutexLock lock(&mu_);
    return bytes_read_;
  }

  Status Put(const OpContext&, const std::string& key, const Buffer& bytes) override {
    absl::MutexLock lock(&mu_);
    if (!fail_puts_.empty()) {
      const Code code = fail_puts_.front();
      fail_puts_.pop_front();
      return code;
    }
    objects_[key] = std::string(bytes.view());
    return Ok();
  }
  Status PutFile(const OpContext& ctx, const std::string& key, const std::string& path) override {
    ARCHIL_ASSIGN_OR_RETURN(std::string bytes, ReadWholeFile(files_, path));
    return Put(ctx, key, Buffer(std::move(bytes)));
  }
  Result<Buffer> Get(const OpContext&, const std::string& key, uint64_t offset, uint64_t length) override {
    absl::MutexLock lock(&mu_);
    const auto it = objects_.find(key);
    if (it == objects_.end()) return Code::kNotFound;
    if (offset + length > it->second.size()) return Code::kInvalid;
    bytes_read_ += length;
    return Buffer::Copy(std::string_view(it->second).substr(offset, length));
  }
  Result<ObjectInfo> Head(const OpContext&, const std::string& key) override {
    absl::MutexLock lock(&mu_);
    const auto it = objects_.find(key);
    if (it == objects_.end()) return Code::kNotFound;
    return ObjectInfo{key, it->second.size()};
  }
  Result<ObjectPage> List(const OpContext&, const std::string&, const std::string&, uint32_t) override {
    return Code::kNotImplemented;
  }
  Status Delete(const OpContext&, const std::string& key) override {
    absl::MutexLock lock(&mu_);
    objects_.erase(key);
    return Ok();
  }

 private:
  Files& files_;
  absl::Mutex mu_;
  std::map<std::string, std::string> objects_;
  std::deque<Code> fail_puts_;
  uint64_t bytes_read_ = 0;
};

}  // namespace archil
