#include "tessera/compiler/stages/choose_cuts.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/stages/piece_sums.h"

namespace tessera::compiler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double place_seconds(const CutPlace& at) { return at.forward_seconds + at.backward_seconds; }

int num_pieces(const CutProblem& problem) { return static_cast<int>(problem.pieces.size()); }

class Cutter {
 public:
  Cutter(const CutProblem& problem, const CutLimits& limits) : problem_(problem), limits_(limits) {
    for (int chunk = 0; chunk < limits.num_chunks(); ++chunk) sums_.emplace_back(problem.of_chunk(chunk));
  }

  StageCuts run() {
    const int pieces = num_pieces(problem_);
    const int with_parameters = sums_.front().num_with_parameters(0, pieces);
    if (with_parameters < limits_.num_chunks()) {
      throw InvalidArgument(
          "{} cannot be cut: the network has {} place{} where it can be cut, with {} stretch{} that have parameters; "
          "use at most {} {}",
          what(), pieces - 1, pieces == 2 ? "" : "s", with_parameters, with_parameters == 1 ? "" : "es",
          std::max(1, with_parameters), limits_.segments == 1 ? "stages" : "chunks, as many as stages times segments");
    }
    // The longest of a chunk or a message, then, among cuts that are no longer, the sum of the messages.
    const auto longest = solve([&](int chunk, int begin, int end) { return longest_of(chunk, begin, end); },
                               [](double a, double b) { return std::max(a, b); }, kNever);
    if (longest.value == kNever) refuse();
    const auto message = [&](int chunk, int begin, int) {
      return begin == 0 ? 0.0 : place_seconds(problem_.place_behind(chunk - 1, begin - 1));
    };
    auto best = solve(
        message, [](double a, double b) { return a + b; }, longest.value);
    return {std::move(best.ends), longest.value};
  }

 private:
  struct Solution {
    double value = kNever;
    std::vector<int> ends;
  };

  const PieceSums& sums_of(int chunk) const { return sums_[static_cast<size_t>(chunk)]; }

  double longest_of(int chunk, int begin, int end) const {
    const double seconds = sums_of(chunk).seconds(begin, end);
    if (begin == 0 || chunk == 0) return seconds;
    const CutPlace place = problem_.place_behind(chunk - 1, begin - 1);
    return std::max({seconds, place.forward_seconds, place.backward_seconds});
  }

  std::string what() const {
    if (limits_.segments == 1) return fmt::format("{} stages", limits_.stages);
    return fmt::format("{} stages of {} segments", limits_.stages, limits_.segments);
  }

  bool may_be(int chunk, int begin, int end, double longest) const {
    if (sums_of(chunk).num_with_parameters(begin, end) == 0) return false;
    if (longest_of(chunk, begin, end) > longest) return false;
    return limits_.memory_limit_bytes == 0 ||
           bytes_of(chunk, begin, end) <= limits_.memory_limit_bytes / limits_.segments;
  }

  int64_t bytes_of(int chunk, int begin, int end) const {
    return sums_of(chunk).bytes(begin, end, held_micro_batches(limits_, chunk));
  }

  // The least value of a cut into chunks, of which each has `cost`, joined by `join`, none longer than `longest`.
  template <typename Cost, typename Join>
  Solution solve(const Cost& cost, const Join& join, double longest) const {
    const int pieces = num_pieces(problem_);
    const auto width = static_cast<size_t>(pieces) + 1;
    std::vector<double> before(width, kNever);
    before[0] = 0;
    std::vector<std::vector<int>> begins(static_cast<size_t>(limits_.num_chunks()), std::vector<int>(width, -1));
    for (int chunk = 0; chunk < limits_.num_chunks(); ++chunk) {
      std::vector<double> now(width, kNever);
      for (int end = chunk + 1; end <= pieces; ++end) {
        for (int begin = chunk; begin < end; ++begin) {
          if (before[static_cast<size_t>(begin)] == kNever || !may_be(chunk, begin, end, longest)) continue;
          const double value = join(before[static_cast<size_t>(begin)], cost(chunk, begin, end));
          if (value >= now[static_cast<size_t>(end)]) continue;
          now[static_cast<size_t>(end)] = value;
          begins[static_cast<size_t>(chunk)][static_cast<size_t>(end)] = begin;
        }
      }
      before = std::move(now);
    }
    Solution best{.value = before.back()};
    if (best.value == kNever) return best;
    best.ends.assign(static_cast<size_t>(limits_.num_chunks()), 0);
    int end = pieces;
    for (int chunk = limits_.num_chunks(); chunk-- > 0;) {
      best.ends[static_cast<size_t>(chunk)] = end;
      end = begins[static_cast<size_t>(chunk)][static_cast<size_t>(end)];
    }
    return best;
  }

