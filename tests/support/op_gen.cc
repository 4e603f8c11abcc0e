#include "tests/support/op_gen.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <utility>

namespace archil::test {
namespace {

constexpr std::string_view kPlainNames[] = {"a", "b", "c", "d", "e", "f", "g", "h", ".git", "Makefile"};
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kEdges[] = {0, 1, 511, 512, 4095, 4096, 4097, 65535, 65536, 65537, 131071, 131072, 131073};
constexpr uint64_t kBigEdges[] = {kMiB - 1, kMiB, kMiB + 1, kMiB - 4096, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1};
constexpr uint64_t kLengths[] = {1, 2, 3, 7, 100, 512, 1000, 4095, 4096, 4097, 20000};
constexpr uint64_t kBigLengths[] = {65535, 65536, 65537, 131072, 262145, kMiB - 1, kMiB, kMiB + 3};
constexpr uint32_t kModes[] = {0644, 0600, 0755, 0444, 0777, 0, 04755, 02755, 06711, 02644, 01777};
constexpr std::string_view kXattrs[] = {"user.a", "user.b", "user.mime_type", "user.checksum"};

}  // namespace

OpGen::OpGen(uint64_t seed, const GenProfile& profile) : random_(SeededRandom(seed)), profile_(profile) {}

void OpGen::ScanDir(const RefState& state, InodeId dir, const std::string& path) {
  for (const auto& [name, ino] : state.At(dir).names) {
    const std::string child = path.empty() ? name : path + "/" + name;
    all_.push_back({child, ino, state.At(ino).attr.type});
    if (all_.back().type == FileType::kDirectory) ScanDir(state, ino, child);
  }
}

void OpGen::Scan(const RefState& state) {
  all_.clear();
  all_.push_back({"", kRootInode, FileType::kDirectory});
  ScanDir(state, kRootInode, "");
}

std::string OpGen::AnyName() {
  if (Chance(5)) return std::string(kMaxName + 1, 'x');
  if (Chance(10)) return std::string(kMaxName, 'y');
  if (Chance(20)) return "sp ce\xc3\xa4\n%";
  return std::string(Pick(kPlainNames));
}

std::string OpGen::AnyDir() { return AnyOf(FileType::kDirectory); }

std::string OpGen::AnyOf(FileType type) {
  std::vector<size_t> found;
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].type == type) found.push_back(i);
  }
  return found.empty() ? AnyName() : all_[Pick(found)].path;
}

std::string OpGen::AnyPath() {
  if (all_.size() < 2) return AnyName();
  return all_[1 + random_->Below(all_.size() - 1)].path;
}

std::string OpGen::NewPath() {
  // Sometimes below something that is no directory, or is not there.
  std::string dir = Chance(30) ? AnyPath() : AnyDir();
  if (Chance(10)) dir += (dir.empty() ? "" : "/") + AnyName();
  // A deep tree would make every path long; keep to four levels.
  if (std::count(dir.begin(), dir.end(), '/') >= 3) dir.clear();
  return dir.empty() ? AnyName() : dir + "/" + AnyName();
}

std::string OpGen::FreshPath() {
  for (int i = 0; i < 8; ++i) {
    std::string path = NewPath();
    const auto same = [&](const Entry& e) { return e.path == path; };
    if (std::none_of(all_.begin(), all_.end(), same)) return path;
  }
  const std::string dir = AnyDir();
  return (dir.empty() ? "" : dir + "/") + fmt::format("n{}", counter_++);
}

int OpGen::AnySlot() { return static_cast<int>(random_->Below(kSlots)); }

uint64_t OpGen::AnyOffset() {
  if (Chance(350)) return 0;
  if (Chance(500)) return Pick(kEdges);
  if (Chance(250)) return Pick(kBigEdges);
  return random_->Below(20000);
}

uint64_t OpGen::AnyLength() {
  if (Chance(60)) return Pick(kBigLengths);
  if (Chance(20)) return 0;
  return Chance(500) ? Pick(kLengths) : 1 + random_->Below(3000);
}

uint64_t OpGen::AnySize() {
  if (Chance(250)) return 0;
  return Chance(250) ? Pick(kBigEdges) : Chance(500) ? Pick(kEdges) : random_->Below(100000);
}

// Before now, so that what changes later is later.
Timestamp OpGen::AnyTime() {
  return {static_cast<int64_t>(random_->Below(1500000000)), static_cast<uint32_t>(random_->Below(1000000000))};
}

ModelOp OpGen::Op(OpKind kind, std::string path) {
  ModelOp op;
  op.kind = kind;
  op.path = std::move(path);
  return op;
}

