// DelegationTable: who holds what on one disk. Pure: no locks, clocks or I/O; the strand serialises.
//
// On this slice every holder is alone: one read-write session holds WRITE on everything of its branch, or several read-only
// sessions hold READ on everything (DLG-1). Ops ask MayWrite before they change anything (DLG-2).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/api/meta_service.h"
#include "common/base/ids.h"
#include "server/meta/delegation/lease.h"

namespace archil {

enum class DelegationMode : uint8_t { kRead = 1, kWrite = 2 };

struct Holder {
  SessionId session;
  BranchId branch;
  SessionMode mode = SessionMode::kReadWrite;
  Lease lease;
};

class DelegationTable {
 public:
  void Add(const Holder& holder) { holders_[holder.session] = holder; }
  void Remove(SessionId session) { holders_.erase(session); }
  void Renew(SessionId session, BootTime received);
  // Null if it holds nothing.
  const Holder* Find(SessionId session) const;
  // Holders that a new session of this mode on the branch conflicts with, oldest id first.
  std::vector<Holder> Conflicts(BranchId branch, SessionMode mode) const;
  // DLG-2.
  bool Check(SessionId session, InodeId ino, DelegationMode mode) const;
  const std::map<SessionId, Holder>& holders() const { return holders_; }

 private:
  std::map<SessionId, Holder> holders_;
};

// For people: who holds the disk, since when, and what can be done about it.
std::string HeldMessage(const std::string& disk, const std::string& client, absl::Duration age, absl::Duration silence, absl::Duration lease);

}  // namespace archil
