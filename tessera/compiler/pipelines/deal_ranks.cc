#include "tessera/compiler/pipelines/deal_ranks.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/compiler/cuts/piece_sums.h"

namespace tessera::compiler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// So many ways to deal ranks are gone through one by one; 8 ranks have at most 35 for a number of stages. A network of
// a hundred places compares a million stretches for these: where it is many times more, the dynamic program is faster.
constexpr int kFewWays = 64;
constexpr double kFewCompared = 4e6;
// The dynamic program compares so many stretches at most, about a second of them.
constexpr double kMostCompared = 3e8;

// Calls visit(counts) for each way to deal the ranks to so many stages, in the order of the counts; ends with false
// where that returns false.
bool each_way(const std::vector<int>& sizes, int stages, int ranks, std::vector<int>& counts,
              const std::function<bool(const std::vector<int>&)>& visit) {
  if (stages == 0) return ranks != 0 || visit(counts);
  for (const int size : sizes) {
    if (size + (stages - 1) * sizes.front() > ranks || size + (stages - 1) * sizes.back() < ranks) continue;
    counts.push_back(size);
    const bool goes_on = each_way(sizes, stages - 1, ranks - size, counts, visit);
    counts.pop_back();
    if (!goes_on) return false;
  }
  return true;
}

std::vector<int> sizes_of(const DealProblem& problem) {
  std::vector<int> sizes;
  for (const auto& [size, of_size] : problem.sizes) sizes.push_back(size);
  return sizes;
}

int num_pieces(const DealProblem& problem) { return static_cast<int>(problem.sizes.begin()->second.pieces.size()); }

// All ways; nullopt where there are many.
std::optional<std::vector<mesh::StageRanks>> few_ways(const DealProblem& problem, const CutLimits& limits) {
  std::vector<mesh::StageRanks> ways;
  std::vector<int> counts;
  const auto add = [&](const std::vector<int>& way) {
    ways.emplace_back(way);
    return static_cast<int>(ways.size()) <= kFewWays;
  };
  if (!each_way(sizes_of(problem), limits.stages, problem.num_ranks, counts, add)) return std::nullopt;
  const double pieces = num_pieces(problem);
  const double compared = pieces * pieces / 2 * limits.num_chunks() * static_cast<double>(ways.size());
  if (limits.segments == 1 && compared > kFewCompared) return std::nullopt;
  return ways;
}

// The pieces of every size beside each other, for any ways to deal the ranks.
class WaysCutter {
 public:
  WaysCutter(const DealProblem& problem, const CutLimits& limits) : problem_(problem), limits_(limits) {
    for (const auto& [size, of_size] : problem.sizes) {
      if (kinds_.empty()) {
        all_ = of_size;
      } else {
        all_.others.push_back(of_size);
      }
      kinds_.emplace(size, static_cast<int>(kinds_.size()));
    }
  }

  // nullopt where no cut fits into the limits.
  std::optional<DealtRanks> cut(const mesh::StageRanks& ranks) {
    deal(ranks);
    try {
      auto cuts = choose_cuts(all_, limits_);
      const double estimate = estimated_step(all_, cuts, limits_);
      return DealtRanks{ranks, std::move(cuts), estimate};
    } catch (const InvalidArgument&) {
      return std::nullopt;
    }
  }

  // With the cuts that need least memory. nullopt where there are too few pieces.
  std::optional<DealtByMemory> cut_by_memory(const mesh::StageRanks& ranks) {
    deal(ranks);
    try {
      auto least = least_memory_cuts(all_, limits_);
      const double estimate = estimated_step(all_, least.cuts, limits_);
      return DealtByMemory{{ranks, std::move(least.cuts), estimate}, least.most()};
    } catch (const InvalidArgument&) {
      return std::nullopt;
    }
  }

 private:
  void deal(const mesh::StageRanks& ranks) {
    all_.kinds.clear();
    for (const int stage : problem_.stages) all_.kinds.push_back(kinds_.at(ranks.count(stage)));
  }

  const DealProblem& problem_;
  const CutLimits& limits_;
  CutProblem all_;
  std::map<int, int> kinds_;  // by number of ranks
};

// Of stages of one segment: places and ranks from the first stage on. A state is how many pieces and how many ranks the
// stages so far have, and the size of the last one, by which what crosses the next cut is priced.
class Dealer {
 public:
  Dealer(const DealProblem& problem, const CutLimits& limits)
      : limits_(limits), num_ranks_(problem.num_ranks), num_pieces_(num_pieces(problem)) {
    for (const auto& [size, of_size] : problem.sizes) {
      sizes_.push_back(size);
      problems_.push_back(&of_size);
      sums_.emplace_back(of_size);
    }
  }

  double num_compared() const {
    const double pieces = num_pieces_;
    return pieces * pieces / 2 * num_ranks_ * static_cast<double>(sizes_.size()) * limits_.stages;
  }

