#include "tessera/session/records/compare_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::session {
namespace {

using Pieces = std::vector<RecordedValue::Piece>;

// The ranks whose pieces differ; nullopt where the runs have not cut the value alike.
struct OddPieces {
  std::vector<int> ranks;
  std::vector<std::string> regions;
};
std::optional<OddPieces> odd_pieces(const Pieces& left, const Pieces& right) {
  const auto alike = [](const RecordedValue::Piece& a, const RecordedValue::Piece& b) {
    return a.rank == b.rank && a.entry.region == b.entry.region && a.entry.reduction == b.entry.reduction &&
           a.entry.type == b.entry.type;
  };
  if (left.empty() || !std::equal(left.begin(), left.end(), right.begin(), right.end(), alike)) return std::nullopt;
  OddPieces odd;
  for (size_t i = 0; i < left.size(); ++i) {
    if (left[i].entry.hash == right[i].entry.hash) continue;
    odd.ranks.push_back(left[i].rank);
    odd.regions.push_back(left[i].entry.region.to_string());
  }
  return odd;
}

double relative(double difference, double scale) {
  if (difference == 0) return 0;
  return scale > 0 && std::isfinite(difference) ? std::abs(difference) / scale
                                                : std::numeric_limits<double>::infinity();
}

class StepComparer {
 public:
  StepComparer(StepComparison& result, const ComparisonOptions& options) : result_(result), options_(options) {}

  void compare(const RecordedValue& left, const RecordedValue& right) {
    ++result_.num_common;
    const auto left_hash = left.hash();
    const auto right_hash = right.hash();
    if (left.type.shape != right.type.shape) return not_comparable();
    RecordedDifference difference{.name = left.text(),
                                  .line = left.line.empty() ? right.line : left.line,
                                  .left_type = left.type,
                                  .right_type = right.type};
    difference.tolerance =
        options_.tolerance.value_or(std::max(default_tolerance(left.type.dtype), default_tolerance(right.type.dtype)));
    if (!left_hash || !right_hash) return compare_in_parts(left, right, difference);
    const auto odd = odd_pieces(left.pieces, right.pieces);
    difference.is_cut_alike = odd.has_value();
    if (odd) {
      difference.ranks = odd->ranks;
      difference.regions = odd->regions;
    }
    difference.left = left.statistics();
    difference.right = right.statistics();
    difference.distance = distance(*difference.left, *difference.right);
    if (left.type.dtype != right.type.dtype) {
      // No elements of several dtypes are equal to the bit, and none is expected to be.
      if (difference.distance > difference.tolerance) return differs(difference);
      ++result_.num_close;
      return;
    }
    // Copies that differ are no part of the hash, which is of the first one.
    const bool has_odd_copy = odd && !odd->ranks.empty();
    if (*left_hash == *right_hash && !has_odd_copy) {
      ++result_.num_equal;
      return;
    }
    difference.differs_in_bits = true;
    differs(difference);
  }

 private:
  void not_comparable() { ++result_.num_not_comparable; }

  // What is known of some ranks only, and the terms of sums: rank by rank, where both runs have the same ones.
  void compare_in_parts(const RecordedValue& left, const RecordedValue& right, RecordedDifference& difference) {
    auto odd = odd_pieces(left.pieces, right.pieces);
    if (!odd) odd = odd_pieces(left.terms, right.terms);
    if (!odd) return not_comparable();
    if (odd->ranks.empty()) {
      ++result_.num_equal;
      return;
    }
    const Pieces& a = left.pieces.empty() ? left.terms : left.pieces;
    const Pieces& b = right.pieces.empty() ? right.terms : right.pieces;
    for (size_t i = 0; i < a.size(); ++i) {
      difference.distance =
          std::max(difference.distance, session::distance(a[i].entry.statistics, b[i].entry.statistics));
    }
    const bool are_terms = left.pieces.empty() && a.front().entry.reduction != kOwnOfRank;
    if (are_terms) difference.name += ", the terms of whose sum the ranks have,";
    difference.is_cut_alike = difference.differs_in_bits = true;
    difference.ranks = odd->ranks;
    difference.regions = odd->regions;
    differs(difference);
  }

  void differs(const RecordedDifference& difference) {
    const bool is_beyond = difference.distance > difference.tolerance;
    ++(is_beyond ? result_.num_beyond : result_.num_close);
    if (!result_.first) result_.first = difference;
    if (is_beyond && !result_.first_beyond) result_.first_beyond = difference;
  }

  StepComparison& result_;
  const ComparisonOptions& options_;
};

// Says so much of them at most.
constexpr size_t kMostOdd = 5;

std::vector<std::string> odd_copies_of(const RecordedStep& step) {
  std::vector<std::string> texts;
  for (const RecordedValue& value : step.values) {
    const auto odd = value.odd_copies();
    if (odd.empty()) continue;
    texts.push_back(fmt::format("{}: the copies of rank{} {} are not those of the other ranks", value.text(),
                                odd.size() == 1 ? "" : "s", fmt::join(odd, ", ")));
    if (texts.size() == kMostOdd) break;
  }
  return texts;
}

std::string statistics_text(const ValueStatistics& s) {
  return fmt::format("min {:.9g}, max {:.9g}, mean {:.9g}, norm {:.9g}{}", s.min, s.max, s.mean(), s.norm(),
                     s.num_not_finite > 0 ? fmt::format(", {} not finite", s.num_not_finite) : "");
}

}  // namespace

