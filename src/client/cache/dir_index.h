// DirIndex: the names of one directory, as this mount sees them: merged view of the server's and ours.
// Pure; the caller serialises. Cost per operation does not grow with the directory (amortised log n at most).
//
// A cookie is a number given to a name once, when it enters; listing goes in cookie order, so a listing that
// runs while names come and go misses no survivor, repeats none and ends. Cookies 1 and 2 are "." and "..".
// Names made here get descending cookies, below all others: a listing that makes a name for each one it meets (a loop of
// renames) never meets them. Loaded names get ascending ones, above: a listing that is being loaded meets them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/api/types.h"

namespace archil {

struct DirItemRef {
  std::string_view name;  // valid until the name is removed
  InodeId ino;
  FileType type = FileType::kRegular;
  uint64_t cookie = 0;
};

class DirIndex {
 public:
  enum class Answer : uint8_t { kPresent, kAbsent, kUnknown };

  // `complete`: born here, every other name is absent.
  explicit DirIndex(bool complete);
  ~DirIndex();

  // kUnknown only while the directory is not complete and the name was never seen nor removed here since the last Invalidate.
  Answer Find(std::string_view name, DirItemRef* out) const;
  // A name that was absent or unknown. Precondition: not present.
  void Insert(std::string_view name, InodeId ino, FileType type);
  // Exchanges what a present name shows; the cookie stays.
  void Replace(std::string_view name, InodeId ino, FileType type);
  // Precondition: present. The name is known absent afterwards (also while not complete, so that a page from the server
  // that is older does not bring it back). Until SetComplete or ForgetRemoved the name costs memory.
  void Remove(std::string_view name);

  // What the server said of a name (a page of ReadDir, a Lookup). Ignored where the name is already present or was removed here.
  // In a complete directory it is ignored, being older. Returns true if it entered.
  bool Load(std::string_view name, InodeId ino, FileType type);
  // The server said that a name is absent; ignored where present. Remembered up to a bound of negatives (older ones are dropped).
  void LoadAbsent(std::string_view name);
  // Removed names are unknown again, unless complete. Precondition: every op on this directory is durable and no older answer
  // of the server is on its way.
  void ForgetRemoved();
  // Nothing that is known may be believed any more: every name is unknown. Names keep their cookies, for listings that are under
  // way, until the next SetComplete.
  void Invalidate();
  // Every name of the server's listing was loaded: what is not present is absent.
  void SetComplete();
  bool complete() const { return complete_; }
  static constexpr size_t kMaxAbsent = 1024;  // negatives remembered

  // The first item with a cookie > `after`; nullopt at the end.
  std::optional<DirItemRef> Next(uint64_t after) const;
  size_t size() const;          // names present here
  size_t removed() const;       // names remembered as removed
  size_t memory_bytes() const;  // rough

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  bool complete_;
};

}  // namespace archil
