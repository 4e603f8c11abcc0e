// DelegationTable: who holds what on one disk, who waits for what, and what the sessions are to be told (docs/delegation.md).
// Pure: no locks, clocks or I/O; events and the time come in, effects go out. The strand serialises.
//
// Requests stand in the order in which they came. After every event that may let one go on the caller calls Look and does what the
// effects say; a session that is to end is ended in the log first (FEN-1), then here by Remove.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/api/meta_service.h"
#include "common/base/ids.h"
#include "common/delegation/right.h"
#include "server/meta/delegation/contention.h"
#include "server/meta/delegation/lease.h"
#include "server/meta/delegation/rights_book.h"
#include "server/meta/delegation/waiting_line.h"

namespace archil {

// The trees of the branches as they stand now.
class Tree {
 public:
  enum class Kind : uint8_t { kAbsent, kDirectory, kOther };
  virtual ~Tree() = default;
  virtual Kind KindOf(BranchId branch, InodeId ino) = 0;
  // The directory of a non-directory that has exactly one name; else 0.
  virtual InodeId HomeOf(BranchId branch, InodeId ino) = 0;
  // What the name shows in the directory; 0: nothing.
  virtual InodeId ChildOf(BranchId branch, InodeId dir, const std::string& name) = 0;
  // The directory above; 0 for the root, for what has no name and for what is no directory.
  virtual InodeId ParentOf(BranchId branch, InodeId dir) = 0;
  // A non-directory that exists has a name, or is an orphan that the session has open.
  virtual bool Reaches(BranchId branch, InodeId ino, SessionId session) = 0;
};

// What an operation or a look at the server needs: all of it reserved in one step, nothing granted (SRV-1).
struct Reservation {
  struct Name {
    InodeId dir;
    std::string name;
    Right right = Right::kRead;  // on what it shows at that moment
  };
  enum class Kind : uint8_t { kChange, kLook };
  Kind kind = Kind::kChange;
  std::vector<Want> wants;
  std::vector<Name> names;
  // READ on every directory above those of `wants`, if one of the names shows a directory (REN-1).
  bool ancestors = false;
};

struct Holder {
  SessionId session;
  BranchId branch;
  SessionMode mode = SessionMode::kReadWrite;
  Sharing sharing = Sharing::kShared;
  std::string name;  // of the client, for people
  Lease lease;
};

struct DelegationLimits {
  absl::Duration recall_grace = absl::Seconds(5);
  absl::Duration keep_silent = absl::Hours(24);  // then a silent session of which something is wanted is ended
  size_t taken = kMaxTaken;                      // inodes of a silent session; then it is ended
  size_t pending = 256;               // requests of a session that wait
  size_t recalls = 65536;             // unanswered ones of a session; more are sent after answers
  size_t rights = 4 << 20;            // records of a session: no new grant beyond
  size_t rights_kept = 256 << 10;     // ... beyond it the oldest are recalled
  size_t opens = 1 << 20;             // of a session
  uint32_t contended_after = 10;      // see Contention
};

struct DelegationEffects {
  struct Granted {
    uint64_t id = 0;  // of the request
    std::vector<Grant> grants;
    std::vector<InodeId> missing;
    std::vector<InodeId> at_server;  // contended: nothing was granted
    std::vector<InodeId> through;    // checked out elsewhere: nothing was granted
  };
  struct Failed {
    uint64_t id = 0;
    Error error;
  };
  struct End {
    SessionId session;
    std::string reason;
  };
  std::vector<Granted> granted;  // a revocation has no grants, neither has a look
  // The operation whose turn it is: all that it needs is free. It keeps its place until Cancel; then Look again. 0:
  // none.
  uint64_t ready = 0;
  std::vector<Failed> failed;
  struct Take {
    SessionId session;
    Taken taken;
  };
  std::vector<End> ends;          // by the log, then Remove, then Look
  std::vector<Take> takes;        // of silent sessions: by the log, then DelegationTable::Take, then Look
  std::set<SessionId> told;       // have new messages
  uint64_t recalls = 0;
  bool again = false;             // there is more to look at: call Look again soon, after others had their turn
};

class DelegationTable {
 public:
  explicit DelegationTable(const DelegationLimits& limits = {}) : limits_(limits) {}
  // For requests that can be applied at the server instead, or whose grants serve one operation.
  struct Manner {
    bool or_at_server = false;
    bool brief = false;
    bool must_hold = false;
  };