double default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-9;
    case DType::kF32: return 1e-4;
    case DType::kF16: return 2e-2;
    case DType::kBF16: return 1e-1;
    default: return 0;
  }
}

double distance(const ValueStatistics& a, const ValueStatistics& b) {
  if (a.num_not_finite != b.num_not_finite) return std::numeric_limits<double>::infinity();
  const double magnitude = std::max({std::abs(a.min), std::abs(a.max), std::abs(b.min), std::abs(b.max)});
  const double count = static_cast<double>(std::max<int64_t>({a.num_finite(), b.num_finite(), 1}));
  const double norm = std::max(a.norm(), b.norm());
  return std::max({relative(a.norm() - b.norm(), norm), relative(a.min - b.min, magnitude),
                   relative(a.max - b.max, magnitude), relative(a.mean() - b.mean(), norm / std::sqrt(count))});
}

StepComparison compare_steps(const RecordedStep& left, const RecordedStep& right, const ComparisonOptions& options) {
  StepComparison result{.step = left.header.step};
  std::map<std::string, const RecordedValue*> others;
  for (const RecordedValue& value : right.values) others[value.key()] = &value;
  StepComparer comparer(result, options);
  for (const RecordedValue& value : left.values) {
    const auto other = others.find(value.key());
    if (other == others.end()) {
      ++result.num_left_only;
    } else {
      comparer.compare(value, *other->second);
    }
  }
  result.num_right_only = std::ssize(right.values) - result.num_common;
  result.odd_left = odd_copies_of(left);
  result.odd_right = odd_copies_of(right);
  return result;
}

RecordComparison compare_records(FileSystem& files, const std::string& left, const std::string& right,
                                 const ComparisonOptions& options, bool all, std::optional<int64_t> only) {
  const auto left_steps = recorded_steps(files, left);
  const auto right_steps = recorded_steps(files, right);
  RecordComparison result;
  std::ranges::set_difference(left_steps, right_steps, std::back_inserter(result.left_only));
  std::ranges::set_difference(right_steps, left_steps, std::back_inserter(result.right_only));
  std::vector<int64_t> common;
  std::ranges::set_intersection(left_steps, right_steps, std::back_inserter(common));
  if (only) std::erase_if(common, [&](int64_t step) { return step != *only; });
  if (common.empty()) {
    throw InvalidArgument("{} and {} have {} in common: {} has recorded {}, {} {}; record the same steps of both", left,
                          right, only ? fmt::format("no step {}", *only) : "no step", left, fmt::join(left_steps, ", "),
                          right, fmt::join(right_steps, ", "));
  }
  for (const int64_t step : common) {
    const RecordedStep a = read_step(files, left, step);
    const RecordedStep b = read_step(files, right, step);
    if (result.steps.empty()) {
      result.left = a.header;
      result.right = b.header;
    }
    result.steps.push_back(compare_steps(a, b, options));
    const StepComparison& now = result.steps.back();
    if (!all && (options.tolerance ? now.first_beyond : now.first)) break;
  }
  return result;
}

std::string describe(int64_t step, const RecordedDifference& d) {
  std::string text = fmt::format("step {}: {}{} ", step, d.name, d.line.empty() ? "" : fmt::format(" ({})", d.line));
  if (d.left_type == d.right_type) {
    text += fmt::format("{} differs", d.left_type);
  } else {
    text += fmt::format("differs, {} and {}", d.left_type, d.right_type);
  }
  if (d.is_cut_alike && !d.ranks.empty()) {
    constexpr size_t kShown = 8;
    const size_t shown = std::min(d.ranks.size(), kShown);
    text += fmt::format(" on rank{} {}{}", d.ranks.size() == 1 ? "" : "s",
                        fmt::join(d.ranks.begin(), d.ranks.begin() + static_cast<int64_t>(shown), ", "),
                        shown < d.ranks.size() ? fmt::format(" and {} more", d.ranks.size() - shown) : "");
    text += d.ranks.size() == 1 ? fmt::format(", whose piece is {}", d.regions.front()) : "";
  } else if (!d.is_cut_alike) {
    text += "; the runs have cut it differently, so that no rank can be named";
  }
  if (d.left && d.right) {
    text += fmt::format("\n  first run:  {}\n  second run: {}", statistics_text(*d.left), statistics_text(*d.right));
  }
  if (d.distance == 0)
    return text + "\n  the statistics are equal: the elements differ in their last digits, or in their places";
  return text + fmt::format("\n  the statistics are {:.3g} apart, {} the bound of {:.3g}", d.distance,
                            d.distance > d.tolerance ? "beyond" : "within", d.tolerance);
}

}  // namespace tessera::session
