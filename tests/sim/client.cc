#include "tests/sim/client.h"

#include <fcntl.h>
#include <fmt/format.h>

namespace archil::sim {
namespace {

constexpr size_t kReadAll = 4096;

// Whether the answer leaves open what happened.
bool LeavesOpen(Code code) { return BandOf(code) != Band::kOk && BandOf(code) != Band::kVerdict; }

void Answer(Event& event, Code code) {
  event.code = code;
  event.unknown = LeavesOpen(code);
}

}  // namespace

void SimKernel::Drop(InodeId ino, bool pages) {
  ++stamp_;
  const auto it = known_.find(ino);
  if (it == known_.end()) return;
  it->second.attr.reset();
  if (pages) it->second.pages.reset();
  scheduler_.Note(fmt::format("drops {}{}", ino.value, pages ? " with pages" : ""));
}

void SimKernel::DropAttrs() {
  ++stamp_;
  for (auto& [ino, known] : known_) known.attr.reset();
}

void SimKernel::InvalidateInode(InodeId ino, uint64_t, uint64_t length) { Drop(ino, length > 0); }

// A page that a write waits with is dropped when that is answered.
void SimKernel::AwaitPages(InodeId ino, const std::function<bool()>& blocked) {
  while (locked_.contains(ino) && !blocked()) scheduler_.Sleep(absl::Milliseconds(5));
}

void SimKernel::InvalidateEntry(InodeId parent, const std::string& name) {
  ++stamp_;
  names_.erase({parent, name});
}

void SimKernel::DropNow(Names names, const std::vector<KernelCache::Drop>& inodes, const std::function<bool()>& blocked) {
  scheduler_.Sleep(absl::Microseconds(scheduler_.random().Below(300)));
  ++stamp_;
  if (names == Names::kForget) names_.clear();
  for (const auto& drop : inodes) {
    Drop(drop.ino, drop.pages);
    if (drop.pages) AwaitPages(drop.ino, blocked);
  }
}

void SimKernel::Enter(const Entry& entry, uint64_t stamp) {
  Known& known = known_[entry.attr.ino];
  ++known.references;
  if (entry.attr_ttl > absl::ZeroDuration() && stamp == stamp_) known.attr = entry.attr;
}

void SimKernel::ForgetAll() {
  ++stamp_;
  names_.clear();
  for (const auto& [ino, known] : std::exchange(known_, {})) fs_.Forget(ino, known.references);
}

void SimKernel::Lookup(const OpContext& ctx, Event& e) {
  const NameKey key{e.ino, e.name};
  // A present one shows only together with attributes.
  if (const auto it = names_.find(key); it != names_.end() && (!it->second || known_[it->second].attr)) {
    ++from_memory_;
    e.found = it->second;
    return Answer(e, it->second ? Code::kOk : Code::kNotFound);
  }
  const uint64_t stamp = stamp_;
  const auto entry = fs_.Lookup(ctx, e.ino, e.name);
  Answer(e, entry.code());
  if (entry.ok()) {
    e.found = entry->attr.ino;
    Enter(*entry, stamp);
    if (entry->entry_ttl > absl::ZeroDuration() && stamp == stamp_) names_[key] = e.found;
  } else if (entry.code() == Code::kNotFound && fs_.NegativeTtl(e.ino) > absl::ZeroDuration() && stamp == stamp_) {
    names_[key] = InodeId{};
  }
}

void SimKernel::GetAttr(const OpContext& ctx, Event& e) {
  const auto it = known_.find(e.ino);
  std::optional<Attr> attr;
  if (it != known_.end() && it->second.attr) {
    ++from_memory_;
    attr = it->second.attr;
    Answer(e, Code::kOk);
  } else {
    const uint64_t stamp = stamp_;
    const auto reply = fs_.GetAttr(ctx, e.ino);
    Answer(e, reply.code());
    if (!reply.ok()) return;
    attr = reply->attr;
    if (reply->ttl > absl::ZeroDuration() && stamp == stamp_ && known_.contains(e.ino)) known_[e.ino].attr = attr;
  }
  e.directory = attr->type == FileType::kDirectory;
  e.nlink = attr->nlink;
  e.size = e.directory ? 0 : attr->size;
}

void SimKernel::Read(const OpContext& outer, Event& e) {
  const auto it = known_.find(e.ino);
  const auto& handles = handles_[{e.thread, e.ino}];
  OpContext ctx = outer;
  ctx.handle = handles.empty() ? 0 : handles.back();
  const bool direct = direct_.contains(ctx.handle);
  if (!direct && it != known_.end() && it->second.pages) {
    ++from_memory_;
    scheduler_.Note(fmt::format("thread {} reads {} from pages", e.thread, e.ino.value));
    e.data = e.offset < it->second.pages->size() ? it->second.pages->substr(e.offset) : std::string();
    return Answer(e, Code::kOk);
  }
  const uint64_t stamp = stamp_;
  const auto reply = fs_.Read(ctx, e.ino, e.offset, kReadAll);
  Answer(e, reply.code());
  if (!reply.ok()) return;
  e.data.clear();
  for (const Buffer& piece : reply->pieces) e.data.append(piece.view());
  if (!direct && e.offset == 0 && stamp == stamp_ && known_.contains(e.ino)) known_[e.ino].pages = e.data;
}

void SimKernel::List(const OpContext& ctx, Event& e) {
  const Status status = fs_.Readdir(ctx, e.ino, 0, false, [&](const DirItem& item) {
    if (item.name != "." && item.name != "..") e.names[std::string(item.name)] = item.ino;
    return true;
  });
  Answer(e, status.code());
  if (!status.ok()) e.names.clear();
}

void SimKernel::Birth(const OpContext& ctx, Event& e) {
  InvalidateEntry(e.ino, e.name);
  Drop(e.ino, true);
  const uint64_t stamp = stamp_;
  if (e.verb == Verb::kCreate) {
    const auto made = fs_.Create(ctx, e.ino, e.name, 0644, O_RDWR);
    Answer(e, made.code());
    if (made.ok()) {
      e.found = made->entry.attr.ino;
      Enter(made->entry, stamp);
      handles_[{e.thread, e.found}].push_back(made->open.handle);
    }
  } else {
    const auto made = fs_.Mkdir(ctx, e.ino, e.name, 0755);
    Answer(e, made.code());
    if (made.ok()) {
      e.found = made->attr.ino;
      Enter(*made, stamp);
    }
  }
  InvalidateEntry(e.ino, e.name);
  Drop(e.ino, true);
}

void SimKernel::ChangeNames(const OpContext& ctx, Event& e) {
  InvalidateEntry(e.ino, e.name);
  if (!e.new_name.empty()) InvalidateEntry(e.to, e.new_name);
  DropAttrs();
  Status status;
  switch (e.verb) {
    case Verb::kUnlink: status = fs_.Unlink(ctx, e.ino, e.name); break;
    case Verb::kRmdir: status = fs_.Rmdir(ctx, e.ino, e.name); break;
    case Verb::kRename: status = fs_.Rename(ctx, e.ino, e.name, e.to, e.new_name, RenameMode::kPlain); break;
    case Verb::kExchange: status = fs_.Rename(ctx, e.ino, e.name, e.to, e.new_name, RenameMode::kExchange); break;
    default: {
      const auto entry = fs_.Link(ctx, e.to, e.ino, e.name);
      if (entry.ok()) ++known_[entry->attr.ino].references;
      status = entry.ok() ? Ok() : Status(entry.error());
    }
  }
  Answer(e, status.code());
  InvalidateEntry(e.ino, e.name);
  if (!e.new_name.empty()) InvalidateEntry(e.to, e.new_name);
  DropAttrs();
}

void SimKernel::ChangeFile(const OpContext& ctx, Event& e) {
  // The page that it completes may be there already: then it is free again while the write waits.
  const bool locked = e.verb != Verb::kTruncate && scheduler_.random().Below(2) == 0;
  if (locked) {
    Drop(e.ino, true);
    locked_.insert(e.ino);
  }
  if (e.verb == Verb::kTruncate) {
    SetAttrRequest request;
    request.fields = SetAttrRequest::kSize;
    request.size = e.size;
    Answer(e, fs_.SetAttr(ctx, e.ino, request).code());
  } else {
    const auto wrote = fs_.Write(ctx, e.ino, e.offset, e.data, e.verb == Verb::kAppend, false);
    Answer(e, wrote.code());
  }
  if (locked) locked_.erase(locked_.find(e.ino));
  Drop(e.ino, true);
}

void SimKernel::Call(const OpContext& ctx, Event& e) {
  auto& handles = handles_[{e.thread, e.ino}];
  switch (e.verb) {
    case Verb::kLookup: return Lookup(ctx, e);
    case Verb::kGetAttr: return GetAttr(ctx, e);
    case Verb::kList: return List(ctx, e);
    case Verb::kRead: return Read(ctx, e);
    case Verb::kCreate:
    case Verb::kMkdir: return Birth(ctx, e);
    case Verb::kWrite:
    case Verb::kAppend:
    case Verb::kTruncate: return ChangeFile(ctx, e);
    case Verb::kOpen: {
      const auto open = fs_.Open(ctx, e.ino, O_RDWR);
      Answer(e, open.code());
      if (!open.ok()) return;
      handles.push_back(open->handle);
      if (open->direct_io) direct_.insert(open->handle);
      if (!open->keep_cache) Drop(e.ino, true);
      return;
    }
    case Verb::kClose:
      if (!handles.empty()) {
        direct_.erase(handles.back());
        fs_.Release(e.ino, handles.back());
        handles.pop_back();
      }
      return Answer(e, Code::kOk);
    case Verb::kFsync: {
      const HandleId handle = handles.empty() ? 0 : handles.back();
      return Answer(e, fs_.Fsync(ctx, e.ino, handle, false).code());
    }
    default: return ChangeNames(ctx, e);
  }
}

SimClient::SimClient(Network& network, MetaService& meta, DataServicePool& data, Random& random, int client)
    : network_(network),
      random_(random),
      number_(client),
      end_(std::make_shared<ClientEnd>(fmt::format("client {}", client))),
      links_(network, end_, meta, data) {}

SimClient::~SimClient() {
  if (mount_ != nullptr) Crash();
}

Status SimClient::Start(const MountConfig& config) {
  MountConfig mine = config;
  mine.client_name = end_->name;
  auto mount = Mount::Open({network_.scheduler(), random_, links_.meta(), links_.data()}, mine);
  if (!mount.ok()) return mount.error();
  mount_ = std::move(*mount);
  kernel_ = std::make_unique<SimKernel>(network_.scheduler(), mount_->fs());
  mount_->SetKernelCache(kernel_.get());
  return Ok();
}

void SimClient::Crash() {
  if (end_->dead) return;
  end_->dead = true;
  network_.scheduler().Note(end_->name + " crashes");
  mount_->Abandon();
}

bool SimClient::fenced() { return mount_->fs().GetStatus().state == "fenced"; }

bool SimClient::active() {
  const MountStatus status = mount_->fs().GetStatus();
  return status.state == "active" && status.lease_left > absl::ZeroDuration();
}

bool SimClient::TakeLost() {
  const uint64_t lost = mount_->fs().GetStatus().lost_ops;
  return std::exchange(lost_ops_, lost) != lost;
}

Result<Tree> SimClient::Dump(const OpContext& ctx) {
  Tree tree;
  std::vector<InodeId> left{kRootInode};
  std::vector<InodeId> looked_up;
  FsApi& fs = mount_->fs();
  while (!left.empty()) {
    const InodeId ino = left.back();
    left.pop_back();
    if (tree.contains(ino)) continue;
    Shown& shown = tree[ino];
    ARCHIL_ASSIGN_OR_RETURN(const AttrReply attr, fs.GetAttr(ctx, ino));
    shown.directory = attr.attr.type == FileType::kDirectory;
    shown.nlink = attr.attr.nlink;
    if (!shown.directory) {
      ARCHIL_ASSIGN_OR_RETURN(const ReadReply reply, fs.Read(ctx, ino, 0, kReadAll));
      for (const Buffer& piece : reply.pieces) shown.content.append(piece.view());
      if (shown.content.size() != attr.attr.size)
        return Error(Code::kInternal,
                     fmt::format("inode {} has size {} and {} bytes", ino.value, attr.attr.size, shown.content.size()));
      continue;
    }
    ARCHIL_RETURN_IF_ERROR(fs.Readdir(ctx, ino, 0, false, [&](const DirItem& item) {
      if (item.name != "." && item.name != "..") shown.names[std::string(item.name)] = item.ino;
      return true;
    }));
    for (const auto& [name, child] : std::map(shown.names)) {
      ARCHIL_ASSIGN_OR_RETURN(const Entry entry, fs.Lookup(ctx, ino, name));
      if (entry.attr.ino != child)
        return Error(Code::kInternal, fmt::format("{} is inode {} in the listing and {} when looked up", name,
                                                  child.value, entry.attr.ino.value));
      looked_up.push_back(child);
      left.push_back(child);
    }
  }
  for (const InodeId ino : looked_up) fs.Forget(ino, 1);
  return tree;
}

}  // namespace archil::sim
