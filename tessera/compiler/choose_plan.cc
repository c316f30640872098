#include "tessera/compiler/choose_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/plan/mesh_choice.h"
#include "tessera/compiler/plan/node_planner.h"
#include "tessera/compiler/search/least_memory.h"
#include "tessera/compiler/search/plan_cost.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

// Of searches within a memory limit, each with a tighter one.
constexpr int kAttempts = 4;
// Of searches with prices from a simulation. They settle in one or two; the rest is for plans that take turns.
constexpr int kPricedSearches = 3;
// Of the best plans on other grids than the best one's, so many are simulated.
constexpr int kOtherGrids = 2;
// Of the time that is left a search gets so much: what it finds counts only once it is simulated.
constexpr double kSearchShare = 0.5;
// Prices that move by less have settled.
constexpr double kSettled = 0.05;
// Where communication takes a smaller share of the step no price changes much.
constexpr double kNegligible = 0.005;

bool has_strategies(const ir::Graph& graph) {
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (!graph.node(n).strategy.empty()) return true;
  }
  return false;
}

// Whether operators that carry a strategy are split as it says.
bool keeps_strategies(const ir::Graph& graph, const PlanChoices& choices) {
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    if (node.strategy.empty()) continue;
    std::vector<Type> inputs;
    for (const auto v : node.inputs) inputs.push_back(graph.type(v));
    const auto it = choices.nodes.find(n);
    const NodeChoice choice = it == choices.nodes.end() ? NodeChoice{} : it->second;
    for (const auto& split :
         factor_splits(graph.node_name(n), ops::rule_of(graph, n), inputs, node.strategy, choices.mesh.size())) {
      int64_t parts = 1;
      if (const auto factor = choice.factors.find(split.factor); factor != choice.factors.end()) {
        for (const int axis : factor->second) parts *= choices.mesh.axis(axis).size;
      }
      if (parts != split.parts) return false;
      if (parts > 1 && !node.grid.empty()) return false;  // its ranks may be others
    }
  }
  return true;
}

mesh::Mesh row_of(const std::vector<int>& ranks) { return mesh::Mesh({{"x", static_cast<int>(ranks.size())}}, ranks); }

// The batch split over all ranks, with or without the strategies that the graph carries, on `base`, cut as fine as
// these and the hints need.
PlanChoices batch_choices(const ir::Graph& graph, const mesh::Mesh& base, const ShardingHints& hints,
                          const PlanOptions& options) {
  std::vector<mesh::Layout> given_layouts;
  for (const auto& [name, layout] : hints) given_layouts.push_back(layout);
  const MeshChoice choice(base, options.strategies ? &graph : nullptr, given_layouts);
  if (choice.meshes().size() != 1) {
    throw InvalidArgument("no grid of {} ranks holds all layouts that are given", base.size());
  }
  const mesh::Mesh& mesh = choice.mesh(0);
  std::vector<int> all_axes;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) all_axes.push_back(axis);
  ShardingHints split;
  std::map<std::string, mesh::Sharding> given;
  for (const auto& input : graph.inputs()) {
    const int ndim = graph.type(input.value).shape.ndim();
    const auto hint = hints.find(input.name);
    if (hint != hints.end()) given[input.name] = choice.restate(hint->second).sharding;
    auto sharding = mesh::Sharding::replicated(ndim);
    if (input.kind == ir::InputKind::kInput) {
      if (ndim > 0) sharding.dims[0] = all_axes;
    } else if (hint != hints.end()) {
      sharding = given[input.name];
    } else if (options.strategies) {
      continue;  // as the strategies of its users say
    }
    split[input.name] = {mesh, sharding};
  }
  auto choices = choices_of(graph, propagate(graph, mesh, split, options));
  for (const auto& input : graph.inputs()) {
    const auto it = given.find(input.name);
    if (it == given.end() || choices.inputs.at(input.name) == it->second) continue;
    choices.copies[input.value] = choices.inputs.at(input.name);
    choices.inputs[input.name] = it->second;
  }
  return choices;
}

class Chooser {
 public:
  Chooser(const ir::Graph& graph, const std::vector<int>& ranks, const MachineProfile& profile,
          const SearchOptions& options)
      : graph_(graph),
        ranks_(ranks),
        profile_(profile),
        options_(options),
        searching_(options),
        deadline_(Deadline::of_timeout(*options.clock, options.timeout_seconds).until(options.stop)) {
    searching_.memory_limit_bytes = 0;
    searching_.num_others = kOtherGrids;
  }

