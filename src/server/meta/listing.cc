#include "server/meta/listing.h"

#include <algorithm>
#include <utility>

namespace archil {

InodeInfo InfoOf(const InodeRecord& record, InodeId parent) {
  InodeInfo info;
  info.attr = record.attr;
  info.target = record.target;
  info.has_xattrs = !record.xattrs.empty() || record.large_xattrs > 0;
  if (record.attr.type == FileType::kDirectory) info.parent = parent;
  return info;
}

Result<InodeInfo> InfoOf(const Records& records, InodeId ino, InodeId parent) {
  ARCHIL_ASSIGN_OR_RETURN(const auto rec, records.GetInode(ino));
  if (!rec) return Error(Code::kNotFound);
  const bool placed = rec->attr.type == FileType::kDirectory && ino != kRootInode && rec->attr.nlink > 0;
  if (placed && !parent) {
    ARCHIL_ASSIGN_OR_RETURN(parent, records.ParentOfDirectory(ino));
  }
  return InfoOf(*rec, placed ? parent : InodeId{0});
}

Result<InodeInfo> DirectoryInfo(const Records& records, InodeId ino) {
  ARCHIL_ASSIGN_OR_RETURN(InodeInfo info, InfoOf(records, ino, InodeId{0}));
  if (info.attr.type != FileType::kDirectory) return Error(Code::kNotDirectory);
  return info;
}

Result<DirPage> ListDirectory(const Records& records, InodeId ino, const std::string& after, uint32_t limit) {
  DirPage page;
  ARCHIL_ASSIGN_OR_RETURN(page.directory, DirectoryInfo(records, ino));
  std::vector<std::pair<std::string, InodeId>> names;
  Status bad = Ok();
  page.complete = true;
  const std::string after_key = after.empty() ? std::string() : DentryKey(ino, after);
  ARCHIL_RETURN_IF_ERROR(records.Scan(DentryPrefix(ino), after_key, [&](std::string_view logical, std::string_view value) {
    if (names.size() == limit) {
      page.complete = false;
      return false;
    }
    auto dentry = DecodeDentry(value);
    if (!dentry.ok()) {
      bad = dentry.error();
      return false;
    }
    names.emplace_back(std::string(NameOfDentry(logical)), dentry->ino);
    return true;
  }));
  ARCHIL_RETURN_IF_ERROR(bad);
  page.entries.reserve(names.size());
  for (auto& [name, child] : names) {
    auto info = InfoOf(records, child, ino);
    if (!info.ok()) return Error(Code::kCorrupt, "a name shows an inode that cannot be read");
    page.entries.push_back({std::move(name), std::move(*info)});
  }
  return page;
}

const Records* StateTree::RecordsOf(BranchId branch) {
  const auto it = records_.find(branch);
  if (it != records_.end()) return &it->second;
  auto chain = LoadBranchChain(view_, branch);
  if (!chain.ok()) {
    status_ = chain.error();
    return nullptr;
  }
  return &records_.try_emplace(branch, view_, std::move(*chain)).first->second;
}

Tree::Kind StateTree::KindOf(BranchId branch, InodeId ino) {
  const Records* records = RecordsOf(branch);
  if (records == nullptr) return Kind::kAbsent;
  const auto inode = records->GetInode(ino);
  if (!inode.ok()) {
    status_ = inode.error();
    return Kind::kAbsent;
  }
  if (!*inode) return Kind::kAbsent;
  return (*inode)->attr.type == FileType::kDirectory ? Kind::kDirectory : Kind::kOther;
}

InodeId StateTree::HomeOf(BranchId branch, InodeId ino) {
  const Records* records = RecordsOf(branch);
  if (records == nullptr) return InodeId{0};
  const auto home = records->HomeOf(ino);
  if (!home.ok()) {
    status_ = home.error();
    return InodeId{0};
  }
  return *home;
}

InodeId StateTree::ChildOf(BranchId branch, InodeId dir, const std::string& name) {
  const Records* records = RecordsOf(branch);
  if (records == nullptr || !IsValidName(name)) return InodeId{0};
  const auto dentry = records->GetDentry(dir, name);
  if (!dentry.ok()) {
    status_ = dentry.error();
    return InodeId{0};
  }
  return *dentry ? (*dentry)->ino : InodeId{0};
}

InodeId StateTree::ParentOf(BranchId branch, InodeId dir) {
  if (dir == kRootInode || KindOf(branch, dir) != Kind::kDirectory) return InodeId{0};
  const Records* records = RecordsOf(branch);
  if (records == nullptr) return InodeId{0};
  const auto parent = records->ParentOfDirectory(dir);
  if (!parent.ok()) {
    status_ = parent.error();
    return InodeId{0};
  }
  return *parent;
}

bool StateTree::Reaches(BranchId branch, InodeId ino, SessionId session) {
  const Records* records = RecordsOf(branch);
  if (records == nullptr) return false;
  const auto reaches = [&]() -> Result<bool> {
    ARCHIL_ASSIGN_OR_RETURN(const auto inode, records->GetInode(ino));
    if (inode && inode->attr.nlink > 0) return true;
    ARCHIL_ASSIGN_OR_RETURN(const auto raw, records->Get(OrphanKey(ino)));
    if (!raw) return false;
    ARCHIL_ASSIGN_OR_RETURN(const OrphanRecord orphan, DecodeOrphan(*raw));
    return std::find(orphan.sessions.begin(), orphan.sessions.end(), session) != orphan.sessions.end();
  };
  const Result<bool> answer = reaches();
  if (!answer.ok()) status_ = answer.error();
  return answer.ok() && *answer;
}

}  // namespace archil
