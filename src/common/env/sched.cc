#include "common/env/sched.h"

#include <pthread.h>

#include <thread>
#include <utility>

namespace archil {
namespace {

class SystemThread final : public Thread {
 public:
  explicit SystemThread(std::thread thread) : thread_(std::move(thread)) {}
  void Join() override { thread_.join(); }

 private:
  std::thread thread_;
};

class SystemScheduler final : public Scheduler {
 public:
  Clock& clock() override { return RealClock(); }
  std::unique_ptr<Thread> Spawn(std::string name, std::function<void()> body) override {
    return std::make_unique<SystemThread>(
        std::thread([name = name.substr(0, 15), body = std::move(body)] {
          pthread_setname_np(pthread_self(), name.c_str());
          body();
        }));
  }
};

}  // namespace

Scheduler& RealScheduler() {
  static SystemScheduler scheduler;
  return scheduler;
}

}  // namespace archil