  ChosenPlan run() {
    plan_data_parallel();
    if (search_first()) {
      add("search", chosen_.search.choices);
      for (const PlanChoices& other : chosen_.search.others) {
        add(fmt::format("search on {}", other.mesh.to_string()), other);
      }
    }
    if (data_parallel_) add(kDataParallel, *data_parallel_);
    add_given();
    fit_memory_limit(candidates()[0].prediction, chosen_.search.live_bytes);
    if (ranks_.size() > 1) search_by_prices();
    take();
    return std::move(chosen_);
  }

 private:
  std::vector<PlanCandidate>& candidates() { return chosen_.candidates; }

  SearchResult search_once(const LanePrices& prices) {
    searching_.prices = prices;
    if (options_.timeout_seconds > 0) {
      searching_.timeout_seconds = std::max(kSearchShare * deadline_.seconds_left(), 1e-3);
    }
    return search(graph_, ranks_, profile_, searching_);
  }

  // False where there was no time to find anything: data parallel is then all there is.
  bool search_first() {
    try {
      chosen_.search = search_once({});
      return true;
    } catch (const DeadlineOver& error) {
      if (!data_parallel_) throw InvalidArgument(error.what());
      chosen_.search.cost = solver::kForbidden;
      chosen_.search.bound = -solver::kForbidden;
      leave_out("the search");
      return false;
    }
  }

  bool is_late() const { return deadline_.is_over(); }
  void leave_out(std::string what) { chosen_.left_out.push_back(std::move(what)); }

  // Whether it is a plan that was not there yet.
  bool add(std::string origin, PlanChoices choices) {
    const auto record = to_json(record_plan(graph_, choices));
    if (!known_.insert(record).second) return false;
    PlanPrediction prediction;
    if (data_parallel_ && record == data_parallel_record_) {
      prediction = data_parallel_prediction_;
    } else {
      try {
        deadline_.throw_if_over();
        prediction = predict(graph_, choices, profile_, options_,
                             {.first = deadline_, .fitting = deadline_, .on_class_done = telling(origin)});
      } catch (const DeadlineOver&) {
        leave_out(fmt::format("simulating \"{}\"", origin));
      }
    }
    if (prediction.simulated && prediction.simulated->is_cut_short) {
      leave_out(fmt::format("computing again what does not fit of \"{}\"", origin));
    }
    candidates().push_back({std::move(origin), std::move(choices), prediction});
    let_schedules_go();
    return true;
  }

  // All but the fastest plan's and data parallel's: no other one can be taken any more.
  void let_schedules_go() {
    const size_t best = fastest();
    for (size_t i = 0; i < candidates().size(); ++i) {
      auto& simulated = candidates()[i].prediction.simulated;
      if (i == best || simulated == nullptr || simulated == data_parallel_prediction_.simulated) continue;
      auto light = std::make_shared<SimulatedPlan>(*simulated);
      light->slowest_schedule = nullptr;
      simulated = std::move(light);
    }
  }

  // Hands on how far the simulation of a plan is.
  std::function<void(size_t, size_t)> telling(const std::string& origin) const {
    if (!options_.on_simulation) return {};
    return [this, origin](size_t done, size_t all) {
      options_.on_simulation({.plan = origin, .classes_done = done, .num_classes = all});
    };
  }

  // Unless what is given rules it out. It is what all else is compared with, and there in any case.
  void plan_data_parallel() {
    const PlanOptions options{.strategies = false, .whole_results = options_.whole_results};
    try {
      auto plain = batch_choices(graph_, base(), options_.hints, options);
      chosen_.is_data_parallel_ruled_out =
          (has_strategies(graph_) && !keeps_strategies(graph_, plain)) || !keeps_fixed(plain);
      if (chosen_.is_data_parallel_ruled_out) return;
      data_parallel_ = std::move(plain);
    } catch (const InvalidArgument&) {
      chosen_.is_data_parallel_ruled_out = true;  // the layouts that are given share no grid with it
      return;
    }
    data_parallel_record_ = to_json(record_plan(graph_, *data_parallel_));
    data_parallel_prediction_ =
        predict(graph_, *data_parallel_, profile_, options_,
                {.first = deadline_.without_time(), .fitting = deadline_, .on_class_done = telling(kDataParallel)});
  }

