#include "server/meta/delegation/delegation_table.h"

#include <fmt/format.h>

namespace archil {
namespace {

std::string Seconds(absl::Duration d) {
  const int64_t s = absl::ToInt64Seconds(d);
  if (s < 120) return fmt::format("{} s", s);
  if (s < 7200) return fmt::format("{} min", s / 60);
  return fmt::format("{} h", s / 3600);
}

}  // namespace

void DelegationTable::Renew(SessionId session, BootTime received) {
  if (const auto it = holders_.find(session); it != holders_.end()) it->second.lease.Renew(received);
}

const Holder* DelegationTable::Find(SessionId session) const {
  const auto it = holders_.find(session);
  return it == holders_.end() ? nullptr : &it->second;
}

std::vector<Holder> DelegationTable::Conflicts(BranchId branch, SessionMode mode) const {
  std::vector<Holder> out;
  for (const auto& [id, holder] : holders_) {
    if (holder.branch != branch) continue;
    if (holder.mode == SessionMode::kReadWrite || mode == SessionMode::kReadWrite) out.push_back(holder);
  }
  return out;
}

bool DelegationTable::Check(SessionId session, InodeId ino, DelegationMode mode) const {
  const Holder* holder = Find(session);
  if (holder == nullptr) return false;
  return mode == DelegationMode::kRead || holder->mode == SessionMode::kReadWrite;
}

std::string HeldMessage(const std::string& disk, const std::string& client, absl::Duration age, absl::Duration silence, absl::Duration lease) {
  return fmt::format(
      "disk {} is held by {} (mounted {} ago, last heard of {} ago). Unmount it there; if that machine is gone, its lease ends "
      "{} after it was last heard of: try again then",
      disk, client.empty() ? "an unnamed client" : client, Seconds(age), Seconds(silence), Seconds(lease));
}

}  // namespace archil
