// The search of a StagePlanner: which pipelines are estimated, and which of these are simulated.
#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/pipelines/choose_stages.h"

namespace tessera::compiler {
namespace {

// Of pipelines that are estimated so many are simulated at least, those of equal stages.
constexpr int kLeastSimulated = 6;
// Of the ways to deal the ranks unequally so many are, those that promise most, each with the micro-batches that
// promise most; of the fastest so many other numbers of micro-batches. Where some do not fit, so many are tried.
constexpr int kMostUnequal = 4;
constexpr int kMostOthers = 2;
constexpr int kMostTried = 8;
// A way may be estimated to be slower by so much than equal stages: ResNet-50 on four ranks is 6 % faster than its
// estimate in one pipeline, 3 % slower in another.
constexpr double kEstimateError = 0.1;
// For the fastest of these the way within its stages is searched, too, for so many new numbers of ranks at most.
constexpr int kMostSearched = 2;

// Numbers of stages among which the ranks may be shared unequally: each, where there are few ranks.
std::vector<int> unequal_stage_counts(int num_ranks) {
  std::vector<int> counts;
  for (int stages = 2; stages < num_ranks; ++stages) {
    const bool is_power = (stages & (stages - 1)) == 0;
    if (num_ranks <= kFewRanks || is_power || num_ranks % stages == 0) counts.push_back(stages);
  }
  return counts;
}

}  // namespace

std::string name_of(const mesh::StageRanks& ranks, int micro_batches) {
  const auto of_ranks = ranks.are_equal() ? "" : fmt::format(" of {} ranks", ranks.to_string());
  return fmt::format("{} stages{}, {} micro-batches", ranks.num_stages(), of_ranks, micro_batches);
}

std::vector<int> StagePlanner::micro_batches_for(int num_stages) const {
  if (options_.micro_batches > 0) return {options_.micro_batches};
  auto counts = micro_batch_counts(rows_, num_stages);
  if (num_ranks_ % num_stages == 0) return counts;
  // Those of stages that share the ranks evenly have graphs already; without these, those of any stages.
  for (const bool is_even : {true, false}) {
    std::set<int> found;
    for (int stages = 2; stages <= num_ranks_; ++stages) {
      if (is_even && num_ranks_ % stages != 0) continue;
      for (const int count : micro_batch_counts(rows_, stages)) {
        if (num_stages <= count && count <= kMostTimes * num_stages) found.insert(count);
      }
    }
    if (!found.empty()) return {found.begin(), found.end()};
  }
  return counts;
}

void StagePlanner::Search::add(Candidate candidate) {
  if (candidate.planned &&
      (!fastest || candidate.planned->step_seconds() < candidates[*fastest].planned->step_seconds())) {
    fastest = candidates.size();
  }
  candidates.push_back(std::move(candidate));
}

void StagePlanner::simulate_candidate(Search& result, Candidate candidate, const Base& base) {
  try {
    candidate.planned = fitted(base, candidate.ranks, candidate.micro_batches);
  } catch (const DoesNotFit& error) {
    candidate.fault = error.what();
    candidate.needed_bytes = error.least_limit_bytes();
  } catch (const InvalidArgument& error) {
    candidate.fault = error.what();
  } catch (const DeadlineOver&) {
    result.left_out.push_back(name_of(candidate.ranks, candidate.micro_batches));
    return;
  }
  result.add(std::move(candidate));
}

std::string StagePlanner::Search::what_needs_least() const {
  const Candidate* least = nullptr;
  for (const auto& candidate : candidates) {
    if (!candidate.needed_bytes || (least != nullptr && *candidate.needed_bytes >= *least->needed_bytes)) continue;
    least = &candidate;
  }
  if (least == nullptr) return "";
  return fmt::format("{}, about {} on a rank", name_of(least->ranks, least->micro_batches),
                     format_bytes(*least->needed_bytes));
}

StagePlanner::Search StagePlanner::search() {
  auto result = search_equal();
  auto unequal = search_unequal(result.fastest.has_value());
  for (auto& candidate : unequal.candidates) result.add(std::move(candidate));
  result.left_out.insert(result.left_out.end(), unequal.left_out.begin(), unequal.left_out.end());
  result.num_unequal = unequal.num_unequal;
  return result;
}

StagePlanner::Search StagePlanner::search_equal() {
  struct Entry {
    Candidate candidate;
    std::optional<Base> base;
  };
  std::vector<Entry> entries;
  Search result;
  for (const int stages : stage_counts(num_ranks_)) {
    if (options_.num_stages > 0 && stages != options_.num_stages) continue;
    const auto ranks = equal_ranks(stages);
    for (const int count : micro_batches_for(stages)) {
      const auto refused = [&](const InvalidArgument& error) {
        Candidate candidate{.ranks = ranks, .micro_batches = count, .estimate = solver::kForbidden};
        candidate.fault = error.what();
        if (const auto* too_large = dynamic_cast<const DoesNotFit*>(&error)) {
          candidate.needed_bytes = too_large->least_limit_bytes();
        }
        entries.push_back({std::move(candidate), std::nullopt});
      };
      try {
        for (auto& base : bases(ranks, count)) {
          try {
            const auto within = limits(stages, count);
            const auto cuts = estimated_cuts(base.places.problem, within);
            const double estimate = estimated_step(base.places.problem, cuts, within);
            entries.push_back({{.ranks = ranks, .micro_batches = count, .estimate = estimate}, std::move(base)});
          } catch (const InvalidArgument& error) {
            refused(error);
          }
        }
      } catch (const InvalidArgument& error) {
        refused(error);
      } catch (const DeadlineOver&) {
        result.left_out.push_back(name_of(ranks, count));
      }
    }
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.candidate.estimate < b.candidate.estimate; });
  int num_simulated = 0;
  for (auto& [candidate, base] : entries) {
    if (!base) {
      result.add(std::move(candidate));
      continue;
    }
    if (num_simulated >= kLeastSimulated && candidate.estimate > result.fastest_seconds()) {
      ++result.num_hopeless;
      continue;
    }
    const auto before = result.candidates.size();
    if (options_.deadline.is_over()) {
      result.left_out.push_back(name_of(candidate.ranks, candidate.micro_batches));
      continue;
    }
    simulate_candidate(result, std::move(candidate), *base);
    if (result.candidates.size() > before && result.candidates.back().planned) ++num_simulated;
  }
  return result;
}

