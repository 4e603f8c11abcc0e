#include "client/cli/daemonize.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "client/cli/exit_codes.h"

namespace archil::cli {
namespace {

void SendReport(int fd, const Report& report) {
  std::string bytes(1, static_cast<char>(report.exit_code));
  bytes += report.text;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t n = write(fd, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // the parent is gone; nobody waits for it
    rest.remove_prefix(static_cast<size_t>(n));
  }
  close(fd);
}

int AwaitReport(int fd, pid_t child, const std::string& log_file) {
  std::string bytes;
  char buf[4096];
  for (ssize_t n; (n = read(fd, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR);) {
    if (n > 0) bytes.append(buf, static_cast<size_t>(n));
  }
  close(fd);
  if (bytes.empty()) {
    int status = 0;
    waitpid(child, &status, 0);
    return Refuse(kExitFailure, "the daemon ended before it served", fmt::format("its log is {}", log_file));
  }
  const int exit_code = static_cast<unsigned char>(bytes[0]);
  fmt::print(exit_code == 0 ? stdout : stderr, "{}", std::string_view(bytes).substr(1));
  return exit_code;
}

}  // namespace

int Daemonize(const std::string& log_file, const std::function<int(const std::function<void(const Report&)>&)>& body) {
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (log < 0) {
    return Refuse(kExitFailure, fmt::format("cannot write the log file {}: {}", log_file, std::strerror(errno)),
                  "name another with --log-file");
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Refuse(kExitFailure, "no pipe");
  fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return Refuse(kExitFailure, fmt::format("cannot fork: {}", std::strerror(errno)));
  if (child > 0) {
    close(ends[1]);
    close(log);
    return AwaitReport(ends[0], child, log_file);
  }
  close(ends[0]);
  setsid();
  signal(SIGHUP, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  umask(022);
  if (chdir("/") != 0) _exit(kExitFailure);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  close(null);
  close(log);
  _exit(body([fd = ends[1]](const Report& report) { SendReport(fd, report); }));
}

}  // namespace archil::cli
