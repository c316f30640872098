#include "tessera/tools/report/compare_runs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace tessera::tools {
namespace {

constexpr size_t kMostCompared = 32;  // names of numbers

// What a log says at one step.
struct StepValues {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

// Goes through a log's records of one kind, step by step upward.
class StepCursor {
 public:
  StepCursor(FileSystem& files, const std::string& path, std::string kind)
      : reader_(files, path), kind_(std::move(kind)) {
    read();
  }

  // The next step, with what several records say of it; nothing at the end.
  std::optional<StepValues> next() {
    if (!record_) return std::nullopt;
    StepValues found{.step = record_->step};
    while (record_ && record_->step == found.step) {
      add(found, "loss", record_->loss);
      add(found, "learning rate", record_->learning_rate);
      for (const auto& [name, value] : record_->metrics) add(found, "evaluated " + name, value);
      read();
    }
    // What follows a return to an earlier step, up to where the log was.
    while (record_ && record_->step <= found.step) read();
    return found;
  }

 private:
  static void add(StepValues& found, const std::string& name, const std::optional<double>& value) {
    if (!value) return;
    const auto has_name = [&](const auto& other) { return other.first == name; };
    const auto same = std::ranges::find_if(found.values, has_name);
    if (same != found.values.end()) {
      same->second = *value;
    } else if (found.values.size() < kMostCompared) {
      found.values.emplace_back(name, *value);
    }
  }

  void read() {
    do record_ = reader_.next();
    while (record_ && record_->kind != kind_);
  }

  LogReader reader_;
  std::string kind_;
  std::optional<LogRecord> record_;
};

class NumberComparer {
 public:
  void run(StepCursor left_log, StepCursor right_log) {
    auto left = left_log.next();
    auto right = right_log.next();
    const std::vector<std::pair<std::string, double>> none;
    while (left || right) {
      const bool takes_left = left && (!right || left->step <= right->step);
      const bool takes_right = right && (!left || right->step <= left->step);
      const int64_t step = takes_left ? left->step : right->step;
      compare(step, takes_left ? left->values : none, takes_right ? right->values : none);
      if (takes_left) left = left_log.next();
      if (takes_right) right = right_log.next();
    }
  }

  std::vector<NumberComparison> take() { return std::move(found_); }

 private:
  using Values = std::vector<std::pair<std::string, double>>;

  NumberComparison* comparison_of(const std::string& name) {
    const auto known = std::ranges::find(found_, name, &NumberComparison::name);
    if (known != found_.end()) return &*known;
    if (found_.size() == kMostCompared) return nullptr;
    return &found_.emplace_back(NumberComparison{.name = name});
  }

  void compare(int64_t step, const Values& left, const Values& right) {
    for (const auto& [name, value] : left) {
      NumberComparison* const comparison = comparison_of(name);
      if (comparison == nullptr) continue;
      const auto has_name = [&name = name](const auto& other) { return other.first == name; };
      const auto other = std::ranges::find_if(right, has_name);
      if (other == right.end()) {
        ++comparison->num_left;
      } else {
        note(*comparison, {step, value, other->second});
      }
    }
    for (const auto& [name, value] : right) {
      const auto has_name = [&name = name](const auto& other) { return other.first == name; };
      if (std::ranges::any_of(left, has_name)) continue;
      if (NumberComparison* const comparison = comparison_of(name)) ++comparison->num_right;
    }
  }

  static void note(NumberComparison& comparison, const ValueDifference& pair) {
    ++comparison.num_common;
    const bool is_equal = pair.left == pair.right || (std::isnan(pair.left) && std::isnan(pair.right));
    if (is_equal) return;
    if (!comparison.first) comparison.first = pair;
    if (!std::isfinite(pair.left) || !std::isfinite(pair.right)) return;
    const auto size = [](const ValueDifference& one) { return std::abs(one.left - one.right); };
    if (!comparison.greatest || size(pair) > size(*comparison.greatest)) comparison.greatest = pair;
  }

  std::vector<NumberComparison> found_;
};

std::vector<SettingDifference> setting_differences(const RunFacts& left, const RunFacts& right) {
  std::vector<SettingDifference> differences;
  const auto value_of = [](const RunFacts& facts, const std::string& name) -> std::string {
    for (const auto& [other, text] : facts.settings) {
      if (other == name) return text;
    }
    return "";
  };
  for (const auto& [name, text] : left.settings) {
    const std::string other = value_of(right, name);
    if (other != text) differences.push_back({name, text, other});
  }
  for (const auto& [name, text] : right.settings) {
    if (value_of(left, name).empty()) differences.push_back({name, "", text});
  }
  return differences;
}

}  // namespace

bool RunComparison::has_equal_numbers() const {
  const auto is_equal = [](const NumberComparison& number) { return !number.first; };
  const auto is_common = [](const NumberComparison& number) { return number.num_common > 0; };
  return std::ranges::all_of(numbers, is_equal) && std::ranges::any_of(numbers, is_common);
}

double relative_difference(const ValueDifference& difference) {
  const double size = std::max(std::abs(difference.left), std::abs(difference.right));
  return size == 0 ? 0 : std::abs(difference.left - difference.right) / size;
}

RunComparison compare_runs(FileSystem& files, const ReportSources& left, const ReportSources& right) {
  RunComparison found{.left = read_run(files, left), .right = read_run(files, right)};
  for (const RunReport* run : {&found.left, &found.right}) {
    if (run->log_path.empty()) {
      throw InvalidArgument("{}: the folder has no log.jsonl or log.csv to compare; name a folder with a log",
                            run->path);
    }
  }
  const bool has_steps = found.left.num_step_records > 0 && found.right.num_step_records > 0;
  NumberComparer comparer;
  for (const char* kind : {has_steps ? "step" : "epoch", "evaluation"}) {
    comparer.run(StepCursor(files, found.left.log_path, kind), StepCursor(files, found.right.log_path, kind));
  }
  found.numbers = comparer.take();
  found.knows_settings = !found.left.runs.empty() && !found.right.runs.empty();
  if (found.knows_settings) found.settings = setting_differences(found.left.runs.back(), found.right.runs.back());
  const auto left_speed = found.left.speed.median();
  const auto right_speed = found.right.speed.median();
  if (left_speed && right_speed && *left_speed > 0) found.speed_ratio = *right_speed / *left_speed;
  return found;
}

}  // namespace tessera::tools
