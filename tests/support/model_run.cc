#include "tests/support/model_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace archil::test {

std::optional<std::string> ModelRun::Step(const ModelOp& op) {
  if (op.kind == OpKind::kCompare) return CompareTrees();
  const Outcome expected = ref_runner_.Run(op);
  const Outcome got = real_.Run(op);
  (expected.err == 0 ? succeeded_ : failed_)++;
  auto difference = agreement_.Compare(op, expected, got);
  if (!difference) return std::nullopt;
  return fmt::format("{}\n  at:       {}\n  expected: {}\n  got:      {}", *difference, ToString(op),
                     ToString(expected), ToString(got));
}

std::optional<std::string> ModelRun::CompareTrees() {
  const auto expected = ref_runner_.Dump();
  const auto got = real_.Dump();
  if (!expected.ok()) return "reference: " + expected.error().ToString();
  if (!got.ok()) return "cannot read the tree: " + got.error().ToString();
  auto difference = agreement_.Compare(*expected, *got);
  if (!difference) return std::nullopt;
  return "trees differ: " + *difference;
}

std::vector<ModelOp> Shrink(std::vector<ModelOp> ops, const std::function<bool(const std::vector<ModelOp>&)>& fails,
                            int tries) {
  size_t piece = ops.size() / 2;
  while (piece > 0 && tries > 0) {
    bool shorter = false;
    // From the end: what comes last is needed most often, what it does not need goes early.
    for (size_t end = ops.size(); end > 0 && tries > 0; --tries) {
      const size_t begin = end > piece ? end - piece : 0;
      std::vector<ModelOp> fewer(ops.begin(), ops.begin() + begin);
      fewer.insert(fewer.end(), ops.begin() + end, ops.end());
      if (fails(fewer)) {
        ops = std::move(fewer);
        shorter = true;
      }
      end = begin;
    }
    if (!shorter || piece > 1) piece = std::min(piece, ops.size()) / 2 + (shorter && piece == 1 ? 1 : 0);
  }
  return ops;
}

std::string FailureReport(uint64_t seed, const std::string& failure, const std::vector<ModelOp>& ops,
                          const std::function<std::optional<std::string>(const std::vector<ModelOp>&)>& rerun) {
  const char* tries = std::getenv("ARCHIL_MODEL_SHRINK");
  const auto fails = [&](const std::vector<ModelOp>& some) { return rerun(some).has_value(); };
  std::vector<ModelOp> fewer = ops;
  if (fails(ops)) fewer = Shrink(ops, fails, tries == nullptr ? 300 : std::atoi(tries));
  return fmt::format("seed {}: {}\n{} of {} steps:\n{}which gives: {}", seed, failure, fewer.size(), ops.size(), ToString(fewer),
                     rerun(fewer).value_or("nothing, this time"));
}

std::vector<uint64_t> Seeds(uint64_t count) {
  const auto number = [](const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  if (const uint64_t only = number("ARCHIL_MODEL_SEED", 0); only != 0) return {only};
  const uint64_t first = number("ARCHIL_MODEL_FIRST", 1);
  std::vector<uint64_t> seeds(number("ARCHIL_MODEL_SEEDS", count));
  for (size_t i = 0; i < seeds.size(); ++i) seeds[i] = first + i;
  return seeds;
}

}  // namespace archil::test
