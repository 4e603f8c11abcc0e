// Objects as files of a local directory.
//
//   ROOT/objects/a+/b+/c    the object "a/b/c". '+' cannot be in a key, so "a" and "a/b" can both exist
//   ROOT/tmp/N.lock, N/     where one opener of the store prepares files; cleaned by the next who gets N
//
// An object appears by a rename after its bytes are synced, and its name is synced before Put returns.
#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "server/object/object_store.h"

namespace archil {
namespace {

constexpr size_t kMaxKey = 512;
constexpr size_t kMaxPart = 250;            // a file name of the host holds 255 bytes
constexpr uint32_t kMaxPage = 10'000;       // more is cut to this
constexpr uint64_t kMaxObject = 1ULL << 30; // bytes of one Get or Put
constexpr size_t kCopyBytes = 1 << 20;
constexpr int kMaxOpeners = 1000;

bool IsKeyByte(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '/' || c == '-';
}

Status CheckKey(std::string_view key) {
  if (key.empty() || key.size() > kMaxKey) return Error(Code::kInvalid, "an object key has 1 to 512 bytes");
  if (!std::all_of(key.begin(), key.end(), IsKeyByte)) {
    return Error(Code::kInvalid, "an object key has a byte outside of A-Za-z0-9._/-");
  }
  while (true) {
    const size_t slash = key.find('/');
    const std::string_view part = key.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPart) {
      return Error(Code::kInvalid, "an object key has an empty, relative or too long part");
    }
    if (slash == std::string_view::npos) return Ok();
    key.remove_prefix(slash + 1);
  }
}

Status CheckCancelled(const OpContext& ctx) { return ctx.cancelled() ? Status(Code::kInterrupted) : Ok(); }

class LocalObjectStore final : public ObjectStore {
 public:
  LocalObjectStore(Files& files, const std::string& root, std::string tmp_dir, std::unique_ptr<File> tmp_lock)
      : files_(files), objects_(JoinPath(root, "objects")), tmp_dir_(std::move(tmp_dir)),
        tmp_lock_(std::move(tmp_lock)) {}

  Status Put(const OpContext& ctx, const std::string& key, const Buffer& bytes) override {
    ARCHIL_RETURN_IF_ERROR(CheckKey(key));
    ARCHIL_RETURN_IF_ERROR(CheckCancelled(ctx));
    if (bytes.size() > kMaxObject) return Error(Code::kInvalid, "an object has at most 1 GiB");
    const std::string tmp = NewTmpPath();
    Status status = WriteTmp(tmp, bytes.view());
    if (status.ok()) status = Publish(tmp, key);
    if (!status.ok()) (void)files_.Remove(tmp);
    return status;
  }

  Status PutFile(const OpContext& ctx, const std::string& key, const std::string& path) override {
    ARCHIL_RETURN_IF_ERROR(CheckKey(key));
    ARCHIL_RETURN_IF_ERROR(CheckCancelled(ctx));
    const std::string tmp = NewTmpPath();
    Status status = files_.Link(path, tmp);
    if (status.ok()) {
      status = SyncSource(path);
    } else if (status.code() != Code::kNotFound) {
      status = CopyToTmp(path, tmp);  // another file system, or one without links
    }
    if (status.ok()) status = Publish(tmp, key);
    // Also after success: renaming a link over another link of the same file leaves both names.
    (void)files_.Remove(tmp);
    return status;
  }

  Result<Buffer> Get(const OpContext& ctx, const std::string& key, uint64_t offset, uint64_t length) override {
    ARCHIL_RETURN_IF_ERROR(CheckKey(key));
    ARCHIL_RETURN_IF_ERROR(CheckCancelled(ctx));
    if (length > kMaxObject || offset > (1ULL << 62)) return Error(Code::kInvalid, "a range has at most 1 GiB");
    ARCHIL_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, OpenObject(key));
    ARCHIL_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    if (offset + length > size) {
      return Error(Code::kInvalid, fmt::format("object {} has {} bytes, asked for {}..{}", key, size, offset,
                                               offset + length));
    }
    ARCHIL_ASSIGN_OR_RETURN(std::string bytes, file->Read(offset, length));
    if (bytes.size() != length) return Error(Code::kIo, "short read of object " + key);
    return Buffer(std::move(bytes));
  }

  Result<ObjectInfo> Head(const OpContext& ctx, const std::string& key) override {
    ARCHIL_RETURN_IF_ERROR(CheckKey(key));
    ARCHIL_RETURN_IF_ERROR(CheckCancelled(ctx));
    const Result<FileInfo> info = files_.Stat(PathOf(key));
    if (!info.ok()) return NotFoundIfNoDirectory(info.error(), key);
    return ObjectInfo{key, info->size};
  }

  Result<ObjectPage> List(const OpContext& ctx, const std::string& prefix, const std::string& after,
                          uint32_t limit) override {
    ARCHIL_RETURN_IF_ERROR(CheckCancelled(ctx));
    Listing listing{prefix, after, std::clamp<uint32_t>(limit, 1, kMaxPage), {}};
    ARCHIL_RETURN_IF_ERROR(ListInto(objects_, "", &listing));
    ObjectPage& page = listing.page;
    page.complete = page.objects.size() <= listing.limit;
    if (!page.complete) page.objects.pop_back();
    return std::move(page);
  }

  Status Delete(const OpContext& ctx, const std::string& key) override {
    ARCHIL_RETURN_IF_ERROR(CheckKey(key));
    ARCHIL_RETURN_IF_ERROR(CheckCancelled(ctx));
    const std::string path = PathOf(key);
    const Status removed = files_.Remove(path);
    if (removed.code() == Code::kNotFound || removed.code() == Code::kNotDirectory) return Ok();
    ARCHIL_RETURN_IF_ERROR(removed);
    return files_.SyncDir(DirName(path));
  }

