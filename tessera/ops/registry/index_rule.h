// IndexRule: how an operator may be sharded, as an index expression. Equal names are one factor of the computation and
// are split together; `_` is a dim that cannot be split. "m k, k n -> m n": splitting m splits the first operand and
// the result; splitting k, which no result has, leaves a partial sum. A factor that is only in some operands is
// replicated in the others. "n c -> n : c=max" completes a split c with a maximum; =mean is a sum that localize must
// scale; with =whole localize completes the results itself, on every rank.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor/shape.h"

namespace tessera::ops {

enum class Completion { kSum, kMax, kMin, kProd, kMean, kWhole };

struct IndexRule {
  using Dims = std::vector<std::string>;  // one factor name per dim, "" where it cannot be split
  std::vector<Dims> inputs;
  std::vector<Dims> outputs;
  std::map<std::string, Completion> completions;  // how contracted factors are completed; by a sum where absent

  Completion completion(const std::string& factor) const;
  std::string to_string() const;
};

// Throws InvalidArgument naming the place that does not parse.
IndexRule parse_rule(std::string_view text);

// The rule of an elementwise operator with NumPy broadcasting: dims of size 1 that are stretched cannot be split.
IndexRule elementwise_rule(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs);
// Nothing can be split.
IndexRule replicated_rule(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs);

}  // namespace tessera::ops
