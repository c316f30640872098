// What a training records of the values of its steps, and what it compares them with (docs/bisect.md).
#pragma once

#include <string>

#include "tessera/base/error.h"

namespace tessera::train {

// A step has values that are not those of the run that it is compared with. The training's values are those behind the
// step.
class ValuesDiffer : public Error {
 public:
  using Error::Error;
};

struct ValueRecordOptions {
  std::string directory = {};     // where values are recorded, made where it is missing; "": nowhere
  std::string compare_with = {};  // the directory of an earlier run's records; "": none
  // Which steps, from 1, separated by commas: "5", "10-20", "100-" to the end, "*/50" every fiftieth. "": all.
  std::string steps = {};
  bool stops = true;  // throws ValuesDiffer at the first difference, on all ranks; else rank 0 warns of it, once

  bool is_on() const { return !directory.empty() || !compare_with.empty(); }
};

}  // namespace tessera::train