ModelOp OpGen::Write(int slot, uint64_t offset, uint64_t length) {
  ModelOp op = Op(OpKind::kWrite);
  op.at = slot;
  op.offset = std::min(offset, profile_.max_file);
  op.length = std::min(length, profile_.max_file - op.offset);
  op.fill = Chance(50) ? 0 : ++counter_;
  op.kill_set_id = profile_.kill_set_id && Chance(100);
  return op;
}

ModelOp OpGen::Open(const std::string& path, int flags) {
  ModelOp op = Op(OpKind::kOpen, path);
  op.slot = AnySlot();
  op.flags = flags;
  return op;
}

ModelOp OpGen::CreateFile(const std::string& path, int flags) {
  ModelOp op = Op(OpKind::kCreate, path);
  op.slot = AnySlot();
  op.flags = flags;
  op.mode = Chance(700) ? 0644 : Pick(kModes);
  if (profile_.callers && Chance(300)) {
    op.uid = 1000 + random_->Below(3);
    op.gid = 100 + random_->Below(3);
  }
  return op;
}

ModelOp OpGen::Make(OpKind kind) {
  ModelOp op = Op(kind, Chance(850) ? FreshPath() : NewPath());
  if (profile_.callers && Chance(300)) {
    op.uid = 1000 + random_->Below(3);
    op.gid = 100 + random_->Below(3);
  }
  if (kind == OpKind::kMkdir) {
    op.mode = Chance(800) ? 0755 : 01777;
  } else if (kind == OpKind::kSymlink) {
    op.path2 = Chance(20) ? std::string(kMaxSymlink, 't') : Chance(10) ? std::string(kMaxSymlink + 1, 't') : AnyPath();
    if (op.path2.empty()) op.path2 = "target";
  } else {
    constexpr FileType kTypes[] = {FileType::kRegular, FileType::kFifo, FileType::kSocket, FileType::kCharDevice,
                                   FileType::kBlockDevice};
    const FileType type = Pick(kTypes);
    op.sub = static_cast<uint32_t>(type);
    op.mode = 0640;
    if (type == FileType::kCharDevice || type == FileType::kBlockDevice)
      op.rdev = makedev(1 + random_->Below(20), random_->Below(300));
  }
  return op;
}

ModelOp OpGen::Attribute() {
  const uint64_t dice = random_->Below(10);
  const OpKind kind = dice < 4   ? OpKind::kTruncate
                      : dice < 6 ? OpKind::kChmod
                      : dice < 8 ? OpKind::kUtimens
                                 : OpKind::kChown;
  ModelOp op = Op(kind, kind == OpKind::kTruncate && Chance(900) ? AnyOf(FileType::kRegular) : AnyPath());
  if (Chance(300)) {
    op.at = AnySlot();
    op.path.clear();
  }
  op.length = kind == OpKind::kTruncate ? AnySize() : 0;
  if (kind == OpKind::kChmod) op.mode = Pick(kModes);
  if (kind == OpKind::kChown) {
    op.uid = 1000 + random_->Below(4);
    op.gid = 100 + random_->Below(4);
  }
  if (kind == OpKind::kUtimens) {
    op.sub = (Chance(500) ? AttrChange::kAtime : AttrChange::kAtimeNow) * (random_->Below(3) != 0);
    op.sub |= (Chance(700) ? AttrChange::kMtime : AttrChange::kMtimeNow) * (op.sub == 0 || Chance(700));
    op.atime = AnyTime();
    op.mtime = AnyTime();
  }
  return op;
}

ModelOp OpGen::Data() {
  const int slot = AnySlot();
  const uint64_t dice = random_->Below(100);
  if (dice < 55) return Write(slot, AnyOffset(), AnyLength());
  ModelOp op = Op(dice < 80 ? OpKind::kRead : dice < 93 ? OpKind::kFallocate : OpKind::kSeek);
  op.at = slot;
  op.offset = AnyOffset();
  op.length = AnyLength();
  if (op.kind == OpKind::kFallocate) op.sub = random_->Below(5);
  if (op.kind == OpKind::kSeek) {
    op.sub = random_->Below(2);
    op.length = 0;
  }
  return op;
}

ModelOp OpGen::Xattr() {
  constexpr OpKind kKinds[] = {OpKind::kSetXattr, OpKind::kSetXattr,   OpKind::kSetXattr,
                               OpKind::kGetXattr, OpKind::kListXattrs, OpKind::kRemoveXattr};
  ModelOp op = Op(Pick(kKinds), AnyPath());
  op.name = Pick(kXattrs);
  if (op.kind == OpKind::kListXattrs) op.name.clear();
  if (op.kind == OpKind::kSetXattr) {
    op.fill = ++counter_;
    op.length = Chance(100) ? profile_.max_xattr : random_->Below(60);
    op.sub = Chance(700) ? 0 : random_->Below(3);
  }
  return op;
}

