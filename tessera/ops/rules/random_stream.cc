#include "tessera/ops/rules/random_stream.h"

#include "tessera/base/error.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/require.h"

namespace tessera::ops {

std::vector<AttributeDef> slice_attributes() {
  return {of_run({"global_shape", Ints{}, "of the tensor that this is a slice of; empty: the result's"}),
          {"offset", Ints{}, "of this slice in it; empty: zeros"}};
}

std::vector<AttributeDef> stream_attributes() {
  std::vector<AttributeDef> attributes = {
      of_run({"seed", std::nullopt, "the user's seed (64 bits)"}),
      {"stream", std::nullopt, "who draws: a hash of the operator's name and call count (64 bits)"}};
  for (auto& attribute : slice_attributes()) attributes.push_back(std::move(attribute));
  return attributes;
}

void check_step(const Type& step) {
  require_scalar(step, "step");
  if (step.dtype != DType::kI64) throw InvalidArgument("step must be i64, got {}; cast it", step);
}

void check_slice(const Attributes& attributes, const Shape& shape) {
  const Ints& global = attributes.get_ints("global_shape");
  const Ints& offset = attributes.get_ints("offset");
  const auto ndim = static_cast<size_t>(shape.ndim());
  if ((!global.empty() && global.size() != ndim) || (!offset.empty() && offset.size() != ndim)) {
    throw InvalidArgument("global_shape and offset must be empty or have an entry for each of the {} dims", ndim);
  }
  for (size_t d = 0; d < ndim; ++d) {
    const int64_t size = global.empty() ? shape[static_cast<int>(d)] : global[d];
    const int64_t from = offset.empty() ? 0 : offset[d];
    const int64_t end = sum_of_sizes(from, shape[static_cast<int>(d)]);
    if (from < 0 || end > size) {
      throw InvalidArgument("dim {}: [{}, {}) must lie inside the global size {}", d, from, end, size);
    }
  }
}

void check_stream(const Attributes& attributes, const Type& step, const Shape& shape) {
  attributes.get_int("seed");
  attributes.get_int("stream");
  check_step(step);
  check_slice(attributes, shape);
}

void localize_stream(const LocalizeContext& context, Attributes& attributes) {
  if (attributes.get_ints("global_shape").empty()) {
    attributes.set("global_shape", ints_of(context.global_outputs[0].shape));
  }
  Ints offset = attributes.get_ints("offset");
  offset.resize(static_cast<size_t>(context.global_outputs[0].shape.ndim()));
  for (size_t d = 0; d < offset.size(); ++d) offset[d] += context.output_slices[0][d].offset;
  attributes.set("offset", offset);
}

}  // namespace tessera::ops
