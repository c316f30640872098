#include "tessera/tools/plan/stages_words.h"

namespace tessera::tools {

using compiler::PlannedStages;

std::string stages_name(const PlannedStages& planned) {
  const auto stages = plural(planned.num_stages, "stage");
  return planned.num_segments() == 1 ? stages : stages + " of " + plural(planned.num_segments(), "segment");
}

std::string ranks_name(const mesh::StageRanks& ranks) {
  return ranks.are_equal() ? plural(ranks.count(0), "rank") : ranks.to_string() + " ranks";
}

std::string schedule_name(const PlannedStages& planned, const StagesStep& step) {
  const auto& name = step.options.schedule;
  const auto& origin = planned.simulated.found.origin;
  return name == origin ? name : fmt::format("{} ({})", name, origin);
}

const compiler::CutPiece& first_piece(const PlannedStages& planned, int chunk) {
  return planned.places.problem.pieces[static_cast<size_t>(planned.begin_of(chunk))];
}

const compiler::CutPiece& last_piece(const PlannedStages& planned, int chunk) {
  return planned.places.problem.pieces[static_cast<size_t>(planned.end_of(chunk) - 1)];
}

}  // namespace tessera::tools
