#include "common/env/mem_files.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace archil {
namespace {

constexpr uint64_t kSector = 512;  // a disk writes this much whole or not at all

std::vector<std::string> Split(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
    if (!part.empty() && part != ".") parts.emplace_back(part);
  }
  return parts;
}

// A write or (without bytes) a truncation that no sync has covered.
struct Change {
  uint64_t offset = 0;  // a truncation: the new size
  std::optional<std::string> bytes;
};

void Apply(const Change& change, std::string* content) {
  if (!change.bytes) {
    content->resize(change.offset);
    return;
  }
  if (content->size() < change.offset + change.bytes->size()) content->resize(change.offset + change.bytes->size());
  std::copy(change.bytes->begin(), change.bytes->end(), content->begin() + static_cast<ptrdiff_t>(change.offset));
}

// Applies some sectors of a write: a prefix, or any subset.
void ApplyTorn(const Change& change, Random& random, std::string* content) {
  const uint64_t begin = change.offset;
  const uint64_t end = begin + change.bytes->size();
  const uint64_t first_sector = begin / kSector;
  const uint64_t sectors = (end + kSector - 1) / kSector - first_sector;
  const bool prefix = random.Below(2) == 0;
  const uint64_t kept = random.Below(sectors + 1);
  for (uint64_t i = 0; i < sectors; ++i) {
    if (prefix ? i >= kept : random.Below(2) == 0) continue;
    const uint64_t from = std::max(begin, (first_sector + i) * kSector);
    const uint64_t to = std::min(end, (first_sector + i + 1) * kSector);
    Apply(Change{from, change.bytes->substr(from - begin, to - from)}, content);
  }
}

}  // namespace

struct MemFiles::Node {
  Node(bool directory, std::shared_ptr<uint64_t> used) : is_directory(directory), used(std::move(used)) {}
  ~Node() { *used -= current.size(); }

  const bool is_directory;
  std::shared_ptr<uint64_t> used;
  // A file: what reads see, what a crash leaves for certain, and the way from one to the other.
  std::string current;
  std::string durable;
  std::vector<Change> changes;
  // A directory, likewise. A null target is a removal.
  std::map<std::string, NodePtr> entries;
  std::map<std::string, NodePtr> durable_entries;
  std::vector<std::pair<std::string, NodePtr>> entry_changes;

  void SyncEntries() {
    for (auto& [name, target] : entry_changes) {
      if (target == nullptr) {
        durable_entries.erase(name);
      } else {
        durable_entries[name] = target;
      }
    }
    entry_changes.clear();
  }
};

class MemFiles::Handle final : public File {
 public:
  Handle(MemFiles& files, NodePtr node, std::string path, bool writable, bool lock, uint64_t generation)
      : files_(files), node_(std::move(node)), path_(std::move(path)), writable_(writable), lock_(lock),
        generation_(generation) {}

  ~Handle() override {
    MutexLock lock(files_.mu_);
    --files_.open_;
    if (lock_ && generation_ == files_.generation_) files_.locks_.erase(path_);
    node_.reset();  // may be the last reference; its size is subtracted under the lock
  }

  Result<std::string> Read(uint64_t offset, size_t length) override {
    MutexLock lock(files_.mu_);
    ARCHIL_RETURN_IF_ERROR(Usable());
    ARCHIL_RETURN_IF_ERROR(files_.Injection(Call::kRead, path_));
    if (offset >= node_->current.size()) return std::string();
    return node_->current.substr(offset, length);
  }

  Status Write(uint64_t offset, std::string_view bytes) override {
    if (bytes.empty()) return Ok();
    files_.CallHook(Call::kWrite, path_);
    MutexLock lock(files_.mu_);
    ARCHIL_RETURN_IF_ERROR(UsableForWrite());
    ARCHIL_RETURN_IF_ERROR(files_.Injection(Call::kWrite, path_));
    return Do(Change{offset, std::string(bytes)}, std::max<uint64_t>(node_->current.size(), offset + bytes.size()));
  }

