// What a log's record of kind "run" says of the training step: its plan, and its memory operation by operation.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tools/report/curve.h"

namespace tessera::tools {

// How a parameter, a state or a column lies on the ranks.
struct ValueFacts {
  std::string name;
  std::string kind;   // "param", "state", "input"
  std::string type;   // of the whole value
  std::string split;  // "": whole on every rank
  int64_t bytes = 0;
  int64_t rank_bytes = 0;  // on the rank that wrote the log
};

struct PlanFacts {
  std::string mesh;
  int64_t num_operators = 0;
  int64_t num_split_operators = 0;
  std::optional<double> predicted_seconds;
  std::optional<double> searched_seconds;
  std::optional<double> bound_seconds;
  int64_t parameter_bytes = 0;
  int64_t rank_parameter_bytes = 0;
  int64_t state_bytes = 0;
  int64_t rank_state_bytes = 0;
  std::vector<ValueFacts> values;  // the largest ones
};

// A value that lives at the peak.
struct PeakFacts {
  std::string name;
  std::string type;
  int64_t bytes = 0;
  std::string made_by;
  std::string last_read_by;
};

struct MemoryFacts {
  int64_t arena_bytes = 0;
  int64_t parameter_bytes = 0;
  int64_t state_bytes = 0;
  int64_t planned_bytes = 0;
  int64_t num_operations = 0;
  int64_t peak_bytes = 0;
  int64_t peak_operation = 0;
  std::string peak_name;
  std::vector<PeakFacts> at_peak;  // the largest ones
  std::vector<CurvePoint> alive;   // bytes by operation, in order
};

// The members "plan" and "memory" of the record, which is an object; absent where it has none, as those of earlier
// versions. What they lack is empty.
std::optional<PlanFacts> plan_facts_of(const nlohmann::ordered_json& record);
std::optional<MemoryFacts> memory_facts_of(const nlohmann::ordered_json& record);

// "[data=4]; 12 of 20 operators are split over the ranks; a step is predicted to take 13.3 ms": the plan in a line.
std::string plan_line(const PlanFacts& plan);
// How good the plan is, in a sentence: what a search has proven of it, or that none was made.
std::string plan_verdict(const PlanFacts& plan);
// "3.4 GiB are alive at most, at operation 41 of 120, conv2d "stem", beside 1.2 GiB of parameters and 0 B of states".
std::string memory_line(const MemoryFacts& memory);

}  // namespace tessera::tools
