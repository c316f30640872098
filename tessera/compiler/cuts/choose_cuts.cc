#include "tessera/compiler/cuts/choose_cuts.h"

#include <algorithm>
#include <compare>
#include <limits>

#include "tessera/base/strings.h"
#include "tessera/compiler/cuts/piece_sums.h"

namespace tessera::compiler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// What no limit is. Sums of several of it do not overflow.
constexpr int64_t kTooMuch = std::numeric_limits<int64_t>::max() / 4096;

double place_seconds(const CutPlace& at) { return at.forward_seconds + at.backward_seconds; }

int num_pieces(const CutProblem& problem) { return static_cast<int>(problem.pieces.size()); }

std::string what(const CutLimits& limits) {
  if (limits.segments == 1) return fmt::format("{} stages", limits.stages);
  return fmt::format("{} stages of {} segments", limits.stages, limits.segments);
}

int64_t most_of(const std::vector<int64_t>& bytes) {
  return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
}

// At least `bytes`, and so is what format_bytes() says of it, which has one digit behind the point.
int64_t up_to_a_tenth(int64_t bytes) {
  int64_t unit = 1;
  while (bytes / unit >= 1024) unit *= 1024;
  if (unit == 1) return bytes;
  const int64_t tenths = (bytes / unit * 10) + ((bytes % unit * 10 + unit - 1) / unit);
  return ((tenths * unit) + 9) / 10;
}

class Cutter {
 public:
  Cutter(const CutProblem& problem, const CutLimits& limits) : problem_(problem), limits_(limits) {
    for (int chunk = 0; chunk < limits.num_chunks(); ++chunk) sums_.emplace_back(problem.of_chunk(chunk));
    const int pieces = num_pieces(problem_);
    const int with_parameters = sums_.front().num_with_parameters(0, pieces);
    if (with_parameters < limits_.num_chunks()) {
      throw InvalidArgument(
          "{} cannot be cut: the network has {} place{} where it can be cut, with {} stretch{} that have parameters; "
          "use at most {} {}",
          what(limits_), pieces - 1, pieces == 2 ? "" : "s", with_parameters, with_parameters == 1 ? "" : "es",
          std::max(1, with_parameters), limits_.segments == 1 ? "stages" : "chunks, as many as stages times segments");
    }
  }

  StageCuts run() {
    const bool adds_up = limits_.segments > 1 && limits_.memory_limit_bytes > 0;
    auto best = adds_up ? fastest_by_stages() : fastest(shares_of(0.5));
    if (best.ends.empty()) throw no_cut_fits(limits_, least().bytes);
    return best;
  }

  LeastMemoryCuts least() const {
    auto solution =
        solve([&](int chunk, int begin, int end) { return static_cast<double>(bytes_of(chunk, begin, end)); },
              [](double a, double b) { return std::max(a, b); }, {.longest = kNever});
    if (limits_.segments > 1) {
      Walk walk(*this, /*by_memory=*/true);
      if (!limits_.known.too_large.contains(solution.ends)) walk.begin_with(std::move(solution.ends));
      solution.ends = walk.run();
    }
    if (solution.ends.empty()) return {{}, std::vector<int64_t>(static_cast<size_t>(limits_.stages), kTooMuch)};
    return {{solution.ends, longest_of(solution.ends)}, bytes_of_stages(solution.ends)};
  }

  int64_t pieces_bytes(int chunk, int begin, int end) const {
    return sums_of(chunk).bytes(begin, end, held_micro_batches(limits_, chunk));
  }

 private:
  struct Solution {
    double value = kNever;
    std::vector<int> ends;
  };
  // What a chunk must keep to.
  struct Bounds {
    double longest = kNever;
    std::vector<int64_t> bytes = {};  // by chunk; empty: any
  };

  const PieceSums& sums_of(int chunk) const { return sums_[static_cast<size_t>(chunk)]; }

