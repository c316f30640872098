// How many faults the sharding laws notice: each mutant runs against a fixed sample of the cases that hold, until one
// no longer does.
#include "tests/laws/mutants.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

namespace tessera::laws {
namespace {

constexpr uint64_t kSeed = 7;
constexpr size_t kCasesPerOperator = 200;
constexpr int kChangedCases = 60;  // a mutant that has changed so many and been noticed in none survives

struct Cases {
  std::map<std::string, std::vector<ShardingCase>> by_operator;
  // All of them, by an operator that stands in their local graphs.
  std::map<std::string, std::vector<ShardingCase>> by_local_operator;

  const std::vector<ShardingCase>& of(const Mutant& mutant) {
    return mutant.local_op.empty() ? by_operator[mutant.op] : by_local_operator[mutant.local_op];
  }
};

// Only those that hold without a mutant.
Cases cases_that_hold(const std::vector<OperatorCases>& operators) {
  Cases cases;
  for (const auto& each : operators) {
    auto& own = cases.by_operator[each.op];
    for (const auto& c : each.cases) {
      std::set<std::string> local_ops;
      const auto look = [&](const ShardingCase&, const compiler::Plan&, ir::Graph& local, int) {
        for (ir::NodeId n = 0; n < local.num_nodes(); ++n) local_ops.insert(local.node(n).op);
        return true;
      };
      if (check_case(c, {.local = look}).verdict != Verdict::kHolds) continue;
      own.push_back(c);
      for (const auto& op : local_ops) cases.by_local_operator[op].push_back(c);
    }
  }
  return cases;
}

struct Fate {
  int changed = 0;  // cases in which it made a difference to the plan or a graph
  bool killed = false;
  std::string first;  // of those cases
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
    if (fate.changed++ == 0) fate.first = c.name();
    // A refusal notices it as well: the case was accepted before.
    fate.killed = result.verdict != Verdict::kHolds;
    if (fate.killed || fate.changed == kChangedCases) break;
  }
  return fate;
}

TEST(Mutants, AreNoticedByTheShardingLaws) {
  auto operators = all_sharding_cases(kSeed);
  keep_sample(operators, kCasesPerOperator * operators.size(), kSeed);
  auto cases = cases_that_hold(operators);
  int killed = 0;
  int total = 0;
  int without_effect = 0;
  for (const auto& mutant : all_mutants()) {
    const auto fate = run(mutant, cases.of(mutant));
    if (fate.changed == 0) {  // an operand that no example splits, say
      ++without_effect;
      continue;
    }
    if (const auto reason = why_equivalent(mutant.name); !fate.killed && !reason.empty()) {
      std::cout << "equivalent: " << mutant.name << ": " << reason << "\n";
      continue;
    }
    ++total;
    killed += fate.killed ? 1 : 0;
    EXPECT_TRUE(fate.killed) << "survives in " << fate.changed << " cases: " << mutant.name << "; first in "
                             << fate.first;
  }
  EXPECT_GE(total, 200);
  std::cout << without_effect << " faults cannot be made in any case, seed " << kSeed << "\n"
            << killed << " of " << total << " mutants killed\n";
}

}  // namespace
}  // namespace tessera::laws
