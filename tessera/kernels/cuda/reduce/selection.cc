#include "tessera/kernels/cuda/reduce/selection.h"

#include <algorithm>

#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {
namespace {

constexpr int kWarps = 8;  // of a block; each has a row

// A row is what lies along one dim. A warp walks each row; the operands' offsets of its first element are declared.
std::string loop_over_rows(const ViewWalk& walk) {
  return fmt::format(
             "const int lane = threadIdx.x % 32;\n"
             "for (i64 row = i64(blockIdx.x) * {0} + threadIdx.x / 32; row < {1}; row += i64(gridDim.x) * {0}) {{\n",
             kWarps, walk.shape.num_elements()) +
         offsets_text(walk.shape, walk.views, "row");
}

int64_t blocks_of(const Gpu& gpu, const ViewWalk& walk) {
  return blocks_for(gpu, walk.shape.num_elements() * 32, kWarps * 32);
}

Shape without(const Shape& shape, int dim) {
  Shape rest;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (d != dim) rest.push_back(shape[d]);
  }
  return rest;
}

// precedes(x, i, y, j): whether x comes before y in descending order, NaN first; of equal ones the lower index, none of
// which is negative. first_of_warp has all lanes know the first of theirs.
std::string order_functions(DType dtype) {
  return fmt::format(
      "using C = {};\n"
      "TESSERA_DEVICE bool precedes(C x, int i, C y, int j) {{\n"
      "  if (i < 0 || j < 0) return i >= 0;\n"
      "  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && (!std::isnan(y) || i < j);\n"
      "  return x > y || (x == y && i < j);\n}}\n"
      "TESSERA_DEVICE void first_of_warp(C& x, int& i) {{\n"
      "  for (int far = 16; far > 0; far /= 2) {{\n"
      "    const C y = C(__shfl_xor_sync(0xFFFFFFFFU, x, far));\n"
      "    const int j = __shfl_xor_sync(0xFFFFFFFFU, i, far);\n"
      "    if (precedes(y, j, x, i)) {{ x = y; i = j; }}\n  }}\n}}\n",
      to_string(computed_in(dtype)));
}

// The first of the elements of a row that `condition` holds for, in `best` and `best_at`.
std::string find_text(int64_t size, int64_t stride, const std::string& condition) {
  return fmt::format(
      "C best = C(0);\nint best_at = -1;\n"
      "#pragma unroll 4\nfor (int i = lane; i < {0}; i += 32) {{\n"
      "const C x = wide(in0[p + i * {1}LL]);\n"
      "if ({2}precedes(x, i, best, best_at)) {{ best = x; best_at = i; }}\n}}\n"
      "first_of_warp(best, best_at);\n",
      size, stride, condition);
}

std::optional<DeviceProgram> write_argmax(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda.argmax", .functions = order_functions(x.dtype)};
  if (y.num_elements() == 0) return program;
  const int axis = normalize_axis(request.attributes.get_int("axis"), x.shape.ndim(), "axis");
  const ViewWalk walk = in_order_of_first(y.shape, {{"p", without(x.strides, axis)}, {"q", y.strides}});
  program.phases.push_back({.body = loop_over_rows(walk) + find_text(x.shape[axis], x.strides[axis], "") +
                                    "if (lane == 0) out0[q] = best_at < 0 ? 0 : best_at;\n}\n",
                            .blocks = blocks_of(gpu, walk),
                            .threads = kWarps * 32});
  return program;
}

// Each of the k elements is the first behind the one before.
std::optional<DeviceProgram> write_top_k(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  const TensorView& values = request.outputs[0];
  const TensorView& indices = request.outputs[1];
  const int last = x.shape.ndim() - 1;
  DeviceProgram program{.name = "cuda.top_k", .functions = order_functions(x.dtype)};
  if (values.num_elements() == 0) return program;
  const ViewWalk walk = in_order_of_first(
      without(x.shape, last),
      {{"p", without(x.strides, last)}, {"q", without(values.strides, last)}, {"n", without(indices.strides, last)}});
  std::string body = loop_over_rows(walk) + "C previous = C(0);\nint previous_at = -1;\n";
  body += fmt::format("for (int k = 0; k < {}; ++k) {{\n", values.shape[last]);
  body += find_text(x.shape[last], x.strides[last], "(k == 0 || precedes(previous, previous_at, x, i)) && ");
  body += fmt::format(
      "if (lane == 0) {{\nout0[q + k * {0}LL] = in0[p + best_at * {1}LL];\nout1[n + k * {2}LL] = best_at;\n}}\n"
      "previous = best;\nprevious_at = best_at;\n}}\n}}\n",
      values.strides[last], x.strides[last], indices.strides[last]);
  program.phases.push_back({.body = std::move(body), .blocks = blocks_of(gpu, walk), .threads = kWarps * 32});
  return program;
}

