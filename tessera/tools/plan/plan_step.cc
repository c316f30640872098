#include "tessera/tools/plan/plan_step.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "tessera/engine.h"

namespace tessera::tools {
namespace {

// Search lines on standard error: each improvement, and a sign of life.
constexpr double kSecondsBetweenLines = 2;

// What was printed last.
struct Told {
  int64_t begin_ns = Clock::system().monotonic_ns();
  int mesh = 0;
  double cost = std::numeric_limits<double>::infinity();
  double at = 0;

  double seconds() const { return 1e-9 * static_cast<double>(Clock::system().monotonic_ns() - begin_ns); }
  bool is_silent() const { return seconds() >= at + kSecondsBetweenLines; }
};

std::function<void(const compiler::SearchProgress&)> printed_search(const std::shared_ptr<Told>& told) {
  return [told](const compiler::SearchProgress& progress) {
    const double cost = progress.solver.cost;
    if (progress.mesh_number == told->mesh && cost >= told->cost && !told->is_silent()) return;
    const double seconds = told->seconds();
    told->mesh = progress.mesh_number;
    told->cost = cost;
    told->at = seconds;
    const auto found = std::isinf(cost) ? std::string("no plan yet")
                                        : fmt::format("cost {:<12.6g} gap {:6.2f} %", cost,
                                                      100 * std::max(0.0, cost - progress.solver.bound) / cost);
    fmt::print(stderr, "{:8.1f} s  grid {}/{} {:<18} round {:4}  bound {:<12.6g} {}\n", seconds, progress.mesh_number,
               progress.num_meshes, progress.mesh.to_string(), progress.solver.round, progress.solver.bound, found);
  };
}

std::function<void(const compiler::SimulationProgress&)> printed_simulations(const std::shared_ptr<Told>& told) {
  return [told](const compiler::SimulationProgress& progress) {
    if (!told->is_silent()) return;
    told->at = told->seconds();
    fmt::print(stderr, "{:8.1f} s  simulating \"{}\": {} of {} classes of ranks\n", told->at, progress.plan,
               progress.classes_done, progress.num_classes);
  };
}

void refuse_other_ways(const StepOptions& step) {
  const auto refuse = [](const char* option) {
    throw UsageError(
        "--{} says how a step is split, and so does a search: leave it out, or ask tessera simulate what it costs",
        option);
  };
  if (step.semi_auto) refuse("semi_auto");
  if (step.propagate) refuse("propagate");
  if (step.optimizer_shards) refuse("optimizer_shards");
  if (step.recompute != "none") refuse("recompute");
  if (!step.inputs.empty() && step.mesh.empty()) {
    throw UsageError("--input {} names axes of a grid: say which with --mesh", step.inputs[0]);
  }
}

// Of a plan that was compared to others, what that has found.
std::optional<compiler::SimulatedPlan> simulate_step(const PlannedStep& planned, const compiler::PlanChoices& choices,
                                                     const compiler::Plan& plan) {
  if (planned.chosen) {
    for (const auto& candidate : planned.chosen->candidates) {
      if (!(candidate.choices == choices)) continue;
      if (candidate.prediction.simulated == nullptr) return std::nullopt;
      return *candidate.prediction.simulated;
    }
  }
  try {
    return compiler::simulate_plan(planned.graph, plan, planned.profile, planned.memory_limit_bytes, {},
                                   {.first = planned.deadline, .fitting = planned.deadline});
  } catch (const DeadlineOver&) {
    return std::nullopt;
  }
}

compiler::Plan plan_for(const PlannedStep& planned, const compiler::PlanChoices& choices) {
  return compiler::plan_of(planned.graph, choices, kWholeResults);
}

// What a training does with its batch, unless all ranks read all of it.
compiler::ShardingHints batch_layouts(const PlannedStep& planned, const std::vector<int>& ranks) {
  const mesh::Mesh mesh({{"data", static_cast<int>(ranks.size())}}, ranks);
  compiler::ShardingHints layouts;
  for (const auto& input : planned.graph.inputs()) {
    const int ndim = planned.graph.type(input.value).shape.ndim();
    if (input.kind != ir::InputKind::kInput || ndim == 0) continue;
    auto sharding = mesh::Sharding::replicated(ndim);
    sharding.dims[0] = {0};
    layouts[input.name] = {mesh, sharding};
  }
  return layouts;
}

}  // namespace

compiler::SearchOptions search_options(const PlanCommand& command, const PlannedStep& planned) {
  compiler::SearchOptions options{.algorithm = compiler::parse_search_algorithm(command.algorithm),
                                  .whole_results = kWholeResults,
                                  .memory_limit_bytes = planned.memory_limit_bytes,
                                  .max_axes = command.max_axes,
                                  .timeout_seconds = command.timeout,
                                  .gap = command.gap,
                                  .seed = command.seed};
  if (command.rounds > 0) {
    options.rounds = command.rounds;
  } else if (command.timeout > 0) {
    options.rounds = std::numeric_limits<int>::max();
  }
  if (!command.full_batch) options.hints = batch_layouts(planned, mesh_of(command.step).ranks());
  if (!command.step.mesh.empty()) {
    const auto mesh = mesh_of(command.step);
    options.meshes = {mesh};
    for (auto& [name, layout] : given_layouts(command.step, planned.graph, mesh)) options.hints[name] = layout;
  }
  if (command.progress) {
    const auto told = std::make_shared<Told>();
    options.on_progress = printed_search(told);
    options.on_simulation = printed_simulations(told);
  }
  return options;
}

compiler::PlanCost count(const PlannedStep& planned, const compiler::PlanChoices& choices) {
  return compiler::cost_of_plan(planned.graph, plan_for(planned, choices), planned.profile);
}

PlannedStep plan_step(PlanCommand command) {
  PlannedStep planned;
  planned.deadline = Deadline::of_timeout(Clock::system(), command.timeout);
  refuse_other_ways(command.step);
  planned.profile = read_profile(command.machine);
  std::optional<compiler::PlanRecord> record;
  if (!command.load.empty()) {
    record = compiler::parse_plan_record(read_settings(FileSystem::local(), command.load, "plan"), command.load);
    if (command.step.ranks == 0) command.step.ranks = record->mesh.size();
    if (command.step.ranks != record->mesh.size()) {
      throw InvalidArgument("{} is for {}, --ranks says {}", command.load, plural(record->mesh.size(), "rank"),
                            command.step.ranks);
    }
  }
  if (command.step.ranks == 0 && command.step.mesh.empty()) {
    throw UsageError("how many ranks? Say --ranks N, or --mesh AXIS=SIZE,... for one grid of them");
  }
  const int num_ranks = mesh_of(command.step).size();
  if (command.step.batch_size == 0 && !is_file(command.step)) {
    // However the grid will be: the batch is that of data parallel training.
    command.step.batch_size = nn::find_model(command.step.model).samples_per_part * num_ranks;
  }
  planned.memory_limit_bytes =
      command.step.memory_limit.empty() ? planned.profile.memory_bytes : memory_limit_of(command.step);
  planned.graph = compiler::simplify(step_graph(command.step));
  planned.names = compiler::operator_names(planned.graph);
  std::vector<int> ranks(static_cast<size_t>(num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (record) {
    planned.choices = compiler::choices_for(planned.graph, *record);
    const auto difference = compiler::difference_text(planned.graph, *record);
    if (!difference.empty()) log_warning("{} {}", command.load, difference);
  } else {
    auto options = search_options(command, planned);
    if (command.timeout > 0) options.timeout_seconds = std::max(planned.deadline.seconds_left(), 1e-3);
    planned.chosen = compiler::choose_plan(planned.graph, ranks, planned.profile, options);
    planned.choices = planned.chosen->taken().choices;
  }
  planned.plan = plan_for(planned, planned.choices);
  planned.cost = compiler::cost_of_plan(planned.graph, planned.plan, planned.profile);
  if (planned.chosen && !planned.chosen->search.meshes.empty()) {
    planned.searched = count(planned, planned.chosen->search.choices);
  }
  const auto batch_choices = compiler::data_parallel_choices(planned.graph, ranks, {}, kWholeResults);
  const auto by_batch = plan_for(planned, batch_choices);
  planned.data_parallel = compiler::cost_of_plan(planned.graph, by_batch, planned.profile);
  planned.simulated = simulate_step(planned, planned.choices, planned.plan);
  planned.shows_simulation = command.simulate;
  if (record || command.simulate) planned.data_parallel_simulated = simulate_step(planned, batch_choices, by_batch);
  if (!command.out.empty()) {
    auto written =
        planned.chosen
            ? planned.chosen->record
            : compiler::record_plan(planned.graph, planned.choices,
                                    planned.simulated ? planned.simulated->simulation.step_seconds : 0, record->bound);
    if (!planned.chosen) {
      written.added_seconds = planned.cost.seconds();
      written.searched_seconds = planned.cost.searched_seconds();
    }
    FileSystem::local().write_atomically(command.out, compiler::to_json(written), 0666);
  }
  return planned;
}

std::string strategy_text(const compiler::Plan& plan, ir::NodeId node) {
  mesh::Strategy strategy;
  const auto& mesh = plan.mesh_of_node(node);
  for (const auto& operand : plan.operands[static_cast<size_t>(node)]) {
    auto& tuple = strategy.emplace_back();
    for (const auto& axes : operand.dims) {
      int64_t parts = 1;
      for (const int axis : axes) parts *= mesh.axis(axis).size;
      tuple.push_back(parts);
    }
  }
  return mesh::to_string(strategy);
}

std::string split_text(const mesh::Mesh& mesh, const compiler::NodeChoice& choice) {
  std::vector<std::string> parts;
  for (const auto& [factor, axes] : choice.factors) {
    std::string names;
    for (const int axis : axes) names += (names.empty() ? "" : ",") + mesh.axis(axis).name;
    parts.push_back(factor + "=" + names);
  }
  for (const auto& [axis, operands] : choice.through) {
    parts.push_back(fmt::format("sum {} through {}", mesh.axis(axis).name, fmt::join(operands, ",")));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

std::string to_string(const compiler::OperatorName& name) {
  return name.is_gradient ? "gradient " + name.text : name.text;
}

}  // namespace tessera::tools
