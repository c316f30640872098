#include "tessera/kernels/cuda/indexing/scatter_add.h"

#include <algorithm>

#include "tessera/kernels/cuda/core/phase_parts.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/indexing/sorted_rows.h"
#include "tessera/kernels/cuda/shapes/copies.h"

namespace tessera::cuda {
namespace {

// What one row of the table is, and the rows that are added to it.
struct TableRows {
  ViewWalk elements;  // of a row, or packs of them: q in the table, u in the updates
  int64_t pack = 1;
  NamedStrides in_updates;  // over the indices' dims
};

TableRows rows_of(const TensorView& table, const TensorView& indices, const TensorView& updates, int axis) {
  TableRows rows;
  Shape shape;
  std::vector<NamedStrides> views = {{"q", {}}, {"u", {}}};
  rows.in_updates.name = "u";
  for (int d = 0; d < table.shape.ndim(); ++d) {
    if (d == axis) continue;
    shape.push_back(table.shape[d]);
    views[0].strides.push_back(table.strides[d]);
    views[1].strides.push_back(updates.strides[d < axis ? d : d - 1 + indices.shape.ndim()]);
  }
  for (int d = 0; d < indices.shape.ndim(); ++d) rows.in_updates.strides.push_back(updates.strides[axis + d]);
  rows.elements = in_order_of_first(shape, std::move(views));
  const int last = rows.elements.shape.ndim() - 1;
  for (int64_t pack = 16 / static_cast<int64_t>(size_bytes(table.dtype)); pack > 1; pack /= 2) {
    const auto packs = packed(rows.elements, pack);
    bool fits = packs && table.strides[axis] % pack == 0;
    for (int v = 0; v < 2 && fits; ++v) fits = packs->views[static_cast<size_t>(v)].strides[last] == pack;
    for (const int64_t stride : rows.in_updates.strides) fits = fits && stride % pack == 0;
    if (!fits) continue;
    rows.elements = *packs;
    rows.pack = pack;
    break;
  }
  return rows;
}

// A block has one place in `sorted` and some packs of a row's elements. Where a row begins there, its warps take turns
// at the rows that are added to it.
ProgramPhase add_phase(const TensorView& table, const TensorView& indices, const TableRows& rows, int axis) {
  const int64_t count = indices.num_elements();
  const int64_t packs = rows.elements.shape.num_elements();
  const int64_t parts = (packs + 31) / 32;
  const DType computed = computed_in(table.dtype);
  ProgramPhase phase{.blocks = count * parts, .threads = kPartThreads};
  const std::string pack = fmt::format("Pack<{}, {}>", to_string(table.dtype), rows.pack);
  phase.body = fmt::format(
      "const int* const sorted = reinterpret_cast<const int*>(scratch);\n"
      "const int* const positions = sorted + {0};\n"
      "const int begin = int(blockIdx.x / {1});\n"
      "const int row = sorted[begin];\n"
      "if (row < 0 || (begin > 0 && sorted[begin - 1] == row)) return;\n"
      "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n"
      "const int element = int(blockIdx.x % {1}) * 32 + lane;\n"
      "const bool is_inside = element < {2};\n"
      "const int at = is_inside ? element : 0;\n",
      count, parts, packs);
  phase.body += fmt::format("{}const auto at_update = [&](int at) {{\n{}return u;\n}};\n",
                            offsets_text(rows.elements.shape, rows.elements.views, "at"),
                            offsets_text(indices.shape, {rows.in_updates}, "at"));
  phase.body += fmt::format(
      "const i64 from = u;\n"
      "{0} sums[{1}] = {{}};\n"
      "for (int i = begin + warp; i < {2} && sorted[i] == row; i += 32) {{\n"
      "  {3} x[4];\n  bool is_there[4];\n"
      "  #pragma unroll\n  for (int k = 0; k < 4; ++k) {{\n"
      "    is_there[k] = i + k * 8 < {2} && sorted[i + k * 8] == row;\n"
      "    if (is_there[k]) x[k] = *reinterpret_cast<const {3}*>(in2 + from + at_update(positions[i + k * 8]));\n  }}\n"
      "  #pragma unroll\n  for (int k = 0; k < 4; ++k) {{\n"
      "    #pragma unroll\n    for (int j = 0; j < {1}; ++j) {{\n"
      "      if (is_there[k]) sums[j] = wrapping_add<{0}>(sums[j], wide(x[k][j]));\n    }}\n  }}\n}}\n",
      to_string(computed), rows.pack, count, pack);
  phase.body += fmt::format(
      "__shared__ {0} of_warps[8][{1}][32];\n"
      "#pragma unroll\nfor (int j = 0; j < {1}; ++j) of_warps[warp][j][lane] = sums[j];\n"
      "__syncthreads();\nif (warp > 0 || !is_inside) return;\n"
      "{2}* const to = reinterpret_cast<{2}*>(out0 + q + i64(row) * {3});\n{2} y = *to;\n"
      "#pragma unroll\nfor (int j = 0; j < {1}; ++j) {{\n  {0} sum = of_warps[0][j][lane];\n"
      "  for (int w = 1; w < 8; ++w) sum = wrapping_add<{0}>(sum, of_warps[w][j][lane]);\n"
      "  y[j] = {4}(wrapping_add<{0}>(wide(y[j]), sum));\n}}\n*to = y;\n",
      to_string(computed), rows.pack, pack, table.strides[axis], to_string(table.dtype));
  return phase;
}

}  // namespace

std::optional<DeviceProgram> write_scatter_add(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& base = request.inputs[0];
  const TensorView& indices = request.inputs[1];
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda.scatter_add"};
  if (base.strides == y.strides) program.in_place = {{0, 0}};
  if (y.num_elements() == 0) return program;
  const int axis = normalize_axis(request.attributes.get_int("axis"), base.shape.ndim(), "axis");
  const size_t bytes = size_bytes(y.dtype);
  PhasePart copied = copy_part(gpu, bytes, y.shape, {"in0", 0, base.strides}, {"out0", 0, y.strides});
  copied.body =
      fmt::format("if (static_cast<const void*>(in0) != static_cast<const void*>(out0)) {{\n{}}}\n", copied.body);
  const int64_t count = indices.num_elements();
  if (count == 0) {
    program.phases.push_back(side_by_side({copied}));
    return program;
  }
  if (count > kMostSortedRows || y.shape[axis] > kMostSortedRows) return std::nullopt;
  program.scratch_bytes = bytes_of_sorted_rows(count);
  program.phases.push_back(side_by_side({sort_part(gpu, "in1", indices, y.shape[axis]), copied}));
  program.phases.push_back(add_phase(y, indices, rows_of(y, indices, request.inputs[2], axis), axis));
  return program;
}

}  // namespace tessera::cuda
