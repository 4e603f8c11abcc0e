// archil_null_mount MOUNTPOINT [POLL_US]: the kernel's edge over a file system in memory, for timing what FUSE itself
// costs. Serves until it is unmounted (umount MOUNTPOINT) or interrupted; then prints its counters.
#include <signal.h>

#include <cstdio>
#include <cstdlib>

#include "client/fuse/fuse_mount.h"
#include "tests/support/mem_fs_api.h"

namespace archil {
namespace {

FuseMount* g_mount = nullptr;

int Serve(const char* mountpoint, int poll_us) {
  MemFsApi fs(RealScheduler());
  FuseOptions options;
  options.mountpoint = mountpoint;
  options.fsname = "null";
  options.poll_for = absl::Microseconds(poll_us);
  auto mount = FuseMount::Create(RealScheduler(), options);
  if (const Status started = mount->Start(fs); !started.ok()) {
    std::fprintf(stderr, "archil_null_mount: %s\n", started.error().ToString().c_str());
    return 1;
  }
  g_mount = mount.get();
  signal(SIGTERM, [](int) { (void)g_mount->Unmount(true); });
  signal(SIGINT, [](int) { (void)g_mount->Unmount(true); });
  mount->WaitForEnd();
  for (const auto& [name, value] : mount->Metrics()) {
    if (value != 0) std::printf("%s %llu\n", name.c_str(), static_cast<unsigned long long>(value));
  }
  for (const std::string& flag : mount->InitFlags()) std::printf("init %s\n", flag.c_str());
  mount->Stop();
  return 0;
}

}  // namespace
}  // namespace archil

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: archil_null_mount MOUNTPOINT [POLL_US]\n");
    return 2;
  }
  return archil::Serve(argv[1], argc == 3 ? std::atoi(argv[2]) : 50);
}
