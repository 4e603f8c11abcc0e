// The op log by example: order, pending ops, limits, and what absorption leaves behind.
#include "client/oplog/op_log.h"

#include <gtest/gtest.h>

#include "common/format/op_codec.h"
#include "tests/unit/client/oplog/log_check.h"

namespace archil {
namespace {

constexpr InodeId kDir{2};
constexpr BatchLimits kNoLimits;

Timestamp At(int64_t t) { return {t, 0}; }
Op Create(InodeId parent, std::string name, InodeId ino, int64_t t, FileType type = FileType::kRegular) {
  return CreateOp{.parent = parent, .name = std::move(name), .ino = ino, .type = type, .now = At(t)};
}
Op Mkdir(InodeId parent, std::string name, InodeId ino, int64_t t) {
  return Create(parent, std::move(name), ino, t, FileType::kDirectory);
}
Op Unlink(InodeId parent, std::string name, InodeId ino, int64_t t, bool still_open = false) {
  return UnlinkOp{parent, std::move(name), ino, still_open, At(t)};
}
Op Rmdir(InodeId parent, std::string name, InodeId ino, int64_t t, bool still_open = false) {
  return RmdirOp{parent, std::move(name), ino, still_open, At(t)};
}
Op Rename(InodeId from, std::string name, InodeId ino, InodeId to, std::string new_name, InodeId victim, int64_t t,
          bool still_open = false) {
  return RenameOp{from, std::move(name), to, std::move(new_name), ino, victim, RenameOp::Mode::kPlain, still_open, At(t)};
}
SetExtentsOp Write(InodeId ino, int64_t t) { return {.ino = ino, .size = 4096, .mtime = At(t), .ctime = At(t)}; }
std::vector<Extent> Data() { return {{.offset = 0, .length = 4096, .segment = SegmentId{9}}}; }

// What one commit of all ops sends, one line each.
std::vector<std::string> Sent(OpLog& log, Seq upto = Seq{~0ULL}, const BatchLimits& limits = kNoLimits) {
  const auto batch = log.Plan(upto, limits);
  if (!batch) return {"nothing"};
  const auto ops = DecodeOps(batch->ops);
  if (!ops.ok() || ops->size() != batch->count) return {"malformed"};
  std::vector<std::string> out;
  for (const Op& op : *ops) out.push_back(Describe(op));
  log.Committed(batch->last);
  return out;
}
std::vector<std::string> SentOf(const Script& script) {
  OpLog log;
  for (const Op& op : script) log.Append(op);
  return Sent(log);
}
using Lines = std::vector<std::string>;

TEST(OpLog, NumbersAndSizes) {
  OpLog log(Seq{41});
  EXPECT_EQ(log.last(), Seq{41});
  EXPECT_EQ(log.durable(), Seq{41});
  EXPECT_FALSE(log.Plan(log.last(), kNoLimits));
  const Op op = Create(kRootInode, "f", InodeId{10}, 1);
  EXPECT_EQ(log.Append(op), Seq{42});
  EXPECT_EQ(log.Append(SetAttrOp{.ino = InodeId{10}}), Seq{43});
  EXPECT_EQ(log.size(), 2u);
  EXPECT_EQ(log.bytes(), EncodedSize(op) + EncodedSize(SetAttrOp{.ino = InodeId{10}}));
  const auto batch = log.Plan(Seq{42}, kNoLimits);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->first, Seq{42});
  EXPECT_EQ(batch->last, Seq{42});
  EXPECT_EQ(batch->count, 1u);
  EXPECT_EQ(batch->ops, EncodeOps({&op, 1}));
  EXPECT_EQ(log.durable(), Seq{41});
  EXPECT_FALSE(log.Plan(log.last(), kNoLimits)) << "one batch is in flight";
  log.Committed(batch->last);
  EXPECT_EQ(log.durable(), Seq{42});
  EXPECT_EQ(log.size(), 1u);
  EXPECT_EQ(log.births(), 0u);
  EXPECT_FALSE(log.Plan(Seq{42}, kNoLimits));
  EXPECT_EQ(Sent(log), Lines{"setattr #10 0x0"});
  EXPECT_EQ(log.bytes(), 0u);
}

// EXT-1
TEST(OpLog, EndsBeforeTheFirstPendingOp) {
  OpLog log;
  log.Append(Create(kRootInode, "f", InodeId{10}, 1));
  const Seq first = log.AppendPending(Write(InodeId{10}, 2));
  const Seq second = log.AppendPending(Write(InodeId{10}, 3));
  log.Append(Create(kRootInode, "g", InodeId{11}, 4));
  EXPECT_EQ(log.first_pending(), first);
  EXPECT_EQ(Sent(log), Lines{"create 1/f #10"});
  EXPECT_EQ(Sent(log), Lines{"nothing"});
  log.Fill(second, Data());
  EXPECT_EQ(log.first_pending(), first);
  EXPECT_EQ(Sent(log), Lines{"nothing"});
  const uint64_t before = log.bytes();
  log.Fill(first, Data());
  EXPECT_GT(log.bytes(), before);
  EXPECT_FALSE(log.first_pending());
  EXPECT_EQ(Sent(log), (Lines{"write #10", "write #10", "create 1/g #11"}));
  EXPECT_EQ(log.bytes(), 0u);
}

TEST(OpLog, LimitsCutThePrefix) {
  OpLog log;
  for (uint64_t i = 0; i < 10; i++) log.Append(Create(kRootInode, std::to_string(i), InodeId{10 + i}, 1));
  EXPECT_EQ(Sent(log, log.last(), {.max_ops = 4}).size(), 4u);
  const size_t one = EncodedSize(Create(kRootInode, "0", InodeId{10}, 1));
  EXPECT_EQ(Sent(log, log.last(), {.max_bytes = 11 + 3 * one}).size(), 3u);
  EXPECT_EQ(Sent(log, log.last(), {.max_ops = 1}).size(), 1u);
  EXPECT_EQ(Sent(log, log.last(), {.max_bytes = 1}).size(), 1u) << "one op always goes";
  EXPECT_EQ(Sent(log, log.last(), {.max_ops = 0}).size(), 1u);
}

TEST(OpLog, NeverMoreThanTheServerTakes) {
  OpLog log;
  for (uint64_t i = 0; i < 10'000; i++) log.Append(Create(kRootInode, std::to_string(i), InodeId{10 + i}, 1));
  EXPECT_EQ(Sent(log, log.last(), {.max_ops = 100'000, .max_bytes = ~0ULL}).size(), kMaxOpsPerCommit);
}

TEST(Absorption, TemporaryFileLeavesTheTimesOfItsParent) {
  EXPECT_EQ(SentOf({Create(kDir, "t", InodeId{10}, 1), SetAttrOp{.ino = InodeId{10}}, Unlink(kDir, "t", InodeId{10}, 7)}),
            Lines{"touch #2 7"});
}

TEST(Absorption, NoTouchIfTheParentChangesAgain) {
  EXPECT_EQ(SentOf({Create(kDir, "t", InodeId{10}, 1), Unlink(kDir, "t", InodeId{10}, 2), Create(kDir, "u", InodeId{11}, 3)}),
            Lines{"create 2/u #11"});
}

TEST(Absorption, ExplicitTimesOfTheParentWin) {
  const SetAttrOp utimes{.ino = kDir, .fields = SetAttrOp::kMtime, .now = At(5)};
  EXPECT_EQ(SentOf({Create(kDir, "t", InodeId{10}, 1), Unlink(kDir, "t", InodeId{10}, 2), utimes}), Lines{"setattr #2 0x20"});
  EXPECT_EQ(SentOf({Create(kDir, "t", InodeId{10}, 1), utimes, Unlink(kDir, "t", InodeId{10}, 6)}),
            (Lines{"setattr #2 0x20", "touch #2 6"}));
  const SetAttrOp chmod{.ino = kDir, .fields = SetAttrOp::kMode, .now = At(5)};
  EXPECT_EQ(SentOf({Create(kDir, "t", InodeId{10}, 1), Unlink(kDir, "t", InodeId{10}, 2), chmod}),
            (Lines{"touch #2 2", "setattr #2 0x1"}));
}

TEST(Absorption, WriteTempAndRenameTwiceOverOneFile) {
  EXPECT_EQ(SentOf({Create(kDir, "t", InodeId{10}, 1), Rename(kDir, "t", InodeId{10}, kDir, "f", InodeId{3}, 2),
                    Create(kDir, "t", InodeId{11}, 3), Rename(kDir, "t", InodeId{11}, kDir, "f", InodeId{10}, 4)}),
            (Lines{"unlink 2/f #3", "create 2/t #11", "rename 2/t #11 -> 2/f victim 0"}));
}

TEST(Absorption, TheReplacedKeepsWhetherItIsOpen) {
  EXPECT_EQ(SentOf({Create(kRootInode, "t", InodeId{10}, 1), Rename(kRootInode, "t", InodeId{10}, kDir, "f", InodeId{3}, 2, true),
                    Unlink(kDir, "f", InodeId{10}, 3)}),
            (Lines{"unlink 2/f #3 open", "touch #1 2", "touch #2 3"}));
}

TEST(Absorption, DirectoryOverDirectory) {
  EXPECT_EQ(SentOf({Mkdir(kRootInode, "n", InodeId{10}, 1), Rename(kRootInode, "n", InodeId{10}, kDir, "o", InodeId{4}, 2),
                    Rmdir(kDir, "o", InodeId{10}, 3)}),
            (Lines{"rmdir 2/o #4", "touch #1 2", "touch #2 3"}));
}

TEST(Absorption, WholeTreesLeaveOneTouch) {
  EXPECT_EQ(SentOf({Mkdir(kDir, "x", InodeId{10}, 1), Create(InodeId{10}, "a", InodeId{11}, 2), Mkdir(InodeId{10}, "y", InodeId{12}, 3),
                    Create(InodeId{12}, "b", InodeId{13}, 4), Unlink(InodeId{12}, "b", InodeId{13}, 5),
                    Rmdir(InodeId{10}, "y", InodeId{12}, 6), Unlink(InodeId{10}, "a", InodeId{11}, 7),
                    Rmdir(kDir, "x", InodeId{10}, 8)}),
            Lines{"touch #2 8"});
}

TEST(Absorption, ADirectoryThatSomethingSurvivedIsSent) {
  EXPECT_EQ(SentOf({Mkdir(kDir, "x", InodeId{10}, 1), Create(InodeId{10}, "a", InodeId{11}, 2),
                    Rename(InodeId{10}, "a", InodeId{11}, kDir, "a", InodeId{}, 3), Rmdir(kDir, "x", InodeId{10}, 4)}),
            (Lines{"create 2/x #10 dir", "create 10/a #11", "rename 10/a #11 -> 2/a victim 0", "rmdir 2/x #10"}));
}

// A directory must not be left out for an inode that was born in an earlier commit.
TEST(Absorption, ADirectoryThatHeldAnOlderInodeIsSent) {
  OpLog log;
  log.Append(Create(kDir, "a", InodeId{10}, 1));
  log.Append(Mkdir(kDir, "x", InodeId{11}, 2));
  log.Append(Rename(kDir, "a", InodeId{10}, InodeId{11}, "a", InodeId{}, 3));
  log.Append(Unlink(InodeId{11}, "a", InodeId{10}, 4));
  log.Append(Rmdir(kDir, "x", InodeId{11}, 5));
  EXPECT_EQ(Sent(log, Seq{1}), Lines{"create 2/a #10"});
  EXPECT_EQ(Sent(log), (Lines{"create 2/x #11 dir", "rename 2/a #10 -> 11/a victim 0", "unlink 11/a #10", "rmdir 2/x #11"}));
}

TEST(Absorption, HardLinksGoOnlyWithAllNames) {
  const Op link = LinkOp{InodeId{10}, kRootInode, "l", At(2)};
  EXPECT_EQ(SentOf({Create(kDir, "t", InodeId{10}, 1), link, Unlink(kDir, "t", InodeId{10}, 3)}),
            (Lines{"create 2/t #10", "link #10 1/l", "unlink 2/t #10"}));
  EXPECT_EQ(SentOf({Create(kDir, "t", InodeId{10}, 1), link, Unlink(kDir, "t", InodeId{10}, 3), Unlink(kRootInode, "l", InodeId{10}, 4)}),
            (Lines{"touch #2 3", "touch #1 4"}));
}

TEST(Absorption, OpenFilesGoWithTheirRelease) {
  OpLog log;
  log.Append(Create(kDir, "t", InodeId{10}, 1));
  log.Append(Unlink(kDir, "t", InodeId{10}, 2, true));
  log.Append(SetAttrOp{.ino = InodeId{10}});
  log.Append(ReleaseOrphanOp{InodeId{10}});
  EXPECT_EQ(Sent(log), Lines{"touch #2 2"});
}

TEST(Absorption, OpenFilesWithoutTheirReleaseAreSent) {
  OpLog log;
  log.Append(Create(kDir, "t", InodeId{10}, 1));
  log.Append(Unlink(kDir, "t", InodeId{10}, 2, true));
  log.Append(ReleaseOrphanOp{InodeId{10}});
  EXPECT_EQ(Sent(log, Seq{2}), (Lines{"create 2/t #10", "unlink 2/t #10 open"}));
  EXPECT_EQ(Sent(log), Lines{"release #10"});
}

// Its use ended before anybody heard of the removal: as if nobody had used it. Its directory goes with it.
TEST(Absorption, AUseThatEndedInTimeWasNone) {
  OpLog log;
  log.Append(Mkdir(kDir, "x", InodeId{10}, 1));
  log.Append(Create(InodeId{10}, "t", InodeId{11}, 2));
  const Seq removal = log.Append(Unlink(InodeId{10}, "t", InodeId{11}, 3, true));
  log.Append(Rmdir(kDir, "x", InodeId{10}, 4));
  EXPECT_TRUE(log.UseEnded(removal));
  EXPECT_EQ(Sent(log), Lines{"touch #2 4"});

  const Seq old = log.Append(Unlink(kDir, "old", InodeId{5}, 5, true));
  const Seq replaced = log.Append(Rename(kDir, "a", InodeId{6}, kDir, "b", InodeId{7}, 6, true));
  EXPECT_TRUE(log.UseEnded(old));
  EXPECT_TRUE(log.UseEnded(replaced));
  EXPECT_EQ(Sent(log), (Lines{"unlink 2/old #5", "rename 2/a #6 -> 2/b victim 7"}));
  EXPECT_FALSE(log.UseEnded(replaced)) << "the server has heard that it is in use";

  const Seq on_its_way = log.Append(Unlink(kDir, "c", InodeId{8}, 7, true));
  const auto batch = log.Plan(log.last(), kNoLimits);
  ASSERT_TRUE(batch);
  EXPECT_FALSE(log.UseEnded(on_its_way));
  log.GiveUpPlan();
  EXPECT_FALSE(log.UseEnded(on_its_way)) << "the server may have it all the same";
  EXPECT_EQ(Sent(log), Lines{"unlink 2/c #8 open"});
}

TEST(Absorption, ADirectoryWaitsForItsOrphans) {
  OpLog log;
  log.Append(Mkdir(kDir, "x", InodeId{10}, 1));
  log.Append(Create(InodeId{10}, "t", InodeId{11}, 2));
  log.Append(Create(InodeId{10}, "u", InodeId{12}, 2));
  const Seq removal = log.Append(Unlink(InodeId{10}, "t", InodeId{11}, 3, true));
  log.Append(Unlink(InodeId{10}, "u", InodeId{12}, 3, true));
  log.Append(Rmdir(kDir, "x", InodeId{10}, 4));
  EXPECT_TRUE(log.UseEnded(removal));
  EXPECT_EQ(Sent(log), (Lines{"create 2/x #10 dir", "create 10/u #12", "unlink 10/u #12 open", "rmdir 2/x #10"}));
}

TEST(Absorption, ExchangedInodesAreSent) {
  const Op exchange = RenameOp{kDir, "t", kDir, "f", InodeId{10}, InodeId{3}, RenameOp::Mode::kExchange, false, At(2)};
  EXPECT_EQ(SentOf({Create(kDir, "t", InodeId{10}, 1), exchange, Unlink(kDir, "f", InodeId{10}, 3)}).size(), 3u);
}

TEST(Absorption, ACutBetweenBirthAndDeathSendsBoth) {
  OpLog log;
  log.Append(Create(kDir, "t", InodeId{10}, 1));
  log.Append(Unlink(kDir, "t", InodeId{10}, 2));
  EXPECT_EQ(Sent(log, Seq{1}), Lines{"create 2/t #10"});
  EXPECT_EQ(Sent(log), Lines{"unlink 2/t #10"});
}

TEST(Absorption, NeverMoreOpsThanNumbers) {
  const Script script = {Create(kRootInode, "x", InodeId{10}, 1), Rename(kRootInode, "x", InodeId{10}, InodeId{5}, "z", InodeId{3}, 2),
                         Rename(InodeId{5}, "z", InodeId{10}, InodeId{6}, "z", InodeId{4}, 3), Unlink(InodeId{6}, "z", InodeId{10}, 4)};
  EXPECT_LE(SentOf(script).size(), script.size());
}

// With --flush-ops 100000, files that are created, written and deleted send nothing about them.
TEST(Absorption, TenThousandTemporaryFilesSendOneTouch) {
  for (const bool all_at_once : {false, true}) {
    OpLog log;
    constexpr uint64_t kFiles = 10'000;
    std::vector<Seq> writes;
    const auto remove = [&](uint64_t i) {
      log.Append(Unlink(kDir, std::to_string(i), InodeId{100 + i}, 2));
    };
    uint64_t uploads = 0;
    for (uint64_t i = 0; i < kFiles; i++) {
      log.Append(Create(kDir, std::to_string(i), InodeId{100 + i}, 1));
      const Seq write = log.AppendPending(Write(InodeId{100 + i}, 1));
      if (!all_at_once) {
        remove(i);
        if (!log.Cancel(write)) log.Fill(write, Data()), uploads++;
      } else {
        log.Fill(write, Data());
      }
    }
    for (uint64_t i = 0; all_at_once && i < kFiles; i++) remove(i);
    EXPECT_EQ(uploads, 0u);
    const auto batch = log.Plan(log.last(), kNoLimits);
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->last, Seq{3 * kFiles});
    EXPECT_EQ(batch->count, 1u);
    EXPECT_EQ(batch->absorbed_ops, 3 * kFiles);
    EXPECT_EQ(batch->absorbed.size(), kFiles);
    const auto ops = DecodeOps(batch->ops);
    ASSERT_TRUE(ops.ok());
    EXPECT_EQ(Describe(ops->front()), "touch #2 2");
    log.Committed(batch->last);
    EXPECT_EQ(log.size(), 0u);
    EXPECT_EQ(log.bytes(), 0u);
  }
}

// What is absorbed does not count against the limits of a batch, however it is nested.
TEST(Absorption, LimitsCountWhatIsSent) {
  OpLog log;
  for (uint64_t i = 0; i < 1000; i++) {
    const InodeId dir{100 + 2 * i};
    const InodeId file{101 + 2 * i};
    log.Append(Mkdir(kDir, "x", dir, 1));
    log.Append(Create(dir, "f", file, 2));
    log.Append(Unlink(dir, "f", file, 3));
    log.Append(Rmdir(kDir, "x", dir, 4));
  }
  EXPECT_EQ(log.births(), 2000u);
  EXPECT_EQ(Sent(log, log.last(), {.max_ops = 4, .max_bytes = 300}), Lines{"touch #2 4"});
  EXPECT_EQ(log.size(), 0u);
  EXPECT_EQ(log.births(), 0u);
}

TEST(Absorption, BatchesOfNothingHaveNumbers) {
  OpLog log;
  const Seq write = log.AppendPending(Write(InodeId{3}, 1));
  log.Append(Unlink(kDir, "f", InodeId{3}, 2));
  log.Append(ReleaseOrphanOp{InodeId{8}});
  EXPECT_TRUE(log.Cancel(write));
  EXPECT_EQ(log.Reach(Seq{1}), Seq{3});
  EXPECT_EQ(Sent(log), (Lines{"unlink 2/f #3", "release #8"}));

  OpLog empty;
  const Seq only = empty.AppendPending(Write(InodeId{3}, 1));
  EXPECT_TRUE(empty.Cancel(only));
  const auto batch = empty.Plan(empty.last(), kNoLimits);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->count, 0u);
  EXPECT_EQ(batch->last, Seq{1});
  EXPECT_EQ(batch->ops, EncodeOps({}));
  empty.Committed(batch->last);
  EXPECT_EQ(empty.durable(), Seq{1});
}

// ORD-2: a rename whose file's bytes were cancelled goes out only together with the file's death.
TEST(Stretches, NoCommitEndsBetweenACancelledWriteAndTheDeath) {
  OpLog log;
  log.Append(Create(kDir, "t", InodeId{10}, 1));
  const Seq write = log.AppendPending(Write(InodeId{10}, 2));
  log.Append(Rename(kDir, "t", InodeId{10}, kDir, "f", InodeId{3}, 3));
  log.Append(Create(kDir, "t", InodeId{11}, 4));
  log.Append(Rename(kDir, "t", InodeId{11}, kDir, "f", InodeId{10}, 5));
  ASSERT_TRUE(log.Cancel(write));
  EXPECT_EQ(log.Reach(Seq{1}), Seq{1});
  EXPECT_EQ(log.Reach(Seq{3}), Seq{5});
  EXPECT_EQ(Sent(log, Seq{1}), Lines{"create 2/t #10"});
  EXPECT_EQ(Sent(log, Seq{3}, {.max_ops = 1}).size(), 3u) << "the stretch is sent whole, over the caller's limit";
  EXPECT_EQ(log.size(), 0u);
}

TEST(Stretches, WaitForPendingOpsInside) {
  OpLog log;
  log.Append(Create(kDir, "t", InodeId{10}, 1));
  const Seq write = log.AppendPending(Write(InodeId{10}, 2));
  const Seq other = log.AppendPending(Write(InodeId{3}, 3));
  log.Append(Unlink(kDir, "t", InodeId{10}, 4));
  ASSERT_TRUE(log.Cancel(write));
  EXPECT_EQ(log.Reach(write), log.last());
  EXPECT_EQ(Sent(log, write), Lines{"create 2/t #10"});
  EXPECT_EQ(Sent(log, write), Lines{"nothing"});
  log.Fill(other, Data());
  EXPECT_EQ(Sent(log, write), (Lines{"write #3", "unlink 2/t #10"}));
}

TEST(Stretches, LongOnesAreRefusedAndTheBytesUploaded) {
  OpLog log;
  log.Append(Create(kDir, "t", InodeId{10}, 1));
  const Seq write = log.AppendPending(Write(InodeId{10}, 2));
  for (uint64_t i = 0; i < 3000; i++) log.Append(Create(kRootInode, std::to_string(i), InodeId{100 + i}, 3));
  log.Append(Unlink(kDir, "t", InodeId{10}, 4));
  EXPECT_FALSE(log.Cancel(write));
  EXPECT_EQ(log.first_pending(), write);
  log.Fill(write, Data());
  EXPECT_EQ(Sent(log).size(), 3001u);  // and a touch
}

// A chain of overlapping stretches must not grow without end either.
TEST(Stretches, ChainsAreBounded) {
  OpLog log;
  uint64_t refused = 0;
  Seq previous;
  for (uint64_t i = 0; i < 5000; i++) {
    log.Append(Create(kDir, "t", InodeId{10 + i}, 1));
    const Seq write = log.AppendPending(Write(InodeId{10 + i}, 1));
    log.Append(Rename(kDir, "t", InodeId{10 + i}, kDir, "f", i == 0 ? InodeId{3} : InodeId{9 + i}, 1));
    log.Append(Create(kRootInode, std::to_string(i), InodeId{100'000 + i}, 1));
    if (previous && !log.Cancel(previous)) {
      refused++;
      log.Fill(previous, Data());
    }
    previous = write;
  }
  log.Fill(previous, Data());
  EXPECT_GT(refused, 0u);
  EXPECT_LT(refused, 50u);
  uint64_t batches = 0;
  while (const auto batch = log.Plan(log.last(), kNoLimits)) {
    EXPECT_LE(batch->count, kMaxOpsPerCommit);
    log.Committed(batch->last);
    batches++;
  }
  EXPECT_EQ(log.size(), 0u);
  EXPECT_LT(batches, 8u);
}

// --- FENCE-1

TEST(OpLog, LostOpsGoOutAsNothingAndTheirNumbersStayUsed) {
  OpLog log;
  log.Append(Create(kRootInode, "kept", InodeId{10}, 1));
  const Seq from = log.Append(Create(kRootInode, "lost", InodeId{11}, 2));
  const Seq pending = log.AppendPending(Write(InodeId{11}, 3));
  ASSERT_TRUE(log.Plan(log.last(), kNoLimits));
  log.GiveUpPlan();
  EXPECT_EQ(log.LossFrom(from), from);
  const auto lost = log.Lose(from);
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(Describe(lost[0].op), Describe(Create(kRootInode, "lost", InodeId{11}, 2)));
  EXPECT_FALSE(lost[0].pending);
  EXPECT_TRUE(lost[1].pending);
  EXPECT_EQ(lost[1].seq, pending);
  EXPECT_EQ(log.last(), pending);
  EXPECT_FALSE(log.first_pending());
  EXPECT_EQ(log.births(), 1u);
  log.Append(Create(kRootInode, "new", InodeId{12}, 4));
  EXPECT_EQ(Sent(log), (Lines{Describe(Create(kRootInode, "kept", InodeId{10}, 1)), Describe(Create(kRootInode, "new", InodeId{12}, 4))}));
  EXPECT_EQ(log.durable(), Seq{4});
  EXPECT_EQ(log.size(), 0u);
  EXPECT_EQ(log.bytes(), 0u);
}

TEST(OpLog, WhatDiedByALostOpIsSentAfterAll) {
  OpLog log;
  log.Append(Create(kRootInode, "f", InodeId{10}, 1));
  const Seq from = log.Append(Unlink(kRootInode, "f", InodeId{10}, 2));
  (void)log.Lose(from);
  EXPECT_EQ(Sent(log), (Lines{Describe(Create(kRootInode, "f", InodeId{10}, 1))}));
}

TEST(OpLog, ALossTakesAWholeStretch) {
  OpLog log;
  log.Append(Create(kRootInode, "f", InodeId{10}, 1));
  const Seq data = log.AppendPending(Write(InodeId{10}, 2));
  log.Append(Create(kRootInode, "g", InodeId{11}, 3));
  const Seq death = log.Append(Unlink(kRootInode, "f", InodeId{10}, 4));
  ASSERT_TRUE(log.Cancel(data));
  EXPECT_EQ(log.LossFrom(death), data) << "else the file would be there without its bytes";
  EXPECT_EQ(log.LossFrom(data), data);
  (void)log.Lose(data);
  EXPECT_EQ(Sent(log), (Lines{Describe(Create(kRootInode, "f", InodeId{10}, 1))}));
}

TEST(OpLog, WhatTheServerSaysIsAppliedIsDurable) {
  OpLog log;
  log.Append(Create(kRootInode, "f", InodeId{10}, 1));
  log.Append(Create(kRootInode, "g", InodeId{11}, 2));
  ASSERT_TRUE(log.Plan(log.last(), kNoLimits));
  log.GiveUpPlan();
  log.Applied(Seq{1});
  EXPECT_EQ(log.durable(), Seq{1});
  EXPECT_EQ(Sent(log), (Lines{Describe(Create(kRootInode, "g", InodeId{11}, 2))}));
}

}  // namespace
}  // namespace archil