  Status Truncate(uint64_t size) override {
    files_.CallHook(Call::kTruncate, path_);
    MutexLock lock(files_.mu_);
    ARCHIL_RETURN_IF_ERROR(UsableForWrite());
    ARCHIL_RETURN_IF_ERROR(files_.Injection(Call::kTruncate, path_));
    return Do(Change{size, std::nullopt}, size);
  }

  Status Sync() override {
    files_.CallHook(Call::kSync, path_);
    MutexLock lock(files_.mu_);
    ARCHIL_RETURN_IF_ERROR(Usable());
    if (files_.TakeStep() != Step::kGo) return Code::kIo;
    const Status injected = files_.Injection(Call::kSync, path_);
    for (const Change& change : node_->changes) {
      if (injected.ok() || files_.lossy_syncs_->Below(2) == 0) Apply(change, &node_->durable);
    }
    node_->changes.clear();
    return injected;
  }

  Result<uint64_t> Size() override {
    MutexLock lock(files_.mu_);
    ARCHIL_RETURN_IF_ERROR(Usable());
    return static_cast<uint64_t>(node_->current.size());
  }

 private:
  Status Usable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_.mu_) {
    if (generation_ != files_.generation_) return Error(Code::kIo, path_ + " was open when the machine crashed");
    return files_.Alive();
  }
  Status UsableForWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_.mu_) {
    ARCHIL_RETURN_IF_ERROR(Usable());
    if (!writable_) return Error(Code::kBadHandle, path_ + " is open for reading only");
    return Ok();
  }
  Status Do(Change change, uint64_t new_size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_.mu_) {
    ARCHIL_RETURN_IF_ERROR(files_.Reserve(*node_, new_size));
    const Step step = files_.TakeStep();
    if (step == Step::kDead) return Code::kIo;
    Apply(change, &node_->current);
    node_->changes.push_back(std::move(change));
    return step == Step::kDie ? Status(Code::kIo) : Ok();
  }

  MemFiles& files_;
  NodePtr node_;
  const std::string path_;
  const bool writable_;
  const bool lock_;
  const uint64_t generation_;
};

MemFiles::MemFiles() : lossy_syncs_(SeededRandom(1)), used_(std::make_shared<uint64_t>(0)) {
  root_ = std::make_shared<Node>(true, used_);
}

MemFiles::~MemFiles() = default;

void MemFiles::Crash(Random& random) {
  MutexLock lock(mu_);
  std::set<const Node*> done;
  CrashDir(*root_, random, &done);
  EndGeneration();
}

void MemFiles::KillProcess() {
  MutexLock lock(mu_);
  EndGeneration();
}

void MemFiles::EndGeneration() {
  locks_.clear();
  injected_.clear();
  ++generation_;
  stopped_ = false;
  stop_at_ = std::numeric_limits<uint64_t>::max();
}

void MemFiles::CrashDir(Node& dir, Random& random, std::set<const Node*>* done) {
  std::erase_if(dir.entry_changes, [&random](const auto&) { return random.Below(2) == 0; });
  dir.SyncEntries();
  dir.entries = dir.durable_entries;
  for (auto& [name, node] : dir.entries) {
    if (!done->insert(node.get()).second) continue;  // another link of it was seen
    if (node->is_directory) {
      CrashDir(*node, random, done);
    } else {
      CrashFile(*node, random);
    }
  }
}

void MemFiles::CrashFile(Node& node, Random& random) {
  for (const Change& change : node.changes) {
    const uint64_t fate = random.Below(8);
    const uint64_t end = change.offset + (change.bytes ? change.bytes->size() : 0);
    if (fate < 3) {
      Apply(change, &node.durable);
    } else if (fate < 5 && change.bytes) {
      ApplyTorn(change, random, &node.durable);
    } else if (fate == 5 && change.bytes && node.durable.size() < end) {
      node.durable.resize(end);  // the size came through, the bytes did not
    }
  }
  node.changes.clear();
  *node.used += node.durable.size();
  *node.used -= node.current.size();
  node.current = node.durable;
}

