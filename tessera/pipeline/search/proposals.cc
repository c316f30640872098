#include "tessera/pipeline/search/proposals.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/integers.h"
#include "tessera/pipeline/search/named.h"
#include "tessera/pipeline/search/precedence.h"

namespace tessera::pipeline {
namespace {

using enum PhaseKind;

struct Preference {
  std::string name;
  std::vector<int64_t> keys;
};

std::vector<Preference> preferences(const PipelineProblem& problem, const SeriesTable& table) {
  std::vector<Preference> result = {
      {"backward, forward, weight gradient", keys_by_kind(table, {kBackward, kForward, kWeightGradient})},
      {"longest way first", keys_by_tail(problem, table)},
      {"forward, backward, weight gradient", keys_by_kind(table, {kForward, kBackward, kWeightGradient})},
  };
  if (problem.split_backward) {
    result.push_back({"weight gradient at once", keys_by_kind(table, {kWeightGradient, kBackward, kForward})});
    result.push_back({"weight gradient before forward", keys_by_kind(table, {kBackward, kWeightGradient, kForward})});
  }
  return result;
}

struct Depth {
  double times = 0;
  int64_t more = 0;
};

}  // namespace

std::vector<int64_t> keys_by_tail(const PipelineProblem& problem, const SeriesTable& table) {
  const auto graph = precedence_graph(problem, table);
  const auto starts = earliest_starts(reversed(graph), graph.last_ns);
  std::vector<int64_t> keys(as_index(table.num_phases()));
  for (size_t s = 0; s < table.series.size(); ++s) {
    for (int k = 0; k < table.micro_batches; ++k) {
      keys[table.index(static_cast<int>(s), k)] =
          -starts[table.index(static_cast<int>(s), table.micro_batches - 1 - k)];
    }
  }
  return keys;
}

std::vector<double> natural_depths(const PipelineProblem& problem) {
  std::vector<int64_t> work(problem.stages.size(), 0);
  for (int c = 0; c < problem.num_chunks(); ++c) {
    const auto& chunk = problem.chunks[as_index(c)];
    work[as_index(chunk.stage)] += chunk.forward_ns + chunk.backward_ns + chunk.weight_gradient_ns;
  }
  const double period = static_cast<double>(std::max<int64_t>(*std::max_element(work.begin(), work.end()), 1));
  std::vector<double> depths(problem.stages.size(), 0);
  const auto way = residences(problem);
  for (const auto& visit : stage_visits(problem))
    depths[as_index(visit.stage)] += static_cast<double>(way[as_index(visit.begin)]) / period;
  return depths;
}

void for_each_proposal(const PipelineProblem& problem, const SeriesTable& table, const TakeProposal& take) {
  for (const auto& name : schedule_names()) {
    if (!misfit(problem, name).empty()) continue;
    if (!take(name, named_rules(problem, table, name), true)) return;
  }
  const auto natural = natural_depths(problem);
  const auto visits = stage_visits(problem);
  const auto limits = [&](const Depth& depth) {
    std::vector<int64_t> result;
    for (int s = 0; s < problem.num_stages(); ++s) {
      const auto visited =
          std::count_if(visits.begin(), visits.end(), [&](const StageVisit& v) { return v.stage == s; });
      const auto wanted = static_cast<int64_t>(natural[as_index(s)] * depth.times + 0.999) + depth.more * visited;
      result.push_back(std::clamp<int64_t>(wanted, visited, static_cast<int64_t>(problem.micro_batches) * visited));
    }
    return result;
  };
  constexpr Depth kDepths[] = {{1, 0}, {1, 1}, {1.5, 0}, {1.5, 1}, {2, 0}, {2, 2}, {3, 0}, {0.75, 0}};
  const auto all = preferences(problem, table);
  for (const auto& preference : all) {
    if (!take(preference.name, {.keys = preference.keys}, false)) return;
  }
  for (const auto& depth : kDepths) {
    for (const auto& preference : all) {
      SchedulingRules rules{.keys = preference.keys};
      rules.reserves.push_back(in_flight(problem, limits(depth), false));
      const auto name = fmt::format("{}, {} times the depth + {}", preference.name, depth.times, depth.more);
      if (!take(name, rules, false)) return;
      if (!problem.split_backward) continue;
      rules.reserves.back() = in_flight(problem, limits({depth.times * 1.5, depth.more}), true);
      if (!take(name + ", weight gradients included", rules, false)) return;
    }
  }
}

}  // namespace tessera::pipeline
