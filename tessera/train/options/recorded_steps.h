// RecordedSteps: which steps of a training are recorded, as a text says it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tessera::train {

class RecordedSteps {
 public:
  // "": all. Else steps, from 1, separated by commas: "5", "10-20", "100-" to the end, "*/50" every fiftieth. Throws
  // InvalidArgument naming what is none of these.
  explicit RecordedSteps(const std::string& text);

  bool contains(int64_t step) const;

 private:
  struct Range {
    int64_t first = 1;
    int64_t last = std::numeric_limits<int64_t>::max();
    int64_t every = 1;
  };
  std::vector<Range> ranges_;
};

}  // namespace tessera::train
