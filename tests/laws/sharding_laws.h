// The sharding law: what the ranks compute of a case, put together, is what one device computes, results and gradients.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tessera/compiler/verify/communication.h"
#include "tests/laws/sharding_cases.h"

namespace tessera::laws {

// What mutants change between the compiler's steps. Each returns whether it has changed something; a case in which
// nothing is changed is not run and holds.
struct CaseHooks {
  std::function<bool(const ShardingCase&, compiler::Plan&)> plan = {};
  std::function<bool(const ShardingCase&, const compiler::Plan&, compiler::RankGraph& local)> local = {};
  bool run = true;  // else the case is only verified, and holds
};

enum class Verdict {
  kHolds,
  kRefused,  // with a clear message: an InvalidArgument of the planner or of partition
  kFails
};

struct CaseResult {
  Verdict verdict = Verdict::kHolds;
  std::string message = {};
  // The first fault that the verifiers of graphs, plans and local graphs see before anything is run.
  std::string verifier = {};
};

// Fails when a result or gradient differs from one device's by more than 1e-10 of its largest element in f64 (2e-5 in
// f32, and one rounding more in half types; not at all in integers and bool), when replicas differ in a bit, when ranks
// do not do the same collectives, on every error that is no refusal, and when the verifiers object to what no hook has
// changed.
CaseResult check_case(const ShardingCase& sharding_case, const CaseHooks& hooks = {});

// Counts over many cases.
class Tally {
 public:
  void add(const ShardingCase& sharding_case, const CaseResult& result);
  int cases() const { return cases_; }
  int failures() const { return failures_; }
  // Refusals by operator and reason, numbers replaced by #, with one case of each; then the counts.
  std::string report() const;

 private:
  struct Refusal {
    int count = 0;
    std::string first;
  };
  int cases_ = 0;
  int failures_ = 0;
  int refused_ = 0;
  std::map<std::string, Refusal> refusals_;
};

}  // namespace tessera::laws
