// Who holds very many rights is asked for the oldest of them (docs/delegation.md, "Many rights").
#include "tests/unit/server/meta/delegation_table_fixture.h"

namespace archil {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class DelegationTrimTest : public DelegationTableTest {
 protected:
  DelegationTrimTest() {
    for (uint64_t i = 0; i < 300; ++i) tree_.dirs.insert(InodeId{100 + i});
  }
  std::vector<InodeId> Asked(SessionId session) {
    std::vector<InodeId> out;
    for (const SessionMessage& m : small_.Poll(session, 0, 1000)) {
      EXPECT_EQ(m.keep, Right::kNone);
      out.push_back(m.ino);
    }
    return out;
  }
  void Grant(SessionId session, InodeId ino) {
    ASSERT_TRUE(small_.Acquire(++request_, session, {{ino, Right::kRead}}, BootTime::Infinite()).ok());
    LookSmall();
  }
  void LookSmall() {
    fx_ = {};
    small_.Look(tree_, now_, fx_);
  }
  void AddSmall(SessionId id) {
    small_.Add({id, kBranch, SessionMode::kReadWrite, Sharing::kShared, "client", Lease{now_, kLease, now_}}, kBase, DelegationTable::Birth::kNew);
  }
  DelegationTable small_{DelegationLimits{.rights_kept = 4}};
};

TEST_F(DelegationTrimTest, TheOldestAreRecalled) {
  AddSmall(kA);
  AddSmall(kB);
  for (uint64_t i = 0; i < 4; ++i) Grant(kA, InodeId{103 - i});
  EXPECT_THAT(Asked(kA), IsEmpty());
  EXPECT_FALSE(small_.Waiting());
  Grant(kA, InodeId{110});
  Grant(kA, InodeId{111});
  EXPECT_TRUE(small_.Waiting());
  EXPECT_EQ(Asked(kA).size(), 2u);
  for (const InodeId ino : Asked(kA)) EXPECT_THAT(ino, testing::AnyOf(InodeId{103}, InodeId{102}, InodeId{101})) << "of the older half";
  EXPECT_THAT(Asked(kB), IsEmpty());
  for (const SessionMessage& m : small_.Poll(kA, 0, 10)) ASSERT_TRUE(small_.Answer(kA, {.message = m.number}, tree_, now_).ok());
  LookSmall();
  EXPECT_THAT(Asked(kA), IsEmpty());
  EXPECT_FALSE(small_.Waiting());
  EXPECT_EQ(small_.records(), 4u);
}

TEST_F(DelegationTrimTest, AFewAtATime) {
  AddSmall(kA);
  AddSmall(kB);
  for (uint64_t i = 0; i < 200; ++i) Grant(kA, InodeId{100 + i});
  EXPECT_EQ(Asked(kA).size(), 64u);
  while (!Asked(kA).empty()) {
    const SessionMessage first = small_.Poll(kA, 0, 1)[0];
    ASSERT_TRUE(small_.Answer(kA, {.message = first.number}, tree_, now_).ok());
    LookSmall();
  }
  EXPECT_EQ(small_.records(), 4u);
}

TEST_F(DelegationTrimTest, NotFromWhoIsSilent) {
  AddSmall(kA);
  AddSmall(kB);
  for (uint64_t i = 0; i < 4; ++i) Grant(kA, InodeId{100 + i});
  now_ = now_ + kLease;
  Grant(kA, InodeId{110});
  EXPECT_THAT(Asked(kA), IsEmpty());
  small_.Renew(kA, now_);
  LookSmall();
  EXPECT_THAT(Asked(kA), ElementsAre(InodeId{100}));
}

}  // namespace
}  // namespace archil
