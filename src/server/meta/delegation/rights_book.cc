#include "server/meta/delegation/rights_book.h"

#include <algorithm>

namespace archil {
namespace {

const std::vector<RightRecord> kNobody;
const absl::btree_set<InodeId> kNothing;

template <class Records>
auto* RecordOf(Records& records, SessionId session) {
  const auto it = std::find_if(records.begin(), records.end(), [&](const RightRecord& r) { return r.session == session; });
  return it == records.end() ? nullptr : &*it;
}

}  // namespace

const std::vector<RightRecord>& RightsBook::At(InodeId ino) const {
  const auto it = nodes_.find(ino);
  return it == nodes_.end() ? kNobody : it->second.records;
}

const RightRecord* RightsBook::Find(InodeId ino, SessionId session) const { return RecordOf(At(ino), session); }

const RightRecord* RightsBook::Cover(InodeId home, InodeId ino, SessionId session) const {
  if (!home) return nullptr;
  const RightRecord* dir = Find(home, session);
  return dir != nullptr && dir->Covers(ino) ? dir : nullptr;
}

RightRecord& RightsBook::Put(InodeId ino, SessionId session, Right right, uint64_t number, InodeId home) {
  Node& node = nodes_[ino];
  RightRecord* record = RecordOf(node.records, session);
  if (record == nullptr) {
    record = &node.records.emplace_back();
    absl::btree_set<InodeId>& held = sessions_[session];
    held.insert(ino);
    if (held.size() > crowd_) crowded_.insert(session);
    ++size_;
  }
  *record = {session, right, number, {}};
  if (node.home != home) {
    DropFromHome(ino, node.home);
    node.home = home;
  }
  if (home) children_[home].insert(ino);
  return *record;
}

void RightsBook::Weaken(InodeId ino, SessionId session, Right right, uint64_t number) {
  const auto it = nodes_.find(ino);
  if (it == nodes_.end()) return;
  RightRecord* record = RecordOf(it->second.records, session);
  if (record == nullptr) return;
  record->right = Weaker(record->right, right);
  record->number = number;
  if (record->right == Right::kNone) Erase(ino, session);
}

void RightsBook::Erase(InodeId ino, SessionId session) {
  const auto it = nodes_.find(ino);
  if (it == nodes_.end()) return;
  std::vector<RightRecord>& records = it->second.records;
  const RightRecord* record = RecordOf(records, session);
  if (record == nullptr) return;
  records.erase(records.begin() + (record - records.data()));
  --size_;
  const auto held = sessions_.find(session);
  held->second.erase(ino);
  if (held->second.size() <= crowd_) crowded_.erase(session);
  if (held->second.empty()) sessions_.erase(held);
  if (!records.empty()) return;
  DropFromHome(ino, it->second.home);
  nodes_.erase(it);
}

void RightsBook::DropFromHome(InodeId ino, InodeId home) {
  const auto it = children_.find(home);
  if (it == children_.end()) return;
  it->second.erase(ino);
  if (it->second.empty()) children_.erase(it);
}

void RightsBook::SetHome(InodeId ino, InodeId home) {
  const auto it = nodes_.find(ino);
  if (it == nodes_.end() || it->second.home == home) return;
  DropFromHome(ino, it->second.home);
  it->second.home = home;
  if (home) children_[home].insert(ino);
}

void RightsBook::ForgetInode(InodeId ino) {
  const auto it = nodes_.find(ino);
  if (it == nodes_.end()) return;
  std::vector<SessionId> sessions;
  for (const RightRecord& r : it->second.records) sessions.push_back(r.session);
  for (SessionId s : sessions) Erase(ino, s);
}

void RightsBook::ForgetSession(SessionId session) {
  const absl::btree_set<InodeId> all = Of(session);
  for (InodeId ino : all) Erase(ino, session);
}

void RightsBook::Except(InodeId dir, SessionId session, InodeId child) {
  const auto it = nodes_.find(dir);
  if (it == nodes_.end()) return;
  if (RightRecord* record = RecordOf(it->second.records, session)) record->exceptions.insert(child);
}

void RightsBook::ExceptOthers(InodeId dir, SessionId session, InodeId child) {
  const auto it = nodes_.find(dir);
  if (it == nodes_.end()) return;
  for (RightRecord& record : it->second.records) {
    if (record.session != session) record.exceptions.insert(child);
  }
}

void RightsBook::ForgetException(InodeId dir, InodeId child) {
  const auto it = nodes_.find(dir);
  if (it == nodes_.end()) return;
  for (RightRecord& record : it->second.records) record.exceptions.erase(child);
}

void RightsBook::ForChildren(InodeId dir, const std::function<void(InodeId, const std::vector<RightRecord>&)>& fn) const {
  const auto it = children_.find(dir);
  if (it == children_.end()) return;
  for (InodeId ino : it->second) fn(ino, At(ino));
}

const absl::btree_set<InodeId>& RightsBook::Of(SessionId session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? kNothing : it->second;
}

}  // namespace archil