  // What the strategies say on their own.
  void add_given() {
    if (!has_strategies(graph_) || !options_.fixed.empty()) return;
    try {
      const PlanOptions options{.batch_by_default = true, .whole_results = options_.whole_results};
      add("given strategies", batch_choices(graph_, base(), options_.hints, options));
    } catch (const InvalidArgument&) {
      // Strategies that need several grids are no plan of choices, and the search has found one that holds them.
    }
  }

  mesh::Mesh base() const { return options_.meshes.size() == 1 ? options_.meshes[0] : row_of(ranks_); }

  bool keeps_fixed(const PlanChoices& choices) const {
    return std::all_of(options_.fixed.begin(), options_.fixed.end(), [&](const auto& fixed) {
      const auto it = choices.nodes.find(fixed.first);
      return it != choices.nodes.end() && it->second == fixed.second && choices.mesh == options_.meshes[0];
    });
  }

  // What the search counts and what is planned differ: values that are fused away, places that are used again. They
  // differ in much the same way for all plans. A plan that needs less stands against computing again.
  void fit_memory_limit(PlanPrediction last, int64_t live_bytes) {
    const int64_t limit = options_.memory_limit_bytes;
    double best = last.step_seconds;
    for (int attempt = 0; attempt < kAttempts && limit > 0 && last.peak_unlimited_bytes > limit; ++attempt) {
      if (is_late()) {
        leave_out("searching for plans that take less memory");
        break;
      }
      const double share = static_cast<double>(limit) / static_cast<double>(last.peak_unlimited_bytes);
      searching_.memory_limit_bytes = static_cast<int64_t>(0.98 * share * static_cast<double>(live_bytes));
      SearchResult tighter;
      try {
        tighter = search_once({});
      } catch (const InvalidArgument&) {
        break;  // nothing keeps within that
      } catch (const DeadlineOver&) {
        leave_out("searching for plans that take less memory");
        break;
      }
      live_bytes = tighter.live_bytes;
      if (!add(fmt::format("search within {}", format_bytes(searching_.memory_limit_bytes)), tighter.choices)) break;
      last = candidates().back().prediction;
      if (last.step_seconds < best) {
        best = last.step_seconds;
        chosen_.search_limit_bytes = searching_.memory_limit_bytes;
      }
    }
    searching_.memory_limit_bytes = chosen_.search_limit_bytes;
  }

  bool anything_fits() const {
    return std::any_of(chosen_.candidates.begin(), chosen_.candidates.end(),
                       [](const auto& c) { return c.prediction.step_seconds != solver::kForbidden; });
  }

  // The fastest candidate: the first of those that are alike.
  size_t fastest() const {
    size_t best = 0;
    for (size_t i = 1; i < chosen_.candidates.size(); ++i) {
      const auto seconds = [&](size_t c) { return chosen_.candidates[c].prediction.step_seconds; };
      if (seconds(i) < seconds(best)) best = i;
    }
    return best;
  }

  // Searches with communication at the price that the fastest plan pays for it, until that finds nothing new.
  void search_by_prices() {
    LanePrices last;
    searching_.num_others = 0;
    for (int round = 1; round <= kPricedSearches; ++round) {
      const auto& best = candidates()[fastest()].prediction;
      if (best.simulated == nullptr || best.communication_seconds < kNegligible * best.step_seconds) return;
      // Half way from the last ones: a lane whose price falls at once is filled at once, and is exposed again.
      const LanePrices prices{.awaited = (last.awaited + best.exposed.awaited) / 2,
                              .gradient = (last.gradient + best.exposed.gradient) / 2};
      const bool is_settled =
          std::abs(prices.awaited - last.awaited) < kSettled && std::abs(prices.gradient - last.gradient) < kSettled;
      if (is_settled) return;
      last = prices;
      if (is_late()) return leave_out("searching with communication at its price");
      try {
        add(fmt::format("priced search {}", round), search_once(prices).choices);
      } catch (const DeadlineOver&) {
        return leave_out("searching with communication at its price");
      }
    }
  }

