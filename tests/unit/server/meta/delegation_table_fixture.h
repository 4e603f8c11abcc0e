// What the tests of the delegation table work on: a small tree, three sessions, one request at a time.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/meta/delegation/delegation_table.h"

namespace archil {

inline constexpr BranchId kBranch{1};
inline constexpr InodeId kDir{2}, kOther{3}, kFile{10}, kTwoNames{11}, kGone{12};
inline constexpr SessionId kA{1}, kB{2}, kC{3};
inline constexpr uint64_t kBase = 1ULL << 40;

class FixedTree final : public Tree {
 public:
  Kind KindOf(BranchId, InodeId ino) override {
    if (dirs.contains(ino)) return Kind::kDirectory;
    return homes.contains(ino) ? Kind::kOther : Kind::kAbsent;
  }
  InodeId HomeOf(BranchId, InodeId ino) override { return homes.contains(ino) ? homes[ino] : InodeId{0}; }
  InodeId ChildOf(BranchId, InodeId, const std::string&) override { return InodeId{0}; }
  InodeId ParentOf(BranchId, InodeId) override { return InodeId{0}; }
  bool Reaches(BranchId, InodeId, SessionId) override { return true; }
  std::set<InodeId> dirs = {kRootInode, kDir, kOther};
  std::map<InodeId, InodeId> homes = {{kFile, kDir}, {kTwoNames, InodeId{0}}};
};

class DelegationTableTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kLease = absl::Seconds(15);

  void Add(SessionId id, DelegationTable::Birth birth = DelegationTable::Birth::kNew, SessionMode mode = SessionMode::kReadWrite) {
    table_.Add({id, kBranch, mode, Sharing::kShared, "client-" + std::to_string(id.value), Lease{now_, kLease, now_}}, kBase, birth);
  }
  void AddThree() {
    Add(kA);
    Add(kB);
    Add(kC);
  }
  void Look() {
    fx_ = {};
    table_.Look(tree_, now_, fx_);
  }
  // The request's number; fx_ holds what came of it.
  uint64_t Ask(SessionId session, std::vector<Want> wants, BootTime deadline = BootTime::Infinite()) {
    EXPECT_TRUE(table_.Acquire(++request_, session, std::move(wants), deadline).ok());
    Look();
    return request_;
  }
  // Granted at once; its number.
  uint64_t Get(SessionId session, InodeId ino, Right right) {
    const uint64_t id = Ask(session, {{ino, right}});
    EXPECT_EQ(fx_.granted.size(), 1u);
    if (fx_.granted.size() != 1 || fx_.granted[0].id != id || fx_.granted[0].grants.size() != 1) return 0;
    EXPECT_GE(fx_.granted[0].grants[0].right, right);
    return fx_.granted[0].grants[0].number;
  }
  // The one message that waits for the session.
  SessionMessage Message(SessionId session, uint64_t after = 0) {
    const auto all = table_.Poll(session, after, 10);
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? SessionMessage{} : all[0];
  }
  void Answer(SessionId session, uint64_t message, Right kept, std::vector<InodeId> opens = {}) {
    ASSERT_TRUE(table_.Answer(session, {.message = message, .kept = kept, .opens = std::move(opens)}, tree_, now_).ok());
    Look();
  }
  Right Has(SessionId session, InodeId ino) {
    return table_.RightOf(session, ino, [&] { return tree_.HomeOf(kBranch, ino); });
  }

  FixedTree tree_;
  DelegationTable table_;
  DelegationEffects fx_;
  BootTime now_{absl::Seconds(100)};
  uint64_t request_ = 0;
};

}  // namespace archil
