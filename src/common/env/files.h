// Files: the seam to a local disk. Real ones are POSIX files; MemFiles (mem_files.h) keeps what was
// written and what was synced apart and can lose the difference, as a power cut does.
//
// Durability: bytes of a file survive a crash after File::Sync; a name that was created, renamed,
// linked or removed survives after SyncDir of its directory. Nothing else survives for certain.
// Thread safe; one File may be read from many threads while one thread appends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace archil {

class File {
 public:
  virtual ~File() = default;
  // Reads up to `length` bytes; fewer only at the end of the file.
  virtual Result<std::string> Read(uint64_t offset, size_t length) = 0;
  // Writes all of `bytes` or fails; after a failure the range holds anything.
  virtual Status Write(uint64_t offset, std::string_view bytes) = 0;
  // fdatasync. After a failure the object is broken: what was not durable before may never be.
  virtual Status Sync() = 0;
  virtual Result<uint64_t> Size() = 0;
  virtual Status Truncate(uint64_t size) = 0;
};

enum class OpenMode : uint8_t { kRead, kReadWrite, kCreateNew, kCreateOrOpen };

struct FileInfo {
  bool is_directory = false;
  uint64_t size = 0;  // bytes; 0 for a directory
};

class Files {
 public:
  virtual ~Files() = default;
  virtual Result<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) = 0;
  virtual Result<bool> Exists(const std::string& path) = 0;
  virtual Result<FileInfo> Stat(const std::string& path) = 0;  // kNotFound if absent
  virtual Status Remove(const std::string& path) = 0;  // a file; kNotFound if absent
  virtual Status RemoveTree(const std::string& path) = 0;  // absent is success
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Link(const std::string& from, const std::string& to) = 0;  // kExists if `to` exists
  virtual Status MakeDirs(const std::string& path) = 0;  // like mkdir -p; durable when it returns, whoever made it
  virtual Result<std::vector<std::string>> List(const std::string& dir) = 0;  // names, sorted
  virtual Status SyncDir(const std::string& dir) = 0;
  virtual Result<uint64_t> FreeBytes(const std::string& path) = 0;
  // An exclusive lock held until the returned object dies or the process ends; kBusy if taken.
  virtual Result<std::unique_ptr<File>> LockFile(const std::string& path) = 0;
};

// The machine's own files. Lives as long as the process.
Files& RealFiles();

Result<std::string> ReadWholeFile(Files& files, const std::string& path);
// Replaces `path` by `bytes`, atomically and durably (temporary name, sync, rename, sync of the directory).
Status WriteFileAtomically(Files& files, const std::string& path, std::string_view bytes);
// "a/b" and "c" -> "a/b/c"; directory part of a path ("." if none).
std::string JoinPath(std::string_view dir, std::string_view name);
std::string DirName(std::string_view path);

}  // namespace archil
