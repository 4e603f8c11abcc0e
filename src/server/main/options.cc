#include "server/main/options.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "common/env/files.h"

namespace archil {
namespace {

constexpr std::string_view kUsage =
    R"(archild: the server of Archil.

  archild all  --dir DIR [--listen HOST:PORT] [--advertise HOST:PORT] [--object-store file:PATH]
      Metadata and data in one process. Default address 127.0.0.1:8100.
  archild meta --dir DIR --data HOST:PORT[,HOST:PORT...] [--listen HOST:PORT]
      Metadata only; segments are kept by the data servers of the list. A data server is known by its
      place in the list: append to it, never reorder it. Default address 127.0.0.1:8100.
  archild data --dir DIR [--listen HOST:PORT] [--object-store file:PATH]
      Data only. Default address 127.0.0.1:8101.
  archild version | --help

  --dir DIR            where everything is kept; made if absent; one process at a time
  --listen HOST:PORT   [ADDRESS]:PORT for IPv6; port 0 takes a free one and prints it
  --advertise HOST:PORT  the address that clients get, needed if --listen is 0.0.0.0 or [::]
  --object-store file:PATH  where sealed segments go; default DIR/objects
  --lease SECONDS      how long a silent client keeps its session; default 15
  --rights-kept N      rights that a mount may hold before its oldest are recalled; default 262144
  --contended-after N  a directory recalled so often within a second is worked on at the server; default 10, 0: never
  --log-level LEVEL    debug, info, warning, error or off; default info
  --log-file PATH      default: standard error

Stops cleanly on SIGTERM and SIGINT. Exit codes: 0 stopped, 1 cannot start, 2 wrong usage.
)";

Error Wrong(std::string message) { return Error(Code::kInvalid, std::move(message)); }

// Options by name without "--"; each takes a value.
Result<std::map<std::string, std::string>> Collect(const std::vector<std::string>& args) {
  std::map<std::string, std::string> out;
  for (size_t i = 1; i < args.size(); ++i) {
    if (!args[i].starts_with("--")) return Wrong(fmt::format("unexpected \"{}\"", args[i]));
    std::string name = args[i].substr(2);
    std::string value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      return Wrong(fmt::format("--{} needs a value", name));
    }
    if (!out.emplace(name, value).second) return Wrong(fmt::format("--{} is given twice", name));
  }
  return out;
}

Result<absl::Duration> ParseLease(const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 1 && seconds <= 300)) {
    return Wrong(fmt::format("--lease {}: a number of seconds from 1 to 300 is needed", text));
  }
  return absl::Seconds(seconds);
}

Result<std::vector<DataServerInfo>> ParseDataServers(const std::string& list) {
  std::vector<DataServerInfo> out;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    auto address = ParseHostPort(std::string_view(list).substr(begin, end - begin));
    if (!address.ok()) return Wrong(fmt::format("--data: {}", address.error().message()));
    if (address->port == 0 || address->wildcard()) {
      return Wrong(fmt::format("--data {}: clients must be able to connect to it", address->ToString()));
    }
    for (const DataServerInfo& other : out) {
      if (other.address == address->ToString()) return Wrong(fmt::format("--data names {} twice", other.address));
    }
    out.push_back({static_cast<uint32_t>(out.size() + 1), address->ToString()});
    begin = end + 1;
  }
  return out;
}

Status ParseRole(const std::string& word, ServerOptions* options) {
  if (word == "all") {
    options->role = Role::kAll;
  } else if (word == "meta") {
    options->role = Role::kMeta;
  } else if (word == "data") {
    options->role = Role::kData;
  } else if (word == "version" || word == "--version") {
    options->role = Role::kVersion;
  } else if (word == "help" || word == "--help" || word == "-h") {
    options->role = Role::kHelp;
  } else {
    return Wrong(fmt::format("unknown role \"{}\"", word));
  }
  return Ok();
}

Status SetAddress(const std::string& name, const std::string& value, HostPort* out) {
  auto address = ParseHostPort(value);
  if (!address.ok()) return Wrong(fmt::format("--{}: {}", name, address.error().message()));
  *out = *address;
  return Ok();
}

Status SetOption(const std::string& name, const std::string& value, ServerOptions* options) {
  const bool keeps_segments = options->role != Role::kMeta;
  if (value.empty()) return Wrong(fmt::format("--{} needs a value", name));
  if (name == "dir") {
    options->dir = value;
  } else if (name == "listen") {
    return SetAddress(name, value, &options->listen);
  } else if (name == "advertise" && options->role == Role::kAll) {
    return SetAddress(name, value, &options->advertise);
  } else if (name == "data" && options->role == Role::kMeta) {
    ARCHIL_ASSIGN_OR_RETURN(options->data_servers, ParseDataServers(value));
  } else if (name == "object-store" && keeps_segments) {
    constexpr std::string_view kScheme = "file:";
    if (!value.starts_with(kScheme) || value.size() == kScheme.size()) {
      return Wrong(fmt::format("--object-store {}: only file:PATH is known", value));
    }
    options->object_dir = value.substr(kScheme.size());
  } else if (name == "lease" && options->role != Role::kData) {
    ARCHIL_ASSIGN_OR_RETURN(options->lease, ParseLease(value));
  } else if (name == "rights-kept" && options->role != Role::kData) {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), options->rights_kept);
    if (error != std::errc() || end != value.data() + value.size() || options->rights_kept == 0) {
      return Wrong(fmt::format("--rights-kept {}: a number from 1 is needed", value));
    }
  } else if (name == "contended-after" && options->role != Role::kData) {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), options->contended_after);
    if (error != std::errc() || end != value.data() + value.size() || options->contended_after > 1'000'000) {
      return Wrong(fmt::format("--contended-after {}: a number from 0 to 1000000 is needed", value));
    }
  } else if (name == "log-level") {
    auto level = ParseLogLevel(value);
    if (!level.ok()) return Wrong(fmt::format("--log-level {}: debug, info, warning, error or off", value));
    options->log.level = *level;
  } else if (name == "log-file") {
    options->log.file = value;
  } else {
    return Wrong(fmt::format("this role has no option --{}", name));
  }
  return Ok();
}

}  // namespace

Result<ServerOptions> ParseOptions(const std::vector<std::string>& args) {
  ServerOptions options;
  if (args.empty()) return Wrong("a role is missing: all, meta or data");
  ARCHIL_RETURN_IF_ERROR(ParseRole(args[0], &options));
  for (const std::string& arg : args) {
    if (arg == "--help" || arg == "-h") options.role = Role::kHelp;
  }
  if (options.role == Role::kHelp || options.role == Role::kVersion) return options;

  options.listen = {"127.0.0.1", static_cast<uint16_t>(options.role == Role::kData ? 8101 : 8100)};
  ARCHIL_ASSIGN_OR_RETURN(const auto given, Collect(args));
  for (const auto& [name, value] : given) ARCHIL_RETURN_IF_ERROR(SetOption(name, value, &options));

  if (options.dir.empty()) return Wrong("--dir DIR is missing");
  if (options.object_dir.empty()) options.object_dir = JoinPath(options.dir, "objects");
  if (options.role == Role::kMeta && options.data_servers.empty()) {
    return Wrong("--data HOST:PORT[,HOST:PORT...] is missing: a metadata server keeps its log on data servers");
  }
  if (options.role == Role::kAll && options.listen.wildcard() && options.advertise.host.empty()) {
    return Wrong(fmt::format("--listen {} needs --advertise HOST:PORT, the address that clients can reach",
                             options.listen.ToString()));
  }
  return options;
}

std::string_view Usage() { return kUsage; }

}  // namespace archil
