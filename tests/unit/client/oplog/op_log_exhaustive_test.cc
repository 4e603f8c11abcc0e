// Every valid sequence of a few ops in a tiny universe, committed in every way: absorption never shows.
#include <gtest/gtest.h>

#include "tests/unit/client/oplog/log_check.h"

namespace archil {
namespace {

class Exhaustive {
 public:
  Exhaustive(Universe universe, size_t length) : universe_(std::move(universe)), length_(length) {}

  void Run(const TinyNamespace& start) {
    states_ = {start};
    Walk(InodeId{10});
  }
  const std::string& failure() const { return failure_; }
  uint64_t scripts = 0;
  uint64_t absorbed = 0;

 private:
  void Walk(InodeId next) {
    if (!failure_.empty()) return;
    if (script_.size() == length_) return Check();
    for (const Op& op : PossibleOps(states_.back(), universe_, next, static_cast<int>(script_.size()) + 1)) {
      TinyNamespace after = states_.back();
      if (!after.Apply(op)) {
        failure_ = "not a valid op: " + Describe(op) + ": " + after.why;
        return;
      }
      script_.push_back(op);
      states_.push_back(std::move(after));
      Walk(std::holds_alternative<CreateOp>(op) ? InodeId{next.value + 1} : next);
      states_.pop_back();
      script_.pop_back();
      if (!failure_.empty()) return;
    }
  }

  // One commit; two, cut everywhere; and small ones.
  void Check() {
    scripts++;
    for (uint64_t cut = 1; cut <= length_; cut++) CheckCut(Seq{cut}, BatchLimits{});
    CheckCut(Seq{0}, BatchLimits{.max_ops = 1});
    CheckCut(Seq{0}, BatchLimits{.max_ops = 2});
  }

  void CheckCut(Seq first_cut, const BatchLimits& limits) {
    LogCheck check(&states_);
    for (const Op& op : script_) check.Append(op);
    if (first_cut) {
      check.Fill(script_.size());
      check.Commit(first_cut, limits);
    }
    check.Drain(limits);
    absorbed += check.absorbed_inodes;
    if (check.failure().empty() || !failure_.empty()) return;
    failure_ = "script:\n" + Describe(script_) + "first cut " + std::to_string(first_cut.value) + ", max_ops " +
               std::to_string(limits.max_ops) + "\n" + check.failure();
  }

  const Universe universe_;
  const size_t length_;
  std::vector<TinyNamespace> states_;  // the start, and after each op of the script
  Script script_;
  std::string failure_;
};

TEST(OpLogExhaustive, LengthThreeWithEverything) {
  Exhaustive run(Universe{}, 3);
  run.Run(StartState(true));
  EXPECT_EQ(run.failure(), "");
  EXPECT_GT(run.scripts, 10'000u);
  EXPECT_GT(run.absorbed, 1'000u);
}

TEST(OpLogExhaustive, LengthFourOfNames) {
  Exhaustive run(Universe{.exchanges = false, .attributes = false}, 4);
  run.Run(StartState(false));
  EXPECT_EQ(run.failure(), "");
  EXPECT_GT(run.scripts, 10'000u);
  EXPECT_GT(run.absorbed, 1'000u);
  std::cout << run.scripts << " scripts\n";
}

TEST(OpLogExhaustive, LengthFiveOfOneName) {
  Exhaustive run(Universe{.names = {"a"}, .links = false, .attributes = false}, 5);
  run.Run(StartState(true));
  EXPECT_EQ(run.failure(), "");
  EXPECT_GT(run.scripts, 10'000u);
  EXPECT_GT(run.absorbed, 1'000u);
  std::cout << run.scripts << " scripts\n";
}

}  // namespace
}  // namespace archil
