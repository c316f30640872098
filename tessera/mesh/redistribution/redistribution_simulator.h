// All ranks of a redistribution in one place, on small integer tensors: executes the steps literally, from the local
// values of a step's groups only, and counts what each rank receives. Independent of the search. Tests use it.
#pragma once

#include <map>
#include <vector>

#include "tessera/mesh/redistribution/redistribution.h"

namespace tessera::mesh {

class Simulator {
 public:
  // Contributions to a partial value are made up from `seed`; their sum (or maximum) is the global value.
  Simulator(const Shape& shape, const Layout& layout, uint64_t seed);

  // Executes the steps. "" if every rank then holds what `to` says, shapes and values, and each step's busiest rank
  // received what the step states; else what is wrong.
  std::string run(const Redistribution& redistribution, const Layout& to, int64_t element_bytes);

 private:
  struct Local {
    std::vector<int64_t> shape;
    std::vector<int64_t> values;  // row-major
  };
  using Locals = std::map<int, Local>;

  int64_t global_value(int64_t index) const;
  int64_t contribution(int64_t index, int64_t member, int64_t num_members, Reduction reduction) const;
  std::string apply(const RedistributionStep& step, const Layout& after, int64_t element_bytes);
  Local apply_to(const RedistributionStep& step, int rank, int64_t& received) const;
  std::string exchange(const Layout& after, Locals& next, std::map<int, int64_t>& received) const;
  std::string check_result() const;
  Local reduced(const std::vector<int>& members, Reduction reduction) const;

  Shape shape_;
  Layout layout_;
  uint64_t seed_;
  Locals locals_;
};

}  // namespace tessera::mesh