DealProblem StagePlanner::deal_problem(int num_stages, int micro_batches,
                                       const std::function<StageSplit(int num_ranks)>& inside_of) {
  DealProblem problem{.stages = stages_of_chunks(num_stages), .num_ranks = num_ranks_};
  // Whatever the ways to deal them, the slowest link between neighbours is that between hosts, where there are several.
  const Link& link = slowest_link(profile_, mesh::StageRanks({1, num_ranks_ - 1}));
  size_t num_pieces = 0;
  for (const int size : sizes_of_stages(num_ranks_)) {
    if (size > num_ranks_ - (num_stages - 1)) continue;
    options_.deadline.throw_if_over();
    try {
      const auto& places =
          sized_places(inside_of(size), size, micro_batches, static_cast<int>(problem.stages.size()), link);
      if (problem.sizes.empty()) num_pieces = places.cells.size();
      if (places.cells.size() == num_pieces) problem.sizes.emplace(size, places.problem);
    } catch (const InvalidArgument&) {
      // A cell's strategy wants other numbers of ranks.
    }
  }
  return problem;
}

void StagePlanner::for_each_deal(Search& result, const std::function<void(const DealProblem&, int, int, size_t)>& f) {
  const size_t num_ways = given_insides(num_ranks_).size();
  auto stage_numbers = unequal_stage_counts(num_ranks_);
  if (!stage_numbers.empty()) stage_numbers.push_back(num_ranks_);
  if (options_.num_stages > 0) stage_numbers = {options_.num_stages};
  for (const int stages : stage_numbers) {
    for (const int count : micro_batches_for(stages)) {
      if (count < stages || rows_ % count != 0) continue;
      try {
        for (size_t way = 0; way < num_ways; ++way) {
          options_.deadline.throw_if_over();
          const auto problem = deal_problem(stages, count, [&](int size) {
            const auto ways = given_insides(size);
            return ways[std::min(way, ways.size() - 1)];
          });
          f(with_sums(problem, count), stages, count, way);
        }
      } catch (const InvalidArgument&) {
        // The network cannot be traced or cut so: search_equal() says it.
      } catch (const DeadlineOver&) {
        result.left_out.push_back(
            fmt::format("{} stages of different numbers of ranks, {} micro-batches", stages, count));
      }
    }
  }
}

