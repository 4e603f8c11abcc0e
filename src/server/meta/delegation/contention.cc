#include "server/meta/delegation/contention.h"

namespace archil {

bool Contention::Contended(InodeId ino, BootTime now) const {
  const auto it = inodes_.find(ino);
  return it != inodes_.end() && now < it->second.until;
}

void Contention::Collided(InodeId ino, BootTime now) {
  if (after_ == 0) return;
  if (inodes_.size() >= kMany) ForgetOld(now);
  State& state = inodes_[ino];
  state.collisions.push_back(now);
  while (state.collisions.size() > after_ || now - state.collisions.front() > kWindow) state.collisions.pop_front();
  if (state.collisions.size() >= after_) state.until = now + kCalm;
}

void Contention::Used(InodeId ino, SessionId session, BootTime now) {
  const auto it = inodes_.find(ino);
  if (it == inodes_.end() || now >= it->second.until) return;
  if (it->second.last != session) it->second.until = now + kCalm;
  it->second.last = session;
}

void Contention::ForgetOld(BootTime now) {
  absl::erase_if(inodes_, [now](const auto& entry) {
    return now >= entry.second.until &&
           (entry.second.collisions.empty() || now - entry.second.collisions.back() > kWindow);
  });
}

}  // namespace archil
