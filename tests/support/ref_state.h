// RefState: the tree of the reference file system as plain values, and the events that change it. Pure.
// RefHistory: what a crash may and may not lose (ORD-1, ORD-2, DUR-1), as a base state and the events since.
//
// Times are logical: a change sets Tick(n) with n growing by one per event. Explicit times (utimens) stand
// for themselves. kUnknownTime stands for "either answer is right" and is compared with nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/types.h"
#include "tests/support/inode_fs.h"

namespace archil::test {

inline constexpr int64_t kTickSeconds = 1LL << 40;  // later than any time a test sets
inline constexpr Timestamp kUnknownTime{(1LL << 40) - 1, 0};
constexpr Timestamp Tick(uint64_t n) { return {kTickSeconds + static_cast<int64_t>(n), 0}; }
constexpr bool IsTick(Timestamp t) { return t.sec >= kTickSeconds; }

// Bytes of a file in pages; an absent page reads as zeros. Copies share pages.
class RefContent {
 public:
  static constexpr uint64_t kPage = 4096;

  uint64_t size() const { return size_; }
  // Clipped to the size.
  std::string Read(uint64_t offset, uint64_t length) const;
  // Grows the size if it must.
  void Write(uint64_t offset, std::string_view data);
  // What is cut is gone: growing again shows zeros.
  void Resize(uint64_t size);
  // Zeros, within the size.
  void Zero(uint64_t offset, uint64_t length);
  uint8_t At(uint64_t offset) const;
  // First non-zero byte at or after `offset`; size() if there is none.
  uint64_t NextNonZero(uint64_t offset) const;

 private:
  std::string PageCopy(uint64_t page) const;

  uint64_t size_ = 0;
  std::map<uint64_t, std::shared_ptr<const std::string>> pages_;
};

struct RefInode {
  Attr attr;  // size of regular files and directories: see SizeOf
  std::string target;
  std::map<std::string, std::string> xattrs;
  std::map<std::string, InodeId> names;  // directories
  InodeId parent;                        // directories
  RefContent content;

  bool is_dir() const { return attr.type == FileType::kDirectory; }
  Attr Shown() const;  // attr with the size filled in
};

// One change that has been found valid; applying it never fails.
struct RefEvent {
  enum class Kind : uint8_t {
    kCreate,
    kLink,
    kRemove,
    kRename,
    kExchange,
    kSetAttr,
    kAllocate,
    kSetXattr,
    kRemoveXattr,
    kWrite,  // the only one that is not a metadata operation
  };
  Kind kind;
  uint64_t tick = 0;
  InodeId ino;
  InodeId parent;
  std::string name;
  InodeId new_parent;
  std::string new_name;
  InodeId victim;    // replaced or exchanged; 0: none
  Attr attr;         // kCreate: type, mode, uid, gid, rdev
  std::string data;  // symlink target, xattr value, bytes written
  AttrChange change;
  AllocKind alloc = AllocKind::kAllocate;
  uint64_t offset = 0;
  uint64_t length = 0;
  bool kill_set_id = false;
  bool empty = false;  // changes nothing, so that it may never have become an operation

  bool is_metadata() const { return kind != Kind::kWrite; }
  bool Touches(InodeId i) const { return i == ino || i == parent || i == new_parent || i == victim; }
};

struct RefState {
  std::map<InodeId, RefInode> inodes;

  RefState();  // an empty root, 0755 root:root
  const RefInode* Find(InodeId ino) const;
  RefInode& At(InodeId ino) { return inodes.at(ino); }
  const RefInode& At(InodeId ino) const { return inodes.at(ino); }
  // 0 if absent.
  InodeId Child(InodeId dir, std::string_view name) const;
  // `dir` is `ancestor` or below it.
  bool IsBelow(InodeId dir, InodeId ancestor) const;
  void Apply(const RefEvent& event);

 private:
  void ApplyCreate(const RefEvent& e);
  void ApplyRemove(const RefEvent& e);
  void ApplyRename(const RefEvent& e);
  void ApplyExchange(const RefEvent& e);
  void ApplySetAttr(const RefEvent& e);
  void ApplyAllocate(const RefEvent& e);
  void DropName(RefInode& inode, bool all_links, Timestamp now);
  void TouchDir(InodeId dir, Timestamp now);
};

// Clears set-id bits as Linux does for a change by somebody without CAP_FSETID.
uint32_t WithoutSetId(uint32_t mode);

struct RefHistory {
  RefState base;  // durable
  std::vector<RefEvent> events;
  size_t durable = 0;                      // metadata events below this index survive every crash
  std::map<InodeId, size_t> data_durable;  // writes of the file below this index do
};

}  // namespace archil::test
