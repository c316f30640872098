#include "tessera/compiler/auto_parallel/choose_plan.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/rank_classes.h"
#include "tessera/compiler/simulate.h"
#include "tessera/ops/kernel_catalogue.h"

namespace tessera::compiler {
namespace {

// Of searches within a memory limit, each with a tighter one.
constexpr int kAttempts = 4;

}  // namespace

PlanPrediction predict(const ir::Graph& graph, const PlanChoices& choices, const MachineProfile& profile,
                       const SearchOptions& options) {
  Compiled planned;
  planned.logical = graph;
  planned.plan = plan_of(graph, choices, options.whole_results);
  static const ops::FakeKernelCatalogue catalogue;
  PlanPrediction predicted;
  const auto simulate_within = [&](int64_t limit) {
    const auto classes =
        schedule_classes(planned, profile, catalogue, {.partition = options.partition, .memory_limit_bytes = limit});
    const auto simulation = simulate(classes, profile);
    predicted.step_seconds = simulation.step_seconds;
    predicted.peak_memory_bytes = 0;
    for (const auto& ranks : simulation.classes) {
      predicted.peak_memory_bytes = std::max(predicted.peak_memory_bytes, ranks.peak_memory_bytes);
    }
  };
  simulate_within(0);
  predicted.peak_unlimited_bytes = predicted.peak_memory_bytes;
  const int64_t limit = options.memory_limit_bytes;
  if (limit == 0 || predicted.peak_memory_bytes <= limit) return predicted;
  try {
    simulate_within(limit);
  } catch (const InvalidArgument&) {
    predicted.step_seconds = solver::kForbidden;
  }
  return predicted;
}

ChosenPlan choose_plan(const ir::Graph& graph, const std::vector<int>& ranks, const MachineProfile& profile,
                       const SearchOptions& options) {
  const int64_t limit = options.memory_limit_bytes;
  SearchOptions searching = options;
  searching.memory_limit_bytes = 0;
  ChosenPlan chosen{.search = search(graph, ranks, profile, searching)};
  auto found = predict(graph, chosen.search.choices, profile, options);
  // What the search counts and what is planned differ: values that are fused away, places that are used again. They
  // differ in much the same way for all plans. A plan that needs less stands against computing again.
  auto last = found;
  int64_t live_bytes = chosen.search.live_bytes;
  for (int attempt = 0; attempt < kAttempts && limit > 0 && last.peak_unlimited_bytes > limit; ++attempt) {
    const double share = static_cast<double>(limit) / static_cast<double>(last.peak_unlimited_bytes);
    searching.memory_limit_bytes = static_cast<int64_t>(0.98 * share * static_cast<double>(live_bytes));
    SearchResult tighter;
    try {
      tighter = search(graph, ranks, profile, searching);
    } catch (const InvalidArgument&) {
      if (found.step_seconds == solver::kForbidden) throw;
      break;
    }
    live_bytes = tighter.live_bytes;
    last = predict(graph, tighter.choices, profile, options);
    if (last.step_seconds >= found.step_seconds) continue;
    found = last;
    chosen.search = std::move(tighter);
  }
  if (found.step_seconds == solver::kForbidden) {
    throw InvalidArgument("no plan of {} was found that fits into {} a rank; the last takes {}", graph.name(),
                          format_bytes(limit), format_bytes(last.peak_unlimited_bytes));
  }
  chosen.simulated_seconds = found.step_seconds;
  chosen.peak_memory_bytes = found.peak_memory_bytes;
  const PlanChoices* best = &chosen.search.choices;
  const auto plain = data_parallel_choices(graph, ranks, options.hints, options.whole_results);
  const bool has_strategies = [&] {
    for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
      if (!graph.node(n).strategy.empty()) return true;
    }
    return false;
  }();
  const auto other = has_strategies ? PlanPrediction{} : predict(graph, plain, profile, options);
  chosen.data_parallel_seconds = other.step_seconds;
  if (chosen.simulated_seconds > (1 - kWorthwhile) * chosen.data_parallel_seconds) {
    chosen.is_data_parallel = true;
    chosen.simulated_seconds = other.step_seconds;
    chosen.peak_memory_bytes = other.peak_memory_bytes;
    best = &plain;
  }
  chosen.record = record_plan(graph, *best, chosen.simulated_seconds);
  return chosen;
}

std::string ChosenPlan::summary(const ir::Graph& graph) const {
  std::string text = is_data_parallel ? "data parallel"
                                      : fmt::format("{} operators on {}", graph.num_nodes(), record.mesh.to_string());
  text += fmt::format("; a step is predicted to take {} and {} a rank", format_seconds(simulated_seconds),
                      format_bytes(peak_memory_bytes));
  if (!is_data_parallel) {
    text += data_parallel_seconds == solver::kForbidden
                ? "; data parallel does not fit"
                : fmt::format(", data parallel {}", format_seconds(data_parallel_seconds));
  }
  text +=
      fmt::format("; searched {} grid{} in {}, proven to be within {:.2f} % of the least cost", search.meshes.size(),
                  search.meshes.size() == 1 ? "" : "s", format_seconds(search.seconds), 100 * search.gap());
  return text;
}

PlanChoices data_parallel_choices(const ir::Graph& graph, const std::vector<int>& ranks, const ShardingHints& hints,
                                  bool whole_results) {
  const mesh::Mesh mesh({{"x", static_cast<int>(ranks.size())}}, ranks);
  ShardingHints split;
  for (const auto& input : graph.inputs()) {
    const int ndim = graph.type(input.value).shape.ndim();
    auto sharding = mesh::Sharding::replicated(ndim);
    if (input.kind == ir::InputKind::kInput) {
      if (ndim > 0) sharding.dims[0] = {0};
    } else if (hints.contains(input.name)) {
      continue;
    }
    split[input.name] = {mesh, sharding};
  }
  return choices_of(graph, propagate(graph, mesh, split, {.strategies = false, .whole_results = whole_results}));
}

PlanChoices choices_of(const ir::Graph& graph, const Plan& plan) {
  if (plan.meshes.size() != 1)
    throw InvalidArgument("a plan of choices has one grid, this one has {}", plan.meshes.size());
  PlanChoices choices{.mesh = plan.meshes[0], .copies = plan.copies};
  for (const auto& input : graph.inputs()) {
    choices.inputs[input.name] = plan.values[static_cast<size_t>(input.value)];
  }
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    NodeChoice choice{.factors = plan.factors[static_cast<size_t>(n)]};
    const auto& operands = plan.operands[static_cast<size_t>(n)];
    for (size_t i = 0; i < operands.size(); ++i) {
      for (const auto& partial : operands[i].partial) choice.through[partial.axis].push_back(static_cast<int>(i));
    }
    choices.nodes[n] = std::move(choice);
  }
  return choices;
}

}  // namespace tessera::compiler
