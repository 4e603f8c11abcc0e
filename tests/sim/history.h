// What the applications of a simulated run did and what they were told, and the small file system that judges it.
// Shares nothing with the product but value types.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace archil::sim {

enum class Verb : uint8_t {
  kLookup,
  kGetAttr,
  kList,
  kCreate,
  kMkdir,
  kUnlink,
  kRmdir,
  kRename,
  kExchange,
  kLink,
  kOpen,
  kClose,
  kRead,
  kWrite,
  kAppend,
  kTruncate,
  kFsync,
  kDump,  // the whole tree as one mount shows it, when all is quiet
};

// One inode as the whole tree shows it.
struct Shown {
  bool directory = false;
  uint32_t nlink = 0;
  std::string content;                   // files
  std::map<std::string, InodeId> names;  // directories
  friend bool operator==(const Shown&, const Shown&) = default;
};
using Tree = std::map<InodeId, Shown>;

struct Event {
  Verb verb = Verb::kLookup;
  int client = 0;  // one life of one mount
  int thread = 0;
  InodeId ino;  // what it is about; a directory for the verbs with names
  InodeId to;   // rename: the other directory; link: the file
  std::string name;
  std::string new_name;
  uint64_t offset = 0;
  uint64_t size = 0;
  std::string data;  // to write; as read

  // The answer.
  bool unknown = false;  // none, or one that leaves open whether it happened
  Code code = Code::kOk;
  InodeId found;  // lookup, create, mkdir
  bool directory = false;
  uint32_t nlink = 0;
  std::map<std::string, InodeId> names;
  Tree tree;

  // Of one counter of the whole run.
  uint64_t begun = 0;
  uint64_t ended = UINT64_MAX;  // unknown ones never end
};
std::string ToString(const Event& event);

// The reference: every operation happens at one moment.
class RefTree {
 public:
  RefTree();
  explicit RefTree(Tree tree) : nodes_(std::move(tree)) {}

  // Does what the event asks. False: the answer that was given cannot come from this state. With `judge` kNot the
  // answer is not looked at (but for the number of what is born); false then: it cannot be done.
  enum class Judge : uint8_t { kAnswer, kNot };
  bool Apply(const Event& event, Judge judge);
  // The client is gone, with its open files.
  void Forget(int client);
  // It was not heard for a while: what others removed then is gone for it, open or not (docs/semantics.md, FENCE-1).
  void WasSilent(int client) { silent_.insert(client); }
  uint64_t Hash() const;
  const Tree& nodes() const { return nodes_; }
  // What differs from what has a name, or nullopt.
  std::optional<std::string> Compare(const Tree& shown) const;

 private:
  struct Verdict {
    Code code = Code::kOk;
    bool loose = false;  // other answers will do as well
  };
  Verdict Names(const Event& event, Judge judge);
  Verdict Rename(const Event& event);
  Verdict File(const Event& event, Judge judge);
  Shown* Dir(InodeId ino);
  bool Open(int client, InodeId ino) const;
  bool Removed(InodeId ino) const;
  void Unname(InodeId ino);
  void DropIfGone(InodeId ino);
  bool Below(InodeId ino, InodeId above) const;

  Tree nodes_;  // with those that have no name but are open
  std::map<std::pair<int, InodeId>, int> opens_;
  std::map<InodeId, bool> removed_;  // had a name once
  std::set<int> silent_;
};

// The client went silent and others took what they wanted, at some moment after `begun`: what it had not made durable
// may be lost.
struct Loss {
  int client = 0;
  uint64_t begun = 0;
  bool lives = false;  // it came back, and goes on with its open files
};

// Whether some order of the events that respects who ended before who began gives the answers that were given, starting
// at `start`. Events of one thread are in order; what is lost is a suffix of a client's changes of names and sizes
// (ORD-1), of its writes any that no fsync covered and no kept rename or link of the file follows (ORD-2).
struct Judgement {
  bool found = false;
  bool gave_up = false;  // the search was too long: no verdict
  RefTree end;
  std::string furthest;  // not found: how far it came
};
Judgement FindOrder(const RefTree& start, const std::vector<Event>& events, const std::vector<Loss>& losses,
                    uint64_t limit = 400'000);

}  // namespace archil::sim