  // Of a plan that does not fit: what it takes where as much as possible is computed again, to a sixteenth or so.
  int64_t smallest_peak(const PlanCandidate& candidate) const {
    int64_t too_little = options_.memory_limit_bytes;
    int64_t enough = candidate.prediction.peak_unlimited_bytes;
    const Plan plan = plan_of(graph_, candidate.choices, options_.whole_results);
    while (enough - too_little > enough / 16 && !is_late()) {
      const int64_t limit = too_little + (enough - too_little) / 2;
      try {
        const auto tried = simulate_plan(graph_, plan, profile_, limit, options_.partition,
                                         {.first = deadline_, .fitting = deadline_});
        (tried.fits ? enough : too_little) = tried.fits ? std::min(limit, tried.peak_memory_bytes) : limit;
      } catch (const DeadlineOver&) {
        break;
      }
    }
    return enough;
  }

  void take() {
    chosen_.chosen = fastest();
    const auto not_simulated = std::find_if(candidates().begin(), candidates().end(),
                                            [](const auto& c) { return c.prediction.simulated == nullptr; });
    if (!anything_fits() && not_simulated != candidates().end()) {
      chosen_.chosen = static_cast<size_t>(not_simulated - candidates().begin());
    } else if (!anything_fits()) {
      const auto& least = *std::min_element(candidates().begin(), candidates().end(), [](const auto& a, const auto& b) {
        return a.prediction.peak_unlimited_bytes < b.prediction.peak_unlimited_bytes;
      });
      throw InvalidArgument(
          "no plan of {} on {} ranks fits into {} a rank; the smallest that was found takes {}; use more ranks, a "
          "smaller "
          "batch or a higher memory limit{}",
          graph_.name(), ranks_.size(), format_bytes(options_.memory_limit_bytes), format_bytes(smallest_peak(least)),
          chosen_.left_out.empty() ? "" : "; " + chosen_.left_out_text());
    }
    chosen_.data_parallel_seconds = solver::kForbidden;
    for (size_t i = 0; i < candidates().size() && data_parallel_; ++i) {
      const auto& candidate = candidates()[i];
      if (candidate.origin != kDataParallel &&
          to_json(record_plan(graph_, candidate.choices)) != data_parallel_record_) {
        continue;
      }
      chosen_.data_parallel_seconds = candidate.prediction.step_seconds;
      if (chosen_.taken().prediction.step_seconds > (1 - kWorthwhile) * candidate.prediction.step_seconds) {
        chosen_.chosen = i;
        chosen_.is_data_parallel = true;
      }
      break;
    }
    const PlanCandidate& taken = chosen_.taken();
    chosen_.simulated_seconds = taken.prediction.step_seconds;
    chosen_.peak_memory_bytes = taken.prediction.peak_memory_bytes;
    chosen_.record = record_plan(graph_, taken.choices, taken.prediction.simulated ? chosen_.simulated_seconds : 0,
                                 chosen_.search.bound);
    const Plan plan = plan_of(graph_, taken.choices, options_.whole_results);
    const PlanCost cost = cost_of_plan(graph_, plan, profile_, options_.partition);
    chosen_.record.added_seconds = cost.seconds();
    chosen_.record.searched_seconds = cost.searched_seconds();
    chosen_.warning = uneven_warning(cost, static_cast<int>(ranks_.size()));
  }

  static constexpr const char* kDataParallel = "data parallel";

  const ir::Graph& graph_;
  const std::vector<int>& ranks_;
  const MachineProfile& profile_;
  const SearchOptions& options_;
  SearchOptions searching_;
  ChosenPlan chosen_;
  Deadline deadline_;
  std::set<std::string> known_;               // the candidates' records
  std::optional<PlanChoices> data_parallel_;  // absent where it is ruled out
  std::string data_parallel_record_;
  PlanPrediction data_parallel_prediction_;
};

}  // namespace

ChosenPlan choose_plan(const ir::Graph& graph, const std::vector<int>& ranks, const MachineProfile& profile,
                       const SearchOptions& options) {
  require_memory(graph, static_cast<int>(ranks.size()), options.memory_limit_bytes);
  return Chooser(graph, ranks, profile, options).run();
}

PlanChoices data_parallel_choices(const ir::Graph& graph, const std::vector<int>& ranks, const ShardingHints& hints,
                                  bool whole_results) {
  return batch_choices(graph, row_of(ranks), hints, {.strategies = false, .whole_results = whole_results});
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
    choice.blocks = blocks_of(graph, n, choice.factors, operands);
    for (size_t i = 0; i < operands.size(); ++i) {
      for (const auto& partial : operands[i].partial) choice.through[partial.axis].push_back(static_cast<int>(i));
    }
    choices.nodes[n] = std::move(choice);
  }
  return choices;
}

}  // namespace tessera::compiler
