// Agreement: decides whether two file systems gave equal answers, one of them the reference.
//
// Inode numbers must correspond one to one. Logical times of the reference correspond to times of the other
// side: a tick always shows the same time and a later tick a later one (exact), or at least not an earlier
// one (a host whose clock ticks coarsely).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "tests/support/fs_runner.h"
#include "tests/support/ref_state.h"

namespace archil::test {

struct AgreementRules {
  bool inodes = true;       // inode numbers are never reused
  bool exact_times = true;  // else: ordered
  bool atime = true;
  bool directory_sizes = true;
  bool removed_directories = true;  // else: times and mode of a directory that has been removed are those that were last seen
};

class Agreement {
 public:
  explicit Agreement(const AgreementRules& rules) : rules_(rules) {}

  // What differs; nullopt if nothing does. Learns inode numbers and times.
  std::optional<std::string> Compare(const ModelOp& op, const Outcome& ref, const Outcome& real);
  std::optional<std::string> Compare(const Tree& ref, const Tree& real);
  // Differences of the attributes without learning: what is not known yet agrees. `data`: size and times of the data
  // count too.
  std::optional<std::string> Differ(const Attr& ref, const Attr& real, bool data) const;
  // Forgets what it knows of a time that the reference may still have to learn (after a crash).
  bool Knows(Timestamp tick) const { return times_.contains(tick.sec); }

 private:
  std::optional<std::string> CompareAttr(const Attr& ref, const Attr& real);
  std::optional<std::string> CompareIno(InodeId ref, InodeId real);
  std::optional<std::string> CompareTime(const char* what, Timestamp ref, Timestamp real);
  bool TimeAgrees(Timestamp ref, Timestamp real) const;

  AgreementRules rules_;
  std::map<InodeId, InodeId> to_real_;
  std::map<InodeId, InodeId> to_ref_;
  std::map<int64_t, Timestamp> times_;  // tick -> time there
};

}  // namespace archil::test
