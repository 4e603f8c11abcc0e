#include "common/posix/entries.h"

namespace archil {

Code CheckName(std::string_view name) {
  if (name.empty()) return Code::kNotFound;
  if (name.size() > kMaxName) return Code::kNameTooLong;
  return IsValidName(name) ? Code::kOk : Code::kInvalid;
}

Code CheckLink(FileType type, uint32_t nlink) {
  if (type == FileType::kDirectory) return Code::kPermission;
  if (nlink == 0) return Code::kNotFound;
  return nlink >= kMaxLinks ? Code::kTooManyLinks : Code::kOk;
}

Code CheckUnlink(FileType type) { return type == FileType::kDirectory ? Code::kIsDirectory : Code::kOk; }

Code CheckRmdir(InodeId ino, FileType type, bool empty) {
  if (type != FileType::kDirectory) return Code::kNotDirectory;
  if (ino == kRootInode) return Code::kBusy;
  return empty ? Code::kOk : Code::kNotEmpty;
}

}  // namespace archil