  // --- sessions
  // `number`: its numbers begin above. kUnclaimed: known from an earlier life of the server, holds an unknown something.
  enum class Birth : uint8_t { kNew, kUnclaimed };
  void Add(const Holder& holder, uint64_t number, Birth birth);
  // What it held is free, its requests fail with kFenced.
  void Remove(SessionId session, const std::string& reason, DelegationEffects& out);
  // If nobody else is on its branch and it is claimed. The number of that grant, else 0.
  uint64_t MakeAlone(SessionId session);
  // LSE-1: not for who owes an answer and makes no progress, nor beyond the time to reclaim.
  void Renew(SessionId session, BootTime received);
  void Progress(SessionId session, uint64_t progress, BootTime received);
  // What is left of its lease.
  absl::Duration LeaseLeft(SessionId session, BootTime now) const;
  const Holder* Find(SessionId session) const;
  std::vector<Holder> Holders() const;            // by id
  std::vector<Holder> OnBranch(BranchId branch) const;
  bool Unclaimed(SessionId session) const;
  // Another session of its branch has yet to say, after a restart, what it holds and has open.
  bool OthersUnclaimed(SessionId session) const;
  // The sessions whose time for that is over, to be ended since `waiter` wants to know.
  std::vector<DelegationEffects::End> LateClaims(BranchId branch, SessionId waiter, BootTime now) const;
  // None of the other sessions of its branch is unclaimed or alone (with its locks on the inode not taken): which ones they hold is known.
  bool LocksKnown(SessionId session, InodeId ino) const;
  // The number of its grant of everything; 0: not alone.
  uint64_t AloneNumber(SessionId session) const;

  // --- what is taken from a silent session (FENCE-1). The log has it already.
  void Take(SessionId session, const Taken& taken, Tree& tree);
  // Nothing is granted to it, and it may do nothing with what is taken.
  bool Unsettled(SessionId session) const;
  std::vector<Taken> TakenOf(SessionId session) const;  // by inode
  bool LocksTaken(SessionId session, InodeId ino) const;
  // kUnavailable while it owes what only its answer can tell: what it holds of everything, or after a restart.
  Status CheckSettle(SessionId session) const;
  void Settle(SessionId session, const std::vector<InodeId>& inodes);
  // May that be taken from it now, one by one? Else it is to be ended, if it is silent at all.
  bool MayTake(SessionId session, BootTime now) const;
  std::string SilentReason(SessionId session, SessionId waiter, BootTime now) const;

  // --- requests. `id` is the caller's, unique. A refused one leaves nothing.
  Status Acquire(uint64_t id, SessionId session, std::vector<Want> wants, BootTime deadline, Manner manner);
  Status Acquire(uint64_t id, SessionId session, std::vector<Want> wants, BootTime deadline) {
    return Acquire(id, session, std::move(wants), deadline, Manner{});
  }
  // Stands among the others, in order; conflicts with what the session itself holds as well (a look does not).
  Status Reserve(uint64_t id, SessionId session, Reservation reservation, BootTime deadline);
  bool Contended(BranchId branch, InodeId dir, BootTime now) const;
  // Takes what the session holds on one inode.
  void Revoke(uint64_t id, SessionId session, InodeId ino, BootTime deadline);
  // --- checkouts. `force` ends those of others in the way, which are told.
  // kHeldElsewhere; in: kNotFound. Granted when nobody else holds anything in it; until then it counts already.
  Status Checkout(uint64_t id, const CheckoutRequest& request, BootTime deadline, Tree& tree, BootTime now, DelegationEffects& out);
  // Of the session's; 0: none.
  uint64_t CheckoutNumber(SessionId session, InodeId dir) const;
  // Another session that has checked out the inode with what is above it, and whose lease is good; 0: none.
  SessionId CheckedOutBy(BranchId branch, InodeId ino, SessionId but, Tree& tree, BootTime now) const;

