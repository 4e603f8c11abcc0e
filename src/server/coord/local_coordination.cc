// Coordination in one local file:
//
//   file  = u8 version (1) ‖ varint next version ‖ varint count ‖ count × entry ‖ u64 checksum of all before
//   entry = key ‖ value (length-prefixed) ‖ varint version
// The whole file is written anew by every transaction: it holds a few lines per disk.
#include <map>

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "server/coord/coordination.h"

namespace archil {
namespace {

constexpr uint8_t kVersion = 1;

struct Item {
  std::string value;
  uint64_t version = 0;
};
using Items = std::map<std::string, Item>;

// What the file holds. Versions come from one counter, so they grow across deletion and re-creation of a key.
struct Content {
  uint64_t next_version = 1;
  Items items;
};

std::string EncodeContent(const Content& c) {
  ByteWriter w;
  w.U8(kVersion);
  w.Varint(c.next_version);
  w.Varint(c.items.size());
  for (const auto& [key, item] : c.items) {
    w.LengthPrefixed(key);
    w.LengthPrefixed(item.value);
    w.Varint(item.version);
  }
  w.U64(Checksum(w.str()));
  return w.Take();
}

Result<Content> DecodeContent(std::string_view bytes, const std::string& path) {
  const Error damaged(Code::kCorrupt, path + " is damaged: restore it from a copy");
  if (bytes.size() < 9) return damaged;
  const std::string_view covered = bytes.substr(0, bytes.size() - 8);
  ByteReader tail(bytes.substr(bytes.size() - 8));
  if (tail.U64() != Checksum(covered)) return damaged;
  ByteReader r(covered);
  const uint8_t version = r.U8();
  if (version > kVersion) return Error(Code::kNotSupported, path + " was written by a newer version of archild");
  if (version != kVersion) return damaged;
  Content c;
  c.next_version = r.Varint();
  const uint64_t count = r.Varint();
  for (uint64_t i = 0; i < count && !r.failed(); ++i) {
    std::string key(r.LengthPrefixed());
    Item item;
    item.value = std::string(r.LengthPrefixed());
    item.version = r.Varint();
    c.items[std::move(key)] = std::move(item);
  }
  if (!r.done()) return damaged;
  return c;
}

class LocalCoordination final : public Coordination {
 public:
  LocalCoordination(Scheduler& scheduler, Files& files, std::string path, std::unique_ptr<File> lock, Content content)
      : files_(files), path_(std::move(path)), lock_(std::move(lock)), mu_(scheduler), content_(std::move(content)) {}

  Result<std::optional<CoordEntry>> Get(const std::string& key) override {
    MutexLock lock(mu_);
    ARCHIL_RETURN_IF_ERROR(Usable());
    const auto it = content_.items.find(key);
    if (it == content_.items.end()) return std::optional<CoordEntry>();
    return std::optional<CoordEntry>(CoordEntry{key, it->second.value, it->second.version});
  }

  Result<std::vector<CoordEntry>> List(const std::string& prefix) override {
    MutexLock lock(mu_);
    ARCHIL_RETURN_IF_ERROR(Usable());
    std::vector<CoordEntry> out;
    for (auto it = content_.items.lower_bound(prefix); it != content_.items.end(); ++it) {
      if (it->first.compare(0, prefix.size(), prefix) != 0) break;
      out.push_back({it->first, it->second.value, it->second.version});
    }
    return out;
  }

  // The lock is held over the write on purpose: the order of transactions is the order of the file's versions, and
  // whoever waits here waits for exactly that.
  Status Commit(const CoordTxn& txn) override {
    MutexLock lock(mu_);
    ARCHIL_RETURN_IF_ERROR(Usable());
    for (const auto& c : txn.compares) {
      const auto it = content_.items.find(c.key);
      const uint64_t have = it == content_.items.end() ? 0 : it->second.version;
      if (have != c.version) return Error(Code::kBusy, "coordination key " + c.key + " was changed meanwhile");
    }
    Content next = content_;
    for (const auto& [key, value] : txn.puts) next.items[key] = {value, next.next_version++};
    for (const auto& key : txn.deletes) next.items.erase(key);
    if (const Status s = WriteFileAtomically(files_, path_, EncodeContent(next)); !s.ok()) {
      // The file holds the old or the new content; which one only a restart can tell. Until the next
      // success nothing may be promised from memory.
      return Recover(s.error());
    }
    content_ = std::move(next);
    return Ok();
  }

 private:
  Status Usable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!uncertain_) return Ok();
    return Recover(Error(Code::kUnavailable));
  }

  // After a failed write: takes over what the file holds, once that is durable again.
  Status Recover(const Error& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const bool retry = uncertain_;
    uncertain_ = true;
    auto bytes = ReadWholeFile(files_, path_);
    if (!bytes.ok() && bytes.code() != Code::kNotFound) return cause;
    Content content;
    if (bytes.ok()) {
      auto decoded = DecodeContent(*bytes, path_);
      if (!decoded.ok()) return decoded.error();
      content = std::move(*decoded);
      if (const Status s = WriteFileAtomically(files_, path_, *bytes); !s.ok()) return cause;
    }
    content_ = std::move(content);
    uncertain_ = false;
    return retry ? Ok() : Status(cause);
  }

  Files& files_;
  const std::string path_;
  const std::unique_ptr<File> lock_;
  Mutex mu_;
  Content content_ ABSL_GUARDED_BY(mu_);
  bool uncertain_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

Result<std::unique_ptr<Coordination>> OpenLocalCoordination(Scheduler& scheduler, Files& files, const std::string& dir) {
  ARCHIL_RETURN_IF_ERROR(files.MakeDirs(dir));
  ARCHIL_ASSIGN_OR_RETURN(auto lock, files.LockFile(JoinPath(dir, "lock")));
  const std::string path = JoinPath(dir, "coordination");
  Content content;
  ARCHIL_ASSIGN_OR_RETURN(const bool exists, files.Exists(path));
  if (exists) {
    ARCHIL_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(files, path));
    ARCHIL_ASSIGN_OR_RETURN(content, DecodeContent(bytes, path));
  }
  return std::unique_ptr<Coordination>(new LocalCoordination(scheduler, files, path, std::move(lock), std::move(content)));
}

}  // namespace archil
