// Operators that move elements. They take every dtype, storage-only ones included.
#include <algorithm>

#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/shapes/copies.h"

namespace tessera::cuda {
namespace {

std::string input_name(size_t i) { return fmt::format("in{}", i); }
std::string output_name(size_t o) { return fmt::format("out{}", o); }

// One copy, which may go through shared memory.
DeviceProgram write_one_copy(const KernelRequest& request, const Gpu& gpu, const Shape& shape,
                             const ElementsPlace& from, const ElementsPlace& to) {
  DeviceProgram program{.name = "cuda." + request.op};
  if (shape.num_elements() == 0) return program;
  const size_t bytes = size_bytes(request.outputs[0].dtype);
  const auto tiled = tiled_copy_part(gpu, bytes, shape, from, to);
  program.phases.push_back(side_by_side({tiled ? *tiled : copy_part(gpu, bytes, shape, from, to)}));
  return program;
}

// Sizes into which the sizes of both shapes can be cut, row-major; nullopt where there are none.
std::optional<Shape> common_sizes(const Shape& a, const Shape& b) {
  std::vector<int64_t> cuts;  // numbers of elements behind a place that either is cut at
  for (const Shape* shape : {&a, &b}) {
    int64_t behind = 1;
    for (int d = shape->ndim(); d-- > 0;) cuts.push_back(behind *= (*shape)[d]);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<int64_t> sizes;
  int64_t before = 1;
  for (const int64_t cut : cuts) {
    if (cut % before != 0) return std::nullopt;
    if (cut != before) sizes.insert(sizes.begin(), cut / before);
    before = cut;
  }
  if (sizes.size() > kMaxNdim) return std::nullopt;
  return Shape(sizes);
}

// The strides of a view over such sizes.
Strides strides_over(const Shape& sizes, const TensorView& view) {
  Strides strides = sizes;
  int dim = sizes.ndim() - 1;
  for (int d = view.shape.ndim(); d-- > 0;) {
    int64_t stride = view.strides[d];
    for (int64_t left = view.shape[d]; left > 1; --dim) {
      strides[dim] = stride;
      stride *= sizes[dim];
      left /= sizes[dim];
    }
  }
  return strides;
}

std::optional<DeviceProgram> write_reshape(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda." + request.op};
  if (y.num_elements() == 0) return program;
  if (const auto sizes = common_sizes(x.shape, y.shape)) {
    program =
        write_one_copy(request, gpu, *sizes, {"in0", 0, strides_over(*sizes, x)}, {"out0", 0, strides_over(*sizes, y)});
  } else {
    const std::vector<NamedStrides> from = {{"p", x.strides}};
    const std::vector<NamedStrides> to = {{"q", y.strides}};
    const bool is_long = index_type(x.shape, from) != "int" || index_type(y.shape, to) != "int";
    const std::string type = is_long ? "i64" : "int";
    PhasePart part{.blocks = blocks_for(gpu, y.num_elements(), kPartThreads)};
    part.body = deal_text(type, "i", y.num_elements()) +
                fmt::format("{0} from, to;\n{{\n{1}from = p;\n}}\n{{\n{2}to = q;\n}}\nout0[to] = in0[from];\n}}\n",
                            type, offsets_text(x.shape, from, "i"), offsets_text(y.shape, to, "i"));
    program.phases.push_back(side_by_side({part}));
  }
  if (x.is_dense() && y.is_dense()) program.in_place = {{0, 0}};
  return program;
}

std::optional<DeviceProgram> write_transpose(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& y = request.outputs[0];
  Strides strides;
  for (const auto dim : request.attributes.get_ints("perm")) {
    strides.push_back(request.inputs[0].strides[static_cast<int>(dim)]);
  }
  return write_one_copy(request, gpu, y.shape, {"in0", 0, strides}, {"out0", 0, y.strides});
}

std::optional<DeviceProgram> write_broadcast_to(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& y = request.outputs[0];
  return write_one_copy(request, gpu, y.shape, {"in0", 0, stretched(request.inputs[0], y.shape)},
                        {"out0", 0, y.strides});
}

// The copies between `whole` and `pieces`, which lie in it one after the other along `axis`.
DeviceProgram write_pieces(const KernelRequest& request, const Gpu& gpu, const TensorView& whole,
                           const std::vector<TensorView>& pieces, bool joins) {
  DeviceProgram program{.name = "cuda." + request.op};
  const int axis = normalize_axis(request.attributes.get_int("axis"), whole.shape.ndim(), "axis");
  std::vector<PhasePart> parts;
  int64_t offset = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const TensorView& piece = pieces[i];
    const ElementsPlace in_whole{joins ? "out0" : "in0", offset * whole.strides[axis], whole.strides};
    const ElementsPlace alone{joins ? input_name(i) : output_name(i), 0, piece.strides};
    if (piece.num_elements() > 0) {
      parts.push_back(
          copy_part(gpu, size_bytes(whole.dtype), piece.shape, joins ? alone : in_whole, joins ? in_whole : alone));
    }
    offset += piece.shape[axis];
  }
  if (!parts.empty()) program.phases.push_back(side_by_side(parts));
  return program;
}

std::optional<DeviceProgram> write_concat(const KernelRequest& request, const Gpu& gpu) {
  return write_pieces(request, gpu, request.outputs[0], request.inputs, true);
}

std::optional<DeviceProgram> write_split(const KernelRequest& request, const Gpu& gpu) {
  return write_pieces(request, gpu, request.inputs[0], request.outputs, false);
}

// Where the elements of `whole` lie that a slice with these attributes takes.
ElementsPlace sliced(std::string address, const TensorView& whole, const Attributes& attributes) {
  const Ints& begin = attributes.get_ints("begin");
  const Ints& step = attributes.get_ints("strides");
  ElementsPlace place{std::move(address), 0, whole.strides};
  for (int d = 0; d < whole.shape.ndim(); ++d) {
    place.offset += begin[static_cast<size_t>(d)] * whole.strides[d];
    place.strides[d] *= step[static_cast<size_t>(d)];
  }
  return place;
}

std::optional<DeviceProgram> write_strided_slice(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& y = request.outputs[0];
  return write_one_copy(request, gpu, y.shape, sliced("in0", request.inputs[0], request.attributes),
                        {"out0", 0, y.strides});
}

// The result is set to one value, then the operand is copied to a part of it.
DeviceProgram write_filled(const KernelRequest& request, const Gpu& gpu, double value, const ElementsPlace& place) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda." + request.op};
  if (y.num_elements() == 0) return program;
  const size_t bytes = size_bytes(y.dtype);
  if (!(x.shape == y.shape)) {
    const ElementsPlace all{"out0", 0, y.strides};
    program.phases.push_back(side_by_side({fill_part(gpu, bytes, y.shape, bits_literal(value, y.dtype), all)}));
  }
  if (x.num_elements() > 0) {
    program.phases.push_back(side_by_side({copy_part(gpu, bytes, x.shape, {"in0", 0, x.strides}, place)}));
  }
  return program;
}

std::optional<DeviceProgram> write_strided_slice_grad(const KernelRequest& request, const Gpu& gpu) {
  return write_filled(request, gpu, 0, sliced("out0", request.outputs[0], request.attributes));
}

std::optional<DeviceProgram> write_pad(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& y = request.outputs[0];
  const Ints& before = request.attributes.get_ints("before");
  ElementsPlace place{"out0", 0, y.strides};
  for (int d = 0; d < y.shape.ndim(); ++d) place.offset += before[static_cast<size_t>(d)] * y.strides[d];
  return write_filled(request, gpu, request.attributes.get_double("value"), place);
}

// Each element of the result finds its element of the operand.
std::optional<DeviceProgram> write_tile(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  DeviceProgram program{.name = "cuda.tile"};
  if (y.num_elements() == 0) return program;
  PhasePart part{.blocks = blocks_for(gpu, y.num_elements(), kPartThreads)};
  part.body = deal_text("i64", "i", y.num_elements()) + "i64 rest = i, p = 0, q = 0;\n";
  for (int d = y.shape.ndim(); d-- > 0;) {
    part.body += fmt::format("{{ const i64 at = rest % {}; rest /= {}; p += at % {} * {}; q += at * {}; }}\n",
                             y.shape[d], y.shape[d], x.shape[d], x.strides[d], y.strides[d]);
  }
  part.body += "out0[q] = in0[p];\n}\n";
  program.phases.push_back(side_by_side({part}));
  return program;
}

}  // namespace

void add_shape_ops(KernelRegistry& registry, Gpu& gpu) {
  for (const char* op : {"reshape", "squeeze", "expand_dims"}) add_writer(registry, gpu, op, write_reshape);
  add_writer(registry, gpu, "transpose", write_transpose);
  add_writer(registry, gpu, "concat", write_concat);
  add_writer(registry, gpu, "split", write_split);
  add_writer(registry, gpu, "strided_slice", write_strided_slice);
  add_writer(registry, gpu, "strided_slice_grad", write_strided_slice_grad);
  add_writer(registry, gpu, "pad", write_pad);
  add_writer(registry, gpu, "tile", write_tile);
  add_writer(registry, gpu, "broadcast_to", write_broadcast_to);
}

}  // namespace tessera::cuda
