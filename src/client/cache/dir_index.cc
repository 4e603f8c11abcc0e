#include "client/cache/dir_index.h"

#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/env/planted.h"

namespace archil {
namespace {

// Between the cookies of names made here (below, descending) and of loaded ones (from here, ascending).
constexpr uint64_t kMiddleCookie = 1ULL << 56;

struct Entry {
  enum class State : uint8_t {
    kPresent,
    kRemoved,  // here, while the directory is not complete
    kAbsent,   // said the server
    kStale,    // nothing is known of it but its cookie
  };
  std::string name;
  InodeId ino;
  uint64_t order = 0;  // kPresent, kStale: cookie; kAbsent: age
  FileType type = FileType::kRegular;
  State state = State::kPresent;
};

struct EntryHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const {
    return absl::Hash<absl::string_view>{}(absl::string_view(name.data(), name.size()));
  }
  size_t operator()(const std::unique_ptr<Entry>& entry) const { return (*this)(std::string_view(entry->name)); }
};

struct EntryEq {
  using is_transparent = void;
  static std::string_view Name(std::string_view name) { return name; }
  static std::string_view Name(const std::unique_ptr<Entry>& entry) { return entry->name; }
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return Name(a) == Name(b);
  }
};

DirItemRef RefOf(const Entry& entry) { return {entry.name, entry.ino, entry.type, entry.order}; }

// Entry, its slot in the hash table and in an order map.
size_t MemoryOf(const Entry& entry) {
  constexpr size_t kInPlaceName = 15;
  return sizeof(Entry) + 48 + (entry.name.size() > kInPlaceName ? entry.name.size() + 16 : 0);
}

}  // namespace

struct DirIndex::Impl {
  // The entry of a name, whatever its state; null if there is none.
  Entry* Get(std::string_view name) const {
    auto it = names.find(name);
    return it == names.end() ? nullptr : it->get();
  }

  // Gives a name a state and place, which it had not: it is new or was not present.
  void Enter(std::string_view name, InodeId ino, FileType type, uint64_t cookie) {
    Entry* entry = Get(name);
    if (entry == nullptr) {
      entry = New(name);
    } else {
      Leave(*entry);
    }
    entry->ino = ino;
    entry->type = type;
    entry->order = cookie;
    entry->state = Entry::State::kPresent;
    by_cookie.emplace(cookie, entry);
  }

  Entry* New(std::string_view name) {
    auto entry = std::make_unique<Entry>();
    entry->name = std::string(name);
    memory += MemoryOf(*entry);
    return names.insert(std::move(entry)).first->get();
  }

  // Takes the entry out of the order of its state.
  void Leave(Entry& entry) {
    if (entry.state == Entry::State::kPresent) by_cookie.erase(entry.order);
    if (entry.state == Entry::State::kAbsent) by_age.erase(entry.order);
    if (entry.state == Entry::State::kRemoved) --removed;
  }

  void Drop(Entry& entry) {
    Leave(entry);
    memory -= MemoryOf(entry);
    names.erase(names.find(std::string_view(entry.name)));
  }

  template <class Which>
  void DropAll(Which which) {
    for (auto it = names.begin(); it != names.end();) {
      auto here = it++;
      if (!which(**here)) continue;
      Leave(**here);
      memory -= MemoryOf(**here);
      names.erase(here);
    }
  }

  absl::flat_hash_set<std::unique_ptr<Entry>, EntryHash, EntryEq> names;
  absl::btree_map<uint64_t, Entry*> by_cookie;  // present ones
  absl::btree_map<uint64_t, Entry*> by_age;     // absent ones
  uint64_t next_here = kMiddleCookie - 1;       // descending
  uint64_t next_loaded = kMiddleCookie;         // ascending
  uint64_t next_age = 0;
  size_t removed = 0;
  size_t memory = 0;
};

DirIndex::DirIndex(bool complete) : impl_(std::make_unique<Impl>()), complete_(complete) {}
DirIndex::~DirIndex() = default;

DirIndex::Answer DirIndex::Find(std::string_view name, DirItemRef* out) const {
  const Entry* entry = impl_->Get(name);
  if (entry == nullptr) return complete_ ? Answer::kAbsent : Answer::kUnknown;
  if (entry->state == Entry::State::kStale) return Answer::kUnknown;
  if (entry->state != Entry::State::kPresent) return Answer::kAbsent;
  if (out != nullptr) *out = RefOf(*entry);
  return Answer::kPresent;
}

void DirIndex::Insert(std::string_view name, InodeId ino, FileType type) {
  const Entry* entry = impl_->Get(name);
  ARCHIL_CHECK(entry == nullptr || entry->state != Entry::State::kPresent);
  impl_->Enter(name, ino, type, impl_->next_here--);
}

void DirIndex::Replace(std::string_view name, InodeId ino, FileType type) {
  Entry* entry = impl_->Get(name);
  ARCHIL_CHECK(entry != nullptr && entry->state == Entry::State::kPresent);
  entry->ino = ino;
  entry->type = type;
}

void DirIndex::Remove(std::string_view name) {
  Entry* entry = impl_->Get(name);
  ARCHIL_CHECK(entry != nullptr && entry->state == Entry::State::kPresent);
  if (complete_ || Planted(Plant::kTombstoneForgotten)) {
    impl_->Drop(*entry);
    return;
  }
  impl_->Leave(*entry);
  entry->state = Entry::State::kRemoved;
  ++impl_->removed;
}

bool DirIndex::Load(std::string_view name, InodeId ino, FileType type) {
  if (complete_) return false;
  const Entry* entry = impl_->Get(name);
  // A negative is an older answer of the same server; what we changed ourselves is not.
  const bool stale = entry != nullptr && entry->state == Entry::State::kStale;
  if (entry != nullptr && entry->state != Entry::State::kAbsent && !stale) return false;
  impl_->Enter(name, ino, type, stale ? entry->order : impl_->next_loaded++);
  return true;
}

void DirIndex::LoadAbsent(std::string_view name) {
  if (complete_) return;
  Entry* entry = impl_->Get(name);
  if (entry != nullptr && entry->state != Entry::State::kStale) return;
  if (entry == nullptr) entry = impl_->New(name);
  entry->state = Entry::State::kAbsent;
  entry->order = impl_->next_age++;
  impl_->by_age.emplace(entry->order, entry);
  if (impl_->by_age.size() > kMaxAbsent) impl_->Drop(*impl_->by_age.begin()->second);
}

void DirIndex::ForgetRemoved() {
  impl_->DropAll([](const Entry& entry) { return entry.state == Entry::State::kRemoved; });
}

void DirIndex::Invalidate() {
  complete_ = false;
  impl_->DropAll([](const Entry& entry) { return entry.state == Entry::State::kRemoved || entry.state == Entry::State::kAbsent; });
  for (const auto& [cookie, entry] : impl_->by_cookie) entry->state = Entry::State::kStale;
  impl_->by_cookie.clear();
}

void DirIndex::SetComplete() {
  complete_ = true;
  impl_->DropAll([](const Entry& entry) { return entry.state != Entry::State::kPresent; });
}

std::optional<DirItemRef> DirIndex::Next(uint64_t after) const {
  auto it = impl_->by_cookie.upper_bound(after);
  if (it == impl_->by_cookie.end()) return std::nullopt;
  return RefOf(*it->second);
}

size_t DirIndex::size() const { return impl_->by_cookie.size(); }
size_t DirIndex::removed() const { return impl_->removed; }
size_t DirIndex::memory_bytes() const { return sizeof(Impl) + sizeof(DirIndex) + impl_->memory; }

}  // namespace archil
