// Long random sequences with prefix cuts, pending ops and small limits, against the reference namespace.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>

#include "common/env/random.h"
#include "tests/unit/client/oplog/log_check.h"

namespace archil {
namespace {

struct Totals {
  uint64_t ops = 0, commits = 0, sent = 0, absorbed_inodes = 0, absorbed_ops = 0, cancelled = 0, lost = 0, ends_of_use = 0;
};

// One run. Every choice comes from the seed; `failure` is empty if all agreed.
class RandomRun {
 public:
  RandomRun(uint64_t seed, size_t length)
      : random_(SeededRandom(seed)), length_(length), ns_(StartState(random_->Below(2) == 0)), check_(ns_, random_->Next()) {
    universe_.names.resize(1 + random_->Below(4));
    for (size_t i = 0; i < universe_.names.size(); i++) universe_.names[i] = std::string(1, static_cast<char>('a' + i));
    universe_.exchanges = random_->Below(3) == 0;
    universe_.attributes = random_->Below(2) == 0;
    removals_ = 1 + random_->Below(3);
    eager_ = 2 + random_->Below(100);
  }

  void Run(Totals& totals) {
    for (size_t step = 1; step <= length_ && check_.failure().empty(); step++) {
      Step(static_cast<int>(step));
      if (random_->Below(4) == 0) check_.Fill(random_->Below(3));
      if (random_->Below(eager_) == 0) CommitSome();
      if (random_->Below(4 * eager_) == 0) LoseSome(step);
    }
    if (check_.failure().empty()) check_.Drain(RandomLimits());
    totals.ops += script_.size();
    totals.commits += check_.commits;
    totals.sent += check_.sent_ops;
    totals.absorbed_inodes += check_.absorbed_inodes;
    totals.absorbed_ops += check_.absorbed_ops;
    totals.cancelled += check_.cancelled;
    totals.lost += check_.lost;
    totals.ends_of_use += check_.ends_of_use;
  }

  std::string failure() const {
    return check_.failure().empty() ? "" : check_.failure() + "\nlosses:" + losses_ + "\nscript:\n" + Describe(script_);
  }

 private:
  // Removals and releases are preferred, so that inodes are short-lived.
  void Step(int step) {
    const std::vector<Op> possible = PossibleOps(ns_, universe_, next_, step);
    Op op = possible[random_->Below(possible.size())];
    for (uint64_t i = 0; i < removals_; i++) {
      const bool ends = std::holds_alternative<UnlinkOp>(op) || std::holds_alternative<RmdirOp>(op) ||
                        std::holds_alternative<ReleaseOrphanOp>(op);
      if (!ends) op = possible[random_->Below(possible.size())];
    }
    if (std::holds_alternative<CreateOp>(op)) next_.value++;
    (void)ns_.Apply(op);
    const auto* release = std::get_if<ReleaseOrphanOp>(&op);
    if (release != nullptr && random_->Below(2) == 0 && check_.EndUse(release->ino)) {
      script_.push_back(std::move(op));  // shown where it happened
      return;
    }
    check_.Append(op);
    script_.push_back(std::move(op));
  }

  void CommitSome() {
    const uint64_t waiting = check_.log().size();
    if (waiting == 0) return;
    const Seq upto{check_.log().durable().value + 1 + random_->Below(waiting)};
    check_.Commit(upto, RandomLimits());
  }

  void LoseSome(size_t step) {
    const uint64_t waiting = check_.log().size();
    if (waiting == 0 || !check_.failure().empty()) return;
    ns_ = check_.Lose(Seq{check_.log().durable().value + 1 + random_->Below(waiting)});
    losses_ += fmt::format(" after op {}", step);
  }

  BatchLimits RandomLimits() {
    BatchLimits limits;
    if (random_->Below(2) == 0) limits.max_ops = 1 + random_->Below(8);
    if (random_->Below(4) == 0) limits.max_bytes = 64 + random_->Below(512);
    return limits;
  }

  std::unique_ptr<Random> random_;
  std::string losses_;
  const size_t length_;
  Universe universe_;
  uint64_t removals_ = 1;
  uint64_t eager_ = 10;
  TinyNamespace ns_;
  LogCheck check_;
  Script script_;
  InodeId next_{10};
};

TEST(OpLogRandom, AgreesWithTheReference) {
  const char* given = std::getenv("ARCHIL_TEST_SEED");
  const uint64_t base = given != nullptr ? std::strtoull(given, nullptr, 10) : 20260701;
  const uint64_t rounds = given != nullptr ? 1 : std::getenv("ARCHIL_TEST_LONG") != nullptr ? 20'000 : 400;
  Totals totals;
  for (uint64_t seed = base; seed < base + rounds; seed++) {
    RandomRun run(seed, seed % 10 == 0 ? 300 : 10 + seed % 50);
    run.Run(totals);
    ASSERT_EQ(run.failure(), "") << "ARCHIL_TEST_SEED=" << seed;
  }
  std::cout << fmt::format("{} ops, {} commits, {} sent; absorbed {} inodes, {} ops; cancelled {}, uses ended {}\n", totals.ops,
                           totals.commits, totals.sent, totals.absorbed_inodes, totals.absorbed_ops, totals.cancelled, totals.ends_of_use);
  if (given != nullptr) return;
  // The test has seen what it is for.
  EXPECT_GT(totals.commits, rounds * 2);
  EXPECT_GT(totals.absorbed_inodes, rounds);
  EXPECT_GT(totals.cancelled, rounds / 10);
  EXPECT_GT(totals.lost, rounds / 10);
  EXPECT_GT(totals.ends_of_use, rounds / 10);
  EXPECT_GT(totals.sent, totals.ops / 4);
}

}  // namespace
}  // namespace archil