void MemFiles::FailAfter(uint64_t steps) {
  MutexLock lock(mu_);
  stop_at_ = steps_ + steps;
}

void MemFiles::NeverFail() {
  MutexLock lock(mu_);
  stop_at_ = std::numeric_limits<uint64_t>::max();
}

bool MemFiles::stopped() const {
  MutexLock lock(mu_);
  return stopped_;
}

uint64_t MemFiles::steps() const {
  MutexLock lock(mu_);
  return steps_;
}

void MemFiles::OnStep(std::function<void(Call, const std::string&)> hook) { hook_ = std::move(hook); }

void MemFiles::FailNext(Call call, std::string path_part, Code code, uint64_t skip) {
  MutexLock lock(mu_);
  injected_.push_back({call, std::move(path_part), code, skip});
}

void MemFiles::SetCapacity(uint64_t bytes) {
  MutexLock lock(mu_);
  capacity_ = bytes;
}

uint64_t MemFiles::used_bytes() const {
  MutexLock lock(mu_);
  return *used_;
}

uint64_t MemFiles::open_files() const {
  MutexLock lock(mu_);
  return open_;
}

Status MemFiles::FlipByte(const std::string& path, uint64_t offset) {
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  if (node->is_directory) return Error(Code::kIsDirectory, path);
  if (offset >= node->current.size()) return Error(Code::kInvalid, path + " is shorter");
  node->current[offset] = static_cast<char>(node->current[offset] ^ 0x5a);
  if (offset < node->durable.size()) node->durable[offset] = node->current[offset];
  return Ok();
}

MemFiles::Step MemFiles::TakeStep() {
  if (stopped_) return Step::kDead;
  if (steps_++ < stop_at_) return Step::kGo;
  stopped_ = true;
  return Step::kDie;
}

void MemFiles::CallHook(Call call, const std::string& path) {
  if (hook_) hook_(call, path);
}

Status MemFiles::Injection(Call call, const std::string& path) {
  for (auto it = injected_.begin(); it != injected_.end(); ++it) {
    if (it->call != call || path.find(it->path_part) == std::string::npos) continue;
    if (it->skip > 0) {
      --it->skip;
      continue;
    }
    const Error error(it->code, "injected failure on " + path);
    injected_.erase(it);
    return error;
  }
  return Ok();
}

Status MemFiles::Alive() const {
  if (stopped_) return Error(Code::kIo, "the machine has stopped");
  return Ok();
}

Result<MemFiles::NodePtr> MemFiles::Find(const std::string& path) const {
  ARCHIL_RETURN_IF_ERROR(Alive());
  NodePtr node = root_;
  for (const std::string& part : Split(path)) {
    if (!node->is_directory) return Error(Code::kNotDirectory, path);
    const auto it = node->entries.find(part);
    if (it == node->entries.end()) return Error(Code::kNotFound, path);
    node = it->second;
  }
  return node;
}

Result<MemFiles::NodePtr> MemFiles::FindParent(const std::string& path, std::string* name) const {
  std::vector<std::string> parts = Split(path);
  if (parts.empty()) return Error(Code::kInvalid, "the root has no name");
  *name = parts.back();
  ARCHIL_ASSIGN_OR_RETURN(NodePtr dir, Find(DirName(path)));
  if (!dir->is_directory) return Error(Code::kNotDirectory, path);
  return dir;
}

Status MemFiles::ChangeEntry(Node& dir, const std::string& name, NodePtr target) {
  const Step step = TakeStep();
  if (step == Step::kDead) return Code::kIo;
  if (target == nullptr) {
    dir.entries.erase(name);
  } else {
    dir.entries[name] = target;
  }
  dir.entry_changes.emplace_back(name, std::move(target));
  return step == Step::kDie ? Status(Code::kIo) : Ok();
}

