// Contention: which directories of a branch are handed back and forth so often that their operations are better applied
// at the server (docs/delegation.md). Pure; the strand serialises.
//
// A directory that was recalled `after` times within a second is contended, until its users have left each other alone
// for a second.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "common/base/ids.h"
#include "common/env/clock.h"

namespace archil {

class Contention {
 public:
  // `after` 0: nothing ever is.
  explicit Contention(uint32_t after) : after_(after) {}

  bool Contended(InodeId ino, BootTime now) const;
  // A request has to recall it from another session.
  void Collided(InodeId ino, BootTime now);
  // An operation of this session on it is applied at the server, or was told to be: it stays contended while they take
  // turns.
  void Used(InodeId ino, SessionId session, BootTime now);

 private:
  static constexpr absl::Duration kWindow = absl::Seconds(1);
  static constexpr absl::Duration kCalm = absl::Seconds(1);
  static constexpr size_t kMany = 4096;  // inodes remembered before old ones are looked for

  struct State {
    std::deque<BootTime> collisions;  // the newest, at most `after`
    BootTime until;                   // contended before this
    SessionId last;
  };
  void ForgetOld(BootTime now);

  uint32_t after_;
  absl::flat_hash_map<InodeId, State> inodes_;
};

}  // namespace archil
