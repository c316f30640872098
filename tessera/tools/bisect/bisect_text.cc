#include "tessera/tools/bisect/bisect_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera::tools {
namespace {

using nlohmann::json;
using session::RecordComparison;
using session::RecordedDifference;
using session::RecordHeader;
using session::StepComparison;
using session::ValueStatistics;

std::string run_text(const RecordHeader& header) {
  return fmt::format("{} rank{} in {}, {}", header.num_ranks, header.num_ranks == 1 ? "" : "s", header.mode,
                     header.precision);
}

std::string counts_text(const StepComparison& step) {
  std::string text = fmt::format("{} values in both: {} equal to the bit", step.num_common, step.num_equal);
  if (step.num_close > 0) text += fmt::format(", {} close by their statistics", step.num_close);
  if (step.num_beyond > 0) text += fmt::format(", {} apart", step.num_beyond);
  if (step.num_not_comparable > 0)
    text += fmt::format(", {} cut so differently that nothing can be said", step.num_not_comparable);
  if (step.num_left_only + step.num_right_only > 0) {
    text += fmt::format("; {} only in the first run, {} only in the second", step.num_left_only, step.num_right_only);
  }
  return text;
}

const std::optional<RecordedDifference>& first_of(const StepComparison& step,
                                                  const session::ComparisonOptions& options) {
  return options.tolerance ? step.first_beyond : step.first;
}

json statistics_json(const std::optional<ValueStatistics>& statistics) {
  if (!statistics) return nullptr;
  return {{"min", statistics->min},
          {"max", statistics->max},
          {"mean", statistics->mean()},
          {"norm", statistics->norm()},
          {"not_finite", statistics->num_not_finite}};
}

json difference_json(const std::optional<RecordedDifference>& difference) {
  if (!difference) return nullptr;
  return {{"value", difference->name},
          {"line", difference->line},
          {"left_type", fmt::format("{}", difference->left_type)},
          {"right_type", fmt::format("{}", difference->right_type)},
          {"in_bits", difference->differs_in_bits},
          {"distance", difference->distance},
          {"tolerance", difference->tolerance},
          {"cut_alike", difference->is_cut_alike},
          {"ranks", difference->ranks},
          {"pieces", difference->regions},
          {"left", statistics_json(difference->left)},
          {"right", statistics_json(difference->right)}};
}

json header_json(const RecordHeader& header) {
  return {{"num_ranks", header.num_ranks},
          {"mode", header.mode},
          {"precision", header.precision},
          {"own", header.are_own},
          {"not_made", header.num_missing}};
}

std::string line_of(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

// Steps as a list that is not too long to read.
std::string steps_text(const std::vector<int64_t>& steps) {
  constexpr size_t kMostShown = 6;
  const auto shown = static_cast<int64_t>(std::min(steps.size(), kMostShown));
  return fmt::format("{}{}", fmt::join(steps.begin(), steps.begin() + shown, ", "),
                     steps.size() > kMostShown ? fmt::format(" and {} more", steps.size() - kMostShown) : "");
}

}  // namespace

std::string bisect_text(const RecordComparison& comparison, const session::ComparisonOptions& options) {
  std::string text =
      fmt::format("first run:  {}\nsecond run: {}\n", run_text(comparison.left), run_text(comparison.right));
  const StepComparison& last = comparison.steps.back();
  const auto found = std::ranges::find_if(
      comparison.steps, [&](const StepComparison& step) { return first_of(step, options).has_value(); });
  if (found == comparison.steps.end()) {
    text += fmt::format("no value differs{} in {} step{}, up to step {}\n",
                        options.tolerance ? fmt::format(" by more than {:g}", *options.tolerance) : "",
                        comparison.steps.size(), comparison.steps.size() == 1 ? "" : "s", last.step);
  } else {
    text += session::describe(found->step, *first_of(*found, options)) + "\n";
    const bool has_tail = !options.tolerance && found->first_beyond && found->first_beyond->name != found->first->name;
    if (has_tail)
      text += fmt::format("the first value that is apart, too:\n{}\n",
                          session::describe(found->step, *found->first_beyond));
    if (!options.tolerance && !found->first_beyond) {
      text += "no value of this step is further apart than rounding explains: --tolerance goes on past those\n";
    }
    if (found == comparison.steps.begin() && first_of(*found, options)->name.ends_with("before the step")) {
      text += "the parameters or states differ when the step begins: what made them so was not recorded\n";
    }
  }
  for (const StepComparison& step : comparison.steps) {
    const bool is_shown = comparison.steps.size() == 1 || first_of(step, options).has_value() || &step == &last;
    if (is_shown) text += fmt::format("step {}: {}\n", step.step, counts_text(step));
  }
  for (const std::string& odd : last.odd_left)
    text += fmt::format("within the first run, step {}: {}\n", last.step, odd);
  for (const std::string& odd : last.odd_right)
    text += fmt::format("within the second run, step {}: {}\n", last.step, odd);
  if (comparison.left.num_missing + comparison.right.num_missing > 0) {
    text += fmt::format(
        "of the network's values the first run has not made {}, the second {}, most of them because of fusion: "
        "fuse=False keeps them apart\n",
        comparison.left.num_missing, comparison.right.num_missing);
  }
  if (last.num_common == 0)
    text += "the runs have no value in common: they are of networks, or of modes, that differ\n";
  if (!comparison.left_only.empty())
    text += fmt::format("only the first run has recorded step {}\n", steps_text(comparison.left_only));
  if (!comparison.right_only.empty())
    text += fmt::format("only the second run has recorded step {}\n", steps_text(comparison.right_only));
  return text;
}

std::string bisect_json(const RecordComparison& comparison, const session::ComparisonOptions& options) {
  json steps = json::array();
  bool are_equal = true;
  for (const StepComparison& step : comparison.steps) {
    are_equal = are_equal && !first_of(step, options);
    steps.push_back({{"step", step.step},
                     {"common", step.num_common},
                     {"equal", step.num_equal},
                     {"close", step.num_close},
                     {"beyond", step.num_beyond},
                     {"not_comparable", step.num_not_comparable},
                     {"left_only", step.num_left_only},
                     {"right_only", step.num_right_only},
                     {"first", difference_json(step.first)},
                     {"first_beyond", difference_json(step.first_beyond)},
                     {"odd_copies_left", step.odd_left},
                     {"odd_copies_right", step.odd_right}});
  }
  return line_of({{"equal", are_equal},
                  {"left", header_json(comparison.left)},
                  {"right", header_json(comparison.right)},
                  {"steps", steps},
                  {"steps_left_only", comparison.left_only},
                  {"steps_right_only", comparison.right_only}});
}

OddCopies find_odd_copies(FileSystem& files, const std::string& directory, std::optional<int64_t> only) {
  const auto steps = session::recorded_steps(files, directory);
  if (steps.empty()) throw InvalidArgument("{}: the folder has no recorded values", directory);
  OddCopies copies;
  for (const int64_t number : steps) {
    if (only && number != *only) continue;
    const auto step = session::read_step(files, directory, number);
    ++copies.num_steps;
    for (const auto& value : step.values) {
      ++copies.num_values;
      const auto odd = value.odd_copies();
      if (odd.empty()) continue;
      copies.step = number;
      copies.values.push_back(
          fmt::format("{}: rank{} {}", value.text(), odd.size() == 1 ? "" : "s", fmt::join(odd, ", ")));
    }
    if (copies.step) break;
  }
  if (copies.num_steps == 0) throw InvalidArgument("{}: step {} is not recorded", directory, only.value_or(0));
  return copies;
}

std::string odd_copies_text(const OddCopies& copies) {
  const auto looked =
      fmt::format("{} values of {} step{}", copies.num_values, copies.num_steps, copies.num_steps == 1 ? "" : "s");
  if (!copies.step) return fmt::format("all ranks that share a piece of a value have equal copies: {}\n", looked);
  std::string text = fmt::format(
      "step {}: copies that are not those of the lowest rank which has the piece, in the order of the step:\n",
      *copies.step);
  for (const auto& value : copies.values) text += "  " + value + "\n";
  return text + looked + "\n";
}

std::string odd_copies_json(const OddCopies& copies) {
  return line_of({{"steps", copies.num_steps},
                  {"values", copies.num_values},
                  {"step", copies.step ? json(*copies.step) : json()},
                  {"odd_copies", copies.values}});
}

}  // namespace tessera::tools
