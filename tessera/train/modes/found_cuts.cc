#include "tessera/train/modes/found_cuts.h"

#include <fmt/ranges.h>

#include "tessera/base/logging.h"
#include "tessera/base/strings.h"

namespace tessera::train {

compiler::CellStages find_cuts(cluster::Context& context, int64_t rows,
                               const std::function<compiler::StepGraphs(int micro_batches)>& graphs_of,
                               const ModelOptions& options, int micro_batches,
                               const compiler::MachineProfile& profile) {
  // Within a stage as the mode does it: nothing is searched there, so the whole step is not asked for.
  const compiler::StageSearchOptions search{.schedule = options.pipeline.schedule,
                                            .segments = options.pipeline.segments,
                                            .receive_ahead = options.pipeline.receive_ahead,
                                            .memory_limit_bytes = options.session.memory_limit_bytes,
                                            .searches_inside = false};
  const ir::Graph whole;
  compiler::StagePlanner planner(whole, rows, graphs_of, context.size(), profile, search);
  const auto planned = planner.plan(stage_ranks(options.pipeline, context.size()), micro_batches);
  if (context.rank() == 0) {
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
    log_info("cut into {} stages; by the profile \"{}\" a step takes {}, none of these stages less than {}{}",
             planned.num_stages, profile.name, format_seconds(planned.step_seconds()),
             format_seconds(planned.simulated.bound_seconds()), text);
  }
  return planned.cells;
}

}  // namespace tessera::train
