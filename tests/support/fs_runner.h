// FsRunner: runs the file-system steps of a random run on one file system. The reference, the client core and a
// host directory each have one; equal steps must give equal outcomes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/inode_fs.h"
#include "tests/support/model_op.h"

namespace archil::test {

struct Outcome {
  int err = 0;  // errno, 0: success
  // Which of these are set depends on the op alone.
  std::vector<Attr> attrs;
  std::vector<ListedName> names;  // sorted by name
  std::string text;               // bytes read, link target, xattr value, names of xattrs (one a line)
  uint64_t number = 0;            // bytes written, offset found
};
std::string ToString(const Outcome& outcome);

struct TreeNode {
  Attr attr;
  std::string target;
  std::string content;
  std::map<std::string, std::string> xattrs;
};
using Tree = std::map<std::string, TreeNode>;  // by path; "" is the root

class FsRunner {
 public:
  virtual ~FsRunner() = default;
  // Not for the kinds from kCompare on.
  virtual Outcome Run(const ModelOp& op) = 0;
  // Everything there is to see. An error, with what it was doing, if something cannot be read.
  virtual Result<Tree> Dump() = 0;
  // Closes every slot; the runner can go on.
  virtual void CloseSlots() = 0;
};

// Runs steps by inode numbers, doing what the kernel does above a file system: walks, keeps handles and
// references, checks open flags.
class InodeRunner : public FsRunner {
 public:
  explicit InodeRunner(InodeFs& fs) : fs_(&fs) {}
  // The slots are gone with their mount: nothing is released. Later steps run on `fs`.
  void Reset(InodeFs& fs);

  Outcome Run(const ModelOp& op) override;
  Result<Tree> Dump() override;
  void CloseSlots() override;

  InodeFs& fs() { return *fs_; }

 private:
  struct Slot {
    bool used = false;
    bool directory = false;
    InodeId ino;
    uint64_t handle = 0;
    int flags = 0;
    bool writable() const;
    bool readable() const;
  };
  struct Name {
    InodeId parent;
    std::string name;
  };

  Result<InodeId> Start(int at);
  // References taken are given back at the end of the step.
  Result<Attr> Resolve(int at, const std::string& path);
  Result<Name> ResolveName(int at, const std::string& path);
  Result<Attr> Ref(Result<Attr> attr);
  Result<Slot*> FileSlot(int at);
  void Close(Slot& slot);
  void Fill(int slot, Slot with);

  Result<Outcome> Dispatch(const ModelOp& op);
  Result<Outcome> RunMake(const ModelOp& op);
  Result<Outcome> RunLink(const ModelOp& op);
  Result<Outcome> RunCreate(const ModelOp& op);
  Result<Outcome> RunOpen(const ModelOp& op);
  Result<Outcome> RunOpenInode(const ModelOp& op, const Attr& attr);
  Result<Outcome> RunRemove(const ModelOp& op);
  Result<Outcome> RunRename(const ModelOp& op);
  Result<Outcome> RunSetAttr(const ModelOp& op);
  Result<Outcome> RunData(const ModelOp& op);
  Result<Outcome> RunXattr(const ModelOp& op);
  Result<Outcome> RunRead(const ModelOp& op);
  Result<Outcome> RunSync(const ModelOp& op);
  Status DumpInode(const std::string& path, const Attr& attr, Tree& out);

  InodeFs* fs_;
  Slot slots_[kSlots];
  std::vector<InodeId> references_;
};

}  // namespace archil::test