std::vector<StagePlanner::Unequal> StagePlanner::estimate_unequal(Search& result, bool fits) {
  std::vector<Unequal> estimated;
  double fastest_equal = solver::kForbidden;
  for_each_deal(result, [&](const DealProblem& problem, int stages, int count, size_t way) {
    for (auto& dealt : deal_ranks(problem, limits(stages, count))) {
      if (dealt.ranks.are_equal()) {
        fastest_equal = std::min(fastest_equal, dealt.estimate);
      } else {
        estimated.push_back({std::move(dealt), count, way});
      }
    }
  });
  result.num_unequal = static_cast<int>(estimated.size());
  // Equal stages that do not fit are nothing to be measured by.
  if (fits) {
    const double most = (1 + kEstimateError) * fastest_equal;
    std::erase_if(estimated, [&](const auto& each) { return each.dealt.estimate >= most; });
  }
  std::stable_sort(estimated.begin(), estimated.end(),
                   [](const auto& a, const auto& b) { return a.dealt.estimate < b.dealt.estimate; });
  return estimated;
}

// The ways that need least memory, whatever pieces say of the limit.
std::vector<StagePlanner::Unequal> StagePlanner::least_unequal(Search& result) {
  std::vector<Unequal> found;
  for_each_deal(result, [&](const DealProblem& problem, int stages, int count, size_t way) {
    auto within = limits(stages, count);
    within.holds_least = options_.schedule == "auto";
    for (auto& [dealt, bytes] : deal_by_memory(problem, within)) {
      if (!dealt.ranks.are_equal()) found.push_back({std::move(dealt), count, way, bytes});
    }
  });
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return found;
}

StagePlanner::Search StagePlanner::search_unequal(bool fits) {
  Search result;
  auto estimated = estimate_unequal(result, fits);
  std::set<std::vector<int>> tried;
  const auto simulate_estimated = [&](const Unequal& unequal) {
    StageSplits inside;
    for (const int size : unequal.dealt.ranks.sizes()) {
      const auto ways = given_insides(size);
      inside.emplace(size, ways[std::min(unequal.way, ways.size() - 1)]);
    }
    const auto& ranks = unequal.dealt.ranks;
    const auto before = result.candidates.size();
    std::optional<Base> base;
    try {
      base = Base{inside, places(inside, ranks, unequal.micro_batches)};
    } catch (const DeadlineOver&) {
      result.left_out.push_back(name_of(ranks, unequal.micro_batches));
      return false;
    }
    simulate_candidate(
        result, {.ranks = ranks, .micro_batches = unequal.micro_batches, .estimate = unequal.dealt.estimate}, *base);
    return result.candidates.size() > before && result.candidates.back().planned.has_value();
  };
  int num_simulated = 0;
  std::erase_if(estimated, [&](const Unequal& unequal) {
    if (num_simulated == kMostUnequal || static_cast<int>(tried.size()) == kMostTried) return false;
    if (!tried.insert(unequal.dealt.ranks.counts()).second) return false;
    if (simulate_estimated(unequal)) ++num_simulated;
    return true;
  });
  if (!result.fastest && !fits && options_.memory_limit_bytes > 0) {
    int num_tried = 0;
    for (const auto& unequal : least_unequal(result)) {
      if (num_tried++ == kMostTried || simulate_estimated(unequal)) break;
    }
  }
  if (!result.fastest) return result;
  const auto fastest = result.candidates[*result.fastest].ranks;
  std::erase_if(estimated, [&](const Unequal& unequal) { return unequal.dealt.ranks != fastest; });
  if (std::ssize(estimated) > kMostOthers) estimated.resize(kMostOthers);
  for (const auto& unequal : estimated) simulate_estimated(unequal);
  if (options_.searches_inside) search_inside(result);
  return result;
}

