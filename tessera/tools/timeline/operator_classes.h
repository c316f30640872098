// The operators of a timeline by what they are, matmul or relu, with what the machine could do each class in at best.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/engine.h"

namespace tessera::tools {

// All operators that have one name; their numbers are those of a step and rank.
struct OperatorClass {
  std::string name;           // "matmul"
  int64_t num_operators = 0;  // of the network
  double calls = 0;
  double seconds = 0;
  double share = 0;  // of the step
  double flops = 0;
  double bytes = 0;
  std::optional<double> limit_seconds;      // absent unless each of them has a limit
  std::optional<double> predicted_seconds;  // absent unless each of them is predicted
};

// Returns the classes of the operators of a summary, the longest first.
std::vector<OperatorClass> operator_classes(const timeline::TimelineSummary& summary);

// The share of its time that the class would take at its limit, which may be above 1: the profile is of another machine
// then, or what is read lies in a cache. Absent without a limit or a time.
std::optional<double> share_of_limit(const OperatorClass& operators);

}  // namespace tessera::tools