// Each element of dx looks for the indices that name it, and adds what they bring in their order.
std::optional<DeviceProgram> write_top_k_grad(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& dy = request.inputs[0];
  const TensorView& indices = request.inputs[1];
  const TensorView& dx = request.outputs[0];
  const int last = dy.shape.ndim() - 1;
  DeviceProgram program{.name = "cuda.top_k_grad"};
  if (dx.num_elements() == 0) return program;
  Strides dy_rows = dy.strides;
  Strides index_rows = indices.strides;
  Strides places = dx.strides;
  for (int d = 0; d <= last; ++d) places[d] = d == last ? 1 : 0;
  dy_rows[last] = 0;
  index_rows[last] = 0;
  const ViewWalk walk =
      in_order_of_first(dx.shape, {{"q", dx.strides}, {"p", dy_rows}, {"n", index_rows}, {"place", places}});
  const int64_t count = dx.num_elements();
  const char* dtype = to_string(dx.dtype);
  std::string body = loop_text(index_type(walk.shape, walk.views), "i", count) +
                     offsets_text(walk.shape, walk.views, "i") + fmt::format("{0} sum = {0}(0.0f);\n", dtype);
  body += fmt::format(
      "for (int k = 0; k < {0}; ++k) {{\n"
      "if (i64(in1[n + k * {1}LL]) == i64(place)) sum = {2}(wide(sum) + wide(in0[p + k * {3}LL]));\n}}\n"
      "out0[q] = sum;\n}}\n",
      dy.shape[last], indices.strides[last], dtype, dy.strides[last]);
  program.phases.push_back({.body = std::move(body), .blocks = blocks_for(gpu, count)});
  return program;
}

// A warp adds up 32 elements at a time.
std::optional<DeviceProgram> write_cumsum(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda.cumsum"};
  if (y.num_elements() == 0) return program;
  const int axis = normalize_axis(request.attributes.get_int("axis"), x.shape.ndim(), "axis");
  const int64_t size = x.shape[axis];
  const ViewWalk walk =
      in_order_of_first(without(x.shape, axis), {{"p", without(x.strides, axis)}, {"q", without(y.strides, axis)}});
  const bool exclusive = request.attributes.get_bool("exclusive");
  const bool reverse = request.attributes.get_bool("reverse");
  // Floats are added in f64, as the host does; whatever their number.
  const DType sums = is_floating(x.dtype) ? DType::kF64 : x.dtype == DType::kI64 ? DType::kI64 : DType::kI32;
  std::string body = loop_over_rows(walk);
  body += fmt::format(
      "{0} before = {0}(0);\n"
      "for (i64 k = lane; k - lane < {1}; k += 32) {{\n"
      "const i64 i = {2};\n"
      "const {0} own = k < {1} ? {0}(wide(in0[p + i * {3}])) : {0}(0);\n"
      "{0} sum = own;\n"
      "for (int far = 1; far < 32; far *= 2) {{\n"
      "  const {0} other = __shfl_sync(0xFFFFFFFFU, sum, (lane - far) & 31);\n"
      "  if (lane >= far) sum = wrapping_add(sum, other);\n}}\n",
      to_string(sums), size, reverse ? fmt::format("{} - k", size - 1) : "k", x.strides[axis]);
  // A sum less its own element would not be exact.
  if (exclusive) {
    body += fmt::format(
        "const {0} left = __shfl_sync(0xFFFFFFFFU, sum, (lane - 1) & 31);\n"
        "const {0} shown = lane > 0 ? left : {0}(0);\n",
        to_string(sums));
  } else {
    body += "const auto shown = sum;\n";
  }
  body += fmt::format(
      "if (k < {0}) out0[q + i * {1}] = {2}({3}(wrapping_add(before, shown)));\n"
      "before = wrapping_add(before, __shfl_sync(0xFFFFFFFFU, sum, 31));\n}}\n}}\n",
      size, y.strides[axis], to_string(y.dtype), to_string(computed_in(x.dtype)));
  program.phases.push_back({.body = std::move(body), .blocks = blocks_of(gpu, walk), .threads = kWarps * 32});
  return program;
}

}  // namespace

void add_selections(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "argmax", write_argmax);
  add_writer(registry, gpu, "top_k", write_top_k);
  add_writer(registry, gpu, "top_k_grad", write_top_k_grad);
  add_writer(registry, gpu, "cumsum", write_cumsum);
}

}  // namespace tessera::cuda
