// What a ChosenPlan says of itself.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/strings.h"
#include "tessera/compiler/choose_plan.h"

namespace tessera::compiler {

std::string ChosenPlan::left_out_text() const {
  return left_out.empty() ? "" : fmt::format("left out because time was up: {}", fmt::join(left_out, ", "));
}

std::string ChosenPlan::coarse_text() const {
  std::vector<std::string> plans;
  for (const auto& candidate : candidates) {
    const auto& simulated = candidate.prediction.simulated;
    if (simulated && simulated->is_coarse) {
      plans.push_back(fmt::format("{} ({})", candidate.origin, simulated->simulation.classes.size()));
    }
  }
  if (plans.empty()) return "";
  return fmt::format("simulated by fewer kinds of ranks than there are, as ranks with the largest parts do it: {}",
                     fmt::join(plans, ", "));
}

std::string ChosenPlan::reason() const {
  const auto seconds = [](const PlanCandidate& c) { return format_seconds(c.prediction.step_seconds); };
  if (taken().prediction.simulated == nullptr) {
    return fmt::format(
        "{}, which there was no time to simulate: {}", taken().origin,
        is_data_parallel_ruled_out ? "what is given rules data parallel out" : "nothing that was simulated fits");
  }
  if (candidates.size() == 1 && !left_out.empty()) {
    return fmt::format("data parallel, {}: nothing else was found in time", seconds(taken()));
  }
  if (candidates.size() == 1) {
    return is_data_parallel ? "data parallel, which is what the search found" : "the plan that the search found";
  }
  if (is_data_parallel) {
    const PlanCandidate* next = nullptr;
    for (const auto& candidate : candidates) {
      if (&candidate == &taken() || candidate.prediction.simulated == nullptr) continue;
      if (next == nullptr || candidate.prediction.step_seconds < next->prediction.step_seconds) next = &candidate;
    }
    if (next == nullptr) {
      return fmt::format("data parallel, {}: nothing else was simulated in time", seconds(taken()));
    }
    if (next->prediction.step_seconds == solver::kForbidden) {
      return fmt::format("data parallel, {}: nothing else that was found fits", seconds(taken()));
    }
    return fmt::format("data parallel, {}: nothing that was found is faster by {:.0f} % or more (the next, {}: {})",
                       seconds(taken()), 100 * kWorthwhile, next->origin, seconds(*next));
  }
  const auto beside = is_data_parallel_ruled_out ? "what is given rules data parallel out"
                      : data_parallel_seconds == solver::kForbidden
                          ? "data parallel does not fit"
                          : fmt::format("data parallel {}", format_seconds(data_parallel_seconds));
  return fmt::format("{}, {}: the fastest of {}; {}", taken().origin, seconds(taken()), candidates.size(), beside);
}

std::string ChosenPlan::summary(const ir::Graph& graph) const {
  std::string text = is_data_parallel ? "data parallel"
                                      : fmt::format("{} operators on {}", graph.num_nodes(), record.mesh.to_string());
  if (taken().prediction.simulated == nullptr) {
    text += fmt::format("; there was no time to simulate it; its operators add up to {}",
                        format_seconds(record.added_seconds));
  } else {
    text += fmt::format("; a step is predicted to take {} and {} a rank", format_seconds(simulated_seconds),
                        format_bytes(peak_memory_bytes));
  }
  if (is_data_parallel_ruled_out) {
    text += "; what is given rules data parallel out";
  } else if (!is_data_parallel) {
    text += data_parallel_seconds == solver::kForbidden
                ? "; data parallel does not fit"
                : fmt::format(", data parallel {}", format_seconds(data_parallel_seconds));
  }
  const auto num_simulated = std::count_if(candidates.begin(), candidates.end(),
                                           [](const auto& c) { return c.prediction.simulated != nullptr; });
  if (taken().prediction.simulated != nullptr) {
    text += fmt::format("; the fastest of {} plan{} that {} simulated", num_simulated, num_simulated == 1 ? "" : "s",
                        num_simulated == 1 ? "was" : "were");
  }
  text += fmt::format("; searched {} grid{}", search.meshes.size(), search.meshes.size() == 1 ? "" : "s");
  if (std::isfinite(search.bound)) {
    text += fmt::format(", where no plan's operators, each moving what it takes by itself, add up to less than {}",
                        format_seconds(search.bound));
  }
  if (!coarse_text().empty()) text += "; " + coarse_text();
  if (!left_out.empty()) text += "; " + left_out_text();
  return text;
}

}  // namespace tessera::compiler
