#include "tessera/compiler/pipelines/choose_stages.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/base/usage_error.h"
#include "tessera/pipeline/pipeline_problem.h"

namespace tessera::compiler {
namespace {

// So many times as many micro-batches as stages are taken where nothing is said.
constexpr int kUsualTimes = 4;
// Of the fastest cuts that fit by what pieces say so many are simulated, and then of those that need least.
constexpr int kFastest = 4;
constexpr int kLeast = 8;
// What pieces say of memory leaves out what computing takes, and may count twice what several of them read. It is not
// believed that a cut takes less than half of what they say, and less than four fifths where another one is known.
constexpr double kMostError = 2;
constexpr double kMostErrorBesideKnown = 1.25;

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::vector<CellStage> chunks_of(int num_stages, int segments, const std::string& schedule) {
  const bool goes_back = schedule == "zb_v";
  if (segments == 0) segments = goes_back || schedule == "interleaved_1f1b" ? 2 : 1;
  if (goes_back && segments != 2) {
    throw InvalidArgument("schedule zb_v goes over the stages there and back, in 2 segments, not in {}", segments);
  }
  const int count = num_stages * segments;
  const auto stages =
      goes_back ? pipeline::there_and_back(count, num_stages) : pipeline::in_turn(count, num_stages, segments);
  std::vector<CellStage> chunks;
  for (int i = 0; i < count; ++i) chunks.push_back({stages[static_cast<size_t>(i)], i / num_stages});
  return chunks;
}

std::string name_of(const StageSplits& splits) {
  std::map<std::string, std::vector<int>> sizes;
  for (const auto& [size, split] : splits) {
    if (size > 1 || splits.size() == 1) sizes[split.name].push_back(size);
  }
  if (sizes.size() == 1) return sizes.begin()->first;
  std::vector<std::string> names;
  for (const auto& [name, of] : sizes) names.push_back(fmt::format("{} with {}", name, fmt::join(of, " or ")));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<int> stage_counts(int num_ranks) {
  std::vector<int> counts;
  for (int stages = 2; stages <= num_ranks; ++stages) {
    if (num_ranks % stages == 0) counts.push_back(stages);
  }
  return counts;
}

std::vector<int> micro_batch_counts(int64_t rows, int num_stages) {
  std::vector<int> counts;
  for (int times = 1; times <= kMostTimes; times *= 2) {
    if (rows % (int64_t{times} * num_stages) == 0) counts.push_back(times * num_stages);
  }
  return counts;
}

int usual_micro_batches(int64_t rows, int num_stages) {
  for (int count = kUsualTimes * num_stages; count >= num_stages; --count) {
    if (rows % count == 0) return count;
  }
  throw UsageError(
      "a batch of {} rows cannot be cut into as many micro-batches of equally many rows as {} stages need: batches of "
      "a multiple of {} rows can",
      rows, num_stages, num_stages);
}

StagePlanner::StagePlanner(const ir::Graph& whole, int64_t rows, std::function<StepGraphs(int)> graphs_of,
                           int num_ranks, const MachineProfile& profile, const StageSearchOptions& options)
    : whole_(whole),
      rows_(rows),
      graphs_of_(std::move(graphs_of)),
      num_ranks_(num_ranks),
      profile_(profile),
      options_(options) {}

const StepGraphs& StagePlanner::graphs(int micro_batches) {
  const auto it = graphs_.find(micro_batches);
  if (it != graphs_.end()) return it->second;
  options_.deadline.throw_if_over();
  return graphs_.emplace(micro_batches, graphs_of_(micro_batches)).first->second;
}

std::vector<StageSplit> StagePlanner::given_insides(int num_ranks) const {
  std::vector<StageSplit> given = {{num_ranks == 1 ? "one rank" : "data parallel"}};
  if (num_ranks > 1 && options_.searches_inside && options_.memory_limit_bytes > 0) {
    given.push_back({.name = "data parallel, optimizer shards", .shards_parameters = true});
  }
  return given;
}

// What is found for the whole batch holds for its micro-batches: gradients are completed once a step in both.
const std::vector<StageSplit>& StagePlanner::insides(int num_ranks) {
  const auto known = insides_.find(num_ranks);
  if (known != insides_.end()) return known->second;
  // A search simulates data parallel, however little time it has: late it is not begun.
  options_.deadline.throw_if_over();
  auto& found = insides_[num_ranks];
  found = given_insides(num_ranks);
  if (num_ranks == 1 || !options_.searches_inside) return found;
  auto searching = options_.search;
  searching.hints.clear();
  searching.memory_limit_bytes = 0;
  searching.timeout_seconds =
      std::isfinite(options_.deadline.seconds_left()) ? std::max(options_.deadline.seconds_left() / 4, 1e-3) : 0;
  try {
    const auto chosen = choose_plan(whole_, first_ranks(num_ranks), profile_, searching);
    // The fastest that is none of data parallel's, which stands here already.
    const PlanCandidate* best = nullptr;
    for (const auto& candidate : chosen.candidates) {
      if (candidate.origin == "data parallel" || candidate.prediction.simulated == nullptr) continue;
      if (best == nullptr || candidate.prediction.step_seconds < best->prediction.step_seconds) best = &candidate;
    }
    if (best != nullptr) {
      found.push_back({fmt::format("searched on {}", best->choices.mesh.to_string()),
                       std::make_shared<const PlanRecord>(record_plan(whole_, best->choices))});
    }
  } catch (const InvalidArgument&) {
    // Nothing fits on a stage's ranks.
  }
  return found;
}

// The i-th ways of all sizes go together: data parallel in all stages, with shards, as it is searched. A size that has
// fewer ways takes its last one.
std::vector<StageSplits> StagePlanner::insides(const mesh::StageRanks& ranks) {
  size_t most = 0;
  for (const int size : ranks.sizes()) most = std::max(most, insides(size).size());
  std::vector<StageSplits> all(most);
  for (size_t i = 0; i < most; ++i) {
    for (const int size : ranks.sizes()) {
      const auto& ways = insides(size);
      all[i].emplace(size, ways[std::min(i, ways.size() - 1)]);
    }
  }
  return all;
}

WithinStage StagePlanner::within(const StageSplit& inside, const ir::Graph& micro, const StageOptions& stages,
                                 int num_ranks) const {
  WithinStage within{.mesh = mesh::Mesh({{"data", num_ranks}})};
  for (const auto& [accumulator, parameter] : stages.accumulators) within.plan.partial_states.insert(accumulator);
  if (inside.record == nullptr) {
    for (const auto& input : micro.inputs()) {
      const int ndim = micro.type(input.value).shape.ndim();
      if (input.kind != ir::InputKind::kInput || ndim == 0) continue;
      auto sharding = mesh::Sharding::replicated(ndim);
      sharding.dims[0] = {0};
      within.hints[input.name] = {within.mesh, sharding};
    }
    within.plan.batch_by_default = true;
    if (inside.shards_parameters) {
      for (const auto& [accumulator, parameter] : stages.accumulators) within.plan.optimizer_shards.insert(parameter);
    }
    return within;
  }
  const auto choices = choices_for(simplify(micro), *inside.record);
  within.plan.strategies = false;
  within.plan.fixed = choices.nodes;
  auto inputs = choices.inputs;
  // Accumulators lie as what is added to them.
  std::erase_if(inputs, [&](const auto& input) { return stages.accumulators.contains(input.first); });
  within.mesh = choices.mesh;
  within.hints = on_mesh(choices.mesh, inputs);
  return within;
}

StagedPlan StagePlanner::stage(const StageSplits& inside, const mesh::StageRanks& ranks, int micro_batches,
                               const CellStages& cells) {
  const auto& step = graphs(micro_batches);
  auto micro = step.micro;
  set_stages(micro, cells);
  auto stages = step.stages;
  stages.num_stages = ranks.num_stages();
  std::map<int, WithinStage> sizes;
  for (const int size : ranks.sizes()) sizes.emplace(size, within(inside.at(size), micro, stages, size));
  return plan_stages(micro, &step.update, ranks, sizes, stages, {.verification = Verification::kNone});
}

CutLimits StagePlanner::limits(int num_stages, int micro_batches) const {
  return {.stages = num_stages,
          .segments = static_cast<int>(chunks(num_stages).size()) / num_stages,
          .memory_limit_bytes = options_.memory_limit_bytes,
          .micro_batches = micro_batches,
          .holds_all = options_.schedule == "gpipe",
          .receive_ahead = options_.receive_ahead,
          .stages_of_chunks = stages_of_chunks(num_stages)};
}

mesh::StageRanks StagePlanner::equal_ranks(int num_stages) const {
  if (num_ranks_ % num_stages != 0) {
    throw UsageError(
        "{} ranks cannot be dealt to {} stages of equally many: use a number of stages that divides {}, or say how "
        "many "
        "ranks each has",
        num_ranks_, num_stages, num_ranks_);
  }
  return mesh::StageRanks::equal(num_stages, num_ranks_ / num_stages);
}

void StagePlanner::require_shares(const mesh::StageRanks& ranks, int micro_batches) const {
  if (ranks.num_ranks() != num_ranks_) {
    throw UsageError("the stages have {} ranks, {} in all, but there are {}: deal out as many as there are",
                     ranks.to_string(), ranks.num_ranks(), num_ranks_);
  }
  require_micro_batches({.num_stages = ranks.num_stages()}, micro_batches);
  if (rows_ % micro_batches != 0) {
    throw UsageError(
        "a batch of {} rows cannot be cut into {} micro-batches of equally many: batches of a multiple of {} rows can",
        rows_, micro_batches, micro_batches);
  }
}

std::vector<int> StagePlanner::stages_of_chunks(int num_stages) const {
  std::vector<int> stages;
  for (const auto& chunk : chunks(num_stages)) stages.push_back(chunk.stage);
  return stages;
}

const CutPlaces& StagePlanner::sized_places(const StageSplit& inside, int num_ranks, int micro_batches, int num_chunks,
                                            const Link& link) {
  const bool crosses_hosts = &link == &profile_.inter_host;
  const auto key = [&](int of_chunks) {
    return PlacesKey{num_ranks, inside.name, micro_batches, crosses_hosts, of_chunks};
  };
  const auto whole = places_.find(key(0));
  if (whole != places_.end() && whole->second.num_with_parameters() >= num_chunks) return whole->second;
  const auto known = places_.find(key(num_chunks));
  if (known != places_.end()) return known->second;
  options_.deadline.throw_if_over();
  const auto plan = stage({{num_ranks, inside}}, mesh::StageRanks::equal(1, num_ranks), micro_batches, {});
  auto found = find_cut_places(plan, num_chunks, profile_, link);
  const auto at = key(found.cuts_cells ? num_chunks : 0);
  return places_.insert_or_assign(at, std::move(found)).first->second;
}

CutPlaces StagePlanner::places(const StageSplits& inside, const mesh::StageRanks& ranks, int micro_batches) {
  const Link& link = slowest_link(profile_, ranks);
  DealProblem sized{.stages = stages_of_chunks(ranks.num_stages()), .num_ranks = num_ranks_};
  CutPlaces found;
  for (const int size : ranks.sizes()) {
    const auto& of_size =
        sized_places(inside.at(size), size, micro_batches, static_cast<int>(sized.stages.size()), link);
    if (!sized.sizes.empty()) check_equal(of_size.cells.size(), found.cells.size(), "pieces of a network");
    sized.sizes.emplace(size, of_size.problem);
    found.cells = of_size.cells;
  }
  found.problem = cut_problem_for(sized, ranks);
  return found;
}

std::vector<StagePlanner::Base> StagePlanner::bases(const mesh::StageRanks& ranks, int micro_batches) {
  require_shares(ranks, micro_batches);
  std::vector<Base> found;
  for (const StageSplits& inside : insides(ranks)) {
    options_.deadline.throw_if_over();
    found.push_back({inside, places(inside, ranks, micro_batches)});
  }
  return found;
}

PlannedStages StagePlanner::simulate(const Base& base, const mesh::StageRanks& ranks, int micro_batches,
                                     const StageCuts& cuts) {
  PlannedStages planned{.num_stages = ranks.num_stages(),
                        .ranks = ranks,
                        .micro_batches = micro_batches,
                        .chunks = chunks(ranks.num_stages()),
                        .inside = base.inside,
                        .places = base.places,
                        .cuts = cuts};
  planned.cells = cell_stages(base.places, cuts, planned.chunks);
  options_.deadline.throw_if_over();
  auto staged = stage(base.inside, ranks, micro_batches, planned.cells);
  planned.simulated = simulate_stages(staged, profile_,
                                      {.micro_batches = micro_batches,
                                       .schedule = options_.schedule,
                                       .memory_limit_bytes = options_.memory_limit_bytes,
                                       .receive_ahead = options_.receive_ahead,
                                       .deadline = options_.deadline,
                                       .kernels = options_.kernels,
                                       .compile = options_.compile});
  return planned;
}

StageCuts StagePlanner::estimated_cuts(const CutProblem& problem, CutLimits within) const {
  try {
    return choose_cuts(problem, within);
  } catch (const DoesNotFit&) {
    within.holds_least = options_.schedule == "auto";
    auto least = least_memory_cuts(problem, within);
    if (static_cast<double>(least.most()) > kMostError * static_cast<double>(within.memory_limit_bytes)) throw;
    return std::move(least.cuts);
  }
}

// Pieces say what stays; what a phase takes besides is known once it is compiled. So cuts are simulated, the fastest
// first, and what is learnt of one counts for the next; where none of these fits, those that need least.
PlannedStages StagePlanner::fitted(const Base& base, const mesh::StageRanks& ranks, int micro_batches) {
  const CutProblem& problem = base.places.problem;
  auto within = limits(ranks.num_stages(), micro_batches);
  if (within.memory_limit_bytes == 0) {
    return simulate(base, ranks, micro_batches, choose_cuts(problem, within));
  }
  std::optional<std::vector<int64_t>> needed;  // of the simulated cuts that come closest
  std::set<std::vector<int>> tried;
  // nullopt where the cuts do not fit.
  const auto try_cuts = [&](const StageCuts& cuts) -> std::optional<PlannedStages> {
    tried.insert(cuts.ends);
    try {
      return simulate(base, ranks, micro_batches, cuts);
    } catch (const DoesNotFit& error) {
      note_needed(problem, cuts, error.needed_bytes(), within);
      const auto most = [](const std::vector<int64_t>& bytes) { return *std::max_element(bytes.begin(), bytes.end()); };
      if (!needed || most(error.needed_bytes()) < most(*needed)) needed = error.needed_bytes();
      return std::nullopt;
    }
  };
  for (int attempt = 0; attempt < kFastest; ++attempt) {
    StageCuts cuts;
    try {
      cuts = choose_cuts(problem, within);
    } catch (const DoesNotFit&) {
      break;
    }
    if (tried.contains(cuts.ends)) break;
    if (auto planned = try_cuts(cuts)) return std::move(*planned);
  }
  if (options_.schedule == "auto") {
    within.holds_least = true;
    within.known.extra.clear();  // was beside what more micro-batches take
  }
  for (int attempt = 0; attempt < kLeast; ++attempt) {
    const auto least = least_memory_cuts(problem, within);
    const double error = needed ? kMostErrorBesideKnown : kMostError;
    const bool is_hopeless = static_cast<double>(least.most()) > error * static_cast<double>(within.memory_limit_bytes);
    if (is_hopeless && !needed) needed = least.bytes;
    if (is_hopeless || tried.contains(least.cuts.ends)) break;
    if (auto planned = try_cuts(least.cuts)) return std::move(*planned);
  }
  throw no_cut_fits(within, *needed);
}

PlannedStages StagePlanner::plan(int num_stages, int micro_batches) {
  return plan(equal_ranks(num_stages), micro_batches);
}

PlannedStages StagePlanner::plan(const mesh::StageRanks& ranks, int micro_batches) {
  std::optional<PlannedStages> best;
  std::vector<std::string> faults;
  std::set<std::string> different;
  for (const Base& base : bases(ranks, micro_batches)) {
    try {
      auto planned = fitted(base, ranks, micro_batches);
      if (!best || planned.step_seconds() < best->step_seconds()) best = std::move(planned);
    } catch (const InvalidArgument& error) {
      different.insert(error.what());
      faults.push_back(fmt::format("{} within a stage: {}", name_of(base.inside), error.what()));
    }
  }
  if (best) return std::move(*best);
  if (different.size() == 1) throw InvalidArgument(*different.begin());
  throw InvalidArgument("there is no pipeline of {} stages:\n  {}", ranks.num_stages(), fmt::join(faults, "\n  "));
}

std::optional<PlannedStages> StagePlanner::plan_with(const PlannedStages& planned, const StageCuts& cuts) {
  try {
    return simulate({planned.inside, planned.places}, planned.ranks, planned.micro_batches, cuts);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

}  // namespace tessera::compiler
