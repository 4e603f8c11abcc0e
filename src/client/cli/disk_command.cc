#include <fmt/format.h>

#include "absl/time/clock.h"
#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/json.h"
#include "client/cli/mount_client.h"
#include "common/env/clock.h"
#include "common/rpc/client.h"

namespace archil::cli {
namespace {

constexpr std::string_view kUsage =
    "archil disk create NAME [--quota SIZE] | list | show NAME | delete NAME [--force]   (all: [--server HOST:PORT] [--json])";

std::string TimeText(Timestamp t) { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", FromTimestamp(t), absl::UTCTimeZone()); }

Json ToJson(const DiskInfo& disk) {
  Json j;
  j.Set("name", disk.name);
  j.Set("id", disk.id.value);
  j.Set("created", TimeText(disk.created));
  j.Set("used_bytes", disk.used_bytes);
  j.Set("used_inodes", disk.used_inodes);
  j.Set("quota_bytes", disk.quota_bytes);
  Json::Array clients;
  for (const DiskInfo::Client& client : disk.clients) {
    Json c;
    c.Set("session", client.session.value);
    c.Set("name", client.name);
    c.Set("age_s", absl::ToDoubleSeconds(client.age));
    c.Set("silent", client.silent);
    clients.push_back(std::move(c));
  }
  j.Set("clients", std::move(clients));
  return j;
}

void PrintDisk(const DiskInfo& disk) {
  fmt::print("{}\n", disk.name);
  fmt::print("  {:<9} {}\n", "id", disk.id.value);
  fmt::print("  {:<9} {}\n", "created", TimeText(disk.created));
  fmt::print("  {:<9} {} in {} inodes\n", "used", HumanBytes(disk.used_bytes), disk.used_inodes);
  fmt::print("  {:<9} {}\n", "quota", disk.quota_bytes == 0 ? "none" : HumanBytes(disk.quota_bytes));
  if (disk.clients.empty()) fmt::print("  {:<9} nobody\n", "mounted");
  for (const DiskInfo::Client& c : disk.clients) {
    fmt::print("  {:<9} {} (session {}, since {}{})\n", "mounted", c.name, c.session.value,
               absl::FormatDuration(absl::Trunc(c.age, absl::Seconds(1))), c.silent ? ", silent" : "");
  }
}

OpContext ShortContext() {
  OpContext ctx;
  ctx.deadline = RealClock().Boot() + absl::Seconds(20);
  return ctx;
}

int List(MetaService& meta, const Args& args) {
  const Result<std::vector<DiskInfo>> disks = meta.ListDisks(ShortContext());
  if (!disks.ok()) return RefuseServerError(disks.error(), "cannot list disks", args.Server());
  if (args.Has("json")) {
    Json::Array all;
    for (const DiskInfo& disk : *disks) all.push_back(ToJson(disk));
    fmt::print("{}", Json(std::move(all)).DumpPretty());
    return kExitOk;
  }
  for (const DiskInfo& disk : *disks) {
    fmt::print("{:<24} {:>12} {:>10} inodes  {}\n", disk.name, HumanBytes(disk.used_bytes), disk.used_inodes,
               disk.clients.empty() ? "not mounted" : disk.clients[0].name);
  }
  if (disks->empty()) fmt::print("no disks; `archil disk create NAME` makes one\n");
  return kExitOk;
}

int Delete(MetaService& meta, const Args& args, const std::string& name) {
  const Status deleted = meta.DeleteDisk(ShortContext(), name, args.Has("force"));
  if (deleted.code() == Code::kHeldElsewhere) {
    return Refuse(kExitHeldElsewhere, fmt::format("{} is in use: {}", name, deleted.error().message()),
                  "unmount it first, or delete it under its users with --force");
  }
  if (!deleted.ok()) return RefuseServerError(deleted.error(), "cannot delete " + name, args.Server());
  fmt::print("deleted {}\n", name);
  return kExitOk;
}

int Show(const Args& args, std::string_view verb, const Result<DiskInfo>& disk, const std::string& name) {
  if (disk.code() == Code::kExists) {
    return Refuse(kExitFailure, fmt::format("a disk named {} exists already", name), "`archil disk show` shows it");
  }
  if (disk.code() == Code::kInvalid && verb == "create") {
    return Refuse(kExitUsage, fmt::format("'{}' is no name for a disk: {}", name, disk.error().message()),
                  "names have 1 to 63 of a-z, 0-9, '.', '_', '-' and start with a letter or digit");
  }
  if (!disk.ok()) return RefuseServerError(disk.error(), fmt::format("cannot {} {}", verb, name), args.Server());
  if (args.Has("json")) {
    fmt::print("{}", ToJson(*disk).DumpPretty());
  } else if (verb == "create") {
    fmt::print("created {}; `archil mount {} MOUNTPOINT` mounts it\n", disk->name, disk->name);
  } else {
    PrintDisk(*disk);
  }
  return kExitOk;
}

}  // namespace

int DiskCommand(const Argv& argv) {
  const Result<Args> args = Args::Parse(argv, {{"server"}, {"quota"}, {"force", false}, {"json", false}}, 1, 2);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), kUsage);
  const std::string& verb = args->rest()[0];
  const bool named = args->rest().size() == 2;
  const std::string name = named ? args->rest()[1] : "";
  const bool known = verb == "list" || verb == "create" || verb == "show" || verb == "delete";
  if (!known) return Refuse(kExitUsage, fmt::format("unknown: archil disk {}", verb), kUsage);
  if ((verb == "list") == named) return Refuse(kExitUsage, named ? "`disk list` takes no name" : "the disk's name is missing", kUsage);
  const Result<uint64_t> quota = args->GetSize("quota", 0);
  if (!quota.ok()) return Refuse(kExitUsage, quota.error().message(), kUsage);
  if (const Status address = args->CheckServer(); !address.ok()) return Refuse(kExitUsage, address.error().message(), kUsage);
  const std::unique_ptr<MetaService> meta = NewMetaClient(args->Server());
  if (verb == "list") return List(*meta, *args);
  if (verb == "delete") return Delete(*meta, *args, name);
  if (verb == "create") return Show(*args, verb, meta->CreateDisk(ShortContext(), name, *quota), name);
  return Show(*args, verb, meta->ShowDisk(ShortContext(), name), name);
}

}  // namespace archil::cli
