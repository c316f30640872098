#include "tessera/train/modes/stages/found_cuts.h"

#include <fmt/ranges.h>

#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"

namespace tessera::train {
namespace {

// One stage, as data parallel, counts as a pipeline: it must be left by so much as a plan of its own would be.
compiler::PlannedStages find_fastest(compiler::StagePlanner& planner, int num_ranks, const PipelineOptions& options) {
  std::optional<compiler::PlannedStages> best;
  std::vector<std::string> faults;
  const auto offer = [&](compiler::PlannedStages planned) {
    const double worthwhile = best && best->num_stages == 1 ? 1 - compiler::kWorthwhile : 1;
    if (!best || planned.step_seconds() < worthwhile * best->step_seconds()) best = std::move(planned);
  };
  auto stage_counts = compiler::stage_counts(num_ranks);
  stage_counts.insert(stage_counts.begin(), 1);
  for (const int stages : stage_counts) {
    const bool is_whole = stages == 1 && options.micro_batches == 0;
    for (const int count : is_whole ? std::vector{1} : planner.micro_batches_for(stages)) {
      try {
        offer(planner.plan(stages, count));
      } catch (const InvalidArgument& error) {
        faults.push_back(fmt::format("{} stages, {} micro-batches: {}", stages, count, error.what()));
      }
    }
  }
  auto unequal = planner.search_unequal(best.has_value());
  for (auto& candidate : unequal.candidates) {
    if (candidate.planned) offer(std::move(*candidate.planned));
  }
  if (best) return std::move(*best);
  if (const auto least = unequal.what_needs_least(); !least.empty())
    faults.push_back("stages of different ranks: " + least);
  throw InvalidArgument("no number of stages fits:\n  {}", fmt::join(faults, "\n  "));
}

void say_found(const compiler::PlannedStages& planned, const compiler::MachineProfile& profile) {
  std::string text;
  for (int stage = 0; stage < planned.num_stages; ++stage) {
    std::vector<std::string> parts;
    for (int chunk = 0; chunk < planned.num_chunks(); ++chunk) {
      if (planned.chunks[static_cast<size_t>(chunk)].stage != stage) continue;
      const auto& pieces = planned.places.problem.pieces;
      parts.push_back(fmt::format("{} to {}", pieces[static_cast<size_t>(planned.begin_of(chunk))].first,
                                  pieces[static_cast<size_t>(planned.end_of(chunk) - 1)].last));
    }
    text += fmt::format("\n  stage {}: {}, {} a rank", stage, fmt::join(parts, " and "),
                        format_bytes(planned.simulated.stages[static_cast<size_t>(stage)].memory_bytes()));
  }
  const auto of_ranks = planned.ranks.are_equal() ? "" : fmt::format(" of {} ranks", planned.ranks.to_string());
  log_info("cut into {} stage{}{}; by the profile \"{}\" a step takes {}, none of these stages less than {}{}",
           planned.num_stages, planned.num_stages == 1 ? "" : "s", of_ranks, profile.name,
           format_seconds(planned.step_seconds()), format_seconds(planned.simulated.bound_seconds()), text);
}

}  // namespace

// A line for each cell, whose name comes last.
std::string print_cuts(const FoundCuts& found) {
  std::string text = fmt::format("{} {}\n", found.micro_batches, fmt::join(found.ranks.counts(), " "));
  for (const auto& [name, at] : found.cells) text += fmt::format("{} {} {}\n", at.stage, at.segment, name);
  return text;
}

FoundCuts parse_cuts(const std::string& text) {
  constexpr const char* kWhat = "the job's stages";
  const auto number = [&](std::string_view word) { return static_cast<int>(parse_int(word, kWhat)); };
  auto lines = split(text, '\n');
  check(lines.size() > 1, kWhat);
  std::vector<int> numbers;
  for (const auto word : split(lines[0], ' ')) numbers.push_back(number(word));
  check(numbers.size() > 1, kWhat);
  FoundCuts found{.ranks = mesh::StageRanks({numbers.begin() + 1, numbers.end()}), .micro_batches = numbers[0]};
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    const auto stage_end = lines[i].find(' ');
    const auto end = lines[i].find(' ', stage_end + 1);
    check(end != std::string_view::npos, kWhat);
    found.cells[std::string(lines[i].substr(end + 1))] = {number(lines[i].substr(0, stage_end)),
                                                          number(lines[i].substr(stage_end + 1, end - stage_end - 1))};
  }
  return found;
}

FoundCuts find_cuts(cluster::Context& context, int64_t rows,
                    const std::function<compiler::StepGraphs(int micro_batches)>& graphs_of,
                    const ModelOptions& options, const compiler::MachineProfile& profile) {
  // Within a stage as the mode does it: nothing is searched there, so the whole step is not asked for.
  const compiler::StageSearchOptions search{.micro_batches = static_cast<int>(options.pipeline.micro_batches),
                                            .schedule = options.pipeline.schedule,
                                            .segments = options.pipeline.segments,
                                            .receive_ahead = options.pipeline.receive_ahead,
                                            .memory_limit_bytes = options.session.memory_limit_bytes,
                                            .searches_inside = false};
  const ir::Graph whole;
  compiler::StagePlanner planner(whole, rows, graphs_of, context.size(), profile, search);
  const auto plan = [&] {
    const auto& pipeline = options.pipeline;
    if (pipeline.stages.is_automatic()) return find_fastest(planner, context.size(), pipeline);
    const int count = pipeline.micro_batches > 0 ? static_cast<int>(pipeline.micro_batches) : num_stages(pipeline);
    return planner.plan(stage_ranks(pipeline, context.size()), count);
  };
  auto planned = plan();
  if (context.rank() == 0) say_found(planned, profile);
  return {std::move(planned.cells), planned.ranks, planned.micro_batches};
}

}  // namespace tessera::train
