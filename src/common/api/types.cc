#include "common/api/types.h"

#include <sys/stat.h>

namespace archil {

bool IsValid(FileType type) {
  return type >= FileType::kRegular && type <= FileType::kBlockDevice;
}

uint32_t ModeBitsOf(FileType type) {
  switch (type) {
    case FileType::kRegular: return S_IFREG;
    case FileType::kDirectory: return S_IFDIR;
    case FileType::kSymlink: return S_IFLNK;
    case FileType::kFifo: return S_IFIFO;
    case FileType::kSocket: return S_IFSOCK;
    case FileType::kCharDevice: return S_IFCHR;
    case FileType::kBlockDevice: return S_IFBLK;
  }
  return 0;
}

FileType TypeOfModeBits(uint32_t mode) {
  switch (mode & S_IFMT) {
    case 0:  // mknod(2): zero means a regular file
    case S_IFREG: return FileType::kRegular;
    case S_IFDIR: return FileType::kDirectory;
    case S_IFLNK: return FileType::kSymlink;
    case S_IFIFO: return FileType::kFifo;
    case S_IFSOCK: return FileType::kSocket;
    case S_IFCHR: return FileType::kCharDevice;
    case S_IFBLK: return FileType::kBlockDevice;
    default: return static_cast<FileType>(0);
  }
}

bool IsValidName(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || name == "." || name == "..") return false;
  return name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace archil