  std::optional<mesh::StageRanks> run() const {
    const auto longest = solve([](const CutPlace& at) { return std::max(at.forward_seconds, at.backward_seconds); },
                               [](double a, double b) { return std::max(a, b); }, kNever);
    if (longest.value == kNever) return std::nullopt;
    const auto shortest = solve([](const CutPlace& at) { return at.forward_seconds + at.backward_seconds; },
                                [](double a, double b) { return a + b; }, longest.value);
    return mesh::StageRanks(shortest.counts);
  }

 private:
  struct Solution {
    double value = kNever;
    std::vector<int> counts;
  };
  // Of each state of a stage: the best value, and where it comes from: a size, or the first piece of the stage.
  struct States {
    States(size_t count) : values(count, kNever), from(count, -1) {}  // NOLINT: so many
    std::vector<double> values;
    std::vector<int> from;
  };

  size_t num_sizes() const { return sizes_.size(); }
  size_t at(int piece, int used, size_t size) const {
    return (static_cast<size_t>(piece) * static_cast<size_t>(num_ranks_ + 1) + static_cast<size_t>(used)) *
               num_sizes() +
           size;
  }
  size_t num_states() const { return at(num_pieces_ + 1, 0, 0); }

  // The message over the place behind a piece: of the one of both sides that takes longer.
  CutPlace between(int place, size_t before, size_t after) const {
    const CutPlace& a = problems_[before]->places[static_cast<size_t>(place)];
    const CutPlace& b = problems_[after]->places[static_cast<size_t>(place)];
    return {.forward_seconds = std::max(a.forward_seconds, b.forward_seconds),
            .backward_seconds = std::max(a.backward_seconds, b.backward_seconds)};
  }

  bool may_be(int stage, int begin, int end, size_t size, double longest) const {
    const PieceSums& sums = sums_[size];
    if (sums.num_with_parameters(begin, end) == 0 || sums.seconds(begin, end) > longest) return false;
    return limits_.memory_limit_bytes == 0 ||
           sums.bytes(begin, end, held_micro_batches(limits_, stage)) <= limits_.memory_limit_bytes;
  }

  // From the stages before to the begin of one of each size.
  template <typename Message, typename Join>
  States opened(int stage, const States& before, const Message& message, const Join& join, double longest) const {
    States open(num_states());
    for (int begin = stage; begin < num_pieces_; ++begin) {
      for (size_t last = 0; last < num_sizes(); ++last) {
        for (size_t size = 0; size < num_sizes(); ++size) {
          const CutPlace crossing = between(begin - 1, last, size);
          if (std::max(crossing.forward_seconds, crossing.backward_seconds) > longest) continue;
          const double cost = message(crossing);
          for (int used = stage; used < num_ranks_; ++used) {
            const double value = join(before.values[at(begin, used, last)], cost);
            if (value >= open.values[at(begin, used, size)]) continue;
            open.values[at(begin, used, size)] = value;
            open.from[at(begin, used, size)] = static_cast<int>(last);
          }
        }
      }
    }
    return open;
  }

  // The least value of all stages' times, and what `message` says of each cut, joined by `join`; none of these longer
  // than `longest`.
  template <typename Message, typename Join>
  Solution solve(const Message& message, const Join& join, double longest) const {
    std::vector<States> opens;
    std::vector<States> closes;
    for (int stage = 0; stage < limits_.stages; ++stage) {
      if (stage == 0) {
        opens.emplace_back(num_states());
        for (size_t size = 0; size < num_sizes(); ++size) opens.back().values[at(0, 0, size)] = 0;
      } else {
        opens.push_back(opened(stage, closes.back(), message, join, longest));
        closes.back().values = {};
      }
      States& open = opens.back();
      States& close = closes.emplace_back(num_states());
      const int stages_after = limits_.stages - stage - 1;
      for (int end = stage + 1; end <= num_pieces_ - stages_after; ++end) {
        for (int begin = stage; begin < end; ++begin) {
          for (size_t size = 0; size < num_sizes(); ++size) {
            if (!may_be(stage, begin, end, size, longest)) continue;
            const double own = sums_[size].seconds(begin, end);
            for (int used = stage; used + sizes_[size] + stages_after <= num_ranks_; ++used) {
              const double value = join(open.values[at(begin, used, size)], own);
              const size_t to = at(end, used + sizes_[size], size);
              if (value >= close.values[to]) continue;
              close.values[to] = value;
              close.from[to] = begin;
            }
          }
        }
      }
      open.values = {};
    }
    return traced(opens, closes);
  }

  Solution traced(const std::vector<States>& opens, const std::vector<States>& closes) const {
    Solution best;
    size_t size = 0;
    for (size_t last = 0; last < num_sizes(); ++last) {
      const double value = closes.back().values[at(num_pieces_, num_ranks_, last)];
      if (value >= best.value) continue;
      best.value = value;
      size = last;
    }
    if (best.value == kNever) return best;
    best.counts.assign(static_cast<size_t>(limits_.stages), 0);
    int end = num_pieces_;
    int used = num_ranks_;
    for (size_t stage = closes.size(); stage-- > 0;) {
      best.counts[stage] = sizes_[size];
      const int begin = closes[stage].from[at(end, used, size)];
      used -= sizes_[size];
      if (stage > 0) size = static_cast<size_t>(opens[stage].from[at(begin, used, size)]);
      end = begin;
    }
    return best;
  }