  // The caller has left.
  void Cancel(uint64_t id);
  // Grants, recalls and fails what can be now.
  void Look(Tree& tree, BootTime now, DelegationEffects& out);
  bool Waiting() const;  // somebody waits, or has too much
  // When Look is to be called at the latest; Infinite: never.
  BootTime NextLook() const;

  // --- what sessions say
  // Messages above `after` without an answer, at most `limit`; those at or below are forgotten.
  std::vector<SessionMessage> Poll(SessionId session, uint64_t after, size_t limit);
  // Another message for it, which nothing here waits for; its number. 0: there is no such session.
  uint64_t Tell(SessionId session, SessionMessage message, DelegationEffects& out);
  // kTryAgain if it has too much open; nothing happened then.
  Status Answer(SessionId session, const RecallAnswer& answer, Tree& tree, BootTime now);
  Status GiveBack(SessionId session, const std::vector<InodeId>& inodes, const std::vector<InodeId>& opens, Tree& tree);
  // kFenced with the reason if it conflicts: the session is to be ended.
  Result<uint64_t> Reclaim(const ReclaimRequest& request, Tree& tree, DelegationEffects& out);

  // --- commits
  // `home` as Tree::HomeOf, asked only if needed: not if the session has WRITE on the inode itself.
  Right RightOf(SessionId session, InodeId ino, const std::function<InodeId()>& home) const;
  // What a commit did to an inode; the tree shows it already.
  struct Touched {
    bool born = false;           // a directory, made by it
    bool links_changed = false;  // a non-directory that got or lost a name
    std::vector<InodeId> left;   // directories that it may have left
  };
  void Committed(SessionId session, const std::map<InodeId, Touched>& touched, Tree& tree);
  // Sessions other than `but` that have said that it is open there, in order.
  std::vector<SessionId> OpenElsewhere(BranchId branch, InodeId ino, SessionId but) const;
  // For an operation of `by` at the server, in order: all that have said so, and others than `by` that have just looked
  // it up there.
  std::vector<SessionId> OpenAnywhere(BranchId branch, InodeId ino, SessionId by, BootTime now) const;
  void Closed(SessionId session, InodeId ino);
  // An operation at the server; the tree shows it already. Nobody holds anything by it.
  void AppliedAtServer(BranchId branch, const std::map<InodeId, Touched>& touched, Tree& tree);
  // The session has made it, open.
  void Opened(SessionId session, InodeId ino);
  // It was shown to the session, which may be about to open it.
  void Glimpsed(SessionId session, InodeId ino, BootTime now);
  // False: commits of this session change nothing here.
  bool TakesNote(SessionId session) const;

  // --- reads
  // Of a non-directory with one name, in `dir`.
  bool Covered(SessionId session, InodeId dir, InodeId child) const;
  // READ on a directory for a session that did not ask for it, if it does not hold it and nobody has or wants anything that conflicts.
  // (Who is alone holds it and gets it.) Grants of one reply may have one number, from NewNumber.
  uint64_t NewNumber(SessionId session);
  std::optional<Grant> GrantAlong(SessionId session, InodeId dir, uint64_t number, Tree& tree);
  std::vector<RightInfo> List(size_t limit) const;
  size_t records() const;

 private:
  struct Recall {
    uint64_t message = 0;
    Right keep = Right::kNone;
  };
  struct Session {
    Holder holder;
    uint64_t number = 0;     // newest of its grants and messages
    bool unclaimed = false;
    BootTime claim_until;
    uint64_t reclaimed = 0;  // number that its Reclaim was answered with
    std::map<InodeId, Recall> recalls;  // unanswered
    std::map<uint64_t, InodeId> by_message;
    uint64_t alone_recall = 0;          // message; 0: none
    std::set<uint64_t> flushes;         // messages without an answer
    uint64_t last_checkout = 0;         // number of the newest call
    uint64_t ended_checkout = 0;        // ... when one was ended by force
    BootTime owing_since;               // the oldest of them, or the newest progress
    uint64_t progress = 0;
    InodeId trimmed_to;                 // where the search for old rights goes on
    std::map<uint64_t, SessionMessage> outbox;
    std::set<InodeId> opens;
    std::map<InodeId, Taken> taken;

