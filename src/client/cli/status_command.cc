#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/mount_client.h"
#include "client/cli/paths.h"
#include "common/env/files.h"

namespace archil::cli {
namespace {

std::string DiskName(const Json& s) {
  std::string name = s.GetString("disk");
  if (const std::string branch = s.GetString("branch"); !branch.empty() && branch != "main") name += "@" + branch;
  if (const std::string subdir = s.GetString("subdir"); !subdir.empty()) name += ":" + subdir;
  return name;
}

void PrintStatus(const Json& s) {
  auto line = [](std::string_view name, const std::string& value) { fmt::print("  {:<12} {}\n", name, value); };
  std::string how;
  for (const auto& [key, word] : {std::pair("read_only", " (read-only)"), std::pair("exclusive", " (exclusive)"),
                                  std::pair("kernel_writeback", " (kernel write-back)")}) {
    if (s.GetBool(key)) how += word;
  }
  fmt::print("{} on {}{}\n", DiskName(s), s.GetString("mountpoint"), how);
  const std::string detail = s.GetString("state_detail");
  line("state", s.GetString("state") + (detail.empty() ? "" : ": " + detail));
  if (s.Find("pid") == nullptr) return;
  line("server", s.GetString("server"));
  line("session", fmt::format("{}, lease {:.0f} s, {:.1f} s of it left", s.GetNumber("session"), s.GetDouble("lease_s"),
                              s.GetDouble("lease_left_s")));
  line("not durable", fmt::format("{} operations, {} of at most {}", s.GetNumber("log_ops"), HumanBytes(s.GetNumber("dirty_bytes")),
                                  HumanBytes(s.GetNumber("dirty_limit_bytes"))));
  if (const uint64_t lost = s.GetNumber("lost_ops"); lost > 0) {
    const std::string file = s.GetString("lost_file");
    line("lost", fmt::format("{} operations, while this mount was silent: {}", lost,
                             file.empty() ? "they could not be saved" : "`archil recover-file " + file + "`"));
  }
  line("cache", fmt::format("{} of at most {}, {} inodes", HumanBytes(s.GetNumber("cache_bytes")),
                            HumanBytes(s.GetNumber("cache_limit_bytes")), s.GetNumber("inodes")));
  if (const Json* fuse = s.Find("fuse"); fuse != nullptr && !fuse->GetBool("keeps_names")) {
    line("kernel", "keeps no names and asks for each again: slower (Linux before 6.16, or --no-name-cache)");
  }
  line("since", fmt::format("{} (daemon {})", s.GetString("since"), s.GetNumber("pid")));
  if (const std::string log = s.GetString("log_file"); !log.empty()) line("log", log);
}

Json DeadMount(const Json& info) {
  Json s;
  s.Set("ok", false);
  s.Set("mountpoint", info.GetString("mountpoint"));
  s.Set("disk", info.GetString("disk"));
  s.Set("server", info.GetString("server"));
  s.Set("state", "dead");
  s.Set("state_detail", fmt::format("its daemon died; `archil unmount {}` clears it away", info.GetString("mountpoint")));
  return s;
}

// All mounts that left a trace in the runtime directory, by mount point.
Json::Array AllMounts() {
  std::vector<std::pair<std::string, Json>> found;
  const std::string dir = RuntimeDir();
  DIR* handle = opendir(dir.c_str());
  if (handle == nullptr) return {};
  while (const dirent* entry = readdir(handle)) {
    const std::string name = entry->d_name;
    if (name.size() < 5 || name.substr(name.size() - 5) != ".json") continue;
    const Result<std::string> text = ReadWholeFile(RealFiles(), dir + "/" + name);
    if (!text.ok()) continue;
    const Result<Json> info = ParseJson(*text);
    if (!info.ok()) continue;
    const std::string mountpoint = info->GetString("mountpoint");
    Json status = DeadMount(*info);
    if (Result<ControlClient> daemon = ControlClient::Connect(ControlSocketPath(mountpoint)); daemon.ok()) {
      Json request;
      request.Set("command", "status");
      if (Result<Json> answer = daemon->Call(request, absl::Seconds(5)); answer.ok()) {
        status = std::move(*answer);
      } else {
        status.Set("state", "silent");
        status.Set("state_detail", std::string(answer.error().message()));
      }
    }
    found.emplace_back(mountpoint, std::move(status));
  }
  closedir(handle);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Json::Array mounts;
  for (auto& [mountpoint, status] : found) mounts.push_back(std::move(status));
  return mounts;
}

}  // namespace

int StatusCommand(const Argv& argv) {
  const Result<Args> args = Args::Parse(argv, {{"json", false}}, 0, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), "archil status [MOUNTPOINT] [--json]");
  if (args->rest().empty()) {
    Json::Array mounts = AllMounts();
    if (args->Has("json")) {
      fmt::print("{}", Json(std::move(mounts)).DumpPretty());
      return kExitOk;
    }
    if (mounts.empty()) fmt::print("nothing is mounted\n");
    for (const Json& status : mounts) PrintStatus(status);
    return kExitOk;
  }
  MountTarget target;
  if (const int refused = FindLivingTarget(args->rest()[0], &target); refused != kExitOk) return refused;
  Json request, reply;
  request.Set("command", "status");
  if (const int failed = CallDaemon(target, request, absl::Seconds(5), &reply); failed != kExitOk) return failed;
  if (args->Has("json")) {
    fmt::print("{}", reply.DumpPretty());
  } else {
    PrintStatus(reply);
  }
  return kExitOk;
}

}  // namespace archil::cli
