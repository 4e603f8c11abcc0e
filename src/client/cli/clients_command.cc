// Who has a disk mounted, and taking rights from them: both ask the server.
#include <fmt/format.h>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/json.h"
#include "common/env/clock.h"
#include "common/rpc/client.h"

namespace archil::cli {
namespace {

constexpr uint32_t kRights = 1'000'000;  // counted at most

OpContext ContextFor(absl::Duration patience) {
  OpContext ctx;
  ctx.deadline = RealClock().Boot() + patience;
  return ctx;
}

struct Held {
  uint64_t read = 0;
  uint64_t write = 0;
  bool alone = false;
};

std::string HeldText(const Held& held) {
  if (held.alone) return "everything";
  return fmt::format("{} to write, {} to read", held.write, held.read);
}

}  // namespace

int ClientsCommand(const Argv& argv) {
  constexpr std::string_view kUsage = "archil clients DISK [--server HOST:PORT] [--json]";
  const Result<Args> args = Args::Parse(argv, {{"server"}, {"json", false}}, 1, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), kUsage);
  if (const Status address = args->CheckServer(); !address.ok()) return Refuse(kExitUsage, address.error().message(), kUsage);
  const std::unique_ptr<MetaService> meta = NewMetaClient(args->Server());
  const std::string& name = args->rest()[0];
  const Result<DiskInfo> disk = meta->ShowDisk(ContextFor(absl::Seconds(20)), name);
  if (!disk.ok()) return RefuseServerError(disk.error(), "cannot ask for " + name, args->Server());
  const auto rights = meta->ListRights(ContextFor(absl::Seconds(20)), name, kRights);
  if (!rights.ok()) return RefuseServerError(rights.error(), "cannot ask for " + name, args->Server());
  std::map<SessionId, Held> held;
  for (const RightInfo& right : *rights) {
    Held& h = held[right.session];
    if (!right.ino) {
      h.alone = true;
    } else {
      ++(right.right == Right::kWrite ? h.write : h.read);
    }
  }
  Json::Array rows;
  for (const DiskInfo::Client& client : disk->clients) {
    const Held& h = held[client.session];
    if (!args->Has("json")) {
      fmt::print("{:<14} {:<40} since {:<10} holds {}{}\n", client.session.value, client.name,
                 absl::FormatDuration(absl::Trunc(client.age, absl::Seconds(1))), HeldText(h),
                 client.silent ? "; silent: its lease has run out" : "");
      continue;
    }
    Json row;
    row.Set("client", client.session.value);
    row.Set("name", client.name);
    row.Set("age_s", absl::ToDoubleSeconds(client.age));
    row.Set("silent", client.silent);
    row.Set("alone", h.alone);
    row.Set("write", h.write);
    row.Set("read", h.read);
    rows.push_back(std::move(row));
  }
  if (args->Has("json")) {
    fmt::print("{}", Json(std::move(rows)).DumpPretty());
  } else if (disk->clients.empty()) {
    fmt::print("nobody has {} mounted\n", name);
  }
  return kExitOk;
}

int RevokeCommand(const Argv& argv) {
  constexpr std::string_view kUsage = "archil revoke DISK --client ID [--inode N] [--server HOST:PORT]";
  const Result<Args> args = Args::Parse(argv, {{"server"}, {"client"}, {"inode"}}, 1, 1);
  if (!args.ok()) return Refuse(kExitUsage, args.error().message(), kUsage);
  const Result<uint64_t> client = args->GetNumber("client", 0);
  const Result<uint64_t> inode = args->GetNumber("inode", 0);
  if (!client.ok() || !inode.ok()) return Refuse(kExitUsage, (client.ok() ? inode : client).error().message(), kUsage);
  if (*client == 0) return Refuse(kExitUsage, "--client is missing: `archil clients DISK` lists them", kUsage);
  if (const Status address = args->CheckServer(); !address.ok()) return Refuse(kExitUsage, address.error().message(), kUsage);
  const std::unique_ptr<MetaService> meta = NewMetaClient(args->Server());
  const std::string& name = args->rest()[0];
  const Status revoked = meta->Revoke(ContextFor(absl::Seconds(90)), name, SessionId{*client}, InodeId{*inode});
  if (!revoked.ok()) return RefuseServerError(revoked.error(), fmt::format("cannot revoke from client {}", *client), args->Server());
  if (*inode == 0) {
    fmt::print("client {} was ended; what it had not made durable is lost to the disk\n", *client);
  } else {
    fmt::print("inode {} was taken back from client {}; nothing was lost\n", *inode, *client);
  }
  return kExitOk;
}

}  // namespace archil::cli
