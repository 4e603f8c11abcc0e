#include "common/env/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/errno.h"

namespace archil {
namespace {

class PosixFile final : public File {
 public:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixFile() override { close(fd_); }

  Result<std::string> Read(uint64_t offset, size_t length) override {
    std::string out(length, '\0');
    size_t done = 0;
    while (done < length) {
      const ssize_t n = pread(fd_, out.data() + done, length - done, static_cast<off_t>(offset + done));
      if (n < 0) {
        if (errno == EINTR) continue;
        return ErrnoError(errno, "read of " + path_);
      }
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    out.resize(done);
    return out;
  }

  Status Write(uint64_t offset, std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0) {
        if (errno == EINTR) continue;
        return ErrnoError(errno, "write to " + path_);
      }
      bytes.remove_prefix(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return Ok();
  }

  Status Sync() override {
    if (fdatasync(fd_) != 0) return ErrnoError(errno, "fdatasync of " + path_);
    return Ok();
  }

  Result<uint64_t> Size() override {
    struct stat st {};
    if (fstat(fd_, &st) != 0) return ErrnoError(errno, "stat of " + path_);
    return static_cast<uint64_t>(st.st_size);
  }

  Status Truncate(uint64_t size) override {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return ErrnoError(errno, "truncate of " + path_);
    return Ok();
  }

 private:
  int fd_;
  std::string path_;
};

class PosixFiles final : public Files {
 public:
  Result<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) override {
    int flags = O_CLOEXEC;
    switch (mode) {
      case OpenMode::kRead: flags |= O_RDONLY; break;
      case OpenMode::kReadWrite: flags |= O_RDWR; break;
      case OpenMode::kCreateNew: flags |= O_RDWR | O_CREAT | O_EXCL; break;
      case OpenMode::kCreateOrOpen: flags |= O_RDWR | O_CREAT; break;
    }
    const int fd = open(path.c_str(), flags, 0600);
    if (fd < 0) return ErrnoError(errno, "open of " + path);
    return std::unique_ptr<File>(new PosixFile(fd, path));
  }

  Result<bool> Exists(const std::string& path) override {
    if (access(path.c_str(), F_OK) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return ErrnoError(errno, "access to " + path);
  }

  Result<FileInfo> Stat(const std::string& path) override {
    struct stat st {};
    if (stat(path.c_str(), &st) != 0) return ErrnoError(errno, "stat of " + path);
    if (S_ISDIR(st.st_mode)) return FileInfo{true, 0};
    return FileInfo{false, static_cast<uint64_t>(st.st_size)};
  }

  Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) != 0) return ErrnoError(errno, "removal of " + path);
    return Ok();
  }

  Status RemoveTree(const std::string& path) override {
    std::error_code ec;
    std::filesystem::remove_all(path, ec);
    if (ec) return ErrnoError(ec.value(), "removal of " + path);
    return Ok();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) return ErrnoError(errno, "rename of " + from + " to " + to);
    return Ok();
  }

  Status Link(const std::string& from, const std::string& to) override {
    if (link(from.c_str(), to.c_str()) != 0) return ErrnoError(errno, "link of " + from + " to " + to);
    return Ok();
  }

  Status MakeDirs(const std::string& path) override {
    if (path.empty() || path == "/") return Ok();
    if (mkdir(path.c_str(), 0700) == 0) return SyncDir(DirName(path));
    if (errno == EEXIST) {
      struct stat st {};
      if (stat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) {
        return Error(Code::kNotDirectory, path + " exists and is not a directory");
      }
      // Perhaps made by a process that was killed before it synced. Where we may not look somebody else made it.
      const Status synced = SyncDir(DirName(path));
      return synced.code() == Code::kAccess ? Ok() : synced;
    }
    if (errno != ENOENT) return ErrnoError(errno, "mkdir of " + path);
    ARCHIL_RETURN_IF_ERROR(MakeDirs(DirName(path)));
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoError(errno, "mkdir of " + path);
    return SyncDir(DirName(path));
  }

  Result<std::vector<std::string>> List(const std::string& dir) override {
    DIR* d = opendir(dir.c_str());
    if (d == nullptr) return ErrnoError(errno, "listing of " + dir);
    std::vector<std::string> names;
    while (const dirent* e = readdir(d)) {
      std::string name(e->d_name);
      if (name != "." && name != "..") names.push_back(std::move(name));
    }
    closedir(d);
    std::sort(names.begin(), names.end());
    return names;
  }

  Status SyncDir(const std::string& dir) override {
    const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ErrnoError(errno, "open of " + dir);
    const int rc = fsync(fd);
    const int err = errno;
    close(fd);
    if (rc != 0) return ErrnoError(err, "fsync of " + dir);
    return Ok();
  }

  Result<uint64_t> FreeBytes(const std::string& path) override {
    struct statvfs st {};
    if (statvfs(path.c_str(), &st) != 0) return ErrnoError(errno, "statvfs of " + path);
    return static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  }

  Result<std::unique_ptr<File>> LockFile(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return ErrnoError(errno, "open of " + path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int err = errno;
      close(fd);
      if (err == EWOULDBLOCK) return Error(Code::kBusy, path + " is locked by another process");
      return ErrnoError(err, "lock of " + path);
    }
    return std::unique_ptr<File>(new PosixFile(fd, path));
  }
};

}  // namespace

Files& RealFiles() {
  static PosixFiles files;
  return files;
}

Result<std::string> ReadWholeFile(Files& files, const std::string& path) {
  ARCHIL_ASSIGN_OR_RETURN(auto file, files.Open(path, OpenMode::kRead));
  ARCHIL_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  return file->Read(0, size);
}

Status WriteFileAtomically(Files& files, const std::string& path, std::string_view bytes) {
  const std::string tmp = path + ".tmp";
  {
    ARCHIL_ASSIGN_OR_RETURN(auto file, files.Open(tmp, OpenMode::kCreateOrOpen));
    ARCHIL_RETURN_IF_ERROR(file->Truncate(0));
    ARCHIL_RETURN_IF_ERROR(file->Write(0, bytes));
    ARCHIL_RETURN_IF_ERROR(file->Sync());
  }
  ARCHIL_RETURN_IF_ERROR(files.Rename(tmp, path));
  return files.SyncDir(DirName(path));
}

std::string JoinPath(std::string_view dir, std::string_view name) {
  std::string out(dir);
  if (!out.empty() && out.back() != '/') out += '/';
  out += name;
  return out;
}

std::string DirName(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(path.substr(0, slash));
}

}  // namespace archil
