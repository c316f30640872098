// RunComparison: what two runs have in common and where they part: settings, and each number of their logs step by
// step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tools/report/run_report.h"

namespace tessera::tools {

// A setting that differs; "" of a run that does not say it.
struct SettingDifference {
  std::string name;
  std::string left;
  std::string right;
};

// A ValueDifference has both runs' values at a step.
struct ValueDifference {
  int64_t step = 0;
  double left = 0;
  double right = 0;
};

// How a number of the logs compares: the loss, the learning rate, or a metric as "evaluated NAME".
struct NumberComparison {
  std::string name;
  int64_t num_common = 0;  // steps at which both logs have it
  int64_t num_left = 0;    // at which only that log has it
  int64_t num_right = 0;
  std::optional<ValueDifference> first;     // where they differ in any bit; two NaN are equal
  std::optional<ValueDifference> greatest;  // where both are finite
};

struct RunComparison {
  RunReport left;
  RunReport right;
  bool knows_settings = false;  // whether both logs say them
  std::vector<SettingDifference> settings;
  std::vector<NumberComparison> numbers;
  // The median of the rows of a second of the right run in those of the left one.
  std::optional<double> speed_ratio;
  // Whether every number that both logs have is equal at every common step, and there is one.
  bool has_equal_numbers() const;
};

// Reads both runs, and their logs side by side. Where one log has records of steps and the other one none, epochs are
// compared. Where a log goes back to an earlier step, its first record of each step counts. Throws as read_run() does,
// and InvalidArgument where one of them has no log.
RunComparison compare_runs(FileSystem& files, const ReportSources& left, const ReportSources& right);

// |left - right| by the larger one's magnitude; 0 where both are 0.
double relative_difference(const ValueDifference& difference);

}  // namespace tessera::tools
