// reduce_sum and its like, and all_finite.
#include <algorithm>

#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/reduce/reduction.h"
#include "tessera/kernels/cuda/reduce/selection.h"

namespace tessera::cuda {
namespace {

ReducedDims reduced_dims(const KernelRequest& request) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  const Ints& axes = request.attributes.get_ints("axes");
  const bool keep_dims = request.attributes.get_bool("keep_dims");
  ReducedDims dims;
  int out = 0;
  for (int d = 0; d < x.shape.ndim(); ++d) {
    if (std::find(axes.begin(), axes.end(), d) != axes.end()) {
      dims.reduced.push_back(x.shape[d]);
      dims.reduced_in.push_back(x.strides[d]);
      if (keep_dims) ++out;
    } else {
      dims.kept.push_back(x.shape[d]);
      dims.kept_in.push_back(x.strides[d]);
      dims.kept_out.push_back(y.strides[out++]);
    }
  }
  return dims;
}

// The least and the largest number of a dtype.
std::string lowest(DType dtype) {
  switch (dtype) {
    case DType::kU8: return "u8(0)";
    case DType::kI32: return "i32(0x80000000U)";
    case DType::kI64: return "i64(0x8000000000000000ULL)";
    default: return literal(-INFINITY, dtype);
  }
}
std::string highest(DType dtype) {
  switch (dtype) {
    case DType::kU8: return "u8(255)";
    case DType::kI32: return "i32(0x7FFFFFFF)";
    case DType::kI64: return "i64(0x7FFFFFFFFFFFFFFFLL)";
    default: return literal(INFINITY, dtype);
  }
}

// An accumulator that is written as an element of the result.
ReductionText reduction_in(const KernelRequest& request, DType accumulator) {
  // Rounded to the operand's dtype first, as where f32 is multiplied in f64.
  const DType computed = computed_in(request.inputs[0].dtype);
  return {.accumulator = to_string(accumulator),
          .taken = fmt::format("{}(wide(x))", to_string(accumulator)),
          .ended = fmt::format("{}({}(a))", to_string(request.outputs[0].dtype), to_string(computed))};
}

// Integers are added modulo 2^32 or 2^64, which their shorter type cuts off.
DType sums_in(DType dtype) {
  if (is_floating(dtype)) return computed_in(dtype);
  return dtype == DType::kI64 ? DType::kI64 : DType::kI32;
}

std::optional<DeviceProgram> write_sum(const KernelRequest& request, const Gpu& gpu) {
  const DType dtype = sums_in(request.inputs[0].dtype);
  ReductionText sum = reduction_in(request, dtype);
  sum.begin = literal(0, dtype);
  sum.combined = "wrapping_add(a, b)";
  return write_reduction(request, gpu, sum, reduced_dims(request));
}

std::optional<DeviceProgram> write_mean(const KernelRequest& request, const Gpu& gpu) {
  const ReducedDims dims = reduced_dims(request);
  const DType dtype = computed_in(request.inputs[0].dtype);
  ReductionText mean = reduction_in(request, dtype);
  mean.begin = literal(0, dtype);
  mean.combined = "a + b";
  mean.ended = fmt::format("{}(a / {})", to_string(request.outputs[0].dtype),
                           literal(static_cast<double>(dims.reduced.num_elements()), dtype));
  return write_reduction(request, gpu, mean, dims);
}

// In f64 where the host does: a product of many overflows sooner than their sum.
std::optional<DeviceProgram> write_prod(const KernelRequest& request, const Gpu& gpu) {
  const DType operand = request.inputs[0].dtype;
  const DType dtype = is_floating(operand) ? DType::kF64 : sums_in(operand);
  ReductionText product = reduction_in(request, dtype);
  product.begin = literal(1, dtype);
  product.combined = "wrapping_mul(a, b)";
  return write_reduction(request, gpu, product, reduced_dims(request));
}

std::optional<DeviceProgram> write_extreme(const KernelRequest& request, const Gpu& gpu, bool largest) {
  const DType operand = request.inputs[0].dtype;
  const DType dtype = sums_in(operand);
  ReductionText extreme = reduction_in(request, dtype);
  extreme.begin = operand == DType::kU8 ? fmt::format("i32({})", largest ? lowest(operand) : highest(operand))
                                        : (largest ? lowest(dtype) : highest(dtype));
  extreme.combined = fmt::format("std::isnan(a) || a {} b ? a : b", largest ? ">" : "<");
  return write_reduction(request, gpu, extreme, reduced_dims(request));
}
std::optional<DeviceProgram> write_max(const KernelRequest& request, const Gpu& gpu) {
  return write_extreme(request, gpu, true);
}
std::optional<DeviceProgram> write_min(const KernelRequest& request, const Gpu& gpu) {
  return write_extreme(request, gpu, false);
}

// 0 or 1.
ReductionText truth(const char* begin, const char* taken, const char* combined) {
  return {.accumulator = "i32", .begin = begin, .taken = taken, .combined = combined, .ended = "a != 0"};
}
std::optional<DeviceProgram> write_all(const KernelRequest& request, const Gpu& gpu) {
  return write_reduction(request, gpu, truth("1", "x", "a & b"), reduced_dims(request));
}
std::optional<DeviceProgram> write_any(const KernelRequest& request, const Gpu& gpu) {
  return write_reduction(request, gpu, truth("0", "x", "a | b"), reduced_dims(request));
}

std::optional<DeviceProgram> write_all_finite(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  return write_reduction(request, gpu, truth("1", "std::isfinite(wide(x))", "a & b"),
                         {.reduced = x.shape, .reduced_in = x.strides});
}

}  // namespace

void add_reductions(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "reduce_sum", write_sum);
  add_writer(registry, gpu, "reduce_mean", write_mean);
  add_writer(registry, gpu, "reduce_max", write_max);
  add_writer(registry, gpu, "reduce_min", write_min);
  add_writer(registry, gpu, "reduce_prod", write_prod);
  add_writer(registry, gpu, "reduce_all", write_all);
  add_writer(registry, gpu, "reduce_any", write_any);
  add_writer(registry, gpu, "all_finite", write_all_finite);
  add_selections(registry, gpu);
}

}  // namespace tessera::cuda
