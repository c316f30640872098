// Products of matrices in tiles, for what no library takes; and products with what is done to each of their elements.
#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/elementwise/element_program.h"

namespace tessera::cuda {
namespace {

constexpr int kTile = 32;

// A matrix of a view as a transposition flag reads it, and the dims in front.
struct Matrix {
  int64_t rows, columns, row_stride, column_stride;
  Shape batch;
  Strides batch_strides;

  Matrix(const TensorView& view, bool transposed) {
    const int ndim = view.shape.ndim();
    const int row = transposed ? ndim - 1 : ndim - 2;
    const int column = transposed ? ndim - 2 : ndim - 1;
    rows = view.shape[row];
    columns = view.shape[column];
    row_stride = view.strides[row];
    column_stride = view.strides[column];
    for (int d = 0; d < ndim - 2; ++d) {
      batch.push_back(view.shape[d]);
      batch_strides.push_back(view.strides[d]);
    }
  }
};

// The body of a product: `finish` stores `sum`, the element (row, column) of matrix number `entry`.
ProgramPhase product_phase(const KernelRequest& request, const TensorView& out, const std::string& type,
                           const std::string& finish) {
  const Matrix a(request.inputs[0], request.attributes.get_bool("transpose_a"));
  const Matrix b(request.inputs[1], request.attributes.get_bool("transpose_b"));
  const Matrix c(out, false);
  const int64_t row_tiles = (c.rows + kTile - 1) / kTile;
  const int64_t column_tiles = (c.columns + kTile - 1) / kTile;
  std::string body = fmt::format(
      "constexpr int TILE = {0};\n__shared__ {1} left[TILE][TILE + 1], right[TILE][TILE + 1];\n"
      "const int tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;\n"
      "const i64 column_tile = blockIdx.x % {2}, row_tile = blockIdx.x / {2} % {3}, entry = blockIdx.x / {4};\n"
      "const i64 column = column_tile * TILE + tx;\n{1} sums[4] = {{}};\n",
      kTile, type, column_tiles, row_tiles, row_tiles * column_tiles);
  body += offsets_text(a.batch, {{"batch_a", a.batch_strides}, {"batch_b", b.batch_strides}}, "entry");
  body += fmt::format(
      "for (i64 k0 = 0; k0 < {0}; k0 += TILE) {{\n"
      "#pragma unroll\nfor (int l = 0; l < 4; ++l) {{\nconst i64 row = row_tile * TILE + ty + 8 * l, k = k0 + ty + 8 * "
      "l;\n"
      "left[ty + 8 * l][tx] = row < {1} && k0 + tx < {0} ? {2}(wide(in0[batch_a + row * {3} + (k0 + tx) * {4}])) : "
      "{2}(0);\n"
      "right[ty + 8 * l][tx] = k < {0} && column < {5} ? {2}(wide(in1[batch_b + k * {6} + column * {7}])) : "
      "{2}(0);\n}}\n"
      "__syncthreads();\n#pragma unroll 8\nfor (int k = 0; k < TILE; ++k) {{\n#pragma unroll\nfor (int l = 0; l < 4; "
      "++l) "
      "sums[l] = wrapping_add<{2}>(sums[l], wrapping_mul<{2}>(left[ty + 8 * l][k], "
      "right[k][tx]));\n}}\n__syncthreads();\n}}\n",
      a.columns, c.rows, type, a.row_stride, a.column_stride, c.columns, b.row_stride, b.column_stride);
  body += fmt::format(
      "#pragma unroll\nfor (int l = 0; l < 4; ++l) {{\nconst i64 row = row_tile * TILE + ty + 8 * l;\n"
      "if (row >= {0} || column >= {1}) continue;\nconst {2} sum = sums[l];\n{3}}}\n",
      c.rows, c.columns, type, finish);
  return {.body = body, .blocks = row_tiles * column_tiles * c.batch.num_elements(), .threads = 8 * kTile};
}

std::optional<DeviceProgram> write_matmul(const KernelRequest& request, const Gpu&) {
  const TensorView& out = request.outputs[0];
  if (out.dtype == DType::kBool) return std::nullopt;
  DeviceProgram program{.name = "cuda." + request.op};
  if (out.num_elements() == 0) return program;
  const Matrix c(out, false);
  const std::string finish = offsets_text(c.batch, {{"batch_c", c.batch_strides}}, "entry") +
                             fmt::format("out0[batch_c + row * {} + column * {}] = {}(sum);\n", c.row_stride,
                                         c.column_stride, to_string(out.dtype));
  program.phases.push_back(product_phase(request, out, to_string(computed_in(request.inputs[0].dtype)), finish));
  return program;
}

std::optional<DeviceProgram> write_fused_matmul(const KernelRequest& request, const Gpu&) {
  const TensorView& out = request.outputs[0];
  DeviceProgram program{.name = "cuda.fused_matmul"};
  if (out.num_elements() == 0) return program;
  bool in_f64 = request.inputs[0].dtype == DType::kF64;
  for (const auto& view : request.outputs) in_f64 = in_f64 || view.dtype == DType::kF64;
  for (size_t i = 2; i < request.inputs.size(); ++i) in_f64 = in_f64 || request.inputs[i].dtype == DType::kF64;
  const auto elements = parse_element_program(request.attributes.get_string("program"), request.inputs.size() - 1,
                                              request.outputs.size(), in_f64);
  const std::string type = to_string(elements.computed);
  // The element's place in every operand and result.
  std::vector<NamedStrides> views;
  for (size_t o = 0; o < request.outputs.size(); ++o)
    views.push_back({fmt::format("q{}", o), request.outputs[o].strides});
  for (size_t i = 2; i < request.inputs.size(); ++i) {
    views.push_back({fmt::format("p{}", i), stretched(request.inputs[i], out.shape)});
  }
  const int last = out.shape.ndim() - 1;
  std::string finish =
      fmt::format("const i64 element = (entry * {} + row) * {} + column;\n", out.shape[last - 1], out.shape[last]);
  finish += offsets_text(out.shape, views, "element") + fmt::format("const {0} a0 = {0}(sum);\n", type);
  for (size_t i = 2; i < request.inputs.size(); ++i) {
    finish += fmt::format("const {0} a{1} = static_cast<{0}>(wide(in{2}[p{2}]));\n", type, i - 1, i);
  }
  finish += elements.statements;
  for (size_t o = 0; o < request.outputs.size(); ++o) {
    finish += fmt::format("out{0}[q{0}] = {1};\n", o,
                          stored(elements.results[o], elements.computed, request.outputs[o].dtype));
  }
  program.phases.push_back(product_phase(request, out, to_string(computed_in(request.inputs[0].dtype)), finish));
  return program;
}

}  // namespace

void add_matmul(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "matmul", write_matmul);
  add_writer(registry, gpu, "batch_matmul", write_matmul);
  add_writer(registry, gpu, "fused_matmul", write_fused_matmul);
}

}  // namespace tessera::cuda
