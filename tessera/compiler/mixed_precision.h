// Mixed precision: a network that is written in f32 computes in a half type where that is safe. It is a rewrite of the
// traced forward graph before it is differentiated, so that every cast is a node, and its gradient a cast back:
// parameters, their gradients and what updates them stay f32.
//
// Each operator says what it computes in (ops::MixedPrecision): contractions in the low dtype, what would lose digits
// in f32, everything else in what its operands are. Parameters and constants decide nothing there: a bias is added in
// the dtype of what it is added to.
#pragma once

#include "tessera/ir/graph.h"

namespace tessera::compiler {

struct Precision {
  // The low dtype, bf16 or f16; f32: only what nodes ask for (ir::Node::compute_dtype) is done.
  DType compute = DType::kF32;
  // Scales and shifts of normalisations are f32. Their statistics always are.
  bool keep_norms_f32 = true;
  // Sums, softmax, exponentials, ... in f32. What nodes ask for, the losses among them, holds all the same.
  bool keep_sums_f32 = true;
  bool operator==(const Precision&) const = default;
};

// The graph with casts. Inputs and outputs keep their types; a value is cast at most once to each dtype; what is not
// f32 stays as it is. Throws InvalidArgument for a compute dtype that is none of the above.
ir::Graph rewrite_precision(const ir::Graph& forward, const Precision& precision);

}  // namespace tessera::compiler
