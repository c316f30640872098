// These functions make constants and random tensors, and index tensors.
#pragma once

#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/tensor/tensor.h"

namespace tessera::ops {

// Every element is `value`, rounded to the dtype.
Value fill(ir::Graph& graph, const Shape& shape, double value, DType dtype = DType::kF32);
Value zeros_like(Value x);
Value ones_like(Value x);
// A small tensor as part of the graph. Throws InvalidArgument for an integer beyond 2^53, which a double cannot hold.
Value constant(ir::Graph& graph, const Tensor& tensor);
// start, start + delta, ... before limit; one dim. Throws InvalidArgument for delta 0, or an integer dtype and a start
// or delta that is not whole.
Value range(ir::Graph& graph, double start, double limit, double delta = 1, DType dtype = DType::kI32);

// Who draws random numbers: element i of a tensor is a function of (seed, stream, step, i) alone, so it depends on no
// layout, and a step that is repeated draws the same.
struct RandomSource {
  uint64_t seed = 0;
  uint64_t stream = 0;  // hash_name() of who draws, different for each operator of a network
};
// `step` is i64[]: which step of training it is.
Value random_uniform(Value step, const Shape& shape, const RandomSource& source, double low = 0, double high = 1,
                     DType dtype = DType::kF32);
Value random_normal(Value step, const Shape& shape, const RandomSource& source, double mean = 0, double sigma = 1,
                    DType dtype = DType::kF32);
// Draws within two standard deviations of 0.
Value random_truncated_normal(Value step, const Shape& shape, const RandomSource& source, double sigma = 1,
                              DType dtype = DType::kF32);
// x / keep_prob where a uniform draw is below keep_prob, else 0; x floating, keep_prob in (0, 1]. Where keep_prob is 1,
// the result is x.
Value dropout(Value x, Value step, double keep_prob, const RandomSource& source);

// indices (i32, i64 or u8) [...] -> [..., depth], the new dim at `axis` of the result: `on` at the index, `off`
// elsewhere; both have one dtype, the result's, and shape []. An index outside [0, depth) gives only `off`.
Value one_hot(Value indices, int64_t depth, Value on, Value off, int64_t axis = -1);
// Returns the same with 1 and 0 of a dtype.
Value one_hot(Value indices, int64_t depth, DType dtype = DType::kF32, int64_t axis = -1);
// The rows of `table` along `axis` at `indices`: shape table[:axis] + indices + table[axis+1:]. An index outside
// [0, size), a negative one too, stops the step.
Value gather(Value table, Value indices, int64_t axis = 0);
// base with the rows of `updates` added at `indices` along `axis`; equal indices add up, those outside are left out.
Value scatter_add(Value base, Value indices, Value updates, int64_t axis = 0);

}  // namespace tessera::ops
