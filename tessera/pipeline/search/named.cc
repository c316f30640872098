#include "tessera/pipeline/search/named.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/base/strings.h"

namespace tessera::pipeline {
namespace {

using enum PhaseKind;

enum class Way { kAny, kOnce, kInTurn, kThereAndBack };

// What limits of micro-batches in flight depend on: stage `s` of `p`, each visited `v` times.
struct Place {
  int64_t s = 0;
  int64_t p = 0;
  int64_t v = 0;
};
using Limit = int64_t (*)(const Place&);

struct Row {
  std::string_view name;
  Way way;           // that the chunks must go over the stages
  bool needs_split;  // of backward
  bool groups;       // micro-batches pass in groups of as many as there are stages, which divide them
  bool forwards_first;
  Limit least_micro_batches;
  std::vector<PhaseKind> kinds;  // the preferred kind first
  Limit until_backward;          // most micro-batches in flight, or nullptr
  Limit until_weight_gradient;   // the same, weight gradients that are not computed yet included
  bool in_memory_of_1f1b;        // a stage keeps at most as many bytes as it would of p whole micro-batches
};

const std::vector<Row>& rows() {
  static const std::vector<PhaseKind> at_once = {kWeightGradient, kForward, kBackward};
  static const std::vector<PhaseKind> as_filler = {kForward, kBackward, kWeightGradient};
  static constexpr Limit kOne = [](const Place&) { return int64_t{1}; };
  static constexpr Limit kStages = [](const Place& place) { return place.p; };
  static constexpr Limit kLeft = [](const Place& place) { return place.p - place.s; };
  static constexpr Limit kRoundTrip = [](const Place& place) { return 2 * (place.p - place.s) - 1; };
  static constexpr Limit kLongestRoundTrip = [](const Place& place) { return 2 * place.p - 1; };
  static constexpr Limit kGroups = [](const Place& place) {
    return 2 * (place.p - place.s) - 1 + (place.v - 1) * place.p;
  };
  // Half a stage's chunks each visit; the turn at the last stage is both visits in one.
  static constexpr Limit kBothWays = [](const Place& place) { return place.v * place.p; };
  static const std::vector<Row> all = {
      {"gpipe", Way::kAny, false, false, true, kOne, at_once, nullptr, nullptr, false},
      {"1f1b", Way::kOnce, false, false, false, kStages, at_once, kLeft, nullptr, false},
      {"interleaved_1f1b", Way::kInTurn, false, true, false, kStages, at_once, kGroups, nullptr, false},
      {"zb_h1", Way::kOnce, true, false, false, kStages, as_filler, kLeft, kStages, false},
      {"zb_h2", Way::kOnce, true, false, false, kLongestRoundTrip, as_filler, kRoundTrip, kLongestRoundTrip, false},
      {"zb_v", Way::kThereAndBack, true, false, false, kStages, as_filler, kBothWays, nullptr, true},
  };
  return all;
}

const Row& row_of(std::string_view name) {
  for (const auto& row : rows()) {
    if (row.name == name) return row;
  }
  const auto names = schedule_names();
  const auto close = closest(name, names);
  throw InvalidArgument("pipeline schedule \"{}\": no schedule has that name{}; there are {} and auto", name,
                        close.empty() ? "" : fmt::format(", did you mean {}?", close), fmt::join(names, ", "));
}

bool goes(const PipelineProblem& problem, Way way) {
  const auto visits = stage_visits(problem);
  const int p = problem.num_stages();
  const int n = static_cast<int>(visits.size());
  const auto is = [&](auto&& stage_of) {
    for (int i = 0; i < n; ++i) {
      if (visits[as_index(i)].stage != stage_of(i)) return false;
    }
    return true;
  };
  switch (way) {
    case Way::kAny: return true;
    case Way::kOnce: return n == p && is([](int i) { return i; });
    case Way::kInTurn: return n % p == 0 && is([&](int i) { return i % p; });
    // The two visits to the last stage are one.
    case Way::kThereAndBack: return n == 2 * p - 1 && is([&](int i) { return std::min(i, 2 * p - 2 - i); });
  }
  return false;
}

std::string_view describe(Way way) {
  switch (way) {
    case Way::kAny: return "go anyhow over the stages";
    case Way::kOnce: return "go once over the stages, 0, 1, ...";
    case Way::kInTurn: return "go over all stages in turn, 0, 1, ..., 0, 1, ...";
    case Way::kThereAndBack: return "go over the stages there and back, 0, 1, ..., 1, 0";
  }
  return "";
}

Place place_of(const PipelineProblem& problem, int stage) {
  const auto visits = stage_visits(problem);
  return {.s = stage,
          .p = problem.num_stages(),
          .v = std::count_if(visits.begin(), visits.end(), [&](const StageVisit& v) { return v.stage == stage; })};
}

std::vector<int64_t> limits_of(const PipelineProblem& problem, Limit limit) {
  std::vector<int64_t> limits;
  for (int s = 0; s < problem.num_stages(); ++s) limits.push_back(limit(place_of(problem, s)));
  return limits;
}

// The whole order of each stage: as many forwards as may be in flight, less one; then forward and backward in turn, and
// what backward is left. A group of p micro-batches makes the first visit to a stage, then the second, ...; backward
// the other way round.
std::vector<int64_t> keys_by_group(const PipelineProblem& problem, const SeriesTable& table, Limit in_flight) {
  std::vector<int64_t> keys(as_index(table.num_phases()));
  const auto visits = stage_visits(problem);
  const int64_t p = problem.num_stages();
  const int64_t rounds = static_cast<int64_t>(visits.size()) / p;
  const int64_t chunks = table.num_chunks;
  for (size_t s = 0; s < table.series.size(); ++s) {
    const Series& series = table.series[s];
    const bool is_forward = series.kind == kForward;
    const auto visit = std::find_if(visits.begin(), visits.end(), [&](const auto& v) { return series.chunk < v.end; });
    const int64_t round = (visit - visits.begin()) / p;
    const int64_t warm_up = in_flight(place_of(problem, series.stage)) - 1;
    for (int k = 0; k < table.micro_batches; ++k) {
      const int64_t pass = k / p * rounds + (is_forward ? round : rounds - 1 - round);
      const int64_t turn = pass * p + k % p;  // forwards, and backwards, of a stage are numbered by it
      const int64_t step = is_forward ? 2 * (turn - warm_up) : 2 * turn + 1;
      const int64_t within =
          is_forward ? series.chunk : 2 * (chunks - series.chunk) + (series.kind == kBackward ? 0 : 1);
      keys[table.index(static_cast<int>(s), k)] = step * 3 * chunks + within;
    }
  }
  return keys;
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& row : rows()) names.emplace_back(row.name);
  return names;
}

void require_schedule_name(std::string_view name) {
  if (name != "auto") row_of(name);
}

std::vector<int64_t> keys_by_kind(const SeriesTable& table, const std::vector<PhaseKind>& kinds) {
  std::vector<int64_t> keys(as_index(table.num_phases()));
  const int64_t chunks = table.num_chunks;
  for (size_t s = 0; s < table.series.size(); ++s) {
    const Series& series = table.series[s];
    const int64_t kind = std::find(kinds.begin(), kinds.end(), series.kind) - kinds.begin();
    const int64_t on_the_way = series.kind == kForward ? series.chunk : chunks - 1 - series.chunk;
    for (int k = 0; k < table.micro_batches; ++k) {
      keys[table.index(static_cast<int>(s), k)] = kind * table.num_phases() + k * chunks + on_the_way;
    }
  }
  return keys;
}

Reserve in_flight(const PipelineProblem& problem, std::vector<int64_t> limits, bool until_weight_gradient) {
  Reserve reserve{.limits = std::move(limits),
                  .taken = std::vector<int64_t>(problem.chunks.size(), 0),
                  .left_after_backward = std::vector<int64_t>(problem.chunks.size(), 0)};
  for (const auto& visit : stage_visits(problem)) {
    reserve.taken[as_index(visit.begin)] = 1;
    reserve.left_after_backward[as_index(visit.begin)] = until_weight_gradient && problem.split_backward ? 1 : 0;
  }
  return reserve;
}

std::string misfit(const PipelineProblem& problem, std::string_view name) {
  const Row& row = row_of(name);
  const auto stages = stage_visits(problem);
  if (!goes(problem, row.way)) {
    std::vector<int> found;
    for (const auto& visit : stages) found.push_back(visit.stage);
    return fmt::format("the chunks must {}, they go {}; place them so or take another schedule", describe(row.way),
                       fmt::join(found, ", "));
  }
  if (row.needs_split && !problem.split_backward) {
    return "backward must be split into the gradient of the input and that of the weights, it is one phase; set "
           "split_backward";
  }
  const int64_t least = row.least_micro_batches(place_of(problem, 0));
  if (problem.micro_batches < least) {
    return fmt::format(
        "{} stages need at least {} micro-batches, there are {}; cut the batch finer or use fewer stages",
        problem.num_stages(), least, problem.micro_batches);
  }
  if (row.groups && problem.micro_batches % problem.num_stages() != 0) {
    return fmt::format("the number of micro-batches must be a multiple of the {} stages, it is {}; take {} or {}",
                       problem.num_stages(), problem.micro_batches,
                       problem.micro_batches / problem.num_stages() * problem.num_stages(),
                       (problem.micro_batches / problem.num_stages() + 1) * problem.num_stages());
  }
  return "";
}

SchedulingRules named_rules(const PipelineProblem& problem, const SeriesTable& table, std::string_view name) {
  const Row& row = row_of(name);
  if (row.groups) return {.keys = keys_by_group(problem, table, row.until_backward), .is_whole_order = true};
  SchedulingRules rules{.keys = keys_by_kind(table, row.kinds), .forwards_first = row.forwards_first};
  if (row.until_backward != nullptr) {
    rules.reserves.push_back(in_flight(problem, limits_of(problem, row.until_backward), false));
  }
  if (row.until_weight_gradient != nullptr) {
    rules.reserves.push_back(in_flight(problem, limits_of(problem, row.until_weight_gradient), true));
  }
  if (row.in_memory_of_1f1b) {
    Reserve reserve = memory_reserve(problem);
    std::fill(reserve.limits.begin(), reserve.limits.end(), 0);
    for (const auto& chunk : problem.chunks) {
      reserve.limits[as_index(chunk.stage)] += problem.num_stages() * chunk.activation_bytes;
    }
    rules.reserves.push_back(std::move(reserve));
  }
  return rules;
}

PipelineSchedule named_schedule(const PipelineProblem& problem, std::string_view name) {
  validate(problem);
  if (const auto why = misfit(problem, name); !why.empty()) {
    throw InvalidArgument("pipeline schedule \"{}\": {}", name, why);
  }
  ListScheduler scheduler(problem);
  const auto& timeline = scheduler.run(named_rules(problem, scheduler.table(), name));
  if (timeline.complete) return to_schedule(problem, scheduler.table(), timeline);

  PipelineProblem ample = problem;
  for (auto& stage : ample.stages) stage.memory_limit_bytes = kNoMemoryLimit;
  const auto needed = peak_bytes(ample, named_schedule(ample, name));
  for (int s = 0; s < problem.num_stages(); ++s) {
    const int64_t limit = problem.stages[as_index(s)].memory_limit_bytes;
    if (needed[as_index(s)] <= limit) continue;
    throw InvalidArgument(
        "pipeline schedule \"{}\": stage {} needs {} bytes ({}), its limit is {}; raise the limit, or take the "
        "schedule auto, "
        "which keeps to it",
        name, s, needed[as_index(s)], format_bytes(needed[as_index(s)]), limit);
  }
  check(false, "a named schedule within its memory is complete");
  return {};
}

}  // namespace tessera::pipeline
