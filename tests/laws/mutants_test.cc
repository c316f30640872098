// How many faults the sharding laws notice: each mutant runs against a fixed sample of the cases that hold, until one
// no longer does.
#include "tests/laws/mutants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

namespace tessera::laws {
namespace {

constexpr uint64_t kSeed = 7;
constexpr size_t kCasesPerOperator = 250;
constexpr size_t kCasesOfEach = 10;  // for mutants that are of no operator
constexpr int kChangedCases = 60;    // a mutant that has changed so many and been noticed in none survives

// Cases that hold, by operator; those of no operator under "".
std::map<std::string, std::vector<ShardingCase>> cases_that_hold(const std::vector<OperatorCases>& operators) {
  std::map<std::string, std::vector<ShardingCase>> holding;
  for (const auto& each : operators) {
    auto& own = holding[each.op];
    for (const auto& c : each.cases) {
      if (check_case(c).verdict == Verdict::kHolds) own.push_back(c);
    }
    auto& common = holding[""];
    common.insert(common.end(), own.begin(),
                  own.begin() + static_cast<std::ptrdiff_t>(std::min(own.size(), kCasesOfEach)));
  }
  return holding;
}

struct Fate {
  int changed = 0;  // cases in which it made a difference to the plan or a graph
  bool killed = false;
};

Fate run(const Mutant& mutant, const std::vector<ShardingCase>& cases) {
  Fate fate;
  for (const auto& c : cases) {
    bool changes = false;
    CaseHooks hooks;
    if (mutant.hooks.plan) {
      hooks.plan = [&](const ShardingCase& sc, compiler::Plan& plan) { return changes = mutant.hooks.plan(sc, plan); };
    }
    if (mutant.hooks.local) {
      hooks.local = [&](const ShardingCase& sc, const compiler::Plan& plan, ir::Graph& local, int rank) {
        const bool here = mutant.hooks.local(sc, plan, local, rank);
        changes = changes || here;
        return here;
      };
    }
    const auto result = check_case(c, hooks);
    if (!changes) continue;
    ++fate.changed;
    // A refusal notices it as well: the case was accepted before.
    fate.killed = result.verdict != Verdict::kHolds;
    if (fate.killed || fate.changed == kChangedCases) break;
  }
  return fate;
}

TEST(Mutants, AreNoticedByTheShardingLaws) {
  auto operators = all_sharding_cases(kSeed);
  keep_sample(operators, kCasesPerOperator * operators.size(), kSeed);
  const auto cases = cases_that_hold(operators);
  int killed = 0;
  int total = 0;
  int without_effect = 0;
  for (const auto& mutant : all_mutants()) {
    const auto fate = run(mutant, cases.at(mutant.op));
    if (fate.changed == 0) {  // an operand that no example splits, say
      ++without_effect;
      continue;
    }
    const auto reason = why_equivalent(mutant.name);
    if (!reason.empty()) {
      EXPECT_FALSE(fate.killed) << mutant.name << " is noticed, and can be: " << reason;
      continue;
    }
    ++total;
    killed += fate.killed ? 1 : 0;
    EXPECT_TRUE(fate.killed) << "survives in " << fate.changed << " cases: " << mutant.name;
  }
  EXPECT_GE(total, 200);
  std::cout << without_effect << " faults cannot be made in any case, seed " << kSeed << "\n"
            << killed << " of " << total << " mutants killed\n";
}

}  // namespace
}  // namespace tessera::laws