  [[noreturn]] void refuse() const {
    CutLimits unlimited = limits_;
    unlimited.memory_limit_bytes = 0;
    const Cutter free(problem_, unlimited);
    const auto least =
        free.solve([&](int chunk, int begin, int end) { return static_cast<double>(bytes_of(chunk, begin, end)); },
                   [](double a, double b) { return std::max(a, b); }, kNever);
    throw InvalidArgument(
        "no cut into {} fits into {} of memory on a rank: the best needs about {}; use more stages or ranks, more "
        "micro-batches of fewer rows, or a higher memory limit",
        what(), format_bytes(limits_.memory_limit_bytes),
        format_bytes(limits_.segments * static_cast<int64_t>(least.value)));
  }

  const CutProblem& problem_;
  const CutLimits& limits_;
  std::vector<PieceSums> sums_;  // by chunk
};

}  // namespace

CutPlace CutProblem::place_behind(int chunk, int place) const {
  const CutPlace& before = of_chunk(chunk).places[static_cast<size_t>(place)];
  if (kinds.empty()) return before;
  const CutPlace& after = of_chunk(chunk + 1).places[static_cast<size_t>(place)];
  return {.forward_seconds = std::max(before.forward_seconds, after.forward_seconds),
          .backward_seconds = std::max(before.backward_seconds, after.backward_seconds),
          .forward_bytes = std::max(before.forward_bytes, after.forward_bytes),
          .backward_bytes = std::max(before.backward_bytes, after.backward_bytes)};
}

int held_micro_batches(const CutLimits& limits, int chunk) {
  // No schedule that has a name lets more than a round trip over the stages into one chunk.
  const int round_trip = std::min(limits.num_chunks() - chunk, 2 * limits.stages - 1);
  const int in_flight = limits.holds_all ? limits.micro_batches : round_trip;
  return std::min(limits.micro_batches, in_flight + limits.receive_ahead);
}

double chunk_seconds(const CutProblem& problem, int begin, int end) {
  double seconds = 0;
  for (int i = begin; i < end; ++i) seconds += problem.pieces[static_cast<size_t>(i)].seconds;
  return seconds;
}

StageCuts choose_cuts(const CutProblem& problem, const CutLimits& limits) { return Cutter(problem, limits).run(); }

std::optional<StageCuts> moved_cut(const CutProblem& problem, const StageCuts& cuts, int chunk, int pieces) {
  StageCuts moved = cuts;
  auto& end = moved.ends[static_cast<size_t>(chunk)];
  end += pieces;
  const int begin = chunk == 0 ? 0 : moved.ends[static_cast<size_t>(chunk - 1)];
  if (end <= begin || end >= moved.ends[static_cast<size_t>(chunk) + 1]) return std::nullopt;
  moved.longest_seconds = 0;
  for (size_t s = 0; s < moved.ends.size(); ++s) {
    const int first = s == 0 ? 0 : moved.ends[s - 1];
    const int of = static_cast<int>(s);
    moved.longest_seconds = std::max(moved.longest_seconds, chunk_seconds(problem.of_chunk(of), first, moved.ends[s]));
    if (s == 0) continue;
    const CutPlace place = problem.place_behind(of - 1, first - 1);
    moved.longest_seconds = std::max({moved.longest_seconds, place.forward_seconds, place.backward_seconds});
  }
  return moved;
}

}  // namespace tessera::compiler
