#include "tessera/kernels/cpu/rows/strided.h"

#include <algorithm>

namespace tessera::kernels::cpu {

std::optional<Strides> broadcast_strides(const TensorView& view, const Shape& shape) {
  const int missing = shape.ndim() - view.shape.ndim();
  if (missing < 0) return std::nullopt;
  Strides strides = shape;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    const int own = dim - missing;
    if (own < 0 || (view.shape[own] == 1 && shape[dim] != 1)) {
      strides[dim] = 0;
    } else if (view.shape[own] == shape[dim]) {
      strides[dim] = view.strides[own];
    } else {
      return std::nullopt;
    }
  }
  return strides;
}

std::optional<std::vector<MergedDim>> merge_dims(const Shape& shape, const std::vector<Strides>& strides,
                                                 size_t ordering) {
  std::vector<MergedDim> dims;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] == 1) continue;
    MergedDim d{shape[dim], {}};
    for (size_t i = 0; i < strides.size(); ++i) d.strides[i] = strides[i][dim];
    if (d.strides[ordering] <= 0) return std::nullopt;
    dims.push_back(d);
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [&](const MergedDim& a, const MergedDim& b) { return a.strides[ordering] > b.strides[ordering]; });
  std::vector<MergedDim> merged;
  for (const MergedDim& dim : dims) {
    bool joins = !merged.empty();
    for (size_t i = 0; joins && i < strides.size(); ++i) joins = merged.back().strides[i] == dim.strides[i] * dim.size;
    if (joins) {
      const int64_t size = merged.back().size * dim.size;
      merged.back() = dim;
      merged.back().size = size;
    } else {
      merged.push_back(dim);
    }
  }
  if (merged.empty()) {
    MergedDim one;
    one.strides.fill(1);
    merged.push_back(one);
  }
  return merged;
}

OperandPart slice_of(const TensorView& view, int64_t offset, const Shape& shape, const Strides& strides) {
  return {{nullptr, view.dtype, shape, strides}, offset * static_cast<int64_t>(size_bytes(view.dtype))};
}

OperandPart slice_dim(const TensorView& view, int dim, int64_t begin, int64_t size) {
  OperandPart slice{view, begin * view.strides[dim] * static_cast<int64_t>(size_bytes(view.dtype))};
  slice.view.shape[dim] = size;
  return slice;
}

void SlicedKernel::add(PreparedKernel kernel, std::vector<OperandPart> inputs, std::vector<OperandPart> outputs,
                       size_t first_input, size_t first_output) {
  scratch_bytes_ = std::max(scratch_bytes_, kernel.scratch_bytes);
  parts_.push_back({std::move(kernel), std::move(inputs), std::move(outputs), first_input, first_output});
}

void SlicedKernel::run(const KernelArgs& args) const {
  std::array<TensorView, 8> inputs, outputs;
  const auto place = [](const std::vector<OperandPart>& slices, std::span<const TensorView> whole, auto& views) {
    for (size_t i = 0; i < slices.size(); ++i) {
      views[i] = slices[i].view;
      views[i].data = static_cast<std::byte*>(whole[i].data) + slices[i].offset_bytes;
    }
    return std::span<const TensorView>(views.data(), slices.size());
  };
  for (const Slice& part : parts_) {
    part.kernel.run({place(part.inputs, args.inputs.subspan(part.first_input), inputs),
                     place(part.outputs, args.outputs.subspan(part.first_output), outputs), args.attributes,
                     args.scratch, args.parallel_for});
  }
}

PreparedKernel SlicedKernel::finish(std::shared_ptr<const SlicedKernel> sliced, const std::string& name) {
  PreparedKernel kernel{.name = name, .scratch_bytes = sliced->scratch_bytes_};
  if (!sliced->empty()) kernel.in_place = sliced->parts_.front().kernel.in_place;
  kernel.run = [sliced = std::move(sliced)](const KernelArgs& args) { sliced->run(args); };
  return kernel;
}

}  // namespace tessera::kernels::cpu