  double longest_of(int chunk, int begin, int end) const {
    const double seconds = sums_of(chunk).seconds(begin, end);
    if (begin == 0 || chunk == 0) return seconds;
    const CutPlace place = problem_.place_behind(chunk - 1, begin - 1);
    return std::max({seconds, place.forward_seconds, place.backward_seconds});
  }
  double message_of(int chunk, int begin) const {
    return begin == 0 ? 0.0 : place_seconds(problem_.place_behind(chunk - 1, begin - 1));
  }

  // Calls f(chunk, begin, end) for each chunk.
  template <typename F>
  void for_each_chunk(const std::vector<int>& ends, const F& f) const {
    for (int chunk = 0; chunk < static_cast<int>(ends.size()); ++chunk) {
      f(chunk, chunk == 0 ? 0 : ends[static_cast<size_t>(chunk - 1)], ends[static_cast<size_t>(chunk)]);
    }
  }
  double longest_of(const std::vector<int>& ends) const {
    double longest = 0;
    for_each_chunk(ends,
                   [&](int chunk, int begin, int end) { longest = std::max(longest, longest_of(chunk, begin, end)); });
    return longest;
  }
  std::vector<int64_t> bytes_of_stages(const std::vector<int>& ends) const {
    std::vector<int64_t> bytes(static_cast<size_t>(limits_.stages));
    for_each_chunk(ends, [&](int chunk, int begin, int end) {
      bytes[static_cast<size_t>(limits_.stage_of(chunk))] += bytes_of(chunk, begin, end);
    });
    return bytes;
  }

  int64_t bytes_of(int chunk, int begin, int end) const {
    const auto& known = limits_.known;
    if (!known.of_chunks.empty()) {
      const auto found = known.of_chunks.find({chunk, begin, end});
      if (found != known.of_chunks.end()) return found->second;
    }
    const int64_t extra = known.extra.empty() ? 0 : known.extra[static_cast<size_t>(chunk)];
    return std::max<int64_t>(0, pieces_bytes(chunk, begin, end) + extra);
  }

  bool may_be(int chunk, int begin, int end, const Bounds& bounds) const {
    if (sums_of(chunk).num_with_parameters(begin, end) == 0) return false;
    if (longest_of(chunk, begin, end) > bounds.longest) return false;
    return bounds.bytes.empty() || bytes_of(chunk, begin, end) <= bounds.bytes[static_cast<size_t>(chunk)];
  }

  // Of the limit so much for a stage's first chunk, where it has two; else each has an equal share.
  std::vector<int64_t> shares_of(double first) const {
    if (limits_.memory_limit_bytes == 0) return {};
    std::vector<int64_t> shares;
    for (int chunk = 0; chunk < limits_.num_chunks(); ++chunk) {
      const double share = limits_.segments != 2 ? 1.0 / limits_.segments : chunk < limits_.stages ? first : 1 - first;
      shares.push_back(static_cast<int64_t>(share * static_cast<double>(limits_.memory_limit_bytes)));
    }
    return shares;
  }

  // The longest of a chunk or a message, then, among cuts that are no longer, the sum of the messages.
  StageCuts fastest(const std::vector<int64_t>& bytes) const {
    const auto longest = solve([&](int chunk, int begin, int end) { return longest_of(chunk, begin, end); },
                               [](double a, double b) { return std::max(a, b); }, {.bytes = bytes});
    if (longest.value == kNever) return {};
    auto best = solve([&](int chunk, int begin, int) { return message_of(chunk, begin); },
                      [](double a, double b) { return a + b; }, {.longest = longest.value, .bytes = bytes});
    return {std::move(best.ends), longest.value};
  }

