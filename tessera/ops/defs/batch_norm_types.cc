#include "tessera/ops/defs/batch_norm_types.h"

#include "tessera/base/error.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/batch_norm_operands.h"

namespace tessera::ops {

Type batch_norm_statistics_of(const Attributes& attributes, const Type& x) {
  require_floating(x, "x");
  if (x.shape.ndim() < 2 || x.shape.ndim() > 5) {
    throw InvalidArgument("x must have 2 to 5 dims [n,c,...], has {}", x.shape.ndim());
  }
  const Ints& counts = attributes.get_ints("counts");
  const DType dtype = statistics_dtype(x.dtype);
  const int64_t pixels = pixels_of(x.shape);
  for (const int64_t count : counts) {
    if (count < 0) throw InvalidArgument("counts must not be negative, one is {}", count);
  }
  if (!attributes.get_bool("grouped")) {
    if (counts.size() != 1) throw InvalidArgument("counts must be one number unless grouped, has {}", counts.size());
    // A rank holds a part of what is averaged, never more than all.
    if (counts[0] < x.shape[0] * pixels) {
      throw InvalidArgument("counts is {}, x alone has {} elements per channel", counts[0], x.shape[0] * pixels);
    }
    return {dtype, {x.shape[1]}};
  }
  if (pixels == 0) throw InvalidArgument("grouped statistics need images with pixels");
  int64_t rows = 0;
  for (const int64_t count : counts) {
    if (count % pixels != 0) {
      throw InvalidArgument("a group of {} elements is no whole number of rows of {}", count, pixels);
    }
    rows = sum_of_sizes(rows, count / pixels);
  }
  if (rows != x.shape[0]) throw InvalidArgument("the groups have {} rows, x has {}", rows, x.shape[0]);
  return {dtype, {static_cast<int64_t>(counts.size()), x.shape[1]}};
}

void require_channels(const Type& given, const Type& x, std::string_view what) {
  if (given.dtype != x.dtype && given.dtype != statistics_dtype(x.dtype)) {
    throw InvalidArgument("{} must be {}, is {}; cast it", what, statistics_dtype(x.dtype), given.dtype);
  }
  require_shape(given, {x.shape[1]}, what);
}

std::vector<AttributeDef> batch_norm_attributes(std::vector<AttributeDef> more) {
  more.push_back({"counts", std::nullopt,
                  "number of elements that each statistic averages over, in the global batch: one; or one per group"});
  more.push_back({"grouped", false, "statistics [G,c] of G consecutive groups of rows instead of [c] of all"});
  return more;
}

AttributeDef eps_attribute() { return {"eps", 1e-5, "added to the variance"}; }

Type BatchNormExample::statistics() const {
  const DType wide = statistics_dtype(dtype);
  return grouped ? Type{wide, {static_cast<int64_t>(counts.size()), x[1]}} : Type{wide, {x[1]}};
}

Type BatchNormExample::channels() const { return {statistics_dtype(dtype), {x[1]}}; }

std::vector<BatchNormExample> batch_norm_examples() {
  return {{DType::kF32, {4, 3, 3, 2}, {24}},
          {DType::kF64, {5, 2}, {5}},
          {DType::kF32, {3, 17, 5}, {15}},
          {DType::kF64, {2, 3, 2, 2, 2}, {16}},
          {DType::kF32, {5, 3, 2, 2}, {12, 8}, true},
          {DType::kF64, {4, 2}, {2, 1, 1}, true},
          {DType::kBF16, {4, 3, 3, 2}, {24}},
          {DType::kF16, {3, 2, 4}, {4, 8}, true},
          {DType::kF32, {0, 3, 2, 2}, {0}}};
}

}  // namespace tessera::ops
