#include "tessera/tools/plan/stages_step.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tessera/engine.h"

namespace tessera::tools {
namespace {

double data_parallel_seconds(const StagesStep& step) {
  std::vector<int> ranks(static_cast<size_t>(step.num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto choices = compiler::data_parallel_choices(step.whole, ranks, {}, kWholeResults);
  return compiler::predict(step.whole, choices, step.profile,
                           {.whole_results = kWholeResults, .memory_limit_bytes = step.memory_limit_bytes})
      .step_seconds;
}

void search_all(StagesStep& step, const PlanCommand& command) {
  step.is_auto = step.searches_ranks = true;
  // Half of the time for the plan of one stage, the rest for pipelines.
  auto of_one_stage = command;
  if (command.timeout > 0) of_one_stage.timeout = std::max(step.options.deadline.seconds_left() / 2, 1e-3);
  try {
    step.one_stage = plan_step(of_one_stage);
    step.data_parallel_seconds = step.one_stage->chosen->data_parallel_seconds;
  } catch (const InvalidArgument& error) {
    step.one_stage_fault = error.what();
    step.data_parallel_seconds = solver::kForbidden;
  }
  step.search = step.planner->search();
  if (!step.search.fastest) {
    if (step.one_stage) return;
    const auto least = step.search.what_needs_least();
    throw InvalidArgument("no plan fits, with one stage or several: {}{}", step.one_stage_fault,
                          least.empty() ? "" : "; of the pipelines the one that needs least is of " + least);
  }
  const auto& fastest = *step.search.candidates[*step.search.fastest].planned;
  if (fastest.step_seconds() < (1 - compiler::kWorthwhile) * step.one_stage_seconds()) step.taken = fastest;
}

// So many stages, whose ranks are searched for.
void search_ranks(StagesStep& step) {
  step.searches_ranks = true;
  step.search = step.planner->search();
  if (step.search.fastest) {
    step.taken = *step.search.candidates[*step.search.fastest].planned;
    return;
  }
  std::vector<std::string> faults;
  for (const auto& candidate : step.search.candidates) {
    faults.push_back(
        fmt::format("{}: {}", compiler::name_of(candidate.ranks, candidate.micro_batches), candidate.fault));
  }
  for (const auto& name : step.search.left_out) faults.push_back(name + ": there was no time");
  const auto least = step.search.what_needs_least();
  throw InvalidArgument("no way to deal {} ranks to {} stages gives a plan{}:\n  {}", step.num_ranks,
                        step.options.num_stages, least.empty() ? "" : "; the one that needs least is of " + least,
                        fmt::join(faults, "\n  "));
}

// What --stage_ranks says; nullopt where it is not given.
std::optional<mesh::StageRanks> stage_ranks_of(const StagesCommand& stages, int64_t num_stages, int num_ranks) {
  if (stages.ranks.empty() || stages.searches_ranks()) return std::nullopt;
  const auto given = fmt::format("--stage_ranks {}", fmt::join(stages.ranks, ","));
  if (std::ssize(stages.ranks) != num_stages) {
    throw UsageError("{} says how many ranks {} stages have, but --stages is {}", given, stages.ranks.size(),
                     num_stages);
  }
  const mesh::StageRanks ranks(stages.ranks);
  if (ranks.num_ranks() != num_ranks) {
    throw UsageError("{} deals out {}, there are {}: the stages have all of them", given,
                     plural(ranks.num_ranks(), "rank"), num_ranks);
  }
  return ranks;
}

}  // namespace

double StagesStep::one_stage_seconds() const {
  return one_stage && one_stage->chosen ? one_stage->chosen->simulated_seconds : solver::kForbidden;
}

std::unique_ptr<StagesStep> plan_stages_step(PlanCommand command, const StagesCommand& stages) {
  const bool is_auto = stages.stages == "auto";
  if (stages.searches_ranks() && stages.stages.empty()) {
    throw UsageError(
        "--stage_ranks auto deals the ranks to a number of stages: say which, --stages N, or --stages auto");
  }
  if (is_auto && !stages.ranks.empty() && !stages.searches_ranks()) {
    throw UsageError("--stage_ranks says how many stages there are, --stages auto searches for that: say one of them");
  }
  const int64_t num_stages = is_auto ? 0
                             : stages.stages.empty()
                                 ? std::ssize(stages.ranks)
                                 : from_user([&] { return parse_int(stages.stages, "--stages (a number, or auto)"); });
  if (command.step.ranks == 0) throw UsageError("how many ranks? Say --ranks N");
  if (!is_auto && (num_stages < 1 || num_stages > command.step.ranks)) {
    throw UsageError("--stages {}: must be from 1 to the {} ranks, or auto", stages.stages, command.step.ranks);
  }
  const auto ranks = stage_ranks_of(stages, num_stages, command.step.ranks);
  const auto deadline = Deadline::of_timeout(Clock::system(), command.timeout);
  if (is_file(command.step)) step_graphs(command.step, 1);  // refuses it
  auto step = std::make_unique<StagesStep>();
  step->profile = read_profile(command.machine);
  step->num_ranks = command.step.ranks;
  if (command.step.batch_size == 0) {
    command.step.batch_size = nn::find_model(command.step.model).samples_per_part * step->num_ranks;
  }
  step->rows = command.step.batch_size;
  step->memory_limit_bytes =
      command.step.memory_limit.empty() ? step->profile.memory_bytes : memory_limit_of(command.step);
  step->whole = compiler::simplify(step_graph(command.step));
  auto inside = command;
  inside.full_batch = true;  // a stage's ranks take of a micro-batch what they want
  PlannedStep unlimited;
  step->options = {.micro_batches = stages.micro_batches,
                   .schedule = stages.schedule,
                   .segments = stages.segments,
                   .memory_limit_bytes = step->memory_limit_bytes,
                   .searches_inside = stages.searches_inside,
                   .search = search_options(inside, unlimited),
                   .deadline = deadline};
  step->planner = std::make_unique<compiler::StagePlanner>(
      step->whole, step->rows, [step = command.step](int micro_batches) { return step_graphs(step, micro_batches); },
      step->num_ranks, step->profile, step->options);
  if (is_auto) {
    search_all(*step, command);
    return step;
  }
  const int count = static_cast<int>(num_stages);
  const bool searches_ranks = stages.searches_ranks() && count > 1;
  if ((ranks || searches_ranks || step->num_ranks % count == 0) && stages.micro_batches == 0) {
    step->options.micro_batches = compiler::usual_micro_batches(step->rows, count);
  }
  if (searches_ranks) {
    step->options.num_stages = count;
    search_ranks(*step);
    step->data_parallel_seconds = data_parallel_seconds(*step);
    return step;
  }
  step->taken = ranks ? step->planner->plan(*ranks, step->options.micro_batches)
                      : step->planner->plan(count, step->options.micro_batches);
  step->data_parallel_seconds = data_parallel_seconds(*step);
  return step;
}

}  // namespace tessera::tools
