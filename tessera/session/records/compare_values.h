// Comparing the recorded values of two runs, in the order in which a step makes them: the first that differs is where
// they part. Values of one dtype are compared by their hashes, to the bit, and beyond that by their statistics, as
// those of several dtypes are, whose elements cannot be equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/session/records/recorded_values.h"

namespace tessera::session {

struct ComparisonOptions {
  // How far statistics may be apart; absent: by the dtype of less digits of the two, see default_tolerance().
  std::optional<double> tolerance = std::nullopt;
};

// f64: 1e-9, f32: 1e-4, f16: 2e-2, bf16: 1e-1; other dtypes: 0.
double default_tolerance(DType dtype);

// How far the statistics of two values are apart, relative to what they are: the largest of the differences of their
// norms by the larger norm, of their minima and maxima by the largest magnitude, and of their means by the larger root
// of the mean square. Infinite where not as many elements are finite. Blind to elements that have changed places.
double distance(const ValueStatistics& a, const ValueStatistics& b);

struct RecordedDifference {
  std::string name;  // `matmul "up"`
  std::string line;  // of the script; "" where that is not known
  Type left_type;
  Type right_type;
  bool differs_in_bits = false;  // else they are of several dtypes
  double distance = 0;
  double tolerance = 0;
  // Absent where only the terms of a sum are compared, rank by rank.
  std::optional<ValueStatistics> left;
  std::optional<ValueStatistics> right;
  // The ranks whose pieces differ, where both runs have cut the value alike; else none, and is_cut_alike is false.
  std::vector<int> ranks;
  std::vector<std::string> regions;  // their pieces: "[0:4,0:8]"
  bool is_cut_alike = false;
};

struct StepComparison {
  int64_t step = 0;
  int64_t num_common = 0;  // values that both have
  int64_t num_equal = 0;   // to the bit
  int64_t num_close = 0;   // not so, but within the tolerance
  int64_t num_beyond = 0;  // beyond it
  int64_t num_not_comparable =
      0;  // of the common ones: terms of sums that are cut differently, pieces of ranks without a file
  int64_t num_left_only = 0;
  int64_t num_right_only = 0;
  std::optional<RecordedDifference> first;         // that is not equal to the bit
  std::optional<RecordedDifference> first_beyond;  // the tolerance
  // Copies of one piece that differ between the ranks of one run: "rank 2 has another copy of ... than rank 0".
  std::vector<std::string> odd_left;
  std::vector<std::string> odd_right;

  bool are_equal() const { return num_close == 0 && num_beyond == 0; }
};

StepComparison compare_steps(const RecordedStep& left, const RecordedStep& right,
                             const ComparisonOptions& options = {});

struct RecordComparison {
  std::vector<int64_t> left_only;  // steps that only one run has recorded
  std::vector<int64_t> right_only;
  RecordHeader left;  // of the first common step
  RecordHeader right;
  std::vector<StepComparison> steps;  // up to the first whose values are not equal, or all
};
// Reads both folders step by step, ascending, to the first common step whose values differ: to the bit, or beyond the
// tolerance where one is given (`all`: to the last). `only`: that step alone. Throws as read_step() does, and
// InvalidArgument where no step is in both.
RecordComparison compare_records(FileSystem& files, const std::string& left, const std::string& right,
                                 const ComparisonOptions& options = {}, bool all = false,
                                 std::optional<int64_t> only = std::nullopt);

// What differs first, in sentences, for a person: "step 3: matmul "up" (model.py:12) f32[12,10] differs on rank 2,
// ...".
std::string describe(int64_t step, const RecordedDifference& difference);

}  // namespace tessera::session