Status MemFiles::Reserve(Node& node, uint64_t new_size) {
  const uint64_t old_size = node.current.size();
  if (new_size > old_size && *used_ + (new_size - old_size) > capacity_) {
    return Error(Code::kNoSpace, "no space left on the memory disk");
  }
  *used_ = *used_ - old_size + new_size;
  return Ok();
}

std::unique_ptr<File> MemFiles::MakeHandle(NodePtr node, std::string path, bool writable, bool lock) {
  ++open_;
  return std::make_unique<Handle>(*this, std::move(node), std::move(path), writable, lock, generation_);
}

Result<std::unique_ptr<File>> MemFiles::Open(const std::string& path, OpenMode mode) {
  CallHook(Call::kOpen, path);
  MutexLock lock(mu_);
  ARCHIL_RETURN_IF_ERROR(Alive());
  ARCHIL_RETURN_IF_ERROR(Injection(Call::kOpen, path));
  std::string name;
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr dir, FindParent(path, &name));
  const auto it = dir->entries.find(name);
  if (it != dir->entries.end()) {
    if (mode == OpenMode::kCreateNew) return Error(Code::kExists, path);
    if (it->second->is_directory) return Error(Code::kIsDirectory, path);
    return MakeHandle(it->second, path, mode != OpenMode::kRead, false);
  }
  if (mode == OpenMode::kRead || mode == OpenMode::kReadWrite) return Error(Code::kNotFound, path);
  NodePtr node = std::make_shared<Node>(false, used_);
  ARCHIL_RETURN_IF_ERROR(ChangeEntry(*dir, name, node));
  return MakeHandle(std::move(node), path, true, false);
}

Result<bool> MemFiles::Exists(const std::string& path) {
  MutexLock lock(mu_);
  const Result<NodePtr> found = Find(path);
  if (found.ok()) return true;
  if (found.code() == Code::kNotFound || found.code() == Code::kNotDirectory) return false;
  return found.error();
}

Result<FileInfo> MemFiles::Stat(const std::string& path) {
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  return FileInfo{node->is_directory, node->current.size()};
}

Status MemFiles::Remove(const std::string& path) {
  CallHook(Call::kRemove, path);
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  if (node->is_directory) return Error(Code::kIsDirectory, path);
  ARCHIL_RETURN_IF_ERROR(Injection(Call::kRemove, path));
  std::string name;
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr dir, FindParent(path, &name));
  return ChangeEntry(*dir, name, nullptr);
}

Status MemFiles::RemoveChildren(const NodePtr& dir) {
  while (!dir->entries.empty()) {
    const auto [name, node] = *dir->entries.begin();
    if (node->is_directory) ARCHIL_RETURN_IF_ERROR(RemoveChildren(node));
    ARCHIL_RETURN_IF_ERROR(ChangeEntry(*dir, name, nullptr));
  }
  return Ok();
}

Status MemFiles::RemoveTree(const std::string& path) {
  CallHook(Call::kRemove, path);
  MutexLock lock(mu_);
  const Result<NodePtr> found = Find(path);
  if (!found.ok()) return found.code() == Code::kNotFound ? Ok() : Status(found.error());
  const NodePtr node = *found;
  if (node->is_directory) ARCHIL_RETURN_IF_ERROR(RemoveChildren(node));
  if (node == root_) return Ok();
  std::string name;
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr dir, FindParent(path, &name));
  return ChangeEntry(*dir, name, nullptr);
}

