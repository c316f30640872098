#include "tessera/solver/problem/time_points.h"

#include <algorithm>
#include <map>

namespace tessera::solver {
namespace {

int64_t largest(const ProblemNode& node) { return *std::max_element(node.usages.begin(), node.usages.end()); }

bool counts(const ProblemNode& node) { return node.begin < node.end && largest(node) > 0; }

}  // namespace

TimePoints time_points(const Problem& problem) {
  struct Change {
    bool begins = false, ends = false;
    double usage = 0;  // of the largest choices; a double does not overflow
  };
  std::map<int64_t, Change> changes;
  for (const ProblemNode& node : problem.nodes) {
    if (!counts(node)) continue;
    Change& begin = changes[node.begin];
    begin.begins = true;
    begin.usage += static_cast<double>(largest(node));
    Change& end = changes[node.end];
    end.ends = true;
    end.usage -= static_cast<double>(largest(node));
  }
  // A set of living nodes is largest where a node begins and the next change is that one ends.
  std::vector<int64_t> kept;
  double usage = 0;
  for (auto it = changes.begin(); it != changes.end(); ++it) {
    usage += it->second.usage;
    const auto next = std::next(it);
    if (it->second.begins && next != changes.end() && next->second.ends &&
        usage > 0.999999 * static_cast<double>(problem.usage_limit)) {  // sums of doubles are nearly exact
      kept.push_back(it->first);
    }
  }
  TimePoints points{.count = static_cast<int>(kept.size()), .ranges = {}};
  for (const ProblemNode& node : problem.nodes) {
    if (!counts(node)) {
      points.ranges.emplace_back(0, 0);
      continue;
    }
    const auto at = [&](int64_t time) {
      return static_cast<int>(std::lower_bound(kept.begin(), kept.end(), time) - kept.begin());
    };
    points.ranges.emplace_back(at(node.begin), at(node.end));
  }
  return points;
}

}  // namespace tessera::solver
