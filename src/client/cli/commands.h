// The commands of `archil`, one file each. Arguments are those after the command's name; the result is the exit code.
#pragma once

#include <string>
#include <vector>

namespace archil::cli {

using Argv = std::vector<std::string>;

int DiskCommand(const Argv& argv);
int MountCommand(const Argv& argv);
int UnmountCommand(const Argv& argv);
int SyncCommand(const Argv& argv);
int StatusCommand(const Argv& argv);
int MetricsCommand(const Argv& argv);
int DropCachesCommand(const Argv& argv);
int DelegationsCommand(const Argv& argv);
int CheckoutCommand(const Argv& argv);
int CheckinCommand(const Argv& argv);
int ClientsCommand(const Argv& argv);
int RevokeCommand(const Argv& argv);
int RecoverFileCommand(const Argv& argv);
int VersionCommand(const Argv& argv);

}  // namespace archil::cli
