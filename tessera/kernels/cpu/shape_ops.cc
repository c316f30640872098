// Operators that only move elements: all of them are copies between views of the operands.
#include <algorithm>

#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/kernels/cpu/rows/copy.h"

namespace tessera::kernels::cpu {
namespace {

bool one_dtype(const KernelRequest& request) {
  const auto same = [&](const TensorView& view) { return view.dtype == request.outputs[0].dtype; };
  return std::all_of(request.inputs.begin(), request.inputs.end(), same) &&
         std::all_of(request.outputs.begin(), request.outputs.end(), same);
}

// Copies slices of inputs to slices of outputs; each is (input, its slice, output, its slice).
class Copies {
 public:
  explicit Copies(const KernelRequest& request) : name_("cpu." + request.op) {}
  void add(size_t input, const OperandPart& from, size_t output, const OperandPart& to) {
    auto kernel = prepare_copy(from.view, to.view, name_);
    if (kernel) {
      sliced_->add(std::move(*kernel), {from}, {to}, input, output);
    } else {
      possible_ = false;
    }
  }
  std::optional<PreparedKernel> finish() const {
    if (!possible_) return std::nullopt;
    return SlicedKernel::finish(sliced_, name_);
  }

 private:
  std::string name_;
  std::shared_ptr<SlicedKernel> sliced_ = std::make_shared<SlicedKernel>();
  bool possible_ = true;
};

// Reshape, squeeze, expand_dims: where one side is dense, the other's shape fits it too.
std::optional<PreparedKernel> prepare_reshape(const KernelRequest& request) {
  TensorView x = request.inputs[0];
  TensorView y = request.outputs[0];
  if (!one_dtype(request)) return std::nullopt;
  const bool both_dense = x.is_dense() && y.is_dense();
  if (y.is_dense()) {
    y = TensorView(nullptr, x.type());
  } else if (x.is_dense()) {
    x = TensorView(nullptr, y.type());
  } else {
    return std::nullopt;
  }
  Copies copies(request);
  copies.add(0, {x}, 0, {y});
  auto kernel = copies.finish();
  if (kernel && both_dense) {
    kernel->in_place = {{0, 0}};
    kernel->run = [run = std::move(kernel->run)](const KernelArgs& args) {
      if (args.inputs[0].data != args.outputs[0].data) run(args);
    };
  }
  return kernel;
}

std::optional<PreparedKernel> prepare_transpose(const KernelRequest& request) {
  if (!one_dtype(request)) return std::nullopt;
  TensorView x = request.inputs[0];
  x.shape = request.outputs[0].shape;
  for (int dim = 0; dim < x.shape.ndim(); ++dim) {
    const int64_t from = request.attributes.get_ints("perm")[static_cast<size_t>(dim)];
    x.strides[dim] = request.inputs[0].strides[static_cast<int>(from)];
  }
  Copies copies(request);
  copies.add(0, {x}, 0, {request.outputs[0]});
  return copies.finish();
}

std::optional<PreparedKernel> prepare_broadcast(const KernelRequest& request) {
  if (!one_dtype(request)) return std::nullopt;
  Copies copies(request);
  copies.add(0, {request.inputs[0]}, 0, {request.outputs[0]});
  return copies.finish();
}

std::optional<PreparedKernel> prepare_concat(const KernelRequest& request) {
  if (!one_dtype(request)) return std::nullopt;
  const TensorView& y = request.outputs[0];
  const int axis = normalize_axis(request.attributes.get_int("axis"), y.shape.ndim(), "axis");
  Copies copies(request);
  int64_t begin = 0;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const TensorView& x = request.inputs[i];
    copies.add(i, {x}, 0, slice_dim(y, axis, begin, x.shape[axis]));
    begin += x.shape[axis];
  }
  return copies.finish();
}

std::optional<PreparedKernel> prepare_split(const KernelRequest& request) {
  if (!one_dtype(request)) return std::nullopt;
  const TensorView& x = request.inputs[0];
  const int axis = normalize_axis(request.attributes.get_int("axis"), x.shape.ndim(), "axis");
  Copies copies(request);
  int64_t begin = 0;
  for (size_t o = 0; o < request.outputs.size(); ++o) {
    const TensorView& y = request.outputs[o];
    copies.add(0, slice_dim(x, axis, begin, y.shape[axis]), o, {y});
    begin += y.shape[axis];
  }
  return copies.finish();
}

std::optional<PreparedKernel> prepare_slice(const KernelRequest& request) {
  const TensorView& x = request.inputs[0];
  const TensorView& y = request.outputs[0];
  if (!one_dtype(request) || y.num_elements() == 0) return std::nullopt;
  const Ints& begin = request.attributes.get_ints("begin");
  const Ints& step = request.attributes.get_ints("strides");
  int64_t offset = 0;
  Strides strides = x.strides;
  for (int dim = 0; dim < y.shape.ndim(); ++dim) {
    offset += begin[static_cast<size_t>(dim)] * x.strides[dim];
    strides[dim] *= step[static_cast<size_t>(dim)];
  }
  Copies copies(request);
  copies.add(0, slice_of(x, offset, y.shape, strides), 0, {y});
  return copies.finish();
}

}  // namespace

void add_shape_ops(KernelRegistry& registry) {
  for (const char* op : {"reshape", "squeeze", "expand_dims"}) registry.add(op, prepare_reshape);
  registry.add("transpose", prepare_transpose);
  registry.add("broadcast_to", prepare_broadcast);
  registry.add("concat", prepare_concat);
  registry.add("split", prepare_split);
  registry.add("strided_slice", prepare_slice);
}

}  // namespace tessera::kernels::cpu