Status MemFiles::Rename(const std::string& from, const std::string& to) {
  CallHook(Call::kRename, from);
  MutexLock lock(mu_);
  ARCHIL_RETURN_IF_ERROR(Alive());
  ARCHIL_RETURN_IF_ERROR(Injection(Call::kRename, from));
  std::string from_name;
  std::string to_name;
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr from_dir, FindParent(from, &from_name));
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr to_dir, FindParent(to, &to_name));
  const auto source = from_dir->entries.find(from_name);
  if (source == from_dir->entries.end()) return Error(Code::kNotFound, from);
  const NodePtr node = source->second;
  if (const auto target = to_dir->entries.find(to_name); target != to_dir->entries.end()) {
    if (target->second == node) return Ok();
    if (target->second->is_directory && !node->is_directory) return Error(Code::kIsDirectory, to);
    if (!target->second->is_directory && node->is_directory) return Error(Code::kNotDirectory, to);
    if (!target->second->entries.empty()) return Error(Code::kNotEmpty, to);
  }
  ARCHIL_RETURN_IF_ERROR(ChangeEntry(*to_dir, to_name, node));
  return ChangeEntry(*from_dir, from_name, nullptr);
}

Status MemFiles::Link(const std::string& from, const std::string& to) {
  CallHook(Call::kLink, from);
  MutexLock lock(mu_);
  ARCHIL_RETURN_IF_ERROR(Alive());
  ARCHIL_RETURN_IF_ERROR(Injection(Call::kLink, from));
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr node, Find(from));
  if (node->is_directory) return Error(Code::kPermission, from + " is a directory");
  std::string name;
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr dir, FindParent(to, &name));
  if (dir->entries.contains(name)) return Error(Code::kExists, to);
  return ChangeEntry(*dir, name, node);
}

Status MemFiles::MakeDirs(const std::string& path) {
  MutexLock lock(mu_);
  ARCHIL_RETURN_IF_ERROR(Alive());
  NodePtr dir = root_;
  for (const std::string& part : Split(path)) {
    const auto it = dir->entries.find(part);
    if (it != dir->entries.end()) {
      if (!it->second->is_directory) return Error(Code::kNotDirectory, path);
      if (dir->durable_entries.contains(part) && dir->durable_entries[part] == it->second) {
        dir = it->second;
        continue;
      }  // else made by a process that was killed before it synced
    }
    NodePtr child = it != dir->entries.end() ? it->second : std::make_shared<Node>(true, used_);
    if (it == dir->entries.end()) ARCHIL_RETURN_IF_ERROR(ChangeEntry(*dir, part, child));
    if (TakeStep() != Step::kGo) return Code::kIo;
    // Only this entry becomes durable; others of the directory need a SyncDir of their own.
    std::erase_if(dir->entry_changes, [&part](const auto& change) { return change.first == part; });
    dir->durable_entries[part] = child;
    dir = std::move(child);
  }
  return Ok();
}

Result<std::vector<std::string>> MemFiles::List(const std::string& dir) {
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr node, Find(dir));
  if (!node->is_directory) return Error(Code::kNotDirectory, dir);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) names.push_back(name);
  return names;
}

Status MemFiles::SyncDir(const std::string& dir) {
  CallHook(Call::kSyncDir, dir);
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr node, Find(dir));
  if (!node->is_directory) return Error(Code::kNotDirectory, dir);
  if (TakeStep() != Step::kGo) return Code::kIo;
  ARCHIL_RETURN_IF_ERROR(Injection(Call::kSyncDir, dir));
  node->SyncEntries();
  return Ok();
}

Result<uint64_t> MemFiles::FreeBytes(const std::string& path) {
  MutexLock lock(mu_);
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  return capacity_ - std::min(capacity_, *used_);
}

Result<std::unique_ptr<File>> MemFiles::LockFile(const std::string& path) {
  MutexLock lock(mu_);
  ARCHIL_RETURN_IF_ERROR(Alive());
  std::string name;
  ARCHIL_ASSIGN_OR_RETURN(const NodePtr dir, FindParent(path, &name));
  if (locks_.contains(path)) return Error(Code::kBusy, path + " is locked by another process");
  NodePtr& node = dir->entries[name];
  if (node == nullptr) {  // not a step: whether a lock file survives means nothing
    node = std::make_shared<Node>(false, used_);
    dir->durable_entries[name] = node;
  }
  locks_.insert(path);
  return MakeHandle(node, path, true, true);
}

}  // namespace archil
