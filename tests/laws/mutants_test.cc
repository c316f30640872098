// How many faults the sharding laws notice: each mutant, or with a sample each second one, runs against a fixed sample
// of the cases that hold, until one no longer does. Before it is run, the verifiers of plans and local graphs say what
// they think of it.
#include "tests/laws/mutants.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "tessera/base/random.h"
#include "tessera/testing/full.h"

namespace tessera::laws {
namespace {

constexpr uint64_t kSeed = 7;
constexpr size_t kCasesPerOperator = 200;
constexpr uint64_t kOneOf = 2;     // so many mutants runs, unless all are asked for
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
      const auto look = [&](const ShardingCase&, const compiler::Plan&, compiler::RankGraph& local) {
        for (ir::NodeId n = 0; n < local.graph.num_nodes(); ++n) local_ops.insert(local.graph.node(n).op);
        return true;
      };
      const auto unchanged = check_case(c, {.local = look});
      if (unchanged.verdict != Verdict::kHolds) continue;
      EXPECT_EQ(unchanged.verifier, "") << "a false alarm in " << c.name();
      own.push_back(c);
      for (const auto& op : local_ops) cases.by_local_operator[op].push_back(c);
    }
  }
  return cases;
}

struct Fate {
  int changed = 0;  // cases in which it made a difference to the plan or a graph
  bool killed = false;
  bool verifier_killed = false;  // in any of those cases
  std::string first;             // of those cases
};

Fate run(const Mutant& mutant, const std::vector<ShardingCase>& cases) {
  Fate fate;
  for (const auto& c : cases) {
    bool changes = false;
    CaseHooks hooks{.run = !fate.killed};
    if (mutant.hooks.plan) {
      hooks.plan = [&](const ShardingCase& sc, compiler::Plan& plan) { return changes = mutant.hooks.plan(sc, plan); };
    }
    if (mutant.hooks.local) {
      hooks.local = [&](const ShardingCase& sc, const compiler::Plan& plan, compiler::RankGraph& local) {
        const bool here = mutant.hooks.local(sc, plan, local);
        changes = changes || here;
        return here;
      };
    }
    const auto result = check_case(c, hooks);
    if (!changes) continue;
    if (fate.changed++ == 0) fate.first = c.name();
    // A refusal notices it as well: the case was accepted before.
    fate.killed = fate.killed || result.verdict != Verdict::kHolds;
    fate.verifier_killed = fate.verifier_killed || !result.verifier.empty();
    if ((fate.killed && fate.verifier_killed) || fate.changed == kChangedCases) break;
  }
  return fate;
}

// Who has killed how many.
struct Count {
  int mutants = 0;
  int killed = 0;
  int by_verifier = 0;
  int by_verifier_alone = 0;
  int by_execution_alone = 0;

  void add(const Fate& fate) {
    ++mutants;
    killed += fate.killed || fate.verifier_killed ? 1 : 0;
    by_verifier += fate.verifier_killed ? 1 : 0;
    by_verifier_alone += fate.verifier_killed && !fate.killed ? 1 : 0;
    by_execution_alone += fate.killed && !fate.verifier_killed ? 1 : 0;
  }
  std::string to_string() const {
    return fmt::format("{} of {} mutants killed ({} by the verifier, {} by it alone, {} by execution alone)", killed,
                       mutants, by_verifier, by_verifier_alone, by_execution_alone);
  }
};

// The same ones in every run.
bool is_sampled(const Mutant& mutant) { return is_full_test() || hash_name(mutant.name) % kOneOf == kSeed % kOneOf; }

TEST(Mutants, AreNoticedByTheShardingLaws) {
  auto operators = all_sharding_cases(kSeed);
  keep_sample(operators, kCasesPerOperator * operators.size(), kSeed);
  auto cases = cases_that_hold(operators);
  Count all;
  std::map<std::string, Count> by_fault;
  int without_effect = 0;
  for (const auto& mutant : all_mutants()) {
    if (!is_sampled(mutant)) continue;
    const auto fate = run(mutant, cases.of(mutant));
    if (fate.changed == 0) {  // an operand that no example splits, say
      ++without_effect;
      continue;
    }
    if (const auto reason = why_equivalent(mutant.name); !fate.killed && !reason.empty()) {
      std::cout << "equivalent: " << mutant.name << ": " << reason << "\n";
      continue;
    }
    all.add(fate);
    by_fault[mutant.fault].add(fate);
    // Execution cannot see every one: the maximum of a positive scalar and the zeros beside it is their sum.
    EXPECT_TRUE(fate.killed || fate.verifier_killed)
        << "survives in " << fate.changed << " cases: " << mutant.name << "; first in " << fate.first;
  }
  EXPECT_GE(all.mutants, 200);
  for (const auto& [fault, count] : by_fault) std::cout << fault << ": " << count.to_string() << "\n";
  std::cout << without_effect << " faults cannot be made in any case, seed " << kSeed << "\n"
            << all.to_string() << "\n";
}

}  // namespace
}  // namespace tessera::laws
