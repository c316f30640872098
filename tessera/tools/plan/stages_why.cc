#include "tessera/tools/plan/stages_why.h"

#include <fmt/ranges.h>

#include "tessera/engine.h"
#include "tessera/tools/plan/plan_why.h"
#include "tessera/tools/plan/stages_words.h"

namespace tessera::tools {
namespace {

using compiler::DealProblem;
using compiler::DealtRanks;
using compiler::PlannedStages;

std::string why_cut_text(StagesStep& step, const std::string& cut, int num_choices) {
  const PlannedStages& planned = *step.taken;
  const int64_t number = from_user([&] { return parse_int(cut, "--why, with --stages the number of a cut,"); });
  if (planned.num_chunks() == 1) throw UsageError("--why {}: one stage has no cut", cut);
  if (number < 0 || number + 1 >= planned.num_chunks()) {
    throw UsageError("--why {}: the {} have the cuts 0 to {}", cut, stages_name(planned), planned.num_chunks() - 2);
  }
  const int at = static_cast<int>(number);
  auto text = fmt::format(
      "cut {} lies between {} and {}: a step of {}, whose longest stage takes {} a micro-batch and which needs {} a "
      "rank\n",
      at, last_piece(planned, at).last, first_piece(planned, at + 1).first, format_seconds(planned.step_seconds()),
      format_seconds(planned.cuts.longest_seconds), format_bytes(planned.simulated.memory_bytes()));
  for (int i = 1; i <= num_choices; ++i) {
    // One before, one after, two before, ...
    const int pieces = (i + 1) / 2 * (i % 2 == 1 ? -1 : 1);
    const auto moved = compiler::moved_cut(planned.places.problem, planned.cuts, at, pieces);
    if (!moved) continue;
    const auto& pieces_of_it = planned.places.problem.pieces;
    const auto end = static_cast<size_t>(moved->ends[static_cast<size_t>(at)]);
    text += fmt::format("\n  between {} and {}: ", pieces_of_it[end - 1].last, pieces_of_it[end].first);
    const auto place = planned.places.problem.place_behind(at, static_cast<int>(end) - 1);
    const auto other = step.planner->plan_with(planned, *moved);
    if (!other) {
      text += "does not fit, or leaves a stage without parameters\n";
      continue;
    }
    text += fmt::format(
        "a step of {}, {}; longest stage {}, {}; {} there and {} back a micro-batch; {} a rank\n",
        format_seconds(other->step_seconds()), signed_seconds(other->step_seconds() - planned.step_seconds()),
        format_seconds(moved->longest_seconds), signed_seconds(moved->longest_seconds - planned.cuts.longest_seconds),
        format_bytes(place.forward_bytes), format_bytes(place.backward_bytes),
        format_bytes(other->simulated.memory_bytes()));
  }
  return text;
}

// What the chunks of a stage take, if it has so many ranks: "1.2 ms a micro-batch and 300 us a step with 3 ranks".
std::string stage_times(const PlannedStages& planned, const DealProblem& problem, int stage, int size) {
  double seconds = 0;
  double sum_seconds = 0;
  for (int chunk = 0; chunk < planned.num_chunks(); ++chunk) {
    if (planned.chunks[static_cast<size_t>(chunk)].stage != stage) continue;
    for (int i = planned.begin_of(chunk); i < planned.end_of(chunk); ++i) {
      const auto& piece = problem.sizes.at(size).pieces[static_cast<size_t>(i)];
      seconds += piece.seconds;
      sum_seconds += piece.sum_seconds;
    }
  }
  const auto sums = sum_seconds == 0 ? "" : fmt::format(" and {} a step", format_seconds(sum_seconds));
  return fmt::format("{} a micro-batch{} with {}", format_seconds(seconds), sums, plural(size, "rank"));
}

// The next best ways, the shortest estimate first; that of equally many ranks is one of them.
std::vector<DealtRanks> other_deals(StagesStep& step, const DealProblem& problem, int num_choices) {
  std::vector<DealtRanks> others;
  for (auto& dealt : step.planner->deal_ranks_for(*step.taken, problem)) {
    if (dealt.ranks == step.taken->ranks) continue;
    if (static_cast<int>(others.size()) < num_choices) {
      others.push_back(std::move(dealt));
    } else if (dealt.ranks.are_equal() && num_choices > 0) {
      others.back() = std::move(dealt);
    }
  }
  return others;
}

std::string why_ranks_text(StagesStep& step, int num_choices) {
  const PlannedStages& planned = *step.taken;
  const auto problem = step.planner->deal_problem_for(planned);
  auto text =
      fmt::format("ranks {}: a step of {}, whose longest stage takes {} a micro-batch and which needs {} a rank\n\n",
                  planned.ranks.to_string(), format_seconds(planned.step_seconds()),
                  format_seconds(planned.cuts.longest_seconds), format_bytes(planned.simulated.memory_bytes()));
  text += "as operators' times add up, and sums of gradients once a step:\n";
  for (int stage = 0; stage < planned.num_stages; ++stage) {
    const int own = planned.ranks.count(stage);
    if (!problem.sizes.contains(own)) continue;
    std::vector<std::string> times = {stage_times(planned, problem, stage, own)};
    for (const auto& [size, of_size] : problem.sizes) {
      if (size != own) times.push_back(stage_times(planned, problem, stage, size));
    }
    text += fmt::format("  stage {}: {}\n", stage, fmt::join(times, "; "));
  }
  for (const auto& other : other_deals(step, problem, num_choices)) {
    text += fmt::format("\n  ranks {}: ", other.ranks.to_string());
    try {
      const auto dealt = step.planner->plan(other.ranks, planned.micro_batches);
      std::vector<std::string> cuts;
      for (int chunk = 0; chunk + 1 < dealt.num_chunks(); ++chunk) cuts.push_back(last_piece(dealt, chunk).last);
      text += fmt::format(
          "a step of {}, {}; longest stage {}, {}; cut after {}; {} a rank\n", format_seconds(dealt.step_seconds()),
          signed_seconds(dealt.step_seconds() - planned.step_seconds()), format_seconds(dealt.cuts.longest_seconds),
          signed_seconds(dealt.cuts.longest_seconds - planned.cuts.longest_seconds), fmt::join(cuts, ", "),
          format_bytes(dealt.simulated.memory_bytes()));
    } catch (const InvalidArgument& error) {
      text += fmt::format("{}\n", error.what());
    }
  }
  return text;
}

}  // namespace

std::string why_stages_text(StagesStep& step, const std::string& what, int num_choices) {
  if (!step.taken) throw UsageError("--why {}: one stage is taken, which has no cuts", what);
  return what == "ranks" ? why_ranks_text(step, num_choices) : why_cut_text(step, what, num_choices);
}

}  // namespace tessera::tools
