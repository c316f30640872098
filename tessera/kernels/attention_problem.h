// What a kernel of attention or of its gradient is asked: sizes, settings, which keys a query sees, what dropout draws.
// Read from the request once; the addresses come with each run.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "tessera/base/random.h"
#include "tessera/tensor/kernel.h"

namespace tessera::kernels {

struct AttentionProblem {
  int64_t batch, queries, keys, heads, depth, value_depth;
  double scale, keep_prob;
  bool causal;
  std::optional<size_t> mask, step;  // operands
  Strides mask_strides;              // over [batch, heads, queries, keys]; 0 along a dim of size 1
  // These queries are a slice of a whole: where the slice begins, and how large the whole is.
  std::array<int64_t, 3> first;  // batch row, query and head
  int64_t all_queries, all_heads;

  // `query`: which operand it is; key and value follow. `num_fixed`: operands before the mask and the step.
  AttentionProblem(const KernelRequest& request, size_t query, size_t num_fixed) {
    const Attributes& attributes = request.attributes;
    const Shape& q = request.inputs[query].shape;
    batch = q[0];
    queries = q[1];
    heads = q[2];
    depth = q[3];
    keys = request.inputs[query + 1].shape[1];
    value_depth = request.inputs[query + 2].shape[3];
    scale = attributes.get_double("scale");
    keep_prob = attributes.get_double("keep_prob");
    causal = attributes.get_bool("causal");
    if (keep_prob < 1) step = request.inputs.size() - 1;
    if (request.inputs.size() > num_fixed + (step ? 1 : 0)) mask = num_fixed;
    if (mask) {
      const TensorView& view = request.inputs[*mask];
      mask_strides = view.strides;
      for (int dim = 0; dim < 4; ++dim) {
        if (view.shape[dim] == 1) mask_strides[dim] = 0;
      }
    }
    const Ints& shape = attributes.get_ints("global_shape");
    const Ints& offset = attributes.get_ints("offset");
    all_queries = shape.empty() ? queries : shape[1];
    all_heads = shape.empty() ? heads : shape[2];
    for (size_t dim = 0; dim < first.size(); ++dim) first[dim] = offset.empty() ? 0 : offset[dim];
  }

  // A query sees the keys [0, this), as far as the mask lets it.
  int64_t visible(int64_t query) const { return causal ? std::clamp<int64_t>(first[1] + query + 1, 0, keys) : keys; }
  int64_t mask_offset(int64_t row, int64_t head, int64_t query) const {
    return row * mask_strides[0] + head * mask_strides[1] + query * mask_strides[2];
  }
  // Where in its stream the draws of a query's weights begin; those of its keys follow.
  uint64_t first_draw(int64_t row, int64_t head, int64_t query) const {
    const int64_t position = (first[0] + row) * all_queries + first[1] + query;
    return static_cast<uint64_t>((position * all_heads + first[2] + head) * keys);
  }
  RandomStream stream(const KernelArgs& args) const {
    return {static_cast<uint64_t>(args.attributes.get_int("seed")),
            static_cast<uint64_t>(args.attributes.get_int("stream")),
            static_cast<uint64_t>(*args.inputs[*step].as<int64_t>())};
  }
};

}  // namespace tessera::kernels
