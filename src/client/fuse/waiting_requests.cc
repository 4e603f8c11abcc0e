#include "client/fuse/waiting_requests.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace archil {

WaitingRequests::WaitingRequests(Scheduler& scheduler, std::function<bool(uint32_t)> doomed, std::function<void()> wake)
    : doomed_(std::move(doomed)), wake_(std::move(wake)), mu_(scheduler) {}

void WaitingRequests::Add(std::shared_ptr<WaitingRequest> request) {
  MutexLock lock(mu_);
  const uint64_t unique = request->unique;
  slots_[unique] = Slot{std::move(request), false};
}

void WaitingRequests::Remove(uint64_t unique) {
  MutexLock lock(mu_);
  auto it = slots_.find(unique);
  if (it == slots_.end()) return;
  if (it->second.interrupted) interrupted_count_.fetch_sub(1, std::memory_order_relaxed);
  slots_.erase(it);
}

void WaitingRequests::Cancel(const std::shared_ptr<WaitingRequest>& request) {
  cancelled_.fetch_add(1, std::memory_order_relaxed);
  request->cancel.Cancel();
  if (request->Take()) request->answer_interrupted();  // no worker had time for it yet
}

void WaitingRequests::Interrupt(uint64_t unique) {
  std::shared_ptr<WaitingRequest> request;
  {
    MutexLock lock(mu_);
    auto it = slots_.find(unique);
    if (it == slots_.end()) return;
    request = it->second.request;
    if (!it->second.interrupted) {
      it->second.interrupted = true;
      interrupted_count_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if (request->interrupts == Interrupts::kDeadly && !doomed_(request->pid)) return;
  Cancel(request);
  wake_();
}

void WaitingRequests::Recheck() {
  std::vector<std::shared_ptr<WaitingRequest>> interrupted;
  {
    MutexLock lock(mu_);
    for (const auto& [unique, slot] : slots_) {
      if (slot.interrupted && !slot.request->cancel.cancelled()) interrupted.push_back(slot.request);
    }
  }
  bool any = false;
  for (const auto& request : interrupted) {
    if (!doomed_(request->pid)) continue;
    Cancel(request);
    any = true;
  }
  if (any) wake_();
}

void WaitingRequests::CancelAll() {
  std::vector<std::shared_ptr<WaitingRequest>> all;
  {
    MutexLock lock(mu_);
    for (const auto& [unique, slot] : slots_) all.push_back(slot.request);
  }
  for (const auto& request : all) Cancel(request);
  if (!all.empty()) wake_();
}

size_t WaitingRequests::size() {
  MutexLock lock(mu_);
  return slots_.size();
}

bool IsInClassicLockWait(uint32_t tid) {
  if (tid == 0) return false;
  const std::string path = "/proc/" + std::to_string(tid) + "/syscall";
  // The thread sends the request a moment before it sleeps; until then the file says "running".
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    char buf[256];
    const ssize_t n = read(fd, buf, sizeof(buf) - 1);
    close(fd);
    if (n <= 0) return false;
    buf[n] = '\0';
    // "72 0x3 0x7 …": the number of the call, in decimal, and its arguments.
    long number = 0;
    unsigned long file = 0, command = 0;
    if (sscanf(buf, "%ld 0x%lx 0x%lx", &number, &file, &command) == 3) return number == SYS_fcntl && command == F_SETLKW;
    sched_yield();
  }
  return false;
}

bool HasSigkillPending(uint32_t tid) {
  if (tid == 0) return false;  // in no namespace of ours: nothing can be known
  const std::string path = "/proc/" + std::to_string(tid) + "/status";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT;
  char buf[4096];
  const ssize_t n = read(fd, buf, sizeof(buf) - 1);
  close(fd);
  if (n <= 0) return true;  // ended between open and read
  buf[n] = '\0';
  constexpr uint64_t kSigkillBit = 1ULL << (9 - 1);
  for (const char* field : {"\nSigPnd:", "\nShdPnd:"}) {
    const char* at = strstr(buf, field);
    if (at != nullptr && (strtoull(at + strlen(field), nullptr, 16) & kSigkillBit)) return true;
  }
  return false;
}

}  // namespace archil
