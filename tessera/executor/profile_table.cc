#include "tessera/executor/profile_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::executor {

std::string profile_table(const Executor& executor, int64_t num_steps, ProfileRows rows) {
  std::map<std::string, double> sums;
  double total = 0;
  for (const StepTime& time : executor.profile()) {
    sums[rows == ProfileRows::kKernels ? time.kernel : time.kernel + "  " + time.source] += time.microseconds;
    total += time.microseconds;
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, microseconds] : sums) sorted.emplace_back(microseconds, name);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (const auto& [microseconds, name] : sorted) {
    text += fmt::format("{:10.1f} ms/step {:5.1f} %  {}\n", microseconds / 1000 / static_cast<double>(num_steps),
                        100 * microseconds / total, name);
  }
  const std::string note = executor.profile_note();
  return note.empty() ? text : text + note + "\n";
}

}  // namespace tessera::executor
