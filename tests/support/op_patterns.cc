// The patterns of OpGen: short sequences of steps as programs make them.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/op_gen.h"

namespace archil::test {
namespace {

std::string Below(const std::string& dir, const std::string& name) { return dir.empty() ? name : dir + "/" + name; }

}  // namespace

void OpGen::Pattern(const RefState& state) {
  const bool full = all_.size() > profile_.max_inodes;
  switch (full ? 2 : random_->Below(12)) {
    case 0: return LockFiles();
    case 1: return TempThenRename();
    case 2: return RemoveTree(state);
    case 3: return SmallFiles();
    case 4: return HardLinks();
    case 5: return ReplaceOpenFile();
    case 6: return TruncateDownUp();
    case 7: return MoveAncestor();
    case 8: return ShortLived();
    case 9: return Database();
    case 10: return RemovedDirectory();
    default: return Boundaries();
  }
}

// git: index.lock and its like, thousands of times in a row.
void OpGen::LockFiles() {
  const std::string dir = AnyDir();
  const std::string lock = Below(dir, "index.lock");
  const std::string index = Below(dir, "index");
  const int slot = AnySlot();
  for (uint64_t i = 2 + random_->Below(12); i > 0; --i) {
    ModelOp create = CreateFile(lock, O_RDWR | O_EXCL);
    create.slot = slot;
    Push(create);
    if (Chance(700)) Push(Write(slot, 0, 1 + random_->Below(300)));
    ModelOp close = Op(OpKind::kClose);
    close.slot = slot;
    if (Chance(500)) Push(close);
    if (Chance(600)) {
      ModelOp rename = Op(OpKind::kRename, lock);
      rename.path2 = index;
      Push(rename);
    } else {
      Push(Op(OpKind::kUnlink, lock));
    }
    if (Chance(200)) Push(Op(OpKind::kStat, index));
  }
}

void OpGen::TempThenRename() {
  const std::string target = Chance(600) ? AnyOf(FileType::kRegular) : FreshPath();
  const std::string dir = target.find('/') == std::string::npos ? "" : target.substr(0, target.rfind('/'));
  const std::string temp = Below(dir, fmt::format("tmp{}", counter_++ % 7));
  ModelOp create = CreateFile(temp, O_RDWR | O_TRUNC);
  Push(create);
  for (uint64_t i = 1 + random_->Below(4); i > 0; --i) Push(Write(create.slot, random_->Below(3) * 1000, AnyLength()));
  if (Chance(300)) {
    ModelOp fsync = Op(OpKind::kFsync);
    fsync.at = create.slot;
    Push(fsync);
  }
  ModelOp close = Op(OpKind::kClose);
  close.slot = create.slot;
  if (Chance(800)) Push(close);
  ModelOp rename = Op(Chance(800) ? OpKind::kRename : OpKind::kLink, temp);
  rename.path2 = target;
  Push(rename);
  if (Chance(300)) Push(Op(OpKind::kFsyncDir, dir));
}

void OpGen::RemoveTree(const RefState& state) {
  const std::string root = AnyDir();
  if (root.empty() && !Chance(200)) return;
  // Children after their parents in all_: backwards is the order to remove in.
  for (size_t i = all_.size(); i > 1; --i) {
    const Entry& e = all_[i - 1];
    if (!root.empty() && e.path != root && !e.path.starts_with(root + "/")) continue;
    const bool dir = e.type == FileType::kDirectory;
    if (dir && Chance(300)) Push(Op(OpKind::kReaddir, e.path));
    Push(Op(dir ? OpKind::kRmdir : OpKind::kUnlink, e.path));
  }
}

void OpGen::SmallFiles() {
  const std::string dir = Below(AnyDir(), fmt::format("pkg{}", counter_++ % 9));
  if (std::count(dir.begin(), dir.end(), '/') > 3) return;
  ModelOp mkdir = Op(OpKind::kMkdir, dir);
  mkdir.mode = 0755;
  Push(mkdir);
  for (uint64_t i = 3 + random_->Below(20); i > 0; --i) {
    ModelOp create = CreateFile(Below(dir, fmt::format("f{}", i)), O_WRONLY | O_EXCL);
    Push(create);
    if (Chance(900)) Push(Write(create.slot, 0, 1 + random_->Below(500)));
    ModelOp close = Op(OpKind::kClose);
    close.slot = create.slot;
    Push(close);
  }
  if (Chance(500)) Push(Op(OpKind::kReaddir, dir));
  if (!Chance(300)) return;
  ModelOp rename = Op(OpKind::kRename, dir);
  rename.path2 = FreshPath();
  Push(rename);
}

void OpGen::HardLinks() {
  const std::string from = AnyOf(FileType::kRegular);
  const std::string to = FreshPath();
  ModelOp link = Op(OpKind::kLink, from);
  link.path2 = to;
  Push(link);
  ModelOp rename = Op(OpKind::kRename, Chance(500) ? from : to);
  rename.path2 = rename.path == from ? to : from;
  if (Chance(500)) Push(rename);
  ModelOp open = Open(to, O_RDWR);
  Push(open);
  Push(Op(OpKind::kUnlink, Chance(500) ? from : to));
  Push(Write(open.slot, AnyOffset(), AnyLength()));
  if (Chance(500)) Push(Op(OpKind::kUnlink, Chance(500) ? from : to));
  ModelOp stat = Op(OpKind::kStat);
  stat.at = open.slot;
  Push(stat);
}

void OpGen::ReplaceOpenFile() {
  const std::string target = AnyOf(FileType::kRegular);
  ModelOp open = Open(target, O_RDWR);
  Push(open);
  ModelOp create = CreateFile(FreshPath(), O_RDWR | O_EXCL);
  create.slot = (open.slot + 1) % kSlots;
  Push(create);
  Push(Write(create.slot, 0, AnyLength()));
  ModelOp rename = Op(OpKind::kRename, create.path);
  rename.path2 = target;
  Push(rename);
  Push(Write(open.slot, AnyOffset(), AnyLength()));
  ModelOp read = Op(OpKind::kRead);
  read.at = open.slot;
  read.length = 100000;
  Push(read);
  ModelOp stat = Op(OpKind::kStat);
  stat.at = open.slot;
  Push(stat);
  ModelOp close = Op(OpKind::kClose);
  close.slot = open.slot;
  if (Chance(700)) Push(close);
}

void OpGen::TruncateDownUp() {
  const std::string path = AnyOf(FileType::kRegular);
  ModelOp open = Open(path, O_RDWR);
  Push(open);
  Push(Write(open.slot, AnyOffset(), AnyLength()));
  if (Chance(300)) {
    ModelOp fsync = Op(OpKind::kFsync);
    fsync.at = open.slot;
    Push(fsync);
  }
  for (uint64_t i = 2 + random_->Below(3); i > 0; --i) {
    ModelOp cut = Op(OpKind::kTruncate, path);
    cut.length = AnySize();
    Push(cut);
    if (Chance(400)) Push(Write(open.slot, AnyOffset(), AnyLength()));
  }
  ModelOp read = Op(OpKind::kRead);
  read.at = open.slot;
  read.length = profile_.max_file;
  Push(read);
}

void OpGen::MoveAncestor() {
  const std::string dir = FreshPath();
  ModelOp mkdir = Op(OpKind::kMkdir, dir);
  mkdir.mode = 0755;
  Push(mkdir);
  mkdir.path = Below(dir, "sub");
  Push(mkdir);
  ModelOp open = Open(mkdir.path, O_RDONLY);
  Push(open);
  ModelOp rename = Op(OpKind::kRename, dir);
  rename.path2 = FreshPath();
  Push(rename);
  ModelOp create = CreateFile("deep", O_RDWR | O_EXCL);
  create.at = open.slot;
  create.slot = (open.slot + 1) % kSlots;
  Push(create);
  Push(Write(create.slot, 0, AnyLength()));
  if (Chance(500)) {
    mkdir.path = dir;  // the old name, born again
    Push(mkdir);
  }
  Push(Op(OpKind::kStat, Below(Below(rename.path2, "sub"), "deep")));
  if (Chance(300)) {
    ModelOp back = Op(OpKind::kRename, rename.path2);
    back.path2 = Chance(500) ? dir : Below(Below(rename.path2, "sub"), "loop");
    Push(back);
  }
}

// A compiler's temporary files: nothing of them need ever leave the client.
void OpGen::ShortLived() {
  const std::string dir = FreshPath();
  ModelOp mkdir = Op(OpKind::kMkdir, dir);
  mkdir.mode = 0700;
  Push(mkdir);
  const uint64_t count = 1 + random_->Below(8);
  for (uint64_t i = 0; i < count; ++i) {
    ModelOp create = CreateFile(Below(dir, fmt::format("cc{}.o", i)), O_RDWR | O_EXCL);
    Push(create);
    Push(Write(create.slot, 0, AnyLength()));
    ModelOp close = Op(OpKind::kClose);
    close.slot = create.slot;
    if (Chance(850)) Push(close);
  }
  const std::string kept = FreshPath();
  for (uint64_t i = 0; i < count; ++i) {
    const std::string path = Below(dir, fmt::format("cc{}.o", i));
    if (i == 0 && Chance(400)) {
      ModelOp rename = Op(OpKind::kRename, path);
      rename.path2 = Chance(500) ? kept : AnyOf(FileType::kRegular);
      Push(rename);
      if (Chance(500)) Push(Op(OpKind::kUnlink, rename.path2));
    } else {
      Push(Op(OpKind::kUnlink, path));
    }
  }
  Push(Op(OpKind::kRmdir, dir));
}

// SQLite with a rollback journal.
void OpGen::Database() {
  const std::string dir = AnyDir();
  const std::string db = Below(dir, "db");
  const int slot = AnySlot();
  const int journal = (slot + 1) % kSlots;
  ModelOp open = CreateFile(db, O_RDWR);
  open.slot = slot;
  Push(open);
  ModelOp fsync = Op(OpKind::kFsync);
  for (uint64_t i = 1 + random_->Below(4); i > 0; --i) {
    ModelOp create = CreateFile(Below(dir, "db-journal"), O_RDWR);
    create.slot = journal;
    Push(create);
    Push(Write(journal, 0, 512));
    Push(Write(journal, 512, 4104));
    fsync.at = journal;
    Push(fsync);
    if (Chance(500)) Push(Op(OpKind::kFsyncDir, dir));
    for (uint64_t pages = 1 + random_->Below(3); pages > 0; --pages) Push(Write(slot, 4096 * random_->Below(12), 4096));
    fsync.at = slot;
    Push(fsync);
    ModelOp close = Op(OpKind::kClose);
    close.slot = journal;
    Push(close);
    Push(Op(OpKind::kUnlink, Below(dir, "db-journal")));
  }
}

void OpGen::RemovedDirectory() {
  const std::string dir = FreshPath();
  ModelOp mkdir = Op(OpKind::kMkdir, dir);
  mkdir.mode = 0755;
  Push(mkdir);
  ModelOp open = Open(dir, O_RDONLY);
  Push(open);
  if (Chance(500)) {
    Push(Op(OpKind::kRmdir, dir));
  } else {
    mkdir.path = FreshPath() + "z";
    Push(mkdir);
    ModelOp rename = Op(OpKind::kRename, mkdir.path);
    rename.path2 = dir;
    Push(rename);
  }
  ModelOp inside = CreateFile("ghost", O_RDWR | O_EXCL);
  inside.at = open.slot;
  inside.slot = (open.slot + 1) % kSlots;
  Push(inside);
  for (const OpKind kind : {OpKind::kStat, OpKind::kReaddir}) {
    ModelOp look = Op(kind);
    look.at = open.slot;
    Push(look);
  }
  ModelOp close = Op(OpKind::kClose);
  close.slot = open.slot;
  if (Chance(600)) Push(close);
}

void OpGen::Boundaries() {
  const std::string path = Chance(500) ? AnyOf(FileType::kRegular) : FreshPath();
  ModelOp create = CreateFile(path, O_RDWR);
  Push(create);
  for (uint64_t i = 2 + random_->Below(6); i > 0; --i) {
    const uint64_t edge = (1 + random_->Below(2)) << 20;
    Push(Write(create.slot, edge - random_->Below(3), 1 + random_->Below(4)));
    if (Chance(300)) Push(Write(create.slot, random_->Below(edge), AnyLength()));
    if (Chance(300)) {
      ModelOp alloc = Op(OpKind::kFallocate);
      alloc.at = create.slot;
      alloc.sub = random_->Below(5);
      alloc.offset = edge - random_->Below(5000);
      alloc.length = 1 + random_->Below(10000);
      Push(alloc);
    }
  }
  ModelOp read = Op(OpKind::kRead);
  read.at = create.slot;
  read.offset = (1 << 20) - 5;
  read.length = (1 << 20) + 10;
  Push(read);
}

}  // namespace archil::test