ModelOp OpGen::Rename() {
  ModelOp op = Op(OpKind::kRename, Chance(950) ? AnyPath() : NewPath());
  op.path2 = Chance(500) ? FreshPath() : Chance(800) ? AnyPath() : NewPath();
  const uint64_t dice = random_->Below(100);
  if (dice < 12) op.sub = static_cast<uint32_t>(RenameKind::kNoReplace);
  if (dice >= 12 && dice < 24) op.sub = static_cast<uint32_t>(RenameKind::kExchange);
  return op;
}

ModelOp OpGen::RunStep(bool* found) {
  *found = true;
  const std::pair<int, OpKind> steps[] = {
      {profile_.sync, OpKind::kSync},
      {profile_.drop_caches, OpKind::kDropCaches},
      {profile_.compare, OpKind::kCompare},
      {profile_.remount, OpKind::kRemount},
      {profile_.crash_client, OpKind::kCrashClient},
      {profile_.restart_server, OpKind::kRestartServer},
      {profile_.crash_server, OpKind::kCrashServer},
      {profile_.crash_both, OpKind::kCrashBoth},
  };
  int dice = static_cast<int>(random_->Below(1000));
  for (const auto& [weight, kind] : steps) {
    if (dice < weight) return Op(kind);
    dice -= weight;
  }
  if (dice < profile_.fsync) {
    ModelOp op = Op(Chance(700) ? OpKind::kFsync : OpKind::kFsyncDir);
    if (op.kind == OpKind::kFsync) {
      op.at = AnySlot();
      op.sub = random_->Below(2);
    } else {
      op.path = AnyDir();
    }
    return op;
  }
  *found = false;
  return {};
}

ModelOp OpGen::Single() {
  const uint64_t dice = random_->Below(100);
  const bool full = all_.size() > profile_.max_inodes;
  if (dice < 30) return Data();
  if (dice < 36 && !full) return Make(OpKind::kMkdir);
  if (dice < 38 && !full) return Make(OpKind::kMknod);
  if (dice < 41 && !full) return Make(OpKind::kSymlink);
  if (dice < 49 && !full) return CreateFile(FreshPath(), O_RDWR | O_EXCL);
  if (dice < 52)
    return CreateFile(Chance(500) ? AnyOf(FileType::kRegular) : NewPath(), O_RDWR | (Chance(300) ? O_TRUNC : 0));
  if (dice < 60) {
    constexpr int kFlags[] = {O_RDONLY, O_RDWR, O_WRONLY, O_RDWR | O_APPEND, O_WRONLY | O_APPEND, O_RDWR | O_TRUNC};
    return Chance(750) ? Open(AnyOf(FileType::kRegular), Pick(kFlags))
                       : Open(Chance(700) ? AnyDir() : AnyPath(), O_RDONLY);
  }
  if (dice < 63) {
    ModelOp op = Op(OpKind::kClose);
    op.slot = AnySlot();
    return op;
  }
  if (dice < 68) return Op(OpKind::kUnlink, AnyPath());
  if (dice < 71) return Op(OpKind::kRmdir, Chance(850) ? AnyDir() : AnyPath());
  if (dice < 79) return Rename();
  if (dice < 81) {
    ModelOp op = Op(OpKind::kLink, Chance(800) ? AnyOf(FileType::kRegular) : AnyPath());
    if (Chance(200)) {
      op.at = AnySlot();
      op.path.clear();
    }
    op.path2 = Chance(800) ? FreshPath() : NewPath();
    return op;
  }
  if (dice < 88) return Attribute();
  if (dice < 91) return Xattr();
  if (dice < 93) return Op(OpKind::kReadlink, Chance(800) ? AnyOf(FileType::kSymlink) : AnyPath());
  if (dice < 96) return Op(OpKind::kReaddir, Chance(850) ? AnyDir() : AnyPath());
  ModelOp op = Op(OpKind::kStat, Chance(700) ? AnyPath() : NewPath());
  if (Chance(300)) {
    op.at = AnySlot();
    op.path = Chance(500) ? "" : AnyName();
  }
  return op;
}

ModelOp OpGen::Next(const RefState& state) {
  if (queue_.empty()) {
    Scan(state);
    bool found = false;
    ModelOp step = RunStep(&found);
    if (found) return step;
    if (!Chance(60)) return Single();
    Pattern(state);
    if (queue_.empty()) return Single();
  }
  ModelOp op = std::move(queue_.front());
  queue_.pop_front();
  return op;
}

}  // namespace archil::test
