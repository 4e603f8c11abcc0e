// Planted bugs: faults that stand in the product on purpose, each behind a switch, so that the simulator can prove that
// it would find them (tests/sim/planted_test.cc). Inert: nothing but that test turns one on. One load of a byte where
// they stand.
#pragma once

#include <atomic>
#include <cstdint>

namespace archil {

enum class Plant : uint8_t {
  kNone = 0,
  // --- the metadata server
  kSkipRecall,            // grants what another session holds
  kForgetCoveredChild,    // ... what is covered by another's directory
  kCoverEverything,       // a grant of a directory covers what others hold in it
  kAloneNotAsked,         // grants while another session holds everything
  kGrantBeforeReclaim,    // ... while a known session has not said what it holds
  kFenceNotLogged,        // what is taken from a silent session is not logged
  kAnswerBeforeLog,       // LOG-1: answers before the log is durable
  kCommitTwice,           // a repeated commit is applied again
  kForgetOpen,            // does not remember what is open elsewhere
  kAnswerUnchecked,       // takes an answer about ops that are not applied; the client sends it before its commit
  kUncoveredOnce,         // what a grant does not cover is told once; the answer may be lost
  kCoveredBeforeReclaim,  // says `covered` of what an unclaimed session may hold
  kCreditTwice,           // a reservation does not see what others have reserved
  // --- the client
  kAnswerBeforeDrop,      // answers a recall before the kernel has dropped
  kRecallOvertakesGrant,  // does not wait for a grant on its way, and believes it when it comes
  kReuseInode,            // one number for two inodes
  kHeartbeatRenews,       // an unanswered heartbeat renews the lease
  kLeaseFromAnswer,       // LSE-1: the lease is counted from the answer
  kExtentsLast,           // EXT-1: written bytes come after everything else of a commit
  kHalfOfPair,            // the create of an inode that died is left out, its removal is sent
  kStaleReply,            // a load from before a recall is believed
  kTombstoneForgotten,    // a removed name is found again by a load from before
  kStillTrue,             // what was given up counts as true when the right comes back
  kUncoveredIgnored,      // children that fell out of a grant count as covered
  kMovedKeepsHome,        // a file that moved is covered by its old directory
  kWaitsForGrant,         // a recall waits for the grant that it ends without an end
  kFsyncLies,             // answers before anything is durable
  kPromiseForgotten,      // bytes that were written do not count as promised until they are in the log
  kShortRead,             // a read that begins again keeps the length of its first try
};

inline std::atomic<Plant> planted_bug{Plant::kNone};

inline bool Planted(Plant plant) { return planted_bug.load(std::memory_order_relaxed) == plant; }

}  // namespace archil