  // Where a stage has several chunks none can be judged by itself. Cuts that give each a share of the limit are
  // quickly found; what they leave out is walked through.
  StageCuts fastest_by_stages() const {
    const double unlimited = fastest({}).longest_seconds;
    StageCuts best;
    for (const double first : {0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.2, 0.9, 0.1}) {
      auto found = fastest(shares_of(first));
      if (!found.ends.empty() && (best.ends.empty() || found.longest_seconds < best.longest_seconds)) {
        best = std::move(found);
      }
      if (limits_.segments != 2) break;
    }
    if (!best.ends.empty() && best.longest_seconds <= unlimited) return best;
    Walk walk(*this, /*by_memory=*/false);
    walk.begin_with(std::move(best.ends));
    best.ends = walk.run();
    if (!best.ends.empty()) best.longest_seconds = longest_of(best.ends);
    return best;
  }

  // The least value of a cut into chunks, of which each has `cost`, joined by `join`, within bounds.
  template <typename Cost, typename Join>
  Solution solve(const Cost& cost, const Join& join, const Bounds& bounds) const {
    const int pieces = num_pieces(problem_);
    const auto width = static_cast<size_t>(pieces) + 1;
    std::vector<double> before(width, kNever);
    before[0] = 0;
    std::vector<std::vector<int>> begins(static_cast<size_t>(limits_.num_chunks()), std::vector<int>(width, -1));
    for (int chunk = 0; chunk < limits_.num_chunks(); ++chunk) {
      std::vector<double> now(width, kNever);
      for (int end = chunk + 1; end <= pieces; ++end) {
        for (int begin = chunk; begin < end; ++begin) {
          if (before[static_cast<size_t>(begin)] == kNever || !may_be(chunk, begin, end, bounds)) continue;
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

  // All cuts, chunk by chunk, where the bytes of a stage's chunks add up: the fastest within the limit, or the one that
  // takes least. It leaves off what is no better than what it has, and ends after a million steps.
  class Walk {
   public:
    Walk(const Cutter& cutter, bool by_memory)
        : cutter_(cutter),
          by_memory_(by_memory),
          bytes_(static_cast<size_t>(cutter.limits_.stages)),
          ends_(static_cast<size_t>(cutter.limits_.num_chunks())) {}

    // A cut that is known, within the limit unless the walk is by memory; empty: none is.
    void begin_with(std::vector<int> ends) {
      if (ends.empty()) return;
      Value value;
      cutter_.for_each_chunk(ends, [&](int chunk, int begin, int end) {
        value.longest = std::max(value.longest, cutter_.longest_of(chunk, begin, end));
        value.messages += cutter_.message_of(chunk, begin);
      });
      if (by_memory_) value = {static_cast<double>(most_of(cutter_.bytes_of_stages(ends))), 0};
      best_ = value;
      best_ends_ = std::move(ends);
    }
    // Empty where there is none.
    std::vector<int> run() {
      go(0, 0, {});
      return std::move(best_ends_);
    }

   private:
    static constexpr int kMostSteps = 1'000'000;
    // What is to be least: the longest and then the messages, or the bytes.
    struct Value {
      double longest = 0;
      double messages = 0;
      auto operator<=>(const Value&) const = default;
    };

    void go(int chunk, int begin, const Value& so_far) {
      const CutLimits& limits = cutter_.limits_;
      const int chunks_after = limits.num_chunks() - chunk - 1;
      const int pieces = num_pieces(cutter_.problem_);
      int64_t& of_stage = bytes_[static_cast<size_t>(limits.stage_of(chunk))];
      for (int end = chunks_after == 0 ? pieces : begin + 1; end <= pieces - chunks_after; ++end) {
        if (++num_steps_ > kMostSteps) return;
        if (cutter_.sums_of(chunk).num_with_parameters(begin, end) == 0) continue;
        const int64_t own = cutter_.bytes_of(chunk, begin, end);
        if (!by_memory_ && of_stage + own > limits.memory_limit_bytes) continue;
        Value value{std::max(so_far.longest, cutter_.longest_of(chunk, begin, end)),
                    so_far.messages + cutter_.message_of(chunk, begin)};
        if (by_memory_) value = {std::max(so_far.longest, static_cast<double>(of_stage + own)), 0};
        if (best_ && value >= *best_) continue;
        ends_[static_cast<size_t>(chunk)] = end;
        if (chunks_after == 0) {
          if (limits.known.too_large.contains(ends_)) continue;
          best_ = value;
          best_ends_ = ends_;
          continue;
        }
        of_stage += own;
        go(chunk + 1, end, value);
        of_stage -= own;
      }
    }

    const Cutter& cutter_;
    bool by_memory_;
    std::vector<int64_t> bytes_;  // of the stages' chunks so far
    std::vector<int> ends_;
    std::optional<Value> best_;
    std::vector<int> best_ends_;
    int num_steps_ = 0;
  };

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
  const int in_flight = limits.holds_least ? 1 : limits.holds_all ? limits.micro_batches : round_trip;
  return std::min(limits.micro_batches, in_flight + limits.receive_ahead);
}

double chunk_seconds(const CutProblem& problem, int begin, int end) {
  double seconds = 0;
  for (int i = begin; i < end; ++i) seconds += problem.pieces[static_cast<size_t>(i)].seconds;
  return seconds;
}

int64_t DoesNotFit::least_limit_bytes() const { return most_of(needed_bytes_); }

DoesNotFit no_cut_fits(const CutLimits& limits, std::vector<int64_t> needed_bytes) {
  auto message = fmt::format(
      "no cut into {} fits into {} of memory on a rank: the best needs about {}; use more stages or ranks, more "
      "micro-batches of fewer rows, or a higher memory limit",
      what(limits), format_bytes(limits.memory_limit_bytes), format_bytes(up_to_a_tenth(most_of(needed_bytes))));
  return {message, std::move(needed_bytes)};
}

StageCuts choose_cuts(const CutProblem& problem, const CutLimits& limits) { return Cutter(problem, limits).run(); }

int64_t LeastMemoryCuts::most() const { return most_of(bytes); }

LeastMemoryCuts least_memory_cuts(const CutProblem& problem, const CutLimits& limits) {
  return Cutter(problem, limits).least();
}

void note_needed(const CutProblem& problem, const StageCuts& cuts, const std::vector<int64_t>& needed_bytes,
                 CutLimits& limits) {
  const Cutter cutter(problem, limits);
  const int chunks = limits.num_chunks();
  const auto begin_of = [&](int chunk) { return chunk == 0 ? 0 : cuts.ends[static_cast<size_t>(chunk - 1)]; };
  const auto of_pieces = [&](int chunk) {
    return cutter.pieces_bytes(chunk, begin_of(chunk), cuts.ends[static_cast<size_t>(chunk)]);
  };
  // What a stage takes beside its pieces is shared among its chunks.
  std::vector<int64_t> beside = needed_bytes;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    beside[static_cast<size_t>(limits.stage_of(chunk))] -= of_pieces(chunk);
  }
  auto& known = limits.known;
  const bool is_first = known.extra.empty();
  if (is_first) known.extra.assign(static_cast<size_t>(chunks), 0);
  if (most_of(needed_bytes) > limits.memory_limit_bytes) known.too_large.insert(cuts.ends);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const auto stage = static_cast<size_t>(limits.stage_of(chunk));
    const int64_t own = beside[stage] / limits.segments;
    // Of a stage's only chunk it is known that no cut with it fits.
    const bool is_too_much = limits.segments == 1 && needed_bytes[stage] > limits.memory_limit_bytes;
    known.of_chunks[{chunk, begin_of(chunk), cuts.ends[static_cast<size_t>(chunk)]}] =
        is_too_much ? kTooMuch : of_pieces(chunk) + own;
    auto& extra = known.extra[static_cast<size_t>(chunk)];
    extra = is_first ? own : std::min(extra, own);
  }
}

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