    bool HasLost(InodeId ino) const {
      const auto it = taken.find(ino);
      return it != taken.end() && it->second.right;
    }
    bool Owes() const { return !recalls.empty() || alone_recall != 0 || !flushes.empty(); }
  };
  struct Request {
    uint64_t id = 0;
    SessionId session;
    std::vector<Want> wants;                 // empty: a revocation of `ino`
    std::optional<Reservation> reservation;  // wants: what it comes to now
    Manner manner;
    bool collided = false;  // counted as contention
    InodeId ino;
    bool recalled = false;
    bool checkout = false;                                        // of `ino`
    std::set<std::pair<SessionId, InodeId>> below;               // of a checkout: what others hold in it, as far as it was found
    std::pair<SessionId, InodeId> searched;                      // ... up to here
    bool found = false;                                           // ... in this round
    std::map<InodeId, std::pair<SessionId, uint64_t>> flushes;  // a look: who was asked to flush what is checked out, by which message
    BootTime deadline;
    // At the last look: whose answers it waits for (inode 0: to everything), or behind whose request it stands.
    std::vector<std::pair<SessionId, InodeId>> waits_for;
    std::optional<std::pair<SessionId, InodeId>> behind;
  };
  // Wants of others on non-directories, by home: a grant on the directory excepts them.
  using WantedChildren = absl::flat_hash_map<InodeId, std::vector<std::pair<SessionId, Want>>>;
  struct Branch {
    explicit Branch(const DelegationLimits& limits) : book(limits.rights_kept), contention(limits.contended_after) {}
    RightsBook book;
    SessionId alone;
    uint64_t alone_number = 0;
    std::list<Request> requests;
    absl::flat_hash_map<InodeId, std::set<SessionId>> opens;
    absl::flat_hash_map<InodeId, std::map<SessionId, BootTime>> glimpses;
    BootTime glimpses_swept;
    struct Checkout {
      SessionId session;
      uint64_t number = 0;
    };
    std::map<InodeId, Checkout> checkouts;
    uint64_t checkout_number = 0;  // newest
    size_t unclaimed = 0;                          // sessions
    BootTime claims_until = BootTime::Infinite();  // not before is the time of any of them over
    std::optional<WantedChildren> wanted;  // while nothing changes
    Contention contention;
  };
  struct Obstacle {
    SessionId session;
    InodeId ino;
    Right keep = Right::kNone;
  };
  using Ahead = absl::flat_hash_map<InodeId, WaitingLine>;

