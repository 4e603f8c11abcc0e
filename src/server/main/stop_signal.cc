#include "server/main/stop_signal.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "common/base/check.h"

namespace archil {
namespace {

int g_event = -1;  // an eventfd; a signal handler can reach nothing but a global

void OnSignal(int) {
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(g_event, &one, sizeof(one));
  errno = saved;
}

}  // namespace

void StopSignal::Install() {
  g_event = eventfd(0, EFD_CLOEXEC);
  ARCHIL_CHECK(g_event >= 0);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

void StopSignal::Wait() {
  uint64_t count = 0;
  while (read(g_event, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace archil
