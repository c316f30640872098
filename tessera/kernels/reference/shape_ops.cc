#include <cstring>

#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/loops.h"

// Most of these are one copy between views: they take every dtype, storage-only ones included.

namespace tessera::kernels::reference {
namespace {

// Both in row-major order of their own shapes.
template <typename Bits>
void copy_in_order(const TensorView& from, const TensorView& to) {
  // The place of the next element of `from`.
  std::array<int64_t, kMaxNdim> index{};
  int64_t at = 0;
  const auto advance = [&] {
    for (int d = from.shape.ndim() - 1; d >= 0; --d) {
      at += from.strides[d];
      if (++index[static_cast<size_t>(d)] < from.shape[d]) return;
      at -= from.strides[d] * from.shape[d];
      index[static_cast<size_t>(d)] = 0;
    }
  };
  const auto* source = static_cast<const Bits*>(from.data);
  auto* target = static_cast<Bits*>(to.data);
  for_each_element<1>(to.shape, {to.strides}, [&](const std::array<int64_t, 1>& out) {
    target[out[0]] = source[at];
    advance();
  });
}

void run_reshape(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& y = args.outputs[0];
  if (y.num_elements() == 0) return;
  if (x.is_dense() && y.is_dense()) {
    if (x.data != y.data) std::memcpy(y.data, x.data, static_cast<size_t>(x.size_bytes()));
    return;
  }
  switch (size_bytes(x.dtype)) {
    case 1: return copy_in_order<uint8_t>(x, y);
    case 2: return copy_in_order<uint16_t>(x, y);
    case 4: return copy_in_order<uint32_t>(x, y);
    default: return copy_in_order<uint64_t>(x, y);
  }
}

std::optional<PreparedKernel> make_reshape(const KernelRequest& request) {
  PreparedKernel kernel{.name = "reference." + request.op, .run = run_reshape};
  if (request.inputs[0].is_dense() && request.outputs[0].is_dense()) kernel.in_place = {{0, 0}};
  return kernel;
}

void run_transpose(const KernelArgs& args) {
  Strides strides;
  for (const auto dim : args.attributes.get_ints("perm")) {
    strides.push_back(args.inputs[0].strides[static_cast<int>(dim)]);
  }
  copy_elements(subview(args.inputs[0], 0, args.outputs[0].shape, strides), args.outputs[0]);
}

// The piece of `whole` that lies at `offset` along a dim.
TensorView piece(const TensorView& whole, int dim, int64_t offset, const Shape& shape) {
  return subview(whole, offset * whole.strides[dim], shape, whole.strides);
}

void run_concat(const KernelArgs& args) {
  const TensorView& out = args.outputs[0];
  const int axis = normalize_axis(args.attributes.get_int("axis"), out.shape.ndim(), "axis");
  int64_t offset = 0;
  for (const TensorView& x : args.inputs) {
    copy_elements(x, piece(out, axis, offset, x.shape));
    offset += x.shape[axis];
  }
}

void run_split(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const int axis = normalize_axis(args.attributes.get_int("axis"), x.shape.ndim(), "axis");
  int64_t offset = 0;
  for (const TensorView& out : args.outputs) {
    copy_elements(piece(x, axis, offset, out.shape), out);
    offset += out.shape[axis];
  }
}

// The elements of `whole` that a slice with these attributes takes; `shape` is the slice's.
TensorView sliced(const TensorView& whole, const Attributes& attributes, const Shape& shape) {
  const Ints& begin = attributes.get_ints("begin");
  const Ints& step = attributes.get_ints("strides");
  int64_t offset = 0;
  Strides strides = whole.strides;
  for (int d = 0; d < shape.ndim(); ++d) {
    offset += begin[static_cast<size_t>(d)] * whole.strides[d];
    strides[d] *= step[static_cast<size_t>(d)];
  }
  // An empty slice may begin anywhere; no element of it is touched.
  return subview(whole, shape.num_elements() == 0 ? 0 : offset, shape, strides);
}

void run_strided_slice(const KernelArgs& args) {
  copy_elements(sliced(args.inputs[0], args.attributes, args.outputs[0].shape), args.outputs[0]);
}

void run_strided_slice_grad(const KernelArgs& args) {
  fill_elements(args.outputs[0], 0);
  copy_elements(args.inputs[0], sliced(args.outputs[0], args.attributes, args.inputs[0].shape));
}

void run_pad(const KernelArgs& args) {
  const TensorView& y = args.outputs[0];
  const Ints& before = args.attributes.get_ints("before");
  fill_elements(y, args.attributes.get_double("value"));
  if (args.inputs[0].num_elements() == 0) return;
  int64_t offset = 0;
  for (int d = 0; d < y.shape.ndim(); ++d) offset += before[static_cast<size_t>(d)] * y.strides[d];
  copy_elements(args.inputs[0], subview(y, offset, args.inputs[0].shape, y.strides));
}

void run_tile(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& y = args.outputs[0];
  if (y.num_elements() == 0) return;
  // One copy of x per combination of repetitions.
  const Shape multiples(args.attributes.get_ints("multiples"));
  Strides strides = y.strides;
  for (int d = 0; d < strides.ndim(); ++d) strides[d] *= x.shape[d];
  for_each_element<1>(multiples, {strides}, [&](const std::array<int64_t, 1>& at) {
    copy_elements(x, subview(y, at[0], x.shape, y.strides));
  });
}

void run_broadcast_to(const KernelArgs& args) {
  copy_elements(broadcast_view(args.inputs[0], args.outputs[0].shape), args.outputs[0]);
}

}  // namespace

void add_shape_ops(KernelRegistry& registry) {
  for (const char* op : {"reshape", "squeeze", "expand_dims"}) registry.add(op, make_reshape);
  registry.add_function("transpose", "reference", run_transpose);
  registry.add_function("concat", "reference", run_concat);
  registry.add_function("split", "reference", run_split);
  registry.add_function("strided_slice", "reference", run_strided_slice);
  registry.add_function("strided_slice_grad", "reference", run_strided_slice_grad);
  registry.add_function("pad", "reference", run_pad);
  registry.add_function("tile", "reference", run_tile);
  registry.add_function("broadcast_to", "reference", run_broadcast_to);
}

}  // namespace tessera::kernels::reference