  Session* Live(SessionId session);
  const Session* Live(SessionId session) const;
  Branch& BranchOf(const Session& session) {
    return branches_.try_emplace(session.holder.branch, limits_).first->second;
  }
  Status CheckRoom(const Session& session, const Branch& branch) const;
  // --- delegation_requests.cc
  void Resolve(BranchId id, Request& request, Tree& tree);
  // Who stands before it on an inode.
  static std::optional<std::pair<SessionId, InodeId>> StandsBehind(const Request& request, const std::vector<Want>& wants, const Ahead& ahead);
  // True: it was answered that its operation is to be applied at the server.
  bool SentToServer(Branch& branch, const Request& request, BootTime now, DelegationEffects& out);
  // True: it has its turn and leaves the queue.
  bool LookAtWants(BranchId id, Branch& branch, Request& request, const Ahead& ahead, Tree& tree, BootTime now,
                   DelegationEffects& out);
  void CountCollisions(BranchId id, Branch& branch, Request& request, const std::vector<Obstacle>& obstacles,
                       Tree& tree, BootTime now);
  void LookAt(BranchId id, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out);
  bool AwaitClaims(BranchId id, Branch& branch, BootTime now, DelegationEffects& out);
  void LookAtAll(BranchId id, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out);
  bool FailLate(Branch& branch, BootTime now, DelegationEffects& out);
  std::vector<Obstacle> ObstaclesOf(BranchId id, Branch& branch, const Request& request, Tree& tree);
  void Send(Session& session, InodeId ino, Right keep, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out);
  void SendAlone(Session& session, Branch& branch, BootTime now, DelegationEffects& out);
  void SendAll(Branch& branch, Request& request, const std::vector<Obstacle>& obstacles, Tree& tree, BootTime now, DelegationEffects& out);
  bool LookAtRevocation(Branch& branch, Request& request, Tree& tree, BootTime now, DelegationEffects& out);
  DelegationEffects::Granted GrantAll(BranchId id, Branch& branch, const Request& request, Tree& tree);
  Grant GrantOne(BranchId id, Branch& branch, Session& session, const Want& want, Tree::Kind kind, Tree& tree);
  static std::vector<InodeId> KeptBeside(BranchId id, const Branch& branch, SessionId self, InodeId dir, const RightRecord& held, Tree& tree);
  // Without what others hold.
  static RightRecord& PutDirectory(Branch& branch, SessionId self, InodeId dir, Right right, uint64_t number);
  // Children that fell out of what the session held on the directory before.
  std::vector<InodeId> GrantDirectory(BranchId id, Branch& branch, Session& session, InodeId dir, Right right, uint64_t number, Tree& tree);
  const WantedChildren& Wanted(BranchId id, Branch& branch, Tree& tree);
  void TakeFromSilent(BranchId id, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out);
  bool Lost(const Session& session, InodeId ino, Tree& tree) const;
  Error TooLate(const Request& request) const;
  // --- checkouts.cc
  // True: it was refused, or answered that it is to be read through the holder.
  bool MeetsCheckout(BranchId id, Branch& branch, Request& request, Tree& tree, BootTime now, DelegationEffects& out);
  // True: what a look needs of what is checked out is durable.
  bool Flushed(BranchId id, Branch& branch, Request& request, Tree& tree, BootTime now, DelegationEffects& out);
  bool LookAtCheckout(BranchId id, Branch& branch, Request& request, Tree& tree, BootTime now, DelegationEffects& out);
  // Of the other sessions, those that a checkout of `dir` excludes.
  static std::vector<InodeId> Excluded(BranchId id, const Branch& branch, SessionId session, InodeId dir, Tree& tree);
  void ReclaimCheckouts(Session& session, Branch& branch, const ReclaimRequest& request, Tree& tree, DelegationEffects& out);
  void TellEnded(const Branch::Checkout& checkout, InodeId dir, DelegationEffects& out);
  Status CheckIn(Branch& branch, SessionId session, InodeId dir);
  static void UndoCheckout(Branch& branch, const Request& request);
  bool SearchBelow(BranchId id, Branch& branch, Request& request, Tree& tree, DelegationEffects& out);
  Error CheckedOut(SessionId holder, InodeId ino) const;
  // --- trim.cc
  void Trim(Branch& branch, Tree& tree, BootTime now, DelegationEffects& out);
  void TrimSession(Session& session, Branch& branch, Tree& tree, BootTime now, DelegationEffects& out);
  // --- delegation_table.cc
  void TakeAway(Session& session, Branch& branch, InodeId ino, Right keep, uint64_t number, Tree& tree);
  void Keep(Session& session, Branch& branch, const HeldRight& held, uint64_t number, Tree& tree);
  Status CheckOpens(const Session& session, const std::vector<InodeId>& opens) const;
  void AddOpens(Session& session, Branch& branch, const std::vector<InodeId>& opens, Tree& tree);
  void ForgetRecall(Session& session, InodeId ino);
  void ForgetAbsent(Branch& branch, InodeId ino);
  Status CheckClaim(const Session& session, Branch& branch, const ReclaimRequest& request) const;

  const DelegationLimits limits_;
  std::map<SessionId, Session> sessions_;
  std::map<BranchId, Branch> branches_;
};

// For people: who holds the disk, since when, and what can be done about it.
std::string HeldMessage(const std::string& disk, const std::string& client, absl::Duration age, absl::Duration silence, absl::Duration lease);

}  // namespace archil