 private:
  struct Listing {
    std::string prefix;
    std::string after;
    uint32_t limit;
    ObjectPage page;  // grows to limit + 1 objects: the last one shows that there are more
  };

  static Error NotFoundIfNoDirectory(const Error& error, const std::string& key) {
    if (error.code() == Code::kNotFound || error.code() == Code::kNotDirectory) {
      return Error(Code::kNotFound, "no object " + key);
    }
    return error;
  }

  std::string PathOf(std::string_view key) const {
    std::string path = objects_ + "/";
    for (const char c : key) {
      if (c == '/') path += '+';
      path += c;
    }
    return path;
  }

  std::string NewTmpPath() { return JoinPath(tmp_dir_, fmt::format("{}", next_tmp_.fetch_add(1))); }

  Result<std::unique_ptr<File>> OpenObject(const std::string& key) {
    Result<std::unique_ptr<File>> file = files_.Open(PathOf(key), OpenMode::kRead);
    if (!file.ok()) return NotFoundIfNoDirectory(file.error(), key);
    return file;
  }

  Status WriteTmp(const std::string& tmp, std::string_view bytes) {
    ARCHIL_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files_.Open(tmp, OpenMode::kCreateNew));
    ARCHIL_RETURN_IF_ERROR(file->Write(0, bytes));
    return file->Sync();
  }

  // The caller says that nobody changes the file, not that it was synced.
  Status SyncSource(const std::string& path) {
    ARCHIL_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files_.Open(path, OpenMode::kRead));
    return file->Sync();
  }

  Status CopyToTmp(const std::string& path, const std::string& tmp) {
    ARCHIL_ASSIGN_OR_RETURN(const std::unique_ptr<File> source, files_.Open(path, OpenMode::kRead));
    ARCHIL_ASSIGN_OR_RETURN(const std::unique_ptr<File> target, files_.Open(tmp, OpenMode::kCreateNew));
    for (uint64_t offset = 0;;) {
      ARCHIL_ASSIGN_OR_RETURN(const std::string bytes, source->Read(offset, kCopyBytes));
      if (bytes.empty()) return target->Sync();
      ARCHIL_RETURN_IF_ERROR(target->Write(offset, bytes));
      offset += bytes.size();
    }
  }

  Status Publish(const std::string& tmp, const std::string& key) {
    const std::string path = PathOf(key);
    const std::string dir = DirName(path);
    ARCHIL_RETURN_IF_ERROR(files_.MakeDirs(dir));
    ARCHIL_RETURN_IF_ERROR(files_.Rename(tmp, path));
    return files_.SyncDir(dir);
  }

  // Adds what lies in `dir` (whose keys begin with `key_prefix`) in key order; stops when the page is full.
  Status ListInto(const std::string& dir, const std::string& key_prefix, Listing* listing) {
    ARCHIL_ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(dir));
    for (std::string& name : names) {
      if (name.back() == '+') name.back() = '/';  // now names sort as keys do
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (listing->page.objects.size() > listing->limit) return Ok();
      const std::string key = key_prefix + name;
      if (name.back() == '/') {
        if (!MayHold(key, *listing)) continue;
        ARCHIL_RETURN_IF_ERROR(ListInto(JoinPath(dir, name.substr(0, name.size() - 1) + "+"), key, listing));
        continue;
      }
      if (!key.starts_with(listing->prefix) || key <= listing->after) continue;
      const Result<FileInfo> info = files_.Stat(JoinPath(dir, name));
      if (info.code() == Code::kNotFound) continue;  // deleted meanwhile
      if (!info.ok()) return info.error();
      listing->page.objects.push_back({key, info->size});
    }
    return Ok();
  }

  // May a key that begins with `dir_key` (which ends with '/') be in the listing?
  static bool MayHold(const std::string& dir_key, const Listing& listing) {
    const size_t common = std::min(dir_key.size(), listing.prefix.size());
    if (dir_key.compare(0, common, listing.prefix, 0, common) != 0) return false;
    return listing.after.starts_with(dir_key) || listing.after < dir_key;
  }

  Files& files_;
  const std::string objects_;
  const std::string tmp_dir_;
  const std::unique_ptr<File> tmp_lock_;
  std::atomic<uint64_t> next_tmp_{0};
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenLocalObjectStore(Files& files, const std::string& root) {
  const std::string tmp = JoinPath(root, "tmp");
  ARCHIL_RETURN_IF_ERROR(files.MakeDirs(JoinPath(root, "objects")));
  ARCHIL_RETURN_IF_ERROR(files.MakeDirs(tmp));
  for (int n = 0; n < kMaxOpeners; ++n) {
    Result<std::unique_ptr<File>> lock = files.LockFile(JoinPath(tmp, fmt::format("{}.lock", n)));
    if (lock.code() == Code::kBusy) continue;  // of another process
    if (!lock.ok()) return lock.error();
    std::string mine = JoinPath(tmp, fmt::format("{}", n));
    ARCHIL_RETURN_IF_ERROR(files.RemoveTree(mine));
    ARCHIL_RETURN_IF_ERROR(files.MakeDirs(mine));
    return std::unique_ptr<ObjectStore>(
        std::make_unique<LocalObjectStore>(files, root, std::move(mine), std::move(*lock)));
  }
  return Error(Code::kBusy, "too many processes have the object store " + root + " open");
}

}  // namespace archil
