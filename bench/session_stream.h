// The stream of a session as a load generator needs it: nobody waits, answers run where they arrive.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "archil/v1/meta.grpc.pb.h"
#include "common/base/result.h"

namespace archil {

// Thread safe. Each call is answered once: by the server, or kUnavailable by the end of the stream.
class SessionStream final : public grpc::ClientBidiReactor<v1::SessionUp, v1::SessionDown>,
                            public std::enable_shared_from_this<SessionStream> {
 public:
  using Done = std::function<void(Code, v1::SessionDown&)>;

  void Begin(v1::Meta::Stub& stub) {
    self_ = shared_from_this();
    stub.async()->Session(&context_, this);
    AddHold();
    StartRead(&down_);
    StartCall();
  }
  // False: it has ended.
  bool Ask(v1::SessionUp up, Done done) {
    std::lock_guard lock(mu_);
    if (ended_) return false;
    up.set_id(++last_id_);
    calls_.emplace(last_id_, std::move(done));
    queue_.push_back(std::move(up));
    Write();
    return true;
  }
  bool ended() {
    std::lock_guard lock(mu_);
    return ended_;
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        std::lock_guard lock(mu_);
        ended_ = true;
      }
      return RemoveHold();
    }
    Done done;
    {
      std::lock_guard lock(mu_);
      if (auto call = calls_.extract(down_.id())) done = std::move(call.mapped());
    }
    if (done) done(down_.has_error() ? static_cast<Code>(down_.error().code()) : Code::kOk, down_);
    StartRead(&down_);
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    if (ok) Write();
  }
  void OnDone(const grpc::Status&) override {
    const auto self = std::move(self_);
    v1::SessionDown none;
    for (auto& [id, done] : calls_) done(Code::kUnavailable, none);
  }

 private:
  void Write() {
    if (writing_ || ended_ || queue_.empty()) return;
    up_ = std::move(queue_.front());
    queue_.pop_front();
    writing_ = true;
    StartWrite(&up_);
  }

  grpc::ClientContext context_;
  std::shared_ptr<SessionStream> self_;
  v1::SessionUp up_;
  v1::SessionDown down_;
  std::mutex mu_;
  bool writing_ = false, ended_ = false;
  uint64_t last_id_ = 0;
  std::deque<v1::SessionUp> queue_;
  std::map<uint64_t, Done> calls_;
};

}  // namespace archil