  const CutLimits& limits_;
  int num_ranks_;
  int num_pieces_;
  std::vector<int> sizes_;
  std::vector<const CutProblem*> problems_;  // by size
  std::vector<PieceSums> sums_;              // by size
};

}  // namespace

DealProblem with_sums(DealProblem problem, int micro_batches) {
  for (auto& [size, of_size] : problem.sizes) {
    for (CutPiece& piece : of_size.pieces) piece.seconds += piece.sum_seconds / micro_batches;
  }
  return problem;
}

std::vector<int> sizes_of_stages(int num_ranks) {
  std::set<int> sizes;
  for (int size = 1; size < num_ranks; ++size) {
    const bool is_power = (size & (size - 1)) == 0;
    if (num_ranks > kFewRanks && !is_power && num_ranks % size != 0) continue;
    sizes.insert(size);
    sizes.insert(num_ranks - size);
  }
  return {sizes.begin(), sizes.end()};
}

double estimated_step(const CutProblem& problem, const StageCuts& cuts, const CutLimits& limits) {
  double once = 0;
  for (size_t chunk = 0; chunk < cuts.ends.size(); ++chunk) {
    const int begin = chunk == 0 ? 0 : cuts.ends[chunk - 1];
    once += chunk_seconds(problem.of_chunk(static_cast<int>(chunk)), begin, cuts.ends[chunk]);
  }
  return once + (limits.micro_batches - 1) * limits.segments * cuts.longest_seconds;
}

CutProblem cut_problem_for(const DealProblem& problem, const mesh::StageRanks& ranks) {
  CutProblem found;
  std::map<int, int> kinds;  // by number of ranks
  for (const int size : ranks.sizes()) {
    if (kinds.empty()) {
      found = problem.sizes.at(size);
    } else {
      found.others.push_back(problem.sizes.at(size));
    }
    kinds.emplace(size, static_cast<int>(kinds.size()));
  }
  if (ranks.are_equal()) return found;
  for (const int stage : problem.stages) found.kinds.push_back(kinds.at(ranks.count(stage)));
  return found;
}

std::vector<DealtRanks> deal_ranks(const DealProblem& problem, const CutLimits& limits) {
  std::vector<DealtRanks> dealt;
  if (problem.sizes.empty()) return dealt;
  WaysCutter cutter(problem, limits);
  const auto add = [&](const mesh::StageRanks& ranks) {
    if (auto cut = cutter.cut(ranks)) dealt.push_back(std::move(*cut));
  };
  if (const auto ways = few_ways(problem, limits)) {
    for (const auto& ranks : *ways) add(ranks);
  } else {
    auto shortest = shortest_deal(problem, limits);
    const int each = problem.num_ranks / limits.stages;
    const auto equal = mesh::StageRanks::equal(limits.stages, each);
    const bool is_equal = shortest && shortest->ranks == equal;
    if (shortest) dealt.push_back(std::move(*shortest));
    if (!is_equal && each * limits.stages == problem.num_ranks && problem.sizes.contains(each)) add(equal);
  }
  std::stable_sort(dealt.begin(), dealt.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.estimate, !a.ranks.are_equal()) < std::tuple(b.estimate, !b.ranks.are_equal());
  });
  return dealt;
}

std::vector<DealtByMemory> deal_by_memory(const DealProblem& problem, const CutLimits& limits) {
  std::vector<DealtByMemory> dealt;
  if (problem.sizes.empty()) return dealt;
  WaysCutter cutter(problem, limits);
  auto ways = few_ways(problem, limits);
  if (!ways) {
    // Of many ways the ones that deal_ranks() knows without a limit.
    CutLimits unlimited = limits;
    unlimited.memory_limit_bytes = 0;
    ways.emplace();
    for (const auto& known : deal_ranks(problem, unlimited)) ways->push_back(known.ranks);
  }
  for (const auto& ranks : *ways) {
    if (auto cut = cutter.cut_by_memory(ranks)) dealt.push_back(std::move(*cut));
  }
  std::stable_sort(dealt.begin(), dealt.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return dealt;
}

std::optional<DealtRanks> shortest_deal(const DealProblem& problem, const CutLimits& limits) {
  if (problem.sizes.empty()) return std::nullopt;
  WaysCutter cutter(problem, limits);
  if (limits.segments == 1) {
    const Dealer dealer(problem, limits);
    if (dealer.num_compared() > kMostCompared) return std::nullopt;
    const auto ranks = dealer.run();
    return ranks ? cutter.cut(*ranks) : std::nullopt;
  }
  const auto ways = few_ways(problem, limits);
  std::optional<DealtRanks> shortest;
  for (const auto& ranks : ways.value_or(std::vector<mesh::StageRanks>())) {
    auto cut = cutter.cut(ranks);
    if (cut && (!shortest || cut->cuts.longest_seconds < shortest->cuts.longest_seconds)) shortest = std::move(cut);
  }
  return shortest;
}

}  // namespace tessera::compiler