// Of the fastest the way within its stages is searched: what is found for one number of ranks is so for all pipelines.
void StagePlanner::search_inside(Search& result) {
  const Candidate& fastest = result.candidates[*result.fastest];
  const auto ranks = fastest.ranks;
  const int count = fastest.micro_batches;
  int num_new = 0;
  for (const int size : ranks.sizes()) num_new += size > 1 && !insides_.contains(size) ? 1 : 0;
  if (num_new > kMostSearched) return;
  try {
    const auto ways = insides(ranks);
    if (ways.size() == given_insides(num_ranks_).size()) return;
    const Base base{ways.back(), places(ways.back(), ranks, count)};
    const auto within = limits(ranks.num_stages(), count);
    const auto cuts = estimated_cuts(base.places.problem, within);
    const double estimate = estimated_step(base.places.problem, cuts, within);
    simulate_candidate(result, {.ranks = ranks, .micro_batches = count, .estimate = estimate}, base);
  } catch (const InvalidArgument&) {
    // What was found does not fit; data parallel stays.
  } catch (const DeadlineOver&) {
    result.left_out.push_back(fmt::format("{}, searched within a stage", name_of(ranks, count)));
  }
}

DealProblem StagePlanner::deal_problem_for(const PlannedStages& planned) {
  if (planned.num_stages == 1) return {};
  bool has_shards = false;
  for (const auto& [size, inside] : planned.inside) has_shards = has_shards || inside.shards_parameters;
  return deal_problem(planned.num_stages, planned.micro_batches, [&](int size) {
    const auto own = planned.inside.find(size);
    if (own != planned.inside.end()) return own->second;
    const auto ways = given_insides(size);
    return has_shards ? ways.back() : ways.front();
  });
}

std::vector<DealtRanks> StagePlanner::deal_ranks_for(const PlannedStages& planned, const DealProblem& problem) const {
  return deal_ranks(with_sums(problem, planned.micro_batches), limits(planned.num_stages, planned.micro_batches));
}

std::optional<DealBound> StagePlanner::deal_bound(const PlannedStages& planned) {
  DealProblem problem;
  try {
    problem = with_sums(deal_problem_for(planned), planned.micro_batches);
  } catch (const DeadlineOver&) {
    return std::nullopt;  // other numbers of ranks are not known
  }
  auto shortest = shortest_deal(problem, limits(planned.num_stages, planned.micro_batches));
  if (!shortest) return std::nullopt;
  for (const int size : planned.ranks.sizes()) {
    if (!problem.sizes.contains(size)) return std::nullopt;
  }
  const auto own = moved_cut(cut_problem_for(problem, planned.ranks), planned.cuts, /*chunk=*/0, /*pieces=*/0);
  return DealBound{own.value().longest_seconds, std::move(*shortest)};
}

double DealBound::gap() const {
  constexpr double kRounding = 1e-9;
  const double share = 1 - shortest.cuts.longest_seconds / longest_seconds;
  return share > kRounding ? share : 0;
}

}  // namespace tessera::compiler
