// Versions by epoch and branch, and the pure cores of delegations and leases.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "server/meta/delegation/delegation_table.h"
#include "server/meta/store/records.h"

namespace archil {
namespace {

// --- versions by epoch and branch, as checkpoints and branches will make them

TEST(RecordsTest, NewestVersionAtOrBelowTheEpochThenTheParents) {
  auto kv = NewMemKvStore();
  const auto put_branch = [&](const BranchRecord& r) { ASSERT_TRUE(kv->Write({{{DiskWideKey(BranchKey(r.id)), Encode(r)}}, {}}).ok()); };
  const auto change = [&](BranchId branch, const std::string& name, std::optional<uint64_t> ino) {
    Txn txn(*kv);
    ASSERT_TRUE(txn.UseBranch(branch).ok());
    if (ino) {
      txn.Put(DentryKey(kRootInode, name), Encode(DentryRecord{InodeId{*ino}, FileType::kRegular}));
    } else {
      txn.Delete(DentryKey(kRootInode, name));
    }
    ASSERT_TRUE(kv->Write(*txn.Finish()).ok());
  };
  const auto shows = [&](BranchChain chain) {
    const Records r(*kv, std::move(chain));
    std::string out;
    EXPECT_TRUE(r.Scan(DentryPrefix(kRootInode), "", [&](std::string_view key, std::string_view value) {
                   out += std::string(NameOfDentry(key)) + std::to_string(DecodeDentry(value)->ino.value);
                   EXPECT_EQ((*r.GetDentry(kRootInode, NameOfDentry(key)))->ino, DecodeDentry(value)->ino);
                   return true;
                 }).ok());
    return out;
  };
  const BranchId main{1}, child{2};
  put_branch({main, "main", Epoch{1}, Epoch{1}, {}, {}});
  change(main, "a", 10);
  change(main, "b", 11);
  EXPECT_TRUE(LoadBranchChain(*kv, main)->single_epoch);
  put_branch({main, "main", Epoch{2}, Epoch{1}, {}, {}});  // a checkpoint of epoch 1
  change(main, "a", 20);
  change(main, "b", std::nullopt);
  change(main, "c", 21);
  EXPECT_EQ(shows(*LoadBranchChain(*kv, main)), "a20c21");
  EXPECT_EQ(shows({{{main, Epoch{1}}}, false}), "a10b11");
  put_branch({child, "child", Epoch{1}, Epoch{1}, main, Epoch{1}});  // made from the checkpoint
  EXPECT_EQ(shows(*LoadBranchChain(*kv, child)), "a10b11");
  change(child, "a", std::nullopt);
  change(child, "d", 30);
  EXPECT_EQ(shows(*LoadBranchChain(*kv, child)), "b11d30");
  change(child, "d", std::nullopt);  // hides nothing: no tombstone
  EXPECT_FALSE(kv->Get(VersionedKey(child, DentryKey(kRootInode, "d"), Epoch{1}))->has_value());
  EXPECT_TRUE(IsTombstone(**kv->Get(VersionedKey(child, DentryKey(kRootInode, "a"), Epoch{1}))));
  EXPECT_EQ(shows(*LoadBranchChain(*kv, main)), "a20c21");
  change(main, "b", 22);  // over a tombstone
  EXPECT_EQ(shows(*LoadBranchChain(*kv, main)), "a20b22c21");
  EXPECT_EQ(shows(*LoadBranchChain(*kv, child)), "b11");
  put_branch({main, "main", Epoch{2}, Epoch{1}, main, Epoch{1}});
  EXPECT_EQ(LoadBranchChain(*kv, main).code(), Code::kCorrupt);
}

// LSE-1
TEST(LeaseTest, CountsFromTheNewestReceipt) {
  const BootTime t0{absl::Seconds(100)};
  Lease lease{t0, absl::Seconds(15), t0};
  EXPECT_FALSE(lease.Expired(t0 + absl::Seconds(14)));
  EXPECT_TRUE(lease.Expired(t0 + absl::Seconds(15)));
  lease.Renew(t0 + absl::Seconds(10));
  lease.Renew(t0 + absl::Seconds(5));  // an older message that was overtaken
  EXPECT_FALSE(lease.Expired(t0 + absl::Seconds(24)));
  EXPECT_EQ(lease.steady_since, t0);
  lease.Renew(t0 + absl::Seconds(30));  // late, and nobody minded
  EXPECT_FALSE(lease.Expired(t0 + absl::Seconds(31)));
  EXPECT_EQ(lease.steady_since, t0 + absl::Seconds(30));
  EXPECT_EQ(GrantedLease(absl::ZeroDuration(), absl::Seconds(15), absl::Seconds(1), absl::Minutes(5)), absl::Seconds(15));
  EXPECT_EQ(GrantedLease(absl::Hours(1), absl::Seconds(15), absl::Seconds(1), absl::Minutes(5)), absl::Minutes(5));
  EXPECT_EQ(GrantedLease(absl::Milliseconds(1), absl::Seconds(15), absl::Seconds(1), absl::Minutes(5)), absl::Seconds(1));
}

}  // namespace
}  // namespace archil
