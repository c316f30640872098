// one_hot and gather; scatter_add.cc has the third.
#include "tessera/kernels/cuda/indexing/scatter_add.h"

#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/core/phase_parts.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/shapes/copies.h"

namespace tessera::cuda {
namespace {

// Strides over a shape in which a dim of stride `stride` stands in front of dim `axis`.
Strides inserted(const Strides& strides, int axis, int64_t stride) {
  Strides result;
  for (int d = 0; d <= strides.ndim(); ++d) {
    if (d == axis) result.push_back(stride);
    if (d < strides.ndim()) result.push_back(strides[d]);
  }
  return result;
}

std::optional<DeviceProgram> write_one_hot(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda.one_hot"};
  if (y.num_elements() == 0) return program;
  const int axis = normalize_axis(request.attributes.get_int("axis"), y.shape.ndim(), "axis");
  const Strides none = inserted(request.inputs[0].strides, axis, 0);
  Strides along = none;
  for (int d = 0; d < along.ndim(); ++d) along[d] = d == axis ? 1 : 0;
  const ViewWalk walk = in_order_of_first(
      y.shape, {{"q", y.strides}, {"p", none}, {"at", along}, {"o", stretched(request.inputs[2], y.shape)}});
  const int64_t count = y.num_elements();
  PhasePart part{.blocks = blocks_for(gpu, count, kPartThreads)};
  part.body = deal_text(index_type(walk.shape, walk.views), "i", count) + offsets_text(walk.shape, walk.views, "i") +
              "out0[q] = i64(in0[p]) == i64(at) ? in1[0] : in2[o];\n}\n";
  program.phases.push_back(side_by_side({part}));
  return program;
}

// The table's and the indices' offsets of each element of the result.
std::optional<DeviceProgram> write_gather(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& table = request.inputs[0];
  const TensorView& indices = request.inputs[1];
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda.gather"};
  if (y.num_elements() == 0) return program;
  const int axis = normalize_axis(request.attributes.get_int("axis"), table.shape.ndim(), "axis");
  Strides in_table;
  Strides in_indices;
  for (int d = 0; d < y.shape.ndim(); ++d) {
    const int of_index = d - axis;
    const bool is_index = of_index >= 0 && of_index < indices.shape.ndim();
    in_indices.push_back(is_index ? indices.strides[of_index] : 0);
    in_table.push_back(is_index ? 0 : table.strides[of_index < 0 ? d : d - indices.shape.ndim() + 1]);
  }
  const ViewWalk walk = in_order_of_first(y.shape, {{"q", y.strides}, {"p", in_table}, {"n", in_indices}});
  const int last = walk.shape.ndim() - 1;
  const size_t bytes = size_bytes(y.dtype);
  int64_t pack = 16 / static_cast<int64_t>(bytes);
  const auto fits = [&](int64_t size) {
    const auto packs = packed(walk, size);
    return packs && packs->views[0].strides[last] == size && packs->views[1].strides[last] == size &&
           table.strides[axis] % size == 0;
  };
  while (pack > 1 && !fits(pack)) pack /= 2;
  const ViewWalk packs = *packed(walk, pack);
  const int64_t count = packs.shape.num_elements();
  const std::string type = fmt::format("Pack<{}, {}>", bits_type(bytes), pack);
  PhasePart part{.blocks = blocks_for(gpu, count, kPartThreads)};
  part.body = deal_text(index_type(walk.shape, walk.views), "i", count) + offsets_text(packs.shape, packs.views, "i");
  part.body += fmt::format(
      "const i64 row = i64(in1[n]);\n{0} y = {{}};\n"
      "if (row >= 0 && row < {1}) y = *reinterpret_cast<const {0}*>(in0 + p + row * {2});\n"
      "*reinterpret_cast<{0}*>(out0 + q) = y;\n}}\n",
      type, table.shape[axis], table.strides[axis]);
  program.phases.push_back(side_by_side({part}));
  return program;
}

}  // namespace

void add_indexing(KernelRegistry& registry, Gpu& gpu) {
  add_writer(registry, gpu, "one_hot", write_one_hot);
  add_writer(registry, gpu, "gather", write_gather);
  add_writer(registry, gpu, "scatter_add", write_scatter_add);
}

}  // namespace tessera::cuda
